//! Locks that readers share: by the command and by the library.

use crate::ask::another_make;
use crate::library::{client, seconds, settings, turn};
use crate::program::{LONG, assert_free, bare, dflock, run, shell, start};
use dflock::ClientError;
use rstest::rstest;
use std::process::Stdio;
use testbed::dflockd::Daemon;

/// Readers run side by side, and a writer waits until the last of them has ended. A reader that comes after the
/// writer waits for it.
#[rstest]
fn readers_run_side_by_side_and_a_writer_alone(
    #[values(&["k"], &["-k", "j", "-k", "k"])] keys: &[&str],
) {
    let daemon = Daemon::start(&[]);
    let words = [&["run", "--shared"], keys, &["--", "sh", "-c", "echo in; cat"]].concat();
    let readers = [0, 1].map(|_| {
        let reader = start(dflock(&daemon, &words).stdin(Stdio::piped()));
        reader.lines(1);
        reader
    });
    assert_eq!(run(&mut dflock(&daemon, &["run", "k", "-t", "0", "--", "true"])).code, 1);
    let words = [&["run", "-t", LONG], keys, &["--", "sh", "-c", "echo in; cat"]].concat();
    let mut writer = start(dflock(&daemon, &words).stdin(Stdio::piped()));
    daemon.until_stats("\"waiters\":1");
    let late = [&["run", "--shared", "-t", "0"], keys, &["--", "true"]].concat();
    assert_eq!(run(&mut dflock(&daemon, &late)).code, 1);
    for mut reader in readers {
        assert_eq!(writer.said(), "");
        reader.end_input();
        assert_eq!(reader.end().code, 0);
    }
    writer.lines(1);
    assert_eq!(run(&mut dflock(&daemon, &late)).code, 1);
    writer.end_input();
    assert_eq!(writer.end().code, 0);
    assert_eq!(run(&mut dflock(&daemon, &late)).code, 0);
    assert_free(&daemon);
}

#[test]
fn scripts_share_a_lock() {
    let daemon = Daemon::start(&["--auto-release-on-disconnect=false"]);
    let script = "set -e
        a=$(dflock acquire k --shared); b=$(dflock acquire k --shared)
        dflock acquire k --timeout 0 || echo code $?
        dflock renew k $a --ttl 7; dflock release k $a
        dflock acquire k --timeout 0 || echo code $?
        dflock release k $b; c=$(dflock acquire k --timeout 0)
        dflock acquire k --shared --timeout 0 || echo code $?
        dflock release k $c
        dflock acquire k --shared --limit 2 || echo code $?";
    let end = run(&mut shell(&daemon, script));
    assert_eq!((end.code, &*end.out), (0, "code 1\n7\ncode 1\ncode 1\ncode 64\n"), "{end:?}");
    assert_free(&daemon);
}

#[test]
fn the_library_shares_a_lock() {
    let daemon = Daemon::start(&[]);
    turn(async {
        let client = client(&daemon);
        let (shared, alone) = (client.shared("k").unwrap(), client.lock("k").unwrap());
        let first = shared.try_acquire().await.unwrap().unwrap();
        let dflock::Entry::Acquired(second) = shared.enqueue().await.unwrap() else { panic!() };
        assert!(second.fence().unwrap() > first.fence().unwrap());
        assert!(alone.try_acquire().await.unwrap().is_none());
        let dflock::Entry::Queued(writer) = alone.enqueue().await.unwrap() else { panic!() };
        let dflock::Entry::Queued(reader) = shared.enqueue().await.unwrap() else { panic!() };
        first.release().await.unwrap();
        second.release().await.unwrap();
        let writer = writer.wait(seconds(20)).await.unwrap().unwrap();
        writer.release().await.unwrap();
        reader.wait(seconds(20)).await.unwrap().unwrap().release().await.unwrap();
    });
    assert_free(&daemon);
}

/// A server that knows nothing but the words of the documents says `error`.
#[test]
fn a_server_without_shared_locks_is_told_of() {
    let server = another_make("error");
    let words = ["--server", &server, "run", "k", "--shared", "--", "echo", "it ran"];
    let end = run(&mut bare(&words));
    assert_eq!((end.code, &*end.out), (76, ""), "{end:?}");
    assert!(end.err.starts_with("dflock: the server refuses a shared lock"), "{end:?}");
    turn(async {
        let settings = settings(&server);
        let blocking = dflock::blocking::Client::new(settings.clone()).unwrap();
        let refused = blocking.shared("k").unwrap().try_acquire();
        assert!(matches!(refused, Err(ClientError::NotShared)));
        let claim = dflock::Client::new(settings).unwrap().shared("k").unwrap();
        assert!(matches!(claim.try_acquire().await, Err(ClientError::NotShared)));
        assert!(matches!(claim.enqueue().await, Err(ClientError::NotShared)));
    });
}
