//! What programs are known to do wrong, and what `lfpd` does in the same place. If one of these
//! fails because a program got better, so much the better: change the test and the table.

use std::time::Duration;

use rstest::rstest;
use testbed::{Session, User, comes};

use crate::bench::{Bench, Came, PORT, lfpd, sandbox};
use crate::programs::{self, Program};

/// microcom writes its pid as eight bytes. pppd and RXTX take every lock for dead that they
/// cannot read as text; `lfpd` does not.
#[rstest]
#[case::pppd(programs::PPPD)]
#[case::rxtx(programs::RXTX)]
#[ignore = "needs root: tests/run"]
fn a_live_binary_lock_is_removed_by_some_but_not_by_lfpd(#[case] thief: Program) {
    let sandbox = sandbox();
    let microcom = Bench::new(&sandbox, &programs::MICROCOM, PORT);
    let _owner = microcom.take();
    let lock = microcom.lock_files();
    assert_eq!(lock.first().map(|it| it.content.len()), Some(8));

    assert_eq!(lfpd(&sandbox).lock(PORT, sandbox.sleeper(User::Root).pid()), 450);
    assert_eq!(microcom.lock_files(), lock);

    Bench::new(&sandbox, &thief, PORT).take();
}

/// A killed program leaves its file in a directory where only the owner, root, or a process that has CAP_FOWNER may
/// remove it.
#[rstest]
#[case::as_root(User::Root, 200)]
#[case::with_fowner(User::UucpWithFowner, 200)]
#[case::as_uucp(User::Uucp, 450)]
#[case::as_lfpd(User::Lfpd, 450)]
#[ignore = "needs root: tests/run"]
fn others_dead_locks_in_a_sticky_directory(#[case] service: User, #[case] code: u32) {
    let sandbox = sandbox();
    Bench::new(&sandbox, &programs::MINICOM, PORT).take().kill();
    let mut lfpd = Session::start(&sandbox, service, &[], User::Root);
    assert_eq!(lfpd.lock(PORT, sandbox.sleeper(User::Root).pid()), code);
}

/// Why the service runs as `uucp`: cu becomes that user, and can only remove its own files.
#[rstest]
#[case::of_uucp(User::Uucp, true)]
#[case::of_root(User::Root, false)]
#[ignore = "needs root: tests/run"]
fn cu_clears_dead_locks(#[case] service: User, #[case] clears: bool) {
    let sandbox = sandbox();
    let mut lfpd = Session::start(&sandbox, service, &[], User::Root);
    let holder = sandbox.sleeper(User::Root);
    assert_eq!(lfpd.lock(PORT, holder.pid()), 200);
    holder.kill();
    let (came, _cu) = Bench::new(&sandbox, &programs::CU, PORT).attempt();
    assert_eq!(matches!(came, Came::Has), clears, "{came:?}");
}

/// minicom opens a port past a lock that it may not read; `lfpd` never takes what it cannot
/// read for dead.
#[test]
#[ignore = "needs root: tests/run"]
fn an_unreadable_lock() {
    let sandbox = sandbox();
    let holder = sandbox.sleeper(User::Root);
    sandbox.write("/run/lock/LCK..ttyW0", format!("{:10}\n", holder.pid()), 0o600);
    let mut minicom = sandbox.command("minicom").args(["-D", PORT]).user(User::Bob).spawn();
    minicom.expect("Welcome to minicom");
    assert_eq!(lfpd(&sandbox).lock(PORT, minicom.pid()), 450);
}

/// socat's lock files are for their owner alone; only root learns that they are dead.
#[test]
#[ignore = "needs root: tests/run"]
fn a_dead_lock_for_root_s_eyes_only() {
    let sandbox = sandbox();
    Bench::new(&sandbox, &programs::SOCAT, PORT).take().kill();
    let holder = sandbox.sleeper(User::Root);
    assert_eq!(lfpd(&sandbox).lock(PORT, holder.pid()), 450);
    let mut root = Session::start(&sandbox, User::Root, &[], User::Root);
    assert_eq!(root.lock(PORT, holder.pid()), 200);
}

/// mgetty looks again every ten seconds, and ends when the lock is gone, for init to start it
/// anew. Meanwhile it leaves the lock alone.
#[test]
#[ignore = "needs root: tests/run"]
fn mgetty_goes_on_when_lfpd_unlocks() {
    const LOG: &str = "/var/log/mgetty/mg_ttyW0.log";
    let sandbox = sandbox();
    let mut lfpd = lfpd(&sandbox);
    let holder = sandbox.sleeper(User::Root);
    assert_eq!(lfpd.lock(PORT, holder.pid()), 200);
    let mut mgetty = sandbox.command("mgetty").args(["-x", "9", PORT]).spawn();
    let log = || sandbox.text(LOG);
    assert!(comes(|| log().contains("dialout in progress")) && mgetty.runs(), "{}", log());
    assert_eq!(lfpd.unlock(PORT, holder.pid()), 200);
    assert_eq!(mgetty.wait(Duration::from_secs(60)).code(), 0, "{}", log());
}

/// The names of a lock are links to one file. When its holder is dead, a program puts a file of its own under the name that it
/// knows, and none writes into ours, which would give it all names. The port is busy under each of them as long as the program
/// lives, and free afterwards.
#[rstest]
#[case::cu(programs::CU)]
#[case::mgetty(programs::MGETTY)]
#[case::minicom(programs::MINICOM)]
#[case::pppd(programs::PPPD)]
#[ignore = "needs root: tests/run"]
fn who_takes_a_stale_lock_has_the_port_by_each_name(#[case] program: Program) {
    let sandbox = sandbox();
    let mut lfpd = lfpd(&sandbox);
    let (dead, other) = (sandbox.sleeper(User::Root), sandbox.sleeper(User::Root));
    assert_eq!(lfpd.lock(PORT, dead.pid()), 200);
    dead.kill();
    let bench = Bench::new(&sandbox, &program, PORT);
    let stale = bench.lock_files();
    let inode = stale[0].inode;
    assert!(stale.iter().all(|file| file.inode == inode), "{stale:?}");
    let troupe = bench.take();
    let changed = || {
        let files = bench.lock_files();
        files.into_iter().filter(|file| !stale.contains(file)).collect::<Vec<_>>()
    };
    let names: Vec<String> = changed().into_iter().map(|file| file.name).collect();
    assert_eq!(names, ["LCK..ttyW0"]);
    assert!(changed().iter().all(|file| file.inode != inode), "written in place");
    for name in [PORT, "modemW", "serial/by-id/usb-X_Y-if00"] {
        assert_eq!(lfpd.lock(name, other.pid()), 450, "{name}");
        assert_eq!(lfpd.unlock(name, other.pid()), 450, "{name}");
    }
    troupe.kill();
    assert_eq!(lfpd.lock("modemW", other.pid()), 200);
    assert_eq!(lfpd.unlock(PORT, other.pid()), 200);
    assert_eq!(bench.lock_files(), []);
}
