//! Finds the holders for STAT, in a thread of its own: this looks at every process of the machine, and only
//! the clients that ask are to wait for it. One survey answers all questions that were asked before it began.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use ttylock::{DeviceName, Layout, Survey, Table};

use super::admission::Token;
use super::worker::Bell;
use crate::limits::STATUS_SEARCH;

/// The longest pause between two searches for holders. A pause is three times as long as the search before it, up to
/// this.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection, and the device that it asks about; `None` asks for all devices.
type StatusQuestion = (Token, Option<DeviceName>);

/// What a connection is to hear; `None` if the device may not be named.
type StatusAnswer = (Token, Option<Survey>);

/// The thread, and what it is asked and answers.
#[derive(Debug)]
pub(super) struct StatusWorker {
    questions: Arc<Mutex<Vec<StatusQuestion>>>,
    thread: Thread,
    answers: Receiver<StatusAnswer>,
    /// Readable when there are answers.
    bell: Bell,
}

fn lock(questions: &Mutex<Vec<StatusQuestion>>) -> MutexGuard<'_, Vec<StatusQuestion>> {
    // No operation on it can fail half-way, so a poisoned lock is still valid.
    questions.lock().unwrap_or_else(PoisonError::into_inner)
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
    pub(super) fn ask(&self, token: Token, device: Option<DeviceName>) {
        lock(&self.questions).push((token, device));
        self.thread.unpark();
    }

    /// A connection needs no answer any more. One that is being prepared comes all the same.
    pub(super) fn forget(&self, token: Token) {
        lock(&self.questions).retain(|(asking, _)| *asking != token);
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
        let questions = std::mem::take(&mut *lock(asked));
        if questions.is_empty() {
            thread::park();
            continue;
        }
        let began = Instant::now();
        // Seldom enough that other directories may be there by now.
        table.reopen();
        let mut asking: HashMap<Option<DeviceName>, Vec<Token>> = HashMap::new();
        for (token, device) in questions {
            asking.entry(device).or_default().push(token);
        }
        let (devices, asking): (Vec<_>, Vec<_>) = asking.into_iter().unzip();
        let surveys = table.surveys(&devices, began + STATUS_SEARCH);
        for (tokens, survey) in asking.into_iter().zip(surveys) {
            if tokens.into_iter().any(|token| answer.send((token, survey.clone())).is_err()) {
                return;
            }
        }
        bell.ring();
        // Clients that ask all the time have a part of the machine's time.
        thread::sleep(began.elapsed().saturating_mul(3).min(PAUSE));
    }
}
