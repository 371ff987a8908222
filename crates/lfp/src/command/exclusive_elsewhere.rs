//! `lfp run --exclusive` on systems that do not show what other processes have open. Type-checked, never run so far.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use ttylock::Request;

use super::outcome::warn;

/// There is none.
pub(super) enum Exclusion {}

impl Exclusion {
    /// Says that nothing is made exclusive.
    pub(super) fn watch(_: &[Request]) -> Option<Self> {
        warn("--exclusive needs Linux: locked, but not exclusive");
        None
    }

    pub(super) fn bell(&self) -> Option<BorrowedFd<'_>> {
        match *self {}
    }

    pub(super) fn examine_due(&mut self) -> Option<Duration> {
        match *self {}
    }

    pub(super) fn end(self) {
        match self {}
    }
}
