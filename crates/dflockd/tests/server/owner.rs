//! The owner of a hold: clients that come back on another connection, and clients that renew once and leave.

use testbed::dflockd::Daemon;

/// The old connection dies after the client came back: the lock stays with the client.
#[test]
fn a_client_that_came_back_keeps_its_lock() {
    let daemon = Daemon::start(&[]);
    let mut old = daemon.talk();
    let token = old.take("k", "0 60");
    let mut new = daemon.talk();
    assert_eq!(new.ask("n", "k", &format!("{token} 60")), "ok 60");
    let mut rival = daemon.talk();
    rival.say(b"l\nk\n600\n");
    daemon.until_stats("\"waiters\":1");
    drop(old);
    daemon.until_stats("\"owner_conn_id\":2");
    assert_eq!(new.ask("n", "k", &format!("{token} 60")), "ok 60");
    drop(new);
    assert!(rival.line().starts_with("ok "));
}

/// A client that renews once and leaves takes nothing with it.
#[test]
fn a_client_that_renewed_once_releases_nothing_when_it_leaves() {
    let daemon = Daemon::start(&[]);
    let mut owner = daemon.talk();
    let token = owner.take("k", "0 60");
    let mut passer = daemon.talk();
    assert_eq!(passer.ask("n", "k", &format!("{token} 60")), "ok 60");
    drop(passer);
    daemon.until_stats("\"connections\":2,");
    assert_eq!(owner.ask("n", "k", &format!("{token} 60")), "ok 60");
    drop(owner);
    daemon.until_stats("\"locks\":[]");
}

/// Between the old connection and the new one nobody gets the lock; without a new one somebody does.
#[test]
fn the_grace_covers_a_reconnect() {
    let daemon = Daemon::start(&["--disconnect-grace", "6"]);
    let mut first = daemon.talk();
    let token = first.take("k", "0 60");
    let mut rival = daemon.talk();
    rival.say(b"l\nk\n600\n");
    daemon.until_stats("\"waiters\":1");
    drop(first);
    daemon.until_stats("\"connections\":2,");
    let mut second = daemon.talk();
    assert_eq!(second.ask("n", "k", &format!("{token} 60")), "ok 60");
    daemon.until_stats("\"waiters\":1");
    drop(second);
    assert!(rival.line().starts_with("ok "));
}
