//! A thread that works when an event has come, when somebody else has something for it, and at chosen moments.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, poll};
use ttylock::thread;

use crate::serve::bell::Bell;
use crate::serve::wire::timeout_until;

/// What a thread does.
pub(super) trait Work {
    /// Readable when an event has come; none while events are not to be handled.
    fn bell(&self) -> Option<BorrowedFd<'_>>;
    /// Handles what there is. Returns when to do so again without an event.
    fn work(&mut self) -> Option<Instant>;
}

/// Starts a thread, which makes its own tools and works until the process ends, also at each ring of this bell.
///
/// # Errors
/// The system's.
pub(super) fn start<W: Work>(
    wakes: &Bell,
    name: &str,
    make: impl FnOnce() -> W + Send + 'static,
) -> io::Result<()> {
    let wakes = wakes.clone();
    let run = move || {
        let mut work = make();
        loop {
            turn(&mut work, &wakes);
        }
    };
    thread::start(name, run).map(drop)
}

fn turn(work: &mut impl Work, wakes: &Bell) {
    let next = work.work();
    let own = PollFd::new(wakes.as_fd(), PollFlags::POLLIN);
    let bell = work.bell().map(|bell| PollFd::new(bell, PollFlags::POLLIN));
    let mut awaited: Vec<PollFd<'_>> = std::iter::once(own).chain(bell).collect();
    // An error is a signal, after which there is as much to do as after an event.
    let _ = poll(&mut awaited, timeout_until(next));
    wakes.silence();
}
