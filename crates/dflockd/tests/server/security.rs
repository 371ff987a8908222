//! Authentication and TLS, and that secrets stay secret.

use crate::transcript::play;
use nix::sys::signal::Signal;
use rstest::rstest;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testbed::dflockd::{Daemon, PATIENCE, Talker, pem};

const SECRET: &[&str] = &["--auth-token", "secret"];

#[rstest]
#[case::right("a> auth|_|secret \n a< ok \n a> l|k|0 \n a< ok $t 33")]
#[case::key_line_is_ignored("a> auth|any thing|secret \n a< ok \n b> auth||secret \n b< ok")]
#[case::blanks_around("a> auth|_|\t secret \t \n a< ok")]
#[case::again_is_an_unknown_command(
    "a> auth|_|secret \n a< ok \n a> auth|_|secret \n a< error \n
     a> auth|_|wrong \n a< error \n a> ping|_|_ \n a< ok"
)]
#[case::wrong("a> auth|_|Secret \n a< error_auth \n a. \n log auth")]
#[case::empty("a> auth|_| \n a< error_auth \n a.")]
#[case::prefix("a> auth|_|secre \n a< error_auth \n a.")]
#[case::longer("a> auth|_|secret2 \n a< error_auth \n a.")]
#[case::another_command("a> l|k|0 \n a< error_auth \n a.")]
#[case::ping("a> ping|_|_ \n a< error_auth \n a.")]
#[case::stats("a> stats|_|_ \n a< error_auth \n a.")]
#[case::unknown_command("a> nonsense|| \n a< error_auth \n a.")]
#[case::bad_argument("a> l|k|x \n a< error_auth \n a.")]
#[case::pipelined_behind_a_wrong_one_are_dropped(
    "a> auth|_|x \n a> ping|_|_ \n a< error_auth \n a."
)]
#[case::pipelined_behind_the_right_one_are_served(
    "a> auth|_|secret \n a> ping|_|_ \n a< ok \n a< ok"
)]
fn authentication(#[case] script: &str) {
    // `stats` of the helper would need the secret, so scripts here do not use it.
    play(&Daemon::start(SECRET), script);
}

#[test]
fn silence_and_long_lines_before_auth_are_refused_as_such() {
    let daemon = Daemon::start(&["--auth-token", "secret", "--read-timeout", "4"]);
    let mut silent = daemon.talk();
    let mut long = daemon.talk();
    long.say(&[b"l\n".as_slice(), &[b'x'; 300], b"\n"].concat());
    assert_eq!(long.line(), "error_auth");
    assert!(long.is_closed());
    assert_eq!(silent.line(), "error_auth");
    assert!(silent.is_closed());
}

#[test]
fn a_long_secret_needs_a_long_line_and_only_then_gets_one() {
    let secret = "s".repeat(64 * 1024);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("secret");
    std::fs::write(&file, format!("  {secret}\n")).unwrap();
    let daemon = Daemon::start(&["--auth-token-file", file.to_str().unwrap()]);
    let mut talker = daemon.talk();
    assert_eq!(talker.ask("auth", "_", &secret), "ok");
    assert_eq!(talker.ask("auth", "_", &secret), "error");
    assert!(talker.is_closed());
    let mut talker = daemon.talk();
    talker.say(format!("auth\n_\n{secret}s\n").as_bytes());
    assert_eq!(talker.line(), "error_auth");
}

/// The word itself waits.
#[test]
fn guessing_is_slow() {
    let daemon = Daemon::start(SECRET);
    let mut talker = daemon.talk();
    let start = Instant::now();
    assert_eq!(talker.ask("auth", "_", "guess"), "error_auth");
    assert!(start.elapsed() >= Duration::from_millis(100));
    assert!(talker.is_closed());
}

/// However many try at a time, they are answered one after another; the right secret is not kept.
#[test]
fn guessing_from_many_connections_is_no_faster() {
    // Ten seconds of guesses.
    const GUESSES: u32 = 1000;
    let daemon = Daemon::start(SECRET);
    let start = Instant::now();
    let mut talkers: Vec<_> = (0..GUESSES).map(|_| daemon.talk()).collect();
    for talker in &mut talkers {
        talker.say(b"auth\n_\nguess\n");
    }
    assert_eq!(daemon.talk().ask("auth", "_", "secret"), "ok");
    let is_answered = |talker: &Talker| {
        let socket = talker.socket().get_ref();
        socket.set_nonblocking(true).unwrap();
        let answered = socket.peek(&mut [0]).is_ok();
        socket.set_nonblocking(false).unwrap();
        answered
    };
    assert!(!talkers.iter().all(is_answered), "it came after all guesses");
    for talker in &mut talkers {
        assert_eq!(talker.line(), "error_auth");
    }
    assert!(start.elapsed() >= Duration::from_millis(10) * (GUESSES - 1));
}

/// As the reference: an end inside the first frame is a wrong secret.
#[test]
fn an_unfinished_first_frame_is_refused_as_such() {
    let daemon = Daemon::start(SECRET);
    let mut talker = daemon.talk();
    talker.say(b"auth\n_\nsec");
    talker.half_close();
    assert_eq!(talker.line(), "error_auth");
    let mut silent = daemon.talk();
    silent.half_close();
    assert!(silent.is_closed());
}

fn files(contents: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in contents {
        std::fs::write(dir.path().join(name), content).unwrap();
    }
    dir
}

fn path(dir: &tempfile::TempDir, name: &str) -> String {
    dir.path().join(name).to_str().unwrap().to_owned()
}

/// A secret for some keys opens these and no others.
#[test]
fn a_secret_is_bound_to_its_prefixes() {
    let dir = files(&[("full", "all"), ("some", "jobs/ work\ncron/ work\nweb/  site\n")]);
    let daemon = Daemon::start(&[
        "--auth-token-file",
        &path(&dir, "full"),
        "--auth-prefix-file",
        &path(&dir, "some"),
    ]);
    let mut work = daemon.talk();
    assert_eq!(work.ask("auth", "_", "work"), "ok");
    let token = work.take("jobs/a", "0");
    assert!(work.ask("l", "cron/b", "0").starts_with("ok "));
    for (command, key, arg) in
        [("l", "web/c", "0"), ("e", "jobs", ""), ("e", "xjobs/", ""), ("r", "k", &*token)]
    {
        assert_eq!(work.ask(command, key, arg), "error_auth");
    }
    assert_eq!(work.ask("stats", "_", "_"), "error_auth");
    assert_eq!(work.ask("ping", "_", "_"), "ok");
    let mut all = daemon.talk();
    assert_eq!(all.ask("auth", "_", "all"), "ok");
    assert!(all.ask("l", "web/c", "0").starts_with("ok "));
    assert!(all.ask("stats", "_", "_").contains("jobs/a"));
    assert_eq!(daemon.talk().ask("auth", "_", "jobs/ work"), "error_auth");
}

/// A hang-up reads secrets and certificate again: the old secret and the new one are good side by
/// side, connections live on, and what cannot be read changes nothing.
#[test]
fn a_hangup_reads_secrets_again() {
    let dir = files(&[("secret", "old\n")]);
    let daemon = Daemon::start(&["--auth-token-file", &path(&dir, "secret")]);
    let knows = |secret: &str| daemon.talk().ask("auth", "_", secret) == "ok";
    let mut old = daemon.talk();
    assert_eq!(old.ask("auth", "_", "old"), "ok");
    let token = old.take("k", "0");
    std::fs::write(dir.path().join("secret"), "old\nnew\n").unwrap();
    assert!(!knows("new"));
    daemon.signal(Signal::SIGHUP);
    daemon.logged("read again");
    assert!(knows("new") && knows("old"));
    std::fs::write(dir.path().join("secret"), "\n").unwrap();
    daemon.signal(Signal::SIGHUP);
    daemon.logged("nothing is changed");
    assert!(knows("new") && knows("old"));
    std::fs::write(dir.path().join("secret"), "new\n").unwrap();
    daemon.signal(Signal::SIGHUP);
    testbed::dflockd::until("the old one is out", || !knows("old"));
    assert_eq!(old.ask("n", "k", &token), "ok 33");
}

/// Signals that are meant for others end nothing, and one of them makes the log talk.
#[test]
fn other_signals_end_nothing() {
    let daemon = Daemon::start(&[]);
    for signal in [Signal::SIGALRM, Signal::SIGUSR2, Signal::SIGHUP, Signal::SIGUSR1] {
        daemon.signal(signal);
    }
    daemon.logged("log changed");
    assert_eq!(daemon.talk().ask("ping", "_", "_"), "ok");
    daemon.logged("client connected");
}

/// New connections get the new certificate; those there are live on.
#[test]
fn a_hangup_reads_the_certificate_again() {
    let dir = files(&[]);
    for name in ["cert.pem", "key.pem"] {
        std::fs::copy(pem(name), dir.path().join(name)).unwrap();
    }
    let (cert, key) = (path(&dir, "cert.pem"), path(&dir, "key.pem"));
    let daemon = Daemon::start(&["--tls-cert", &cert, "--tls-key", &key]);
    let mut old = secured(&daemon, &rustls::version::TLS13);
    let reply = ask(&mut old, "l\nk\n0\n");
    assert!(reply.starts_with("ok "), "{reply}");
    // Another certificate: the chain with the authority's behind it.
    let chain = [std::fs::read(pem("cert.pem")).unwrap(), std::fs::read(pem("ca.pem")).unwrap()];
    std::fs::write(&cert, chain.concat()).unwrap();
    daemon.signal(Signal::SIGHUP);
    daemon.logged("read again");
    let mut new = secured(&daemon, &rustls::version::TLS13);
    assert_eq!(ask(&mut new, "ping\n_\n_\n"), "ok\n");
    assert_eq!(new.get_ref().conn.peer_certificates().map(<[_]>::len), Some(2));
    assert_eq!(old.get_ref().conn.peer_certificates().map(<[_]>::len), Some(1));
    assert_eq!(ask(&mut old, "l\nk\n0\n"), "timeout\n");
}

#[test]
fn the_log_has_no_secrets() {
    let daemon = Daemon::start(&["--debug", "--auth-token", "sesame-open"]);
    let mut talker = daemon.talk();
    assert_eq!(talker.ask("auth", "_", "sesame-open"), "ok");
    let token = talker.take("k", "0 60");
    assert_eq!(talker.ask("n", "k", &format!("{token} 1")), "ok 1");
    assert_eq!(talker.ask("n", "k", &format!("{token} 0")), "error");
    assert_eq!(talker.ask("r", "k", &format!("{token}x")), "error");
    assert_eq!(daemon.talk().ask("auth", "_", "sesame-opem"), "error_auth");
    daemon.logged("lease expired");
    daemon.logged("auth failed");
    daemon.logged("code=9");
    let log = daemon.log().join("\n");
    assert!(log.contains("level=DEBUG"), "{log}");
    for secret in [token.as_str(), &token[16..], "sesame"] {
        assert!(!log.contains(secret), "{secret} in {log}");
    }
}

fn tls_daemon(more: &[&str]) -> Daemon {
    let (cert, key) = (pem("cert.pem"), pem("key.pem"));
    let arguments = [&["--tls-cert", cert.as_str(), "--tls-key", key.as_str()], more].concat();
    Daemon::start(&arguments)
}

type Secured = BufReader<StreamOwned<ClientConnection, TcpStream>>;

fn secured(daemon: &Daemon, version: &'static rustls::SupportedProtocolVersion) -> Secured {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(pem("ca.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let session = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(daemon.address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    BufReader::new(StreamOwned::new(session, socket))
}

fn ask(stream: &mut Secured, text: &str) -> String {
    stream.get_mut().write_all(text.as_bytes()).unwrap();
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    line
}

#[rstest]
#[case(&rustls::version::TLS12)]
#[case(&rustls::version::TLS13)]
fn tls_carries_the_protocol(#[case] version: &'static rustls::SupportedProtocolVersion) {
    let daemon = tls_daemon(&["--auth-token", "secret"]);
    daemon.logged("TLS enabled");
    let mut stream = secured(&daemon, version);
    assert_eq!(ask(&mut stream, "auth\n_\nsecret\n"), "ok\n");
    let reply = ask(&mut stream, "l\nk\n0\n");
    assert!(reply.starts_with("ok ") && reply.ends_with(" 33\n"), "{reply}");
    // Many at once, both ways, beyond one TLS record.
    stream.get_mut().write_all(&b"ping\n_\n_\n".repeat(4000)).unwrap();
    for _ in 0..4000 {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        assert_eq!(line, "ok\n");
    }
    let socket = stream.get_ref().sock.try_clone().unwrap();
    drop(stream);
    socket.shutdown(std::net::Shutdown::Both).unwrap();
    let mut stream = secured(&daemon, version);
    assert_eq!(ask(&mut stream, "auth\n_\nsecret\n"), "ok\n");
    // The first client's lock went with it, perhaps a moment later.
    assert!(ask(&mut stream, "l\nk\n20\n").starts_with("ok "));
}

#[test]
fn a_large_body_under_tls_is_whole() {
    let daemon = tls_daemon(&["--max-locks", "5000"]);
    let mut stream = secured(&daemon, &rustls::version::TLS13);
    for key in 0..3000 {
        assert!(ask(&mut stream, &format!("l\nkey-{key}\n0 3600\n")).starts_with("ok "));
    }
    let body = ask(&mut stream, "stats\n_\n_\n");
    let value: serde_json::Value = serde_json::from_str(body.strip_prefix("ok ").unwrap()).unwrap();
    assert_eq!(value["locks"].as_array().unwrap().len(), 3000);
}

#[test]
fn the_end_is_seen_under_tls_while_waiting() {
    let daemon = tls_daemon(&[]);
    let mut holder = secured(&daemon, &rustls::version::TLS13);
    let reply = ask(&mut holder, "l\nk\n0\n");
    let token = reply.split(' ').nth(1).unwrap().to_owned();
    let mut waiter = secured(&daemon, &rustls::version::TLS13);
    waiter.get_mut().write_all(b"l\nk\n600\n").unwrap();
    let waiters = |holder: &mut Secured, want: &str| {
        testbed::dflockd::until(want, || ask(holder, "stats\n_\n_\n").contains(want));
    };
    waiters(&mut holder, "\"waiters\":1");
    drop(waiter);
    waiters(&mut holder, "\"waiters\":0");
    assert_eq!(ask(&mut holder, &format!("r\nk\n{token}\n")), "ok\n");
}

#[test]
fn a_client_without_tls_gets_no_protocol_reply() {
    let daemon = tls_daemon(&["--read-timeout", "5"]);
    let mut talker = daemon.talk();
    talker.say(b"ping\n_\n_\n");
    let mut reply = Vec::new();
    let _ = talker.socket().get_ref().read_to_end(&mut reply);
    // Nothing, or a TLS alert; no word of the protocol.
    assert!(reply.is_empty() || reply[0] == 21, "{reply:?}");
    daemon.logged("the client speaks without TLS");
}

#[test]
fn an_unfinished_handshake_is_dropped_in_time() {
    let daemon = tls_daemon(&["--read-timeout", "1"]);
    let start = Instant::now();
    let mut talker = daemon.talk();
    // The beginning of a record that never comes to its end.
    talker.say(&[0x16, 0x03, 0x01, 0x02, 0x00]);
    assert!(talker.is_closed());
    assert!(start.elapsed() >= Duration::from_secs(1));
}
