//! `dflock run` without faults: codes, environment, input, signals, the line of waiters.

use crate::library::KEEPS;
use crate::program::{LONG, assert_free, bare, dflock, patient, run, shell, start};
use nix::sys::signal::Signal;
use rstest::rstest;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use testbed::dflockd::{Daemon, until};

#[rstest]
#[case::fine("exit 0", 0)]
#[case::failed("exit 1", 1)]
#[case::like_one_of_ours("exit 75", 75)]
#[case::largest("exit 255", 255)]
#[case::by_a_signal("kill -TERM $$", 128 + 15)]
#[case::by_the_last_resort("kill -KILL $$", 128 + 9)]
fn the_code_is_that_of_the_command(#[case] script: &str, #[case] code: i32) {
    let daemon = Daemon::start(&[]);
    let end = run(&mut dflock(&daemon, &["run", "k", "--", "sh", "-c", script]));
    assert_eq!((end.code, &*end.out, &*end.err), (code, "", ""));
    assert_free(&daemon);
}

#[test]
fn a_command_that_cannot_be_run_has_the_codes_of_shells() {
    let daemon = Daemon::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("plain");
    fs::write(&plain, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
    let (plain, dir) = (plain.to_str().unwrap(), dir.path().to_str().unwrap());
    for (command, code) in [("no-such-command", 127), ("/no/such", 127), (plain, 126), (dir, 126)] {
        let end = run(&mut dflock(&daemon, &["run", "k", "--", command]));
        assert_eq!((end.code, &*end.out), (code, ""), "{end:?}");
        assert!(end.err.starts_with(&format!("dflock: {command}: ")), "{end:?}");
        assert_free(&daemon);
    }
}

/// What a resource sees that checks fences: the number grows with every grant to any client, and across restarts of
/// a server that keeps nothing.
#[test]
fn the_command_learns_key_token_and_fence() {
    let mut fences: Vec<u64> = Vec::new();
    for _ in 0..2 {
        let daemon = Daemon::start(&[]);
        for _ in 0..2 {
            let script = "echo $DFLOCK_KEY $DFLOCK_TOKEN $DFLOCK_FENCE; dflock renew $DFLOCK_KEY";
            let line = format!("exec dflock run my-job -- sh -c '{script}'");
            let end = run(&mut shell(&daemon, &line));
            assert_eq!(end.code, 0, "{end:?}");
            let words: Vec<&str> = end.out.split_whitespace().collect();
            let [key, token, fence, renewed] = words.as_slice() else { panic!("{end:?}") };
            assert_eq!((*key, token.len(), *renewed), ("my-job", 32, "33"));
            let fence = fence.parse().unwrap();
            assert_eq!(u64::from_str_radix(&token[..16], 16).unwrap(), fence);
            fences.push(fence);
        }
    }
    assert!(fences.windows(2).all(|pair| pair[0] < pair[1]), "{fences:?}");
}

/// A run inside a run sees what it holds itself.
#[rstest]
#[case::two_slots(
    "gpu --limit 2",
    "gpu --limit 2",
    "echo [$DFLOCK_SLOT] [$DFLOCK_SLOTS] [$DFLOCK_ITEM]",
    "[1] [1] []\n"
)]
#[case::the_only_slot(
    "gpu --limit 2",
    "one --limit 1",
    "echo [$DFLOCK_SLOT] [$DFLOCK_SLOTS]",
    "[0] [0]\n"
)]
#[case::a_lock("gpu --one-of a,b", "k", "echo [$DFLOCK_SLOT$DFLOCK_SLOTS$DFLOCK_ITEM]", "[]\n")]
#[case::readers(
    "gpu --one-of a,b",
    "k --shared",
    "echo [$DFLOCK_SLOT$DFLOCK_SLOTS$DFLOCK_ITEM]",
    "[]\n"
)]
#[case::several(
    "gpu --limit 3",
    "--key gpu --key tpu --limit 3",
    "echo [$DFLOCK_SLOT] [$DFLOCK_SLOTS]",
    "[] [1 0]\n"
)]
#[case::an_item(
    "board --one-of b1,b2,b3",
    "board --one-of b1,b2,b3",
    "echo $DFLOCK_ITEM $DFLOCK_SLOT",
    "b2 1\n"
)]
#[case::the_only_item(
    "gpu --limit 3",
    "board --one-of b1",
    "echo $DFLOCK_ITEM $DFLOCK_SLOT",
    "b1 0\n"
)]
fn the_command_learns_its_slot(
    #[case] outer: &str,
    #[case] inner: &str,
    #[case] script: &str,
    #[case] said: &str,
) {
    let daemon = Daemon::start(&[]);
    let line = format!("dflock run {outer} -- dflock run {inner} -- sh -c '{script}'");
    let end = run(&mut shell(&daemon, &line));
    assert_eq!((end.code, &*end.out, &*end.err), (0, said, ""), "{end:?}");
    assert_free(&daemon);
}

/// The server knows slots, and no items: other items of the same number are not noticed.
#[test]
fn the_number_of_items_is_all_that_can_be_compared() {
    let daemon = Daemon::start(&[]);
    let line = "dflock run board --one-of b1,b2 -- dflock run board --one-of b3,b1 -- \
                sh -c 'echo $DFLOCK_ITEM'";
    let end = run(&mut shell(&daemon, line));
    assert_eq!((end.code, &*end.out, &*end.err), (0, "b1\n", ""), "{end:?}");
}

#[rstest]
#[case::more("b1,b2", "than the 2 items of --one-of")]
#[case::fewer("b1,b2,b3,b4", "than the 4 items of --one-of")]
fn items_that_do_not_fit_the_limit_are_refused(#[case] items: &str, #[case] said: &str) {
    let daemon = Daemon::start(&[]);
    let line =
        format!("dflock run board --limit 3 -- dflock run board --one-of {items} -- echo ran");
    let end = run(&mut shell(&daemon, &line));
    assert_eq!((end.code, &*end.out), (64, ""), "{end:?}");
    assert!(end.err.contains(said), "{end:?}");
    let line = line.replace("-- dflock", "-- dflock --json");
    let end = run(&mut shell(&daemon, &line));
    assert!(end.code == 64 && end.out.contains("\"error_limit_mismatch\""), "{end:?}");
}

#[rstest]
#[case::twice(&["--one-of", "b1,b2,b1"], "b1 is named twice")]
#[case::empty(&["--one-of", "b1,,b2"], "an item is empty")]
#[case::nothing(&["--one-of", ""], "an item is empty")]
#[case::words(&["--one-of", "b1 b2"], "write commas between items")]
#[case::lines(&["--one-of", "b1\nb2\n"], "write commas between items")]
#[case::with_a_limit(&["--one-of", "b1,b2", "--limit", "2"], "cannot be used with")]
#[case::shared(&["--one-of", "b1,b2", "--shared"], "cannot be used with")]
#[case::several_keys(&["--one-of", "b1,b2", "--key", "k"], "cannot be used with")]
fn some_items_cannot_be(#[case] options: &[&str], #[case] said: &str) {
    let daemon = Daemon::start(&[]);
    let words = [&["run", "board"], options, &["--", "true"]].concat();
    let end = run(&mut dflock(&daemon, &words));
    assert_eq!((end.code, &*end.out), (64, ""), "{end:?}");
    assert!(end.err.contains(said), "{end:?}");
}

#[test]
fn input_and_both_outputs_are_those_of_the_command() {
    let daemon = Daemon::start(&[]);
    let words = ["run", "k", "--", "sh", "-c", "cat; echo more >&2"];
    let mut dflock = start(dflock(&daemon, &words).stdin(Stdio::piped()));
    dflock.type_in(b"a\nb without end");
    dflock.end_input();
    let end = patient(dflock.end());
    assert_eq!((end.code, &*end.out, &*end.err), (0, "a\nb without end", "more\n"));
}

/// The command sees of itself what it would see without us: descriptors, what is ignored and held
/// off, limits, directory; in the environment only our variables more.
#[rstest]
#[case::as_usual("")]
#[case::under_nohup("trap '' HUP; ")]
#[case::in_the_background_of_a_script("trap '' INT QUIT; ")]
fn nothing_leaks_to_the_command(#[case] before: &str) {
    let daemon = Daemon::start(&[]);
    let look = "exec 2>&1; ls /proc/$$/fd; sed -n \"s/^\\(Sig[BI].*\\)\\t.*\\(.......\\)$/\\1\\2/p\" /proc/self/status; umask; ulimit -a; \
                pwd; env | grep -v -e ^_= -e ^DFLOCK_ | sort";
    let script =
        format!("cd /tmp; {before} sh -c '{look}'; echo ---; dflock run k -- sh -c '{look}'");
    let end = run(&mut shell(&daemon, &script));
    assert_eq!(end.code, 0, "{end:?}");
    let (without, with) = end.out.split_once("---\n").unwrap();
    assert!(without.lines().count() > 10, "{without}");
    assert_eq!(with, without);
}

/// nohup(1): neither dies of what was to be ignored.
#[test]
fn an_ignored_signal_stays_ignored() {
    let daemon = Daemon::start(&[]);
    let script = format!("trap '' HUP; exec dflock run k -- sh -c 'echo $$; exec sleep {LONG}'");
    let mut dflock = start(&mut shell(&daemon, &script));
    let command = dflock.command();
    dflock.signal(Signal::SIGHUP);
    nix::sys::signal::kill(command.pid, Signal::SIGHUP).unwrap();
    // Signals are handled in the order of their numbers, HUP first.
    dflock.signal(Signal::SIGTERM);
    until("the end", || dflock.has_ended());
    assert_eq!(dflock.end().code, 128 + 15);
}

#[rstest]
#[case(Signal::SIGTERM)]
#[case(Signal::SIGINT)]
#[case(Signal::SIGHUP)]
#[case(Signal::SIGQUIT)]
#[case(Signal::SIGUSR1)]
#[case(Signal::SIGUSR2)]
fn signals_go_to_the_command(#[case] signal: Signal) {
    let daemon = Daemon::start(&[]);
    let name = &signal.as_str()[3..];
    let script = format!(
        "trap 'echo heard; kill -KILL $!; exit 7' {name}; sleep {LONG} & echo ready; wait $!; exit 8"
    );
    let dflock = start(&mut dflock(&daemon, &["run", "k", "--", "sh", "-c", &script]));
    assert_eq!(dflock.lines(1), ["ready"]);
    dflock.signal(signal);
    let end = dflock.end();
    assert_eq!((end.code, &*end.out), (7, "ready\nheard\n"), "{end:?}");
    assert_free(&daemon);
}

/// A waiter that is told to stop never runs the command, leaves the line, and releases the keys that it already holds.
#[rstest]
fn a_signal_ends_the_wait(
    #[values(Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGKILL)] signal: Signal,
    #[values(&["run", "b"], &["run", "-k", "a", "-k", "b"], &["acquire", "-k", "a", "-k", "b"])]
    words: &[&str],
) {
    let dies = words.len() == 2 || signal == Signal::SIGKILL;
    let daemon = Daemon::start(if dies { &[] } else { KEEPS });
    let mut holder = daemon.talk();
    let token = holder.take("b", "0");
    let command: &[&str] = if words[0] == "run" { &["--", "echo", "it ran"] } else { &[] };
    let waiting = start(dflock(&daemon, words).args(["--ttl", LONG]).args(command));
    daemon.until_stats("\"waiters\":1");
    waiting.signal(signal);
    let end = waiting.end();
    let code = if dies { -(signal as i32) } else { 128 + signal as i32 };
    assert_eq!((end.code, &*end.out), (code, ""), "{end:?}");
    daemon.until_stats("\"waiters\":0");
    assert_eq!(holder.ask("r", "b", &token), "ok");
    assert_free(&daemon);
}

/// The first process of a container, whom signals do not kill by themselves.
#[test]
#[ignore = "needs root: tests/run"]
fn a_signal_ends_the_wait_of_a_first_process() {
    let daemon = Daemon::start(&[]);
    let mut holder = daemon.talk();
    holder.take("k", "0");
    let mut container = Command::new("unshare");
    container.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    container.args([env!("CARGO_BIN_EXE_dflock"), "run", "k", "--", "echo", "it ran"]);
    container.env("DFLOCK_SERVERS", daemon.address.to_string()).stdin(Stdio::null());
    let container = start(&mut container);
    daemon.until_stats("\"waiters\":1");
    let children = format!("/proc/{0}/task/{0}/children", container.pid());
    let first = fs::read_to_string(children).unwrap().trim().parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(first), Signal::SIGTERM).unwrap();
    let end = container.end();
    assert_eq!((end.code, &*end.out), (128 + 15, ""), "{end:?}");
    daemon.until_stats("\"waiters\":0");
}

/// The process before the command is found below /proc. Without that, the lock is released at once.
#[test]
#[ignore = "needs root: tests/run"]
fn without_proc_run_says_what_is_missing() {
    let daemon = Daemon::start(&[]);
    let script = "umount -l /proc; exec dflock run k -- echo it ran";
    let end = run(&mut shell(&daemon, &format!("exec unshare --mount sh -c '{script}'")));
    let said = "dflock: starting the command: run needs /proc, which is not mounted\n";
    assert_eq!((end.code, &*end.out, &*end.err), (71, "", said), "{end:?}");
    assert_free(&daemon);
}

/// A parent that ignores SIGCHLD still learns the code.
#[test]
fn the_code_arrives_although_children_are_ignored() {
    let daemon = Daemon::start(&[]);
    let mut bash = Command::new("env");
    bash.env_clear().env("PATH", crate::program::PATH);
    bash.env("DFLOCK_SERVERS", daemon.address.to_string()).stdin(Stdio::null());
    bash.args(["--ignore-signal=CHLD", env!("CARGO_BIN_EXE_dflock")]);
    bash.args(["run", "k", "--", "sh", "-c", "exit 5"]);
    assert_eq!(run(&mut bash).code, 5);
}

/// The first argument of a program is its name only; ours finds itself under any, and its inner
/// step cannot be reached by accident.
#[test]
fn the_internal_subcommand_cannot_be_called_by_users() {
    let end = run(&mut bare(&["become-command-of", "1", "echo", "it ran"]));
    assert_eq!((end.code, &*end.out), (137, ""), "{end:?}");
    let daemon = Daemon::start(&[]);
    let end = run(dflock(&daemon, &["run", "k", "--", "echo", "fine"]).arg0("another-name"));
    assert_eq!((end.code, &*end.out), (0, "fine\n"), "{end:?}");
}

/// The lock stays for the whole time, though the command ends at once and has its exit code.
#[test]
fn a_lock_is_held_for_longer_than_the_command_runs() {
    let daemon = Daemon::start(&[]);
    let words = ["run", "k", "--ttl", "9", "--hold-for", LONG, "--", "sh", "-c", "echo in; exit 6"];
    let dflock_ = start(&mut dflock(&daemon, &words));
    dflock_.lines(1);
    // Longer than the lease: it is renewed without the command.
    let busy = run(&mut dflock(&daemon, &["run", "k", "--timeout", "11", "--", "true"]));
    assert_eq!(busy.code, 75, "{busy:?}");
    dflock_.signal(Signal::SIGTERM);
    assert_eq!(dflock_.end().code, 6);
    assert_free(&daemon);

    let words = ["run", "k", "--hold-for", "1", "--", "true"];
    let began = std::time::Instant::now();
    assert_eq!(run(&mut dflock(&daemon, &words)).code, 0);
    assert!(began.elapsed() >= std::time::Duration::from_secs(1));
    assert_free(&daemon);
}
