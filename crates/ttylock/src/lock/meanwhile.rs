//! For tests: what another process does between two steps of ours.

use std::cell::RefCell;

/// The step of ours that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// A lock file was read, and its record is going to be.
    Record,
    /// A lock file was read, and is going to be held.
    Hold,
    /// A lock file is held by another process, and the kernel's list is going to be read.
    List,
    /// A lock has all its names but the last.
    LastName,
    /// A lock has its names, and is going to be looked at once more.
    Confirm,
    /// Another process is in the gate, and what a failed LOCK has written is going to be given back.
    GiveBack,
    /// All names of a lock but the first have been passed.
    Decision,
    /// All names of a lock have been passed, and the link to the giver's file is going to be removed.
    End,
}

type Happening = Box<dyn FnOnce()>;

thread_local! {
    static EVENTS: RefCell<Vec<(Before, Happening)>> = RefCell::default();
}

/// This happens when the calling thread comes to that step next, instead of what was set before.
pub(crate) fn at(before: Before, event: impl FnOnce() + 'static) {
    take(before);
    EVENTS.with_borrow_mut(|events| events.push((before, Box::new(event))));
}

/// The thread comes to that step.
pub(crate) fn comes(before: Before) {
    if let Some(event) = take(before) {
        event();
    }
}

fn take(before: Before) -> Option<Happening> {
    EVENTS.with_borrow_mut(|events| {
        let place = events.iter().position(|(at, _)| *at == before)?;
        Some(events.remove(place).1)
    })
}
