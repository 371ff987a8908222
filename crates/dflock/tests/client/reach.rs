//! Which server is asked, over which transport, with which secret; and the messages when that fails.

use crate::program::{LONG, assert_free, bare, dflock, run, start};
use rstest::rstest;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use testbed::TcpSocket;
use testbed::dflockd::{Daemon, free_port, pem, program, until};

/// Somebody who answers every connection with these bytes and closes it, or, without any, says
/// nothing and keeps it open.
fn stranger(answer: Option<&'static [u8]>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut kept: Vec<TcpStream> = Vec::new();
        for mut stream in listener.incoming().map_while(Result::ok) {
            if let Some(answer) = answer {
                let _ = stream.write_all(answer);
                // Not before the question has been read: that would be a reset.
                let _ = stream.read(&mut [0; 1024]);
            } else {
                kept.push(stream);
            }
        }
    });
    address
}

#[rstest]
#[case::not_the_protocol(b"SSH-2.0-x\r\n", 76, "not a dflockd answer: SSH-2.0-x")]
#[case::http(
    b"HTTP/1.1 400 Bad Request\r\n",
    76,
    "an HTTP server: name the port of the lock protocol"
)]
#[case::no_text(b"\xff\xfe\n", 76, "not a dflockd answer")]
#[case::control_characters(b"\x1b[2Jok\n", 76, "not a dflockd answer: \\u{1b}[2Jok")]
#[case::nothing(b"", 69, "connection lost: closed by the server")]
#[case::half_an_answer(b"o", 69, "connection lost: closed by the server")]
#[case::draining(b"error_draining\n", 69, "the server is shutting down (error_draining)")]
#[case::secret_wanted(b"error_auth\n", 77, "the server refused the auth token, or needs one")]
#[case::no_such_word(b"error\n", 76, "the server does not know this request")]
fn a_server_that_is_no_dflockd_is_an_error_with_its_code(
    #[case] answer: &'static [u8],
    #[case] code: i32,
    #[case] words: &str,
) {
    let server = stranger(Some(answer));
    let end = run(&mut bare(&["ping", "--server", &server]));
    assert_eq!((end.code, &*end.out), (code, ""), "{end:?}");
    assert!(end.err.starts_with("dflock: ") && end.err.contains(words), "{end:?}");
    assert!(!end.err.contains('\u{1b}'), "{end:?}");
}

#[rstest]
#[case::no_port_open(&["run", "k", "--", "echo", "it ran"])]
#[case(&["acquire", "k"])]
#[case(&["release", "k", "0123"])]
#[case(&["renew", "k", "0123"])]
#[case(&["stats"])]
#[case(&["ping"])]
#[case(&["bench", "--pairs", "1"])]
#[case(&["watch", "k"])]
fn without_a_server_the_program_ends_with_an_error(#[case] words: &[&str]) {
    let server = format!("127.0.0.1:{}", free_port());
    let words = [&["--patience", "1"], words].concat();
    let end = run(bare(&words).env("DFLOCK_SERVERS", &server));
    assert_eq!((end.code, &*end.out), (69, ""), "{end:?}");
    assert!(end.err.starts_with(&format!("dflock: cannot connect to {server}: ")), "{end:?}");
}

/// A log says what is going on before it is over, and then what to do. The usual patience is long enough to ask
/// for the holder twice.
#[test]
fn a_server_that_is_away_is_named_with_what_to_start() {
    let server = format!("127.0.0.1:{}", free_port());
    let end = testbed::local::run(&mut bare(&["--server", &server, "run", "k", "--", "true"]));
    let lines: Vec<&str> = end.err.lines().collect();
    let [looking, failed] = lines.as_slice() else { panic!("{end:?}") };
    assert_eq!(*looking, format!("dflock: no answer yet from {server}; trying for 10s in all"));
    assert!(failed.starts_with(&format!("dflock: cannot connect to {server}: ")), "{end:?}");
    assert!(failed.ends_with("; start dflockd there, or see --server"), "{end:?}");
}

/// A port that is closed, and a server that accepts connections and says nothing.
#[rstest]
#[case::run_with_two_keys(&["run", "--key", "j", "--key", "k", "--", "true"], false)]
#[case::acquire(&["acquire", "k"], false)]
#[case::hold(&["acquire", "k", "--hold"], false)]
#[case::release(&["release", "k", "0123"], false)]
#[case::renew(&["renew", "k", "0123"], false)]
#[case::watch(&["watch", "k"], false)]
#[case::run_and_silence(&["run", "k", "--", "true"], true)]
#[case::ping(&["ping"], true)]
#[case::stats(&["stats"], true)]
#[case::force_release(&["force-release", "k", "--http-port", "PORT"], true)]
#[case::kick(&["kick", "1", "--http-port", "PORT"], true)]
fn a_server_that_does_not_answer_is_named(#[case] words: &[&str], #[case] is_silent: bool) {
    let port = free_port().to_string();
    let server = format!("127.0.0.1:{port}");
    let _silent = is_silent.then(|| TcpListener::bind(&server).unwrap());
    let mut command = bare(&["--patience", "600"]);
    command.args(words.iter().map(|word| word.replace("PORT", &port)));
    command.env("DFLOCK_SERVERS", &server).env("DFLOCK_ADMIN_TOKEN", "secret");
    let asking = start(command.stdin(Stdio::piped()));
    let said = format!("dflock: no answer yet from {server}; trying for 10m00s in all\n");
    until(&said, || asking.complained() == said);
}

/// A server that is being started is waited for, also by those who do not wait for a lock. The last two
/// ask about a token of before, which it does not know.
#[rstest]
#[case(&["run", "k", "--timeout", "0", "--", "echo", "it ran"], 0)]
#[case(&["acquire", "k", "--timeout", "0", "--ttl", LONG], 0)]
#[case(&["acquire", "k", "--timeout", "0", "--hold"], 0)]
#[case(&["release", "k", "0123"], 1)]
#[case(&["renew", "k", "0123"], 1)]
fn a_server_that_is_being_started_is_waited_for(#[case] words: &[&str], #[case] code: i32) {
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let nobody = TcpListener::bind(&address).unwrap();
    let mut command = bare(&["--patience", "60"]);
    let asking = start(command.args(words).env("DFLOCK_SERVERS", &address));
    // As by a balancer with nothing behind it, and then by nobody at all.
    drop(nobody.accept().unwrap());
    drop(nobody);
    // A process that another test is starting has it until it executes its program.
    let listens = |it: &TcpSocket| it.port == port && it.state == TcpSocket::LISTEN;
    until("nobody listens any more", || !TcpSocket::all().iter().any(listens));
    let options = ["--port", &port.to_string(), "--auto-release-on-disconnect=false"];
    let _daemon = Daemon::run(program().args(options));
    let end = asking.end();
    assert_eq!(end.code, code, "{end:?}");
}

/// One service at several addresses: what the first does not say, the second does.
#[rstest]
fn with_any_of_the_second_address_answers_for_the_first(#[values(false, true)] is_mute: bool) {
    let daemon = Daemon::start(&["--auto-release-on-disconnect=false"]);
    let away = if is_mute { stranger(None) } else { "127.0.0.1:1".to_owned() };
    let list = format!("{away},{}", daemon.address);
    let ask = |words: &[&str]| {
        let end = run(bare(words).env("DFLOCK_ANY_OF", &list));
        assert_eq!(end.code, 0, "{end:?}");
        end.out.trim().to_owned()
    };
    // Two keys, of which one is for the first address, and the other for the second.
    for key in ["a", "my-job"] {
        assert_eq!(ask(&["run", key, "--timeout", "0", "--", "echo", "in"]), "in");
        let token = ask(&["acquire", key, "--timeout", "0", "--ttl", LONG]);
        assert_eq!(ask(&["renew", key, &token, "--ttl", "30"]), "30");
        let patience: &[&str] = if is_mute { &["--patience", "4"] } else { &[] };
        let stats = ask(&[&["stats"], patience].concat());
        assert!(stats.starts_with(&format!("{}: ", daemon.address)), "{stats}");
        ask(&["release", key, &token]);
    }
    assert_ne!(dflock::shard(b"a", 2), dflock::shard(b"my-job", 2));
    assert_free(&daemon);
}

/// What is typed beats the environment; two lists in one place are one too many.
#[rstest]
#[case(&[("DFLOCK_SERVERS", "a:1,b:1")], &["--any-of", "c:1"], "c:1")]
#[case(&[("DFLOCK_ANY_OF", "a:1,b:1")], &["--server", "c:1"], "c:1")]
#[case(&[("DFLOCK_SERVERS", ""), ("DFLOCK_ANY_OF", "c:1")], &[], "c:1")]
#[case(&[("DFLOCK_SERVERS", ""), ("DFLOCK_ANY_OF", "")], &["--server", "c:1"], "c:1")]
#[case(&[("DFLOCK_SERVERS", "a:1"), ("DFLOCK_ANY_OF", "c:1")], &[], "")]
#[case(&[], &["--server", "a:1", "--any-of", "c:1"], "")]
fn options_override_the_server_lists_of_the_environment(
    #[case] environment: &[(&str, &str)],
    #[case] options: &[&str],
    #[case] asked: &str,
) {
    let mut command = bare(&["kick", "1", "--http-port", "1"]);
    let end = run(command.args(options).envs(environment.iter().copied()));
    if asked.is_empty() {
        assert_eq!(end.code, 64, "{end:?}");
        assert!(end.err.contains("(DFLOCK_ANY_OF) one service"), "{end:?}");
    } else {
        // That is asked for only where there is one server.
        assert!(end.err.contains("DFLOCK_ADMIN_TOKEN"), "{end:?}");
    }
}

#[test]
fn a_silent_server_is_not_waited_for_for_ever() {
    let server = stranger(None);
    let end = run(&mut bare(&["ping", "--server", &server, "--patience", "1"]));
    let said = format!("dflock: {server}: the server does not answer\n");
    assert_eq!((end.code, end.err), (69, said));
}

#[test]
fn a_name_that_does_not_exist() {
    let end = run(&mut bare(&["ping", "--server", "no-such-host.invalid"]));
    assert_eq!(end.code, 69, "{end:?}");
    assert!(end.err.contains("cannot connect to no-such-host.invalid:6388"), "{end:?}");
}

#[test]
fn a_unix_socket() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("dflockd.sock");
    let daemon = Daemon::start(&["--unix-socket", socket.to_str().unwrap()]);
    let server = format!("unix:{}", socket.display());
    let end = run(&mut bare(&["run", "k", "--server", &server, "--", "echo", "in"]));
    assert_eq!((end.code, &*end.out, &*end.err), (0, "in\n", ""));
    assert_free(&daemon);
}

#[rstest]
#[case::from_the_environment(&[("DFLOCK_AUTH_TOKEN", "sesame")], None, 0)]
#[case::from_a_file(&[], Some("sesame\n"), 0)]
#[case::the_file_counts(&[("DFLOCK_AUTH_TOKEN", "wrong")], Some("sesame"), 0)]
#[case::none(&[], None, 77)]
#[case::wrong(&[("DFLOCK_AUTH_TOKEN", "sesame2")], None, 77)]
#[case::wrong_in_the_file(&[("DFLOCK_AUTH_TOKEN", "sesame")], Some("wrong"), 77)]
#[case::empty(&[("DFLOCK_AUTH_TOKEN", ""), ("DFLOCK_AUTH_TOKEN_FILE", "")], None, 77)]
#[case::empty_file(&[], Some("\n"), 78)]
#[case::two_lines(&[], Some("sesame\nsesame\n"), 78)]
fn the_secret_comes_from_a_file_or_the_environment(
    #[case] environment: &[(&str, &str)],
    #[case] file: Option<&str>,
    #[case] code: i32,
) {
    let daemon = Daemon::start(&["--auth-token", "sesame"]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    for words in [&["ping"][..], &["run", "k", "--", "true"]] {
        let mut command = dflock(&daemon, words);
        command.envs(environment.iter().copied());
        if let Some(content) = file {
            std::fs::write(&path, content).unwrap();
            command.env("DFLOCK_AUTH_TOKEN_FILE", &path);
        }
        let end = run(&mut command);
        assert_eq!(end.code, code, "{end:?}");
        assert!(!end.out.contains("sesame") && !end.err.contains("sesame"), "{end:?}");
    }
}

#[rstest]
#[case::trusted(&["--tls-ca", "ca.pem", "--tls-name", "localhost"], 0, "")]
#[case::by_its_own_address(&["--tls-ca", "ca.pem"], 0, "")]
#[case::not_trusted(&["--tls"], 69, "the server's certificate is not signed by a trusted authority")]
#[case::another_name(&["--tls-ca", "ca.pem", "--tls-name", "other.example"], 69, "another name")]
#[case::no_certificates(&["--tls-ca", "key.pem"], 78, "no trusted certificate found")]
#[case::no_such_file(&["--tls-ca", "none.pem"], 78, "none.pem")]
#[case::in_the_clear(&[], 76, "the server speaks TLS; see --tls")]
fn tls(#[case] options: &[&str], #[case] code: i32, #[case] words: &str) {
    let (cert, key) = (pem("cert.pem"), pem("key.pem"));
    let daemon = Daemon::start(&["--tls-cert", &cert, "--tls-key", &key]);
    let options = options.iter().map(|word| match word.strip_suffix(".pem") {
        Some(_) => pem(word),
        None => (*word).to_owned(),
    });
    let mut command = dflock(&daemon, &["run", "k"]);
    let end = run(command.args(options).args(["--", "echo", "in"]));
    assert_eq!(end.code, code, "{end:?}");
    assert_eq!(end.out, if code == 0 { "in\n" } else { "" });
    assert!(end.err.contains(words) && !end.err.contains("Error("), "{end:?}");
}

/// The message names the option and its right form.
#[rstest]
#[case::slots(&["run", "k", "--slots", "2", "true"], 64, "the option for this is '--limit', with the number of all slots")]
#[case::slot(&["run", "k", "--slot", "2", "true"], 64, "the option for this is '--limit'")]
#[case::no_slots(&["run", "k", "--limit", "0", "true"], 64, "'--limit <N>': needs a number of slots, 1 to 4294967295")]
#[case::minus_slots(&["run", "k", "--limit", "-1", "true"], 64, "'--limit <N>': needs a number of slots, 1 to")]
#[case::switch(&["--tls=false", "ping"], 64, "'--tls' takes no value: leave it out")]
#[case::switch_of_run(&["run", "k", "--shared=no", "true"], 64, "'--shared' takes no value: leave it out")]
#[case::no_token_file(&["ping", "--auth-token-file", "/nowhere"], 78, "dflock: --auth-token-file /nowhere: No such file")]
#[case::empty_token_file(&["ping", "--auth-token-file", "/dev/null"], 78, "--auth-token-file /dev/null: the token is empty")]
#[case::no_admin_file(&["kick", "1", "--admin-token-file", "/nowhere"], 78, "--admin-token-file /nowhere: No such")]
#[case::no_certificates(&["ping", "--tls-ca", "/nowhere"], 78, "dflock: --tls-ca /nowhere: No such file")]
fn a_wrong_option_is_named(#[case] words: &[&str], #[case] code: i32, #[case] said: &str) {
    let end = run(&mut bare(words));
    assert_eq!((end.code, &*end.out), (code, ""), "{end:?}");
    assert!(end.err.contains(said), "{end:?}");
    let end = run(&mut bare(&[&["--json"], words].concat()));
    assert!(end.code == code && end.err.is_empty(), "{end:?}");
    let object: serde_json::Value = serde_json::from_str(&end.out).unwrap();
    let word = if code == 64 { "usage" } else { "settings" };
    assert_eq!(object["error"], word);
    assert!(object["message"].is_string());
}

/// What is wrong with a file is said in words, and which file it is.
#[rstest]
#[case::something_else("hello\n", "no trusted certificate found")]
#[case::no_certificate(
    "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    "no trusted"
)]
#[case::damaged("-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n", "damaged")]
#[case::cut("-----BEGIN CERTIFICATE-----\nAAAA\n", "is the file cut short?")]
fn a_file_of_certificates(#[case] content: &str, #[case] words: &str) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, content).unwrap();
    let path = file.path().to_str().unwrap();
    let end = run(&mut bare(&["ping", "--tls-ca", path]));
    assert_eq!(end.code, 78, "{end:?}");
    assert!(end.err.starts_with(&format!("dflock: --tls-ca {path}: ")), "{end:?}");
    assert!(end.err.contains(words) && !end.err.contains('['), "{end:?}");
}

/// What `openssl req -x509` makes when it is told nothing else.
#[test]
fn an_authority_is_not_a_server() {
    let dir = tempfile::tempdir().unwrap();
    let [key, cert] = ["key.pem", "cert.pem"].map(|name| dir.path().join(name));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ed25519", "-nodes", "-days", "7"]);
    openssl.args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]);
    let end = run(openssl.arg("-keyout").arg(&key).arg("-out").arg(&cert));
    assert_eq!(end.code, 0, "{end:?}");
    let [key, cert] = [key, cert].map(|path| path.to_str().unwrap().to_owned());
    let daemon = Daemon::start(&["--tls-cert", &cert, "--tls-key", &key]);
    let end = run(&mut dflock(&daemon, &["ping", "--tls-ca", &cert, "--tls-name", "localhost"]));
    assert_eq!(end.code, 69, "{end:?}");
    assert!(end.err.contains("(CA:TRUE)") && end.err.contains("CA:FALSE"), "{end:?}");
}

#[test]
fn no_tls_there() {
    let daemon = Daemon::start(&[]);
    let mut command = dflock(&daemon, &["ping", "--patience", "2", "--tls-ca", &pem("ca.pem")]);
    let end = run(&mut command);
    assert_eq!(end.code, 69, "{end:?}");
    // What its answer to a handshake looks like depends on whether it hangs up before we read.
    assert!(end.err.contains("speak TLS"), "{end:?}");
}

#[test]
fn every_server_is_asked_for_ping_and_stats() {
    let daemons: Vec<Daemon> = (0..2).map(|_| Daemon::start(&[])).collect();
    let list = daemons.iter().map(|it| it.address.to_string()).collect::<Vec<_>>().join(",");
    for word in ["ping", "stats"] {
        let end = run(&mut bare(&[word, "--server", &list]));
        assert_eq!(end.code, 0, "{end:?}");
        for daemon in &daemons {
            assert!(end.out.contains(&format!("{}: ", daemon.address)), "{end:?}");
        }
        let end = run(&mut bare(&[word, "--json", "--server", &list]));
        let rows: serde_json::Value = serde_json::from_str(&end.out).unwrap();
        assert_eq!(rows.as_array().unwrap().len(), 2, "{end:?}");
        let end = run(&mut bare(&[word, "--json", "--server", &format!("{list},127.0.0.1:1")]));
        let rows: serde_json::Value = serde_json::from_str(&end.out).unwrap();
        assert_eq!((end.code, rows[2]["error"].as_str()), (69, Some("unreachable")), "{end:?}");
        assert_eq!(end.err, "");
    }
}

/// One that is not there keeps nobody from hearing of the others.
#[rstest]
fn one_of_several_is_not_there(#[values("ping", "stats")] word: &str) {
    let daemon = Daemon::start(&[]);
    let mute = stranger(Some(b"hello\n"));
    let list = format!("127.0.0.1:1,{},{mute}", daemon.address);
    let end = run(&mut bare(&[word, "--server", &list]));
    assert_eq!(end.code, 76, "{end:?}");
    assert!(end.out.starts_with(&format!("{}: ", daemon.address)), "{end:?}");
    let complaints: Vec<&str> = end.err.lines().collect();
    let [absent, strange] = complaints.as_slice() else { panic!("{end:?}") };
    assert!(absent.starts_with("dflock: cannot connect to 127.0.0.1:1: "), "{end:?}");
    assert_eq!(*strange, format!("dflock: {mute}: not a dflockd answer: hello"));
}

#[rstest]
#[case::keys(&["--max-locks", "1"], "other", "the server has no room for another key")]
#[case::waiters(&["--max-waiters", "1"], "k", "too many are waiting for this key")]
fn a_full_server(#[case] options: &[&str], #[case] key: &str, #[case] words: &str) {
    let daemon = Daemon::start(options);
    let (mut holder, mut waiter) = (daemon.talk(), daemon.talk());
    holder.take("k", "0");
    waiter.say(b"l\nk\n1000\n");
    daemon.until_stats("\"waiters\":1");
    let end = run(&mut dflock(&daemon, &["run", key, "--timeout", LONG, "--", "true"]));
    assert_eq!(end.code, 69, "{end:?}");
    assert!(end.err.contains(words), "{end:?}");
}

/// A client that waits in line at a server that is told to end hears of it, looks for it as long as it may wait,
/// and runs nothing.
#[test]
fn the_server_is_told_to_end() {
    // Nobody else gets its port, on which it is looked for.
    let mut daemon = Daemon::run(program().args(["--port", &free_port().to_string()]));
    let mut holder = daemon.talk();
    holder.take("k", "0");
    let words = ["run", "k", "--timeout", "8", "--", "echo", "it ran"];
    let waiting = start(&mut dflock(&daemon, &words));
    daemon.until_stats("\"waiters\":1");
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    until("it says so", || waiting.complained().contains("the server is shutting down"));
    drop(holder);
    daemon.ended();
    let end = waiting.end();
    assert_eq!((end.code, &*end.out), (69, ""), "{end:?}");
    assert!(end.err.contains("the server is shutting down"), "{end:?}");
    assert!(end.err.contains("cannot connect to"), "{end:?}");
}
