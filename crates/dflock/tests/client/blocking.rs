//! `dflock::blocking` against the real server: leases without a runtime, and what becomes of them when the connection
//! breaks, the server stands still, or the holder only drops them.

use crate::library::{KEEPS, blocking as client, seconds, settings};
use crate::program::{Restarting, Running, assert_free, start};
use dflock::blocking::{Client, Connection, Lease};
use dflock::{ClientError, Loss, Settings, Tls, TlsRoots};
use nix::sys::signal::{SigSet, Signal};
use rstest::rstest;
use std::process::{Command, Stdio};
use std::time::Instant;
use testbed::dflockd::Daemon;

fn held(client: &Client, ttl_s: u64) -> Lease {
    let lock = client.lock("k").unwrap().ttl(seconds(ttl_s)).unwrap();
    lock.try_acquire().unwrap().expect("nobody has it")
}

/// Longer than its lease: it was renewed. So was a grant that was waited for.
#[test]
fn a_thread_renews() {
    let daemon = Daemon::start(&[]);
    let client = client(&daemon);
    let lease = held(&client, 9);
    let lock = client.lock("k").unwrap().ttl(seconds(9)).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| lock.acquire(seconds(60)).unwrap().unwrap());
        daemon.until_stats("\"waiters\":1");
        assert_eq!(lease.lost_within(seconds(11)), None);
        assert!(lease.held_until().is_some_and(|until| until > Instant::now()));
        lease.release().unwrap();
        let next = waiting.join().unwrap();
        assert_eq!(next.lost_within(seconds(11)), None);
        next.release().unwrap();
    });
    assert_free(&daemon);
}

/// Programs that end of SIGPIPE, as command line tools do, do not end of a connection that broke. What is blocked is
/// kept, though it would be ignored.
#[test]
fn a_broken_connection_raises_no_signal() {
    const PIPE: u64 = 1 << (Signal::SIGPIPE as u64 - 1);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    SigSet::from(Signal::SIGPIPE).thread_block().unwrap();
    let address = format!("unix:{}", path.display()).parse().unwrap();
    let mut connection = Connection::open(&address, &Settings::default()).unwrap();
    drop(listener.accept().unwrap());
    assert!(matches!(connection.ping(), Err(ClientError::Broken(_))));
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:")).unwrap();
    assert_eq!(u64::from_str_radix(pending.trim(), 16).unwrap() & PIPE, 0);
}

/// The request is on its way when `drop` returns, also to a server that keeps what a closed connection held.
#[rstest]
fn a_lease_that_is_dropped_is_released(#[values(&[], KEEPS)] options: &[&str]) {
    let daemon = Daemon::start(options);
    drop(held(&client(&daemon), 600));
    assert_free(&daemon);
    daemon.until_stats("{\"connections\":1,");
}

/// Below TLS more comes over a connection than answers: that ends no lease, and is not taken for one.
#[test]
fn a_lease_under_tls_is_kept_and_released() {
    let [cert, key, ca] = ["cert.pem", "key.pem", "ca.pem"].map(testbed::dflockd::pem);
    let options = [&["--tls-cert", &cert, "--tls-key", &key], KEEPS].concat();
    let daemon = Daemon::start(&options);
    let roots = TlsRoots::File(ca.into());
    let mut settings = settings(daemon.address);
    settings.tls = Some(Tls::new(&roots, Some("localhost".to_owned())).unwrap());
    let client = Client::new(settings).unwrap();
    let lease = held(&client, 9);
    assert_eq!(lease.lost_within(seconds(11)), None);
    lease.release().unwrap();
    drop(held(&client, 600));
    let lock = client.lock("k").unwrap();
    lock.acquire(seconds(60)).unwrap().unwrap().release().unwrap();
    let mut connection = client.connect_to(&daemon.address.to_string().parse().unwrap()).unwrap();
    let stats = connection.stats(dflock::Stats::Keys);
    assert!(stats.unwrap().contains("\"locks\":[]"));
}

#[test]
fn a_lease_outlives_a_restart_and_a_place_in_the_line_is_taken_again() {
    let mut server = Restarting::start(&["--disconnect-grace", "60"]);
    let client = client(&server.daemon);
    let lease = held(&client, 60);
    let lock = client.lock("k").unwrap();
    std::thread::scope(|scope| {
        let (told, heard) = std::sync::mpsc::channel();
        let waiting = scope.spawn(move || {
            let mut told = |error: &ClientError| told.send(error.to_string()).unwrap();
            lock.acquire_persistently(None, &mut told).unwrap().unwrap()
        });
        server.daemon.until_stats("\"waiters\":1");
        server.end(Signal::SIGKILL);
        heard.recv_timeout(testbed::dflockd::PATIENCE).expect("the line was left");
        server.start_again();
        server.daemon.until_stats("\"waiters\":1");
        assert_eq!(lease.loss(), None);
        lease.release().unwrap();
        waiting.join().unwrap().release().unwrap();
    });
    assert_free(&server.daemon);
}

/// The holder is told before the lease ends, by the margin that he wants, and does not wait for the server then.
#[test]
fn a_server_that_stands_still_loses_the_lease() {
    let daemon = Daemon::start(&[]);
    let margin = seconds(1);
    let mut settings = settings(daemon.address);
    settings.margin = margin;
    let lease = held(&Client::new(settings).unwrap(), 6);
    let until = lease.held_until().unwrap();
    daemon.signal(Signal::SIGSTOP);
    assert_eq!(lease.lost_within(seconds(60)), Some(Loss::Unreachable));
    // It may have been renewed once before.
    let told = Instant::now();
    assert!(told >= until - margin, "{:?} too early", until - margin - told);
    assert!(lease.release().is_err());
    daemon.signal(Signal::SIGCONT);
    assert_free(&daemon);
}

/// A release does not wait for the end of the search.
#[test]
fn a_holder_may_go_while_the_server_is_looked_for() {
    let mut daemon = Daemon::start(&[]);
    let lease = held(&client(&daemon), 600);
    daemon.signal(Signal::SIGKILL);
    daemon.ended();
    let began = Instant::now();
    assert!(lease.release().is_err());
    assert!(began.elapsed() < seconds(60));
}

fn example(daemon: &Daemon, name: &str) -> Running {
    let mut command = Command::new(testbed::example("dflock", name));
    start(command.args([&daemon.address.to_string(), "k"]).stdin(Stdio::piped()))
}

/// The lease stands while the program works, and the next in line has its turn after it.
#[test]
fn the_example_of_a_plain_thread_works_under_the_lock() {
    let daemon = Daemon::start(&[]);
    let begin = || example(&daemon, "plain_thread");
    let mut first = begin();
    assert!(first.lines(1)[0].starts_with("has k, fence "));
    let mut second = begin();
    daemon.until_stats("\"waiters\":1");
    first.type_in(b"one\ntwo\n");
    let fence = first.lines(3)[2].split_once(" two").unwrap().0.to_owned();
    assert_eq!(second.said(), "");
    first.end_input();
    let end = first.end();
    assert_eq!((end.code, &*end.err), (0, ""), "{end:?}");
    let next = second.lines(1)[0].strip_prefix("has k, fence ").unwrap().parse::<u64>().unwrap();
    assert!(next > fence.parse().unwrap());
    second.end_input();
    assert_eq!(second.end().code, 0);
    assert_free(&daemon);
}

/// A leader that is told to end hands over, and one that is killed is followed.
#[test]
fn the_example_of_a_daemon_leads_in_turn() {
    let daemon = Daemon::start(&[]);
    let begin = || example(&daemon, "tokio_daemon");
    let mut first = begin();
    assert!(first.lines(1)[0].starts_with("leads, fence "));
    let second = begin();
    daemon.until_stats("\"waiters\":1");
    let mut third = begin();
    daemon.until_stats("\"waiters\":2");
    first.end_input();
    let end = first.end();
    assert_eq!((end.code, &*end.err), (0, ""), "{end:?}");
    second.lines(1);
    second.signal(Signal::SIGKILL);
    third.lines(1);
    third.end_input();
    assert_eq!(third.end().code, 0);
    assert_free(&daemon);
}
