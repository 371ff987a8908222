//! Delays that one client causes, or a pause of the server, cost no other client its lock or connection.

use nix::sys::signal::Signal;
use std::time::{Duration, Instant};
use testbed::dflockd::{Daemon, is_on_etcd, until};

/// How long a client may be silent, in seconds, and how many clients are not silent for so long until all have come. A
/// standby's link to its leader, and a call to etcd, outlive a pause of less than six seconds.
fn silence() -> (u64, usize) {
    if is_on_etcd() { (4, 60) } else { (9, 1500) }
}

fn pause(daemon: &Daemon, seconds: u64) {
    let start = Instant::now();
    let enough = Duration::from_millis(seconds * 1000 + 500);
    until("longer than the read timeout", || start.elapsed() > enough);
    daemon.signal(Signal::SIGCONT);
}

/// The server stands still for longer than a line may take, twice; what comes meanwhile counts. The second time it is
/// likely to be in the middle of what it does about the first.
#[test]
fn a_pause_of_the_server_disconnects_no_client() {
    const PING: &[u8] = b"ping\n_\n_\n";
    // In memory, more than the kernel names in one go.
    let (seconds, count) = silence();
    let daemon = Daemon::start(&["--read-timeout", &seconds.to_string()]);
    let clients = (0..count).map(|_| {
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
        pause(&daemon, seconds);
        let served = clients.iter_mut().filter_map(|client| (client.line() == "ok").then_some(()));
        assert_eq!(served.count(), count);
    }
}
