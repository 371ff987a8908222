//! A panic is reported to syslog, and nowhere else. Not under the usual harness: this program is its own child, and
//! what the child says must be its own words.

use std::io::Read;
use std::os::unix::net::UnixStream;

use lfpd::log::{StandardError, catch_panics};
use testbed::{LIMIT, Sandbox, Syslog, run_tests};

const WORDS: &str = "the line was:\n<0>lfpd[1]: all is well\u{1b}[2J";

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("panic-at-the-client") => panic_with(StandardError::Clients),
        Some("panic-at-home") => panic_with(StandardError::Ours),
        Some(_) | None => {
            let at_the_client = || told_to_syslog_alone("panic-at-the-client", false);
            let at_home = || told_to_syslog_alone("panic-at-home", true);
            let tests: [(&str, fn()); 2] = [("at_the_client", at_the_client), ("at_home", at_home)];
            run_tests(&tests, Some("needs namespaces: tests/run"));
        }
    }
}

#[expect(clippy::panic, reason = "this is the panic that is looked at")]
fn panic_with(standard_error: StandardError) {
    catch_panics(syslog::Facility::Daemon, standard_error);
    panic!("{WORDS}");
}

#[expect(clippy::expect_used, clippy::unwrap_used, reason = "a panic is how a test fails")]
fn told_to_syslog_alone(role: &str, at_home: bool) {
    let own = std::env::current_exe().expect("this program");
    let sandbox = Sandbox::layout().bring("panics", own).enter();
    let syslog = Syslog::open(&sandbox);
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(LIMIT)).unwrap();
    let child = sandbox.command("/run/test/panics").arg(role).on_connection(theirs).spawn();
    let mut said = String::new();
    ours.read_to_string(&mut said).unwrap();
    let end = child.wait(LIMIT);
    assert_ne!(end.code(), 0);
    assert_eq!(said, "", "descriptor 1");
    let raw = syslog.raw();
    let line = String::from_utf8(raw).expect("text");
    assert!(line.starts_with("<27>lfpd["), "{line}");
    let told = "panic at tests/session_panic.rs:";
    let words = ": the line was:?<0>lfpd[1]: all is well?[2J";
    assert!(line.contains(told) && line.ends_with(words), "{line}");
    assert!(syslog.silent());
    assert_eq!(end.said(told) && end.said(words), at_home, "descriptor 2: {}", end.output());
    assert_eq!(end.output().is_empty(), !at_home, "descriptor 2: {}", end.output());
}
