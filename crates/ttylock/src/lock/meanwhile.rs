//! For tests: what another process does between two steps of ours.

use std::cell::RefCell;

/// A place between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// A lock file was read, and is going to be held.
    BeforeHold,
    /// A lock file was made, and is going to be recorded.
    BeforeRecord,
}

type Event = Box<dyn FnOnce()>;

thread_local! {
    static EVENTS: RefCell<Vec<(Moment, Event)>> = RefCell::default();
}

/// This happens when the calling thread comes there next, instead of what was set before.
pub(crate) fn at(moment: Moment, event: impl FnOnce() + 'static) {
    take(moment);
    EVENTS.with_borrow_mut(|events| events.push((moment, Box::new(event))));
}

/// The thread has come there.
pub(crate) fn comes(moment: Moment) {
    if let Some(event) = take(moment) {
        event();
    }
}

fn take(moment: Moment) -> Option<Event> {
    EVENTS.with_borrow_mut(|events| {
        let place = events.iter().position(|(at, _)| *at == moment)?;
        Some(events.remove(place).1)
    })
}
