//! Leases end on time: never early, and handed on without a sweep.

use crate::FEWER;
use crate::daemon::Daemon;
use std::time::{Duration, Instant};

#[test]
fn a_lease_passes_to_the_waiter_when_it_ends() {
    let daemon = Daemon::start(&[]);
    let (mut holder, mut waiter) = (daemon.talk(), daemon.talk());
    holder.take("k", "0 1");
    let granted = Instant::now();
    waiter.say(b"l\nk\n20 5\n");
    assert!(waiter.line().starts_with("ok "));
    let elapsed = granted.elapsed();
    // The clock above starts after the grant, so a little less than a second is right.
    assert!(elapsed > Duration::from_millis(900), "early: {elapsed:?}");
    // The goal is 10 ms, which the wheel's own tests prove; a busy machine needs more here.
    assert!(elapsed < Duration::from_millis(1500), "late: {elapsed:?}");
}

#[test]
fn a_renewed_lease_does_not_end() {
    let daemon = Daemon::start(&[]);
    let (mut holder, mut other) = (daemon.talk(), daemon.talk());
    let token = holder.take("k", "0 1");
    assert_eq!(holder.ask("n", "k", &format!("{token} 60")), "ok 60");
    assert_eq!(other.ask("l", "k", "2"), "timeout");
    assert_eq!(holder.ask("r", "k", &token), "ok");
}

/// `w` restarts the lease, though it began at the grant in the background.
#[test]
fn wait_restarts_the_lease() {
    let daemon = Daemon::start(&[]);
    let (mut holder, mut waiter) = (daemon.talk(), daemon.talk());
    let token = holder.take("k", "0");
    assert_eq!(waiter.ask("e", "k", "2"), "queued");
    assert_eq!(holder.ask("r", "k", &token), "ok");
    // Past the middle of the lease that runs since the grant.
    daemon.until_stats("\"lease_expires_in_s\":0.");
    let token = waiter.ask("w", "k", "5").split(' ').nth(1).unwrap().to_owned();
    assert_eq!(holder.ask("l", "k", "1"), "timeout");
    assert_eq!(waiter.ask("r", "k", &token), "ok");
}

#[test]
fn an_ended_wait_leaves_no_trace() {
    let daemon = Daemon::start(&[]);
    let (mut holder, mut waiter) = (daemon.talk(), daemon.talk());
    let token = holder.take("k", "0");
    let start = Instant::now();
    assert_eq!(waiter.ask("l", "k", "1"), "timeout");
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert_eq!(holder.ask("r", "k", &token), "ok");
    daemon.until_stats("\"locks\":[],");
}

/// A server with nothing to do does nothing, however many leases run.
#[test]
fn held_keys_cost_no_work() {
    let daemon = Daemon::start(&["--max-locks", "200000"]);
    let mut talker = daemon.talk();
    for round in 0..20 / FEWER {
        let mut frames = String::new();
        for key in 0..1000 {
            frames.push_str(&format!("l\nk{round}-{key}\n0 3600\n"));
        }
        talker.say(frames.as_bytes());
        for _ in 0..1000 {
            assert!(talker.line().starts_with("ok "));
        }
    }
    let before = daemon.cpu_ticks();
    std::thread::sleep(Duration::from_secs(1));
    let used = daemon.cpu_ticks() - before;
    assert!(used <= 5, "{used} ticks in a second of rest");
}
