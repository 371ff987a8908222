//! The service's log. Lines are put off until no client waits, and each user may cause a bounded number of them.

use std::fmt;
use std::time::Instant;

use ttylock::Event;

use super::admission::User;
use super::log_budget::{LogBudget, Verdict};
use crate::log::{Log, Severity};
use crate::peer::Peer;

/// The log, and what is still to be logged.
#[derive(Debug)]
pub(super) struct Journal {
    log: Log,
    lines: Vec<(Severity, String)>,
    budget: LogBudget,
}

impl Journal {
    pub(super) fn of(log: Log) -> Self {
        Self { log, lines: Vec::new(), budget: LogBudget::default() }
    }

    /// A log like this one, for another thread.
    pub(super) fn log_of_thread(&self) -> Log {
        self.log.another()
    }

    /// One line, at once.
    pub(super) fn now(&mut self, severity: Severity, line: fmt::Arguments<'_>) {
        self.log.record(severity, &line);
    }

    /// One line, with the next [`Self::write`].
    pub(super) fn later(&mut self, severity: Severity, line: fmt::Arguments<'_>) {
        if self.log.wants(severity) {
            self.lines.push((severity, line.to_string()));
        }
    }

    /// The same for what a user has caused. One user cannot bury the lines of others.
    pub(super) fn of_user(&mut self, user: User, severity: Severity, line: fmt::Arguments<'_>) {
        if !self.log.wants(severity) {
            return;
        }
        if let Verdict::Log(left_out) = self.budget.spend(user, Instant::now()) {
            if left_out > 0 {
                let uid = user.map_or_else(|| "an unknown user".to_owned(), |u| format!("uid {u}"));
                let line = format!("{left_out} lines about {uid} were left out");
                self.lines.push((Severity::Warning, line));
            }
            self.lines.push((severity, line.to_string()));
        }
    }

    /// What a request of this peer has led to.
    pub(super) fn of_peer(&mut self, peer: &Peer, events: Vec<Event>) {
        for event in events {
            let severity = event.weight.into();
            self.of_user(peer.uid(), severity, format_args!("{peer}: {}", event.text));
        }
    }

    /// How many lines are put off.
    pub(super) fn deferred(&self) -> usize {
        self.lines.len()
    }

    /// Writes them, and after them these.
    pub(super) fn write(&mut self, events: Vec<Event>) {
        self.lines.extend(events.into_iter().map(|event| (event.weight.into(), event.text)));
        for (severity, line) in std::mem::take(&mut self.lines) {
            self.log.record(severity, &line);
        }
    }
}
