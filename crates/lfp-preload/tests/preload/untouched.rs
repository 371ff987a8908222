//! What the library has no business with is as without it, byte for byte: output, exit code and
//! errno of shells, Python, Java, make and a compiler, in both modes.

use rstest::rstest;
use testbed::{Command, User};

use crate::ground::{Ground, LIBRARY, LOCK, PORT};

const BASH: &str = r#"
set -u; cd "$(mktemp -d)"
printf '%s\n' c a b >list; sort <list >sorted; cat sorted - <<<'here'
exec 7<>both; echo seven >&7; exec 7>&-; cat both
diff <(sort list) <(sort -r list) | grep -c '^[<>]'
ln -s list link; readlink link; test -r link && echo readable; stat -c '%s %F' link list
mkdir -p d/e; touch d/e/f; find . | sort; cp -a d g; mv g h; rm -r h; ls -A
umask 077; : >private; stat -c %a private; chmod 640 private; stat -c %a private
cat missing; echo $?; cat d; echo $?; : >list/x; echo $?; ls /run/lock; cat /run/lock/none; echo $?
( exec 5<list; read -r line <&5; echo "$line"; exec 5<&-; read -r line <&5 ) ; echo $?
f=$(mktemp -u pattern.XXXXXX); echo ${#f}; tar cf - d | tar tf -
exit 7
"#;

const PYTHON: &str = r#"
import ctypes, errno, os, subprocess, sys, tempfile
libc = ctypes.CDLL(None, use_errno=True)
def c(name, *words):
    ctypes.set_errno(0)
    result = getattr(libc, name)(*words)
    print(name, [word for word in words if word is not buffer], result if result < 3 else 'fd', errno.errorcode.get(ctypes.get_errno()))
    if name.startswith('open') and result >= 0: os.close(result)
os.chdir(tempfile.mkdtemp())
buffer = ctypes.create_string_buffer(1024)
for path in None, 1, b'', b'none', b'/etc/hostname/x', b'x' * 300, b'/root/x', b'/var/lock/../x', b'/run/lock/sub/x', b'/run/lock/LCK..no-such-device':
    c('open', path, 0); c('open64', path, os.O_WRONLY); c('creat', path, 0o600)
    c('open', path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o640)
    c('openat', -100, path, os.O_DIRECTORY); c('openat', -1, path, 0)
    c('stat', path, buffer); c('lstat', path, buffer); c('fstatat', 99, path, buffer, 0)
    c('access', path, 4); c('access', path, 2); c('faccessat', -100, path, 0, 0x1000); c('euidaccess', path, 2)
    c('unlink', path); c('remove', path); c('unlinkat', -100, path, 0x200)
    c('link', path, b'y'); c('link', b'y', path); c('rename', path, b'z'); c('rename', b'none', path)
    c('linkat', -100, path, -100, b'w', 0); c('renameat', 5, path, 6, path); c('renameat2', -100, path, -100, path, 1)
    c('chmod', path, 0o600); c('fchmodat', -100, path, 0o600, 0); c('chown', path, -1, -1); c('lchown', path, 0, 0)
    c('utime', path, None); c('utimes', path, None); c('utimensat', -100, path, None, 0)
c('close', -1); c('close', 999); c('dup2', 999, 5); c('dup3', 0, 0, 0); c('close_range', 500, 400, 0)
c('open', b'made', os.O_CREAT | os.O_WRONLY, 0o4751); print(oct(os.stat('made').st_mode))
libc.fopen.restype = ctypes.c_void_p
for mode in b'r', b'w', b'a+', b'wx', b'rw', b'q', b'':
    for path in b'made', b'none/x', b'/run/lock/LCK..no-such-device':
        ctypes.set_errno(0); stream = libc.fopen(path, mode)
        print(mode, path, bool(stream), errno.errorcode.get(ctypes.get_errno()))
        if stream: libc.fclose(ctypes.c_void_p(stream))
template = ctypes.create_string_buffer(b'tempXXXXXX'); fd = libc.mkstemp(template); print(fd > 2, len(template.value))
for text in b'temp', b'/none/XXXXXX', b'/root/XXXXXX':
    ctypes.set_errno(0)
    print(libc.mkstemp(ctypes.create_string_buffer(text)), errno.errorcode.get(ctypes.get_errno()))
for root, directories, files in sorted(os.walk('/etc/terminfo')): print(root, sorted(files))
print(subprocess.run(['sh', '-c', 'cat; exit 3'], input=b'in', capture_output=True))
print(sorted(os.listdir('/proc/self/fd')))
with open('/dev/null', 'rb+') as null, open('/dev/zero', 'rb') as zero: null.write(zero.read(9))
sys.exit(5)
"#;

const MAKE: &str = r#"
cd "$(mktemp -d)"
cat >hello.c <<'C'
#include <stdio.h>
int main(void) { return puts("hello") < 0; }
C
printf 'all: hello\n\t./hello\nhello: hello.c\n\tcc -o $@ $<\n' >Makefile
make; make; touch hello.c; make -j2; make none; echo $?
"#;

const JAVA: &str = r#"
cd "$(mktemp -d)"
cat >Files.java <<'J'
import java.nio.file.*;
public class Files {
    public static void main(String[] words) throws Exception {
        Path file = Path.of("text");
        java.nio.file.Files.writeString(file, "text");
        System.out.println(java.nio.file.Files.readString(file) + java.nio.file.Files.size(file));
        java.nio.file.Files.move(file, Path.of("moved"));
        java.nio.file.Files.delete(Path.of("moved"));
        try (var stream = new java.io.FileInputStream("none")) { }
        catch (java.io.FileNotFoundException error) { System.out.println(error.getMessage()); }
        System.exit(9);
    }
}
J
java -XX:TieredStopAtLevel=1 Files.java
"#;

#[rstest]
#[case::bash(&["bash", "-c", BASH], 7)]
#[case::python(&["/usr/bin/python3", "-u", "-c", PYTHON], 5)]
#[case::make(&["bash", "-c", MAKE], 0)]
#[case::java(&["bash", "-c", JAVA], 9)]
#[ignore = "needs namespaces: tests/run"]
fn programs_are_as_without_it(#[case] words: &[&str], #[case] code: i32) {
    let ground = Ground::served();
    let without = ground.sandbox.command("env").arg("LD_PRELOAD=").args(words);
    let without = without.user(User::Alice).env("LFP_PORTS", "1").run();
    assert_eq!(without.code(), code, "{without}");
    let without = named(without.output());
    for ports in ["0", "1"] {
        let with = ground.preloaded(words).user(User::Alice).env("LFP_PORTS", ports).run();
        let text = named(with.output());
        let lines = text.lines().zip(without.lines());
        let differing: Vec<_> = lines.filter(|(with, without)| with != without).collect();
        assert_eq!(differing, [], "{}", with.output().replace(LIBRARY, ""));
        assert_eq!((text.len(), with.code()), (without.len(), code), "{with}");
    }
}

/// Names that mktemp(1) makes differ each time.
fn named(output: &str) -> String {
    let mut text = String::new();
    for (number, part) in output.split("/tmp/").enumerate() {
        if number > 0 {
            text.push_str("/tmp/");
        }
        let random = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '_');
        text.push_str(if number > 0 { &part[random.unwrap_or(part.len())..] } else { part });
    }
    text
}

/// A program that locks finds no descriptor among its own that it has not asked for.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn no_descriptor_is_left_behind() {
    let ground = Ground::served();
    let script = "
import os
before = sorted(os.listdir('/proc/self/fd'))
lock = os.open('/run/lock/LCK..ttyW0', os.O_CREAT | os.O_EXCL | os.O_WRONLY)
os.write(lock, b'%10d\\n' % os.getpid())
os.close(lock)
os.stat('/run/lock/LCK..ttyW0')
os.unlink('/run/lock/LCK..ttyW0')
port = os.open('/dev/ttyW0', os.O_RDWR | os.O_NOCTTY)
copy = os.dup(port)
os.close(port)
print('LCK..ttyW0' in os.listdir('/run/lock'))
os.close(copy)
print(os.listdir('/run/lock'))
print(before == sorted(os.listdir('/proc/self/fd')))
";
    let command: Command<'_> = ground.python(script, User::Alice);
    let end = command.env("LFP_PORTS", "1:/dev/ttyW0").run();
    assert_eq!(end.output(), "True\n[]\nTrue\n", "{end}");
}

/// freopen(3) closes and opens by itself: it does not go through the other functions of the C library. posix_spawn(3)
/// opens files for a new process without a lock, as BUGS in the manual says.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn ports_that_are_opened_by_other_calls() {
    let ground = Ground::with_program("reopened");
    let _daemon = ground.serve();
    let command = ground.preloaded(&["/tmp/reopened", PORT, LOCK]).user(User::Alice);
    let end = command.env("LFP_PORTS", &format!("1:{PORT}")).run();
    let expected = "nothing done, free\nfreopen done, locked\nfreopen again done, locked\n\
                    freopen of another file done, free\n/dev/ttyW0\naddopen done, free\n";
    assert_eq!(end.output(), expected, "{end}");
}

/// A process that cannot open a port does not get its lock by trying.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_port_that_cannot_be_opened_is_not_kept() {
    let ground = Ground::served();
    let script = "
import os, errno
try: os.open('/dev/link', os.O_RDWR | os.O_NOFOLLOW)
except OSError as error: print(errno.errorcode[error.errno])
print(os.path.exists('/run/lock/LCK..ttyW0'))
";
    ground.sandbox.command("ln").args(["-s", "ttyW0", "/dev/link"]).run().expect(0);
    let end = ground.python(script, User::Alice).env("LFP_PORTS", "1:/dev/ttyW0").run();
    assert_eq!(end.output(), "ELOOP\nFalse\n", "{end}");
}

/// A shell that has a port open for the program that it starts may do so; but not where somebody else
/// has the lock, and the shell merely has the port open.
#[rstest]
#[case::of_the_parent("$$", "0", "1777", "open\n")]
#[case::of_a_third("$third", "0", "1777", "EBUSY\n")]
#[case::of_the_parent_by_another_user("$$", "1003", "1777", "EBUSY\n")]
#[case::of_the_parent_in_a_closed_directory("$$", "1003", "755", "open\n")]
#[ignore = "needs namespaces: tests/run"]
fn a_process_with_the_port_open_is_not_its_holder(
    #[case] holder: &str,
    #[case] owner: &str,
    #[case] mode: &str,
    #[case] said: &str,
) {
    let ground = Ground::new();
    // Root sees who has which port open.
    let _daemon = ground.sandbox.serve(User::Root, &[]);
    let program = "
import os, errno
try: os.open('/dev/ttyW0', os.O_RDWR | os.O_NOCTTY); print('open')
except OSError as error: print(errno.errorcode[error.errno])
";
    let line = format!(
        "sleep 1000 3>&- & third=$!; exec 3<>/dev/ttyW0; printf '%10d\\n' {holder} >{LOCK}; \
         chown {owner} {LOCK}; chmod {mode} /run/lock; LD_PRELOAD={LIBRARY} LFP_PORTS=1:/dev/ttyW0 LFP_TIMEOUT=30 \
         /usr/bin/python3 -c \"$PROGRAM\"; kill $third"
    );
    let shell = ground.sandbox.command("bash").args(["-c", &line]).env("PROGRAM", program);
    let end = shell.run();
    assert_eq!(end.output(), said, "{end}");
}

/// Where all users may write the lock directory, one of them may put a file there that names the program itself.
#[rstest]
#[case::its_own(0, 0o1777, "open\n")]
#[case::another_users(1003, 0o1777, "EBUSY\n")]
#[case::in_a_closed_directory(1003, 0o755, "open\n")]
#[ignore = "needs namespaces: tests/run"]
fn a_file_that_another_user_has_planted_is_not_the_programs(
    #[case] owner: u32,
    #[case] mode: u32,
    #[case] said: &str,
) {
    let ground = Ground::served();
    let program = format!(
        "
import os, errno
with open('{LOCK}', 'w') as file: file.write('%10d\\n' % os.getpid())
os.chown('{LOCK}', {owner}, -1)
os.chmod('/run/lock', {mode})
try: os.open('/dev/ttyW0', os.O_RDWR | os.O_NOCTTY); print('open')
except OSError as error: print(errno.errorcode[error.errno])
"
    );
    let end = ground.python(&program, User::Root).env("LFP_PORTS", "1:/dev/ttyW0").run();
    assert_eq!(end.output(), said, "{end}");
}

/// Without a service, ports are opened all the same, and each time that is said.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn without_a_service_a_port_is_open_and_that_is_said() {
    let ground = Ground::new();
    let script = "exec 3<>/dev/ttyW0; exec 4<>/dev/ttyW0; echo open";
    let command = ground.preloaded(&["bash", "-c", script]).user(User::Alice);
    let end = command.env("LFP_PORTS", "1:/dev/ttyW0").run();
    let said = "lfp: no lock for /dev/ttyW0: the service does not answer\n";
    let expected = format!("{said}{said}open\n");
    assert_eq!((end.output(), end.code()), (expected.as_str(), 0), "{end}");
}

/// What signal handlers may call (signal-safety(7)) allocates nothing: the program may have been
/// interrupted while it was allocating.
#[rstest]
#[case::files("0", &[])]
#[case::ports("1", &[])]
#[case::a_port_is_open("1:/dev/ttyW0", &["/dev/ttyW0"])]
#[ignore = "needs namespaces: tests/run"]
fn signal_handlers_may_name_and_close_files(#[case] ports: &str, #[case] port: &[&str]) {
    let ground = Ground::with_program("handlers");
    let _daemon = ground.serve();
    let handlers = || {
        let command = ground.preloaded(&[&["/tmp/handlers", "names"], port].concat());
        command.user(User::Alice).env("LFP_PORTS", ports)
    };
    let end = handlers().run().expect(0);
    assert_eq!(end.output(), "begins\ndone\n", "{end}");

    // Nor does it look for symbols then, which takes a lock and much of a small stack.
    let end = handlers().env("LD_BIND_NOW", "1").env("LD_DEBUG", "bindings").run();
    let (before, after) = end.output().split_once("begins\n").unwrap_or_default();
    let bound = |text: &str| text.matches(&format!("binding file {LIBRARY} ")).count();
    assert!(bound(before) > 0 && bound(after) == 0, "{after}");
}
