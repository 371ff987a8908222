//! The commands of README and docs/ that lock a port, as they stand there, with the programs they name.

use rstest::rstest;
use testbed::{LIMIT, Process, Sandbox, User, shipped};

use crate::bench::Bench;

/// Lines of the documents that are played here.
const LINES: [&str; 10] =
    [WHO, PICOCOM, PICOCOM_WAITING, MINICOM, WAIT, STTY, UNLOCK, AVRDUDE, GETTY, DOCKER];

const WHO: &str = "lfp who /dev/ttyUSB0";
const PICOCOM: &str = "lfp run /dev/ttyUSB0 -- picocom -b 115200 /dev/ttyUSB0";
const PICOCOM_WAITING: &str = "lfp run --timeout 10 /dev/ttyUSB0 -- picocom -b 115200 /dev/ttyUSB0";
const MINICOM: &str = "lfp run /dev/ttyUSB0 -- minicom -o -D /dev/ttyUSB0";
const WAIT: &str = "lfp wait --timeout 60 /dev/ttyS0 || exit";
const STTY: &str = "stty -F /dev/ttyS0 9600; echo AT >/dev/ttyS0";
const UNLOCK: &str = "lfp unlock /dev/ttyS0";
const AVRDUDE: &str = "lfp run --timeout 30 /dev/ttyACM0 -- \
    avrdude -p m328p -c arduino -P /dev/ttyACM0 -U flash:w:blink.hex";
const GETTY: &str = "lfp run --no-fork --timeout 1000000000 %I -- \
    /sbin/agetty --keep-baud 115200,9600 - $TERM";
const DOCKER: &str = "lfp run --no-fork /dev/ttyUSB0 -- PROGRAM";

/// A machine with the ports of the documents, a closed lock directory and a service, and Alice, whose group they are.
fn machine() -> Bench {
    machine_with("0755", "lfpd:lfpd").with_a_daemon()
}

fn machine_with(mode: &str, owner: &str) -> Bench {
    let layout = Sandbox::layout().port("ttyUSB0").port("ttyACM0").port("ttyS0");
    Bench::of(layout.lock_dir(mode, owner))
}

/// The name of the program that has the port.
fn user_of(bench: &Bench, port: &str) -> Option<String> {
    Some(bench.text(&format!("/proc/{}/comm", bench.locked_by(port)?)).trim().to_owned())
}

/// `tests/shipped/documents.rs` sees to the other direction.
#[test]
fn the_documents_say_what_is_played_here() {
    let said = (shipped("README.md") + &shipped("docs/recipes.md")).replace(" \\\n        ", " ");
    for line in LINES {
        assert!(said.contains(line), "neither README nor docs/recipes.md says: {line}");
    }
}

/// Terminal programs, which hold the port in their own name until they end. The user may not write the lock directory.
#[rstest]
#[case::picocom(PICOCOM, "picocom", "Terminal ready", "\x01\x18")]
#[case::picocom_waiting(PICOCOM_WAITING, "picocom", "Terminal ready", "\x01\x18")]
#[case::minicom(MINICOM, "minicom", "Welcome to minicom", "\x01x\r")]
#[ignore = "needs namespaces: tests/run"]
fn terminal_programs_hold_the_port_until_they_end(
    #[case] line: &str,
    #[case] program: &str,
    #[case] greeting: &str,
    #[case] goodbye: &str,
) {
    let bench = machine();
    let mut terminal = bench.typed(User::Alice, line).on_terminal().spawn();
    terminal.expect(greeting);
    assert_eq!(user_of(&bench, "ttyUSB0").as_deref(), Some(program));
    let told = bench.typed(User::Bob, WHO).no_input().run();
    assert!(told.said("alice") && told.said(&format!("{program} ")), "{told}");
    let busy = bench.typed(User::Bob, PICOCOM).no_input().run();
    let busy = busy.expect(1);
    let pid = bench.locked_by("ttyUSB0").unwrap();
    let holder = format!("held by alice, pid {pid}, {program} ");
    assert!(busy.said("lfp: /dev/ttyUSB0: busy") && busy.said(&holder), "{busy}");
    terminal.type_in(goodbye);
    terminal.wait(LIMIT).expect(0);
    bench.assert_free();
}

/// Where everybody may write the lock directory, minicom makes its own lock as well.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn minicom_where_the_directory_is_open() {
    let bench = machine_with("1777", "root:root");
    let mut terminal = bench.typed(User::Alice, MINICOM).on_terminal().spawn();
    terminal.expect("Welcome to minicom");
}

#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_script_in_several_steps() {
    let bench = machine();
    let script = format!("{WAIT}\n{STTY}\ncat /run/lock/LCK..ttyS0; echo $$\n{UNLOCK}");
    let end = bench.typed(User::Alice, &script).no_input().run().expect(0);
    let pids: Vec<&str> = end.output().split_whitespace().collect();
    assert!(pids.len() == 2 && pids[0] == pids[1], "{end}");
    bench.assert_free();
}

/// There is no board at the other end, so avrdude gives up; but it has the port meanwhile.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn flashing_a_board() {
    let bench = machine();
    let line = format!("echo :00000001FF >blink.hex; {AVRDUDE}");
    let flashing = bench.typed(User::Alice, &line).no_input().spawn();
    bench.wait_for("avrdude", || user_of(&bench, "ttyACM0").as_deref() == Some("avrdude"));
    flashing.signal("TERM");
    bench.shell(User::Root, &format!("kill {}", bench.locked_by("ttyACM0").unwrap_or(0))).expect(0);
    let end = flashing.wait(LIMIT);
    assert_ne!(end.code(), 0, "{end}");
    bench.wait_for("the end of its lock", || bench.locks().is_empty());
}

/// As systemd starts it: the terminal on standard input, and the name of the instance for %I.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_login_that_respects_locks() {
    let bench = machine();
    let line = GETTY.replace("%I", "ttyS0");
    let line = format!("exec setsid -w sh -c 'exec {line}' <>/dev/ttyS0 >&0 2>&0");
    let login: Process<'_> = bench.typed(User::Root, &line).spawn();
    bench.wait_for("agetty", || user_of(&bench, "ttyS0").as_deref() == Some("agetty"));
    let busy = bench.typed(User::Alice, "lfp run ttyS0 -- true").no_input().run();
    assert!(busy.code() == 1 && busy.said("/sbin/agetty"), "{busy}");
    login.kill();
}

/// In a pid namespace of its own with the service's socket: the lock names the program by its
/// number outside.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_program_in_a_container_has_its_number_of_outside() {
    let bench = machine();
    let line = DOCKER.replace("PROGRAM", "sh -c 'echo ready; cat'");
    let line = format!("exec unshare --pid --fork --mount-proc --kill-child sh -c \"{line}\"");
    let mut container = bench.typed(User::Root, &line).spawn();
    container.expect("ready");
    let outside = bench.locked_by("ttyUSB0").expect("a lock");
    assert!(outside > 1 && bench.runs(outside));
    let told = bench.typed(User::Bob, WHO).no_input().run();
    assert!(told.said(&outside.to_string()) && told.said("alive"), "{told}");
    container.end_input();
    assert_eq!(container.wait(LIMIT).code(), 0);
    bench.typed(User::Bob, "lfp run --timeout 9 ttyUSB0 -- true").no_input().run().expect(0);
}

/// The right of uucp where the lock directory is closed, by the lines as they stand.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn the_right_of_uucp() {
    let bench = machine();
    let lines = ["d /run/lfpd 0755 uucp uucp -", "a+ /run/lock - - - - user:uucp:rwx"];
    let page = shipped("docs/install.md");
    assert!(lines.iter().all(|line| page.contains(&format!("\n    {line}\n"))));
    bench.write("/tmp/lfpd-uucp.conf", lines.join("\n") + "\n", 0o644);
    bench.shell(User::Root, "systemd-tmpfiles --create /tmp/lfpd-uucp.conf").expect(0);
    for (user, writes) in [(User::Uucp, 0), (User::Alice, 1)] {
        assert_eq!(bench.shell(user, "test -w /run/lock").code(), writes, "{user:?}");
    }
    assert_eq!(bench.shell(User::Uucp, "test -w /run/lfpd").code(), 0);
}

/// The block of a page behind `<!-- run: NAME -->`.
fn block(page: &str, name: &str) -> String {
    let page = shipped(page);
    let (_, rest) = page.split_once(&format!("<!-- run: {name} -->\n\n")).expect(name);
    let lines = rest.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    lines.map(|line| line.strip_prefix("    ").unwrap_or_default().to_owned() + "\n").collect()
}

/// The capabilities that containers have by default, without that to see open files of others.
/// Source: the list in the documentation of `docker run`.
const OF_CONTAINERS: &str = "-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,\
    +net_bind_service,+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap";

/// What a program beside the add-on does with the radio, what the container was given, and whether the add-on starts its
/// program. Home Assistant's own container has all capabilities.
#[rstest]
#[case::nobody("true", &[], ",+sys_ptrace", true)]
#[case::locked("exec flock /dev/ttyUSB0 -c 'echo ready; sleep 1000'", &[], "", false)]
#[case::open("exec sh -c 'echo ready; sleep 1000' <>/dev/ttyUSB0", &[], ",+sys_ptrace", false)]
#[case::open_unseen("exec sh -c 'echo ready; sleep 1000' <>/dev/ttyUSB0", &[], "", true)]
#[case::locked_outside(
    "exec flock /dev/ttyUSB0 -c 'echo ready; sleep 1000'",
    &["unshare", "--pid", "--fork", "--mount-proc"],
    ",+sys_ptrace",
    true
)]
#[ignore = "needs namespaces: tests/run"]
fn an_add_on_of_home_assistant_asks_first(
    #[case] other: &str,
    #[case] unshare: &[&str],
    #[case] capability: &str,
    #[case] starts: bool,
) {
    let config = block("docs/recipes.md", "addon-config");
    for line in ["host_pid: true", "privileged: [SYS_PTRACE]", "apparmor: false", "uart: true"] {
        assert!(config.lines().any(|it| it == line), "{line}");
    }
    let layout = Sandbox::layout().port("ttyUSB0").lock_dir("1777", "root:root");
    let bench = Bench::of(layout.link("serial/by-id/usb-RADIO-if00", "../../ttyUSB0"));
    let other = (other != "true").then(|| bench.ready(User::Root, other));
    bench.write("/tmp/run.sh", block("docs/recipes.md", "addon"), 0o755);
    bench.write("/tmp/my-radio-program", "#!/bin/sh\necho started $1\n", 0o755);
    let dropped = format!("{OF_CONTAINERS}{capability}");
    let set = ["setpriv", "--bounding-set", &dropped, "env", "PATH=/run/test:/tmp:/usr/bin:/bin"];
    let words = [unshare, &set, &["/tmp/run.sh"]].concat();
    let end = bench.command(words[0]).args(&words[1..]).no_input().run();
    assert_eq!(end.code(), i32::from(!starts), "{end}");
    assert_eq!(end.said("started /dev/serial/by-id/usb-RADIO-if00"), starts, "{end}");
    if let (Some(other), false) = (&other, starts) {
        assert!(end.said(&other.pid().to_string()), "{end}");
    }
}

/// Six jobs on three boards, as docs/dflock.md has it, and Bob, who has not heard of the lock server.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn each_of_six_jobs_has_a_board_and_its_port() {
    let boards = ["b1", "b2", "b3"];
    let mut layout = Sandbox::layout().lock_dir("1777", "root:root");
    for (number, board) in boards.iter().enumerate() {
        let port = format!("ttyUSB{number}");
        layout =
            layout.port(&port).link(&format!("serial/by-id/{board}"), &format!("../../{port}"));
    }
    let layout = layout
        .bring("dflock", testbed::program("dflock", "dflock", &["cli"]))
        .bring("dflockd", testbed::program("dflockd", "dflockd", &[]));
    let bench = Bench::of(layout);
    let flash = "#!/bin/sh
        mkdir /tmp/on.$1 || exit
        lfp who -q /dev/serial/by-id/$1 && echo $1 >>/tmp/log
        until [ -e /tmp/go ]; do sleep 0.05; done
        rmdir /tmp/on.$1\n";
    bench.write("/tmp/flash-and-test", flash, 0o755);
    let recipe = block("docs/dflock.md", "boards");
    let script = format!(
        "PATH=$PATH:/tmp
         dflockd 2>/dev/null & server=$!
         until dflock ping >/dev/null 2>&1; do sleep 0.05; done
         for job in 1 2 3 4 5 6; do ({recipe}) & jobs=\"$jobs $!\"; done
         for job in $jobs; do wait $job || echo failed; done
         kill $server"
    );
    let jobs = bench.typed(User::Alice, &script).no_input().spawn();
    let log = || String::from_utf8(bench.read("/tmp/log").unwrap_or_default()).unwrap();
    bench.wait_for("three jobs", || log().lines().count() == 3);
    for port in ["ttyUSB0", "ttyUSB1", "ttyUSB2"] {
        let bob = format!("lfp run -E 9 {port} -- true");
        bench.typed(User::Bob, &bob).no_input().run().expect(9);
    }
    bench.write("/tmp/go", "", 0o644);
    let end = jobs.wait(LIMIT).expect(0);
    assert!(!end.said("failed"), "{end}");
    let log = log();
    let (first, later) = log.split_at(9);
    for (jobs, all) in [(first, true), (later, false)] {
        let mut had: Vec<&str> = jobs.lines().collect();
        assert_eq!(had.len(), 3, "{log}");
        had.sort_unstable();
        assert!(!all || had == boards, "{log}");
    }
    bench.assert_free();
}
