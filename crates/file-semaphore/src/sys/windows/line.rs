//! Windows: there is no line, because files cannot be exchanged; waiters take the lock in any order.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::time::Duration;

use pidlockfile::{Directory, Name};

use crate::sys::Woken;
use crate::sys::watch::Alarm;

/// There is none.
#[derive(Debug)]
pub(crate) struct Ticket<'d> {
    never: Infallible,
    _line: PhantomData<Line<'d>>,
}

/// The line of one lock.
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "as on other systems")]
pub(crate) struct Line<'d> {
    pub(crate) directory: &'d Directory,
    pub(crate) lock: &'d Name,
    pub(crate) mode: u32,
}

impl<'d> Line<'d> {
    pub(crate) fn exists(self) -> bool {
        false
    }

    pub(crate) fn stands(self) -> bool {
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
