//! How many log lines each user may cause, so that one user cannot bury the lines about others. Counts only;
//! the clock is an argument.
//!
//! Pure.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::admission::User;
use crate::limits::LOG_LINES;

const MINUTE: Duration = Duration::from_secs(60);

/// How many lines each user has caused.
#[derive(Debug, Default)]
pub(super) struct LogBudget {
    users: HashMap<User, Window>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    began: Instant,
    lines: usize,
    left_out: u64,
}

/// What is to become of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is logged, and before it how many were not since the last one that was.
    Log(u64),
    LeaveOut,
}

impl LogBudget {
    /// One line about this user.
    pub(super) fn spend(&mut self, user: User, now: Instant) -> Verdict {
        if self.users.len() >= LOG_LINES && !self.users.contains_key(&user) {
            self.users.retain(|_, window| !window.is_over(now));
            if self.users.len() >= LOG_LINES {
                return Verdict::LeaveOut;
            }
        }
        let new = Window { began: now, lines: 0, left_out: 0 };
        let window = self.users.entry(user).or_insert(new);
        if window.is_over(now) {
            *window = Window { left_out: window.left_out, ..new };
        }
        if window.lines >= LOG_LINES {
            window.left_out = window.left_out.saturating_add(1);
            return Verdict::LeaveOut;
        }
        window.lines = window.lines.saturating_add(1);
        Verdict::Log(std::mem::take(&mut window.left_out))
    }
}

impl Window {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.began) >= MINUTE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_so_many_lines_and_what_is_left_out_is_counted() {
        let (mut budget, now) = (LogBudget::default(), Instant::now());
        for _ in 0..LOG_LINES {
            assert_eq!(budget.spend(Some(1), now), Verdict::Log(0));
        }
        for _ in 0..3 {
            assert_eq!(budget.spend(Some(1), now), Verdict::LeaveOut);
        }
        assert_eq!(budget.spend(Some(2), now), Verdict::Log(0));
        assert_eq!(budget.spend(None, now), Verdict::Log(0));
        let later = now + MINUTE;
        assert_eq!(budget.spend(Some(1), later), Verdict::Log(3));
        assert_eq!(budget.spend(Some(1), later), Verdict::Log(0));
    }

    #[test]
    fn the_budget_remembers_a_bounded_number_of_users() {
        let (mut budget, now) = (LogBudget::default(), Instant::now());
        for uid in (0..).take(LOG_LINES) {
            assert_eq!(budget.spend(Some(uid), now), Verdict::Log(0));
        }
        assert_eq!(budget.spend(None, now), Verdict::LeaveOut);
        assert_eq!(budget.spend(Some(0), now), Verdict::Log(0));
        assert_eq!(budget.spend(None, now + MINUTE), Verdict::Log(0));
        assert_eq!(budget.users.len(), 1);
    }
}
