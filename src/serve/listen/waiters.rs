//! The waiters of a daemon, and the events that free a device: attempts, changes in the lock directories, and
//! ends of holders.

use std::time::{Duration, Instant};

use pidlockfile::process::ProcessIdentity;
use ttylock::Outcome;

use super::super::connection::Phase;
use super::super::waiting::Change;
use super::super::watches::Watch;
use super::{CHANGES, Daemon, PROCESSES};
use crate::limits::ATTEMPTED;
use crate::protocol::queue::{Attempt, WaiterId};

impl Daemon<'_> {
    pub(super) fn try_waiters(&mut self) {
        if !self.service.anybody_waits() {
            self.watches.forget_directories();
            return;
        }
        for _ in 0..ATTEMPTED {
            let now = Instant::now();
            let Some(attempt) = self.service.due(now) else { break };
            self.try_heads(attempt, now);
        }
        let now = Instant::now();
        for WaiterId(token) in self.service.expire(now) {
            if let Some(connection) = self.clients.find(token) {
                connection.client.give_up();
                connection.phase = Phase::Open;
                self.turn(token, now);
            }
        }
        if !self.watches.watches_directories() && self.service.anybody_waits() {
            self.watch_directories();
        }
    }

    /// Tries the first waiter, and if the port is busy for it, the first waiter of the next user.
    pub(super) fn try_heads(&mut self, first: Attempt, now: Instant) {
        let mut next = Some(first);
        while let Some(attempt) = next {
            let token = attempt.waiter.0;
            let Some(connection) = self.clients.find(token) else {
                self.service.forget_waiter(attempt.waiter, now);
                return;
            };
            // Looked up before: an attempt that is not busy removes the waiter from the line.
            next = self.service.next_head(&attempt);
            if self.service.attempt(&mut connection.client, &attempt) == Outcome::Busy {
                self.watch_blocker(&attempt.device);
                self.pass_over_own_changes(&attempt);
                continue;
            }
            connection.phase = Phase::Open;
            self.turn(token, now);
            return;
        }
    }

    /// A device that is asked for by another name has several lock files. Those that an attempt
    /// took before it met a conflict, it has given back: that is no news.
    pub(super) fn pass_over_own_changes(&mut self, attempt: &Attempt) {
        if attempt.request.device.below_dev().as_os_str() == &*attempt.device {
            return;
        }
        let now = Instant::now();
        for change in self.watches.changes() {
            self.service.changed_but_for(&attempt.device, &change, now);
        }
    }

    /// Without it, each device is looked at once a second.
    pub(super) fn watch_directories(&mut self) {
        let directories = self.service.directories();
        if self.watches.watch_directories(&directories, &self.epoll, CHANGES) {
            // What went between the look and the watch.
            self.service.changed(&Change::Everything);
        }
    }

    pub(super) fn watch_blocker(&mut self, device: &str) {
        let Some(who) = self.service.blocker(device).cloned() else { return };
        // An end that was known is no event: the device is looked at once a second.
        if self.watch_end(&who) == Watch::Gone && self.service.note_gone(device, &who) {
            self.service.process_gone(who.pid);
        }
    }

    /// The holders of locks: these are removed when they end.
    pub(super) fn watch_holders(&mut self) {
        if self.service.foresees() {
            let soon = Instant::now().checked_add(Duration::from_secs(1));
            self.schedule.sweep_by(soon);
        }
        for who in self.service.take_new_holders() {
            match self.watch_end(&who) {
                Watch::Set => {}
                Watch::Gone => self.service.process_gone(who.pid),
                Watch::Impossible => self.look_for_the_gone(),
            }
        }
    }

    /// Somebody's end will not be told.
    pub(super) fn look_for_the_gone(&mut self) {
        self.watches.poll_for_ends();
        self.schedule.sweep_by(Some(Instant::now()));
    }

    pub(super) fn watch_end(&mut self, who: &ProcessIdentity) -> Watch {
        let number = u64::try_from(who.pid.as_raw()).unwrap_or_default();
        let service = &*self.service;
        let wanted = |pid| service.minds(pid);
        self.watches.watch_end(who, &self.epoll, PROCESSES | number, wanted)
    }
}
