//! The library in programs of users who mean harm, beside services that do not answer, and where
//! it has no business: real programs in a lock directory that only root and the service may write.

use rstest::rstest;
use testbed::{LIMIT, SOCKET, User, comes, until};

use crate::ground::{Ground, LOCK};
use crate::owed::service_of;

/// Makes the lock, says what came of it, and whether the name then shows a file.
const TAKE: &str = "
import os, errno
try:
    os.close(os.open('/run/lock/LCK..ttyW0', os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    print('TAKEN', end=' ')
except OSError as error: print(errno.errorcode[error.errno], end=' ')
print(os.path.exists('/run/lock/LCK..ttyW0'))
";

/// One user has it; the other can neither take nor remove it, whatever call he uses.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn another_user_can_neither_take_nor_remove_it() {
    let ground = Ground::served();
    let holds = format!("{TAKE}\nimport sys\nsys.stdout.flush()\nsys.stdin.readline()");
    let mut alice = ground.python(&holds, User::Alice).spawn();
    alice.expect("TAKEN True");
    let bob = "
import os, errno
lock = '/run/lock/LCK..ttyW0'
def say(call, *words):
    try: print(call.__name__, call(*words))
    except OSError as error: print(call.__name__, errno.errorcode[error.errno])
open('/run/lock/TMP1', 'w').write('%10d\\n' % os.getpid())
say(os.open, lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
say(os.open, lock, os.O_CREAT | os.O_WRONLY)
say(os.link, '/run/lock/TMP1', lock)
say(os.rename, '/run/lock/TMP1', lock)
say(os.unlink, lock)
say(os.remove, lock)
say(os.chmod, lock, 0o666)
";
    let end = ground.python(bob, User::Bob).run();
    let expected = "open EEXIST\nopen EACCES\nlink EEXIST\nrename EEXIST\nunlink EACCES\n\
                    remove EACCES\nchmod EPERM\n";
    assert_eq!(end.output(), expected, "{end}");
    assert_eq!(ground.holder(), Some(alice.pid()));
}

/// A temporary says whose lock it is to be: only one's own.
#[rstest]
#[case::of_another("'%10d\\n' % other", "EACCES")]
#[case::of_init("'         1\\n'", "EACCES")]
#[case::empty("''", "EINVAL")]
#[case::words("'minicom\\n'", "EINVAL")]
#[case::negative("'        -1\\n'", "EINVAL")]
#[case::huge("'9' * 1000000", "EINVAL")]
#[case::own("'%10d\\n' % os.getpid()", "0")]
#[ignore = "needs namespaces: tests/run"]
fn a_temporary_locks_for_its_own_user_only(#[case] content: &str, #[case] expected: &str) {
    let ground = Ground::served();
    let other = ground.sandbox.command("sleep").arg("1000").user(User::Bob).spawn();
    let script = format!(
        "import os, errno\nother = {}\n\
         with open('/run/lock/LTMP.1', 'w') as file: file.write({content})\n\
         try: os.link('/run/lock/LTMP.1', '/run/lock/LCK..ttyW0'); print(0)\n\
         except OSError as error: print(errno.errorcode[error.errno])\n\
         os.unlink('/run/lock/LTMP.1')",
        other.pid()
    );
    let end = ground.python(&script, User::Alice).run();
    assert_eq!(end.output(), format!("{expected}\n"), "{end}");
}

/// What is no regular file is not read, and nobody waits for it.
#[rstest]
#[case::fifo("os.mkfifo(place)")]
#[case::link("os.symlink('/home/alice/mine', place)")]
#[case::directory("os.mkdir(place)")]
#[ignore = "needs namespaces: tests/run"]
fn a_temporary_that_is_no_file_is_no_lock(#[case] make: &str) {
    let ground = Ground::served();
    let script = format!(
        "import os, errno\n\
         open('/home/alice/mine', 'w').write('%10d\\n' % os.getpid())\n\
         open('/run/lock/TMP1', 'w').close()\n\
         place = '/tmp/lfp-preload-1000/TMP1'\n\
         os.unlink(place)\n\
         {make}\n\
         try: os.link('/run/lock/TMP1', '/run/lock/LCK..ttyW0'); print(0)\n\
         except OSError as error: print(errno.errorcode[error.errno])"
    );
    let end = ground.python(&script, User::Alice).run();
    assert!(matches!(end.output(), "ENOENT\n" | "EINVAL\n"), "{end}");
    assert_eq!(ground.sandbox.locks(), [""; 0]);
}

/// The place for temporaries is the user's own or is not used; then there is another, which nobody can have
/// planted, and nobody is kept from locking.
#[rstest]
#[case::of_another("install -d -o bob -m 0777 /tmp/lfp-preload-1000")]
#[case::open_to_all("install -d -o alice -m 0777 /tmp/lfp-preload-1000")]
#[case::a_link("install -d -o bob -m 0777 /tmp/bobs; ln -s bobs /tmp/lfp-preload-1000")]
#[case::a_link_to_ones_own("install -d -o alice -m 0700 /tmp/as; ln -s as /tmp/lfp-preload-1000")]
#[case::a_file("touch /tmp/lfp-preload-1000")]
#[ignore = "needs namespaces: tests/run"]
fn a_planted_place_for_temporaries_is_not_used(#[case] plant: &str) {
    let ground = Ground::served();
    ground.sandbox.command("sh").args(["-ec", plant]).run().expect(0);
    let lock = "
import os
with open('/run/lock/TMP1', 'w') as file: file.write('%10d\\n' % os.getpid())
[place] = [name for name in os.listdir('/tmp') if os.path.exists('/tmp/' + name + '/TMP1')]
print(place.startswith('lfp-preload-1000.'), oct(os.stat('/tmp/' + place).st_mode), os.stat('/tmp/' + place).st_uid)
os.link('/run/lock/TMP1', '/run/lock/LCK..ttyW0')
os.unlink('/run/lock/TMP1')
print(os.path.exists('/tmp/' + place), os.path.exists('/run/lock/LCK..ttyW0'))
";
    let end = ground.python(lock, User::Alice).run();
    assert_eq!(end.output(), "True 0o40700 1000\nFalse True\n", "{end}");
}

/// Whatever the environment says, nobody gets what is not his.
#[rstest]
#[case::server_nowhere("LFP_SERVER", "unix:/nowhere", "EACCES False")]
#[case::server_odd("LFP_SERVER", "\u{1b}[2J", "EACCES False")]
#[case::server_elsewhere("LFP_SERVER", "192.0.2.1:50001", "EACCES False")]
#[case::server_empty("LFP_SERVER", "", "EACCES False")]
#[case::ports_odd("LFP_PORTS", "1::::/dev/nowhere:\u{7f}:", "TAKEN True")]
#[case::runtime_relative("XDG_RUNTIME_DIR", "tmp", "TAKEN True")]
#[case::runtime_nowhere("XDG_RUNTIME_DIR", "/nowhere", "TAKEN True")]
#[case::run_odd("LFP_RUN_PID", "-1", "TAKEN True")]
#[case::run_init("LFP_RUN_PID", "1", "TAKEN True")]
#[case::run_large("LFP_RUN_PID", "99999999999999999999", "TAKEN True")]
#[ignore = "needs namespaces: tests/run"]
fn a_hostile_environment_gives_nothing(
    #[case] name: &str,
    #[case] value: &str,
    #[case] expected: &str,
) {
    let ground = Ground::served();
    let end = ground.python(TAKE, User::Alice).env(name, value).run();
    assert_eq!(end.output(), format!("{expected}\n"), "{end}");
}

/// The process that `lfp run` locked for may be said to be anybody's: only of those that one
/// descends from it is believed.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_lock_of_another_is_not_adopted() {
    let ground = Ground::served();
    let holds = format!("{TAKE}\nimport sys\nsys.stdout.flush()\nsys.stdin.readline()");
    let mut bob = ground.python(&holds, User::Bob).spawn();
    bob.expect("TAKEN True");
    let pid = bob.pid().to_string();
    let end = ground.python(TAKE, User::Alice).env("LFP_RUN_PID", &pid).run();
    assert_eq!(end.output(), "EEXIST True\n", "{end}");
    assert_eq!(ground.holder(), Some(bob.pid()));
}

/// `echo 1 >/run/lock/LCK..ttyS0` is how an administrator reserves a console. Every process descends from that one, and no
/// program takes its lock for one of its own.
#[rstest]
#[case::the_file(TAKE, "EEXIST True\n")]
#[case::the_port(
    "import os\ntry: os.open('/dev/ttyW0', os.O_RDWR | os.O_NOCTTY); print('OPEN')\nexcept OSError: print('BUSY')",
    "BUSY\n"
)]
#[ignore = "needs namespaces: tests/run"]
fn a_lock_of_process_1_is_nobodys(#[case] program: &str, #[case] expected: &str) {
    let ground = Ground::served();
    ground.sandbox.write(LOCK, "1\n", 0o644);
    // The one that called it ends first, so that its parent is that process.
    let orphan = "import os, time\nwhile os.getppid() != 1: time.sleep(0.01)";
    let script = "(exec /usr/bin/python3 -c \"$PROGRAM\" >/tmp/said 2>/tmp/why) &";
    let shell = ground.shell(script, User::Alice).env("LFP_RUN_PID", "1");
    let shell = shell.env("PROGRAM", &format!("{orphan}\n{program}"));
    shell.env("LFP_PORTS", "1:/dev/ttyW0").run().expect(0);
    let said = || Some(ground.sandbox.text("/tmp/said")).filter(|it| it.ends_with('\n'));
    assert_eq!(until(LIMIT, said).as_deref(), Some(expected));
    assert!(ground.sandbox.read(LOCK).is_some_and(|it| it == b"1\n"));
}

/// The loader leaves it out where a program has more rights than its user.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_setuid_program_does_without_it() {
    let ground = Ground::served();
    let install = "install -o alice -m 4755 /usr/bin/touch /tmp/touch";
    assert_eq!(ground.sandbox.command("sh").args(["-c", install]).run().code(), 0);
    let touch = |program: &str| ground.preloaded(&[program, LOCK]).user(User::Bob).run();
    let end = touch("/tmp/touch");
    assert!(end.code() == 1 && end.said("Permission denied"), "{end}");
    let end = touch("/usr/bin/touch");
    assert_eq!(end.code(), 0, "the same without the bit: {end}");
    assert!(comes(|| ground.sandbox.read(LOCK).is_none()), "its process is gone");
}

/// A service that accepts and never answers, one that breaks off, one that talks nonsense, and a
/// stranger at the usual place.
#[rstest]
#[case::silent("import time; time.sleep(1000)")]
#[case::breaks_off("peer.sendall(b'220 x\\r\\n')")]
#[case::closes("pass")]
#[case::nonsense("peer.sendall(b'HTTP/1.1 400 Bad Request\\r\\n' * 1000)")]
#[case::endless("\n  try:\n    while True: peer.sendall(b'2' * 4096)\n  except OSError: pass")]
#[case::busy("peer.sendall(b'421 later\\r\\n')")]
#[ignore = "needs namespaces: tests/run"]
fn a_service_that_answers_nonsense_counts_as_absent(#[case] behaviour: &str) {
    let ground = Ground::new();
    let script = format!(
        "import socket, signal, sys\nservice = socket.socket(socket.AF_UNIX)\n\
         service.bind('/tmp/bad.sock')\nservice.listen(1)\nprint('listens', flush=True)\n\
         while True:\n  peer = service.accept()[0]; print('asked', flush=True)\n  {behaviour}\n  \
         peer.close()"
    );
    let mut service = ground.sandbox.command("/usr/bin/python3").args(["-c", &script]).spawn();
    service.expect("listens");
    let opened = ground.sandbox.command("chmod").args(["666", "/tmp/bad.sock"]).run();
    assert_eq!(opened.code(), 0);
    // touch(1) leaves SIGPIPE as it is.
    let touch = ground.shell("for i in 1 2 3; do touch /run/lock/LCK..ttyW0; done", User::Alice);
    let end = touch.env("LFP_SERVER", "/tmp/bad.sock").env("LFP_TIMEOUT", "1").run();
    assert!(end.code() == 1 && end.output().matches("Permission denied").count() == 3, "{end}");
    // In one process a service that hangs is left alone for a second, then for two.
    let asked = service.output().matches("asked").count();
    let many = format!("for i in range(5):\n  {}", TAKE.trim().replace('\n', "\n  "));
    let python = ground.python(&many, User::Alice).env("LFP_TIMEOUT", "1");
    let end = python.env("LFP_SERVER", "/tmp/bad.sock").run();
    assert_eq!(end.output(), "EACCES False\n".repeat(5), "{end}");
    if behaviour.contains("sleep") {
        assert!(service.output().matches("asked").count() <= asked + 2, "{}", service.output());
    }
}

#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_stranger_at_the_usual_socket_is_not_asked() {
    let ground = Ground::new();
    ground.sandbox.command("chmod").args(["1777", "/run/lfpd"]).run().expect(0);
    let bob = service_of(&ground, User::Bob, SOCKET, &["now"]);
    let end = ground.python(TAKE, User::Alice).run();
    assert_eq!(end.output(), "EACCES False\n", "{end}");
    assert!(!bob.output().contains("LOCK"), "{}", bob.output());
}
