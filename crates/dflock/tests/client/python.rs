//! The Python clients that people use, of both generations of the protocol, as they are published,
//! against the real server. What they do is in `python/conversation.py`.

use crate::program::{PATH, Restarting, Running, assert_free, start};
use nix::sys::signal::Signal;
use rstest::rstest;
use std::process::{Command, Stdio};
use testbed::dflockd::{Daemon, pem, until};

const FIRST: &str = "1.0.0";
const LAST_OF_V1: &str = "1.9.0";
const NEWEST: &str = "2.1.1";

/// Python with a client, in a scene.
fn scene(version: &str, kind: &str, name: &str, daemons: &[&Daemon]) -> Command {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/client/python/conversation.py");
    let mut command = Command::new("/usr/bin/python3");
    command
        .env_clear()
        .env("PATH", PATH)
        .env("PYTHONPATH", testbed::peer(&format!("dflockd-client-{version}"), ""));
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("LC_ALL", "C.UTF-8");
    command.args(["-W", "error", script, kind, name]);
    command.args(daemons.iter().map(|daemon| daemon.address.to_string()));
    command.stdin(Stdio::piped());
    command
}

fn assert_played(running: Running) {
    let end = running.end();
    assert_eq!((end.code, &*end.err), (0, ""), "{end:?}");
}

/// Each scene with every version that has its calls. In `low_level`, each status of the second protocol document is the
/// exception that belongs to it.
#[rstest]
#[case(&[FIRST, LAST_OF_V1, NEWEST], "locks", &[])]
#[case(&[FIRST, LAST_OF_V1, NEWEST], "two_phases", &[])]
#[case(&[FIRST, LAST_OF_V1, NEWEST], "renewal", &[])]
#[case(&[LAST_OF_V1, NEWEST], "semaphores", &[])]
#[case(&[LAST_OF_V1, NEWEST], "secrets", &["--auth-token", "sesame"])]
#[case(&[LAST_OF_V1, NEWEST], "secrecy", &["--tls-cert", &pem("cert.pem"), "--tls-key", &pem("key.pem")])]
#[case(&[NEWEST], "low_level", &["--max-locks", "20", "--max-waiters", "1"])]
#[ignore = "needs programs: tests/run"]
fn a_scene_is_played(
    #[case] versions: &[&str],
    #[case] name: &str,
    #[case] options: &[&str],
    #[values("sync", "async")] kind: &str,
) {
    // At once: each has a server of its own, and most of the time is that of leases.
    std::thread::scope(|scope| {
        for version in versions {
            scope.spawn(|| {
                let daemon = Daemon::start(options);
                let mut command = scene(version, kind, name, &[&daemon]);
                command.env("SECRET", "sesame").env("AUTHORITY", pem("ca.pem"));
                assert_played(start(&mut command));
                if !["secrets", "secrecy"].contains(&name) {
                    assert_free(&daemon);
                }
            });
        }
    });
}

#[rstest]
#[ignore = "needs programs: tests/run"]
fn first_come_first_served(
    #[values(FIRST, LAST_OF_V1, NEWEST)] version: &str,
    #[values("sync", "async")] kind: &str,
) {
    let daemon = Daemon::start(&[]);
    let mut playing = start(&mut scene(version, kind, "waiting_in_line", &[&daemon]));
    for count in 1..=4 {
        assert_eq!(playing.lines(count)[count - 1], format!("waiters {count}"));
        daemon.until_stats(&format!("\"waiters\":{count}"));
        playing.type_in(b"go on\n");
    }
    assert_played(playing);
    assert_free(&daemon);
}

#[rstest]
#[ignore = "needs programs: tests/run"]
fn no_increment_is_lost(
    #[values(FIRST, LAST_OF_V1, NEWEST)] version: &str,
    #[values("sync", "async")] kind: &str,
) {
    let daemon = Daemon::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let counter = dir.path().join("counter");
    std::fs::write(&counter, "0").unwrap();
    let mut command = scene(version, kind, "contention", &[&daemon]);
    assert_played(start(command.env("COUNTER", &counter)));
    assert_free(&daemon);
}

/// All clients look for a key on the same one of several servers; see `reach` for `dflock`.
#[rstest]
#[ignore = "needs programs: tests/run"]
fn keys_live_where_dflock_looks_for_them(
    #[values(FIRST, LAST_OF_V1, NEWEST)] version: &str,
    #[values("sync", "async")] kind: &str,
) {
    let daemons: Vec<Daemon> = (0..3).map(|_| Daemon::start(&[])).collect();
    let all: Vec<&Daemon> = daemons.iter().collect();
    let mut playing = start(&mut scene(version, kind, "shards", &all));
    playing.lines(1);
    for key in ["my-job", "a", "123456789", "schlüssel"] {
        let index = dflock::shard(key.as_bytes(), 3).unwrap();
        let held = format!("\"key\":\"{key}\"");
        let places: Vec<bool> = daemons.iter().map(|it| it.stats().contains(&held)).collect();
        let expected: Vec<bool> = (0..3).map(|it| it == index).collect();
        assert_eq!(places, expected, "{key}");
    }
    playing.type_in(b"go on\n");
    assert_played(playing);
}

#[rstest]
#[ignore = "needs programs: tests/run"]
fn draining(#[values("sync", "async")] kind: &str) {
    let mut daemon = Daemon::start(&[]);
    let mut playing = start(&mut scene(NEWEST, kind, "draining", &[&daemon]));
    playing.lines(1);
    daemon.until_stats("\"waiters\":1");
    daemon.signal(Signal::SIGTERM);
    playing.type_in(b"go on\n");
    assert_played(playing);
    assert!(daemon.ended().success());
}

/// The server dies under a holder and comes again: nobody else gets the lock, and its token works.
#[rstest]
#[ignore = "needs programs: tests/run"]
fn a_restart_keeps_its_lock(#[values("sync", "async")] kind: &str) {
    let mut server = Restarting::start(&[]);
    let mut playing = start(&mut scene(NEWEST, kind, "restart", &[&server.daemon]));
    playing.lines(1);
    server.end(Signal::SIGKILL);
    server.start_again();
    playing.type_in(b"go on\n");
    assert_played(playing);
}

/// A program that is killed loses its lock, and its place, at once.
#[rstest]
#[ignore = "needs programs: tests/run"]
fn a_killed_program_holds_nothing(#[values("sync", "async")] kind: &str) {
    let daemon = Daemon::start(&[]);
    let mut playing = start(&mut scene(NEWEST, kind, "waiting_in_line", &[&daemon]));
    playing.lines(1);
    daemon.until_stats("\"waiters\":1");
    playing.signal(Signal::SIGKILL);
    until("the end", || playing.has_ended());
    assert_free(&daemon);
}
