//! The queue of STAT requests. They are answered one at a time, and all together take only a part of the
//! time, because each looks at every process of the machine. The clock is an argument.
//!
//! Pure.

use std::collections::VecDeque;
use std::time::Instant;

use ttylock::DeviceName;

use super::admission::Token;
use crate::limits::STATUS_SHARE;

/// Where it is the daemon that asks: no connection has this token.
pub(super) const OURSELVES: Token = 0;

#[derive(Debug)]
pub(super) struct StatusQueries {
    queries: VecDeque<(Token, Option<DeviceName>)>,
    not_before: Instant,
}

impl StatusQueries {
    pub(super) fn none(now: Instant) -> Self {
        Self { queries: VecDeque::new(), not_before: now }
    }

    pub(super) fn push(&mut self, token: Token, device: Option<DeviceName>) {
        self.queries.push_back((token, device));
    }

    /// The same for what all others wait for, if they knew.
    pub(super) fn push_first(&mut self, token: Token, device: Option<DeviceName>) {
        self.queries.push_front((token, device));
    }

    /// The next one, if it is time for one.
    pub(super) fn due(&mut self, now: Instant) -> Option<(Token, Option<DeviceName>)> {
        if now < self.not_before {
            return None;
        }
        self.queries.pop_front()
    }

    /// One was answered: the next comes after a pause that is a multiple of what it took.
    pub(super) fn answered(&mut self, began: Instant, ended: Instant) {
        let spent = ended.saturating_duration_since(began);
        let time = spent.saturating_mul(STATUS_SHARE);
        self.not_before = began.checked_add(time).unwrap_or(ended);
    }

    pub(super) fn next_moment(&self) -> Option<Instant> {
        (!self.queries.is_empty()).then_some(self.not_before)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn queries_are_answered_one_at_a_time_for_a_part_of_the_time() {
        let now = Instant::now();
        let mut queries = StatusQueries::none(now);
        assert_eq!(queries.next_moment(), None);
        (1..=2).for_each(|token| queries.push(token, None));
        assert_eq!(queries.due(now), Some((1, None)));
        let took = Duration::from_millis(10);
        queries.answered(now, now + took);
        let next = now + took * STATUS_SHARE;
        assert_eq!(queries.next_moment(), Some(next));
        assert_eq!(queries.due(next - Duration::from_nanos(1)), None);
        assert_eq!(queries.due(next), Some((2, None)));
        assert_eq!(queries.next_moment(), None);
    }
}
