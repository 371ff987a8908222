//! What `lfp run --exclusive` does not share with the service (`tests/service/exclusive_ports.rs` has the rest): which
//! processes' descriptors count, what the far end sees, and what stays when a process dies at any moment. The tests use
//! pseudo-terminals, and for the last close a virtual console: its driver forgets the exclusive mode then, as drivers
//! of serial ports do.

use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use rstest::rstest;
use testbed::{Console, Process, User, can_open, steps};

use crate::bench::{Bench, PORT};

/// A terminal with the life of a serial port: nobody has its far end.
const CONSOLE: &str = Console::PATH;

/// A machine with a service and the console, which no other test has meanwhile.
fn machine() -> (Console, Bench) {
    let (console, bench) = (Console::take(), Bench::served());
    console.put_into(&bench);
    (console, bench)
}

fn wait_until_exclusive(bench: &Bench, port: &str) {
    bench.wait_for("the exclusive mode", || !can_open(bench, port));
}

fn wait_until_shared(bench: &Bench, port: &str) {
    bench.wait_for("the end of the exclusive mode", || can_open(bench, port));
}

/// `lfp run --exclusive` with a shell that has done the first of its steps.
fn in_steps<'s>(bench: &'s Bench, port: &str, its: &[&str]) -> Process<'s> {
    let words = ["run", "--no-shim", "--exclusive", port, "--", "sh", "-c", &steps(its)];
    let mut lfp = bench.command("/run/test/lfp").args(words).user(User::Alice).spawn();
    lfp.expect("0.");
    lfp
}

/// By a child of the command, and by what the command has been given.
#[rstest]
#[case::by_a_child("sh -c 'sh -c \"exec cat\" <PORT & echo ready; read line'")]
#[case::by_a_grandchild("sh -c '(sh -c \"sleep 1000; true\" <PORT; true) & echo ready; read line'")]
#[case::inherited("sh -c 'echo ready; exec sleep 1000' <PORT")]
#[ignore = "needs root: tests/run"]
fn a_port_that_the_command_has_in_whatever_way_is_exclusive(
    #[case] command: &str,
    #[values(PORT, CONSOLE)] port: &str,
) {
    let (_console, bench) = machine();
    let run = format!("exec /run/test/lfp run --no-shim --exclusive {port} -- ");
    let line = run + &command.replace("PORT", port);
    let _lfp = bench.ready(User::Alice, &line);
    wait_until_exclusive(&bench, port);
}

/// The far end of a pseudo-terminal sees the command's close, too.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn the_far_end_sees_the_close() {
    let bench = Bench::served();
    let mut far_end = bench.far_end("ttyW0");
    fcntl(far_end.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    let open = format!("exec 3<>{PORT}");
    let mut lfp = in_steps(&bench, PORT, &[&open, "exec 3>&-"]);
    wait_until_exclusive(&bench, PORT);
    let mut read = || far_end.read(&mut [0; 64]).map_err(|error| error.kind());
    assert_eq!(read(), Err(ErrorKind::WouldBlock), "the near end is open");
    lfp.go_on(1);
    bench.wait_for("the hang-up", || matches!(read(), Err(kind) if kind != ErrorKind::WouldBlock));
}

/// A program that makes its port exclusive by itself, as gpsd and jSerialComm do.
const ITSELF: &str = "import fcntl, os, sys, time; port = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY); \
                      fcntl.ioctl(port, 0x540C); print('open', flush=True); time.sleep(1000)";

/// A process that has a port exclusive without any lock is shown, by `who` and to the new holder of the lock, and
/// the port is not opened for that.
#[rstest]
#[ignore = "needs root: tests/run"]
fn a_program_with_an_exclusive_port_is_shown(#[values(PORT, CONSOLE)] port: &str) {
    let (_console, bench) = machine();
    let program = |code: &str| {
        let words = ["-c", code, port];
        let command = bench.command("/usr/bin/python3").args(words).user(User::Alice);
        let mut process = command.spawn();
        process.expect("open");
        process
    };
    let open = ITSELF.replace("fcntl.ioctl(port, 0x540C); ", "");
    let who = || bench.shell(User::Root, &format!("/run/test/lfp --json who {port}"));
    let plain = program(&open);
    assert!(who().said("\"scheme\":\"open\"") && !who().said("exclusive"), "{}", who());
    let unlocked = bench.shell(User::Root, &format!("/run/test/lfp unlock {port}"));
    let words = format!("open without a lock in pid {} of alice, ", plain.pid());
    assert!(unlocked.said(&words), "nobody holds it: {unlocked}");
    plain.kill();

    let process = program(ITSELF);
    let (end, pid) = (who(), process.pid());
    assert!(end.said("\"scheme\":\"exclusive\"") && end.said(&format!("\"pid\":{pid},")), "{end}");
    let end =
        bench.shell(User::Root, &format!("/run/test/lfp who {port}; /run/test/lfp lock {port}"));
    assert!(end.said(" exclusive ") && end.said("refuses it to all others"), "{end}");
    // Alice's programs may be asked by Alice alone; of Bob's question the kernel keeps this from him.
    let end = bench.shell(User::Bob, &format!("/run/test/lfp who {port}"));
    assert!(!end.said("exclusive"), "{end}");
    process.kill();
}

/// What others have asked of the kernel before is not undone by `lfp`.
#[test]
#[ignore = "needs root: tests/run"]
fn an_exclusive_mode_from_before_stays() {
    let (_console, bench) = machine();
    let before = "import fcntl, os, sys; port = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY); \
                  fcntl.ioctl(port, 0x540C); os.set_inheritable(port, True); os.execv(sys.argv[2], sys.argv[2:])";
    let command = "sleep 1000 & echo 0.; read line";
    let lfp = ["/run/test/lfp", "run", "--exclusive", CONSOLE, "--", "sh", "-c", command];
    let words = [&["-c", before, CONSOLE][..], &lfp].concat();
    let mut lfp = bench.command("/usr/bin/python3").args(words).user(User::Alice).spawn();
    lfp.expect("0.");
    lfp.type_in("\n");
    bench.wait_for("the end of lfp", || lfp.ended().is_some());
    assert!(!can_open(&bench, CONSOLE), "who was left behind has it for himself");
}

/// A program that the command has left behind has the port open, and no lock: it keeps nobody out.
#[rstest]
#[ignore = "needs root: tests/run"]
fn a_process_that_outlives_the_command_keeps_nobody_out(#[values(PORT, CONSOLE)] port: &str) {
    let (_console, bench) = machine();
    let mut lfp = in_steps(&bench, port, &[&format!("sleep 1000 3<>{port} & true")]);
    wait_until_exclusive(&bench, port);
    lfp.type_in("\n");
    bench.wait_for("the end of lfp", || lfp.ended().is_some());
    assert!(can_open(&bench, port));
}

/// `lfp` is killed while the command works: the lock is the command's, and so is the exclusive mode. At the last
/// close the kernel ends it.
#[test]
#[ignore = "needs root: tests/run"]
fn a_killed_wrapper_leaves_the_mode_to_the_command() {
    let (_console, bench) = machine();
    let sleep = format!("exec 3<>{CONSOLE}; echo 0.; exec sleep 1000");
    let lfp = in_steps(&bench, CONSOLE, &[&sleep]);
    wait_until_exclusive(&bench, CONSOLE);
    let command = bench.children(lfp.pid())[0];
    lfp.kill();
    assert!(!can_open(&bench, CONSOLE), "the command is at work");
    let _ = bench.shell(User::Root, &format!("kill -KILL {command}"));
    wait_until_shared(&bench, CONSOLE);
}

/// `lfp` is killed at each of the calls by which it makes a port exclusive. When the command has ended, the port is
/// open to all, and any user gets its lock.
#[rstest]
#[ignore = "needs root: tests/run"]
fn the_mode_ends_wherever_the_wrapper_is_killed(
    #[values("inotify_init1", "inotify_add_watch", "pidfd_open", "pidfd_getfd", "ioctl")]
    call: &str,
) {
    let (_console, bench) = machine();
    let script = format!("exec 3<>{CONSOLE}; exec sleep 1000");
    let run = ["/run/test/lfp", "run", "--no-shim", "--exclusive", CONSOLE, "--", "sh", "-c"];
    let mut deaths = 0;
    for time in 1..20 {
        let inject = format!("inject={call}:signal=KILL:when={time}");
        let strace = ["-qq", "-o", "/dev/null", "-e", &*inject];
        let words = [&strace[..], &run, &[&*script]].concat();
        let mut lfp = bench.command("strace").args(&words).user(User::Alice).spawn();
        bench.wait_for("the mode, or the end of lfp", || {
            lfp.ended().is_some() || !can_open(&bench, CONSOLE)
        });
        let has_died = lfp.ended().is_some();
        bench.wait_for("the end of the lock", || {
            // The command, wherever it is by now.
            let _ = bench.shell(User::Root, &format!("fuser -sk {CONSOLE}"));
            bench.shell(User::Bob, &format!("/run/test/lfp run {CONSOLE} true")).code() == 0
        });
        bench.wait_for("the end of lfp", || lfp.ended().is_some());
        wait_until_shared(&bench, CONSOLE);
        if !has_died {
            break;
        }
        deaths += 1;
    }
    assert!((1..19).contains(&deaths), "{deaths}");
}

/// What has more rights than `lfp` cannot be made exclusive by it: that is said, and the lock stands.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_descriptor_that_cannot_be_duplicated_is_reported() {
    let bench = Bench::served();
    let made = "mount -t tmpfs none /usr/local/bin; \
                cp /bin/cat /usr/local/bin/rootcat; chmod 4755 /usr/local/bin/rootcat";
    assert_eq!(bench.shell(User::Root, made).code(), 0);
    let words = ["run", "--exclusive", PORT, "--", "/usr/local/bin/rootcat", PORT];
    let mut lfp = bench.command("/run/test/lfp").args(words).user(User::Alice).spawn();
    lfp.expect(
        "/dev/ttyW0: locked, but not exclusive: the command's descriptors cannot be duplicated",
    );
    assert!(bench.locked_by("ttyW0").is_some());
}

#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_user_without_read_right_is_told() {
    let bench = Bench::open();
    assert_eq!(bench.shell(User::Root, &format!("chmod 222 {PORT}")).code(), 0);
    let words = ["--direct", "run", "--exclusive", PORT, "--", "true"];
    let end = bench.lfp(User::Alice, &words).run();
    assert!(end.code() == 0 && end.said("only users who may read the port can see"), "{end}");
}
