//! What a process writes into the gate when it enters, so that others see who is inside, and that it is not always the
//! same process. Pure.

use std::time::Duration;

use crate::process::Pid;

/// The length of an entry: a number in ten places, the time in nanoseconds in twenty, and a newline.
pub(crate) const ENTRY_BYTES: usize = 32;

/// Another process that is in the gate, by what it has written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupant {
    entry: [u8; ENTRY_BYTES],
}

impl Occupant {
    /// Its number in its own pid namespace; `None` in the moment before it has written that.
    #[must_use]
    pub fn pid(&self) -> Option<Pid> {
        let number = self.entry.split(|byte| *byte == b' ').next()?;
        Pid::parse(number).ok()
    }

    /// A process that enters so long after 1970. No two entries of a process are the same.
    pub(crate) fn entering(pid: Pid, time: Duration) -> Self {
        let text = format!("{pid:<10} {:>20}\n", time.as_nanos());
        let mut entry = [0; ENTRY_BYTES];
        entry.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
        Self { entry }
    }

    pub(crate) fn of(entry: [u8; ENTRY_BYTES]) -> Self {
        Self { entry }
    }

    pub(crate) fn entry(&self) -> &[u8] {
        &self.entry
    }
}
