//! Delays that one client causes, or a pause of the server, cost no other client its lock or connection.

use nix::sys::signal::Signal;
use std::time::{Duration, Instant};
use testbed::dflockd::{Daemon, is_on_etcd, until};

/// How long a client may be silent, in seconds, as often as a busy machine takes longer until all have come; and how many
/// clients there are. A standby's link to its leader, and a call to etcd, outlive a pause of less than six seconds.
fn silences() -> (&'static [u64], usize) {
    if is_on_etcd() { (&[4; 3], 60) } else { (&[9, 30], 1500) }
}

/// Returns when it goes on.
fn pause(daemon: &Daemon, seconds: u64) -> Instant {
    let start = Instant::now();
    let enough = Duration::from_millis(seconds * 1000 + 500);
    until("longer than the read timeout", || start.elapsed() > enough);
    let end = Instant::now();
    daemon.signal(Signal::SIGCONT);
    end
}

/// The server stands still for longer than a line may take, twice; what comes meanwhile counts. The second time it is
/// likely to be in the middle of what it does about the first.
#[test]
fn a_pause_of_the_server_disconnects_no_client() {
    // In memory, more than the kernel names in one go.
    let (silences, count) = silences();
    let told = silences.iter().find_map(|&seconds| two_pauses(seconds, count));
    assert_eq!(told, Some(()), "the clients were silent for too long, each time");
}

/// Nothing if clients were silent for too long before the server stood still.
fn two_pauses(seconds: u64, count: usize) -> Option<()> {
    const PING: &[u8] = b"ping\n_\n_\n";
    let daemon = Daemon::start(&["--read-timeout", &seconds.to_string()]);
    let mut begun = Instant::now();
    let clients = (0..count).map(|_| {
        let mut client = daemon.talk();
        client.say(PING);
        client
    });
    let mut clients: Vec<_> = clients.collect();
    for client in &mut clients {
        if client.line() != "ok" {
            assert!(begun.elapsed() >= Duration::from_secs(seconds));
            return None;
        }
    }
    for _ in 0..2 {
        daemon.signal(Signal::SIGSTOP);
        if begun.elapsed() >= Duration::from_secs(seconds) {
            return None;
        }
        for client in &mut clients {
            client.say(PING);
        }
        begun = pause(&daemon, seconds);
        let served = clients.iter_mut().filter_map(|client| (client.line() == "ok").then_some(()));
        assert_eq!(served.count(), count);
    }
    Some(())
}
