//! What the administrator reads in syslog, and that clients' text cannot forge it.

use crate::machine::with_syslog;
use rstest::rstest;
use testbed::{GONE, LIMIT, Sandbox, Session, Syslog, User, connect_in};

/// `<PRIORITY>lfpd[PID]: LINE`, with facility and severity of syslog(3).
fn priority(raw: &[u8]) -> (u32, u32) {
    let text = std::str::from_utf8(raw).unwrap();
    let (number, rest) = text.strip_prefix('<').unwrap().split_once('>').unwrap();
    assert!(rest.starts_with("lfpd["), "{text}");
    let number: u32 = number.parse().unwrap();
    (number >> 3, number & 7)
}

fn talk<'a>(sandbox: &'a Sandbox, user: User, options: &[&str]) -> Session<'a> {
    Session::start(sandbox, User::Uucp, options, user)
}

/// One line each for taken, refused, released, stolen from the dead, and refused to name; each
/// says who asked.
#[test]
#[ignore = "needs root: tests/run"]
fn each_event_is_one_log_line() {
    let (sandbox, syslog) = with_syslog();
    let [alices, bobs] = [User::Alice, User::Bob].map(|user| sandbox.sleeper(user));
    let (alice, bob) = (alices.pid().to_string(), bobs.pid().to_string());
    let mut talk = talk(&sandbox, User::Alice, &[]);
    let mut said = |line: &str, code: &str| {
        assert_eq!(talk.code(line), code, "{line}");
        let raw = syslog.raw();
        let text = String::from_utf8(raw.clone()).unwrap();
        assert!(text.contains("uid 1000 at 127.0.0.1:"), "{text}");
        assert!(syslog.silent(), "one line for {line}");
        (priority(&raw).1, text)
    };
    let (severity, line) = said(&format!("lock ttyS1 {alice}"), "200");
    assert!(severity == 6 && line.contains("ttyS1") && line.contains(&alice), "{line}");
    let (severity, line) = said(&format!("lock ttyS1 {alice}"), "450");
    assert!(severity == 6 && line.contains("ttyS1") && line.contains(&alice), "{line}");
    let (severity, line) = said(&format!("unlock ttyS1 {bob}"), "550");
    assert!(severity == 5 && line.contains(&bob) && line.contains("uid 1001"), "{line}");
    let (severity, line) = said(&format!("unlock ttyS1 {alice}"), "200");
    assert!(severity == 6 && line.contains("ttyS1") && line.contains(&alice), "{line}");
    said(&format!("lock ttyS1 {GONE}"), "200");

    // A second holder after a dead one: the line or lines say that it was stolen from the dead.
    assert_eq!(talk.code(&format!("lock ttyS1 {alice}")), "200");
    let (severity, line) = (priority(&syslog.raw()).1, syslog.line());
    assert!(severity <= 6 && line.contains("ttyS1"), "{line}");
}

/// Whatever the client sends, a line in the log is one line of printable ASCII.
#[test]
#[ignore = "needs root: tests/run"]
fn clients_text_is_clean() {
    let (sandbox, syslog) = with_syslog();
    let mut talk = talk(&sandbox, User::Root, &["--log-level", "debug"]);
    for device in ["%n%s%n", "x]:<0>root", "\\x1b[2J", "${IFS}`id`"] {
        assert_eq!(talk.code(&format!("lock {device} {GONE}")), "200");
        let raw = syslog.raw();
        assert!(raw.iter().all(|byte| (b' '..=b'~').contains(byte)), "{raw:?}");
        assert!(String::from_utf8_lossy(&raw).contains(device));
    }
    for line in ["lock \x1b[2J 1", "\r\n<0>kernel: on fire", "lock tty\nS1 x"] {
        let _ = talk.code(line);
    }
    drop(talk.client);
    assert!(talk.process.wait(LIMIT).code() == 0);
    while !syslog.silent() {
        let raw = syslog.raw();
        assert!(raw.iter().all(|byte| (b' '..=b'~').contains(byte)), "{raw:?}");
    }
}

#[rstest]
#[case::default(&[], 3)]
#[case::uucp(&["--log-facility", "uucp"], 8)]
#[case::local7(&["--log-facility", "local7"], 23)]
#[ignore = "needs root: tests/run"]
fn the_facility_is_selectable(#[case] options: &[&str], #[case] facility: u32) {
    let (sandbox, syslog) = with_syslog();
    let mut talk = talk(&sandbox, User::Root, options);
    assert_eq!(talk.code(&format!("lock ttyS1 {GONE}")), "200");
    assert_eq!(priority(&syslog.raw()), (facility, 6));
}

#[rstest]
#[case::info("info", true, true)]
#[case::debug("debug", true, true)]
#[case::notice("notice", false, true)]
#[case::warning("warning", false, false)]
#[case::error("error", false, false)]
#[ignore = "needs root: tests/run"]
fn the_level_is_selectable(#[case] level: &str, #[case] info: bool, #[case] notice: bool) {
    let (sandbox, syslog) = with_syslog();
    let mut talk = talk(&sandbox, User::Alice, &["--log-level", level]);
    assert_eq!(talk.code(&format!("lock ttyS1 {GONE}")), "200");
    assert_eq!(talk.code("lock ttyS2 1"), "550");
    drop(talk.client);
    assert_eq!(talk.process.wait(LIMIT).code(), 0);
    let mut levels = Vec::new();
    while !syslog.silent() {
        levels.push(priority(&syslog.raw()).1);
    }
    assert_eq!((levels.contains(&6), levels.contains(&5)), (info, notice), "{levels:?}");
}

/// A syslog daemon that has stalled, with its queue full, holds up nobody for long: more is done
/// than the queue has room for lines, and the session ends.
#[test]
#[ignore = "needs root: tests/run"]
fn a_stalled_syslog_stops_nobody() {
    let (sandbox, _never_read) = with_syslog();
    let queue = sandbox.read("/proc/sys/net/unix/max_dgram_qlen").unwrap();
    let queue: usize = String::from_utf8(queue).unwrap().trim().parse().unwrap();
    let mut talk = talk(&sandbox, User::Root, &[]);
    for _ in 0..4 * queue {
        assert_eq!(talk.code("lock ttyS1 1"), "200");
        assert_eq!(talk.code("unlock ttyS1 1"), "200");
    }
    assert_eq!(talk.code("quit"), "221");
    assert_eq!(talk.process.wait(LIMIT).code(), 0);
}

/// Whether it had stalled or not, a syslog that was started again gets the next line.
#[rstest]
#[ignore = "needs root: tests/run"]
fn a_syslog_that_was_restarted_is_found_at_once(#[values(false, true)] stalled: bool) {
    let (sandbox, syslog) = with_syslog();
    let mut talk = talk(&sandbox, User::Root, &[]);
    let mut ask = |times: usize| {
        for _ in 0..times {
            assert_eq!(talk.code("lock ttyS1 1"), "200");
            assert_eq!(talk.code("unlock ttyS1 1"), "200");
        }
    };
    ask(1);
    assert!(syslog.line().contains("locked ttyS1"));
    // More lines than any queue holds, so that it rests; or none.
    ask(if stalled { 300 } else { 0 });
    drop(syslog);
    std::fs::remove_file(sandbox.path("/dev/log")).unwrap();
    let syslog = Syslog::open(&sandbox);
    ask(1);
    assert!(syslog.line().contains("locked ttyS1"));
}

/// Without syslog everything works, and nothing is said about it to anybody.
#[test]
#[ignore = "needs root: tests/run"]
fn without_syslog_all_is_silent() {
    let sandbox = Sandbox::with_lfpd().enter();
    let mut talk = talk(&sandbox, User::Root, &[]);
    assert_eq!(talk.code("lock ttyS1 1"), "200");
    assert_eq!(talk.code("quit"), "221");
    assert_eq!(talk.line(), "");
    let end = talk.process.wait(LIMIT);
    assert_eq!((end.code(), end.output()), (0, ""));
}

/// What is wrong with the arguments is said in syslog when a client is at the other end.
#[test]
#[ignore = "needs root: tests/run"]
fn a_bad_command_line_is_logged() {
    let (sandbox, syslog) = with_syslog();
    let ends = connect_in(&sandbox, "127.0.0.1", User::Root);
    let mut talk = Session::on(&sandbox, User::Uucp, &["--no-such-option"], ends);
    assert_eq!(talk.line(), "");
    assert_eq!(talk.process.wait(LIMIT).code(), 64);
    let raw = syslog.raw();
    assert_eq!(priority(&raw), (3, 3));
    assert!(String::from_utf8(raw).unwrap().contains("cannot start"));
}
