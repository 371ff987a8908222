//! A C program that was compiled against our header and links `liblockdev.so.1`, and lockdev(8),
//! against the real service, as ordinary users in a lock directory that only root may write.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails where it stands"
)]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use rstest::rstest;
use testbed::{LIMIT, Process, Sandbox, User, comes, until};

const PORT: &str = "/dev/ttyW0";
const LOCKDEV: &str = "/run/test/lockdev";

/// The library, in a directory of the names that the compiler and the loader look for; and the
/// program.
fn compiled() -> (tempfile::TempDir, PathBuf) {
    let library = testbed::library("liblockdev", "liblockdev");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join("consumer");
    for name in ["liblockdev.so", "liblockdev.so.1"] {
        std::os::unix::fs::symlink(&library, place.path().join(name)).unwrap();
    }
    let output = Command::new("cc")
        .args(["-std=c99", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(here.join("include"))
        .arg(here.join("tests/consumer.c"))
        .arg("-L")
        .arg(place.path())
        .args(["-llockdev", "-o"])
        .arg(&program)
        .output()
        .expect("cc");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (place, program)
}

struct Ground {
    sandbox: Sandbox,
    _place: tempfile::TempDir,
}

impl Ground {
    fn new() -> Self {
        let (place, program) = compiled();
        let sandbox = Sandbox::layout()
            .port("ttyW0")
            .link("modemW", "ttyW0")
            .installed()
            .bring("lockdev", env!("CARGO_BIN_EXE_lockdev"))
            .bring("lib/liblockdev.so.1", testbed::library("liblockdev", "liblockdev"))
            .bring("consumer", program)
            .enter();
        Self { sandbox, _place: place }
    }

    fn serve(&self) -> Process<'_> {
        self.sandbox.serve(User::Lfpd, &[])
    }

    fn consumer(&self, device: &str, user: User) -> Consumer<'_> {
        let command = self.sandbox.command("/run/test/consumer").arg(device).user(user);
        let mut process = command.env("LD_LIBRARY_PATH", "/run/test/lib").spawn();
        process.expect("pid ");
        Consumer { pid: process.pid(), process, asked: 1 }
    }

    fn lockdev(&self, words: &[&str], user: User) -> i32 {
        // The shell is the parent, and says what it gave.
        let script = format!("{LOCKDEV} \"$@\"; echo $?");
        let command = self.sandbox.command("sh").args(["-c", &script, "sh"]).args(words);
        let end = command.user(user).run();
        end.output().lines().last().unwrap().parse().unwrap()
    }

    fn locks(&self) -> Vec<String> {
        self.sandbox.locks()
    }
}

struct Consumer<'a> {
    pid: u32,
    process: Process<'a>,
    asked: usize,
}

impl Consumer<'_> {
    /// What a call gives, and errno.
    fn call(&mut self, line: &str) -> (i64, i32) {
        self.process.type_in(&format!("{line}\n"));
        let said = until(LIMIT, || {
            let output = self.process.output();
            let answer = output.lines().nth(self.asked)?;
            let is_whole = output.ends_with('\n') || output.lines().count() > self.asked + 1;
            is_whole.then(|| answer.to_owned())
        });
        self.asked += 1;
        let said = said.unwrap_or_else(|| panic!("{line}: {}", self.process.output()));
        let mut words = said.split(' ').skip(1);
        let mut next = || words.next().unwrap().to_owned();
        (next().parse().unwrap(), next().parse().unwrap())
    }
}

#[test]
#[ignore = "needs namespaces: tests/run"]
fn two_programs_agree() {
    let ground = Ground::new();
    let _daemon = ground.serve();
    let mut alice = ground.consumer(PORT, User::Alice);
    let mut bob = ground.consumer("modemW", User::Bob);

    assert_eq!(alice.call("test"), (0, 0));
    assert_eq!(alice.call("lock"), (0, 0));
    let lock = ground.sandbox.read("/run/lock/LCK..ttyW0").unwrap();
    assert_eq!(String::from_utf8_lossy(&lock), format!("{:10}\n", alice.pid));
    let holder = i64::from(alice.pid);
    assert_eq!(alice.call("lock"), (0, 0), "it has it already");
    assert_eq!(bob.call("test"), (holder, 0), "by another name");
    assert_eq!(bob.call("lock"), (holder, 0));
    assert_eq!(bob.call("unlock 0").0, -1, "not his to release");
    assert_eq!(bob.call(&format!("unlock {holder}")), (-1, libc::EACCES));
    assert_eq!(bob.call(&format!("relock {holder}")), (-1, libc::EACCES));
    assert_eq!(bob.call("ttylock").0, -1);
    assert_eq!(bob.call("ttylocked").0, -1);

    assert_eq!(alice.call("unlock 0"), (0, 0));
    assert_eq!(alice.call("unlock 0"), (0, 0), "nothing there");
    assert_eq!(ground.locks(), [""; 0]);
}

#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_lock_goes_from_one_process_to_another() {
    let ground = Ground::new();
    let _daemon = ground.serve();
    let mut parent = ground.consumer(PORT, User::Alice);
    let mut child = ground.consumer(PORT, User::Alice);
    assert_eq!(parent.call("lock"), (0, 0));
    assert_eq!(child.call(&format!("relock {}", parent.pid)), (0, 0));
    let lock = ground.sandbox.read("/run/lock/LCK..ttyW0").unwrap();
    assert_eq!(String::from_utf8_lossy(&lock), format!("{:10}\n", child.pid));
    assert_eq!(parent.call("relock 0"), (0, 0));

    // For another process, as lockdev(8) does it.
    assert_eq!(parent.call("unlock 0"), (0, 0));
    assert_eq!(parent.call(&format!("setpid {}", child.pid)), (0, 0));
    assert_eq!(parent.call("lock"), (0, 0));
    assert_eq!(parent.call("setpid 0"), (i64::from(child.pid), 0));
    assert_eq!(parent.call("lock"), (i64::from(child.pid), 0));
    child.process.kill();
    assert!(comes(|| parent.call("test") == (0, 0)), "a dead process has nothing");
}

/// What the old library gives, by its documentation (lockdev(3) and the comment of its source, 1.0.3): what is
/// called, while nobody has the device, while the caller has it, and while another has it. `H` is the other.
const ORIGINAL: &str = "
call              free  own  held
test              0     H0   H
lock              0     0    H
relock 0          0     0    0
relock other      0     H0   0
relock 1          0     H0   H
unlock 0          0     0    0
unlock own        0     0    H
unlock other      0     H0   0
ttylock           0     0    -1
ttylocked         0     -1   -1
ttyunlock         0     0    0
ttylock_helper    0     0    1
ttylocked_helper  0     1    1
ttyunlock_helper  0     0    1
";

/// Function by function. `H0` is the caller itself. Both processes are one user's, as they had to be of one group.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn results_are_those_of_the_old_library() {
    let ground = Ground::new();
    let _daemon = ground.serve();
    let mut own = ground.consumer(PORT, User::Alice);
    let mut other = ground.consumer(PORT, User::Alice);
    for line in ORIGINAL.trim().lines().skip(1) {
        let (call, expected) = line.split_at(18);
        let call = call.trim();
        let words = expected.split_whitespace();
        for (state, expected) in ["free", "own", "held"].into_iter().zip(words) {
            match state {
                "own" => assert_eq!(own.call("lock"), (0, 0), "{line}"),
                "held" => assert_eq!(other.call("lock"), (0, 0), "{line}"),
                _ => {}
            }
            let expected = match expected {
                "H" => i64::from(other.pid),
                "H0" => i64::from(own.pid),
                number => number.parse().unwrap(),
            };
            let spelled = call.replace("own", &own.pid.to_string());
            let spelled = spelled.replace("other", &other.pid.to_string());
            assert_eq!(own.call(&spelled).0, expected, "{call} while {state}");
            assert_eq!(own.call("unlock 0"), (0, 0), "{call} while {state}");
            assert_eq!(ground.locks(), [""; 0]);
        }
    }
    assert_eq!(own.call("ttywait_helper"), (0, 0));
}

/// A program that is just writing its lock file, or whose file says something else, keeps everybody out.
#[rstest]
#[case::empty("")]
#[case::wordy("minicom\n")]
#[ignore = "needs namespaces: tests/run"]
fn a_lock_that_names_no_process_keeps_everybody_out(#[case] content: &str) {
    let ground = Ground::new();
    let _daemon = ground.serve();
    let mut own = ground.consumer(PORT, User::Alice);
    ground.sandbox.write("/run/lock/LCK..ttyW0", content, 0o644);
    // It is being written for as long as the test takes.
    let path = ground.sandbox.path("/run/lock/LCK..ttyW0");
    let touch = || File::options().write(true).open(&path)?.set_modified(SystemTime::now());
    for call in ["test", "lock", "relock 0", "relock own", "relock 1", "unlock 0", "unlock own"] {
        let call = call.replace("own", &own.pid.to_string());
        touch().unwrap();
        assert_eq!(own.call(&call), (-1, libc::EBUSY), "{call}");
    }
    for call in ["ttylock", "ttylocked", "ttyunlock"] {
        touch().unwrap();
        assert_eq!(own.call(call), (-1, libc::EBUSY), "{call}");
    }
    for call in ["ttylock_helper", "ttylocked_helper", "ttyunlock_helper"] {
        touch().unwrap();
        assert_eq!(own.call(call).0, 1, "{call}");
    }
    for words in [&["-l", PORT][..], &["-u", PORT], &[PORT]] {
        touch().unwrap();
        assert_eq!(ground.lockdev(words, User::Alice), 1, "{words:?}");
    }
    touch().unwrap();
    own.process.type_in("ttywait\n");
    std::fs::remove_file(&path).unwrap();
    own.process.expect("ttywait 0 ");
    own.asked += 1;
    assert_eq!(own.call("test"), (0, 0));
}

/// Distributed programs import these, and do not start without them.
#[test]
fn the_symbols_of_the_old_library_are_there() {
    let library = testbed::library("liblockdev", "liblockdev");
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().unwrap();
    let symbols = String::from_utf8_lossy(&output.stdout).into_owned();
    let names: Vec<&str> = symbols.lines().filter_map(|line| line.split(' ').next_back()).collect();
    for name in "dev_getpid dev_lock dev_relock dev_setpid dev_testlock dev_unlock liblockdev_incr_debug \
                 liblockdev_reset_debug ttylock ttylock_helper ttylocked ttylocked_helper ttyunlock \
                 ttyunlock_helper ttywait ttywait_helper"
        .split_whitespace()
    {
        assert!(names.contains(&name), "{name}");
    }
}

/// For a name of nothing, the old library gave the negated errno, which a program that compares with -1 takes for a lock.
/// The null device is no port: the old library locked it.
#[rstest]
#[case::missing("/dev/nosuch", "lock", libc::ENOENT)]
#[case::missing_and_asked_for("/dev/nosuch", "test", libc::ENOENT)]
#[case::empty("", "lock", libc::EINVAL)]
#[case::empty_and_asked_for("", "test", libc::EINVAL)]
#[case::the_null_device("/dev/null", "lock", libc::EACCES)]
#[case::no_device("/etc/passwd", "lock", libc::EINVAL)]
#[case::null(PORT, "null", libc::EFAULT)]
#[case::no_process(PORT, "unlock -5", libc::EINVAL)]
#[ignore = "needs namespaces: tests/run"]
fn impossible_arguments_are_errors(#[case] device: &str, #[case] call: &str, #[case] errno: i32) {
    let ground = Ground::new();
    let _daemon = ground.serve();
    let mut consumer = ground.consumer(device, User::Alice);
    assert_eq!(consumer.call(call), (-1, errno));
}

#[test]
#[ignore = "needs namespaces: tests/run"]
fn without_a_service_nothing_is_locked() {
    let ground = Ground::new();
    let mut consumer = ground.consumer(PORT, User::Alice);
    assert_eq!(consumer.call("lock"), (-1, libc::ECONNREFUSED));
    let script = format!("{LOCKDEV} -l {PORT} 2>&1; echo $?");
    let end = ground.sandbox.command("sh").args(["-c", &script]).user(User::Alice).run();
    let said = end.output();
    let expected =
        format!("lockdev: {PORT}: the lock file service cannot be reached (is lfpd running?)");
    assert!(said.starts_with(&expected) && said.ends_with("\n255\n"), "{said}");
    assert_eq!(ground.locks(), [""; 0]);
}

#[test]
#[ignore = "needs namespaces: tests/run"]
fn lockdev_acts_for_the_process_that_started_it() {
    let ground = Ground::new();
    let _daemon = ground.serve();
    let script = format!(
        "{LOCKDEV} {PORT}; echo free $?; {LOCKDEV} -l {PORT}; echo locked $?; {LOCKDEV} {PORT}; \
         echo tested $?; echo pid $$; read go; {LOCKDEV} -u {PORT}; echo unlocked $?; read end"
    );
    let mut alice = ground.sandbox.command("sh").args(["-c", &script]).user(User::Alice).spawn();
    alice.expect("pid ");
    let expected = format!("free 0\nlocked 0\ntested 1\npid {}\n", alice.pid());
    assert_eq!(alice.output(), expected);
    let lock = ground.sandbox.read("/run/lock/LCK..ttyW0").unwrap();
    assert_eq!(String::from_utf8_lossy(&lock), format!("{:10}\n", alice.pid()));
    assert_eq!(ground.lockdev(&["-l", "modemW"], User::Bob), 1);
    assert_eq!(ground.lockdev(&["-u", PORT], User::Bob), 1);
    assert_eq!(ground.lockdev(&["-l", "/dev/no-such-port"], User::Bob), 7);
    assert_eq!(ground.lockdev(&["-l", "/etc/passwd"], User::Bob), 5);
    assert_eq!(ground.lockdev(&["-x", PORT], User::Bob), 255);
    alice.type_in("\n");
    alice.expect("unlocked 0");
    assert_eq!(ground.locks(), [""; 0]);
}
