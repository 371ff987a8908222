//! Serves the connections that have something to do, the waiters of a device that may be free, and the questions of
//! STAT that have an answer.

use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use nix::sys::epoll::{EpollEvent, EpollFlags};

use pidlockfile::process::ProcessIdentity;
use ttylock::{Backoff, Outcome};

use super::super::admission::ClientId;
use super::super::client::Phase;
use super::super::connection::Connection;
use super::super::queue::{CHECK_EVERY, Candidate, Change};
use super::super::service::Service;
use super::{CHANGES, Daemon, PROCESSES};
use crate::limits::READ_BYTES;
use crate::protocol::reply::Reply;

/// The client has ended its side of the connection (poll(2)).
const ENDS_INPUT: PollFlags = PollFlags::from_bits_retain(nix::libc::POLLRDHUP);

/// The pause before the last attempt at a request when the daemon ends.
const LAST_PAUSE: Duration = Duration::from_millis(5);

impl Daemon<'_> {
    /// What a connection waits for has come, or its client is gone.
    pub(super) fn ready(&mut self, id: ClientId, flags: EpollFlags, now: Instant) {
        let Some(connection) = self.clients.members.get_mut(&id) else { return };
        match connection.phase {
            // Events other than a hang-up are not of interest.
            Phase::Searching(_) => {
                self.status_worker.cancel(id);
                connection.client_gone();
            }
            Phase::Retrying(_) => {
                if !connection.client_gone() {
                    // An UNLOCK, a FORCE or a PASS is done all the same.
                    return;
                }
            }
            Phase::Waiting => {
                let gone = EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR;
                if !flags.intersects(gone) {
                    return self.after(id);
                }
                self.service.queue.leave(connection.client.id, now);
                connection.client.answer(Reply::Busy);
            }
            // It has a turn in any case, when it is due.
            Phase::Pausing(_) => return,
            Phase::Reading | Phase::Sending(_) | Phase::Over => {}
        }
        self.turn(id, now);
    }

    pub(super) fn turn(&mut self, id: ClientId, now: Instant) {
        let Some(connection) = self.clients.members.get_mut(&id) else { return };
        connection.turn(self.service, &mut [0; READ_BYTES], now);
        self.after(id);
        self.watch_holders();
    }

    /// A turn at the end, when nothing is waited for. False if the connection has nothing to do.
    pub(super) fn last_turn(&mut self, id: ClientId, now: Instant) -> bool {
        let Some(connection) = self.clients.members.get_mut(&id) else { return false };
        match connection.phase {
            Phase::Pausing(_) => self.turn(id, now),
            Phase::Retrying(_) => {
                // A process that is in the gate, or breaks the lock, is done sooner.
                std::thread::sleep(LAST_PAUSE);
                connection.client.retry_no_more();
                self.turn(id, now);
            }
            Phase::Reading if connection.wait(Some(now)) => self.turn(id, now),
            // A client that takes no reply now gets no more of them, and what it has sent is obeyed.
            Phase::Sending(_) => {
                if !connection.wait(Some(now)) {
                    connection.drop_replies();
                }
                self.turn(id, now);
            }
            Phase::Waiting | Phase::Searching(_)
                if connection.wire.wait(PollFlags::empty(), Some(now)) =>
            {
                self.ready(id, EpollFlags::EPOLLHUP, now);
            }
            Phase::Reading | Phase::Waiting | Phase::Searching(_) | Phase::Over => return false,
        }
        true
    }

    /// After a turn: asks the kernel for the event that the connection waits for, or closes it. Each event is asked for
    /// anew. Otherwise the kernel would report a hang-up again and again, whatever is of interest.
    pub(super) fn after(&mut self, id: ClientId) {
        let Some(connection) = self.clients.members.get_mut(&id) else { return };
        let interest = match &connection.phase {
            Phase::Over => return self.close(id),
            Phase::Pausing(_) => return,
            Phase::Retrying(_) if !connection.hears => return,
            Phase::Reading => EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP,
            Phase::Sending(_) => EpollFlags::EPOLLOUT,
            Phase::Waiting => EpollFlags::EPOLLRDHUP,
            Phase::Retrying(_) => EpollFlags::empty(),
            Phase::Searching(device) => {
                self.status_worker.ask(id, device.clone());
                EpollFlags::empty()
            }
        };
        let mut event = EpollEvent::new(interest | EpollFlags::EPOLLONESHOT, id);
        if self.epoll.modify(&connection.wire, &mut event).is_err() {
            self.close(id);
        }
    }

    pub(super) fn close(&mut self, id: ClientId) {
        if let Some(connection) = self.leave(id) {
            connection.wire.close();
        }
    }

    pub(super) fn end(&mut self, id: ClientId) {
        if let Some(connection) = self.leave(id) {
            connection.end(&self.service.farewell());
        }
    }

    pub(super) fn leave(&mut self, id: ClientId) -> Option<Connection> {
        let connection = self.clients.members.remove(&id)?;
        self.status_worker.cancel(id);
        self.service.queue.leave(connection.client.id, Instant::now());
        if self.clients.members.is_empty() {
            self.quiet = Instant::now();
        }
        Some(connection)
    }

    /// The connections that have their moment: one that goes on by itself, and those whose time is over.
    pub(super) fn serve_due(&mut self, now: Instant) {
        for id in self.clients.due(now) {
            let Some(connection) = self.clients.members.get_mut(&id) else { continue };
            let is_endless = connection.is_endless(self.settings.idle_timeout, now);
            if (connection.goes_on() && !is_endless) || connection.drop_replies() {
                self.turn(id, now);
            } else {
                self.end(id);
            }
        }
    }

    /// The answers to STAT.
    pub(super) fn answer_queries(&mut self) {
        for (id, survey) in self.status_worker.answers() {
            let connection = self.clients.members.get_mut(&id);
            let asks = |it: &&mut Connection| matches!(it.phase, Phase::Searching(_));
            if let Some(connection) = connection.filter(asks) {
                self.service.report(&mut connection.client, survey);
                self.turn(id, Instant::now());
            }
        }
    }

    /// Tries the first waiter of a device that may be free, and answers those that have waited long enough.
    pub(super) fn try_waiters(&mut self) {
        if self.service.queue.is_empty() {
            self.watches.forget_directories();
            return;
        }
        let now = Instant::now();
        if let Some(candidate) = self.service.queue.due(now) {
            self.try_heads(candidate, now);
        }
        for id in self.service.queue.expire(now) {
            if let Some(connection) = self.clients.members.get_mut(&id) {
                connection.client.answer(Reply::Busy);
                self.turn(id, now);
            }
        }
        if self.service.queue.is_empty() || self.watches.watches_directories() {
            return;
        }
        // Each device is tried once a second in any case; the watch makes it sooner.
        let directories = self.service.table.directories();
        if self.watches.watch_directories(&directories, &self.epoll, CHANGES).is_ok() {
            // Files that went between the attempt and the watch.
            self.service.queue.changed(None, &Change::Everything, now);
        }
    }

    /// Tries the first waiter, and if the port is busy for it, the first waiter of the next user.
    fn try_heads(&mut self, first: Candidate, now: Instant) {
        let (mut next, mut asked) = (Some(first), now);
        while let Some(candidate) = next {
            let id = candidate.waiter;
            let Some(connection) = self.clients.members.get_mut(&id) else {
                self.service.queue.leave(candidate.waiter, now);
                return;
            };
            // A client that sends nothing more has left the line, and the event may come after this attempt.
            if connection.wire.wait(ENDS_INPUT, Some(now)) {
                return self.ready(id, EpollFlags::EPOLLHUP, now);
            }
            // One reading of the kernel's list is good for all that are tried at once.
            asked = connection.client.backoff.get_or_insert(Backoff::since(asked)).asked();
            if self.service.attempt(&mut connection.client, &candidate) != Outcome::Busy {
                return self.turn(id, now);
            }
            self.watch_blocker(&candidate.device);
            // Lock files that the attempt took before it met a conflict, it has given back: that is no news.
            for change in self.watches.changes() {
                self.service.queue.changed(Some(&*candidate.device), &change, Instant::now());
            }
            next = self.service.queue.next_head(&candidate);
        }
    }

    fn watch_blocker(&mut self, device: &str) {
        let who = self.service.queue.blocker(device).cloned();
        // If it has ended by now, there is no event.
        if let Some(who) = who.filter(|who| !self.watch_end(who)) {
            self.service.queue.process_gone(who.pid, Instant::now());
        }
    }

    /// Watches for the ends of the processes that have got locks since the last call: their locks are removed then.
    pub(super) fn watch_holders(&mut self) {
        if !self.service.for_missing.is_empty() {
            self.search_within(CHECK_EVERY);
        }
        for who in self.service.table.held_files().take_fresh() {
            if !self.watch_end(&who) {
                self.process_gone(who.pid);
            }
        }
    }

    /// Watches for the end of a process. False if it has ended.
    fn watch_end(&mut self, who: &ProcessIdentity) -> bool {
        let polled = self.watches.polls_for_ends;
        let number = PROCESSES | u64::try_from(who.pid.as_raw()).unwrap_or_default();
        let Service { table, queue, .. } = &mut *self.service;
        let wanted =
            |pid| !table.held_files().of_number(pid).is_empty() || queue.is_blocked_by(pid);
        let lives = self.watches.watch_end(who, &self.epoll, number, wanted);
        if self.watches.polls_for_ends && !polled {
            self.search_within(Duration::ZERO);
        }
        lives
    }

    pub(super) fn search_within(&mut self, time: Duration) {
        let moment = Instant::now().checked_add(time);
        self.search_at = self.search_at.into_iter().chain(moment).min();
    }
}
