//! `lfp who` and `lfp list`: what each user sees, and how it looks.

use rstest::rstest;
use testbed::{LIMIT, Process, User, until};

use crate::bench::{Bench, GONE, LONG, PORT};

/// A sandbox has processes of its own, and so is a container.
const OUTSIDE: &str = "holders outside this container are not visible";

/// No daemon, no root, no right on the lock directory.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn everybody_sees_lock_files_and_flocks() {
    let bench = Bench::closed();
    let holder = bench.holder(User::Alice);
    let told = bench.look(User::Bob, &["who", PORT]);
    assert!(told.said(&holder.pid().to_string()) && told.said("alice"), "{told}");
    assert!(told.said("LCK..ttyW0") && told.said(&format!("sleep {LONG}")), "{told}");
    holder.kill();
    let told = bench.look(User::Bob, &["who", PORT]);
    assert!(told.said("stale"), "{told}");
    let flock = bench.ready(User::Alice, "exec flock /dev/ttyW0 -c 'echo ready; sleep 1000'");
    let told = bench.look(User::Bob, &["who", "ttyW0"]);
    assert!(told.said("flock") && told.said(&flock.pid().to_string()), "{told}");
}

/// What only root can see is not passed off as nothing.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn open_ports_are_shown_to_users_who_may_see_them() {
    let bench = Bench::closed();
    // Not as its terminal, which everybody would see.
    let script = "import os; os.open('/dev/ttyW0', os.O_RDWR | os.O_NOCTTY)
print('ready', flush=True); input()";
    let python = bench.command("python3").args(["-c", script]);
    let mut holder = python.user(User::Alice).spawn();
    holder.expect("ready");
    let pid = holder.pid().to_string();
    for user in [User::Root, User::Alice] {
        let told = bench.look(user, &["who", PORT]);
        assert!(told.said("open") && told.said(&pid) && told.said("alice"), "{user:?}: {told}");
    }
    let told = bench.look(User::Bob, &["who", PORT]);
    assert!(told.said("nobody holds it") && told.said("shown to root only"), "{told}");
    let told = bench.look(User::Bob, &["--json", "who", PORT]);
    assert!(told.said("\"complete\":false"), "{told}");
}

/// The reading of a command line may take for ever. The name of the process is shown then, and nobody waits for more.
#[rstest]
#[case::who(&["who", PORT], 0)]
#[case::list(&["list"], 0)]
#[case::lock(&["lock", PORT], 1)]
#[case::run(&["run", PORT, "--", "true"], 1)]
#[case::ask(&["ask", "--timeout", "1", PORT], 1)]
#[case::who_by_the_files(&["--direct", "who", PORT], 0)]
#[ignore = "needs root: tests/run"]
fn a_process_whose_command_line_cannot_be_read(#[case] words: &[&str], #[case] code: i32) {
    let bench = Bench::of(Bench::layout("0755", "lfpd:lfpd")).with_a_daemon();
    bench.shell(User::Root, "mkdir /tmp/stuck").expect(0);
    let script = ["/run/test/programs/stuck_memory.py", "/tmp/stuck"];
    let mut holder = bench.command("/usr/bin/python3").args(script).spawn();
    holder.expect("ready");
    // Nobody looks at its command line any more, as this test did at the start.
    holder.type_in("\n");
    holder.expect("stuck");
    let pid = holder.pid();
    // The other thread waits for the address space a moment later.
    let line = format!("/proc/{pid}/cmdline");
    let hangs = || bench.command("timeout").args(["0.2", "cat", &line]).run().code() == 124;
    until(LIMIT, || hangs().then_some(())).expect("reading hangs");
    bench.plant(User::Root, "LCK..ttyW0", pid);
    let told = bench.called(User::Root, words).run();
    assert!(told.said(&pid.to_string()) && told.said("python3"), "{told}");
    assert_eq!(told.code(), code, "{told}");
}

#[test]
#[ignore = "needs namespaces: tests/run"]
fn all_devices_in_one_list() {
    let bench = Bench::open();
    let _holder = bench.holder(User::Alice);
    bench.plant(User::Bob, "LCK..ttyS9", GONE);
    let told = bench.look(User::Bob, &["list"]);
    let lines: Vec<&str> = told.output().lines().collect();
    assert!(lines[0].starts_with("DEVICE"), "{told}");
    assert!(lines[1].starts_with("/dev/ttyW0") && lines[1].contains("alive"), "{told}");
    assert!(lines[2].starts_with("/dev/ttyS9") && lines[2].contains("stale"), "{told}");
    let starts: Vec<_> =
        lines.iter().map(|line| line.find("LCK..").or(line.find("LOCK"))).collect();
    assert!(starts.windows(2).all(|pair| pair[0] == pair[1]), "not aligned: {told}");
}

/// A device with links has a lock file under each of its names, and is one device all the same.
#[rstest]
#[case::directly(&["--direct"])]
#[case::and_as_a_service_sees_it(&[])]
#[ignore = "needs namespaces: tests/run"]
fn a_device_is_one_under_all_its_names(#[case] route: &[&str]) {
    let bench = Bench::open();
    let made = "mkdir -p /dev/serial/by-id; ln -s ../../ttyW0 /dev/serial/by-id/usb-W-if00; \
                ln -s ttyW0 /dev/modemW";
    assert_eq!(bench.shell(User::Root, made).code(), 0);
    let _service = bench.serve(User::Lfpd);
    let holder = bench.sleeper(User::Alice);
    let pid = holder.pid().to_string();
    let by_id = "/dev/serial/by-id/usb-W-if00";
    bench.lfp(User::Root, &["--direct", "lock", "--pid", &pid, by_id]).run().expect(0);
    assert_eq!(bench.locks().len(), 6, "{:?}", bench.locks());
    for words in [&["list"][..], &["who", PORT], &["who", "modemW", by_id, PORT]] {
        let told = bench.look(User::Bob, &[route, words].concat());
        let lines: Vec<&str> = told.output().lines().collect();
        assert_eq!(lines.len(), 3, "{words:?}: {told}");
        let columns: Vec<&str> = lines[1].split_whitespace().take(4).collect();
        assert_eq!(columns, ["/dev/ttyW0", &pid, "alice", "alive"], "{told}");
        assert!(lines[2].starts_with("  also ") && lines[2].contains("/dev/modemW"), "{told}");
        // Where there is no udev, a link is known when it is asked for or seen in a lock's name.
        assert!(lines[2].contains(by_id) || words == ["who", PORT], "{told}");
    }
    let told = bench.look(User::Bob, &[route, &["--json", "list"]].concat());
    let device = "[{\"device\":\"/dev/ttyW0\",\"names\":[\"/dev/";
    assert!(told.said(device) && told.output().matches("\"names\":").count() == 1, "{told}");
    assert_eq!(told.output().matches("\"file\":\"/var/lock/LCK..").count(), 5, "{told}");
    assert_eq!(told.output().matches("\"device\":\"/dev/ttyW0\"").count(), 7, "{told}");
    let told = bench.look(User::Bob, &[route, &["--json", "who", "modemW"]].concat());
    assert!(told.said("[{\"device\":\"/dev/ttyW0\",\"names\":[\"/dev/modemW\""), "{told}");
}

#[test]
#[ignore = "needs namespaces: tests/run"]
fn without_holders_list_says_so() {
    let bench = Bench::open();
    let told = bench.look(User::Root, &["list"]);
    assert_eq!(told.output(), format!("nobody holds a serial port ({OUTSIDE})\n"));
    let told = bench.look(User::Root, &["--json", "list"]);
    assert_eq!(told.output(), "{\"complete\":false,\"service\":false,\"devices\":[]}\n");
}

/// A process outside holds the port by flock(2), which the kernel does not show here.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_container_says_that_it_does_not_see_others() {
    let bench = Bench::open();
    let in_a_container = |words: &[&str]| {
        let unshare = ["--pid", "--fork", "--mount-proc", "/run/test/lfp"];
        bench.command("unshare").args(unshare).args(words).no_input().run()
    };
    let flock = bench.ready(User::Alice, "exec flock /dev/ttyW0 -c 'echo ready; sleep 1000'");
    let told = bench.look(User::Root, &["who", PORT]);
    assert!(told.said(&flock.pid().to_string()), "{told}");
    let told = in_a_container(&["who", PORT]);
    assert_eq!(told.output(), format!("/dev/ttyW0: nobody holds it ({OUTSIDE})\n"), "{told}");
    let told = in_a_container(&["--json", "who", PORT]);
    assert!(told.output().starts_with("{\"complete\":false,"), "{told}");
    let told = in_a_container(&["list", "--all"]);
    assert!(told.said("free, as far as you may see; ") && told.said(OUTSIDE), "{told}");
    assert!(!told.said("root sees more"), "{told}");
    let told = in_a_container(&["run", PORT, "--", "true"]);
    assert!(told.said(OUTSIDE) && told.said("/run/lfpd/lfpd.sock"), "{told}");
    // The service locks for both.
    let _service = bench.serve(User::Root);
    let told = in_a_container(&["run", PORT, "--", "true"]);
    assert!(told.said("busy") && !told.said(OUTSIDE), "{told}");
}

/// Outside of all containers, root sees everybody. A search may end early on a busy machine, so it is repeated.
#[test]
#[ignore = "needs root: tests/run"]
fn root_of_a_whole_machine_sees_all() {
    let lfp = testbed::program("lfp-cli", "lfp", &[]);
    let who = || {
        let answer =
            std::process::Command::new(&lfp).args(["--direct", "--json", "who", "zero"]).output();
        String::from_utf8(answer.unwrap().stdout).unwrap()
    };
    // Source: PROC_PID_INIT_INO in the kernel's proc_ns.h.
    let is_whole =
        std::fs::read_link("/proc/self/ns/pid").is_ok_and(|it| it.ends_with("pid:[4026531836]"));
    if !is_whole {
        let answer = who();
        assert!(answer.starts_with("{\"complete\":false,"), "{answer}");
        return;
    }
    let whole = until(LIMIT, || who().starts_with("{\"complete\":true,").then_some(()));
    assert!(whole.is_some(), "{}", who());
}

/// The service sees what Bob may not: lock files in a directory that is closed to him.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn the_service_is_asked_where_it_is() {
    let bench = Bench::closed();
    let holder = bench.holder(User::Alice);
    assert_eq!(
        bench.shell(User::Root, "chmod 0400 /run/lock/LCK*; chown lfpd /run/lock/LCK*").code(),
        0
    );
    let told = bench.look(User::Bob, &["who", PORT]);
    assert!(!told.said(&holder.pid().to_string()), "{told}");
    assert!(told.said("unknown"), "{told}");
    let _service = bench.serve(User::Lfpd);
    let told = bench.look(User::Bob, &["who", PORT]);
    assert!(told.said(&holder.pid().to_string()) && told.said("alice"), "{told}");
    let told = bench.look(User::Bob, &["--json", "who", PORT]);
    assert!(told.said("\"service\":true"), "{told}");
    let told = bench.look(User::Bob, &["--direct", "who", PORT]);
    assert!(!told.said(&holder.pid().to_string()), "{told}");
}

/// Every member is there in every case, with its type; the document in lfp(1) is this table.
#[rstest]
#[case::who(&["--json", "who", PORT], "d['devices'][0]['holders'][0]")]
#[case::list(&["--json", "list"], "d['devices'][0]['holders'][0]")]
#[case::lock(&["--json", "lock", PORT], "d['holders'][0]")]
#[case::run(&["--json", "run", PORT, "--", "true"], "d['holders'][0]")]
#[case::wait(&["--json", "wait", "--timeout", "0", PORT], "d['holders'][0]")]
#[ignore = "needs namespaces: tests/run"]
fn a_holder_in_json(#[case] words: &[&str], #[case] place: &str) {
    let bench = Bench::served();
    let holder = bench.holder(User::Alice);
    let check = format!(
        "import json, sys
d = json.load(sys.stdin)
h = {place}
assert list(h) == ['device', 'scheme', 'file', 'pid', 'uid', 'user', 'command', 'since', 'since_unix', 'standing'], h
assert (h['device'], h['scheme'], h['file']) == ('/dev/ttyW0', 'uucp', '/var/lock/LCK..ttyW0'), h
assert (h['pid'], h['uid'], h['user']) == ({}, 1000, 'alice'), h
assert h['command'] == 'sleep 1000' and h['standing'] == 'alive', h
assert h['since'].endswith('Z') and len(h['since']) == 20 and h['since_unix'] > 1700000000, h
print('fine')",
        holder.pid()
    );
    let line = format!("/run/test/lfp {} | python3 -c \"$CHECK\"", words.join(" "));
    let sh = bench.command("sh").args(["-c", &line]).env("CHECK", &check);
    let end = sh.user(User::Bob).no_input().run();
    assert!(end.said("fine"), "{end}");
}

#[rstest]
#[case::done(&["--direct", "lock", PORT], "\"outcome\":\"done\",\"device\":\"/dev/ttyW0\",\"pid\":")]
#[case::nothing_to_unlock(&["--direct", "unlock", PORT], "{\"outcome\":\"not-held\",\"device\":\"/dev/ttyW0\",")]
#[case::unreachable(&["--server", "/none", "lock", PORT], "{\"outcome\":\"unreachable\",")]
#[case::free(&["--direct", "who", PORT], "{\"device\":\"/dev/ttyW0\",\"names\":[],\"exists\":true,\"held\":false,\"holders\":[],\"waiters\":[]}")]
#[case::clean(&["clean"], "{\"removed\":[],\"left\":[],\"records\":0,\"cut_off\":false}")]
#[case::no_such_device(&["who", "ttyW9"], "{\"device\":\"/dev/ttyW9\",\"names\":[],\"exists\":false,")]
#[case::usage(&["lock"], "{\"outcome\":\"usage\",\"device\":null,\"error\":\"usage\",\"message\":\"the following required arguments were not provided: <DEVICE>\",")]
#[case::no_such_command(&["--direct", "run", PORT, "no-such-command"], "{\"outcome\":\"not-found\",\"device\":null,\"error\":\"not-found\",\"message\":\"no-such-command: command not found\",")]
#[ignore = "needs namespaces: tests/run"]
fn other_answers_in_json(#[case] words: &[&str], #[case] text: &str) {
    let bench = Bench::open();
    let told = bench.called(User::Alice, &[&["--json"], words].concat()).run();
    assert!(told.said(text), "{told}");
    assert_eq!(told.output().lines().count(), 1, "{told}");
}

/// Names of programs, arguments and lock files are made by strangers.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn text_from_strangers_cannot_control_the_terminal() {
    let bench = Bench::open();
    let script =
        "cp /bin/sleep \"$EVIL\" && exec /run/test/lfp --direct run ttyW0 -- \"$EVIL\" 1000";
    let evil = "/tmp/\x1b[2J\x1b]0;owned\x07\r\n\u{9b}31m\"x\\";
    let sh = bench.command("sh").args(["-c", script]).env("EVIL", evil);
    let _evil = sh.user(User::Alice).spawn();
    bench.wait_for("the lock", || bench.locked_by("ttyW0").is_some());
    let planted =
        "printf '%10d\\n' $$ >\"/run/lock/$(printf 'LCK..\\033[2J\\ttty')\"; exec sleep 1000";
    let _planted = bench.command("sh").args(["-c", planted]).user(User::Bob).spawn();
    bench.wait_for("the planted lock", || {
        bench.locks().iter().any(|name| name.starts_with("LCK..\x1b"))
    });
    let _service = bench.serve(User::Lfpd);
    for words in [
        &["who", PORT][..],
        &["list"],
        &["--json", "list"],
        &["--json", "who", PORT],
        &["lock", PORT],
        &["--json", "lock", PORT],
    ] {
        let told = bench.called(User::Bob, words).run();
        let moved = told.output().chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(moved, None, "{words:?}: {told}");
    }
    let listed = bench.look(User::Bob, &["list"]);
    assert_eq!(listed.output().lines().count(), 3, "{listed}");
}

/// Colours for a terminal whose user wants them, and for nothing else.
#[rstest]
#[case::terminal(&[], true)]
#[case::no_color(&[("NO_COLOR", "1")], false)]
#[case::no_color_empty(&[("NO_COLOR", "")], true)]
#[case::dumb(&[("TERM", "dumb")], false)]
#[case::no_term(&[("TERM", "")], false)]
#[ignore = "needs namespaces: tests/run"]
fn tables_have_colours_only_on_a_capable_terminal(
    #[case] settings: &[(&str, &str)],
    #[case] coloured: bool,
) {
    let bench = Bench::open();
    let _holder = bench.holder(User::Alice);
    let mut lfp = bench.command("/run/test/lfp").args(["who", PORT]).on_terminal();
    for (name, value) in settings {
        lfp = lfp.env(name, value);
    }
    let process = lfp.spawn();
    let shown = until(LIMIT, || process.output().contains("ttyW0").then(|| process.output()));
    assert_eq!(shown.expect("a table").contains('\x1b'), coloured);
    let piped = bench.look(User::Root, &["who", PORT]);
    assert!(!piped.said("\x1b"), "{piped}");
}

/// The service makes lock files for others: of one whose holder is gone, it has noted who that
/// was. Of other lock files only the owner is known, which stands in parentheses.
#[rstest]
#[case::by_a_service_of_one_session(Bench::serve)]
#[case::by_a_daemon(Bench::listen)]
#[ignore = "needs namespaces: tests/run"]
fn the_former_holder_of_a_stale_lock_is_shown(#[case] start: fn(&Bench, User) -> Process<'_>) {
    let bench = Bench::open();
    let service = start(&bench, User::Lfpd);
    let holder = bench.sleeper(User::Alice);
    let pid = holder.pid().to_string();
    bench.lfp(User::Alice, &["lock", "--pid", &pid, PORT]).run().expect(0);
    bench.wait_for("the record", || {
        let mut entries = std::fs::read_dir(bench.path("/run/lfpd")).unwrap().flatten();
        entries.any(|it| it.file_name().to_string_lossy().starts_with("held."))
    });
    // A daemon clears away what the dead leave, sooner or later, if it may.
    assert_eq!(bench.shell(User::Root, "chown root: /run/lock/LCK..ttyW0").code(), 0);
    holder.kill();
    bench.plant(User::Bob, "LCK..ttyS9", GONE);
    for route in [&["--direct"][..], &[]] {
        let told = bench.look(User::Bob, &[route, &["list"]].concat());
        let columns = |line: usize| -> Vec<String> {
            let line = told.output().lines().nth(line).unwrap_or_default();
            line.split_whitespace().take(4).map(str::to_owned).collect()
        };
        assert_eq!(columns(1), ["/dev/ttyS9", "4000000", "(bob)", "stale"], "{told}");
        assert_eq!(columns(2), ["/dev/ttyW0", &pid, "alice", "stale"], "{told}");
        let told = bench.look(User::Bob, &[route, &["--json", "who", "ttyS9"]].concat());
        assert!(told.said("\"uid\":null,\"user\":null"), "{told}");
    }
    service.kill();
}

/// A waiter also searches directories that appeared after it began.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_directory_that_came_while_waiting_is_searched() {
    let bench = Bench::open();
    let holder = bench.holder(User::Alice);
    let waits = ["--direct", "wait", "--timeout", "30", PORT];
    let mut waiting = bench.called(User::Root, &waits).spawn();
    // It keeps the directories of its last attempt open until the next one.
    let looks_into = |directory: &str| {
        bench.children(waiting.pid()).iter().any(|lfp| {
            let open = std::fs::read_dir(bench.path(&format!("/proc/{lfp}/fd")));
            open.into_iter().flatten().flatten().any(|descriptor| {
                std::fs::read_link(descriptor.path()).is_ok_and(|path| path.ends_with(directory))
            })
        })
    };
    bench.wait_for("a first look", || looks_into("run/lock"));
    let other = bench.sleeper(User::Alice);
    bench.shell(User::Root, "mkdir /run/lock/modem").expect(0);
    bench.plant(User::Root, "modem/LCK..ttyW0", other.pid());
    // An attempt that was under way knows nothing of it.
    bench.wait_for("a look into the new one", || looks_into("run/lock/modem"));
    holder.kill();
    let end = until(LIMIT, || waiting.ended()).expect("an end in time");
    assert_eq!(end.code(), 75, "{end}");
    other.kill();
}
