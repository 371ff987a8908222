//! Other systems than Linux: there are no reports, so every wait lasts its full time, and then the waiter
//! checks. Type-checked, never run so far.

use std::os::fd::BorrowedFd;

use pidlockfile::{Directory, Name};

/// There is none.
#[derive(Debug)]
pub(crate) enum Watching {}

impl Watching {
    pub(crate) fn directory(_directory: &Directory) -> Option<Self> {
        None
    }

    pub(crate) fn concerns(&self, _names: &[Name]) -> bool {
        match *self {}
    }

    pub(crate) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        match *self {}
    }
}
