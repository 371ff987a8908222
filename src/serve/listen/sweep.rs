//! Periodic work and the work at the end: deadlines, deferred work, reopening the lock directories, goodbyes.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::super::connection::{Connection, Phase};
use super::super::listener::Origin;
use super::super::settings::Stay;
use super::Daemon;
use crate::limits::{CONNECTIONS, FLUSH_AFTER, REOPEN_EVERY, SWEEP_EVERY};
use crate::log::Severity;

/// When periodic work was done, and is to be done.
pub(super) struct Schedule {
    sweep: Option<Instant>,
    /// The last moment for deferred work.
    flush: Option<Instant>,
    reopened: Instant,
    /// There has been no client since.
    quiet: Instant,
}

impl Schedule {
    pub(super) const fn since(now: Instant) -> Self {
        Self { sweep: None, flush: None, reopened: now, quiet: now }
    }

    /// A sweep is needed at this moment at the latest.
    pub(super) fn sweep_by(&mut self, moment: Option<Instant>) {
        self.sweep = self.sweep.into_iter().chain(moment).min();
    }

    pub(super) const fn last_client_left(&mut self, now: Instant) {
        self.quiet = now;
    }

    pub(super) fn next_moment(&self) -> Option<Instant> {
        self.sweep.into_iter().chain(self.flush).min()
    }
}

impl Daemon<'_> {
    /// Under a load without end, it is done every [`FLUSH_AFTER`] all the same.
    pub(super) fn flush(&mut self, now: Instant) {
        if !self.service.has_deferred_work() {
            self.schedule.flush = None;
            return;
        }
        let by =
            *self.schedule.flush.get_or_insert_with(|| now.checked_add(FLUSH_AFTER).unwrap_or(now));
        if now >= by {
            self.service.flush();
            self.schedule.flush = None;
        }
    }

    pub(super) fn sweep(&mut self, now: Instant) {
        self.accept_again(now);
        if self.schedule.sweep.is_none_or(|moment| moment > now) {
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
                    self.turn(token, now);
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
            self.service.judge_the_newcomers();
            let soon = now.checked_add(Duration::from_secs(1));
            next = next.into_iter().chain(soon.filter(|_| self.service.foresees())).min();
        }
        let earliest = now.checked_add(SWEEP_EVERY);
        self.schedule.sweep.take_if(|moment| *moment <= now);
        self.schedule.sweep_by(next);
        let next = self.schedule.sweep;
        self.schedule.sweep = next.map(|next| earliest.map_or(next, |e| next.max(e)));
    }

    pub(super) fn refresh(&mut self, now: Instant) {
        if now.saturating_duration_since(self.schedule.reopened) >= REOPEN_EVERY {
            self.schedule.reopened = now;
            self.service.reopen();
            // The watched directories may be others by now.
            self.watches.forget_directories();
        }
    }

    /// When a daemon that is not needed any more ends, unless a client comes.
    pub(super) fn idle_end(&self) -> Option<Instant> {
        let may_end = self.settings.stay == Stay::WhileNeeded && self.clients.is_empty();
        let end = || self.schedule.quiet.checked_add(self.settings.idle_timeout);
        may_end.then(end).flatten()
    }

    pub(super) fn is_no_longer_needed(&self, now: Instant) -> bool {
        self.idle_end().is_some_and(|end| end <= now) && !self.service.has_locks()
    }

    /// The end: new clients of our own listeners are told so; what has arrived is done; all clients are
    /// told. A listener that was handed over stays open for the next daemon.
    pub(super) fn drain(&mut self) {
        for listener in self.arrivals.take_listeners() {
            let Origin::Ours(file) = &listener.origin else { continue };
            if let Some(file) = file {
                file.remove();
            }
            for _ in 0..CONNECTIONS {
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
                    self.turn(token, Instant::now());
                }
            }
            self.end(token);
        }
        self.service.end_all_exclusive();
        self.service.flush();
        self.service.note(Severity::Info, format_args!("ends"));
    }
}
