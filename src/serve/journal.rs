//! The service's log. Each user may cause a bounded number of lines.

use std::fmt;
use std::time::Instant;

use ttylock::Event;

use super::admission::User;
use super::log_budget::{LogBudget, Verdict};
use crate::log::{Log, Severity};
use crate::peer::Peer;

/// The log, and how many lines each user has caused.
#[derive(Debug)]
pub(super) struct Journal {
    log: Log,
    budget: LogBudget,
}

impl Journal {
    pub(super) fn of(log: Log) -> Self {
        Self { log, budget: LogBudget::default() }
    }

    /// A log like this one, for another thread.
    pub(super) fn log_of_thread(&self) -> Log {
        self.log.another()
    }

    pub(super) fn record(&mut self, severity: Severity, line: fmt::Arguments<'_>) {
        self.log.record(severity, &line);
    }

    /// The same for what a user has caused. One user cannot bury the lines of others.
    pub(super) fn of_user(&mut self, user: User, severity: Severity, line: fmt::Arguments<'_>) {
        if !self.log.wants(severity) {
            return;
        }
        if let Verdict::Log(left_out) = self.budget.spend(user, Instant::now()) {
            if left_out > 0 {
                let uid = user.map_or_else(|| "an unknown user".to_owned(), |u| format!("uid {u}"));
                let warning = format!("{left_out} lines about {uid} were left out");
                self.log.record(Severity::Warning, &warning);
            }
            self.log.record(severity, &line);
        }
    }

    /// What a request of this peer has led to.
    pub(super) fn of_peer(&mut self, peer: &Peer, events: Vec<Event>) {
        for event in events {
            let severity = event.weight.into();
            self.of_user(peer.uid(), severity, format_args!("{peer}: {}", event.text));
        }
    }

    /// What no request has led to.
    pub(super) fn of_nobody(&mut self, events: Vec<Event>) {
        for event in events {
            self.log.record(event.weight.into(), &event.text);
        }
    }
}
