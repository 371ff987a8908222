//! Windows: waits by checking again and again. Never decides that a lock is free: the caller checks.

use std::time::{Duration, Instant};

use pidlockfile::{Directory, Name};

use crate::error::Error;
use crate::sys::Woken;

/// How soon an alarm is heard.
const HEARING: Duration = Duration::from_millis(10);

/// Something besides the lock that ends a wait.
pub(crate) trait Alarm {
    /// What it ends the wait with, if it rings. Does not wait.
    fn ring(&self) -> Option<Error>;
}

/// Sees nothing: every wait lasts its time.
#[derive(Debug)]
pub(crate) struct Watch;

impl Watch {
    pub(crate) fn on(_directory: &Directory) -> Self {
        Self
    }

    pub(crate) fn is_told(&self) -> bool {
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
