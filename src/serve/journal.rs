//! The service's log. Each user may cause [`LOG_LINES`] lines in a minute, so that one user cannot bury the lines about
//! others.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use ttylock::Event;

use super::admission::User;
use crate::limits::LOG_LINES;
use crate::log::{Log, Severity};
use crate::peer::Peer;

const MINUTE: Duration = Duration::from_secs(60);

/// The log, and how many lines each user has caused.
#[derive(Debug)]
pub(super) struct Journal {
    /// For lines that no user has caused.
    pub(super) log: Log,
    budget: Budget,
}

/// How many lines each user has caused in a minute, also those that were left out.
#[derive(Debug)]
struct Budget {
    began: Instant,
    lines: HashMap<User, usize>,
}

impl Budget {
    /// Whether one more line about this user is logged. In a new minute also whose lines were left out in the one before,
    /// and how many.
    fn spend(&mut self, user: User, now: Instant) -> (bool, Vec<(User, usize)>) {
        let mut left_out = Vec::new();
        if now.saturating_duration_since(self.began) >= MINUTE {
            let lines = std::mem::take(&mut self.lines).into_iter();
            left_out.extend(lines.map(|(user, lines)| (user, lines.saturating_sub(LOG_LINES))));
            left_out.retain(|(_, lines)| *lines > 0);
            self.began = now;
        }
        // One user may have many numbers, in user namespaces. Those beyond this many share one budget.
        let is_known = self.lines.len() < LOG_LINES || self.lines.contains_key(&user);
        let lines = self.lines.entry(user.filter(|_| is_known)).or_default();
        *lines = lines.saturating_add(1);
        (*lines <= LOG_LINES, left_out)
    }
}

impl Journal {
    pub(super) fn of(log: Log) -> Self {
        Self { log, budget: Budget { began: Instant::now(), lines: HashMap::new() } }
    }

    /// A line about what a user has caused.
    pub(super) fn of_user(&mut self, user: User, severity: Severity, line: fmt::Arguments<'_>) {
        if !self.log.wants(severity) {
            return;
        }
        let (is_logged, left_out) = self.budget.spend(user, Instant::now());
        for (user, lines) in left_out {
            let uid = user.map_or_else(|| "an unknown user".to_owned(), |u| format!("uid {u}"));
            self.log.record(
                Severity::Warning,
                &format_args!("{lines} lines about {uid} were left out"),
            );
        }
        if is_logged {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_so_many_lines_and_what_is_left_out_is_counted() {
        let now = Instant::now();
        let mut budget = Budget { began: now, lines: HashMap::new() };
        let logged = (true, vec![]);
        for _ in 0..LOG_LINES {
            assert_eq!(budget.spend(Some(1), now), logged);
        }
        for _ in 0..3 {
            assert_eq!(budget.spend(Some(1), now), (false, vec![]));
        }
        assert_eq!(budget.spend(Some(2), now), logged);
        assert_eq!(budget.spend(None, now), logged);
        let later = now + MINUTE;
        assert_eq!(budget.spend(Some(2), later), (true, vec![(Some(1), 3)]));
        assert_eq!(budget.spend(Some(1), later), logged);
        // A minute without a line too much is not mentioned.
        assert_eq!(budget.spend(None, later + MINUTE), logged);
        assert_eq!(budget.lines.len(), 1);
        for uid in (0..).take(2 * LOG_LINES) {
            budget.spend(Some(uid), later + MINUTE);
        }
        assert_eq!(budget.lines.len(), LOG_LINES);
        assert_eq!(budget.spend(Some(u32::MAX), later + MINUTE), (false, vec![]));
        assert_eq!(budget.spend(Some(0), later + MINUTE), logged);
    }
}
