//! NOOP, HELP and STAT: their answers; and STAT shows the holders of every scheme, with real programs holding real
//! devices.

use lfpd::limits::{REPLY_BYTES, STATUS_HOLDERS};
use rstest::rstest;
use testbed::{Daemon, Ground, LIMIT, Sandbox, Session, User, comes, own, until};

use crate::machine::{codes, daemon, said};
use crate::wire::Wire;

fn machine() -> Sandbox {
    Sandbox::with_lfpd().port("ttyS7").link("modemW", "ttyS7").enter()
}

/// An answer to STAT. A busy machine may have no time to see all holders: then it is asked for again.
fn complete(mut ask: impl FnMut() -> Vec<String>) -> Vec<String> {
    let ask = || Some(ask()).filter(|lines| !lines[0].ends_with(" incomplete=yes"));
    let lines = until(LIMIT, ask);
    assert!(lines.is_some(), "no search came to its end");
    lines.unwrap_or_default()
}

/// The lines of an answer about a device, without the first and the last.
fn holders(lfp: &mut Session<'_>, device: &str) -> Vec<String> {
    let mut lines = complete(|| lfp.lines(&format!("STAT {device}")));
    assert_eq!(lines.pop().as_deref(), Some("213 End of status."));
    let first = lines.remove(0);
    // A sandbox has processes of its own.
    let (count, _) = first.split_once(" unseen=outside").expect("what cannot be seen");
    assert_eq!(count, format!("213-holders={0} shown={0}", lines.len()));
    for line in &mut lines {
        assert!(line.starts_with(' ') && line.len() < REPLY_BYTES, "{line}");
        assert!(!line.contains("/run") && !line.contains("/var"), "a path: {line}");
        line.remove(0);
    }
    lines
}

/// The value of a key, as it stands.
fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let start = line.find(&format!("{key}="))?;
    let rest = line.get(start..)?.split_once('=')?.1;
    match rest.strip_prefix('"') {
        Some(text) => text.split_once('"').map(|(text, _)| text),
        None => rest.split(' ').next(),
    }
}

fn one(lfp: &mut Session<'_>, scheme: &str) -> String {
    // A program that was just started may not have come as far as its lock.
    let found = until(LIMIT, || {
        let lines = holders(lfp, "/dev/ttyS7");
        lines.into_iter().find(|line| value(line, "scheme") == Some(scheme))
    });
    assert!(found.is_some(), "nobody holds it by {scheme}");
    found.unwrap_or_default()
}

/// A real lock by this service for a real user's process, under both names of the device.
#[test]
#[ignore = "needs root: tests/run"]
fn a_lock_file_and_its_holder() {
    let sandbox = machine();
    let holder = sandbox.sleeper(User::Alice);
    let mut lfp = Session::start(&sandbox, User::Uucp, &[], User::Root);
    assert_eq!(lfp.lock("/dev/ttyS7", holder.pid()), 200);
    let lines = holders(&mut lfp, "modemW");
    let line = lines.iter().find(|line| value(line, "file") == Some("LCK..ttyS7"));
    let line = line.map_or("", String::as_str);
    let pid = holder.pid().to_string();
    for (key, expected) in [
        ("device", "ttyS7"),
        ("scheme", "uucp"),
        ("standing", "alive"),
        ("pid", pid.as_str()),
        ("uid", "1000"),
        ("command", "sleep"),
    ] {
        assert_eq!(value(line, key), Some(expected), "{lines:?}");
    }
    let since: u64 = value(line, "since").and_then(|since| since.parse().ok()).unwrap_or(0);
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    assert!((now - 60..=now).contains(&since), "{since} {now}");
    holder.kill();
    let line = holders(&mut lfp, "ttyS7").concat();
    assert_eq!(value(&line, "standing"), Some("stale"));
    assert_eq!(value(&line, "command"), None);
}

#[test]
#[ignore = "needs root: tests/run"]
fn a_flock_on_the_node() {
    let sandbox = machine();
    let words = ["-F", "/dev/ttyS7", "sleep", "1000"];
    let holder = sandbox.command("flock").args(words).user(User::Bob).spawn();
    let mut lfp = Session::start(&sandbox, User::Root, &[], User::Root);
    let line = one(&mut lfp, "flock");
    assert_eq!(value(&line, "pid"), Some(holder.pid().to_string().as_str()));
    assert_eq!((value(&line, "uid"), value(&line, "standing")), (Some("1001"), Some("alive")));
    // It is listed once, although it has the device open as well.
    assert_eq!(holders(&mut lfp, "ttyS7").len(), 1);
    // Who locks by flock is seen by everybody.
    let mut seen_by_uucp = Session::start(&sandbox, User::Uucp, &[], User::Root);
    assert_eq!(value(&one(&mut seen_by_uucp, "flock"), "uid"), Some("1001"));
}

#[test]
#[ignore = "needs root: tests/run"]
fn a_program_that_merely_has_it_open() {
    let sandbox = machine();
    // Not the first process of its session, for whom it would become the controlling terminal,
    // which everybody may see.
    let script = "(exec 3<>/dev/ttyS7; exec sleep 1000) & wait";
    let _holder = sandbox.command("sh").args(["-c", script]).user(User::Alice).spawn();
    let mut lfp = Session::start(&sandbox, User::Root, &[], User::Root);
    let line = one(&mut lfp, "open");
    assert_eq!((value(&line, "uid"), value(&line, "file")), (Some("1000"), None));
    // Another user's descriptors are hidden from a service that is not root.
    let mut uucp = Session::start(&sandbox, User::Uucp, &[], User::Root);
    assert_eq!(holders(&mut uucp, "ttyS7"), [""; 0]);
}

/// Foreign lock files of both kinds, and what cannot be read.
#[rstest]
#[case::minicom("LCK..ttyS7", "      PID minicom root\n", "uucp", "alive", Some("sleep"))]
#[case::kermit_binary("LCK..modemW", "BINARY", "uucp", "alive", Some("sleep"))]
#[case::svr4("SVR4", "      PID\n", "svr4", "alive", Some("sleep"))]
#[case::gone("LCK..ttyS7", "  4194000\n", "uucp", "stale", None)]
#[case::note("LCK..ttyS7", "  4194000 gammu\n", "uucp", "stale", Some("gammu"))]
#[case::empty("LCK..ttyS7", "", "uucp", "unknown", None)]
#[case::hostile("LCK..ttyS7", "  4194000 \x1b[2J\"\\\n", "uucp", "stale", Some("?[2J\\"))]
#[ignore = "needs root: tests/run"]
fn foreign_lock_files(
    #[case] name: &str,
    #[case] content: &str,
    #[case] scheme: &str,
    #[case] standing: &str,
    #[case] command: Option<&str>,
) {
    let sandbox = machine();
    let holder = sandbox.sleeper(User::Alice);
    let name = match name {
        "SVR4" => numbers(&sandbox),
        name => name.to_owned(),
    };
    let content = match content {
        "BINARY" => holder.pid().to_ne_bytes().to_vec(),
        text => text.replace("PID", &format!("{:>4}", holder.pid())).into_bytes(),
    };
    sandbox.write(&format!("/run/lock/{name}"), content, 0o644);
    let mut lfp = Session::start(&sandbox, User::Uucp, &[], User::Root);
    let lines = holders(&mut lfp, "modemW");
    assert_eq!(lines.len(), 1, "{lines:?}");
    let line = lines.concat();
    assert_eq!(value(&line, "file"), Some(name.as_str()));
    assert_eq!(value(&line, "scheme"), Some(scheme));
    assert_eq!(value(&line, "standing"), Some(standing));
    assert_eq!(value(&line, "command"), command, "{line}");
}

/// `LK.` and the numbers of the file system, the driver and the device.
fn numbers(sandbox: &Sandbox) -> String {
    let script = "printf LK.%03d.%03d.%03d $(stat -c '%Hd %Hr %Lr' /dev/ttyS7)";
    sandbox.shell(User::Root, script).output().to_owned()
}

#[test]
#[ignore = "needs root: tests/run"]
fn all_devices_at_once() {
    let sandbox = machine();
    let _open = sandbox.command("flock").args(["-F", "/dev/ttyS7", "sleep", "1000"]).spawn();
    sandbox.write("/run/lock/LCK..ttyUSB3", "  4194000\n", 0o644);
    let mut lfp = Session::start(&sandbox, User::Root, &[], User::Root);
    one(&mut lfp, "flock");
    let lines = complete(|| lfp.lines("stat"));
    assert_eq!((lines[0].as_str(), lines.len()), ("211-holders=2 shown=2 unseen=outside", 4));
    assert_eq!(lines[3], "211 End of status.");
    assert!(
        lines[1].starts_with(" device=\"ttyS7\" scheme=flock standing=alive pid="),
        "{lines:?}"
    );
    assert!(lines[2].starts_with(" device=\"ttyUSB3\" scheme=uucp standing=stale pid=4194000 "));
}

#[test]
fn the_answer_is_bounded() {
    let daemon = Daemon::start(&[]);
    for number in 0..=STATUS_HOLDERS {
        let path = daemon.ground.path("lock").join(format!("LCK..ttyS{number}"));
        assert!(std::fs::write(path, format!("{:>10}\n", own())).is_ok());
    }
    let (all, shown) = (STATUS_HOLDERS + 1, STATUS_HOLDERS);
    // Real devices of this machine may be open as well, and a busy machine may have no time for a whole search.
    let has_all = |lines: &Vec<String>| {
        let counted = lines[0].strip_prefix("211-holders=").and_then(|rest| rest.split_once(' '));
        counted.is_some_and(|(count, _)| count.parse::<usize>().is_ok_and(|count| count >= all))
    };
    let mut client = daemon.on_tcp().greeted();
    let lines = until(LIMIT, || Some(client.lines("stat")).filter(has_all)).expect("all of them");
    let bound = format!("shown={shown}");
    assert!(lines[0].split(' ').any(|word| word == bound), "{}", lines[0]);
    assert_eq!(lines.len(), shown + 2);
}

/// The kernel shows a container neither the locks nor the open ports of processes outside.
#[rstest]
#[case::root(User::Root, "outside")]
#[case::an_ordinary_user(User::Uucp, "outside,users")]
#[ignore = "needs root: tests/run"]
fn a_service_in_a_container_says_what_it_cannot_see(#[case] service: User, #[case] unseen: &str) {
    let sandbox = machine();
    let mut lfp = Session::start(&sandbox, service, &[], User::Root);
    for (question, code) in [("STAT ttyS7", 213), ("STAT", 211)] {
        let lines = complete(|| lfp.lines(question));
        assert_eq!(lines[0], format!("{code}-holders=0 shown=0 unseen={unseen}"));
    }
}

/// Outside of all containers, root sees everybody.
#[test]
#[ignore = "needs root: tests/run"]
fn a_service_of_a_whole_machine_sees_all() {
    let daemon = Daemon::start(&[]);
    let lines = complete(|| daemon.on_tcp().greeted().lines("stat null"));
    // Source: PROC_PID_INIT_INO in the kernel's proc_ns.h.
    let is_whole =
        std::fs::read_link("/proc/self/ns/pid").is_ok_and(|it| it.ends_with("pid:[4026531836]"));
    assert_eq!(lines[0].contains(" unseen="), !is_whole, "{}", lines[0]);
}

/// The reading of a command line may take for ever. It delays no STAT, and no other client of a daemon that watches who opens
/// ports.
#[rstest]
#[ignore = "needs root: tests/run"]
fn a_process_whose_command_line_cannot_be_read_delays_nobody(
    #[values(&[][..], &["--watch-opens"])] options: &[&str],
) {
    let sandbox = machine();
    let _daemon = daemon(&sandbox, options);
    sandbox.shell(User::Root, "mkdir /tmp/stuck").expect(0);
    let script =
        "exec 3<>/dev/ttyS7; exec /usr/bin/python3 /run/test/programs/stuck_memory.py /tmp/stuck";
    let mut holder = sandbox.command("sh").args(["-c", script]).spawn();
    holder.expect("ready");
    // Nobody looks at its command line any more, as this test did at the start.
    holder.type_in("\n");
    holder.expect("stuck");
    let pid = holder.pid();
    // The other thread waits for the address space a moment later.
    let line = format!("/proc/{pid}/cmdline");
    let hangs = || sandbox.command("timeout").args(["0.2", "cat", &line]).run().code() == 124;
    until(LIMIT, || hangs().then_some(())).expect("reading hangs");
    if options.is_empty() {
        sandbox.write("/run/lock/LCK..ttyS7", format!("{pid:>10}\n"), 0o644);
    }
    let is_locked = || sandbox.locked_by("ttyS7") == Some(pid);
    assert!(comes(is_locked), "{:?}", sandbox.locks());
    let sleeper = sandbox.sleeper(User::Root);
    let lines = format!("stat ttyS7\nstat\nlock ttyS7 {0}\nlock ttyS8 {0}", sleeper.pid());
    let told = said(&sandbox, User::Root, &lines);
    let shown = format!("pid={pid} uid=0");
    let of_it = told.lines().filter(|line| line.contains(&shown));
    assert!(of_it.clone().count() >= 2, "{told}");
    assert!(of_it.into_iter().all(|line| line.ends_with(" command=\"python3\"")), "{told}");
    assert_eq!(codes(&told).last_chunk(), Some(&["450".to_owned(), "200".to_owned()]), "{told}");
}

/// Only the device shows that the name leads outside.
#[test]
fn a_name_that_leads_outside_is_denied() {
    let answer = Wire::greeted(&Ground::new()).ask("stat /dev/stdin");
    assert_eq!(answer, "550 : Permission denied.");
}
