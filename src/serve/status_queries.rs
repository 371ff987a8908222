//! The questions of STAT that wait for an answer. One survey answers all that were asked before it began: equal
//! questions are one question. The clock is an argument.
//!
//! Pure.

use std::time::{Duration, Instant};

use ttylock::DeviceName;

use super::admission::Token;
use crate::limits::STATUS_PAUSE;

/// A question, and who asks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Query {
    /// The device; `None` asks for all devices.
    pub(super) device: Option<DeviceName>,
    /// The connections that ask.
    pub(super) tokens: Vec<Token>,
}

#[derive(Debug)]
pub(super) struct StatusQueries {
    queries: Vec<Query>,
    not_before: Instant,
}

impl StatusQueries {
    pub(super) fn none(now: Instant) -> Self {
        Self { queries: Vec::new(), not_before: now }
    }

    pub(super) fn push(&mut self, token: Token, device: Option<DeviceName>) {
        match self.queries.iter_mut().find(|query| query.device == device) {
            Some(query) => query.tokens.push(token),
            None => self.queries.push(Query { device, tokens: vec![token] }),
        }
    }

    /// A connection waits for no answer any more. Questions that nobody asks go.
    pub(super) fn forget(&mut self, token: Token) {
        for query in &mut self.queries {
            query.tokens.retain(|asker| *asker != token);
        }
        self.queries.retain(|query| !query.tokens.is_empty());
    }

    /// All questions, if it is time for a survey.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Query> {
        if now < self.not_before {
            return Vec::new();
        }
        std::mem::take(&mut self.queries)
    }

    /// A survey has ended: the next one begins after a pause that is a multiple of its time, up to a limit.
    pub(super) fn answered(&mut self, began: Instant, ended: Instant) {
        let spent: Duration = ended.saturating_duration_since(began);
        let pause = spent.saturating_mul(3).min(STATUS_PAUSE);
        self.not_before = ended.checked_add(pause).unwrap_or(ended);
    }

    pub(super) fn next_moment(&self) -> Option<Instant> {
        (!self.queries.is_empty()).then_some(self.not_before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str) -> Option<DeviceName> {
        DeviceName::parse(name.as_bytes()).ok()
    }

    #[test]
    fn one_survey_answers_all_questions_and_surveys_take_a_part_of_the_time() {
        let now = Instant::now();
        let mut queries = StatusQueries::none(now);
        assert_eq!(queries.next_moment(), None);
        for (token, asked) in [(1, None), (2, device("a")), (3, None), (4, device("b"))] {
            queries.push(token, asked);
        }
        let query = |device, tokens: &[Token]| Query { device, tokens: tokens.to_vec() };
        let all = [query(None, &[1, 3]), query(device("a"), &[2]), query(device("b"), &[4])];
        assert_eq!(queries.due(now), all);
        assert_eq!(queries.due(now), []);
        queries.push(5, None);
        let took = Duration::from_millis(10);
        queries.answered(now, now + took);
        let next = now + took * 4;
        assert_eq!(queries.next_moment(), Some(next));
        assert_eq!(queries.due(next - Duration::from_nanos(1)), []);
        assert_eq!(queries.due(next), [query(None, &[5])]);
        assert_eq!(queries.next_moment(), None);
        queries.answered(now, now + Duration::from_secs(100));
        queries.push(6, None);
        assert_eq!(queries.next_moment(), Some(now + Duration::from_secs(100) + STATUS_PAUSE));
    }

    #[test]
    fn a_client_that_is_gone_asks_nothing() {
        let now = Instant::now();
        let mut queries = StatusQueries::none(now);
        for (token, asked) in [(1, None), (2, device("a")), (3, None)] {
            queries.push(token, asked);
        }
        queries.forget(1);
        queries.forget(2);
        assert_eq!(queries.due(now), [Query { device: None, tokens: vec![3] }]);
        queries.push(4, None);
        queries.forget(4);
        assert_eq!(queries.next_moment(), None);
    }
}
