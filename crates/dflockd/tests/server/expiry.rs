//! Leases end on time: never early, and handed on without a sweep.

use crate::fewer;
use std::time::{Duration, Instant};
use testbed::dflockd::{Daemon, until};

/// Never early, and not with the next sweep, for which there is an option that does nothing any more. How soon is for the
/// engine's own tests.
#[test]
fn a_lease_passes_to_the_waiter_when_it_ends() {
    let daemon = Daemon::start(&["--lease-sweep-interval", "1000"]);
    let (mut holder, mut waiter) = (daemon.talk(), daemon.talk());
    let before = Instant::now();
    holder.take("k", "0 1");
    waiter.take("k", "600");
    assert!(before.elapsed() >= Duration::from_secs(1), "early: {:?}", before.elapsed());
}

/// `w` restarts the lease, though it began at the grant in the background.
#[test]
fn wait_restarts_the_lease() {
    let daemon = Daemon::start(&[]);
    let (mut holder, mut waiter) = (daemon.talk(), daemon.talk());
    let token = holder.take("k", "0");
    assert_eq!(waiter.ask("e", "k", "9"), "queued");
    assert_eq!(holder.ask("r", "k", &token), "ok");
    // Past the middle of the lease that runs since the grant.
    until("half of it is over", || {
        let stats = holder.ask("stats", "_", "_");
        (0..4).any(|left| stats.contains(&format!("\"lease_expires_in_s\":{left}.")))
    });
    let token = waiter.token("w", "k", "5");
    assert_eq!(holder.ask("l", "k", "5"), "timeout");
    assert_eq!(waiter.ask("r", "k", &token), "ok");
}

/// A server with nothing to do does nothing, however many leases run.
#[test]
fn held_keys_cost_no_work() {
    let daemon = Daemon::start(&["--max-locks", "200000"]);
    let mut talker = daemon.talk();
    talker.take_many((0..20_000 / fewer()).map(|key| format!("k{key}")), 3600);
    let work = || {
        let before = daemon.cpu_ticks();
        std::thread::sleep(Duration::from_secs(1));
        daemon.cpu_ticks() - before
    };
    // The best of several: what it had to do before may take a busy machine a while.
    assert!((0..5).any(|_| work() <= 5), "it works at rest");
}
