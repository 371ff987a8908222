//! Locks by `fcntl(2)`, as Python's fasteners takes them, on a port and on a lock file: LOCK, WAIT and STAT of a daemon.

use rstest::rstest;
use testbed::{Process, Sandbox, User, until};

use crate::machine::{answer, daemon, said, waiter};

/// 37 is F_OFD_SETLK (fcntl(2)).
const HOLD: &str = "
import fcntl, os, struct, sys
way, path = sys.argv[1:]
file = os.open(path, os.O_RDWR | os.O_NOCTTY)
if way == 'posix': fcntl.lockf(file, fcntl.LOCK_EX)
else: fcntl.fcntl(file, 37, struct.pack('hhlli', fcntl.F_WRLCK, 0, 0, 0, 0))
print('ready', flush=True)
input()
";

fn holder<'a>(sandbox: &'a Sandbox, way: &str, path: &str) -> Process<'a> {
    let python = sandbox.command("/usr/bin/python3").args(["-c", HOLD, way, path]);
    let mut holder = python.user(User::Bob).spawn();
    holder.expect("ready");
    holder
}

/// The holder is named if the kernel names it: it does not say which process has a lock of an open file description.
#[rstest]
#[ignore = "needs namespaces: tests/run"]
fn it_keeps_others_out_and_is_shown(
    #[values("posix", "ofd")] way: &str,
    #[values("/dev/ttyS7", "/run/lock/LCK..ttyS7")] path: &str,
) {
    let sandbox = Sandbox::with_lfpd().port("ttyS7").enter();
    let _daemon = daemon(&sandbox, &[]);
    if path != "/dev/ttyS7" {
        // Nobody is about to write it.
        let made = format!("touch -d '1 hour ago' {path}; chmod 0666 {path}");
        sandbox.shell(User::Root, &made).expect(0);
    }
    let (holder, waiting) = (holder(&sandbox, way, path), sandbox.sleeper(User::Alice));
    assert_eq!(answer(&sandbox, User::Alice, &format!("lock ttyS7 {}", waiting.pid())), "450");
    let mut waiter = waiter(&sandbox, User::Alice, "ttyS7", waiting.pid());
    let told = said(&sandbox, User::Root, "stat ttyS7");
    let line = told.lines().find(|line| line.contains("scheme=flock")).unwrap_or_default();
    let expected = match way {
        "posix" => format!("standing=alive pid={} uid=1001 command=\"python3\"", holder.pid()),
        _ => "standing=unknown command=\"(a process that is not named)\"".to_owned(),
    };
    assert_eq!(line, format!(" device=\"ttyS7\" scheme=flock {expected}"), "{told}");
    let is_there = format!("test -e {path}");
    assert_eq!(sandbox.shell(User::Root, &is_there).code(), 0, "nobody removes the file");
    assert!(!waiter.output().contains("\n200 "), "{}", waiter.output());
    holder.kill();
    waiter.expect("\n200 ");
    let locked = until(testbed::LIMIT, || sandbox.locked_by("ttyS7"));
    assert_eq!(locked, Some(waiting.pid()));
}
