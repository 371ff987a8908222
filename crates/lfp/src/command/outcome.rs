//! Failures, with their exit codes and words. No other file has exit codes.

use std::fmt;

use nix::sys::signal::Signal;

use super::denial::Reason;
use super::exit;
use super::row::Row;
use ttylock::Scheme;
use wrapcmd::Refusal;

/// Why it was not done.
#[derive(Debug)]
pub(super) struct Failure {
    /// The device it is about, as `/dev/NAME`.
    pub(super) device: Option<String>,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    /// Somebody else has it; these do, as far as can be seen.
    Busy(Vec<Row>),
    /// Nothing to unlock, or it is another's.
    NotHeld(Vec<Row>),
    /// The same to the end of the time, or whatever else kept us from the answer.
    TimedOut(Vec<Row>, Vec<Reason>),
    /// We may not, for these reasons.
    NotPermitted(Vec<String>),
    /// No service answers, for these reasons.
    Unreachable(Vec<Reason>),
    /// A signal came first.
    Interrupted(Signal),
    /// The system would not.
    System(String),
    /// Stale locks were left.
    Left,
    /// What was typed makes no sense, for this reason.
    Usage(String),
    /// The command could not be executed.
    NotStarted(Refusal),
}

impl Failure {
    pub(super) fn about(device: &str, kind: Kind) -> Self {
        Self { device: Some(format!("/dev/{device}")), kind }
    }

    pub(super) fn system(text: impl Into<String>) -> Self {
        Self { device: None, kind: Kind::System(text.into()) }
    }

    pub(super) fn code(&self, busy: u8) -> u8 {
        match &self.kind {
            Kind::Busy(_) | Kind::NotHeld(_) => busy,
            Kind::TimedOut(..) => exit::TIMED_OUT,
            Kind::NotPermitted(_) | Kind::Left => exit::NOT_PERMITTED,
            Kind::Unreachable(_) => exit::UNREACHABLE,
            Kind::Interrupted(signal) => wrapcmd::exit::by_signal(*signal as i32),
            Kind::System(_) => exit::SYSTEM,
            Kind::Usage(_) => exit::USAGE,
            Kind::NotStarted(refusal) => refusal.code().unwrap_or(exit::SYSTEM),
        }
    }

    /// Whether somebody has the device, or nobody: the exit code alone may say that.
    pub(super) fn is_about_holders(&self) -> bool {
        matches!(self.kind, Kind::Busy(_) | Kind::NotHeld(_) | Kind::TimedOut(..))
    }

    /// One word for JSON.
    pub(super) fn word(&self) -> &'static str {
        match &self.kind {
            Kind::Busy(_) => "busy",
            Kind::NotHeld(_) => "not-held",
            Kind::TimedOut(..) => "timed-out",
            Kind::NotPermitted(_) | Kind::Left => "not-permitted",
            Kind::Unreachable(_) => "unreachable",
            Kind::Interrupted(_) => "interrupted",
            Kind::System(_) => "system-error",
            Kind::Usage(_) => "usage",
            Kind::NotStarted(refusal) if refusal.is_not_found() => "not-found",
            Kind::NotStarted(_) => "not-executable",
        }
    }

    /// The holders in the way, as far as can be seen.
    pub(super) fn holders(&self) -> &[Row] {
        match &self.kind {
            Kind::Busy(rows) | Kind::NotHeld(rows) | Kind::TimedOut(rows, _) => rows,
            Kind::NotPermitted(_)
            | Kind::Unreachable(_)
            | Kind::Interrupted(_)
            | Kind::System(_)
            | Kind::Usage(_)
            | Kind::NotStarted(_)
            | Kind::Left => &[],
        }
    }

    fn reasons(&self) -> Vec<String> {
        match &self.kind {
            Kind::NotPermitted(reasons) | Kind::Unreachable(reasons) => reasons.clone(),
            Kind::NotHeld(rows) if are_all_flocks(rows) => {
                let others = rows.iter().skip(1).map(Row::sentence);
                others.chain([ENDS_WITH_ITS_PROCESS.to_owned()]).collect()
            }
            Kind::Busy(rows) | Kind::NotHeld(rows) => rows.iter().map(Row::sentence).collect(),
            Kind::TimedOut(rows, reasons) => {
                rows.iter().map(Row::sentence).chain(reasons.iter().cloned()).collect()
            }
            Kind::Interrupted(_)
            | Kind::System(_)
            | Kind::Usage(_)
            | Kind::NotStarted(_)
            | Kind::Left => Vec::new(),
        }
    }
}

const ENDS_WITH_ITS_PROCESS: &str =
    "only the holder can end flock(2), by closing the port: there is no lock file to remove";

/// Whether the port is locked, but without a lock file.
fn are_all_flocks(rows: &[Row]) -> bool {
    !rows.is_empty() && rows.iter().all(|row| row.scheme == Scheme::Flock.word())
}

/// The lines for people: what is wrong, and indented below it why, as far as is known.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(device) = &self.device {
            write!(f, "{device}: ")?;
        }
        match &self.kind {
            Kind::Busy(_) => f.write_str("busy")?,
            Kind::NotHeld(rows) => match rows.first().filter(|_| are_all_flocks(rows)) {
                Some(row) => f.write_str(&row.sentence())?,
                None => f.write_str("not locked, or locked by another process")?,
            },
            Kind::TimedOut(rows, _) if rows.is_empty() => f.write_str("time is up")?,
            Kind::TimedOut(..) => f.write_str("still busy, time is up")?,
            Kind::NotPermitted(_) => f.write_str("not permitted")?,
            Kind::Unreachable(_) => f.write_str("no lock file service can be reached")?,
            Kind::Interrupted(signal) => write!(f, "interrupted by {signal}")?,
            Kind::System(text) | Kind::Usage(text) => f.write_str(text)?,
            Kind::NotStarted(refusal) => refusal.fmt(f)?,
            Kind::Left => f.write_str("some stale locks could not be removed")?,
        }
        self.reasons().iter().try_for_each(|reason| write!(f, "\n  {reason}"))
    }
}
