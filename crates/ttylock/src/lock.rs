//! The locks of one device: their files, their contents, taking and releasing them, and the answer to a request.
//!
//! `names` turns a device into the file names of every dialect, and only `table` combines them with the disk.

pub(crate) mod backoff;
pub(crate) mod directories;
pub(crate) mod exclusive;
pub(crate) mod flock;
mod flock_guards;
pub(crate) mod held_files;
mod holder;
pub(crate) mod holder_records;
pub(crate) mod holders;
#[cfg(target_os = "linux")]
pub(crate) mod kernel_buffer;
mod kernel_list;
mod list_thread;
#[cfg(test)]
mod meanwhile;
mod model;
pub(crate) mod names;
mod open;
#[cfg(target_os = "linux")]
pub(crate) mod port_watch;
pub(crate) mod table;

pub use model::{Event, Outcome, Pass, Request, Weight};

use pidlockfile::Occupant;
use pidlockfile::process::ProcessIdentity;

/// The answer to one LOCK, UNLOCK or PASS.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a service gives answers of its own")]
pub struct Answer {
    /// The real name below `/dev` of the device that was taken, released or passed, or why it was not.
    pub result: Result<String, Stop>,
    /// The events for the log, in order.
    pub events: Vec<Event>,
}

/// Why a device was not taken, released or passed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a service acts on each")]
pub enum Stop {
    /// See [`Outcome::Busy`]. This process has the lock, if it is known.
    Busy(Option<ProcessIdentity>),
    /// See [`Outcome::Denied`].
    Denied,
    /// There will be an answer a moment later; the caller comes back for it.
    NotYet(Cause),
}

/// Why there is no answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a service acts on each")]
pub enum Cause {
    /// Somebody else is at the lock. A process holds a lock file of the device by `flock(2)`, most likely because it breaks
    /// or releases the lock at this moment; or a client of a service waits for the device, and comes first.
    Contended,
    /// That process is in the gate.
    Gate(Occupant),
    /// The kernel's list of locks is being read; that ends.
    Reading,
}

impl Answer {
    /// The result for the client. Busy if there is no answer yet.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self.result {
            Ok(_) => Outcome::Done,
            Err(Stop::Busy(_) | Stop::NotYet(_)) => Outcome::Busy,
            Err(Stop::Denied) => Outcome::Denied,
        }
    }

    /// The process that has the lock, if it is known.
    #[must_use]
    pub fn blocker(&self) -> Option<&ProcessIdentity> {
        match &self.result {
            Err(Stop::Busy(blocker)) => blocker.as_ref(),
            Ok(_) | Err(Stop::Denied | Stop::NotYet(_)) => None,
        }
    }
}
