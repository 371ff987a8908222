//! What one long-lived `lfpd --listen` can do that a process for each connection cannot: hold
//! flock(2) on its lock files, which keeps even Qt as root from removing them.

use testbed::{LFP, Sandbox, User, comes};

use crate::bench::{Bench, Came, PORT};
use crate::programs;

#[test]
#[ignore = "needs root: tests/run"]
fn qt_as_root_is_kept_out() {
    let sandbox = Sandbox::layout().port("ttyW0").installed().lock_dir("1777", "root:root").enter();
    sandbox.command("chown").args(["uucp", "/run/lfpd"]).run().expect(0);
    let _daemon = sandbox.serve(User::UucpWithFowner, &[]);
    let holder = sandbox.sleeper(User::Root);
    let lock = ["lock", PORT, "--pid", &holder.pid().to_string()];
    sandbox.command(LFP).args(lock).run().expect(0);
    let bench = Bench::new(&sandbox, &programs::QT_AS_ROOT, PORT);
    let ours = bench.lock_files();
    let (came, _qt) = bench.attempt();
    assert!(matches!(&came, Came::Ended(end) if end.said("Permission error")), "{came:?}");
    assert_eq!(bench.lock_files(), ours);
    holder.kill();
    // The daemon clears the lock away at once; a client that asks in this very moment is refused.
    assert!(comes(|| bench.lock_files().is_empty()), "it is cleared");
    bench.take();
}
