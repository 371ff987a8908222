//! The administrator's log: syslog. Each user may cause [`LOG_LINES`] lines in a minute (`Journal`), so that one user
//! cannot bury the lines about others.
//!
//! Never speaks to a client and never stops a session. If there is no `/dev/log`, or the syslog daemon has
//! stalled, lines are lost. Opens nothing before the first line.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt::{self, Display};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::panic;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send};
use pidlockfile::ascii;
use syslog::Facility;

use crate::limits::LOG_LINES;
use crate::peer::Peer;
use crate::serve::admission::User;
use crate::sys::{QUIETLY, SYSLOG};
use ttylock::subordinate::owner_of;
use ttylock::{Event, Weight};

/// A line in the log, in characters. The rest is left out.
const LINE_CHARS: usize = 1024;

/// Time for a stalled syslog to take a line. Then the session goes on without the log.
const PATIENCE: Duration = Duration::from_millis(250);

/// Time after syslog has stalled in which no line waits for it: those that it does not take at once are lost.
const HURRY: Duration = Duration::from_secs(30);

/// Time after nobody has listened in which lines are lost without a look: in many containers there is no syslog.
const ABSENCE: Duration = Duration::from_secs(1);

/// How grave a line is, the gravest first. Source: syslog(3), without the three above error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Severity {
    /// The service, or a part of it, does not work.
    Error = syslog::Severity::Err as isize,
    /// An administrator should change something.
    Warning = syslog::Severity::Warning as isize,
    /// Worth a look: a client was refused, or the lock of a dead process was taken over.
    Notice = syslog::Severity::Notice as isize,
    /// Daily work: taken, refused, released.
    Info = syslog::Severity::Info as isize,
    /// For finding faults.
    Debug = syslog::Severity::Debug as isize,
}

/// Writes one line per event to the syslog of this host, those up to a threshold.
pub struct Log {
    facility: Facility,
    threshold: Severity,
    socket: Option<UnixDatagram>,
    /// Syslog has stalled: until then, no line waits for it.
    hurries_until: Option<Instant>,
    /// Nobody listened: until then, nobody is looked for.
    absent_until: Option<Instant>,
}

impl Log {
    /// A log under this facility that keeps lines of `threshold` and graver.
    #[must_use]
    pub fn new(facility: Facility, threshold: Severity) -> Self {
        Self { facility, threshold, socket: None, hurries_until: None, absent_until: None }
    }

    /// A log like this one, for another thread.
    #[must_use]
    pub fn another(&self) -> Self {
        Self::new(self.facility, self.threshold)
    }

    /// Whether a line of this severity would be written.
    #[must_use]
    pub fn wants(&self, severity: Severity) -> bool {
        severity <= self.threshold
    }

    /// Writes one line, cleaned and cut. Formats nothing when nobody will read it.
    pub fn record(&mut self, severity: Severity, line: &dyn Display) {
        if !self.wants(severity) {
            return;
        }
        let hurries = self.hurries_until.is_some_and(|until| Instant::now() < until);
        // A syslog that was restarted listens anew.
        for _ in 0..2 {
            let Some(socket) = self.socket.take().or_else(|| self.open()) else { return };
            let line = message(self.facility, severity, &clean(line));
            let flags = if hurries { MsgFlags::MSG_DONTWAIT } else { MsgFlags::empty() };
            match send(socket.as_raw_fd(), line.as_bytes(), flags | QUIETLY) {
                Ok(_) => {
                    self.socket = Some(socket);
                    return;
                }
                Err(Errno::EAGAIN | Errno::ETIMEDOUT) if !hurries => {
                    self.hurries_until = Instant::now().checked_add(HURRY);
                    return;
                }
                Err(_) => {}
            }
        }
    }
}

impl Log {
    fn open(&mut self) -> Option<UnixDatagram> {
        let now = Instant::now();
        if self.absent_until.is_some_and(|until| now < until) {
            return None;
        }
        let socket = open();
        self.absent_until = now.checked_add(ABSENCE).filter(|_| socket.is_none());
        socket
    }
}

/// Sends panics to syslog, and to standard error where that is not the client.
pub fn catch_panics(facility: Facility, standard_error: StandardError) {
    panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map(|place| format!(" at {place}")).unwrap_or_default();
        let text = panic.payload().downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.payload().downcast_ref::<String>().map(String::as_str));
        let line = clean(&format_args!("panic{place}: {}", text.unwrap_or("no text")));
        if let Some(socket) = open() {
            let _ = socket.send(message(facility, Severity::Error, &line).as_bytes());
        }
        if standard_error == StandardError::Ours {
            let _ = writeln!(io::stderr(), "lfpd: {line}");
        }
    }));
}

/// Where descriptor 2 leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandardError {
    /// To the administrator that runs the service.
    Ours,
    /// It leads, or may lead, to the client.
    Clients,
}

fn open() -> Option<UnixDatagram> {
    // Nobody listens in many containers, and asking for the file is cheaper than for the listener.
    std::fs::symlink_metadata(SYSLOG).ok()?;
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect(SYSLOG).ok()?;
    socket.set_write_timeout(Some(PATIENCE)).ok()?;
    Some(socket)
}

/// `<PRIORITY>lfpd[PID]: LINE` without a time: the receiver knows it better (RFC 3164, 4.3.2).
///
/// Not by `syslog_fmt`, which has the names and numbers of facilities: it writes RFC 5424 alone, which journald and BusyBox
/// take for text at `/dev/log`, so that the name and number of the program would be lost.
fn message(facility: Facility, severity: Severity, line: &str) -> String {
    let (priority, pid) = (facility as u8 | severity as u8, std::process::id());
    format!("<{priority}>lfpd[{pid}]: {line}")
}

/// The facility of this name, such as `daemon` or `LOG_DAEMON`, in any case.
///
/// # Errors
/// That there is none.
pub fn facility(name: &str) -> Result<Facility, &'static str> {
    let name = name.to_ascii_lowercase();
    let name = name.strip_prefix("log_").unwrap_or(&name);
    let is_it = |facility: &Facility| facility.to_string().eq_ignore_ascii_case(name);
    let mut known = (0..=23).filter_map(|number| Facility::try_from(number).ok());
    known.find(is_it).ok_or("no such syslog facility")
}

/// One line of at most [`LINE_CHARS`] characters: control characters, and everything else
/// outside printable ASCII, show as `?`. Clients' text may be in it.
fn clean(line: &dyn Display) -> String {
    line.to_string().chars().take(LINE_CHARS).map(ascii).collect()
}

impl From<Weight> for Severity {
    fn from(weight: Weight) -> Self {
        match weight {
            Weight::Info => Self::Info,
            Weight::Notice => Self::Notice,
            Weight::Warning => Self::Warning,
        }
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("threshold", &self.threshold).finish_non_exhaustive()
    }
}

const MINUTE: Duration = Duration::from_secs(60);

/// The log, and how many lines each user has caused.
#[derive(Debug)]
pub(crate) struct Journal {
    /// For lines that no user has caused.
    pub(crate) log: Log,
    budget: Budget,
}

/// How many lines each user has caused in a minute, also those that were left out.
#[derive(Debug)]
struct Budget {
    began: Instant,
    lines: HashMap<User, usize>,
}

impl Budget {
    /// One more line about this user: how many these are in this minute.
    fn spend(&mut self, user: User, now: Instant) -> usize {
        if now.saturating_duration_since(self.began) >= MINUTE {
            *self = Self { began: now, lines: HashMap::new() };
        }
        // Those beyond this many share one budget.
        let user = user.map(owner_of);
        let is_known = self.lines.len() < LOG_LINES || self.lines.contains_key(&user);
        let lines = self.lines.entry(user.filter(|_| is_known)).or_default();
        *lines = lines.saturating_add(1);
        *lines
    }
}

impl Journal {
    pub(crate) fn of(log: Log) -> Self {
        Self { log, budget: Budget { began: Instant::now(), lines: HashMap::new() } }
    }

    /// A line about what a user has caused.
    pub(crate) fn of_user(&mut self, user: User, severity: Severity, line: fmt::Arguments<'_>) {
        if !self.log.wants(severity) {
            return;
        }
        match self.budget.spend(user, Instant::now()).cmp(&(LOG_LINES + 1)) {
            Ordering::Less => self.log.record(severity, &line),
            Ordering::Equal => {
                let uid = user.map_or_else(|| "an unknown user".to_owned(), |u| format!("uid {u}"));
                let text =
                    format!("further lines about {uid} are left out until this minute is over");
                self.log.record(Severity::Warning, &text);
            }
            Ordering::Greater => {}
        }
    }

    /// What a request of this peer has led to.
    pub(crate) fn of_peer(&mut self, peer: &Peer, events: Vec<Event>) {
        for event in events {
            let severity = event.weight.into();
            self.of_user(peer.uid, severity, format_args!("{peer}: {}", event.text));
        }
    }

    /// What no request has led to.
    pub(crate) fn of_nobody(&mut self, events: Vec<Event>) {
        for event in events {
            self.log.record(event.weight.into(), &event.text);
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plain("lock taken: ttyS0", "lock taken: ttyS0")]
    #[case::newline("one\nlfpd[1]: two", "one?lfpd[1]: two")]
    #[case::escape("\x1b[2J\x07", "?[2J?")]
    #[case::nul_and_delete("a\0b\x7fc", "a?b?c")]
    #[case::c1_and_beyond("\u{9b}\u{2028}\u{e9}", "???")]
    #[case::percent("%n%s%n", "%n%s%n")]
    fn lines_are_cleaned(#[case] line: &str, #[case] cleaned: &str) {
        assert_eq!(clean(&line), cleaned);
    }

    #[rstest]
    #[case::below(LINE_CHARS - 1, LINE_CHARS - 1)]
    #[case::at(LINE_CHARS, LINE_CHARS)]
    #[case::above(LINE_CHARS + 1, LINE_CHARS)]
    #[case::far_above(100 * LINE_CHARS, LINE_CHARS)]
    fn lines_are_cut(#[case] length: usize, #[case] kept: usize) {
        assert_eq!(clean(&"x".repeat(length)).len(), kept);
    }

    #[rstest]
    #[case("daemon", Some(24))]
    #[case("LOG_DAEMON", Some(24))]
    #[case("Kern", Some(0))]
    #[case("uucp", Some(64))]
    #[case("authpriv", Some(80))]
    #[case("local7", Some(184))]
    #[case("local8", None)]
    #[case("", None)]
    #[case("log_log_mail", None)]
    fn facilities_have_names(#[case] name: &str, #[case] number: Option<u8>) {
        assert_eq!(facility(name).ok().map(|facility| facility as u8), number);
    }

    #[test]
    fn each_user_has_so_many_lines_in_a_minute() {
        let now = Instant::now();
        let mut budget = Budget { began: now, lines: HashMap::new() };
        for line in 1..=LOG_LINES + 3 {
            assert_eq!(budget.spend(Some(1), now), line);
        }
        assert_eq!((budget.spend(Some(2), now), budget.spend(None, now)), (1, 1));
        let later = now + MINUTE;
        assert_eq!(budget.spend(Some(1), later), 1);
        for uid in (2..).take(2 * LOG_LINES) {
            budget.spend(Some(uid), later);
        }
        assert!(budget.lines.len() <= LOG_LINES + 1, "those beyond share one budget");
        assert!(budget.spend(Some(u32::MAX), later) > LOG_LINES);
        assert_eq!(budget.spend(Some(1), later), 2);
    }
}
