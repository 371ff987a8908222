//! The commands with one request: round trips from scripts, JSON, and output that cannot be written.

use crate::library::KEEPS;
use crate::program::{LONG, assert_free, bare, dflock, into_full, patient, run, shell, start};
use nix::sys::signal::Signal;
use rstest::rstest;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use testbed::dflockd::{Daemon, PATIENCE, until};

fn is_token(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[test]
fn a_script_takes_renews_and_releases() {
    let daemon = Daemon::start(KEEPS);
    let script = "set -e
        token=$(dflock acquire my-job --ttl 60)
        dflock renew my-job $token
        dflock renew my-job $token --ttl 120
        dflock acquire my-job --timeout 0 || echo code $?
        dflock acquire my-job --timeout 4 || echo code $?
        DFLOCK_TOKEN=$token dflock renew my-job
        dflock release my-job $token
        dflock release my-job $token || echo code $?
        dflock renew my-job $token || echo code $?
        echo $token";
    let end = run(&mut shell(&daemon, script));
    assert_eq!(end.code, 0, "{end:?}");
    let lines: Vec<&str> = end.out.lines().collect();
    let [rest @ .., token] = lines.as_slice() else { panic!("{end:?}") };
    assert!(is_token(token));
    assert_eq!(rest, ["33", "120", "code 1", "code 75", "33", "code 1", "code 1"]);
    let complaints = [
        "dflock: busy: held for ",
        "dflock: timed out waiting: held for ",
        "dflock: the token does not hold this key",
        "dflock: the token does not hold this key",
    ];
    assert_eq!(end.err.lines().count(), complaints.len(), "{end:?}");
    let mut pairs = end.err.lines().zip(complaints);
    assert!(pairs.all(|(line, complaint)| line.starts_with(complaint)), "{end:?}");
    assert_free(&daemon);
}

/// All keys, or none. The answers are in the order in which the keys were typed.
#[rstest]
#[case::on_one_server(1)]
#[case::on_three_servers(3)]
fn acquire_takes_several(#[case] servers: usize) {
    let daemons: Vec<Daemon> = (0..servers).map(|_| Daemon::start(KEEPS)).collect();
    let list: Vec<String> = daemons.iter().map(|it| it.address.to_string()).collect();
    let ask = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        run(bare(&words).env("DFLOCK_SERVERS", list.join(",")))
    };
    let end = ask("acquire d --key a -k c --key b --ttl 60");
    assert_eq!(end.code, 0, "{end:?}");
    let tokens: Vec<&str> = end.out.lines().collect();
    assert!(tokens.len() == 4 && tokens.iter().all(|token| is_token(token)), "{end:?}");
    let busy = ask("acquire --key other -k c --timeout 0");
    assert_eq!((busy.code, &*busy.out), (1, ""), "{busy:?}");
    assert!(busy.err.starts_with("dflock: busy: c: held for "), "{busy:?}");
    for (key, token) in ["d", "a", "c", "b"].iter().zip(tokens) {
        let end = ask(&format!("release {key} {token}"));
        assert_eq!(end.code, 0, "{key}: {end:?}");
    }
    daemons.iter().for_each(assert_free);
    let grants = json(&ask("--json acquire --key b --key a").out);
    for (at, key) in ["b", "a"].into_iter().enumerate() {
        assert_eq!(members(&grants[at]), ["fence", "key", "token", "ttl_s"]);
        assert_eq!(grants[at]["key"], key);
        let token = grants[at]["token"].as_str().unwrap();
        assert_eq!(ask(&format!("release {key} {token}")).code, 0);
    }
    daemons.iter().for_each(assert_free);
}

/// One of two servers would release its key when the connection closes: the other key is released as well.
#[test]
fn acquire_of_several_leaves_none_behind() {
    let daemons = [Daemon::start(KEEPS), Daemon::start(&[])];
    let list = daemons.each_ref().map(|it| it.address.to_string()).join(",");
    let words = ["acquire", "-k", "a", "-k", "b", "-k", "c", "-k", "d", "--ttl", LONG];
    let end = run(bare(&words).env("DFLOCK_SERVERS", list));
    assert_eq!((end.code, &*end.out), (78, ""), "{end:?}");
    assert!(daemons.iter().all(|daemon| daemon.stats().contains("\"locks\":[],")));
}

#[test]
fn slots_of_a_semaphore_are_taken_and_released_one_by_one() {
    let daemon = Daemon::start(KEEPS);
    let script = "set -e
        a=$(dflock acquire k --limit 2); b=$(dflock acquire k --limit 2)
        dflock acquire k --limit 2 --timeout 0 || echo code $?
        dflock acquire k --limit 3 --timeout 0 || echo code $?
        dflock release k $a; c=$(dflock acquire k --limit 2 --timeout 0)
        dflock release k $b; dflock renew k $c --ttl 50; dflock release k $c";
    let end = run(&mut shell(&daemon, script));
    assert_eq!((end.code, &*end.out), (0, "code 1\ncode 64\n50\n"), "{end:?}");
    assert_free(&daemon);
}

/// A server may take the lock back when this command ends, or a while after. It must say so instead of
/// printing a token that holds nothing, or soon will.
#[rstest]
#[case::at_once(&[], None, "when this connection closes")]
#[case::before_the_lease_asked_for(
    &["--disconnect-grace", "50"], Some("600"), "50 seconds after this connection closes"
)]
#[case::before_its_usual_lease(
    &["--disconnect-grace", "32"], None, "32 seconds after this connection closes"
)]
#[case::after_its_usual_lease(&["--disconnect-grace", "33"], None, "")]
#[case::after_the_lease_asked_for(&["--disconnect-grace", "600"], Some("600"), "")]
#[case::never(KEEPS, Some("600"), "")]
fn acquire_admits_that_the_server_releases(
    #[case] options: &[&str],
    #[case] ttl: Option<&str>,
    #[case] said: &str,
) {
    let daemon = Daemon::start(options);
    let ttl: Vec<&str> = ttl.iter().flat_map(|ttl| ["--ttl", ttl]).collect();
    let end = run(dflock(&daemon, &["acquire", "k", "--timeout", "0"]).args(ttl));
    if said.is_empty() {
        assert_eq!((end.code, &*end.err), (0, ""), "{end:?}");
        assert!(is_token(end.out.trim()));
    } else {
        assert_eq!((end.code, &*end.out), (78, ""), "{end:?}");
        assert!(end.err.contains(said), "{end:?}");
        assert!(end.err.contains("--auto-release-on-disconnect=false"), "{end:?}");
        assert_free(&daemon);
    }
}

/// A server that knows the protocol's words and no others, and gives the same answer to each each time.
pub(crate) fn another_make(renewal: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut answers = stream.try_clone().unwrap();
                let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
                while let (Some(word), Some(_), Some(_)) =
                    (lines.next(), lines.next(), lines.next())
                {
                    let answer = match &*word {
                        "ping" => "ok",
                        "l" => "ok 00000000000000010123456789abcdef 33",
                        "n" => renewal,
                        _ => "error",
                    };
                    writeln!(answers, "{answer}").unwrap();
                }
            });
        }
    });
    address
}

/// One that cannot say what it does is tried: when the connection has closed, the token holds or not.
#[rstest]
#[case("ok 33", 0, "")]
#[case("error", 78, "when this connection closes")]
fn acquire_finds_out_whether_the_server_releases(
    #[case] renewal: &'static str,
    #[case] code: i32,
    #[case] said: &str,
) {
    let server = another_make(renewal);
    let end = run(bare(&["acquire", "k"]).env("DFLOCK_SERVERS", server));
    assert_eq!((end.code, end.out.is_empty()), (code, code != 0), "{end:?}");
    assert!(end.err.contains(said), "{end:?}");
}

/// Its random tokens look like tokens with a fence, and must not be taken for them.
#[test]
fn a_server_that_does_not_promise_fences_gives_none() {
    let server = another_make("ok 33");
    let of = |words: &[&str]| {
        let mut command = bare(words);
        command.env("DFLOCK_SERVERS", &server).env("DFLOCK_FENCE", "7").env("DFLOCK_FENCES", "7 8");
        run(&mut command)
    };
    let script = "echo $DFLOCK_TOKEN ${DFLOCK_FENCE-unset} ${DFLOCK_FENCES-unset}";
    let end = of(&["run", "k", "--", "sh", "-c", script]);
    assert_eq!(end.out, "00000000000000010123456789abcdef unset unset\n", "{end:?}");
    let grant = json(&of(&["--json", "acquire", "k"]).out);
    assert_eq!((grant["fence"].is_null(), grant["ttl_s"].as_u64()), (true, Some(33)));
}

/// The Go server, and earlier versions of this one. What was granted is given back.
#[test]
fn a_server_that_tells_no_slots() {
    let server = scripted(|verb| match verb {
        "sl" | "sw" => "ok 00000000000000010123456789abcdef 33",
        "se" => "acquired 00000000000000010123456789abcdef 33",
        "sn" => "ok 33",
        "name" => "error",
        _ => "ok",
    });
    let of =
        |words: &[&str]| run(bare(words).env("DFLOCK_SERVERS", &server).env("DFLOCK_SLOT", "7"));
    let say = "echo ${DFLOCK_SLOT-unset}";
    for limit in ["1", "2"] {
        let end = of(&["run", "k", "--limit", limit, "--", "sh", "-c", say]);
        assert_eq!((end.code, &*end.out), (0, "unset\n"), "{end:?}");
    }
    for items in ["a", "a,b"] {
        let end = of(&["run", "k", "--one-of", items, "--", "echo", "ran"]);
        assert_eq!((end.code, &*end.out), (76, ""), "{end:?}");
        assert!(end.err.contains("does not tell which slot"), "{end:?}");
    }
}

#[test]
fn the_slot_is_in_the_answers() {
    let daemon = Daemon::start(KEEPS);
    let of = |words: &[&str]| run(&mut dflock(&daemon, words));
    for want in [0, 1] {
        let grant = json(&of(&["--json", "acquire", "pool", "--limit", "3"]).out);
        assert_eq!(grant["slot"].as_u64(), Some(want), "{grant}");
    }
    assert!(!members(&json(&of(&["--json", "acquire", "k"]).out)).contains(&"slot"));
    let stats = json(&of(&["--json", "stats", "pool"]).out);
    let slots: Vec<_> = stats["holders"].as_array().unwrap().iter().map(|it| &it["slot"]).collect();
    assert_eq!(slots, [0, 1]);
    let shown = of(&["stats", "pool"]).out;
    assert!(
        shown.contains("  holder   slot 0: ") && shown.contains("  holder   slot 1: "),
        "{shown}"
    );
    assert!(!of(&["stats", "k"]).out.contains("slot"));
}

#[test]
fn a_token_of_another_holds_nothing() {
    let daemon = Daemon::start(&[]);
    let mut holder = daemon.talk();
    let token = holder.take("k", "0");
    let other = holder.take("other", "0");
    for (key, token) in [("k", &*other), ("free", &*token), ("k", "0123456789abcdef")] {
        for word in ["release", "renew"] {
            let end = run(&mut dflock(&daemon, &[word, key, token]));
            let said = "dflock: the token does not hold this key\n";
            assert_eq!((end.code, &*end.out, &*end.err), (1, "", said));
        }
    }
    assert_eq!(holder.ask("r", "k", &token), "ok");
}

#[rstest]
#[case::until_input_ends(None)]
#[case::until_told(Some(Signal::SIGTERM))]
#[case::until_interrupted(Some(Signal::SIGINT))]
#[case::until_hung_up(Some(Signal::SIGHUP))]
fn acquire_holds(
    #[case] signal: Option<Signal>,
    #[values(&["k"], &["k", "--key", "j"])] keys: &[&str],
) {
    // Were it not released, the lease would last.
    let daemon = Daemon::start(KEEPS);
    let words = [&["acquire"], keys, &["--hold", "--ttl", LONG]].concat();
    let mut holding = start(dflock(&daemon, &words).stdin(Stdio::piped()));
    assert!(holding.lines(keys.len().min(2)).iter().all(|line| is_token(line)));
    holding.type_in(b"anything");
    let busy = run(&mut dflock(&daemon, &["run", "k", "-t", "0", "--", "true"]));
    assert_eq!(busy.code, 1);
    match signal {
        Some(signal) => holding.signal(signal),
        None => holding.end_input(),
    }
    let end = patient(holding.end());
    assert_eq!((end.code, &*end.err), (0, ""), "{end:?}");
    assert_free(&daemon);
}

fn json(text: &str) -> serde_json::Value {
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn members(value: &serde_json::Value) -> Vec<&str> {
    let mut members: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    members.sort_unstable();
    members
}

#[test]
fn every_answer_can_be_json() {
    let daemon = Daemon::start(KEEPS);
    let ask = |words: &[&str]| {
        let end = run(&mut dflock(&daemon, &[words, &["--json"]].concat()));
        assert_eq!((end.code, &*end.err), (0, ""), "{end:?}");
        json(&end.out)
    };
    let grant = ask(&["acquire", "k", "--ttl", "60"]);
    assert_eq!(members(&grant), ["fence", "key", "token", "ttl_s"]);
    let token = grant["token"].as_str().unwrap();
    let fence = u64::from_str_radix(&token[..16], 16).unwrap();
    assert_eq!(grant["fence"], fence.to_string());
    assert_eq!((&grant["key"], &grant["ttl_s"]), (&"k".into(), &60.into()));
    assert_eq!(ask(&["renew", "k", token]), serde_json::json!({ "ttl_s": 33 }));
    let stats = ask(&["stats"]);
    assert_eq!(stats["locks"][0]["key"], "k");
    let pings = ask(&["ping"]);
    assert_eq!(pings[0]["server"], daemon.address.to_string());
    assert!(pings[0]["ms"].as_f64().unwrap() > 0.0);
    assert_eq!(ask(&["release", "k", token]), serde_json::json!({ "released": true }));
    let bench = ["bench", "--pairs", "50", "--warm-up", "0", "--connections", "2"];
    let report = ask(&bench);
    assert_eq!((&report["pairs"], &report["overlaps"]), (&50.into(), &0.into()));
    assert!(report["pairs_per_s"].as_f64() > Some(0.0) && report["refusals"].is_object());
    for kind in ["pair_us", "acquire_us"] {
        assert!(report[kind]["p50"].as_f64() <= report[kind]["max"].as_f64(), "{report}");
    }
    let table = run(&mut dflock(&daemon, &bench)).out;
    assert!(table.contains(" pairs/s") && table.contains("p99.9"), "{table}");
}

/// `-q` says nothing of holders, and everything else.
#[rstest]
#[case::busy(&["acquire", "held", "-t", "0", "-q"], 1, "")]
#[case::timed_out(&["-q", "run", "held", "-t", "1", "true"], 75, "")]
#[case::not_held(&["release", "k", "nothing", "--quiet", "--json"], 1, "")]
#[case::an_answer(&["stats", "-q"], 0, "")]
#[case::no_such_command(&["run", "free", "-q", "no-such-command"], 127, "dflock: no-such-command: command not found\n")]
#[case::other_code_by_its_old_name(&["run", "held", "-t", "0", "--busy-exit-code", "9", "true"], 9, "")]
fn quiet(#[case] words: &[&str], #[case] code: i32, #[case] said: &str) {
    let daemon = Daemon::start(&[]);
    let mut holder = daemon.talk();
    holder.take("held", "0");
    let end = run(&mut dflock(&daemon, words));
    assert_eq!((end.code, &*end.out, &*end.err), (code, "", said));
}

/// A failure takes the place of the answer, as in all our programs.
#[rstest]
#[case(&["release", "k", "nothing"], 1, "not_held")]
#[case(&["acquire", "held", "-t", "0"], 1, "busy")]
#[case(&["acquire", "held", "-t", "1"], 75, "timeout")]
#[case(&["run", "held", "-t", "0", "--", "true"], 1, "busy")]
#[case(&["run", "held", "-t", "0", "-E", "9", "--", "true"], 9, "busy")]
#[case(&["acquire", "held", "--limit", "2"], 64, "error_limit_mismatch")]
#[case(&["acquire", "k"], 78, "released_on_disconnect")]
#[case(&["acquire", ""], 64, "usage")]
#[case(&["ping", "--auth-token-file", "/nowhere"], 78, "settings")]
#[case::option(&["acquire", "--tiemout", "5", "k"], 64, "usage")]
#[case::command(&["acquier", "k"], 64, "usage")]
#[case::json_after_what_is_wrong(&["acquire", "--tiemout", "k", "--json"], 64, "usage")]
#[case::no_command(&["run", "free"], 64, "usage")]
#[case::negative(&["acquire", "k", "-t", "-1"], 64, "usage")]
#[case::no_such_command(&["run", "free", "no-such-command"], 127, "not_found")]
#[case::not_executable(&["run", "free", "/dev/null"], 126, "not_executable")]
fn a_failure_in_json(#[case] words: &[&str], #[case] code: i32, #[case] word: &str) {
    let daemon = Daemon::start(&[]);
    let mut holder = daemon.talk();
    holder.take("held", "0");
    let first: &[&str] = if words.contains(&"--json") { &[] } else { &["--json"] };
    let end = run(&mut dflock(&daemon, &[first, words].concat()));
    assert_eq!((end.code, &*end.err), (code, ""), "{end:?}");
    let failure = json(&end.out);
    assert_eq!(members(&failure), ["error", "message"]);
    assert_eq!(failure["error"], word);
}

#[rstest]
#[case::nothing(&[])]
#[case::no_such_command(&["frob"])]
#[case::no_key(&["acquire"])]
#[case::empty_key(&["acquire", ""])]
#[case::key_with_blank(&["acquire", "a b"])]
#[case::key_with_newline(&["run", "a\nb", "--", "true"])]
#[case::key_too_long(&["acquire", LONG_KEY])]
#[case::no_command(&["run", "k"])]
#[case::key_or_command(&["run", "--key", "k", "true", "--", "true"])]
#[case::negative_timeout(&["acquire", "k", "--timeout=-1"])]
#[case::plus_is_no_digit(&["acquire", "k", "--limit=+"])]
#[case::no_lease(&["acquire", "k", "--ttl", "0"])]
#[case::no_slots(&["acquire", "k", "--limit", "0"])]
#[case::lease_beyond_counting(&["acquire", "k", "--ttl", "4294967296"])]
#[case::no_token(&["release", "k"])]
#[case::empty_token(&["release", "k", ""])]
#[case::token_with_newline(&["release", "k", "a\nb"])]
#[case::code_beyond_codes(&["run", "k", "-E", "256", "--", "true"])]
#[case::no_address(&["ping", "--server", "here:port"])]
#[case::empty_address(&["ping", "--server", ""])]
#[case::two_servers_to_load(&["bench", "-s", "a", "-s", "b"])]
#[case::a_deadlock_to_measure(&["bench", "--depth", "2", "--keys", "9"])]
#[case::a_load_beyond_time(&["bench", "--timeout", "2147483648"])]
#[case::a_load_with_leases_beyond_time(&["bench", "--ttl", "2147483648"])]
#[case::a_prefix_with_blanks(&["bench", "--prefix", "a b"])]
#[case::a_prefix_too_long(&["bench", "--prefix", LONG_KEY])]
#[case::no_such_shell(&["completions", "cmd"])]
fn bad_arguments(#[case] words: &[&str]) {
    let end = run(&mut bare(words));
    assert_eq!((end.code, &*end.out), (64, ""), "{end:?}");
    assert!(!end.err.is_empty());
}

/// 257 bytes.
const LONG_KEY: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\
                        0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\
                        0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\
                        0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef!";

#[rstest]
#[case(&["ping"])]
#[case(&["stats"])]
#[case(&["stats", "--json"])]
#[case(&["renew", "held"])]
#[case(&["bench", "--pairs", "10", "--warm-up", "0"])]
#[case(&["completions", "bash"])]
#[case(&["--help"])]
#[case(&["--version"])]
#[case(&["acquire", "free"])]
#[case(&["acquire", "free", "--json"])]
#[case(&["acquire", "free", "--hold"])]
fn output_that_cannot_be_written_is_a_failure(#[case] words: &[&str]) {
    let daemon = Daemon::start(KEEPS);
    let mut holder = daemon.talk();
    let token = holder.take("held", "0");
    let mut command = dflock(&daemon, words);
    let (code, said) = into_full(command.env("DFLOCK_TOKEN", &token));
    assert_eq!(code, 71, "{said}");
    assert!(said.contains("standard output: No space left on device"), "{said}");
    // A token that nobody could read must hold nothing.
    assert_eq!(holder.ask("r", "held", &token), "ok");
    assert_free(&daemon);
}

/// A pipe that nobody reads is the end of a pager, not of us, unless somebody was to get a token.
#[test]
fn a_reader_that_went_away_is_no_failure() {
    let daemon = Daemon::start(KEEPS);
    for (words, code) in [(&["stats"][..], 0), (&["ping"], 0), (&["acquire", "free"], 71)] {
        let (reader, writer) = UnixStream::pair().unwrap();
        // Closing it is not enough: a process that another test is starting may have it, too.
        reader.shutdown(Shutdown::Both).unwrap();
        let output = dflock(&daemon, words).stdout(OwnedFd::from(writer)).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
    }
    assert_free(&daemon);
}

#[test]
fn people_see_who_holds_what() {
    let daemon = Daemon::start(&[]);
    let (mut holder, mut waiter) = (daemon.talk(), daemon.talk());
    holder.take("job", "0 60");
    assert!(holder.ask("sl", "pool", "0 3").starts_with("ok "));
    assert!(holder.ask("l", "evil\u{1b}[2J", "0").starts_with("ok "));
    waiter.say(b"l\njob\n1000\n");
    daemon.until_stats("\"waiters\":1");
    let end = testbed::until(PATIENCE, || {
        let end = run(&mut dflock(&daemon, &["stats"]));
        end.out.contains(&format!("{}: 3 connections\n", daemon.address)).then_some(end)
    });
    let end = end.expect("the one that asked for the stats has left");
    assert_eq!(end.code, 0, "{end:?}");
    let says = |words: &str| assert!(end.out.contains(words), "{words}: {end:?}");
    says("  lock       job  held by connection 1, 5");
    says("s left, 1 waiting\n");
    says("  semaphore  pool  1 of 3 held, 0 waiting\n");
    assert!(!end.out.contains('\u{1b}'), "control characters of a key reach the terminal");
}

#[test]
fn help_and_version_are_no_failures() {
    for words in [&["--help"][..], &["-h"], &["run", "--help"], &["help", "acquire"]] {
        let end = run(&mut bare(words));
        assert_eq!((end.code, &*end.err), (0, ""));
        assert!(end.out.contains("Usage: dflock"));
    }
    let end = run(&mut bare(&["--version"]));
    assert_eq!(end.out, format!("dflock {}\n", env!("CARGO_PKG_VERSION")));
}

/// A server with its HTTP side and an administrator's secret, and where that side listens.
pub(crate) fn administered(place: &std::path::Path, options: &[&str]) -> (Daemon, String) {
    let file = place.join("admin");
    std::fs::write(&file, "open sesame\n").unwrap();
    // Of the ports that the system does not give out by itself.
    let port = testbed::dflockd::free_port().to_string();
    let admin = ["--http-port", &port, "--admin-token-file", file.to_str().unwrap()];
    (Daemon::start(&[&admin, options].concat()), port)
}

/// All readers, and the line behind them.
#[test]
fn stats_of_one_key_show_its_holders_and_its_line() {
    let daemon = Daemon::start(&[]);
    let mut clients = ["alice", "bob", "carol"].map(|name| {
        let mut talker = daemon.talk();
        assert_eq!(talker.ask("name", "_", name), "ok");
        talker
    });
    let granted = clients[..2].iter_mut().map(|reader| reader.ask("rl", "k", "0"));
    let granted = granted.collect::<Vec<_>>();
    assert_eq!(clients[2].ask("e", "k", ""), "queued");
    let end = run(&mut dflock(&daemon, &["stats", "k"]));
    assert_eq!((end.code, &*end.err), (0, ""), "{end:?}");
    let lines: Vec<&str> = end.out.lines().collect();
    let [state, alice, bob, carol] = *lines else { panic!("{end:?}") };
    assert_eq!(state, "k: held, 1 waiting");
    assert!(alice.starts_with("  holder  shared  alice (connection 1) for "), "{alice}");
    assert!(
        bob.starts_with("  holder  shared  bob (connection 2) for ") && bob.ends_with("s left")
    );
    assert!(carol.starts_with("  waiting  carol (connection 3) for "), "{carol}");
    let json = json(&run(&mut dflock(&daemon, &["stats", "k", "--json"])).out);
    assert_eq!((json["holders"].as_array().unwrap().len(), &json["held"]), (2, &2.into()));
    assert_eq!((&json["queue"][0]["name"], &json["waiters"]), (&"carol".into(), &1.into()));
    let is_shown = |granted: &String| json.to_string().contains(&granted[3..35]);
    assert!(!granted.iter().any(is_shown), "{json}");
    let free = run(&mut dflock(&daemon, &["stats", "free"]));
    assert_eq!(&*free.out, "free: free, 0 waiting\n");
}

/// Only a client with the secret can take a lock away or end a connection.
#[test]
fn only_administrators_take_locks_away_and_end_connections() {
    let dir = tempfile::tempdir().unwrap();
    let (daemon, port) = administered(dir.path(), &[]);
    let file = dir.path().join("admin");
    let ask = |words: &[&str], secret: Option<&str>| {
        let mut command = dflock(&daemon, words);
        command.args(["--http-port", &port]);
        match secret {
            None => command.arg("--admin-token-file").arg(&file),
            Some(secret) => command.env("DFLOCK_ADMIN_TOKEN", secret),
        };
        let end = run(&mut command);
        (end.code, end.out, end.err)
    };
    let (mut holder, mut waiter) = (daemon.talk(), daemon.talk());
    let token = holder.take("a/b&c", "0 600");
    waiter.say(b"l\na/b&c\n600\n");
    daemon.until_stats("\"waiters\":1");
    let wrong = ask(&["force-release", "a/b&c"], Some("guess"));
    assert_eq!((wrong.0, &*wrong.1), (77, ""), "{wrong:?}");
    assert_eq!(holder.ask("n", "a/b&c", &token), "ok 33");
    let none = ask(&["force-release", "other"], None);
    assert_eq!(none, (1, String::new(), "dflock: nobody holds it\n".to_owned()));
    let done = ask(&["force-release", "a/b&c"], Some("open sesame"));
    assert_eq!(done, (0, "released: 1\n".to_owned(), String::new()));
    assert!(waiter.line().starts_with("ok "));
    assert_eq!(holder.ask("n", "a/b&c", &token), "error");
    daemon.logged("released by an administrator");

    // One that waits, and one that is idle.
    waiter.take("k", "0 600");
    let connection = crate::loss::owner(&daemon, "k");
    waiter.say(b"l\nk\n600\n");
    daemon.until_stats("\"waiters\":1");
    let none = ask(&["kick", "4711"], None);
    assert_eq!(none, (1, String::new(), "dflock: there is no such connection\n".to_owned()));
    let done = ask(&["kick", &connection, "--json"], None);
    assert_eq!(done, (0, "{\"kicked\":true}\n".to_owned(), String::new()));
    assert!(waiter.is_closed());
    assert!(holder.ask("l", "k", "60 600").starts_with("ok "));
    let connection = crate::loss::owner(&daemon, "k");
    let done = ask(&["kick", &connection], None);
    assert_eq!(done, (0, format!("ended: connection {connection}\n"), String::new()));
    assert!(holder.is_closed());
    assert_free(&daemon);

    // The lock port is not the HTTP port.
    let lock_port = daemon.address.port().to_string();
    let words = ["force-release", "k", "--patience", "1", "--http-port", &lock_port];
    let mut command = dflock(&daemon, &words);
    let end = run(command.env("DFLOCK_ADMIN_TOKEN", "open sesame"));
    assert!(end.code == 76 || end.code == 69, "{end:?}");
}

/// The port of administrators is off unless the server is told otherwise.
#[rstest]
#[case(&["force-release", "k"])]
#[case(&["kick", "1"])]
fn a_server_without_a_port_for_administrators_is_named_with_its_options(#[case] words: &[&str]) {
    let daemon = Daemon::start(&[]);
    let port = testbed::dflockd::free_port().to_string();
    let mut command = dflock(&daemon, &[words, &["--http-port", &port]].concat());
    let end = run(command.env("DFLOCK_ADMIN_TOKEN", "open sesame"));
    assert_eq!((end.code, &*end.out), (69, ""), "{end:?}");
    let advice = "; start dflockd there with --http-port and --admin-token-file, and name that port with --http-port here";
    assert!(end.err.contains(&port) && end.err.trim_end().ends_with(advice), "{end:?}");
}

/// A server that answers each request by its verb, as long as somebody connects.
fn scripted(answer: fn(&str) -> &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                while let Some(Ok(verb)) = lines.next() {
                    let _ = (lines.next(), lines.next());
                    if writeln!(stream, "{}", answer(&verb)).is_err() {
                        break;
                    }
                }
            });
        }
    });
    address
}

/// As the Go server since 2.1: its tokens begin with fences, and it does not say so.
#[rstest]
#[case::unless_it_is_trusted(&[], &[], "none")]
#[case::by_an_option(&["--trust-fences"], &[], "255")]
#[case::by_a_variable(&[], &[("DFLOCK_TRUST_FENCES", "1")], "255")]
#[case::not_by_a_variable(&[], &[("DFLOCK_TRUST_FENCES", "0")], "none")]
fn a_server_that_does_not_say_it_has_no_fences(
    #[case] options: &[&str],
    #[case] variables: &[(&str, &str)],
    #[case] fence: &str,
) {
    let server = scripted(|verb| match verb {
        "l" | "w" => "ok 00000000000000ff0123456789abcdef 33",
        "e" => "acquired 00000000000000ff0123456789abcdef 33",
        "name" => "error",
        "n" => "ok 33",
        _ => "ok",
    });
    let script = "echo ${DFLOCK_FENCE:-none}";
    let words = [options, &["--server", &server, "run", "k", "--", "sh", "-c", script]].concat();
    let end = run(bare(&words).envs(variables.iter().copied()));
    assert_eq!((end.code, &*end.out, &*end.err), (0, &*format!("{fence}\n"), ""), "{end:?}");
}

/// A member of a cluster of the Go server that does not lead.
#[rstest]
#[case::run(&["run", "k", "--", "echo", "it is mine"], "it is mine\n")]
#[case::at_once(&["run", "k", "--timeout", "0", "--", "echo", "it is mine"], "it is mine\n")]
#[case::acquire(&["acquire", "k", "--ttl", "9", "--json"], "{")]
fn the_next_server_is_asked_if_one_does_not_lead(#[case] words: &[&str], #[case] said: &str) {
    let daemon = Daemon::start(&["--auto-release-on-disconnect=false"]);
    // Several, because a client begins with any of them.
    let followers = [(); 3].map(|()| {
        scripted(|verb| match verb {
            "ping" => "ok",
            "name" => "error",
            _ => "error_not_leader 192.0.2.1:6388",
        })
    });
    let follower = followers.join(",");
    let list = format!("{follower},{}", daemon.address);
    let end = run(&mut bare(&[&["--any-of", &list], words].concat()));
    assert!(end.code == 0 && end.out.starts_with(said), "{end:?}");
    let alone = run(&mut bare(&[&["--any-of", &follower, "--patience", "4"], words].concat()));
    let said = alone.out + &alone.err;
    assert!(alone.code == 69 && said.contains("error_not_leader"), "{} {said}", alone.code);
}

/// Another HTTP server on that port knows nothing of locks, whatever their names.
#[rstest]
#[case(&["force-release", "k"])]
#[case(&["force-release", "kickoff"])]
#[case(&["kick", "1"])]
fn an_answer_of_another_http_server_is_none(#[case] words: &[&str]) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = BufReader::new(stream.try_clone().unwrap()).lines();
        while !request.next().unwrap().unwrap().is_empty() {}
        stream.write_all(b"HTTP/1.1 404 Not Found\r\n\r\nthere is no such page\n").unwrap();
    });
    let mut command = bare(&[words, &["--http-port", &port]].concat());
    let end = run(command.env("DFLOCK_ADMIN_TOKEN", "open sesame"));
    assert_eq!((end.code, &*end.out), (76, ""), "{end:?}");
    server.join().unwrap();
}

/// Who holds it, also where no terminal is: in logs, in mails of cron, and for programs.
#[test]
fn a_user_without_the_lock_learns_who_holds_it() {
    let daemon = Daemon::start(&[]);
    let words = ["run", "k", "--name", "alice at work", "--", "sh", "-c", "echo in; read x"];
    let holder = start(dflock(&daemon, &words).stdin(Stdio::piped()));
    holder.lines(1);
    let said = |words: &[&str]| run(&mut dflock(&daemon, words)).err;
    for words in [["run", "k", "-t", "0", "--", "true"], ["acquire", "k", "-t", "0", "--ttl", "9"]]
    {
        let plain = said(&words);
        assert!(plain.starts_with("dflock: busy: held for "), "{plain}");
        assert!(plain.ends_with("s by alice at work\n"), "{plain}");
        let json = json(&run(&mut dflock(&daemon, &[&["--json"][..], &words].concat())).out);
        let message = json["message"].as_str().unwrap();
        assert!(message.starts_with("busy: held for "), "{message}");
        assert!(message.ends_with("s by alice at work"), "{message}");
    }
    let waited = said(&["run", "k", "-t", "4", "--", "true"]);
    assert!(waited.starts_with("dflock: timed out waiting: held for "), "{waited}");
    assert!(waited.ends_with("s by alice at work\n"), "{waited}");
}

/// `dflock run` says who it is, without the arguments of its command.
#[test]
fn holders_have_names() {
    let daemon = Daemon::start(&[]);
    let words = ["run", "k", "--", "sh", "-c", "echo in; read x; : secret"];
    let mut command = dflock(&daemon, &words);
    let mut running = start(command.stdin(Stdio::piped()));
    running.lines(1);
    let named = |words: &[&str]| run(&mut dflock(&daemon, words)).out;
    let pid = format!("[{}] sh)", running.pid());
    // Over etcd what stats show may be some milliseconds old.
    until("the name of the holder", || named(&["stats", "--long"]).contains(&pid));
    assert!(!named(&["stats", "--long"]).contains("secret"));
    assert!(!named(&["stats"]).contains(&pid));
    let long = named(&["stats", "-l", "--json"]);
    assert!(long.contains("\"owner\":\""), "{long}");
    running.end_input();
    assert_eq!(running.end().code, 0);

    let words = ["run", "k", "--name", "nightly\u{1b}[2J", "--", "cat"];
    let mut command = dflock(&daemon, &words);
    let mut running = start(command.stdin(Stdio::piped()));
    until("the name that was given", || named(&["stats", "--long"]).contains("(nightly"));
    assert!(!named(&["stats", "--long"]).contains('\u{1b}'));
    running.end_input();
    assert_eq!(running.end().code, 0);
}
