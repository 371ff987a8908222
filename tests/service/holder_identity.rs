//! Which process has a lock, and whether it is still the same one: real pid, mount and time namespaces, numbers
//! that were given out again, zombies. Needs root and util-linux (unshare).

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rstest::rstest;
use testbed::{Ground, Holder, comes, own, program};

use crate::wire::Wire;

/// The answer of a service that is started for one question.
fn asked(ground: &Ground, line: &str) -> String {
    let wire = Wire::greeted(ground);
    let answer = wire.ask(line);
    wire.finish();
    answer.get(..3).unwrap().to_owned()
}

/// Whether this is the machine's own pid namespace, from which all processes can be seen.
fn all_is_seen() -> bool {
    fs::read_link("/proc/self/ns/pid").unwrap().to_str() == Some("pid:[4026531836]")
}

/// Starts a command in a pid namespace of its own. All processes of the namespace end with it.
fn in_pid_namespace() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    command
}

/// A container whose first process has a lock, by a service of its own on the same directories.
fn container(ground: &Ground, device: &str, namespaces: &[&str], furniture: &str) -> Holder {
    let lfpd = words(&ground.command());
    let script = format!(
        "{furniture}
         printf 'lock {device} %s\\r\\n' $$ | {lfpd} | sed -n 's/^\\(...\\) .*/\\1/p' | tail -n 1
         exec sleep 1000"
    );
    let mut command = in_pid_namespace();
    let (container, said) = Holder::saying(command.args(namespaces).args(["sh", "-c", &script]));
    assert_eq!(said, "200\n", "{device}");
    container
}

/// With its first process, and so with all of them.
fn end(container: Holder) {
    let id = container.pid();
    let first = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    drop(container);
    let first = PathBuf::from("/proc").join(first.trim());
    assert!(comes(|| !first.exists()), "its end");
}

/// A command as a shell reads it; no word of ours has a quote.
fn words(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| format!("'{}'", word.to_str().unwrap())).collect::<Vec<_>>().join(" ")
}

/// A file that says what the kernel calls this boot, of another one.
fn another_boot(ground: &Ground) -> PathBuf {
    let path = ground.path("boot_id");
    fs::write(&path, "00000000-0000-4000-8000-000000000000\n").unwrap();
    path
}

/// As systemd-nspawn and LXC have it. The number of the holder means another process here, or none.
#[rstest]
#[case::of_this_boot(&[], "")]
#[case::of_a_boot_of_its_own(&[], "mount --bind $BOOT /proc/sys/kernel/random/boot_id")]
#[case::of_another_time(&["--time", "--boottime", "86400"], "")]
#[case::of_another_user(&["--user", "--map-root-user"], "")]
#[ignore = "needs root: tests/run"]
fn a_container_keeps_its_lock_as_long_as_it_lives(
    #[case] namespaces: &[&str],
    #[case] furniture: &str,
) {
    let ground = Ground::new();
    let boot = another_boot(&ground);
    let furniture = furniture.replace("$BOOT", boot.to_str().unwrap());
    let container = container(&ground, "ttyS77", namespaces, &furniture);
    let lock = format!("lock ttyS77 {}", own());
    assert_eq!(asked(&ground, &lock), "450");
    assert_eq!(asked(&ground, "unlock ttyS77 1"), "450", "another process has this number here");
    end(container);
    assert_eq!(asked(&ground, &lock), if all_is_seen() { "200" } else { "450" });
}

/// From inside, the machine's own lock cannot be judged, whatever the boot is called there.
#[test]
#[ignore = "needs root: tests/run"]
fn a_container_leaves_the_lock_of_the_machine_alone() {
    let ground = Ground::new();
    let boot = another_boot(&ground);
    let holder = Holder::new();
    assert_eq!(asked(&ground, &format!("lock ttyS77 {}", holder.pid())), "200");
    let furniture = format!(
        "mount --bind {} /proc/sys/kernel/random/boot_id
         printf 'lock ttyS77 1\\r\\n' | {} | grep -q ^450 || exit 1",
        boot.display(),
        words(&ground.command())
    );
    end(container(&ground, "ttyS78", &[], &furniture));
}

/// The dead container's lock is no longer in the way of the administrator either.
#[test]
#[ignore = "needs root: tests/run"]
fn the_lock_of_a_dead_container_is_taken_by_force() {
    let ground = Ground::new();
    end(container(&ground, "ttyS77", &[], ""));
    assert_eq!(asked(&ground, "force ttyS77 1"), if all_is_seen() { "200" } else { "450" });
    assert_eq!(ground.locks().is_empty(), all_is_seen());
}

/// The start time of a process reads differently in each time namespace, and it is one process.
#[rstest]
#[case::whole_ticks("100000")]
#[case::behind("-7")]
#[ignore = "needs root: tests/run"]
fn a_time_namespace_does_not_end_a_process(#[case] seconds: &str) {
    let (ground, holder) = (Ground::new(), Holder::new());
    let shifted = |line: &str| {
        let script = format!("printf '{line}\\r\\n' | {}", words(&ground.command()));
        let ran = Command::new("unshare")
            .args(["--time", "--boottime", seconds, "--fork", "sh", "-c", &script])
            .output()
            .unwrap();
        let said = String::from_utf8(ran.stdout).unwrap();
        said.lines().last().unwrap().get(..3).unwrap().to_owned()
    };
    assert_eq!(shifted(&format!("lock ttyS77 {}", holder.pid())), "200");
    assert_eq!(asked(&ground, &format!("lock ttyS77 {}", own())), "450");
    assert_eq!(asked(&ground, &format!("lock ttyS78 {}", holder.pid())), "200");
    assert_eq!(shifted(&format!("lock ttyS78 {}", own())), "450");
    drop(holder);
    assert_eq!(shifted(&format!("lock ttyS77 {}", own())), "200");
}

/// `lfp clean` on the directories of a service, in a shell with mounts of its own.
fn clean(ground: &Ground) -> String {
    format!(
        "mount -t tmpfs none /run; mkdir /run/lock /run/lfpd
         mount --bind {} /run/lock; mount --bind {} /run/lfpd
         '{}' --direct clean",
        ground.path("lock").display(),
        ground.path("state").display(),
        program("lfp-cli", "lfp", &[]).display(),
    )
}

/// With the last process of its namespace, where all are seen.
#[test]
#[ignore = "needs root: tests/run"]
fn the_lock_of_a_dead_container_is_cleaned_away() {
    let ground = Ground::new();
    let container = container(&ground, "ttyS77", &[], "");
    let cleaned = || {
        let mut shell = Command::new("unshare");
        let ran = shell.args(["--mount", "sh", "-c", &clean(&ground)]).output().unwrap();
        String::from_utf8(ran.stdout).unwrap().contains("LCK..ttyS77")
    };
    assert!(!cleaned() && !ground.locks().is_empty());
    end(container);
    assert_eq!(cleaned(), all_is_seen());
    assert_eq!(ground.locks().is_empty(), all_is_seen());
}

/// In a shell: kills `$holder` and starts others until one has its number, and another start time. These
/// count hundredths of seconds.
const REUSE: &str = r#"
    start() { cut -d' ' -f22 /proc/$1/stat; }
    began=$(start $holder)
    kill -KILL $holder; wait $holder
    until [ "$other" = $holder ] && [ $(start $other) != $began ]; do
        [ -z "$other" ] || { kill -KILL $other; wait $other; }
        echo $((holder - 1)) >/proc/sys/kernel/ns_last_pid; sleep 1000 & other=$!
    done"#;

/// Another process has the number of the one that had the lock.
#[test]
#[ignore = "needs root: tests/run"]
fn the_lock_of_a_reused_number_is_cleaned_away() {
    let ground = Ground::new();
    let script = format!(
        "exec 2>/dev/null
         sleep 1000 & holder=$!
         printf 'lock ttyS77 %s\r\n' $holder | {lfpd} | sed -n '2s/^\\(...\\) .*/\\1/p'
         {REUSE}
         {clean} >/dev/null; echo $?",
        lfpd = words(&ground.command()),
        clean = clean(&ground),
    );
    let ran = in_pid_namespace().args(["bash", "-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), "200\n0\n");
    assert_eq!(ground.locks(), [""; 0]);
}

/// A request about a lock waits at the gate. Meanwhile the lock's holder ends, and another process with its number locks
/// the same port: that lock is not meant.
#[rstest]
#[case::unlock("unlock ttyS77 $holder")]
#[case::force("force ttyS77 $holder")]
#[case::pass("pass ttyS77 $holder $$")]
#[ignore = "needs root: tests/run"]
fn a_request_that_waits_does_not_mean_a_later_process_of_the_number(#[case] request: &str) {
    let ground = Ground::new();
    let script = format!(
        "exec 2>/dev/null
         ask() {{ printf '%s\\r\\n' \"$1\" | {lfpd} | sed -n '2s/^\\(...\\) .*/\\1/p'; }}
         until_so() {{ n=0; until \"$@\" || [ $n = 1000 ]; do sleep 0.01; n=$((n + 1)); done; }}
         sleep 1000 & holder=$!
         ask \"lock ttyS77 $holder\"
         cd {here}
         mkfifo in
         strace -o trace -e inject=clock_nanosleep,nanosleep:signal=STOP:when=1 {lfpd} <in >out & traced=$!
         exec 7>in
         greeted() {{ [ -s out ]; }}; until_so greeted
         read session </proc/$traced/task/$traced/children
         exec 8<>state/gate; flock 8
         echo \"{request}\" >&7
         until_so grep -q 'stopped by SIGSTOP' trace
         exec 8>&-
         {REUSE}
         ask \"lock ttyS77 $other\"
         kill -CONT $session
         answered() {{ [ $(wc -l <out) = 2 ]; }}
         until_so answered
         sed -n '2s/^\\(...\\) .*/\\1/p' out
         [ $(cat lock/LCK..ttyS77) = $other ] && echo stands",
        lfpd = words(&ground.command()),
        here = ground.path("").display(),
    );
    let ran = in_pid_namespace().args(["bash", "-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), "200\n200\n450\nstands\n");
}

/// How the daemon misses the end of the holder, until the number is another process's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Misses {
    Stopped,
    Killed,
}

/// In a pid namespace where numbers can be given out again: the machine's own are left alone.
#[rstest]
#[ignore = "needs root: tests/run"]
fn a_lock_goes_when_the_number_of_its_holder_is_anothers(
    #[values(Misses::Stopped, Misses::Killed)] misses: Misses,
) {
    let ground = Ground::new();
    let lfpd = words(&ground.command());
    let socket = ground.path("socket");
    let (miss, again) = match misses {
        Misses::Stopped => ("kill -STOP $daemon", "kill -CONT $daemon"),
        Misses::Killed => ("kill -KILL $daemon; wait $daemon", "serve"),
    };
    let script = format!(
        "exec 2>/dev/null
         serve() {{ rm -f {socket}; {lfpd} --listen unix:{socket} & daemon=$!
             until [ -S {socket} ]; do sleep 0.01; done; }}
         ask() {{ printf '%s\\r\\n' \"$1\" | socat -t30 - UNIX-CONNECT:{socket} \
             | sed -n '2s/^\\(...\\) .*/\\1/p'; }}
         serve
         sleep 1000 & holder=$!
         ask \"lock ttyS77 $holder\"
         {miss}
         {REUSE}
         {again}
         n=0; until [ -z \"$(ls {locks})\" ] || [ $n = 1000 ]; do sleep 0.01; n=$((n + 1)); done
         ask \"lock ttyS77 $$\"",
        socket = socket.display(),
        locks = ground.path("lock").display(),
    );
    let ran = in_pid_namespace().args(["bash", "-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), "200\n200\n");
}
