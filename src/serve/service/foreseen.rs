//! Limits locks for process numbers that no process has yet, and removes such a lock as soon as a process
//! without the right to the port gets the number.

use std::time::Instant;

use pidlockfile::process::lives;
use ttylock::{Answer, Contended, Contention, Outcome};

use super::Service;
use crate::log::Severity;
use crate::serve::admission::User;
use crate::serve::authority::Granted;
use crate::serve::foreseen::Lock;

impl Service {
    /// Takes what was granted, at the very device that was judged.
    pub(super) fn take(
        &mut self,
        user: User,
        granted: Granted,
        contention: Contention,
        asked: Instant,
    ) -> Result<Answer, Contended> {
        let foreseen = granted.is_foreseen().then(|| granted.device().clone());
        let exclusive = self.may_become_exclusive(granted.device());
        let (request, device) = granted.into_parts();
        let answer = self.table.attempt_lock(&request, Some(device), contention, asked);
        let done = matches!(answer, Ok(Answer { outcome: Outcome::Done, .. }));
        if done {
            self.locked_for(&request, exclusive.as_ref());
        }
        if let Some(device) = foreseen.filter(|_| done) {
            let files = self.table.names_of(&device).map_or(1, |names| names.written);
            self.foreseen.note(Lock { user, request, device, files });
        }
        answer
    }

    /// How many files locks of this kind have that a user asked for; those are forgotten that are gone
    /// by now, where that matters.
    pub(super) fn files_foreseen(&mut self, user: User, limit: usize) -> usize {
        if self.foreseen.files(user) >= limit {
            let table = &mut self.table;
            self.foreseen.retain(|lock| table.is_locked_for(&lock.device, lock.request.pid));
        }
        self.foreseen.files(user)
    }

    /// Whether [`Service::judge_the_newcomers`] is to be called every second.
    pub(in crate::serve) fn foresees(&self) -> bool {
        !self.foreseen.is_empty()
    }

    /// A process that got a number with a lock keeps the lock if it may hold the port.
    pub(in crate::serve) fn judge_the_newcomers(&mut self) {
        let came = self.foreseen.take(|lock| lives(lock.request.pid));
        for Lock { user, request, device, .. } in came {
            let right = self.authority.grant_opener(&mut self.processes, request.clone(), device);
            let Err(refusal) = right else { continue };
            if let Ok(answer) = self.table.attempt_unlock(&request, Contention::Decides) {
                self.was_released(&answer, request.pid);
                let (device, pid) = (request.device.as_str(), request.pid);
                self.tell_of(
                    user,
                    Severity::Notice,
                    format_args!(
                        "released {device} of pid {pid}, which has started since: {refusal}"
                    ),
                );
            }
        }
    }
}
