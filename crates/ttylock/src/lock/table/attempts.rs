//! LOCK and UNLOCK for callers: one attempt, or as many as are needed.

use std::time::Instant;

use pidlockfile::process::ProcessIdentity;

use super::{Stop, Table};
use crate::device::node::ResolvedDevice;
use crate::lock::backoff::{Backoff, Contention};
use crate::lock::{Contended, Event, Outcome, Request};

/// The answer to one LOCK, UNLOCK or PASS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The result for the client.
    pub outcome: Outcome,
    /// With [`Outcome::Busy`]: the process that has the lock, where one is known.
    pub blocker: Option<ProcessIdentity>,
    /// The real name below `/dev` of the device that was released.
    pub released: Option<String>,
    /// The events for the log, in order.
    pub events: Vec<Event>,
}

impl Table {
    /// Takes every lock file of the device for the pid, or none. May sleep for some milliseconds, so it is for
    /// callers that serve no other client.
    pub fn lock(&mut self, request: &Request) -> Answer {
        self.with_pauses(|table, contention, asked| table.attempt_lock(request, contention, asked))
    }

    /// Removes every lock file of the device that holds this pid or a dead one. Sleeps as
    /// [`Table::lock`] does.
    pub fn unlock(&mut self, request: &Request) -> Answer {
        self.with_pauses(|table, contention, _| table.attempt_unlock(request, contention))
    }

    /// Each attempt gets the time of the first one. Otherwise a reading of the kernel's list that takes longer than
    /// the pause between two attempts would always have begun too early.
    pub(super) fn with_pauses(
        &mut self,
        mut attempt: impl FnMut(&mut Self, Contention, Instant) -> Result<Answer, Contended>,
    ) -> Answer {
        let mut backoff = Backoff::default();
        let mut events = Vec::new();
        let asked = Instant::now();
        loop {
            match attempt(self, backoff.contention(), asked) {
                Ok(answer) => {
                    events.extend(answer.events);
                    return Answer { events, ..answer };
                }
                Err(contended) => {
                    events.extend(contended.events);
                    std::thread::sleep(backoff.pause(contended.cause));
                }
            }
        }
    }

    /// One attempt at [`Table::lock`], `asked` for when the first attempt was made. Never sleeps: the
    /// caller comes back as [`Backoff`] says.
    ///
    /// # Errors
    /// [`Contended`], only with [`Contention::ComesBack`] or while the kernel's list of locks is being
    /// read: nothing was taken.
    pub fn attempt_lock(
        &mut self,
        request: &Request,
        contention: Contention,
        asked: Instant,
    ) -> Result<Answer, Contended> {
        let tried = self.try_lock(request, None, contention, asked);
        self.answer(tried.map(|()| None))
    }

    /// The same for a device from [`Table::resolve`]: exactly that node is locked.
    ///
    /// # Errors
    /// As [`Table::attempt_lock`].
    pub fn attempt_lock_of(
        &mut self,
        request: &Request,
        resolved: ResolvedDevice,
        contention: Contention,
        asked: Instant,
    ) -> Result<Answer, Contended> {
        let tried = self.try_lock(request, Some(resolved), contention, asked);
        self.answer(tried.map(|()| None))
    }

    /// One attempt at [`Table::unlock`], as [`Table::attempt_lock`].
    ///
    /// # Errors
    /// [`Contended`], only with [`Contention::ComesBack`] or while the kernel's list of locks is being
    /// read: nothing of the asker's was there.
    pub fn attempt_unlock(
        &mut self,
        request: &Request,
        contention: Contention,
    ) -> Result<Answer, Contended> {
        let released = self.try_unlock(request, contention);
        self.answer(released.map(Some))
    }

    /// What was done may have released a device.
    pub(super) fn answer(
        &mut self,
        done: Result<Option<String>, Stop>,
    ) -> Result<Answer, Contended> {
        let events = std::mem::take(&mut self.events);
        let (outcome, blocker, released) = match done {
            Ok(released) => (Outcome::Done, None, released),
            Err(Stop::Busy(blocker)) => (Outcome::Busy, blocker, None),
            Err(Stop::Denied) => (Outcome::Denied, None, None),
            Err(Stop::NotYet(cause)) => return Err(Contended { events, cause }),
        };
        Ok(Answer { outcome, blocker, released, events })
    }
}
