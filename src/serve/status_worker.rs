//! Finds the holders for STAT, in a thread of its own: this looks at every process of the machine, and only
//! the client that asked is to wait for it. Answers one request at a time.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Instant;

use ttylock::{DeviceName, Holder, Layout, Table, limits::THREAD_STACK};

use super::admission::Token;

/// The thread, and what it is asked and answers.
#[derive(Debug)]
pub(super) struct StatusWorker {
    questions: SyncSender<Question>,
    surveys: Receiver<Survey>,
    /// Readable when there is a survey, or when the thread is no more.
    bell: UnixStream,
    is_looking: bool,
}

#[derive(Debug)]
struct Question {
    token: Token,
    device: Option<DeviceName>,
}

/// The question for the holders of a device, or of any.
#[derive(Debug)]
pub(super) struct Seen {
    /// The real name of the device that was asked about.
    pub(super) port: Option<String>,
    pub(super) holders: Vec<Holder>,
}

/// What was seen, and the client that asked.
#[derive(Debug)]
pub(super) struct Survey {
    pub(super) token: Token,
    /// `None` where the device may not be named.
    pub(super) seen: Option<Seen>,
    pub(super) began: Instant,
    pub(super) ended: Instant,
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
        Ok(Self { questions, surveys, bell, is_looking: false })
    }

    pub(super) fn is_looking(&self) -> bool {
        self.is_looking
    }

    /// Asks for a look; to be called only while it [is not looking](Self::is_looking).
    pub(super) fn ask(&mut self, token: Token, device: Option<DeviceName>) {
        self.is_looking = self.questions.try_send(Question { token, device }).is_ok();
    }

    /// What it has seen, if anything.
    ///
    /// # Errors
    /// There will never be anything any more.
    pub(super) fn survey(&mut self) -> Result<Option<Survey>, Ended> {
        let mut rings = [0; 8];
        // Only the survey counts; a ring may come before or after it.
        let _ = self.bell.read(&mut rings);
        match self.surveys.try_recv() {
            Ok(survey) => {
                self.is_looking = false;
                Ok(Some(survey))
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
    asked: &Receiver<Question>,
    surveys: &SyncSender<Survey>,
    mut ringer: UnixStream,
) {
    while let Ok(Question { token, device }) = asked.recv() {
        let began = Instant::now();
        // Seldom enough that other directories may be there by now.
        table.reopen();
        let seen = look(&mut table, device.as_ref());
        let survey = Survey { token, seen, began, ended: Instant::now() };
        if surveys.send(survey).is_err() || ringer.write_all(b"!").is_err() {
            return;
        }
    }
}

/// The holders of a device, or of any; `None` where the device may not be named.
pub(super) fn look(table: &mut Table, device: Option<&DeviceName>) -> Option<Seen> {
    let Some(device) = device else {
        return Some(Seen { port: None, holders: table.all_holders() });
    };
    let ttylock::Survey { real, holders } = table.survey(device)?;
    Some(Seen { port: Some(real), holders })
}
