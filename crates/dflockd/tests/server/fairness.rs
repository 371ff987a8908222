//! What is nobody's fault is nobody's loss.

use crate::daemon::{Daemon, until};
use crate::hostile::need_files;
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

/// The server stood still for longer than a line may take; what came meanwhile counts.
#[test]
fn nobody_is_hung_up_for_a_pause_of_the_server() {
    // More than the kernel names in one go.
    const CLIENTS: usize = 3000;
    need_files(4000);
    let daemon = Daemon::start(&["--read-timeout", "1"]);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| daemon.talk()).collect();
    for client in &mut clients {
        client.say(b"ping\n_\n_\n");
    }
    for client in &mut clients {
        assert_eq!(client.line(), "ok");
    }
    daemon.signal(Signal::SIGSTOP);
    for client in &mut clients {
        client.say(b"ping\n_\n_\n");
    }
    let start = Instant::now();
    until("longer than the read timeout", || start.elapsed() > Duration::from_millis(1500));
    daemon.signal(Signal::SIGCONT);
    let served = clients.iter_mut().filter_map(|client| (client.line() == "ok").then_some(()));
    assert_eq!(served.count(), CLIENTS);
}
