//! The service's log. Each user may cause [`LOG_LINES`] lines in a minute, so that one user cannot bury the lines about
//! others.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use ttylock::Event;
use ttylock::subordinate::owner_of;

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
    /// One more line about this user: how many these are in this minute.
    fn spend(&mut self, user: User, now: Instant) -> usize {
        if now.saturating_duration_since(self.began) >= MINUTE {
            *self = Self { began: now, lines: HashMap::new() };
        }
        // Those beyond this many share one budget.
        let user = user.map(owner_of);
        let is_known = self.lines.len() < LOG_LINES || self.lines.contains_key(&user);
        let lines = self.lines.entry(user.filter(|_| is_known)).or_default();
        *lines = lines.saturating_add(1);
        *lines
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
        match self.budget.spend(user, Instant::now()).cmp(&(LOG_LINES + 1)) {
            Ordering::Less => self.log.record(severity, &line),
            Ordering::Equal => {
                let uid = user.map_or_else(|| "an unknown user".to_owned(), |u| format!("uid {u}"));
                let text =
                    format!("further lines about {uid} are left out until this minute is over");
                self.log.record(Severity::Warning, &text);
            }
            Ordering::Greater => {}
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
    fn each_user_has_so_many_lines_in_a_minute() {
        let now = Instant::now();
        let mut budget = Budget { began: now, lines: HashMap::new() };
        for line in 1..=LOG_LINES + 3 {
            assert_eq!(budget.spend(Some(1), now), line);
        }
        assert_eq!((budget.spend(Some(2), now), budget.spend(None, now)), (1, 1));
        let later = now + MINUTE;
        assert_eq!(budget.spend(Some(1), later), 1);
        for uid in (2..).take(2 * LOG_LINES) {
            budget.spend(Some(uid), later);
        }
        assert!(budget.lines.len() <= LOG_LINES + 1, "those beyond share one budget");
        assert!(budget.spend(Some(u32::MAX), later) > LOG_LINES);
        assert_eq!(budget.spend(Some(1), later), 2);
    }
}
