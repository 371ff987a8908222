//! Signals: draining, the end, and that it is clean.

use crate::transcript::play;
use nix::sys::signal::Signal;
use rstest::rstest;
use std::net::TcpStream;
use std::time::Instant;
use testbed::dflockd::{Daemon, PATIENCE, Talker};

#[rstest]
#[case(Signal::SIGTERM)]
#[case(Signal::SIGINT)]
fn an_idle_server_ends_at_once_with_zero(#[case] signal: Signal) {
    let mut daemon = Daemon::start(&[]);
    daemon.signal(signal);
    assert_eq!(daemon.ended().code(), Some(0));
    daemon.logged("shutting down, draining connections");
}

#[test]
fn draining_refuses_new_holds_and_serves_the_rest() {
    let mut daemon = Daemon::start(&[]);
    let mut holder = daemon.talk();
    let token = holder.take("k", "0");
    let mut enqueued = daemon.talk();
    assert_eq!(enqueued.ask("e", "k", ""), "queued");
    let mut ready = daemon.talk();
    assert!(ready.ask("e", "free", "").starts_with("acquired "));
    let mut blocked = [(); 4].map(|()| daemon.talk());
    blocked[0].say(b"l\nk\n1000\n");
    blocked[1].say(b"sl\nk\n1000 1\n");
    assert_eq!(blocked[2].ask("e", "k", ""), "queued");
    blocked[2].say(b"w\nk\n1000\n");
    let free = blocked[3].ask("watch", "unknown", "0");
    blocked[3].say(format!("watch\nunknown\n1000 {}\n", &free["free ".len()..]).as_bytes());
    daemon.until_stats("\"waiters\":4");
    daemon.signal(Signal::SIGTERM);
    for talker in &mut blocked {
        assert_eq!(talker.line(), "error_draining");
    }
    for (command, arg) in [("l", "0"), ("sl", "0 2"), ("e", ""), ("se", "2")] {
        assert_eq!(holder.ask(command, "new", arg), "error_draining", "{command}");
    }
    // What is granted already may still be fetched; what is not will not come any more.
    assert!(ready.ask("w", "free", "5").starts_with("ok "));
    assert_eq!(enqueued.ask("w", "k", "5"), "error_draining");
    assert_eq!(holder.ask("ping", "_", "_"), "ok");
    assert!(holder.ask("stats", "_", "_").starts_with("ok {"));
    assert_eq!(holder.ask("n", "k", &token), "ok 33");
    assert_eq!(holder.ask("r", "k", &token), "ok");
    assert!(TcpStream::connect(daemon.address).is_err(), "nobody new comes");
    drop((holder, enqueued, ready, blocked));
    assert_eq!(daemon.ended().code(), Some(0));
}

#[test]
fn a_second_signal_ends_at_once() {
    let mut daemon = Daemon::start(&["--shutdown-timeout", "0"]);
    let mut talker = daemon.talk();
    talker.take("k", "0");
    daemon.signal(Signal::SIGTERM);
    daemon.logged("shutting down");
    assert_eq!(talker.ask("ping", "_", "_"), "ok");
    daemon.signal(Signal::SIGINT);
    assert_eq!(daemon.ended().code(), Some(0));
    assert!(talker.is_closed());
}

#[test]
fn the_shutdown_timeout_closes_the_rest() {
    let mut daemon = Daemon::start(&["--shutdown-timeout", "1"]);
    let mut talker = daemon.talk();
    assert_eq!(talker.ask("ping", "_", "_"), "ok");
    let start = Instant::now();
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.ended().code(), Some(0));
    assert!(start.elapsed().as_millis() >= 1000);
    daemon.logged("shutdown timeout reached");
    assert!(talker.is_closed());
}

/// Leases end on time while draining, too.
#[test]
fn leases_run_out_while_draining() {
    let daemon = Daemon::start(&[]);
    let mut talker = daemon.talk();
    let token = talker.take("k", "0 1");
    daemon.signal(Signal::SIGTERM);
    daemon.logged("lease expired");
    assert_eq!(talker.ask("r", "k", &token), "error");
}

/// Every client gets a right answer or an end, nobody hangs, and the server ends with zero.
#[test]
fn a_signal_under_load() {
    let mut daemon = Daemon::start(&[]);
    let address = daemon.address;
    let (started, running) = std::sync::mpsc::channel();
    let workers: Vec<_> = (0..16)
        .map(|worker| {
            let started = started.clone();
            std::thread::spawn(move || {
                let mut talker = Talker::connect(address);
                let key = format!("k{}", worker % 4);
                let mut pairs = 0;
                loop {
                    let reply = talker.ask("l", &key, "30");
                    let Some(token) = reply.strip_prefix("ok ").and_then(|r| r.split(' ').next())
                    else {
                        return (pairs, reply);
                    };
                    assert_eq!(talker.ask("r", &key, token), "ok");
                    pairs += 1;
                    if pairs == 20 {
                        started.send(()).unwrap();
                    }
                }
            })
        })
        .collect();
    for _ in 0..workers.len() {
        running.recv_timeout(PATIENCE).unwrap();
    }
    daemon.signal(Signal::SIGTERM);
    for worker in workers {
        let (pairs, last) = worker.join().unwrap();
        assert!(pairs >= 20);
        assert_eq!(last, "error_draining");
    }
    assert_eq!(daemon.ended().code(), Some(0));
}

#[test]
fn a_wrong_transcript_fails() {
    let daemon = Daemon::start(&[]);
    let wrong = std::panic::catch_unwind(|| play(&daemon, "a> ping|_|_ \n a< error"));
    assert!(wrong.is_err());
}
