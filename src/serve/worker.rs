//! A thread that works when an event has come, when somebody else has something for it, and at chosen moments; and the bell
//! that tells a thread, or the loop of the daemon, that there is something for it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use ttylock::thread;

use crate::serve::wire::timeout_until;

/// Readable from a ring until it is silenced.
#[derive(Clone, Debug)]
pub(super) struct Bell(Arc<EventFd>);

impl Bell {
    /// # Errors
    /// The system's.
    pub(super) fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self(Arc::new(EventFd::from_flags(flags)?)))
    }

    pub(super) fn ring(&self) {
        // It fails only if very many rings were not heard yet: then it is readable in any case.
        let _ = self.0.write(1);
    }

    pub(super) fn silence(&self) {
        let _ = self.0.read();
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What a thread does.
pub(crate) trait Work {
    /// Readable when an event has come; none while events are not to be handled.
    fn bell(&self) -> Option<BorrowedFd<'_>>;
    /// Handles the events and the work that there are. Returns when to do so again without an event.
    fn work(&mut self) -> Option<Instant>;
}

/// Starts a thread, which makes its own tools and works until the process ends, also at each ring of this bell.
///
/// # Errors
/// The system's.
pub(crate) fn start_worker<W: Work>(
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
