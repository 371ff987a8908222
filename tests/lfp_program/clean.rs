//! `lfp clean`: what is removed, what is left, and the messages about it.

use rstest::rstest;
use testbed::{LIMIT, User};

use crate::bench::{Bench, GONE, PORT};

/// The locks that are not by number: the port is a pseudo-terminal, and has one of those besides.
fn names(bench: &Bench) -> Vec<String> {
    let mut names = bench.locks();
    names.retain(|name| !name.starts_with("LCK.136."));
    names
}

/// A sticky directory: everybody removes their own, and is told who owns the others.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn in_a_sticky_directory() {
    let bench = Bench::open();
    let _holder = bench.holder(User::Bob);
    bench.plant(User::Alice, "LCK..ttyS1", GONE);
    bench.plant(User::Alice, "LK.005.188.000", GONE);
    bench.plant(User::Bob, "LCK..ttyS2", GONE);
    let end = bench.lfp(User::Alice, &["clean"]).run().expect(77);
    assert!(end.said("removed /var/lock/LCK..ttyS1 (pid 4000000)"), "{end}");
    assert!(end.said("removed /var/lock/LK.005.188.000"), "{end}");
    assert!(end.said("left /var/lock/LCK..ttyS2 (pid 4000000)"), "{end}");
    assert!(end.said("as bob or root") && end.said("CAP_FOWNER"), "{end}");
    assert_eq!(names(&bench), ["LCK..ttyS2", "LCK..ttyW0"]);

    let end = bench.lfp(User::Alice, &["--json", "clean"]).run().expect(77);
    assert!(end.said("\"removed\":[],\"left\":[{\"device\":\"/dev/ttyS2\""), "{end}");
    assert!(end.said("\"help\":\""), "{end}");
    assert!(end.said("\"error\":\"not-permitted\",\"message\":\"some stale locks"), "{end}");
    assert!(!end.said("}\n{"), "one value: {end}");

    bench.lfp(User::Root, &["clean"]).run().expect(0);
    assert_eq!(names(&bench), ["LCK..ttyW0"], "the living keep theirs");
}

/// The service may remove what the caller may not.
#[rstest]
#[case::in_a_sticky_directory(Bench::open, User::Bob, User::UucpWithFowner, "as bob or root")]
#[case::in_a_closed_one(Bench::closed, User::Lfpd, User::Lfpd, "the directory belongs to lfpd")]
#[ignore = "needs namespaces: tests/run"]
fn clean_uses_the_service_where_the_caller_has_no_right(
    #[case] machine: fn() -> Bench,
    #[case] owner: User,
    #[case] service: User,
    #[case] remedy: &str,
) {
    let bench = machine();
    bench.plant(owner, "LCK..ttyS2", GONE);
    let _service = bench.serve(service);
    let end = bench.lfp(User::Alice, &["--direct", "clean"]).run().expect(77);
    assert!(end.said(remedy), "{end}");
    let end = bench.lfp(User::Alice, &["clean"]).run().expect(0);
    assert!(end.said("removed /var/lock/LCK..ttyS2"), "{end}");
    bench.assert_free();
}

/// Nothing is removed but what surely is a stale lock.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn only_stale_locks_are_removed() {
    let bench = Bench::open();
    let line = "cd /run/lock; : >LCK..ttyS1; ln -s /etc/passwd LCK..ttyS2; mkdir LCK..ttyS3; \
                mkfifo LCK..ttyS4; printf '%10d\\n' $$ >LCK..ttyS5; \
                printf '%10d\\n' 4000000 >notes; printf '%10d\\n' 4000000 >LCK..TM.abc; exec sleep 1000";
    let _owner = bench.command("sh").args(["-c", line]).user(User::Alice).spawn();
    bench.wait_for("all of them", || bench.locks().len() == 7);
    let end = bench.lfp(User::Root, &["clean"]).run().expect(0);
    assert_eq!(bench.locks().len(), 7, "{end}");
    assert!(bench.path("/etc/passwd").exists());
    bench.called(User::Root, &["--direct", "lock", PORT]).run().expect(0);
}

/// An old file without a number is removed only where a device has its name, and only if nobody has locked it by
/// `fcntl(2)`, as Python's fasteners does.
#[rstest]
#[case::of_the_port("ttyW0", "pass", 0, false)]
#[case::of_no_device("librtas", "pass", 0, true)]
#[case::of_no_device_and_locked("librtas", "fcntl.lockf(file, fcntl.LOCK_EX)", 0, true)]
#[case::of_the_port_and_locked("ttyW0", "fcntl.lockf(file, fcntl.LOCK_EX)", 77, true)]
#[ignore = "needs namespaces: tests/run"]
fn an_old_file_without_a_number(
    #[case] name: &str,
    #[case] lock: &str,
    #[case] code: i32,
    #[case] stays: bool,
    #[values(User::Root, User::Alice)] user: User,
) {
    let bench = Bench::open();
    let file = format!("/run/lock/LCK..{name}");
    let line = format!(
        "import fcntl, os, sys; file = open('{file}', 'w'); os.utime('{file}', (1, 1)); {lock}; \
         print('held', flush=True); sys.stdin.read()"
    );
    let owner = bench.command("/usr/bin/python3").args(["-c", &line]);
    let mut owner = owner.user(User::Alice).spawn();
    owner.expect("held");
    let end = bench.lfp(user, &["--direct", "clean"]).run().expect(code);
    assert!(code == 0 || end.said(&format!("pid {}", owner.pid())), "{end}");
    assert_eq!(!bench.locks().is_empty(), stays, "{end}");
    let taken = bench.lfp(user, &["--direct", "run", PORT, "--", "true"]).run();
    assert_eq!(taken.code() != 0, stays && name == "ttyW0", "{taken}");
}

/// A process that holds it by `flock(2)` may be breaking it now: then the lock is its own, and no longer stale.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_lock_that_another_process_is_removing_stays() {
    let bench = Bench::open();
    bench.plant(User::Bob, "LCK..ttyS1", GONE);
    let line = "flock /run/lock/LCK..ttyS1 sh -c 'echo ready; exec sleep 1000'";
    let _other = bench.ready(User::Bob, line);
    let end = bench.lfp(User::Root, &["--direct", "clean"]).run().expect(77);
    assert!(end.said("another process is removing it"), "{end}");
    assert_eq!(bench.locks(), ["LCK..ttyS1"]);
}

/// A user without rights may hold it for ever. That does not stop root, who has a gate.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_stale_lock_that_an_outsider_flocks_is_removed() {
    let bench = Bench::open();
    assert_eq!(bench.shell(User::Root, "mkdir /run/lfpd").code(), 0);
    bench.plant(User::Bob, "LCK..ttyS1", GONE);
    // Not by flock(1), which opens it with O_CREAT: fs.protected_regular refuses that here.
    let line = "import fcntl, time; file = open('/run/lock/LCK..ttyS1'); \
        fcntl.flock(file, fcntl.LOCK_EX); print('held', flush=True); time.sleep(1000)";
    let outsider = bench.command("/usr/bin/python3").args(["-c", line]);
    let mut outsider = outsider.user(User::Alice).spawn();
    outsider.expect("held");
    bench.lfp(User::Root, &["--direct", "clean"]).run().expect(0);
    bench.assert_free();
}

/// So many locks of this number.
fn plant(bench: &Bench, count: u32, pid: u32) {
    let each = format!("printf '%10d\\n' {pid} >LCK..x$n");
    let line = format!("cd /run/lock; for n in $(seq {count}); do {each}; done");
    assert_eq!(bench.shell(User::Bob, &line).code(), 0);
}

/// More than are looked at in one directory at once.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn as_many_as_there_are() {
    let bench = Bench::open();
    plant(&bench, 1500, 4_000_000);
    bench.lfp(User::Bob, &["clean"]).limit(4 * LIMIT).run().expect(0);
    bench.assert_free();
    plant(&bench, 1100, 1);
    let end = bench.lfp(User::Bob, &["clean"]).run().expect(77);
    assert!(end.said("more than 1024 lock files in one directory"), "{end}");
}

/// A lock in the middle that another process holds does not hide that there are more.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn as_many_as_there_are_beside_one_that_is_held() {
    let bench = Bench::open();
    plant(&bench, 1500, 4_000_000);
    let line = "flock /run/lock/LCK..x900 sh -c 'echo ready; exec sleep 1000'";
    let _other = bench.ready(User::Bob, line);
    let end = bench.lfp(User::Bob, &["--direct", "clean"]).limit(4 * LIMIT).run().expect(77);
    assert_eq!(bench.locks(), ["LCK..x900"], "{end}");
}

/// However long the kernel's list of locks is: the lock files are not in it.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn beside_an_endless_list_of_the_kernels() {
    let bench = Bench::open();
    bench.plant(User::Bob, "LCK..ttyS1", GONE);
    let line = "mount --bind /dev/zero /proc/locks && exec /run/test/lfp clean";
    let end = bench.command("unshare").args(["--mount", "sh", "-c", line]).run().expect(0);
    assert!(!end.said("not all were looked at"), "{end}");
    bench.assert_free();
}

/// The service's records of locks that others have removed, but for those just made.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn clean_removes_records_of_vanished_locks() {
    let bench = Bench::open();
    let _service = bench.serve(User::Lfpd);
    let _holder = bench.holder(User::Alice);
    let line = "for n in 1 2 3; do /run/test/lfp lock --absent ttyX$n; done
                rm -f /run/lock/LCK..ttyX1 /run/lock/LCK..ttyX2
                cd /run/lfpd
                for it in held.*; do
                    case $(readlink $it) in *ttyX2) ;; *) touch -h -d '1 hour ago' $it ;; esac
                done
                echo a stranger; setpriv --reuid 65534 --clear-groups /run/test/lfp clean; echo root
                /run/test/lfp clean; for it in held.*; do readlink $it; done | sed 's/.* names=//' | sort";
    let end = bench.shell(User::Root, line);
    assert!(end.said("a stranger\nroot\n"), "what may not be removed is not counted: {end}");
    assert!(end.said("removed 1 records of locks that are gone"), "{end}");
    assert!(end.said("\nLCK..ttyX2\nLCK..ttyX3\n") && !end.said("LCK..ttyX1"), "{end}");
}
