//! Signals to `lfp run`, before the command runs and while it does. More about the command under its wrapper is in
//! the tests of the crate `wrapcmd`.

use rstest::rstest;
use testbed::{LIMIT, User};

use crate::bench::{Bench, LONG, PORT};

#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_signal_is_passed_on_to_the_command() {
    let bench = Bench::open();
    let script =
        format!("trap 'echo heard; exit 7' USR2; sleep {LONG} & echo ready; wait $!; exit 8");
    let words = ["--direct", "run", PORT, "--", "sh", "-c", &script];
    let mut lfp = bench.lfp(User::Alice, &words).spawn();
    lfp.expect("ready");
    lfp.signal("USR2");
    let end = lfp.wait(LIMIT).expect(7);
    assert!(end.said("heard"), "{end}");
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
    let bench = Bench::open().with_a_daemon();
    let holder = bench.holder(User::Bob);
    let words = ["run", "--timeout", LONG, PORT, "--", "touch", "/tmp/ran"];
    let lfp = bench.lfp(User::Alice, &[route, &words].concat()).spawn();
    let child = bench.waiting_child(&lfp);
    lfp.signal(name);
    let end = lfp.wait(LIMIT).expect(128 + number);
    assert!(end.said("interrupted by SIG"), "{end}");
    assert!(!bench.runs(child));
    assert!(!bench.path("/tmp/ran").exists());
    assert_eq!(bench.locked_by("ttyW0"), Some(holder.pid()));
}
