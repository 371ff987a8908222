//! Requests to the locks of a machine, and the answers, as values. Pure.

use pidlockfile::Pid;

use crate::device::DeviceName;

/// The result of a request, as a client sees it. The reply table turns it into a code and a sentence. It has no text,
/// path or errno, so that a reply cannot leak one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the protocol has a reply for each")]
pub enum Outcome {
    /// Taken, released or passed.
    Done,
    /// A process has the lock, be it the one that asks, it is not the caller's to release, or there is nothing to release.
    Busy,
    /// There is no right to it, it is one too many, or the lock directory cannot be written: the events say which.
    Denied,
}

/// What happened on the way to an [`Outcome`], for the log only.
///
/// The text is for administrators: it names files and system errors, is built from cleaned
/// names, and never reaches a client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// How much it matters.
    pub weight: Weight,
    /// One line without control characters.
    pub text: String,
}

impl Event {
    /// A line for the log; `text` has no control characters.
    pub fn new(weight: Weight, text: impl Into<String>) -> Self {
        Self { weight, text: text.into() }
    }
}

/// How much an [`Event`] matters to an administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a log has a level for each")]
pub enum Weight {
    /// Expected in daily work: taken, refused, released.
    Info,
    /// Worth a look: the lock of a dead process was taken over, or an obstacle is in the lock directory.
    Notice,
    /// Something an administrator should change: a directory that cannot be written or read.
    Warning,
}

/// A lock that is to be handed from one process to another.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "the parts of the request PASS")]
pub struct Pass {
    /// The device as the client named it.
    pub device: DeviceName,
    /// The process that holds it.
    pub from: Pid,
    /// The process that is to hold it.
    pub to: Pid,
}

/// A request that has passed every check that needs no disk.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "the parts of the request LOCK")]
pub struct Request {
    /// The device as the client named it.
    pub device: DeviceName,
    /// The process that the lock is for.
    pub pid: Pid,
}
