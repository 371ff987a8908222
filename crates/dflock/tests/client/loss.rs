//! `dflock run` when the lease is lost: the command is told, then killed, and is gone before
//! anybody else can have the lock.

use crate::ask::administered;
use crate::program::{LONG, Met, PATH, Running, apart, assert_free, bare, dflock, run, start};
use crate::proxy::Proxy;
use nix::sys::signal::Signal;
use rstest::rstest;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use testbed::dflockd::{Daemon, free_port, program, until};

/// A command that says its pid and token, and ends only when it must: TERM does not move it.
fn stubborn() -> String {
    format!("trap '' TERM; echo $$; echo $DFLOCK_TOKEN; exec sleep {LONG}")
}

/// A command that says its pid and that it was told to end, and then takes all the time there is.
pub(crate) fn dawdling() -> String {
    format!(
        "trap 'echo told' TERM; echo $$; echo $DFLOCK_TOKEN; while :; do sleep {LONG} & wait $!; done"
    )
}

pub(crate) fn held(daemon: &Daemon, options: &[&str], script: &str) -> (Running, Met) {
    let words = [&["run", "k"], options, &["--", "sh", "-c", script]].concat();
    let dflock = start(&mut dflock(daemon, &words));
    let command = dflock.command();
    (dflock, command)
}

/// However it is lost, the code says so, and nothing runs any more.
pub(crate) fn assert_stopped(dflock: Running, command: Met, why: &str) {
    let end = dflock.end();
    assert_eq!(end.code, 74, "{end:?}");
    assert!(end.err.contains("lease lost: ") && end.err.contains(why), "{end:?}");
    assert!(!command.lives());
}

const NOT_HELD: &str = "the server says the lease is over";
pub(crate) const UNREACHABLE: &str = "the server could not be reached";

#[rstest]
#[case::it_ends_when_it_is_told("trap 'echo told; exit 0' TERM", &[])]
#[case::it_ignores_its_signal("trap '' TERM", &["--grace", "100"])]
#[case::it_has_no_time("trap '' TERM", &["--grace", "0"])]
fn a_command_is_stopped_when_another_client_releases_its_lock(
    #[case] trap: &str,
    #[case] options: &[&str],
) {
    let daemon = Daemon::start(&[]);
    let script = format!("{trap}; echo $$; echo $DFLOCK_TOKEN; sleep {LONG} & wait $!");
    let (dflock_, command) = held(&daemon, &[&["--ttl", "9"], options].concat(), &script);
    let token = dflock_.lines(2)[1].clone();
    assert_eq!(run(&mut dflock(&daemon, &["release", "k", &token])).code, 0);
    if options.is_empty() {
        until("the command is told", || dflock_.said().contains("told"));
    }
    assert_stopped(dflock_, command, NOT_HELD);
    assert_free(&daemon);
}

/// A program that changes its user, as sudo does: its processes may not be signalled.
#[rstest]
#[case::the_command("exec", "process ")]
#[case::a_child_of_it("", "process group ")]
#[ignore = "needs root: tests/run"]
fn a_command_that_cannot_be_ended_is_named(#[case] how: &str, #[case] what: &str) {
    let daemon = Daemon::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for (name, from, mode) in
        [("sudo", "/usr/bin/setpriv", 0o4755), ("dflock", env!("CARGO_BIN_EXE_dflock"), 0o755)]
    {
        fs::copy(from, dir.path().join(name)).unwrap();
        fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let root = format!(
        "./sudo --reuid=0 --regid=0 --clear-groups sh -c 'echo $$; exec sleep {LONG} >/dev/null 2>&1'"
    );
    let script = format!("echo $$; echo $DFLOCK_TOKEN; {how} {root}; true");
    let words = ["./dflock", "run", "k", "--grace", "0", "--ttl", "9", "--", "sh", "-c", &script];
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).args(words);
    command.env_clear().env("PATH", PATH).env("DFLOCK_SERVERS", daemon.address.to_string());
    let dflock_ = start(command.current_dir(dir.path()).stdin(Stdio::null()));
    let lines = dflock_.lines(3);
    assert_eq!(run(&mut dflock(&daemon, &["release", "k", &lines[1]])).code, 0);
    let end = dflock_.end();
    let runs_on: i32 = lines[2].parse().unwrap();
    let killed = nix::sys::signal::kill(nix::unistd::Pid::from_raw(runs_on), Signal::SIGKILL);
    assert_eq!((end.code, killed), (74, Ok(())), "{end:?}");
    let said = format!("dflock: {what}{} cannot be ended and runs on without the lock; ", lines[0]);
    assert!(end.err.contains(NOT_HELD) && end.err.contains(&said), "{end:?}");
    assert!(end.err.contains("`sudo dflock run ...`"), "{end:?}");
}

/// By an administrator. The next renewal would be minutes later.
#[rstest]
#[case::of_all_holds_of_a_key(Taken::ByForce, &[], NOT_HELD)]
#[case::that_a_server_would_keep(Taken::ByForce, &["--auto-release-on-disconnect=false"], NOT_HELD)]
#[case::of_a_second_key(Taken::ByForceBesides, &[], "lease lost: j: ")]
#[case::of_the_connection(Taken::WithItsConnection, &[], NOT_HELD)]
fn a_command_is_stopped_at_once_when_its_lock_is_taken_away(
    #[case] taken: Taken,
    #[case] options: &[&str],
    #[case] why: &str,
) {
    let dir = tempfile::tempdir().unwrap();
    let options = [options, &["--read-timeout", LONG]].concat();
    let (daemon, port) = administered(dir.path(), &options);
    let keys: &[&str] = if taken == Taken::ByForceBesides { &["--key", "j"] } else { &[] };
    let words = [keys, &["--ttl", LONG, "--read-timeout", LONG]].concat();
    let (dflock_, command) = held(&daemon, &words, &format!("echo $$; exec sleep {LONG}"));
    let admin = |words: &[&str]| {
        let mut command = dflock(&daemon, &[words, &["--http-port", &port]].concat());
        run(command.env("DFLOCK_ADMIN_TOKEN", "open sesame"))
    };
    let end = match taken {
        Taken::ByForce => admin(&["force-release", "k"]),
        Taken::ByForceBesides => admin(&["force-release", "j"]),
        Taken::WithItsConnection => admin(&["kick", &owner(&daemon, "k")]),
    };
    assert_eq!(end.code, 0, "{end:?}");
    assert_stopped(dflock_, command, why);
    assert_free(&daemon);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    ByForce,
    ByForceBesides,
    WithItsConnection,
}

/// The number of the connection that holds a key.
pub(crate) fn owner(daemon: &Daemon, key: &str) -> String {
    let stats: serde_json::Value =
        serde_json::from_str(daemon.stats().strip_prefix("ok ").unwrap()).unwrap();
    let locks = stats["locks"].as_array().unwrap();
    let row = locks.iter().find(|row| row["key"] == key).unwrap();
    row["owner_conn_id"].to_string()
}

/// Also what the command has started itself.
#[test]
fn the_whole_group_goes() {
    let daemon = Daemon::run(program().args(["--port", &free_port().to_string()]));
    let script = format!("trap '' TERM; sleep {LONG} & echo $!; sh -c 'sleep {LONG}; :'");
    let (dflock_, grandchild) = held(&daemon, &["--ttl", "9", "--grace", "0"], &script);
    assert!(grandchild.lives());
    daemon.signal(Signal::SIGKILL);
    assert_stopped(dflock_, grandchild, UNREACHABLE);
}

/// The lease would last for longer, and the server is there again when the command has ended: nobody waits for a lock that
/// nobody uses.
#[test]
fn a_lock_that_was_given_up_early_is_released() {
    let daemon = Daemon::start(&["--auto-release-on-disconnect=false"]);
    let mut wire = Proxy::to(daemon.address);
    let dir = tempfile::tempdir().unwrap();
    let over = dir.path().join("over");
    let wait = format!("until [ -e {} ]; do sleep 0.05; done", over.display());
    let script = format!("trap 'echo told' TERM; echo $$; echo $DFLOCK_TOKEN; {wait}");
    let words = ["run", "k", "--ttl", LONG, "--reclaim", "1", "--grace", LONG, "--", "sh", "-c"];
    let words = [&words[..], &[&script]].concat();
    let dflock = start(bare(&words).env("DFLOCK_SERVERS", wire.address()));
    let command = dflock.command();
    wire.kill();
    until("the command is told", || dflock.said().contains("told"));
    assert!(daemon.stats().contains("\"key\":\"k\""));
    wire.revive();
    fs::write(over, "").unwrap();
    assert_stopped(dflock, command, UNREACHABLE);
    assert!(daemon.stats().contains("\"locks\":[]"));
}

/// A network that swallows everything. The server hears nothing, closes the connection when its read
/// timeout is over, and gives the lock away although the lease would last: the command is gone by
/// then.
#[test]
fn the_network_is_gone() {
    let daemon = Daemon::start(&["--read-timeout", "14"]);
    let wire = Proxy::to(daemon.address);
    let script = dawdling();
    // Some seconds sooner than the server's: on a machine that does everything else first, a killed command may
    // take longer to go than the fifth of a second that is kept for it.
    let words = ["run", "k", "--ttl", LONG, "--read-timeout", "10", "--", "sh", "-c", &script];
    let dflock = start(bare(&words).env("DFLOCK_SERVERS", wire.address()));
    let command = dflock.command();
    let mut waiter = daemon.talk();
    waiter.say(b"l\nk\n1000\n");
    daemon.until_stats("\"waiters\":1");
    wire.cut();
    assert!(waiter.line().starts_with("ok "));
    assert!(!command.lives(), "two have the lock");
    assert_stopped(dflock, command, UNREACHABLE);
}

/// The wire itself is taken away, under both: the server finds out that the holder is silent, by its
/// read timeout, and that the waiter is gone, by the kernel; and so do these of the server.
#[test]
#[ignore = "needs root: tests/run"]
fn the_machine_is_gone() {
    let output = apart(include_str!("gone.sh"), &[]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "the lock is free\nnobody waits\nholder 74\nwaiter 69\n", "{output:?}");
}

/// If dflock itself is suspended for longer than the lease, the command is stopped afterwards.
#[test]
fn a_command_is_stopped_after_dflock_was_suspended_beyond_the_lease() {
    let daemon = Daemon::start(&[]);
    let (dflock, command) = held(&daemon, &["--ttl", "1"], &stubborn());
    dflock.signal(Signal::SIGSTOP);
    assert_free(&daemon);
    dflock.signal(Signal::SIGCONT);
    assert_stopped(dflock, command, "lease lost");
}
