//! Requests to the locks of a machine, and the answers, as values. Pure.

use pidlockfile::Pid;

use crate::device::name::DeviceName;

/// What became of a request. The reply table turns it into a code and a sentence; it carries no
/// text, path or errno, so that a reply cannot leak one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Taken, or released.
    Done,
    /// Somebody else has it, it is not the asker's to release, or there is nothing to release.
    Busy,
    /// The lock directory cannot be written.
    Denied,
}

/// What happened on the way to an [`Outcome`], for the log only.
///
/// The text is for administrators: it names files and system errors, is built from cleaned
/// names, and never reaches a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// How much it matters.
    pub weight: Weight,
    /// One line without control characters.
    pub text: String,
}

/// How much an [`Event`] matters to an administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Expected in daily work: taken, refused, released.
    Info,
    /// Worth a look: a lock stolen from the dead, an obstacle in the lock directory.
    Notice,
    /// Something an administrator should change: a directory that cannot be written or read.
    Warning,
}

/// The answer to one LOCK or UNLOCK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What the client is told.
    pub outcome: Outcome,
    /// What the log is told, in order.
    pub events: Vec<Event>,
}

/// A lock that is to be handed from one process to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pass {
    /// The device as the client named it.
    pub device: DeviceName,
    /// The process that holds it.
    pub from: Pid,
    /// The process that is to hold it.
    pub to: Pid,
}

/// There will be an answer a moment later.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contended {
    /// What the log is told, in order.
    pub events: Vec<Event>,
    /// What the answer waits for.
    pub cause: Cause,
}

/// Why there is no answer yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// Another process holds a stale lock of the device by `flock(2)`: most likely it is breaking it this
    /// very moment.
    #[default]
    Breaking,
    /// The kernel's list of locks is being read, and that comes to an end.
    Reading,
}

/// A request that has passed every check that needs no disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The device as the client named it.
    pub device: DeviceName,
    /// The process the lock belongs to.
    pub pid: Pid,
}
