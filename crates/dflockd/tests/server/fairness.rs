//! Delays that one client causes, or a pause of the server, cost no other client its lock or connection.

use crate::fewer;
use crate::hostile::need_files;
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};
use testbed::dflockd::{Daemon, until};

/// The server stands still for longer than a line may take, twice; what comes meanwhile counts. The second time it is
/// likely to be in the middle of what it does about the first.
#[test]
fn a_pause_of_the_server_disconnects_no_client() {
    // More than the kernel names in one go.
    const CLIENTS: usize = 3000;
    const PING: &[u8] = b"ping\n_\n_\n";
    need_files(4000);
    let daemon = Daemon::start(&["--read-timeout", "5"]);
    let clients = (0..CLIENTS).map(|_| {
        let mut client = daemon.talk();
        client.say(PING);
        client
    });
    let mut clients: Vec<_> = clients.collect();
    for client in &mut clients {
        assert_eq!(client.line(), "ok");
    }
    for _ in 0..2 {
        daemon.signal(Signal::SIGSTOP);
        for client in &mut clients {
            client.say(PING);
        }
        let start = Instant::now();
        until("longer than the read timeout", || start.elapsed() > Duration::from_millis(5500));
        daemon.signal(Signal::SIGCONT);
        let served = clients.iter_mut().filter_map(|client| (client.line() == "ok").then_some(()));
        assert_eq!(served.count(), CLIENTS);
    }
}

/// Holders of long leases ask seldom: what they sent while the server stood still is a renewal in
/// time, and the lock stays theirs.
#[test]
fn long_leases_are_renewed_over_a_pause_of_the_server() {
    let clients = 500 / fewer();
    need_files(1000);
    let daemon = Daemon::start(&["--read-timeout", "4"]);
    let mut holders = Vec::new();
    for number in 0..clients {
        let mut client = daemon.talk();
        client.say(format!("l\nkey-{number}\n1 600\n").as_bytes());
        let answer = client.line();
        let token = answer.split(' ').nth(1).expect("a token").to_owned();
        assert!(answer.ends_with(" 600"), "{answer}");
        holders.push((client, number, token));
    }
    daemon.signal(Signal::SIGSTOP);
    for (client, number, token) in &mut holders {
        client.say(format!("n\nkey-{number}\n{token} 600\n").as_bytes());
    }
    let start = Instant::now();
    until("longer than the read timeout", || start.elapsed() > Duration::from_millis(4500));
    daemon.signal(Signal::SIGCONT);
    for (client, _, _) in &mut holders {
        assert_eq!(client.line(), "ok 600");
    }
    let mut other = daemon.talk();
    for number in 0..clients {
        other.say(format!("l\nkey-{number}\n0 600\n").as_bytes());
        assert_eq!(other.line(), "timeout");
    }
}
