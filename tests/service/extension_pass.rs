//! PASS: a lock goes from one process to another and is never vacant.

use std::fs::OpenOptions;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use testbed::{Daemon, Ground, Holder, comes, flock_is_held, own};

use crate::wire::{BUSY, DONE, Wire};

const DENIED: &str = "550 : Permission denied.";

/// Whom the lock file names.
fn holder(ground: &Ground, device: &str) -> String {
    let path = ground.path("lock").join(format!("LCK..{device}"));
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

#[test]
fn a_passed_lock_belongs_to_the_receiver() {
    let daemon = Daemon::start(&[]);
    let (giver, receiver) = (Holder::new(), Holder::new());
    let mut client = daemon.on_tcp().greeted();
    assert_eq!(client.ask(&format!("lock ttyS1 {}", giver.pid())), DONE);
    assert_eq!(client.ask(&format!("pass ttyS1 {} {}", giver.pid(), receiver.pid())), DONE);
    assert_eq!(holder(&daemon.ground, "ttyS1"), receiver.pid().to_string());
    assert!(flock_is_held(&daemon, "LCK..ttyS1"));
    assert_eq!(client.ask(&format!("unlock ttyS1 {}", giver.pid())), BUSY);
    assert_eq!(client.ask(&format!("lock ttyS1 {}", own())), BUSY);
    // The giver's end is nothing to the lock, the receiver's is its end.
    drop(giver);
    assert_eq!(client.ask("noop"), DONE);
    assert_eq!(client.ask(&format!("lock ttyS1 {}", own())), BUSY);
    drop(receiver);
    assert!(comes(|| daemon.ground.locks().is_empty()), "removed");
}

/// Without a daemon.
#[test]
fn a_session_passes_a_lock() {
    let ground = Ground::new();
    let wire = Wire::greeted(&ground);
    let (giver, receiver) = (Holder::new(), Holder::new());
    assert_eq!(wire.ask(&format!("lock ttyS1 {}", giver.pid())), DONE);
    assert_eq!(wire.ask(&format!("pass ttyS1 {} {}", giver.pid(), receiver.pid())), DONE);
    assert_eq!(holder(&ground, "ttyS1"), receiver.pid().to_string());
}

/// Somebody who takes the name as soon as it is free never gets it.
#[test]
fn a_lock_is_never_vacant_while_it_is_passed() {
    let daemon = Daemon::start(&[]);
    let path = daemon.ground.path("lock/LCK..ttyS1");
    let mut client = daemon.on_unix().greeted();
    let mut pair = [Holder::new(), Holder::new()];
    assert_eq!(client.ask(&format!("lock ttyS1 {}", pair[0].pid())), DONE);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let witness = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if OpenOptions::new().write(true).create_new(true).open(&path).is_ok() {
                    return "it was vacant";
                }
            }
            "never vacant"
        });
        for _ in 0..300 {
            let line = format!("pass ttyS1 {} {}", pair[0].pid(), pair[1].pid());
            assert_eq!(client.ask(&line), DONE);
            pair.swap(0, 1);
        }
        over.store(true, Ordering::Relaxed);
        assert_eq!(witness.join().expect("a witness"), "never vacant");
    });
}

#[test]
#[ignore = "needs root: tests/run"]
fn only_the_holder_can_give_and_only_to_the_living() {
    let daemon = Daemon::start(&[]);
    let mut client = daemon.on_tcp().greeted();
    let (giver, receiver) = (Holder::new(), Holder::new());
    let (from, to) = (giver.pid(), receiver.pid());
    assert_eq!(client.ask(&format!("pass ttyS1 {from} {to}")), BUSY);
    assert_eq!(client.ask(&format!("lock ttyS1 {from}")), DONE);
    assert_eq!(client.ask(&format!("pass ttyS1 {to} {}", own())), BUSY);
    assert_eq!(client.ask(&format!("pass ttyS1 {from} 99999999")), DENIED);
    assert_eq!(client.ask(&format!("pass ttyS1 99999999 {from}")), BUSY);
    // Each of the two has to be the client's own.
    let mut nobody = daemon.on_tcp_by_another().greeted();
    assert_eq!(nobody.ask(&format!("pass ttyS1 {from} 99999999")), DENIED);
    assert_eq!(nobody.ask(&format!("pass ttyS1 99999999 {from}")), DENIED);
    assert_eq!(holder(&daemon.ground, "ttyS1"), from.to_string());
}

/// A process that holds `flock(2)` on a lock that the daemon does not keep open can only delay a pass.
#[test]
fn a_contended_file_is_tried_again() {
    let daemon = Daemon::start(&[]);
    let path = daemon.ground.path("lock/LCK..ttyS1");
    let receiver = Holder::new();
    std::fs::write(&path, format!("{:>10}\n", own())).expect("a lock");
    // Neither the giver nor the process that started it, which keep a lock without a record in this way.
    let mut stranger = Command::new("flock");
    let mut stranger =
        stranger.arg("--no-fork").arg(&path).args(["sleep", "1000"]).spawn().expect("flock");
    assert!(comes(|| flock_is_held(&daemon, "LCK..ttyS1")));
    let mut client = daemon.on_unix().greeted();
    let line = format!("pass ttyS1 {} {}", own(), receiver.pid());
    assert_eq!(client.ask(&line), BUSY);
    assert_eq!(holder(&daemon.ground, "ttyS1"), own().to_string());
    stranger.kill().expect("killed");
    stranger.wait().expect("waited for");
    assert_eq!(client.ask(&line), DONE);
    assert_eq!(holder(&daemon.ground, "ttyS1"), receiver.pid().to_string());
}
