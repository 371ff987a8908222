//! The threads beside the loop of a daemon, and the bell by which one side wakes the other.
//!
//! A worker works when an event has come, when somebody else has something for it, and at chosen moments (`--exclusive`,
//! `--watch-opens`). The status worker finds the holders for STAT: this looks at every process of the machine, and only
//! the clients that ask are to wait for it. One survey answers all questions that were asked before it began.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use ttylock::{DeviceName, Layout, Survey, Table};

use super::admission::ClientId;
use super::wire::timeout_until;
use crate::limits::STATUS_SEARCH;

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

/// What a thread of this process and the service share. No operation on it can fail half-way, so it is valid also after a
/// panic.
pub(super) fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
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
    ttylock::thread::start(name, run).map(drop)
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

/// The longest pause between two searches for holders. A pause is three times as long as the search before it, up to
/// this.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection, and the device that it asks about; `None` asks for all devices.
type StatusQuestion = (ClientId, Option<DeviceName>);

/// What a connection is to hear; `None` if the device may not be named.
type StatusAnswer = (ClientId, Option<Survey>);

/// The thread, and what it is asked and answers.
#[derive(Debug)]
pub(super) struct StatusWorker {
    questions: Arc<Mutex<Vec<StatusQuestion>>>,
    thread: Thread,
    answers: Receiver<StatusAnswer>,
    /// Readable when there are answers.
    bell: Bell,
}

impl StatusWorker {
    /// Starts the thread, with lock directories of its own: it shares nothing with the daemon but the disk.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn start(layout: Layout) -> io::Result<Self> {
        let (questions, bell) = (Arc::default(), Bell::new()?);
        let (answer, answers) = channel();
        let (asked, rings) = (Arc::clone(&questions), bell.clone());
        let survey = move || answer_questions(Table::new(layout), &asked, &answer, &rings);
        let thread = ttylock::thread::start("lfpd-stat", survey)?.thread().clone();
        Ok(Self { questions, thread, answers, bell })
    }

    /// A connection asks about a device, or about all.
    pub(super) fn ask(&self, id: ClientId, device: Option<DeviceName>) {
        locked(&self.questions).push((id, device));
        self.thread.unpark();
    }

    /// A connection needs no answer any more. One that is being prepared comes all the same.
    pub(super) fn cancel(&self, id: ClientId) {
        locked(&self.questions).retain(|(asking, _)| *asking != id);
    }

    /// The answers that have come since the last call.
    pub(super) fn answers(&self) -> Vec<StatusAnswer> {
        self.bell.silence();
        self.answers.try_iter().collect()
    }
}

impl AsFd for StatusWorker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// Until the daemon is no more.
fn answer_questions(
    mut table: Table,
    asked: &Mutex<Vec<StatusQuestion>>,
    answer: &Sender<StatusAnswer>,
    bell: &Bell,
) {
    loop {
        let questions = std::mem::take(&mut *locked(asked));
        if questions.is_empty() {
            thread::park();
            continue;
        }
        let began = Instant::now();
        // Seldom enough that other directories may be there by now.
        table.reopen();
        let mut asking: HashMap<Option<DeviceName>, Vec<ClientId>> = HashMap::new();
        for (id, device) in questions {
            asking.entry(device).or_default().push(id);
        }
        let (devices, asking): (Vec<_>, Vec<_>) = asking.into_iter().unzip();
        let surveys = table.surveys(&devices, began + STATUS_SEARCH);
        for (ids, survey) in asking.into_iter().zip(surveys) {
            if ids.into_iter().any(|id| answer.send((id, survey.clone())).is_err()) {
                return;
            }
        }
        bell.ring();
        // Clients that ask all the time have a part of the machine's time.
        thread::sleep(began.elapsed().saturating_mul(3).min(PAUSE));
    }
}
