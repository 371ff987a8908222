//! The order of commits and answers in one term: which records go into the next commit, when a confirmation is enough,
//! and which answers may be sent. Pure.
//!
//! Every answer waits, refusals and "not held" too: a server that was succeeded without its knowledge must not deny or
//! report anything. It waits for the commit of all records noted before it, and for one call of the journal that began
//! after it was decided. So one commit or confirmation serves all answers that were decided before it began.

use super::{Failed, MAX_RECORDS, Record};
use crate::MAX_KEYS;
use std::collections::VecDeque;

/// When an answer may be sent. Made by [`Commits::mark`] when it is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    records: u64,
    calls: u64,
}

/// The call of the journal that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`Journal::commit`](super::Journal::commit) of these records.
    Commit(Vec<Record>),
    /// [`Journal::confirm`](super::Journal::confirm).
    Confirm,
}

/// See the module. A new term begins with a new one.
#[derive(Debug, Default)]
pub struct Commits {
    /// The records that are in no commit yet, in sets that are committed together.
    waiting: VecDeque<Vec<Record>>,
    noted: u64,
    committed: u64,
    /// The records of the commit under way.
    under_way: Option<u64>,
    begun: u64,
    done: u64,
    /// The greatest number of calls that an answer waits for.
    wanted: u64,
    failed: bool,
}

impl Commits {
    /// Notes records that are committed together, at most [`MAX_KEYS`] of them.
    pub fn note(&mut self, set: Vec<Record>) {
        debug_assert!(set.len() <= MAX_KEYS, "one request names no more keys");
        if !set.is_empty() {
            self.noted += count(&set);
            self.waiting.push_back(set);
        }
    }

    /// The mark of an answer that is decided now, after its records were noted.
    pub const fn mark(&mut self) -> Mark {
        self.wanted = self.begun + 1;
        Mark { records: self.noted, calls: self.wanted }
    }

    /// Whether the answer may be sent.
    ///
    /// # Errors
    /// The term is over, so it may be wrong: the connection ends.
    pub const fn may_send(&self, mark: Mark) -> Result<bool, Failed> {
        if self.failed {
            return Err(Failed);
        }
        Ok(self.committed >= mark.records && self.done >= mark.calls)
    }

    /// The next call, if one is due and none is under way. [`Commits::end`] must follow.
    pub fn begin(&mut self) -> Option<Call> {
        if self.failed || self.under_way.is_some() {
            return None;
        }
        let records = self.batch();
        if records.is_empty() && self.wanted <= self.begun {
            return None;
        }
        self.begun += 1;
        self.under_way = Some(count(&records));
        Some(if records.is_empty() { Call::Confirm } else { Call::Commit(records) })
    }

    /// As many sets as fit, in order.
    fn batch(&mut self) -> Vec<Record> {
        let mut records = Vec::new();
        while self.waiting.front().is_some_and(|set| records.len() + set.len() <= MAX_RECORDS) {
            records.extend(self.waiting.pop_front().into_iter().flatten());
        }
        records
    }

    /// The call under way has ended. After a failure nothing more begins, and nothing may be sent.
    pub fn end(&mut self, outcome: Result<(), Failed>) {
        let Some(records) = self.under_way.take() else { return };
        match outcome {
            Ok(()) => {
                self.committed += records;
                self.done = self.begun;
            }
            Err(Failed) => {
                self.failed = true;
                self.waiting.clear();
            }
        }
    }
}

fn count(records: &[Record]) -> u64 {
    u64::try_from(records.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Token;
    use proptest::prelude::*;

    fn set(size: usize) -> Vec<Record> {
        vec![Record::Ended(Token::new(1, 1)); size]
    }

    #[test]
    fn an_answer_without_a_record_waits_for_a_confirmation() {
        let mut commits = Commits::default();
        assert_eq!(commits.begin(), None);
        let mark = commits.mark();
        assert_eq!(commits.may_send(mark), Ok(false));
        assert_eq!(commits.begin(), Some(Call::Confirm));
        // One that is decided now waits for the next one.
        let later = commits.mark();
        assert_eq!(commits.begin(), None, "one at a time");
        commits.end(Ok(()));
        assert_eq!((commits.may_send(mark), commits.may_send(later)), (Ok(true), Ok(false)));
        assert_eq!(commits.begin(), Some(Call::Confirm));
        commits.end(Ok(()));
        assert_eq!(commits.may_send(later), Ok(true));
        assert_eq!(commits.begin(), None);
    }

    /// A grant that was decided while a commit is under way is not in it.
    #[test]
    fn a_commit_serves_what_was_decided_before_it_began() {
        let mut commits = Commits::default();
        commits.note(set(1));
        let (grant, refusal) = (commits.mark(), commits.mark());
        assert_eq!(commits.begin(), Some(Call::Commit(set(1))));
        commits.note(set(2));
        let later = commits.mark();
        commits.end(Ok(()));
        for mark in [grant, refusal] {
            assert_eq!(commits.may_send(mark), Ok(true));
        }
        assert_eq!(commits.may_send(later), Ok(false));
        assert_eq!(commits.begin(), Some(Call::Commit(set(2))));
        commits.end(Ok(()));
        assert_eq!(commits.may_send(later), Ok(true));
    }

    #[test]
    fn after_a_failure_nothing_is_sent_and_nothing_begins() {
        let mut commits = Commits::default();
        let refusal = commits.mark();
        commits.begin();
        commits.end(Ok(()));
        commits.note(set(1));
        let grant = commits.mark();
        commits.begin();
        commits.note(set(1));
        commits.end(Err(Failed));
        for mark in [refusal, grant] {
            assert_eq!(commits.may_send(mark), Err(Failed));
        }
        assert_eq!(commits.begin(), None);
    }

    #[test]
    fn keys_that_are_taken_together_are_committed_together() {
        let mut commits = Commits::default();
        for _ in 0..8 {
            commits.note(set(16));
        }
        let mark = commits.mark();
        assert_eq!(commits.begin(), Some(Call::Commit(set(7 * 16))));
        commits.end(Ok(()));
        assert_eq!(commits.may_send(mark), Ok(false), "its last record is in the next one");
        assert_eq!(commits.begin(), Some(Call::Commit(set(16))));
        commits.end(Ok(()));
        assert_eq!(commits.may_send(mark), Ok(true));
    }

    proptest! {
        /// Whatever the order: an answer is sent only after its records and after a call that began later, all records
        /// are committed once and in order, and every answer is sent in the end.
        #[test]
        fn no_answer_is_early_and_none_is_forgotten(steps in proptest::collection::vec(0..20_usize, 0..200)) {
            let mut commits = Commits::default();
            let (mut noted, mut done, mut begun, mut running) = (0, 0, 0, None);
            let mut marks = Vec::new();
            let rest = std::iter::repeat_n(19, 200);
            for step in steps.into_iter().chain(rest) {
                match step {
                    1..=16 => {
                        commits.note(set(step));
                        noted += step;
                        marks.push((commits.mark(), noted, begun));
                    }
                    17 => marks.push((commits.mark(), noted, begun)),
                    _ => {
                        if let Some(size) = running.take() {
                            commits.end(Ok(()));
                            done += size;
                        } else if let Some(call) = commits.begin() {
                            begun += 1;
                            running = Some(match call {
                                Call::Commit(records) => records.len(),
                                Call::Confirm => 0,
                            });
                        }
                    }
                }
                let over = begun - usize::from(running.is_some());
                for (mark, records, calls) in &marks {
                    prop_assert_eq!(commits.may_send(*mark), Ok(done >= *records && over > *calls));
                }
            }
            prop_assert_eq!(done, noted);
            prop_assert!(marks.iter().all(|(mark, ..)| commits.may_send(*mark) == Ok(true)));
        }
    }
}
