//! A client that blocks its runtime, and a server that stands still.

use crate::library::{client, seconds, turn};
use crate::loss::{UNREACHABLE, assert_stopped, dawdling, held};
use crate::program::assert_free;
use nix::sys::signal::Signal;
use rstest::rstest;
use testbed::dflockd::{Daemon, Talker, is_on_etcd, until};

/// A holder that blocks its thread renews nothing; it finds out as soon as it looks again.
#[test]
fn a_holder_that_blocks_the_runtime_loses_its_lease() {
    let daemon = Daemon::start(&[]);
    turn(async {
        let lease = client(&daemon)
            .lock("k")
            .unwrap()
            .ttl(seconds(1))
            .unwrap()
            .acquire(seconds(0))
            .await
            .unwrap()
            .unwrap();
        assert_free(&daemon);
        lease.lost().await;
        assert!(lease.held_until().is_none());
    });
}

/// The next in line has its turn. Servers that share their locks take one for dead that stands still
/// for longer than five seconds, and its line with it: then it is told so, and comes again.
fn assert_turn(daemon: &Daemon, waiter: &mut Talker) {
    let mut reply = waiter.line();
    until("it is served", || {
        let is_sent_away = is_on_etcd() && reply == "error_draining";
        if is_sent_away {
            reply = daemon.talk().ask("l", "k", "1000");
        }
        !is_sent_away
    });
    assert!(reply.starts_with("ok "), "{reply}");
}

/// A server that stands still cannot renew: the command is gone before the lease ends. It must not
/// be there any more either when the server wakes up while the command still takes its time.
#[rstest]
#[case::wakes_up_late(false)]
#[case::wakes_up_while_the_command_is_told(true)]
fn the_server_stands_still(#[case] wakes_early: bool) {
    let daemon = Daemon::start(&[]);
    let (dflock, command) = held(&daemon, &["--ttl", "8"], &dawdling());
    let mut waiter = daemon.talk();
    waiter.say(b"l\nk\n1000\n");
    daemon.until_stats("\"waiters\":1");
    daemon.signal(Signal::SIGSTOP);
    until("the command is told", || dflock.said().contains("told"));
    if wakes_early {
        daemon.signal(Signal::SIGCONT);
        assert_turn(&daemon, &mut waiter);
        assert!(!command.lives(), "two have the lock");
        assert_stopped(dflock, command, UNREACHABLE);
    } else {
        assert_stopped(dflock, command, UNREACHABLE);
        daemon.signal(Signal::SIGCONT);
        assert_turn(&daemon, &mut waiter);
    }
}
