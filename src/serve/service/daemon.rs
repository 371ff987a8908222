//! The interface of the service for the daemon, besides the requests of clients.

use std::fmt;
use std::time::Instant;

use pidlockfile::process::ProcessIdentity;
use pidlockfile::{Directory, Pid};
use ttylock::{Answer, Cause, Contention, Outcome};

use super::Service;
use crate::log::Severity;
use crate::protocol::queue::{Attempt, WaiterId};
use crate::serve::client::Client;
use crate::serve::waiting::Change;

impl Service {
    /// Tries to take a device for one who waits for it. The client has its answer unless the
    /// outcome is busy.
    pub(in crate::serve) fn attempt(&mut self, client: &mut Client, attempt: &Attempt) -> Outcome {
        // A day may have gone by since it was asked.
        let has_ended =
            client.holder.as_ref().is_some_and(|who| self.table.machine().has_ended(who));
        let granted = self.grant_again(&client.peer, &attempt.request).filter(|_| !has_ended);
        let names = granted.as_ref().and_then(|it| self.table.names_of(it.device()));
        let (Some(granted), Some(names), false) = (granted, names, self.holds_too_many(client))
        else {
            self.waiting.tried(attempt, Outcome::Denied, None, Instant::now());
            client.answer(Outcome::Denied);
            return Outcome::Denied;
        };
        if names.real != *attempt.device {
            // The name that it waited for is another device now, and others wait for that.
            self.waiting.change(attempt.waiter, names, Instant::now());
            return Outcome::Busy;
        }
        // The next look is the next attempt.
        let asked = client.asked.take().unwrap_or_else(Instant::now);
        let answer = self.take(client.user(), granted, Contention::Decides, asked);
        let is_pending = matches!(&answer, Err(it) if it.cause == Cause::Reading);
        let blocker = answer.as_ref().ok().and_then(|answer| answer.blocker.clone());
        let outcome = match answer {
            // Asked again and again, it would fill the log.
            Ok(Answer { outcome: Outcome::Busy, .. }) | Err(_) => Outcome::Busy,
            Ok(answer) => self.told(&client.peer, Ok(answer)).unwrap_or(Outcome::Busy),
        };
        self.note_holder(client, attempt.request.pid, &Ok(outcome));
        self.waiting.tried(attempt, outcome, blocker, Instant::now());
        if is_pending {
            client.asked = Some(asked);
            self.waiting.queue.wake(&attempt.device, Instant::now());
        }
        if outcome != Outcome::Busy {
            client.answer(outcome);
        }
        outcome
    }

    /// The client no longer waits: busy is its answer.
    pub(in crate::serve) fn cancel(&mut self, client: &mut Client) {
        self.waiting.leave(client.id, Instant::now());
        client.answer(Outcome::Busy);
    }

    /// A client is gone.
    pub(in crate::serve) fn forget(&mut self, client: &Client) {
        self.waiting.leave(client.id, Instant::now());
    }

    /// A process is gone: what it held is for everybody.
    pub(in crate::serve) fn process_gone(&mut self, pid: Pid) {
        self.locks_have_ended(pid);
        let events = self.table.gone(pid);
        for event in events {
            self.tell(event.weight.into(), format_args!("{}", event.text));
        }
        self.waiting.process_gone(pid, Instant::now());
        self.opener_gone(pid);
    }

    /// Whether the end of this process is of interest.
    pub(in crate::serve) fn minds(&self, pid: Pid) -> bool {
        !self.table.watched().of_number(pid).is_empty() || self.waiting.is_blocked_by(pid)
    }

    pub(in crate::serve) fn changed(&mut self, change: &Change) {
        self.waiting.changed(change, Instant::now());
    }

    /// The same, but that nothing is learned of this device.
    pub(in crate::serve) fn changed_but_for(
        &mut self,
        device: &str,
        change: &Change,
        now: Instant,
    ) {
        self.waiting.changed_but_for(Some(device), change, now);
    }

    // What a daemon asks and tells.

    /// Up to so many written lock files stay open, and locks of dead processes are removed.
    pub(in crate::serve) fn keep_open(&mut self, limit: usize) {
        self.table.keep_open(limit);
    }

    /// One line in the log, at once.
    pub(in crate::serve) fn note(&mut self, severity: Severity, line: fmt::Arguments<'_>) {
        self.log.record(severity, &line);
    }

    /// The open lock directories, to be watched.
    pub(in crate::serve) fn directories(&mut self) -> Vec<&Directory> {
        self.table.directories()
    }

    /// The holders whose end is of interest since this was last asked.
    pub(in crate::serve) fn take_new_holders(&mut self) -> Vec<ProcessIdentity> {
        self.table.take_newly_watched()
    }

    /// Whether a lock of any process may be there.
    pub(in crate::serve) fn has_locks(&self) -> bool {
        !self.table.watched().is_empty()
    }

    /// For processes with an end that was not reported.
    pub(in crate::serve) fn remove_locks_of_the_gone(&mut self) {
        for pid in self.table.the_gone() {
            self.process_gone(pid);
        }
    }

    pub(in crate::serve) fn anybody_waits(&self) -> bool {
        !self.waiting.queue.is_empty()
    }

    /// The waiter to try now, as [`crate::protocol::queue::Queue::due`].
    pub(in crate::serve) fn due(&self, now: Instant) -> Option<Attempt> {
        self.waiting.queue.due(now)
    }

    /// The waiter to try if the port is busy for that one.
    pub(in crate::serve) fn next_head(&self, attempt: &Attempt) -> Option<Attempt> {
        self.waiting.queue.next_head(attempt)
    }

    /// The waiters that have run out of time.
    pub(in crate::serve) fn expire(&mut self, now: Instant) -> Vec<WaiterId> {
        self.waiting.expire(now)
    }

    pub(in crate::serve) fn forget_waiter(&mut self, waiter: WaiterId, now: Instant) {
        self.waiting.leave(waiter, now);
    }

    /// When there is something to do for the waiters.
    pub(in crate::serve) fn next_look(&self) -> Option<Instant> {
        self.waiting.queue.next_moment()
    }

    /// The process that keeps a device from its waiters has ended. False if that was known.
    pub(in crate::serve) fn note_gone(&mut self, device: &str, who: &ProcessIdentity) -> bool {
        self.waiting.note_gone(device, who)
    }

    /// The process that keeps a device from its waiters.
    pub(in crate::serve) fn blocker(&self, device: &str) -> Option<&ProcessIdentity> {
        self.waiting.blocker(device)
    }
}
