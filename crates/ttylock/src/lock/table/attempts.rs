//! LOCK and UNLOCK for callers: one attempt, or as many as are needed.

use std::time::Instant;

use super::{Stop, Table};
use crate::device::node::ResolvedDevice;
use crate::lock::backoff::{Backoff, Contention};
use crate::lock::{Answer, Contended, Outcome, Request};

impl Table {
    /// Takes every lock file of the device for the pid, or none. May sleep for some milliseconds:
    /// for a caller who serves nobody else.
    pub fn lock(&mut self, request: &Request) -> Answer {
        self.with_pauses(|table, contention| table.attempt_lock(request, contention))
    }

    /// Removes every lock file of the device that holds this pid or a dead one. Sleeps as
    /// [`Table::lock`] does.
    pub fn unlock(&mut self, request: &Request) -> Answer {
        self.with_pauses(|table, contention| table.attempt_unlock(request, contention))
    }

    pub(super) fn with_pauses(
        &mut self,
        mut attempt: impl FnMut(&mut Self, Contention) -> Result<Answer, Contended>,
    ) -> Answer {
        let mut backoff = Backoff::default();
        let mut events = Vec::new();
        loop {
            match attempt(self, backoff.contention()) {
                Ok(answer) => {
                    events.extend(answer.events);
                    return Answer { outcome: answer.outcome, events };
                }
                Err(contended) => {
                    events.extend(contended.events);
                    std::thread::sleep(backoff.pause(contended.cause));
                }
            }
        }
    }

    /// Tells when the request was made whose attempt comes next, where that is not the first.
    pub fn was_asked(&mut self, asked: Instant) {
        self.asked = Some(asked);
    }

    /// One attempt at [`Table::lock`]. Never sleeps: the caller comes back as [`Backoff`] says.
    ///
    /// # Errors
    /// [`Contended`], only with [`Contention::ComesBack`] or while the kernel's list of locks is being
    /// read: nothing was taken.
    pub fn attempt_lock(
        &mut self,
        request: &Request,
        contention: Contention,
    ) -> Result<Answer, Contended> {
        let outcome = self.try_lock(request, None, contention).map(|()| Outcome::Done);
        self.answer(outcome)
    }

    /// The same for a device that was looked at by [`Table::resolve`]: that very node is locked.
    ///
    /// # Errors
    /// As [`Table::attempt_lock`].
    pub fn attempt_lock_of(
        &mut self,
        request: &Request,
        resolved: ResolvedDevice,
        contention: Contention,
    ) -> Result<Answer, Contended> {
        let outcome = self.try_lock(request, Some(resolved), contention).map(|()| Outcome::Done);
        self.answer(outcome)
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
        let outcome = self.try_unlock(request, contention);
        self.answer(outcome)
    }

    pub(super) fn answer(&mut self, outcome: Result<Outcome, Stop>) -> Result<Answer, Contended> {
        let events = std::mem::take(&mut self.events);
        self.asked = None;
        match outcome {
            Ok(outcome) => Ok(Answer { outcome, events }),
            Err(Stop::Busy) => Ok(Answer { outcome: Outcome::Busy, events }),
            Err(Stop::Denied) => Ok(Answer { outcome: Outcome::Denied, events }),
            Err(Stop::NotYet(cause)) => Err(Contended { events, cause }),
        }
    }
}
