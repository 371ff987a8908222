//! The device that was judged is the one that is locked: a name is resolved once, and the right to that port is
//! checked.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rstest::rstest;
use testbed::{LFPD, Process, Sandbox, User, comes};

use crate::machine::{answer, codes, daemon, daemon_by, numbered, numbered_by, said_at};

/// A port that everybody may open, and one that root alone may.
fn two_ports() -> Sandbox {
    Sandbox::with_lfpd().port_with_mode("ttyW0", 0o666).port_with_mode("ttyW1", 0o600).enter()
}

/// Changes where a link of the user's leads, until it is told to stop. It leads to each port for 2 to 32 ms: as
/// long as the steps of a request take, on a fast machine and on a busy one.
fn swap(directory: &Path, stop: &AtomicBool) {
    let mut milliseconds = (1..=5).map(|power| 1_u64 << power).cycle();
    while !stop.load(Ordering::Relaxed) {
        let pause = Duration::from_millis(milliseconds.next().unwrap_or_default());
        for target in ["../ttyW1", "../ttyW0"] {
            point(directory, target);
            std::thread::sleep(pause);
        }
    }
}

/// Has the link lead to this port.
fn point(directory: &Path, target: &str) {
    let next = directory.join("next");
    let _ = std::os::unix::fs::symlink(target, &next);
    let _ = std::fs::rename(&next, directory.join("link"));
}

/// The service is slow between its look at the port's rights and its lock.
#[rstest]
#[ignore = "needs namespaces: tests/run"]
fn a_swapped_link_gives_no_port_but_the_judged_one(#[values("lock", "wait")] verb: &str) {
    let sandbox = two_ports();
    let slow = "inject=lgetxattr,getxattr:delay_exit=30000";
    let _daemon = daemon_by(&sandbox, &["strace", "-qqfo", "/tmp/trace", "-e", slow], &[]);
    let holder = sandbox.sleeper(User::Alice);
    let (directory, stop) = (sandbox.path("/dev/shm"), AtomicBool::new(false));
    let seconds = if verb == "wait" { " 1" } else { "" };
    let take =
        || answer(&sandbox, User::Alice, &format!("{verb} shm/link {}{seconds}", holder.pid()));
    let taken = |port: &str| sandbox.locks().contains(&format!("LCK..{port}"));
    let mut stolen = false;
    std::thread::scope(|scope| {
        scope.spawn(|| swap(&directory, &stop));
        for _ in 0..40 {
            take();
            stolen |= taken("ttyW1");
            for port in ["ttyW0", "ttyW1"] {
                answer(&sandbox, User::Alice, &format!("unlock {port} {}", holder.pid()));
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(!stolen, "a port that is not hers was locked");
    // The port that is everybody's may be had by that link.
    point(&directory, "../ttyW0");
    assert_eq!(take(), "200");
    assert!(taken("ttyW0"), "{:?}", sandbox.locks());
}

/// A lock for what is not there has the files of a port that is.
#[rstest]
#[case::bare_name_of_no_port("ttyW7", "200")]
#[case::link_to_come("serial/by-id/usb-X", "200")]
#[case::no_such_directory("nosuch/ttyW1", "550")]
#[case::no_such_directory_for_his_own("nosuch/ttyW0", "550")]
#[case::no_terminal("pts/ttyW1", "550")]
#[case::open_to_all("shm/ttyW1", "550")]
#[case::another_directory("usb/ttyW1", "550")]
#[case::another_directory_for_his_own("usb/ttyW0", "200")]
#[case::dial_out("cua9", "550")]
#[case::dial_out_of_his_own("cua8", "200")]
#[case::underscores("usb_left", "550")]
#[case::colons("usb:left", "550")]
#[case::last_part("left", "550")]
#[case::last_part_of_his_own("right", "200")]
#[ignore = "needs namespaces: tests/run"]
fn a_lock_for_an_absent_device_keeps_nobody_from_his_port(#[case] name: &str, #[case] code: &str) {
    let sandbox = Sandbox::with_lfpd()
        .port_with_mode("ttyW0", 0o666)
        .port_with_mode("ttyW1", 0o600)
        .port_with_mode("ttyS8", 0o666)
        .port_with_mode("ttyS9", 0o600)
        .port_with_mode("usb/left", 0o600)
        .port_with_mode("usb/right", 0o666)
        .enter();
    let _daemon = daemon(&sandbox, &[]);
    let holder = sandbox.sleeper(User::Alice);
    let line = |verb: &str| format!("{verb} {name} {}", holder.pid());
    assert_eq!(answer(&sandbox, User::Alice, &line("lock")), code);
    assert_eq!(sandbox.locks().is_empty(), code == "550", "{:?}", sandbox.locks());
    assert_eq!(
        answer(&sandbox, User::Alice, &format!("{} 0", line("wait"))),
        if code == "200" { "450" } else { "550" }
    );
}

/// Says something to the daemon over TCP, and gives the codes of the answers.
fn over_tcp(sandbox: &Sandbox, user: User, lines: &[&str]) -> Vec<String> {
    codes(&said_at(sandbox, user, "TCP:127.0.0.1:7000", &lines.join("\n")))
}

const TCP: [&str; 2] = ["--listen", "127.0.0.1:7000"];

/// A daemon with or without records.
fn daemon_with(sandbox: &Sandbox, records: bool) -> Process<'_> {
    let directory = if records { "/run/lfpd" } else { "/run/nothing" };
    sandbox.command("mkdir").arg(directory).run().expect(0);
    daemon(sandbox, &TCP)
}

/// A daemon that could lock nothing does not start without a word.
#[rstest]
#[case::absent("/run/nodir", "No such file or directory")]
#[case::a_file("/etc/passwd", "is not a directory")]
#[ignore = "needs namespaces: tests/run"]
fn without_its_lock_directory_a_daemon_does_not_start(#[case] lock_dir: &str, #[case] why: &str) {
    let sandbox = Sandbox::with_lfpd().enter();
    let words = ["--lock-dir", lock_dir, "--listen", "unix:/run/other.sock"];
    let end = sandbox.command(LFPD).args(words).on_terminal().run();
    assert!(end.code() == 1 && end.said(lock_dir) && end.said(why), "{end}");
}

/// A lock for a number that nobody has goes when it is that of a process without the right to the port,
/// before programs that know no more than the number believe it.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_process_without_the_right_keeps_no_lock_of_its_number() {
    let sandbox = two_ports();
    let _daemon = daemon(&sandbox, &TCP);
    let codes = over_tcp(&sandbox, User::Bob, &["lock ttyW0 20000", "lock ttyW1 30000"]);
    assert_eq!(codes, ["200", "200"]);
    let _bobs = numbered(&sandbox, "bob", &[20000, 30000]);
    let has = |port: &str| sandbox.locks().contains(&format!("LCK..{port}"));
    assert!(comes(|| !has("ttyW1")), "removed");
    // The other port he may have.
    assert!(has("ttyW0"), "{:?}", sandbox.locks());
}

/// Nor if it is a program with the set-user-ID bit, which may open every port.
#[test]
#[ignore = "needs root: tests/run"]
fn a_set_user_id_program_keeps_no_lock_of_its_number() {
    let sandbox = two_ports();
    let program = raised(&sandbox, "/bin/sleep", "root", "4755");
    let _daemon = daemon(&sandbox, &TCP);
    assert_eq!(over_tcp(&sandbox, User::Bob, &["lock ttyW1 20000"]), ["200"]);
    let _raised = numbered_by(&sandbox, &program, "bob", &[20000]);
    assert!(comes(|| sandbox.locks().is_empty()), "removed");
}

/// A copy of a program that runs as another user or with another group.
fn raised(sandbox: &Sandbox, program: &str, owner: &str, mode: &str) -> String {
    let copy = "/home/raised".to_owned();
    let words = ["-c", "cp $1 $2 && chown $3 $2 && chmod $4 $2", "sh", program, &copy, owner, mode];
    sandbox.command("sh").args(words).run().expect(0);
    copy
}

/// Root, uucp and the members of `uucp` may open this port.
fn port_of_uucp(sandbox: &Sandbox) {
    let made = "chown uucp:uucp /dev/ttyW1 && chmod 660 /dev/ttyW1";
    sandbox.shell(User::Root, made).expect(0);
}

/// A program that waits with more rights than its user (`su` at its prompt, a dialer) lends none to a user who names it.
/// Root may name it for every port that the program may open.
#[rstest]
#[case::set_user_id_root("root", "4755")]
#[case::set_user_id("uucp", "4755")]
#[case::set_group_id("root:uucp", "2755")]
#[ignore = "needs root: tests/run"]
fn a_set_user_id_program_lends_no_right(
    #[case] owner: &str,
    #[case] mode: &str,
    #[values(false, true)] on_tcp: bool,
) {
    let sandbox = two_ports();
    port_of_uucp(&sandbox);
    let program = raised(&sandbox, "/bin/sleep", owner, mode);
    let _daemon = daemon(&sandbox, &TCP);
    let waiting = sandbox.command(&program).args(["1000"]).user(User::Bob).spawn();
    let status = format!("/proc/{}/comm", waiting.pid());
    assert!(comes(|| sandbox.text(&status) == "raised\n"), "it runs");
    let code = |user, line: String| {
        if on_tcp {
            over_tcp(&sandbox, user, &[&line]).remove(0)
        } else {
            answer(&sandbox, user, &line)
        }
    };
    let line = |verb: &str, port: &str| format!("{verb} {port} {}", waiting.pid());
    assert_eq!(code(User::Bob, line("lock", "ttyW1")), "550");
    assert!(sandbox.locks().is_empty());
    // Whoever has started it locks and releases for it what that user may open.
    assert_eq!(code(User::Bob, line("lock", "ttyW0")), "200");
    assert_eq!(code(User::Alice, line("unlock", "ttyW0")), "550");
    assert_eq!(code(User::Bob, line("unlock", "ttyW0")), "200");
    assert_eq!(code(User::Root, line("lock", "ttyW1")), "200");
    // What is locked for it may be released by whoever has started it.
    assert_eq!(code(User::Bob, line("unlock", "ttyW1")), "200");
}

/// Asks for itself.
const ASKS: &str = "
import os, socket
line = socket.socket(socket.AF_UNIX)
line.connect('/run/lfpd.sock')
words = line.makefile('rw')
words.write('lock ttyW1 %d\\nunlock ttyW1 %d\\nquit\\n' % (os.getpid(), os.getpid()))
words.flush()
print(words.read())
";

/// A dialer with the set-user-ID or set-group-ID bit locks what it may open, when it asks itself.
#[rstest]
#[case::set_user_id("uucp", "4755", ["200", "200"])]
#[case::set_group_id("root:uucp", "2755", ["200", "200"])]
#[case::neither("root", "755", ["550", "450"])]
#[ignore = "needs root: tests/run"]
fn a_set_user_id_program_asks_for_itself(
    #[case] owner: &str,
    #[case] mode: &str,
    #[case] expected: [&str; 2],
) {
    let sandbox = two_ports();
    port_of_uucp(&sandbox);
    let program = raised(&sandbox, "/usr/bin/python3", owner, mode);
    let _daemon = daemon(&sandbox, &[]);
    let end = sandbox.command(&program).args(["-c", ASKS]).user(User::Bob).run();
    assert_eq!(codes(end.output()), expected, "{end}");
}

/// It keeps what was locked for it since, even if it has lost the right meanwhile, with records and without.
#[rstest]
#[ignore = "needs namespaces: tests/run"]
fn a_process_keeps_a_lock_that_was_taken_after_it_came(#[values(false, true)] records: bool) {
    let sandbox = two_ports();
    let chmod = |mode: &str| sandbox.command("chmod").args([mode, "/dev/ttyW0"]).run().code();
    assert_eq!(chmod("600"), 0);
    let _daemon = daemon_with(&sandbox, records);
    let lines = ["lock ttyW0 20000", "unlock ttyW0 20000", "lock ttyW1 20000"];
    assert_eq!(over_tcp(&sandbox, User::Bob, &lines), ["200"; 3]);
    let _bobs = numbered(&sandbox, "bob", &[20000]);
    assert_eq!(chmod("666"), 0);
    assert_eq!(over_tcp(&sandbox, User::Bob, &["lock ttyW0 20000"]), ["200"]);
    assert_eq!(chmod("600"), 0);
    let has = |port: &str| sandbox.locks().contains(&format!("LCK..{port}"));
    assert!(comes(|| !has("ttyW1")), "removed");
    assert!(has("ttyW0"), "{:?}", sandbox.locks());
}

/// What is locked for nobody counts for who asks for it, with records and without.
#[rstest]
#[ignore = "needs namespaces: tests/run"]
fn locks_for_nobody_are_bounded_for_each_user(#[values(false, true)] records: bool) {
    let sandbox = two_ports();
    let _daemon = daemon_with(&sandbox, records);
    let taken = |user, name: &str, count: u32| {
        let line = |number| format!("lock {name}{number} {}", 90_000_000 + number);
        let lines: Vec<String> = (0..count).map(line).collect();
        over_tcp(&sandbox, user, &[&lines.join("\n")]).iter().filter(|code| *code == "200").count()
    };
    assert_eq!(taken(User::Bob, "ttyB", 300), 256);
    assert_eq!(over_tcp(&sandbox, User::Bob, &["wait ttyB998 90000998 0"]), ["550"]);
    assert_eq!(taken(User::Alice, "ttyA", 3), 3);
    // What he gives back he can have again.
    let again = ["unlock ttyB0 90000000", "lock ttyB0 90000000", "lock ttyB999 90000999"];
    assert_eq!(over_tcp(&sandbox, User::Bob, &again), ["200", "200", "550"]);
}
