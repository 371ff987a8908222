//! Signals to `lfp run`, before the command runs and while it does. More about the command under its wrapper is in
//! the tests of the crate `wrapcmd`.

use rstest::rstest;
use testbed::{LIMIT, User};

use crate::bench::{Bench, LONG, PORT};

#[rstest]
#[case("TERM")]
#[case("USR2")]
#[ignore = "needs namespaces: tests/run"]
fn signals_are_passed_on_to_the_command(#[case] name: &str) {
    let bench = Bench::open();
    let script = format!(
        "trap 'echo heard {name}; exit 7' {name}; sleep {LONG} & echo ready; wait $!; exit 8"
    );
    let words = ["--direct", "run", PORT, "--", "sh", "-c", &script];
    let mut lfp = bench.lfp(User::Alice, &words).spawn();
    lfp.expect("ready");
    lfp.signal(name);
    let end = lfp.wait(LIMIT);
    assert_eq!(end.code(), 7, "{end}");
    assert!(end.said(&format!("heard {name}")), "{end}");
    bench.assert_free();
}

#[rstest]
#[case("TERM", 15)]
#[ignore = "needs namespaces: tests/run"]
fn end_a_command_that_does_not_mind_them(#[case] name: &str, #[case] number: i32) {
    let bench = Bench::open();
    let words = ["--direct", "run", PORT, "--", "sh", "-c", "echo ready; exec sleep 1000"];
    let mut lfp = bench.lfp(User::Alice, &words).spawn();
    lfp.expect("ready");
    lfp.signal(name);
    assert_eq!(lfp.wait(LIMIT).code(), 128 + number);
    bench.assert_free();
}

/// One that waits in vain is not made to wait for its end, and never runs its command.
#[rstest]
#[case::term("TERM", 15, &[])]
#[case::int("INT", 2, &[])]
#[case::hup("HUP", 1, &[])]
#[case::directly("TERM", 15, &["--direct"])]
#[ignore = "needs namespaces: tests/run"]
fn end_the_wait(#[case] name: &str, #[case] number: i32, #[case] route: &[&str]) {
    let bench = Bench::open();
    let _service = bench.listen(User::Lfpd);
    let holder = bench.holder(User::Bob);
    let words = ["run", "--timeout", LONG, PORT, "--", "touch", "/tmp/ran"];
    let lfp = bench.lfp(User::Alice, &[route, &words].concat()).spawn();
    let child = bench.waiting_child(&lfp);
    lfp.signal(name);
    let end = lfp.wait(LIMIT);
    assert_eq!(end.code(), 128 + number, "{end}");
    assert!(end.said("interrupted by SIG"), "{end}");
    assert!(!bench.runs(child));
    assert!(!bench.sandbox.path("/tmp/ran").exists());
    assert_eq!(bench.locked_by(), Some(holder.pid()));
}

/// nohup(1) is believed: what was ignored stays ignored, waiting or not.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn an_ignored_signal_stays_ignored() {
    let bench = Bench::served();
    let holder = bench.holder(User::Bob);
    let line = "trap '' HUP; exec /run/test/lfp run --timeout 1000 ttyW0 -- \
                grep SigIgn /proc/self/status";
    let lfp = bench.sandbox.command("sh").args(["-c", line]).user(User::Alice).spawn();
    bench.waiting_child(&lfp);
    lfp.signal("HUP");
    holder.kill();
    let end = lfp.wait(LIMIT);
    assert_eq!(end.code(), 0, "{end}");
    assert!(end.said("0000001\n"), "{end}");
}

/// Ctrl-C reaches the command from the terminal, once, and not a second time from us.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_signal_from_the_terminal_is_not_repeated() {
    let bench = Bench::open();
    // A signal that comes just before Python blocks in input() would be heard after it only.
    // The signal may come while `ready` is being printed: a second print would fail then.
    let command = "import os, select, signal
count = 0
def heard(*_):
    global count
    count += 1
    os.write(1, b'heard\\n')
signal.signal(signal.SIGINT, heard)
print('ready', flush=True)
while not select.select([0], [], [], 0.05)[0]: pass
input()
print('count', count, flush=True)";
    let begin = "import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv('/run/test/lfp', ['lfp', '--direct', 'run', 'ttyW0', 'python3', '-c', sys.argv[1]])";
    let python = bench.sandbox.command("python3").args(["-c", begin, command]);
    let mut lfp = python.user(User::Alice).on_terminal().spawn();
    lfp.expect("ready");
    lfp.type_in("\x03");
    lfp.expect("heard");
    lfp.type_in("\n");
    lfp.expect("count 1");
    assert_eq!(lfp.wait(LIMIT).code(), 0);
    bench.assert_free();
}
