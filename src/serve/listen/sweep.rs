//! Periodic work and the work at the end: deadlines, deferred work, reopening the lock directories, goodbyes.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::sys::epoll::EpollFlags;

use super::super::connection::{Connection, Phase};
use super::super::listener::Origin;
use super::{Daemon, Stay};
use crate::limits::{FLUSH_AFTER, LISTEN_BACKLOG, REOPEN_EVERY, SWEEP_EVERY};
use crate::log::Severity;

impl Daemon<'_> {
    /// Under a load without end, it is done every [`FLUSH_AFTER`] all the same.
    pub(super) fn flush(&mut self, now: Instant) {
        if !self.service.has_deferred_work() {
            self.flush_by = None;
            return;
        }
        let by = *self.flush_by.get_or_insert_with(|| now.checked_add(FLUSH_AFTER).unwrap_or(now));
        if now >= by {
            self.service.flush();
            self.flush_by = None;
        }
    }

    pub(super) fn sweep(&mut self, now: Instant) {
        if self.accept_after.is_some_and(|moment| moment <= now) {
            self.accept_after = None;
            self.listen_for(EpollFlags::EPOLLIN);
        }
        if self.next_sweep.is_none_or(|moment| moment > now) {
            return;
        }
        self.refresh(now);
        let idle_timeout = self.settings.idle_timeout;
        let mut next: Option<Instant> = None;
        let mut over = Vec::new();
        for connection in self.clients.connections() {
            let Some(deadline) = connection.deadline(idle_timeout) else { continue };
            if deadline <= now {
                over.push((connection.token, connection.phase));
            } else {
                next = next.into_iter().chain([deadline]).min();
            }
        }
        for (token, phase) in over {
            match (phase, self.clients.find(token)) {
                (Phase::Sending(_), Some(connection)) => {
                    // What it has said is still obeyed, as if it had gone.
                    connection.stop_talking();
                    self.turn(token, false, now);
                }
                (_, _) => self.end(token),
            }
        }
        if self.watches.polls_for_ends() {
            self.service.remove_locks_of_the_gone();
            if !self.service.has_locks() {
                self.watches.stop_polling();
            }
            let soon = now.checked_add(Duration::from_secs(1));
            let soon = soon.filter(|_| self.watches.polls_for_ends());
            next = next.into_iter().chain(soon).min();
        }
        if self.service.foresees() {
            self.service.judge_those_who_came();
            let soon = now.checked_add(Duration::from_secs(1));
            next = next.into_iter().chain(soon.filter(|_| self.service.foresees())).min();
        }
        let earliest = now.checked_add(SWEEP_EVERY);
        self.next_sweep =
            self.next_sweep.filter(|moment| *moment > now).into_iter().chain(next).min();
        self.next_sweep = self.next_sweep.map(|next| earliest.map_or(next, |e| next.max(e)));
    }

    pub(super) fn refresh(&mut self, now: Instant) {
        if now.saturating_duration_since(self.reopened) >= REOPEN_EVERY {
            self.reopened = now;
            self.service.reopen();
            // The watched directories may be others by now.
            self.watches.forget_directories();
        }
    }

    pub(super) fn is_no_longer_needed(&self, now: Instant) -> bool {
        self.settings.stay == Stay::WhileNeeded
            && self.clients.is_empty()
            && !self.service.has_locks()
            && now.saturating_duration_since(self.quiet_since) >= self.settings.idle_timeout
    }

    /// The end: who knocks at our own doors is told so; what has arrived is done; all are told.
    /// A door that was handed over stays open for the next daemon.
    pub(super) fn drain(&mut self) {
        for listener in std::mem::take(&mut self.listeners) {
            let Origin::Ours(file) = &listener.origin else { continue };
            if let Some(file) = file {
                file.remove();
            }
            for _ in 0..LISTEN_BACKLOG {
                let Ok(stream) = listener.accept() else { break };
                let client = self.service.welcome(stream.as_fd());
                let connection = Connection::new(stream, client, 0, Instant::now());
                connection.end(&self.service.farewell());
            }
        }
        for token in self.clients.tokens() {
            if let Some(connection) = self.clients.find(token) {
                if connection.phase == Phase::Retrying {
                    connection.client.retry_no_more();
                    connection.phase = Phase::Open;
                }
                if connection.phase == Phase::Open {
                    self.turn(token, false, Instant::now());
                }
            }
            self.end(token);
        }
        self.service.flush();
        self.service.note(Severity::Info, format_args!("ends"));
    }
}
