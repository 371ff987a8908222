//! Finds the holders for STAT, in a thread of its own: this looks at every process of the machine, and only
//! the clients that ask are to wait for it. One survey at a time answers all questions that were asked before it began.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Instant;

pub(super) use ttylock::Survey as Seen;
use ttylock::{DeviceName, Layout, Table, limits::THREAD_STACK};

use super::admission::Token;
use super::status_queries::{Query, StatusQueries};
use crate::limits::STATUS_TIME;

/// The thread, and what it is asked and answers.
#[derive(Debug)]
pub(super) struct StatusWorker {
    questions: SyncSender<Vec<Query>>,
    surveys: Receiver<Surveys>,
    /// Readable when there is a survey, or when the thread is no more.
    bell: UnixStream,
    is_looking: bool,
    /// What it is to be asked next.
    pub(super) queries: StatusQueries,
}

/// What was seen, for each connection that asked.
#[derive(Debug)]
pub(super) struct Surveys {
    /// `None` where the device may not be named.
    pub(super) answers: Vec<(Token, Option<Seen>)>,
    began: Instant,
    ended: Instant,
}

/// The thread has ended, which it does only by a fault of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended;

impl StatusWorker {
    /// Of these layout. Its directories are its own: nothing is shared with the daemon but the disk.
    ///
    /// # Errors
    /// The system's, when it gives no thread.
    pub(super) fn start(layout: Layout) -> io::Result<Self> {
        let (bell, ringer) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        let (questions, asked) = sync_channel(1);
        let (seen, surveys) = sync_channel(1);
        let look = move || look_and_tell(Table::new(layout), &asked, &seen, ringer);
        let thread = thread::Builder::new().name("lfpd-stat".to_owned());
        thread.stack_size(THREAD_STACK).spawn(look)?;
        let queries = StatusQueries::none(Instant::now());
        Ok(Self { questions, surveys, bell, is_looking: false, queries })
    }

    /// When [`Self::ask`] has something to do.
    pub(super) fn next_moment(&self) -> Option<Instant> {
        self.queries.next_moment().filter(|_| !self.is_looking)
    }

    /// Asks for a survey, if it is time for one.
    pub(super) fn ask(&mut self, now: Instant) {
        if self.next_moment().is_some_and(|moment| moment <= now) {
            self.is_looking = self.questions.try_send(self.queries.due(now)).is_ok();
        }
    }

    /// What it has seen, if anything.
    ///
    /// # Errors
    /// There will never be anything any more.
    pub(super) fn surveys(&mut self) -> Result<Option<Surveys>, Ended> {
        let mut rings = [0; 8];
        // Only the survey counts; a ring may come before or after it.
        let _ = self.bell.read(&mut rings);
        match self.surveys.try_recv() {
            Ok(surveys) => {
                self.is_looking = false;
                self.queries.answered(surveys.began, surveys.ended);
                Ok(Some(surveys))
            }
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(Ended),
        }
    }
}

impl AsFd for StatusWorker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// Until the daemon asks no more.
fn look_and_tell(
    mut table: Table,
    asked: &Receiver<Vec<Query>>,
    surveys: &SyncSender<Surveys>,
    mut ringer: UnixStream,
) {
    while let Ok(queries) = asked.recv() {
        let began = Instant::now();
        // Seldom enough that other directories may be there by now.
        table.reopen();
        let devices: Vec<_> = queries.iter().map(|query| query.device.clone()).collect();
        let seen = table.surveys(&devices, began + STATUS_TIME);
        let answer = |(query, seen): (Query, Option<Seen>)| {
            query.tokens.into_iter().map(move |token| (token, seen.clone()))
        };
        let answers = queries.into_iter().zip(seen).flat_map(answer).collect();
        if surveys.send(Surveys { answers, began, ended: Instant::now() }).is_err()
            || ringer.write_all(b"!").is_err()
        {
            return;
        }
    }
}

/// The holders of a device, or of any; `None` where the device may not be named.
pub(super) fn look(table: &mut Table, device: Option<&DeviceName>) -> Option<Seen> {
    table.surveys(&[device.cloned()], Instant::now() + STATUS_TIME).pop().flatten()
}
