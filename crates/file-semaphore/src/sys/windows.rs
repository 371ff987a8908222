//! Windows: replacements for what it lacks. There is no queue, because files cannot be exchanged: waiters check again
//! and again, and take the lock in any order. Only privileged users can create symbolic links, and a directory inherits
//! the permissions of the one around it.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::marker::PhantomData;
use std::path::Path;
use std::time::{Duration, Instant};

use pidlockfile::{Directory, Name};
use winapi_util::sysinfo::{ComputerNameKind, get_computer_name};

use crate::error::Error;
use crate::sys::Woken;

/// Makes the directory if there is none.
pub(crate) fn make_directory_alike(path: &Path, _around: &Directory) -> io::Result<()> {
    match std::fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Rung or not: nobody hears it. A waiter checks every few milliseconds whether it was called.
#[derive(Debug)]
pub(crate) struct Bell;

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self)
    }

    pub(crate) fn ring(&self) {}
}

/// There is no ticket, because there is no queue: see [`Queue::join`].
#[derive(Debug)]
pub(crate) struct Ticket<'d> {
    never: Infallible,
    _queue: PhantomData<Queue<'d>>,
}

/// The queue of one lock.
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "as on other systems")]
pub(crate) struct Queue<'d> {
    pub(crate) directory: &'d Directory,
    pub(crate) lock: &'d Name,
    pub(crate) mode: u32,
}

impl<'d> Queue<'d> {
    pub(crate) fn exists(self) -> bool {
        false
    }

    pub(crate) fn has_waiters(self) -> bool {
        false
    }

    pub(crate) fn join(self) -> Option<Ticket<'d>> {
        None
    }

    pub(crate) fn is_ticket(self, _content: &[u8]) -> bool {
        false
    }

    /// Removes the last ticket that a Unix left in a shared directory; never: the waiters there cannot
    /// be seen.
    pub(crate) fn sweep(self) -> bool {
        false
    }
}

impl Ticket<'_> {
    pub(crate) fn wait(&mut self, _time: Duration, _alarm: Option<&dyn Alarm>) -> Option<Woken> {
        match self.never {}
    }
}

/// Any: only privileged users can create them.
pub(crate) fn may_follow_link(_link: &Metadata, _around: &Metadata) -> bool {
    true
}

/// The machine's name.
pub(crate) fn host_name() -> Option<OsString> {
    get_computer_name(ComputerNameKind::PhysicalDnsHostname).ok()
}

/// How soon an alarm is heard.
const HEARING: Duration = Duration::from_millis(10);

/// Something besides the lock that ends a wait.
pub(crate) trait Alarm {
    /// What it ends the wait with, if it rings. Does not wait.
    fn ring(&self) -> Option<Error>;
}

/// Sees nothing: every wait lasts its time. Never decides that a lock is free: the caller checks.
#[derive(Debug)]
pub(crate) struct Watch;

impl Watch {
    pub(crate) fn on(_directory: &Directory) -> Self {
        Self
    }

    pub(crate) fn reports(&self) -> bool {
        false
    }

    /// Waits until the time is over, or the alarm rings.
    pub(crate) fn wait(&self, _names: &[Name], time: Duration, alarm: Option<&dyn Alarm>) -> Woken {
        let begin = Instant::now();
        while let Some(left) = time.checked_sub(begin.elapsed()).filter(|left| !left.is_zero()) {
            if alarm.is_some_and(|alarm| alarm.ring().is_some()) {
                return Woken::Alarm;
            }
            std::thread::sleep(if alarm.is_some() { left.min(HEARING) } else { left });
        }
        Woken::Time
    }
}
