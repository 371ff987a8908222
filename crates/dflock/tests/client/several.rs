//! Several keys, all or none: by the command and by the libraries.

use crate::ask::{administered, another_make};
use crate::library::{KEEPS, blocking, client, seconds, settings, turn, until_stats};
use crate::loss::{dawdling, owner};
use crate::program::{LONG, assert_free, bare, dflock, into_full, patient, run, shell, start};
use crate::proxy::{Proxy, Side};
use dflock::{ArgumentError, Claim, Claims, Client, ClientError, Entry, Grant, Key, Loss, Refusal};
use nix::sys::signal::Signal;
use rstest::rstest;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testbed::Lots;
use testbed::dflockd::{Daemon, PATIENCE, Store, free_port, program, program_on, until};

const LEASE: Duration = Duration::from_secs(600);

/// The keys are free now, not only at the end of a lease.
fn assert_free_at_once(daemon: &Daemon) {
    let stats = daemon.stats();
    assert!(stats.contains("\"locks\":[],\"semaphores\":[]"), "{stats}");
}

const SAY: &str = "echo $DFLOCK_KEYS; echo $DFLOCK_TOKENS; echo $DFLOCK_FENCES; \
                   echo [$DFLOCK_KEY] [$DFLOCK_TOKEN] [$DFLOCK_FENCE]";

/// The lists are in the order of the keys, whatever the order in which they are named. The variables of an outer run
/// for its single key are unset.
#[rstest]
#[case(&["--key", "b", "--key", "a", "-k", "c"])]
#[case::beside_the_operand(&["c", "--key", "a", "--key", "b"])]
fn the_command_learns_of_all_keys(#[case] keys: &[&str]) {
    let daemon = Daemon::start(&[]);
    let line = format!("dflock run outer -- dflock run {} -- sh -c '{SAY}'", keys.join(" "));
    let end = run(&mut shell(&daemon, &line));
    assert_eq!((end.code, &*end.err), (0, ""), "{end:?}");
    let lines: Vec<&str> = end.out.lines().collect();
    let [keys, tokens, fences, single] = lines.as_slice() else { panic!("{end:?}") };
    assert_eq!((*keys, *single), ("a b c", "[] [] []"));
    let tokens: Vec<&str> = tokens.split(' ').collect();
    let fences: Vec<u64> = fences.split(' ').map(|fence| fence.parse().unwrap()).collect();
    let of_tokens: Vec<u64> =
        tokens.iter().map(|token| u64::from_str_radix(&token[..16], 16).unwrap()).collect();
    assert_eq!((tokens.len(), fences), (3, of_tokens));
    assert_free(&daemon);
}

/// The first operand is the key, unless `--key` stands before it. After the command, no option is ours.
#[rstest]
#[case::a_key("k sh -c 'echo $DFLOCK_KEYS $*' x -t --json --key c", "k -t --json --key c")]
#[case::options_between("-t 5 k --ttl 60 sh -c 'echo $DFLOCK_KEYS $*' x -q", "k -q")]
#[case::keys("--key a -k b sh -c 'echo $DFLOCK_KEYS $*' x --key c -- d", "a b --key c -- d")]
#[case::joined("-ka --key=b -qt5 sh -c 'echo $DFLOCK_KEYS $*' x -k", "a b -k")]
#[case::keys_and_dashes("--key a -k b -- sh -c 'echo $DFLOCK_KEYS $*' x -- -k", "a b -- -k")]
#[case::a_key_and_keys("a --key b sh -c 'echo $DFLOCK_KEYS $*' x -k", "a b -k")]
#[case::a_value_like_a_command("k --name run sh -c 'echo $DFLOCK_KEYS $*' x", "k")]
fn the_command_needs_no_dashes(#[case] words: &str, #[case] told: &str) {
    let daemon = Daemon::start(&[]);
    let end = run(&mut shell(&daemon, &format!("dflock run {words}")));
    assert_eq!((end.code, &*end.err), (0, ""), "{end:?}");
    assert_eq!(end.out.trim_end(), told);
    assert_free(&daemon);
}

/// Somebody may mean a second key, and would run a command without its lock.
#[test]
fn an_operand_between_key_and_dashes_is_refused() {
    let end = run(&mut bare(&["run", "--key", "a", "b", "--", "echo", "it ran"]));
    assert_eq!((end.code, &*end.out), (64, ""), "{end:?}");
    assert!(end.err.contains("is 'b' a key or the command? Write --key b"), "{end:?}");
}

#[rstest]
#[case::none(&[], "required")]
#[case::twice(&["-k", "a", "-k", "b", "-k", "a"], "a key is named twice")]
#[case::twice_with_the_operand(&["a", "-k", "a"], "a key is named twice")]
#[case::not_a_key(&["-k", "a", "-k", "b c"], "the key contains a blank")]
fn missing_repeated_and_invalid_keys_are_refused(#[case] keys: &[&str], #[case] words: &str) {
    let end = run(&mut bare(&[&["run"], keys, &["--", "echo", "it ran"]].concat()));
    assert_eq!((end.code, &*end.out), (64, ""), "{end:?}");
    assert!(end.err.contains(words), "{end:?}");
}

const ABC: &[&str] = &["-k", "c", "-k", "b", "-k", "a"];

/// Whichever key is not free, the others are released before dflock ends.
#[rstest]
#[case::one_is_busy("a", &["a"], &["-t", "0"], 1, "dflock: held by another client\n")]
#[case::one_timed_out("a", &["a"], &["-t", "1"], 75, "dflock: timed out waiting\n")]
#[case::code_after_a_wait("a", &["a"], &["-t", "1", "--busy-exit-code", "0"], 0, "")]
#[case::busy("a", ABC, &["-t", "0"], 1, "dflock: busy: a: held by another client\n")]
#[case::busy_behind_others("c", ABC, &["-t", "0"], 1, "dflock: busy: c: held by another client\n")]
#[case::timed_out("b", ABC, &["-t", "4"], 75, "dflock: timed out waiting: b: held by another client\n")]
#[case::own_code("c", ABC, &["-t", "1", "-E", "9"], 9, "")]
#[case::refused(
    "c", ABC, &["--limit", "2"], 64, "dflock: the key is in use with another limit (error_limit_mismatch)\n"
)]
fn without_all_keys_none_is_held(
    #[case] held: &str,
    #[case] keys: &[&str],
    #[case] options: &[&str],
    #[case] code: i32,
    #[case] said: &str,
) {
    let daemon = Daemon::start(KEEPS);
    let mut holder = daemon.talk();
    let token = holder.take(held, "0");
    let words = [&["run"], keys, &["--ttl", LONG], options, &["--", "echo", "it ran"]].concat();
    let end = run(&mut dflock(&daemon, &words));
    assert_eq!((end.code, &*end.out, &*end.err), (code, "", said));
    assert_eq!(holder.ask("r", held, &token), "ok");
    assert_free_at_once(&daemon);
}

/// The other keys are held until the command is gone, and released then.
#[test]
fn when_one_key_is_lost_the_others_are_held_until_the_command_ends() {
    let daemon = Daemon::start(KEEPS);
    let words = ["run", "-k", "a", "-k", "b", "-k", "c", "--ttl", LONG, "--read-timeout", "12"];
    let script = dawdling().replace("DFLOCK_TOKEN", "DFLOCK_TOKENS");
    let words = [&words[..], &["--grace", "100", "--", "sh", "-c", &script]].concat();
    let dflock_ = start(&mut dflock(&daemon, &words));
    let command = dflock_.command();
    let token = dflock_.lines(2)[1].split(' ').nth(1).unwrap().to_owned();
    assert_eq!(run(&mut dflock(&daemon, &["release", "b", &token])).code, 0);
    until("the command is told", || dflock_.said().contains("told"));
    let is_held = daemon.stats().contains("\"key\":\"a\"");
    assert!(is_held || !command.lives());
    let end = patient(dflock_.end());
    assert_eq!(end.code, 74, "{end:?}");
    // The shell may say that its sleep was ended.
    let words = "dflock: lease lost: b: the server says the lease is over\n";
    assert!(end.err.starts_with(words), "{end:?}");
    assert!(!command.lives());
    assert_free_at_once(&daemon);
}

/// Also if one of the servers refuses to take its lock back.
#[test]
fn tokens_that_cannot_be_printed_are_all_given_back() {
    let daemon = Daemon::start(KEEPS);
    // The first server grants everything, and releases nothing.
    let servers = [another_make("ok 33"), daemon.address.to_string()].join(",");
    let key_at = |server, first: char| {
        let names = ('a'..='z').map(|last| format!("{first}{last}"));
        let is_there = |key: &String| dflock::shard(key.as_bytes(), 2) == Some(server);
        names.into_iter().find(is_there).unwrap()
    };
    let keys = [key_at(0, 'a'), key_at(1, 'b')];
    let mut command = bare(&["acquire", &keys[0], "--key", &keys[1], "--ttl", LONG]);
    let (code, said) = into_full(command.env("DFLOCK_SERVERS", servers));
    assert_eq!((code, &*said), (1, "dflock: the token does not hold this key\n"));
    assert_free_at_once(&daemon);
}

/// Without a command there is nothing for which the other keys are to be held.
#[test]
fn when_one_key_is_lost_that_is_only_held_the_others_are_released() {
    let daemon = Daemon::start(KEEPS);
    // What cannot be released within a second stays to the end of its lease.
    let options = ["--hold", "--ttl", "30", "--read-timeout", "12"];
    let words = [&["acquire", "a", "-k", "b", "-k", "c"], &options[..]].concat();
    let dflock_ = start(dflock(&daemon, &words).stdin(Stdio::piped()));
    let tokens = dflock_.lines(3);
    assert_eq!(run(&mut dflock(&daemon, &["release", "b", &tokens[1]])).code, 0);
    let end = patient(dflock_.end());
    let words = "dflock: lease lost: b: the server says the lease is over\n";
    assert_eq!((end.code, &*end.err), (74, words), "{end:?}");
    assert_free(&daemon);
}

/// All keys are renewed: during the wait for another key, and while the command runs.
#[test]
fn all_are_renewed() {
    let daemon = Daemon::start(KEEPS);
    let mut holder = daemon.talk();
    let token = holder.take("c", "0");
    let words = ["run", "-k", "a", "-k", "b", "-k", "c", "--ttl", "9", "--"];
    let words = [&words[..], &["sh", "-c", "echo in; read x; exit 6"]].concat();
    let mut dflock_ = start(dflock(&daemon, &words).stdin(Stdio::piped()));
    daemon.until_stats("\"waiters\":1");
    let outlive = |keys: &[&str]| {
        let others = keys
            .iter()
            .map(|key| start(&mut dflock(&daemon, &["run", key, "-t", "11", "--", "true"])));
        for other in others.collect::<Vec<_>>() {
            let end = other.end();
            assert_eq!(end.code, 75, "{keys:?}: {end:?}");
        }
    };
    outlive(&["a"]);
    assert_eq!(holder.ask("r", "c", &token), "ok");
    dflock_.lines(1);
    outlive(&["a", "b"]);
    dflock_.end_input();
    assert_eq!(dflock_.end().code, 6);
    assert_free_at_once(&daemon);
}

/// A new server, started during the wait for the last key, does not know that the first is held. The command does not
/// start before all keys are held again.
#[test]
fn a_key_is_lost_while_another_is_waited_for() {
    let port = free_port().to_string();
    let mut daemon = Daemon::run(program().args(["--port", &port]));
    let mut holder = daemon.talk();
    holder.take("b", "0");
    let words = ["run", "-k", "a", "-k", "b", "--", "echo", "it ran"];
    let waiting = start(&mut dflock(&daemon, &words));
    daemon.until_stats("\"waiters\":1");
    // Long enough that the first key is not taken for granted.
    assert_eq!(daemon.talk().ask("l", "b", "1"), "timeout");
    daemon.signal(Signal::SIGKILL);
    daemon.ended();
    drop(holder);
    let next = Daemon::run(program().args(["--port", &port]));
    let end = waiting.end();
    assert_eq!((end.code, &*end.out), (0, "it ran\n"), "{end:?}");
    let words = "dflock: lease lost: a: the server says the lease is over; asking for all";
    assert!(end.err.contains(words), "{end:?}");
    assert_free(&next);
}

/// After a wait all leases have been renewed, and they are renewed further on.
#[test]
fn leases_held_during_a_wait_are_renewed_at_once() {
    let daemon = Daemon::start(KEEPS);
    let mut holder = daemon.talk();
    let token = holder.take("c", "0");
    let client = blocking(&daemon);
    let lock = |key: &str| client.lock(key).unwrap().ttl(seconds(9)).unwrap();
    let all = dflock::blocking::Claims::of(["a", "b", "c"].map(lock)).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| all.acquire(PATIENCE).unwrap().unwrap());
        daemon.until_stats("\"waiters\":1");
        assert_eq!(daemon.talk().ask("l", "c", "1"), "timeout");
        let begun = std::time::Instant::now();
        assert_eq!(holder.ask("r", "c", &token), "ok");
        let leases = waiting.join().unwrap();
        let until = leases.as_slice().iter().map(|lease| lease.held_until().unwrap());
        assert!(until.min().unwrap() >= begun + seconds(9));
        // Longer than a lease.
        assert_eq!(leases.as_slice()[0].lost_within(seconds(11)), None);
        assert_eq!(leases.loss(), None);
        leases.release().unwrap();
    });
    assert_free_at_once(&daemon);
}

/// Each key is taken on its own shard, in the order of the bytes. With --any-of, a server that is away is left out.
#[test]
fn keys_of_several_servers() {
    let daemons: Vec<Daemon> = (0..3).map(|_| Daemon::start(&[])).collect();
    let list: Vec<String> = daemons.iter().map(|it| it.address.to_string()).collect();
    let keys = ["a", "123456789", "my-job"];
    let words: Vec<&str> = keys.iter().flat_map(|key| ["--key", key]).collect();
    let script = "echo $DFLOCK_KEYS; read x";
    let mut command = bare(&[&["run"], &words[..], &["--", "sh", "-c", script]].concat());
    command.env("DFLOCK_SERVERS", list.join(",")).stdin(Stdio::piped());
    let mut holding = start(&mut command);
    assert_eq!(holding.lines(1), ["123456789 a my-job"]);
    for key in keys {
        let index = dflock::shard(key.as_bytes(), list.len()).unwrap();
        assert!(daemons[index].stats().contains(&format!("\"key\":\"{key}\"")), "{key}");
    }
    let busy = run(bare(&["run", "-t", "0", "-k", "zzz", "-k", "a", "--", "true"])
        .env("DFLOCK_SERVERS", list.join(",")));
    assert_eq!(busy.code, 1, "{busy:?}");
    holding.end_input();
    holding.end();
    for daemon in &daemons {
        assert_free(daemon);
    }
    let any_of = format!("127.0.0.1:1,{},127.0.0.1:1", list[0]);
    let words = ["--any-of", &any_of, "run", "-k", "a", "-k", "b", "--", "echo", "it ran"];
    let end = run(&mut bare(&words));
    assert_eq!((end.code, &*end.out), (0, "it ran\n"), "{end:?}");
    assert_free(&daemons[0]);
}

fn shuffled(lots: &mut Lots, mut names: Vec<&'static str>, count: usize) -> Vec<&'static str> {
    for place in 0..names.len() {
        let other = place + lots.index(names.len() - place);
        names.swap(place, other);
    }
    names.truncate(count);
    names
}

const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// How many clients hold each key.
#[derive(Clone)]
struct Inside(Arc<BTreeMap<&'static str, AtomicUsize>>);

impl Inside {
    fn new() -> Self {
        Self(Arc::new(KEYS.into_iter().map(|key| (key, AtomicUsize::new(0))).collect()))
    }

    fn enter(&self, keys: &[&str]) {
        for key in keys {
            assert_eq!(self.0[key].fetch_add(1, Ordering::SeqCst), 0, "two have {key}");
        }
    }

    fn leave(&self, keys: &[&str]) {
        for key in keys {
            self.0[key].fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Clients with opposite and with random orders of keys, on one server or on shards: no client waits for ever, and
/// no key has two holders.
#[rstest]
#[case::two_with_opposite_orders(2, 1)]
#[case::eight_with_random_keys(8, 1)]
#[case::eight_on_three_servers(8, 3)]
fn no_order_is_a_deadlock(#[case] clients: u64, #[case] servers: usize) {
    const ROUNDS: usize = 12;
    let daemons: Vec<Daemon> = (0..servers).map(|_| Daemon::start(&[])).collect();
    let list = daemons.iter().map(|it| it.address.to_string().parse().unwrap()).collect();
    let servers = dflock::Servers::Shards(list);
    let client = Client::new(dflock::Settings::new(servers)).unwrap();
    let inside = Inside::new();
    turn(async {
        let mut racers = tokio::task::JoinSet::new();
        for number in 0..clients {
            let (client, inside) = (client.clone(), inside.clone());
            let mut lots = Lots(0x9e37_79b9_7f4a_7c15 ^ (number + 1));
            racers.spawn(async move {
                for _ in 0..ROUNDS {
                    let mut keys = match clients {
                        2 => vec!["a", "b", "c"],
                        _ => {
                            let count = 2 + lots.index(3);
                            shuffled(&mut lots, KEYS.to_vec(), count)
                        }
                    };
                    if number % 2 == 1 {
                        keys.reverse();
                    }
                    let claims = keys.iter().map(|key| client.lock(*key).unwrap());
                    let leases = Claims::of(claims).unwrap().acquire(PATIENCE).await.unwrap();
                    let leases = leases.expect("no client waits for so long");
                    inside.enter(&keys);
                    tokio::task::yield_now().await;
                    inside.leave(&keys);
                    leases.release().await.unwrap();
                }
            });
        }
        while let Some(outcome) = racers.join_next().await {
            outcome.unwrap();
        }
    });
    for daemon in &daemons {
        assert_free(daemon);
    }
}

fn claims(client: &Client, keys: &[&str]) -> Claims {
    Claims::of(keys.iter().map(|key| client.lock(*key).unwrap().ttl(LEASE).unwrap())).unwrap()
}

#[test]
fn the_library_takes_several() {
    let daemon = Daemon::start(KEEPS);
    turn(async {
        let client = client(&daemon);
        let all = claims(&client, &["c", "a", "b"]);
        let names = |keys: Vec<&Key>| keys.iter().map(ToString::to_string).collect::<String>();
        assert_eq!(names(all.keys().collect()), "abc");
        let leases = all.try_acquire().await.unwrap().unwrap();
        assert_eq!(names(leases.as_slice().iter().map(dflock::Lease::key).collect()), "abc");
        assert_eq!((leases.loss(), leases.renewal_interval()), (None, seconds(23) / 3));
        assert!(leases.held_until().is_some());
        assert!(claims(&client, &["z", "b"]).try_acquire().await.unwrap().is_none());
        assert!(
            daemon.stats().contains("\"key\":\"c\"")
                && !daemon.stats().contains("\"key\":\"z\",\"owner")
        );
        leases.release().await.unwrap();
        assert_free_at_once(&daemon);
        let [a, b, c] = all.try_acquire().await.unwrap().unwrap().into_vec().try_into().unwrap();
        b.release().await.unwrap();
        assert!(
            daemon.stats().contains("\"key\":\"a\"")
                && !daemon.stats().contains("\"key\":\"b\",\"owner")
        );
        a.release().await.unwrap();
        c.release().await.unwrap();
        assert_free_at_once(&daemon);
        let none = Claims::of([]).err().unwrap();
        assert!(matches!(none, ClientError::InvalidArgument(ArgumentError::KeyMissing)), "{none}");
        let twice = Claims::of([client.lock("k").unwrap(), client.shared("k").unwrap()]);
        assert!(matches!(
            twice.err().unwrap(),
            ClientError::InvalidArgument(ArgumentError::KeyTwice)
        ));
    });
    assert_free(&daemon);
}

/// All keys share one timeout: for each key, the client asks for no more than what is left of it.
#[test]
fn the_keys_have_one_deadline() {
    let daemon = Daemon::start(KEEPS);
    let (mut holder, mut clock) = (daemon.talk(), daemon.talk());
    let tokens = ["a", "b", "c", "clock"].map(|key| holder.take(key, "0"));
    let waits = Arc::<Mutex<Vec<u64>>>::default();
    let noted = Arc::clone(&waits);
    let note: Rule = Arc::new(move |_, _, [word, _, times]| {
        let seconds: Option<u64> = times.split(' ').next().and_then(|time| time.parse().ok());
        noted.lock().unwrap().extend(seconds.filter(|seconds| word == "l" && *seconds > 0));
        Deed::Pass
    });
    let (server, _) = relay(&daemon, note);
    let wait = std::thread::spawn(move || {
        turn(async {
            let all = claims(&Client::new(settings(server)).unwrap(), &["a", "b", "c"]);
            all.acquire(seconds(20)).await.map(|leases| leases.is_some())
        })
    });
    for (key, token) in ["a", "b"].iter().zip(&tokens) {
        daemon.until_stats("\"waiters\":1");
        assert_eq!(clock.ask("l", "clock", "1"), "timeout");
        assert_eq!(holder.ask("r", key, token), "ok");
    }
    assert!(!wait.join().unwrap().unwrap());
    let waits = waits.lock().unwrap();
    assert!(matches!(waits[..], [a, b, c] if a > b && b > c), "{waits:?}");
    assert_eq!(holder.ask("r", "c", &tokens[2]), "ok");
    assert_eq!(holder.ask("r", "clock", &tokens[3]), "ok");
    assert_free_at_once(&daemon);
}

/// A loss is reported with its key, and the other leases stay.
#[test]
fn a_loss_is_told_with_its_key() {
    let daemon = Daemon::start(KEEPS);
    turn(async {
        let client = client(&daemon);
        let lock = |key| client.lock(key).unwrap().ttl(seconds(9)).unwrap();
        let leases =
            Claims::of([lock("a"), lock("b")]).unwrap().try_acquire().await.unwrap().unwrap();
        lock("b").release(leases.as_slice()[1].token()).await.unwrap();
        let (key, loss) = leases.lost().await;
        assert_eq!((key.as_bytes(), loss), (&b"b"[..], Loss::NotHeld));
        assert_eq!((leases.loss(), leases.held_until()), (Some((&key, loss)), None));
        assert!(leases.as_slice()[0].loss().is_none());
        let refused = leases.release().await.unwrap_err();
        assert!(matches!(refused, ClientError::Refused(Refusal::Error)), "{refused}");
        assert_free_at_once(&daemon);
    });
}

/// What a relay does with a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deed {
    /// Passes it on.
    Pass,
    /// Passes it on. The answer comes when the test says so.
    Delay,
    /// Passes it on. The answer comes a little later, if the client is still there.
    Dawdle,
    /// Passes it on, and ends the connection before the answer is there.
    Lose,
    Answer(&'static str),
    AnswerAndEnd(&'static str),
    Ignore,
    End,
}

/// The deed for a request, by what was relayed before and the number of the connection.
type Rule = Arc<dyn Fn(&Relayed, usize, [&str; 3]) -> Deed + Send + Sync>;

/// Does this with requests of that word, and passes on all others.
fn on(word: &'static str, deed: Deed) -> Rule {
    Arc::new(move |_, _, words| if words[0] == word { deed } else { Deed::Pass })
}

/// What clients asked the server through a relay.
#[derive(Default)]
struct Relayed {
    /// But for renewals and what is no request for a key.
    asked: Mutex<Vec<String>>,
    /// The number of renewals that the server has answered.
    renewed: AtomicUsize,
    /// The number of pings that were refused.
    pings: AtomicUsize,
    /// Answers that were delayed are delivered.
    delivers: AtomicBool,
}

impl Relayed {
    /// In the order of the words: several connections are not in step.
    fn asked(&self) -> String {
        let mut all = std::mem::take(&mut *self.asked.lock().unwrap());
        all.sort_unstable();
        all.join(" ")
    }

    fn renewed(&self) -> usize {
        self.renewed.load(Ordering::SeqCst)
    }

    fn deliver(&self) {
        self.delivers.store(true, Ordering::SeqCst);
    }

    /// One connection. Nothing when one of its sides has ended it.
    fn carry(
        &self,
        number: usize,
        client: TcpStream,
        server: SocketAddr,
        rule: Rule,
    ) -> Option<()> {
        let server = TcpStream::connect(server).ok()?;
        let (mut client, mut server) = (BufReader::new(client), BufReader::new(server));
        loop {
            let mut frame = String::new();
            for _ in 0..3 {
                client.read_line(&mut frame).ok().filter(|count| *count > 0)?;
            }
            let words: Vec<&str> = frame.lines().collect();
            if ["al", "l", "rl", "sl", "r"].contains(&words[0]) {
                let asked = format!("{}:{}", words[0], words[1].replace(' ', ","));
                self.asked.lock().unwrap().push(asked);
            }
            let deed = rule(self, number, [words[0], words[1], words[2]]);
            if let Deed::Answer(answer) | Deed::AnswerAndEnd(answer) = deed {
                writeln!(client.get_mut(), "{answer}").ok()?;
            }
            match deed {
                Deed::Ignore | Deed::Answer(_) => continue,
                Deed::End | Deed::AnswerAndEnd(_) => return None,
                Deed::Pass | Deed::Delay | Deed::Dawdle | Deed::Lose => {}
            }
            server.get_mut().write_all(frame.as_bytes()).ok()?;
            let mut answer = String::new();
            server.read_line(&mut answer).ok().filter(|count| *count > 0)?;
            self.renewed.fetch_add(usize::from(words[0] == "n"), Ordering::SeqCst);
            if deed == Deed::Lose {
                return None;
            }
            until("it is delivered", || {
                deed != Deed::Delay || self.delivers.load(Ordering::SeqCst)
            });
            if deed == Deed::Dawdle {
                client.get_ref().set_read_timeout(Some(Duration::from_millis(200))).ok()?;
                if client.fill_buf().is_ok_and(<[u8]>::is_empty) {
                    return None;
                }
                client.get_ref().set_read_timeout(None).ok()?;
            }
            client.get_mut().write_all(answer.as_bytes()).ok()?;
        }
    }
}

/// Listens for clients of a server.
fn relay(daemon: &Daemon, rule: Rule) -> (dflock::ServerAddress, Arc<Relayed>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, server) = (listener.local_addr().unwrap(), daemon.address);
    let shared = (Arc::<Relayed>::default(), rule);
    let relayed = Arc::clone(&shared.0);
    std::thread::spawn(move || {
        for (number, client) in listener.incoming().map_while(Result::ok).enumerate() {
            let (relayed, rule) = shared.clone();
            std::thread::spawn(move || relayed.carry(number, client, server, rule));
        }
    });
    (address.to_string().parse().unwrap(), relayed)
}

const TOGETHER: &str = "al:a,b,c";
const IN_ORDER: &str = "al:a,b,c l:a l:b l:c";

/// All keys by one request if they are free; one after another if one of them is not, or if the server does not know
/// the request. It is sent only for several keys that can be taken so.
#[rstest]
#[case::free(on("", Deed::Pass), "a b c", None, TOGETHER)]
#[case::held(on("", Deed::Pass), "a b c", Some("c"), IN_ORDER)]
#[case::an_old_server(on("al", Deed::Answer("error")), "a b c", None, IN_ORDER)]
#[case::another_old_server(on("al", Deed::AnswerAndEnd("error")), "a b c", None, IN_ORDER)]
#[case::one_key(on("", Deed::Pass), "a", None, "l:a")]
#[case::readers(on("", Deed::Pass), "!a !b", None, "rl:a rl:b")]
#[case::a_reader_among_them(on("", Deed::Pass), "a !b", None, "l:a rl:b")]
fn free_keys_are_one_request(
    #[case] rule: Rule,
    #[case] keys: &str,
    #[case] held: Option<&str>,
    #[case] want: &str,
) {
    let daemon = Daemon::start(KEEPS);
    let (server, relayed) = relay(&daemon, rule);
    let mut holder = daemon.talk();
    let token = held.map(|key| holder.take(key, "0"));
    let keys: Vec<(&str, bool)> =
        keys.split(' ').map(|key| (key.trim_start_matches('!'), key.starts_with('!'))).collect();
    let is_taken = turn(async {
        let client = Client::new(settings(server)).unwrap();
        let claim = |(key, shared)| if shared { client.shared(key) } else { client.lock(key) };
        let claims = keys.iter().map(|key| claim(*key).unwrap().ttl(LEASE).unwrap());
        let leases = Claims::of(claims).unwrap().try_acquire().await.unwrap();
        assert_eq!(relayed.asked().replace(" r:a r:b", ""), want);
        match leases {
            Some(leases) => leases.release().await.map(|()| true).unwrap(),
            None => false,
        }
    });
    assert_eq!(is_taken, held.is_none());
    if let (Some(key), Some(token)) = (held, token) {
        assert_eq!(holder.ask("r", key, &token), "ok");
    }
    assert_free_at_once(&daemon);
}

/// The answer to the request is lost with its connection: a failure like that of one key, which a client that is
/// persistent outlasts.
#[rstest]
fn the_answer_for_all_is_lost(#[values(false, true)] is_persistent: bool) {
    let daemon = Daemon::start(&[]);
    let (server, relayed) = relay(&daemon, on("al", Deed::Lose));
    let outcome = turn(async {
        let client = Client::new(settings(server)).unwrap();
        let claims = Claims::of(["a", "b"].map(|key| client.lock(key).unwrap())).unwrap();
        let leases = if is_persistent {
            claims.acquire_persistently(Some(PATIENCE), |_, _| {}).await
        } else {
            claims.acquire(PATIENCE).await
        };
        match leases {
            Ok(leases) => leases.unwrap().release().await,
            Err(error) => Err(error),
        }
    });
    if is_persistent {
        outcome.unwrap();
        assert_eq!(relayed.asked(), "al:a,b l:a l:b r:a r:b");
    } else {
        assert!(matches!(outcome, Err(ClientError::Broken(_))), "{outcome:?}");
        assert_eq!(relayed.asked(), "al:a,b");
    }
    assert_free(&daemon);
}

/// Leases that share a connection: the end of one ends no other, and the last one takes the connection with it.
#[test]
fn leases_that_were_taken_together_end_one_by_one() {
    let daemon = Daemon::start(&[]);
    let mut other = daemon.talk();
    let mut is_held = |key: &str| other.ask("l", key, "0") == "timeout";
    let connections = |count: usize| daemon.until_stats(&format!("{{\"connections\":{count},"));
    turn(async {
        let leases =
            claims(&client(&daemon), &["a", "b", "c"]).try_acquire().await.unwrap().unwrap();
        let mut leases = leases.into_vec().into_iter();
        connections(3);
        leases.next().unwrap().release().await.unwrap();
        assert!(is_held("b") && is_held("c"));
        leases.next().unwrap().release().await.unwrap();
        assert!(!is_held("b") && is_held("c"));
        connections(3);
        leases.next().unwrap().release().await.unwrap();
    });
    connections(2);
}

const EIGHT: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// Taken by one request, one after another, by eight callers at once, or after a wait.
#[test]
fn eight_keys_of_one_server_go_over_one_connection() {
    let daemon = Daemon::start(&[]);
    let mut other = daemon.talk();
    let is_one = || daemon.until_stats("{\"connections\":3,");
    turn(async {
        let client = client(&daemon);
        let together = claims(&client, &EIGHT).try_acquire().await.unwrap().unwrap();
        is_one();
        together.release().await.unwrap();
        let shared = EIGHT.map(|key| client.shared(key).unwrap());
        let readers = Claims::of(shared).unwrap().try_acquire().await.unwrap().unwrap();
        is_one();
        readers.release().await.unwrap();
        let tokens = [EIGHT[1], EIGHT[5]].map(|key| other.take(key, "0"));
        let mut callers = tokio::task::JoinSet::new();
        for key in EIGHT {
            let lock = client.lock(key).unwrap();
            callers.spawn(async move { lock.acquire(PATIENCE).await.unwrap().unwrap() });
        }
        let mut leases = Vec::new();
        while leases.len() < 6 {
            leases.push(callers.join_next().await.unwrap().unwrap());
        }
        for (key, token) in [EIGHT[1], EIGHT[5]].iter().zip(&tokens) {
            assert_eq!(other.ask("r", key, token), "ok");
        }
        leases.extend(callers.join_all().await);
        is_one();
        assert!(EIGHT.iter().all(|key| other.ask("l", key, "0") == "timeout"));
        for lease in leases {
            lease.release().await.unwrap();
        }
    });
    let client = blocking(&daemon);
    let leases = EIGHT.map(|key| client.lock(key).unwrap().try_acquire().unwrap().unwrap());
    is_one();
    drop(leases);
    assert_free(&daemon);
}

/// The connection is lost in one way or another: all its leases are renewed over the next one.
#[rstest]
#[case::reset_at_the_client(|proxy: &mut Proxy| proxy.reset(Side::Client))]
#[case::reset_at_the_server(|proxy: &mut Proxy| proxy.reset(Side::Server))]
#[case::swallowed(|proxy: &mut Proxy| proxy.swallow_what_is_open())]
fn a_broken_connection_ends_none_of_its_leases(#[case] fault: fn(&mut Proxy)) {
    let daemon = Daemon::start(KEEPS);
    let mut proxy = Proxy::to(daemon.address);
    let client = dflock::blocking::Client::new(settings(proxy.address())).unwrap();
    let lock = |key: &str| client.lock(key).unwrap().ttl(seconds(15)).unwrap();
    let leases = EIGHT.map(|key| lock(key).try_acquire().unwrap().unwrap());
    fault(&mut proxy);
    // Longer than the leases.
    assert_eq!(leases[0].lost_within(seconds(17)), None);
    assert!(leases.iter().all(|lease| lease.loss().is_none()));
    // Further ones go over the next connection, too.
    let another = lock("z").try_acquire().unwrap().unwrap();
    leases.into_iter().for_each(|lease| lease.release().unwrap());
    another.release().unwrap();
    assert_free_at_once(&daemon);
}

/// A runtime that nobody drives keeps no one waiting: each has a connection of its own.
#[test]
fn runtimes_share_no_connection() {
    let daemon = Daemon::start(&[]);
    let client = client(&daemon);
    let take = |key: &'static str| {
        let lock = client.lock(key).unwrap();
        async move { lock.try_acquire().await.unwrap().unwrap() }
    };
    let idle = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = idle.block_on(take("a"));
    turn(async {
        let second = take("b").await;
        daemon.until_stats("{\"connections\":3,");
        second.release().await.unwrap();
    });
    assert!(daemon.stats().contains("\"key\":\"a\""));
    drop((first, idle));
}

/// A server that is slow only by what is between.
fn in_memory() -> Daemon {
    Daemon::run(program_on(&Store::default()).args(["--port", "0"]).args(KEEPS))
}

/// The renewals of one connection take longer than the pause between them: what others of the client order meanwhile is
/// done in time, and no lease is lost. With an order between every two, all renewals take two thirds of a lease; the rest
/// is for a busy machine.
#[rstest]
#[case::over_one_connection(15, 205, 1)]
#[case::over_several_connections(48, 150, 3)]
fn orders_are_done_beside_renewals_that_take_all_the_time(
    #[case] leases: usize,
    #[case] delay_ms: u64,
    #[case] connections: usize,
) {
    let daemon = in_memory();
    let proxy = Proxy::to(daemon.address);
    turn(async {
        let client = Client::new(settings(proxy.address())).unwrap();
        let lock = |key: String| client.lock(key).unwrap().ttl(seconds(18)).unwrap();
        let mut held = Vec::new();
        for number in 0..leases {
            held.push(lock(format!("k{number}")).try_acquire().await.unwrap().unwrap());
        }
        // The one more is the connection that asks for the stats.
        daemon.until_stats(&format!("{{\"connections\":{},", connections + 1));
        proxy.delay(Duration::from_millis(delay_ms));
        let orders = async {
            for number in 0.. {
                let other = lock(format!("other{number}"));
                let taken = tokio::time::timeout(seconds(8), other.try_acquire())
                    .await
                    .expect("it is granted");
                let released = taken.unwrap().unwrap().release();
                tokio::time::timeout(seconds(8), released).await.expect("it is released").unwrap();
            }
        };
        // Longer than the leases.
        tokio::time::timeout(seconds(20), orders).await.unwrap_err();
        assert!(held.iter().all(|lease| lease.loss().is_none()));
        proxy.delay(Duration::ZERO);
        for lease in held {
            lease.release().await.unwrap();
        }
    });
    assert_free(&daemon);
}

/// The answer to an acquire comes when the client has gone on to another connection: its grant is given back.
#[test]
fn a_grant_that_comes_too_late_is_given_back() {
    let daemon = Daemon::start(KEEPS);
    let proxy = Proxy::to(daemon.address);
    turn(async {
        let client = Client::new(settings(proxy.address())).unwrap();
        let lock = |key: &str| client.lock(key).unwrap().ttl(LEASE).unwrap();
        let lease = lock("a").try_acquire().await.unwrap().unwrap();
        proxy.stall_answers();
        let late = tokio::time::timeout(seconds(20), lock("late").try_acquire()).await.unwrap();
        assert!(late.unwrap().is_none());
        assert!(daemon.stats().contains("\"key\":\"late\",\"owner"));
        proxy.deliver_answers();
        until_stats(&daemon, "\"idle_locks\":[{\"key\":\"late\"").await;
        lease.release().await.unwrap();
    });
    assert_free_at_once(&daemon);
}

/// A server that takes requests and never answers them: no connection of the client stays with it for ever.
#[test]
fn a_grant_that_never_comes_is_not_waited_for_for_ever() {
    let daemon = Daemon::start(KEEPS);
    let (server, _) = relay(&daemon, on("l", Deed::Ignore));
    turn(async {
        let mut settings = settings(server);
        settings.answer_limit = seconds(1);
        settings.read_timeout = seconds(1);
        let lock = Client::new(settings).unwrap().lock("k").unwrap();
        let silent = lock.try_acquire().await;
        assert!(matches!(silent, Err(ClientError::TimedOut)), "{silent:?}");
        until_stats(&daemon, "{\"connections\":1,").await;
    });
}

/// The first connection ends while the second one has renewed one hold of two: the server has given it both, and it is
/// kept.
#[test]
fn a_connection_that_breaks_while_another_one_renews_ends_no_lease() {
    let daemon = Daemon::start(&[]);
    let rule = |relayed: &Relayed, number, words: [&str; 3]| match (words[0], number) {
        ("n", 0) => {
            until("the other connection renews", || relayed.renewed() >= 2);
            Deed::End
        }
        ("n", 1) if relayed.renewed() == 1 => Deed::Dawdle,
        _ => Deed::Pass,
    };
    let (server, relayed) = relay(&daemon, Arc::new(rule));
    turn(async {
        let client = Client::new(settings(server)).unwrap();
        let locks = ["a", "b"].map(|key| client.lock(key).unwrap().ttl(seconds(12)).unwrap());
        let leases = Claims::of(locks).unwrap().try_acquire().await.unwrap().unwrap();
        let lost = tokio::time::timeout(seconds(16), leases.lost()).await;
        assert!(lost.is_err(), "{lost:?}");
        assert!(relayed.renewed() >= 2, "the second connection has renewed both");
        leases.release().await.unwrap();
    });
    assert_free(&daemon);
}

/// The first connection ends when the second one has renewed the long lease of two, and the second one falls silent
/// then: it is no longer waited for when the short lease ends, but the long one, which the server has given it, is kept.
#[test]
fn a_short_lease_that_ends_while_another_connection_renews_ends_no_longer_one() {
    let daemon = Daemon::start(&[]);
    // A grant that took a while is renewed before it is used: so many renewals come before both are held.
    let before = Arc::new(AtomicUsize::new(usize::MAX));
    let earlier = Arc::clone(&before);
    let rule = move |relayed: &Relayed, number, words: [&str; 3]| {
        let earlier = earlier.load(Ordering::SeqCst);
        match (words[0], number) {
            ("n", _) if earlier == usize::MAX => Deed::Pass,
            ("n", 0) => {
                until("the other connection renews", || relayed.renewed() > earlier);
                Deed::End
            }
            ("n", 1) if relayed.renewed() > earlier => Deed::Ignore,
            _ => Deed::Pass,
        }
    };
    let (server, relayed) = relay(&daemon, Arc::new(rule));
    turn(async {
        let client = Client::new(settings(server)).unwrap();
        let lock = |key: &str, ttl| client.lock(key).unwrap().ttl(seconds(ttl)).unwrap();
        let long = lock("long", 12).try_acquire().await.unwrap().unwrap();
        let short = lock("short", 5).try_acquire().await.unwrap().unwrap();
        let earlier = relayed.renewed();
        before.store(earlier, Ordering::SeqCst);
        assert_eq!(short.lost().await, Loss::Unreachable);
        // Longer than the long lease.
        let lost = tokio::time::timeout(seconds(14), long.lost()).await;
        assert!(lost.is_err(), "{lost:?}");
        assert!(relayed.renewed() > earlier + 1, "a third connection has renewed it");
        assert_eq!(short.loss(), Some(Loss::Unreachable), "it is not held again");
        long.release().await.unwrap();
    });
    assert_free(&daemon);
}

/// The turn of a client comes when it has gone on, over a connection that holds nothing else: it is given back.
#[test]
fn a_turn_that_comes_too_late_is_given_back() {
    let daemon = Daemon::start(KEEPS);
    let proxy = Proxy::to(daemon.address);
    let mut settings = settings(proxy.address());
    settings.answer_limit = seconds(4);
    let mut holder = daemon.talk();
    let token = holder.take("k", "0");
    turn(async {
        let client = Client::new(settings).unwrap();
        let lock = client.lock("k").unwrap().ttl(LEASE).unwrap();
        let Entry::Queued(ticket) = lock.enqueue().await.unwrap() else { panic!("it is held") };
        proxy.stall_answers();
        assert_eq!(holder.ask("r", "k", &token), "ok");
        // With its locks in etcd, the server gives the turn a moment after the release.
        let late = ticket.wait(seconds(3)).await;
        assert!(matches!(late, Err(ClientError::TimedOut)), "{late:?}");
        // It comes later than the client waits for any answer.
        assert_eq!(daemon.talk().ask("l", "k", "5"), "timeout");
        proxy.deliver_answers();
        until_stats(&daemon, "\"idle_locks\":[{\"key\":\"k\"").await;
    });
    assert_free_at_once(&daemon);
}

/// The same for a lock that was free when the client wanted to join the line.
#[test]
fn a_lock_instead_of_a_place_that_comes_too_late_is_given_back() {
    let daemon = Daemon::start(KEEPS);
    let (server, relayed) = relay(&daemon, on("e", Deed::Delay));
    let mut settings = settings(server);
    settings.answer_limit = seconds(4);
    turn(async {
        let lock = Client::new(settings).unwrap().lock("k").unwrap().ttl(LEASE).unwrap();
        let late = lock.enqueue().await.map(drop);
        assert!(matches!(late, Err(ClientError::TimedOut)), "{late:?}");
        assert_eq!(daemon.talk().ask("l", "k", "2"), "timeout");
        relayed.deliver();
        until_stats(&daemon, "\"idle_locks\":[{\"key\":\"k\"").await;
    });
    assert_free_at_once(&daemon);
}

/// The turn comes while the server no longer answers the client, which gives up its place.
#[test]
fn a_turn_is_given_back_when_pings_are_not_answered() {
    let daemon = Daemon::start(KEEPS);
    let proxy = Proxy::to(daemon.address);
    let mut settings = settings(proxy.address());
    settings.answer_limit = seconds(4);
    settings.read_timeout = seconds(9);
    let mut holder = daemon.talk();
    let token = holder.take("k", "0");
    turn(async {
        let lock = Client::new(settings).unwrap().lock("k").unwrap().ttl(LEASE).unwrap();
        let Entry::Queued(_ticket) = lock.enqueue().await.unwrap() else { panic!("it is held") };
        proxy.stall_answers();
        assert_eq!(holder.ask("r", "k", &token), "ok");
        // Nobody has it and nobody waits for it: the turn has come, and was given back.
        until_stats(&daemon, "\"locks\":[],").await;
        proxy.deliver_answers();
    });
    assert_free_at_once(&daemon);
}

/// A refusal is an answer: it keeps the connection from being closed as idle.
#[test]
fn a_place_is_kept_at_a_server_that_does_not_know_pings() {
    let daemon = Daemon::start(&[]);
    let rule = |relayed: &Relayed, _, words: [&str; 3]| match words {
        ["ping", _, "_"] => {
            relayed.pings.fetch_add(1, Ordering::SeqCst);
            Deed::Answer("error")
        }
        _ => Deed::Pass,
    };
    let (server, relayed) = relay(&daemon, Arc::new(rule));
    let mut settings = settings(server);
    settings.read_timeout = seconds(3);
    let mut holder = daemon.talk();
    let token = holder.take("k", "0");
    turn(async {
        let lock = Client::new(settings).unwrap().lock("k").unwrap();
        let Entry::Queued(ticket) = lock.enqueue().await.unwrap() else { panic!("it is held") };
        while relayed.pings.load(Ordering::SeqCst) < 2 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(holder.ask("r", "k", &token), "ok");
        ticket.wait(seconds(5)).await.unwrap().unwrap().release().await.unwrap();
    });
    assert_free_at_once(&daemon);
}

/// Renewals that have taken all the time are no reason to give up what is held: it is left at the server.
#[rstest]
#[case::renewals_are_late(450)]
#[case::another_connection_is_looked_for(520)]
fn locks_are_left_at_a_slow_server(#[case] delay_ms: u64) {
    let daemon = Daemon::start(KEEPS);
    let proxy = Proxy::to(daemon.address);
    proxy.delay(Duration::from_millis(delay_ms));
    turn(async {
        let client = Client::new(settings(proxy.address())).unwrap();
        let locks = ["a", "b", "c"].map(|key| client.lock(key).unwrap().ttl(seconds(6)).unwrap());
        let claims = Claims::of(locks.clone()).unwrap();
        let grants = claims.acquire_detached(None, |_, _| {}).await.unwrap().unwrap();
        proxy.delay(Duration::ZERO);
        for (lock, grant) in locks.iter().zip(grants) {
            lock.release(&grant.token).await.unwrap();
        }
    });
    assert_free_at_once(&daemon);
}

/// One lock, left at its server.
async fn left(lock: &Claim) -> Result<Option<Grant>, ClientError> {
    let grants = Claims::of([lock.clone()])?.acquire_detached(None, |_, _| {}).await?;
    Ok(grants.and_then(|mut grants| grants.pop()))
}

/// The server stops answering when a lock that was waited for is left there: that is a failure, not a wait without end.
#[test]
fn a_server_falls_silent_when_a_lock_is_left() {
    let daemon = Daemon::start(KEEPS);
    let (server, _) = relay(&daemon, on("grace", Deed::Ignore));
    let mut settings = settings(server);
    settings.answer_limit = seconds(4);
    let mut holder = daemon.talk();
    let token = holder.take("k", "0");
    turn(async {
        let client = Client::new(settings).unwrap();
        let lock = client.lock("k").unwrap().ttl(LEASE).unwrap();
        let waiting = tokio::spawn(async move { left(&lock).await });
        until_stats(&daemon, "\"waiters\":1").await;
        // Long enough that the grant must be confirmed.
        assert_eq!(daemon.talk().ask("l", "k", "1"), "timeout");
        assert_eq!(holder.ask("r", "k", &token), "ok");
        let left = tokio::time::timeout(seconds(30), waiting).await.expect("it ends").unwrap();
        assert!(matches!(left, Err(ClientError::TimedOut)), "{left:?}");
    });
    assert_free_at_once(&daemon);
}

/// The server is slow to say how long it keeps a lock: the lease is renewed meanwhile.
#[test]
fn a_lease_is_renewed_until_it_is_left() {
    let daemon = Daemon::start(KEEPS);
    let (server, relayed) = relay(&daemon, on("grace", Deed::Delay));
    let mut settings = settings(server);
    settings.answer_limit = PATIENCE;
    turn(async {
        let lock = Client::new(settings).unwrap().lock("k").unwrap();
        let lock = lock.ttl(seconds(9)).unwrap();
        let other = lock.clone();
        let leaving = tokio::spawn(async move { left(&other).await });
        let waited = in_line(&daemon, "11").await;
        assert_eq!(waited, "timeout", "longer than the lease");
        relayed.deliver();
        let grant = leaving.await.unwrap().unwrap().unwrap();
        lock.release(&grant.token).await.unwrap();
    });
    assert_free_at_once(&daemon);
}

/// What another client hears that waits for `k` as soon as it is held.
async fn in_line(daemon: &Daemon, timeout: &'static str) -> String {
    until_stats(daemon, "\"key\":\"k\",\"owner").await;
    let mut talker = daemon.talk();
    tokio::task::spawn_blocking(move || talker.ask("l", "k", timeout)).await.unwrap()
}

/// One server is slow to say how long it keeps its lock: the lease at the other one is renewed meanwhile, so the client
/// gets no token that holds nothing.
#[test]
fn a_lease_is_renewed_while_another_server_is_asked() {
    let daemons = [Daemon::start(KEEPS), Daemon::start(KEEPS)];
    let (slow, relayed) = relay(&daemons[1], on("grace", Deed::Delay));
    turn(async {
        let prompt = client(&daemons[0]).lock("k").unwrap().ttl(seconds(6)).unwrap();
        let mut settings = settings(slow);
        settings.answer_limit = PATIENCE;
        let slow = Client::new(settings).unwrap().lock("slow").unwrap();
        let both = Claims::of([prompt.clone(), slow.clone().ttl(LEASE).unwrap()]).unwrap();
        let leaving = tokio::spawn(async move { both.acquire_detached(None, |_, _| {}).await });
        let waited = in_line(&daemons[0], "9").await;
        assert_eq!(waited, "timeout", "longer than the lease");
        relayed.deliver();
        let grants = leaving.await.unwrap().unwrap().unwrap();
        for (lock, grant) in [prompt, slow].iter().zip(grants) {
            lock.release(&grant.token).await.unwrap();
        }
    });
    daemons.iter().for_each(assert_free_at_once);
}

/// Others of the client who ask again and again over the same connection delay no renewal.
#[test]
fn a_busy_connection_renews_its_leases() {
    let daemon = Daemon::start(KEEPS);
    turn(async {
        let client = client(&daemon);
        let lock = client.lock("k").unwrap().ttl(seconds(9)).unwrap();
        let lease = lock.try_acquire().await.unwrap().unwrap();
        let mut askers = tokio::task::JoinSet::new();
        for number in 0..20 {
            let lock = client.lock(format!("k{number}")).unwrap();
            askers.spawn(async move {
                loop {
                    lock.try_acquire().await.unwrap().unwrap().release().await.unwrap();
                }
            });
        }
        tokio::time::timeout(seconds(12), lease.lost()).await.unwrap_err();
        askers.shutdown().await;
        lease.release().await.unwrap();
    });
    assert_free(&daemon);
}

/// Somebody takes one of the keys away: the others stay, on their connection.
#[test]
fn a_lease_that_is_taken_away_ends_no_other_of_its_connection() {
    let dir = tempfile::tempdir().unwrap();
    let (daemon, port) = administered(dir.path(), &["--read-timeout", LONG]);
    turn(async {
        let mut settings = settings(daemon.address);
        settings.read_timeout = LEASE;
        let client = Client::new(settings).unwrap();
        let leases = claims(&client, &["a", "b", "c"]).try_acquire().await.unwrap().unwrap();
        let [a, b, c] = leases.into_vec().try_into().unwrap();
        let before = owner(&daemon, "a");
        let words = ["force-release", "b", "--http-port", &port];
        let mut command = dflock(&daemon, &words);
        let end = run(command.env("DFLOCK_ADMIN_TOKEN", "open sesame"));
        assert_eq!(end.code, 0, "{end:?}");
        assert_eq!(b.lost().await, Loss::NotHeld);
        assert_eq!([owner(&daemon, "a"), owner(&daemon, "c")], [before.clone(), before]);
        a.release().await.unwrap();
        c.release().await.unwrap();
    });
    assert_free(&daemon);
}
