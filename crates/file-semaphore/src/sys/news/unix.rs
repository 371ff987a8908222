//! Other systems than Linux: nobody tells, so every wait lasts its time, and then the waiter looks.
//! Type-checked, never run so far.

use std::os::fd::{AsFd, BorrowedFd};

use pidlockfile::{Directory, Name};

/// There is none.
#[derive(Debug)]
pub(crate) enum Instance {}

impl Instance {
    pub(crate) fn new() -> Option<Self> {
        None
    }

    pub(crate) fn directory(self, _directory: &Directory) -> Option<Watching> {
        match self {}
    }

    pub(crate) fn ticket(self, _directory: &Directory, _ticket: &Name) -> Option<Watching> {
        match self {}
    }
}

/// There is none.
#[derive(Debug)]
pub(crate) enum Watching {}

impl Watching {
    pub(crate) fn stop(self) -> Option<Instance> {
        match self {}
    }

    pub(crate) fn concerns(&self, _names: &[Name]) -> bool {
        match *self {}
    }
}

impl AsFd for Watching {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match *self {}
    }
}
