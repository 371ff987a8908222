//! What one long-lived `lfpd --listen` can do that a process for each connection cannot: hold
//! flock(2) on its lock files, which keeps even Qt as root from removing them; and serve
//! `lfp run`, which keeps out programs that look at no lock files.

use rstest::rstest;
use testbed::{LIMIT, Process, Sandbox, User, until};

use crate::bench::{Bench, Came, PORT, flockers, somebody};
use crate::programs::{self, Program};

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::with_lfpd()
        .port("ttyW0")
        .bring("lfp", testbed::program("lfp", "lfp", &["cli"]))
        .enter();
    let made = sandbox.command("install").args(["-d", "-o", "uucp", "/run/lfpd"]).run();
    assert_eq!(made.code(), 0, "{made}");
    sandbox
}

fn daemon(sandbox: &Sandbox) -> Process<'_> {
    sandbox.serve(User::UucpWithFowner, &[])
}

fn lfp(sandbox: &Sandbox, words: &[&str]) -> i32 {
    sandbox.command("/run/test/lfp").args(words).run().code()
}

#[test]
#[ignore = "needs root: tests/run"]
fn qt_as_root_is_kept_out() {
    let sandbox = sandbox();
    let _daemon = daemon(&sandbox);
    let holder = somebody(&sandbox);
    assert_eq!(lfp(&sandbox, &["lock", PORT, "--pid", &holder.pid().to_string()]), 0);
    let bench = Bench::new(&sandbox, &programs::QT_AS_ROOT, PORT);
    let ours = bench.lock_files();
    let (came, _qt) = bench.attempt();
    assert!(matches!(&came, Came::Ended(end) if end.said("Permission error")), "{came:?}");
    assert_eq!(bench.lock_files(), ours);
    holder.kill();
    // The daemon clears the lock away at once; a client that asks in this very moment is refused.
    assert!(
        until(LIMIT, || bench.lock_files().is_empty().then_some(())).is_some(),
        "it is cleared"
    );
    let (came, _qt) = bench.attempt();
    assert!(matches!(came, Came::Has), "the holder has died: {came:?}");
}

/// They look at no lock files; behind `lfp run` they need not.
#[rstest]
#[case::picocom(programs::PICOCOM)]
#[case::pyserial(programs::PYSERIAL)]
#[ignore = "needs root: tests/run"]
fn flock_users_behind_lfp_run_are_kept_out(#[case] program: Program) {
    let sandbox = sandbox();
    let _daemon = daemon(&sandbox);
    let command: Vec<String> =
        program.command.iter().map(|word| word.replace("{dev}", PORT)).collect();
    let run = || sandbox.command("/run/test/lfp").args(["run", PORT, "--"]).args(&command);

    let holder = somebody(&sandbox);
    assert_eq!(lfp(&sandbox, &["lock", PORT, "--pid", &holder.pid().to_string()]), 0);
    assert_eq!(run().user(User::Bob).run().code(), 1);
    holder.kill();

    let first = run().user(User::Alice).spawn();
    // The service holds flock(2) as well, on its lock files: only the port's own counts.
    let flocked = || (!flockers(&sandbox, PORT).is_empty()).then_some(());
    assert!(until(LIMIT, flocked).is_some(), "{}", first.output());
    assert_eq!(run().user(User::Bob).run().code(), 1);
    let minicom = sandbox.command("minicom").args(["-D", PORT]).user(User::Bob).run();
    assert!(minicom.said("Device /dev/ttyW0 is locked."), "{minicom}");
}
