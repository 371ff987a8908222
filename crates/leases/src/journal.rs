//! The boundary between the engine and the record of its holds. The engine decides, the journal remembers, and an
//! answer waits for the commit of every record that was noted before it.
//!
//! A server calls [`Journal::load`] once at the start of each term and restores those holds. Then it has
//! one [`Journal::commit`] or [`Journal::confirm`] under way at a time (they take `&mut self`) and gathers records
//! meanwhile, as [`Commits`] says. After [`Failed`] the term is over: the server empties its engine
//! ([`Engine::restart`]), drops the records that were not committed, releases nothing, and loads again. There is no
//! other recovery.
//!
//! [`Commits`] says which answers wait for which commit: what goes into the next commit, when a confirmation is
//! enough, and which answers may be sent. An answer waits for the commit of all records that were noted before it was
//! decided. If other servers may take the lead, every answer also waits for one call of the journal that began after it
//! was decided, refusals and "not held" too: a server that was succeeded without its knowledge must not deny or report
//! anything. So one commit or confirmation serves all answers that were decided before it began. Without a journal no
//! answer waits.
//!
//! Pure.

use std::collections::VecDeque;

use crate::{Engine, Moment};

pub use crate::engine::{Record, RecordedHold};

/// What [`Journal::load`] has found. The default is nothing: no holds, and no time to wait for any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// All holds that may not be over.
    pub holds: Vec<RecordedHold>,
    /// Greater than the fence of every token that a client knows.
    pub next_fence: u64,
    /// For this long nothing may be granted, because holds may be missing.
    pub closed_micros: u64,
}

/// The term is over: whether the last records were committed is unknown, or somebody else leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a journal makes it")]
pub struct Failed;

/// The record of the holds of one engine.
pub trait Journal: Send {
    /// The most records of one commit. The keys that are granted together fit into one.
    const MAX_RECORDS: usize;

    /// Whether another server may take the lead at any time. Then an answer without a record needs a confirmation.
    const IS_SHARED: bool;

    /// Begins a term and reads all holds. Waits until it can: a journal that several servers share, until this server
    /// leads.
    fn load(&mut self) -> impl Future<Output = Recovered> + Send;

    /// Records at most [`Journal::MAX_RECORDS`] changes, all or none of them. Of several records of one hold the last
    /// one counts. `Ok` also means that this server led when the call began.
    fn commit(&mut self, records: &[Record]) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Returns `Ok` if this server still led when the call began: nobody else has changed a hold since the last commit.
    /// A journal of one server is done at once.
    fn confirm(&mut self) -> impl Future<Output = Result<(), Failed>> + Send {
        std::future::ready(Ok(()))
    }

    /// How many holds can be recorded beside those that are committed, at most, until the next call; [`usize::MAX`]
    /// for no limit. `wanted` says for how many room should be made. Present holds can be extended, handed on and ended
    /// even without room.
    fn room(&mut self, wanted: usize) -> usize;

    /// Ends the term in order, after the last commit: the next term begins without doubt and at once.
    fn end(self) -> impl Future<Output = ()> + Send;
}

impl Recovered {
    /// Gives the holds to an engine that has none and records its changes, and closes it for as long as holds may be
    /// missing. A hold without a slot, from a record of an earlier version, gets one that no other hold has.
    pub fn restore(&self, now: Moment, engine: &mut Engine) {
        let (known, unknown): (Vec<_>, Vec<_>) =
            self.holds.iter().partition(|it| it.slot.is_some());
        for hold in known.into_iter().chain(unknown) {
            engine.restore(now, hold);
        }
        let until = now.after_micros(self.closed_micros).max(engine.closed_until());
        engine.close(until);
    }
}

/// When an answer may be sent. Made by [`Commits::mark`] when it is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    term: u64,
    records: u64,
    calls: u64,
}

/// The call of the journal that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "whoever drives a journal makes each call")]
pub enum Call {
    /// [`Journal::commit`] of these records.
    Commit(Vec<Record>),
    /// [`Journal::confirm`].
    Confirm,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Commits {
    most: usize,
    is_shared: bool,
    /// The number of the present term, or of the next one.
    term: u64,
    /// No term has begun since the last one failed.
    is_between: bool,
    /// The next commits; only the last of them may grow.
    waiting: VecDeque<Vec<Record>>,
    noted: u64,
    committed: u64,
    /// The number of records of the call under way.
    under_way: Option<u64>,
    begun: u64,
    done: u64,
    /// The greatest number of calls that an answer waits for.
    wanted: u64,
}

impl Commits {
    /// For a journal whose first term has not begun. ([`Commits::default`] is for a server without a journal.)
    #[must_use]
    pub fn of<J: Journal>() -> Self {
        Self { most: J::MAX_RECORDS, is_shared: J::IS_SHARED, is_between: true, ..Self::default() }
    }

    /// A term begins.
    pub const fn begin_term(&mut self) {
        self.is_between = false;
    }

    /// The term is over: nothing of it is sent any more, and its records are dropped.
    pub fn end_term(&mut self) {
        *self = Self {
            most: self.most,
            is_shared: self.is_shared,
            term: self.term + 1,
            is_between: true,
            ..Self::default()
        };
    }

    /// The number of the present term; between two terms, that of the next one.
    #[must_use]
    pub const fn term(&self) -> u64 {
        self.term
    }

    /// Whether a term is under way, so that requests can be served.
    #[must_use]
    pub const fn has_term(&self) -> bool {
        !self.is_between
    }

    /// Notes the records of one request, and leaves `set` empty. They are committed together, if one commit has room
    /// for them.
    pub fn note(&mut self, set: &mut Vec<Record>) {
        self.noted += set.len() as u64;
        while set.len() > self.most {
            let rest = set.split_off(self.most);
            self.waiting.push_back(std::mem::replace(set, rest));
        }
        match self.waiting.back_mut() {
            Some(last) if last.len() + set.len() <= self.most => last.append(set),
            Some(_) | None if set.is_empty() => {}
            Some(_) | None => self.waiting.push_back(std::mem::take(set)),
        }
    }

    /// Whether more waits than one call takes.
    #[must_use]
    pub fn has_backlog(&self) -> bool {
        self.waiting.len() > 1
    }

    /// The number of records that were noted in this term.
    #[must_use]
    pub const fn noted(&self) -> u64 {
        self.noted
    }

    /// The mark of an answer that is decided now, after its records were noted; `None` if it waits for nothing.
    pub const fn mark(&mut self) -> Option<Mark> {
        if self.is_shared {
            self.wanted = self.begun + 1;
        } else if self.committed == self.noted {
            return None;
        }
        let calls = if self.is_shared { self.wanted } else { 0 };
        Some(Mark { term: self.term, records: self.noted, calls })
    }

    /// Whether the answer may be sent.
    ///
    /// # Errors
    /// The term is over, so it may be wrong: the connection ends.
    pub const fn may_send(&self, mark: Mark) -> Result<bool, Failed> {
        if self.term != mark.term {
            return Err(Failed);
        }
        Ok(self.committed >= mark.records && self.done >= mark.calls)
    }

    /// The number of holds that were granted and are in no commit yet.
    #[must_use]
    pub fn waiting_grants(&self) -> usize {
        let is_grant = |record: &&Record| matches!(record, Record::Granted(_));
        self.waiting.iter().flatten().filter(is_grant).count()
    }

    /// Whether a call is due and none is under way.
    #[must_use]
    pub fn is_due(&self) -> bool {
        let is_wanted = !self.waiting.is_empty() || self.wanted > self.begun;
        is_wanted && self.under_way.is_none() && self.has_term()
    }

    /// The next call, if one is due. [`Commits::end`] must follow.
    pub fn begin(&mut self) -> Option<Call> {
        if !self.is_due() {
            return None;
        }
        let records = self.waiting.pop_front();
        self.begun += 1;
        self.under_way = Some(records.as_ref().map_or(0, |records| records.len() as u64));
        Some(records.map_or(Call::Confirm, Call::Commit))
    }

    /// The call under way has ended. A failure ends the term.
    pub fn end(&mut self, outcome: Result<(), Failed>) {
        let Some(records) = self.under_way.take() else { unreachable!("a call was begun") };
        match outcome {
            Ok(()) => {
                self.committed += records;
                self.done = self.begun;
            }
            Err(Failed) => self.end_term(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Recovered;
    use super::*;
    use crate::Token;
    use proptest::prelude::*;

    /// A journal that others share.
    struct Shared;

    impl Journal for Shared {
        const MAX_RECORDS: usize = 126;
        const IS_SHARED: bool = true;

        async fn load(&mut self) -> Recovered {
            Recovered::default()
        }

        async fn commit(&mut self, _: &[Record]) -> Result<(), Failed> {
            Err(Failed)
        }

        fn room(&mut self, _: usize) -> usize {
            0
        }

        async fn end(self) {}
    }

    fn commits() -> Commits {
        let mut commits = Commits::of::<Shared>();
        commits.begin_term();
        commits
    }

    fn set(size: usize) -> Vec<Record> {
        vec![Record::Ended(Token::new(1, 1)); size]
    }

    fn decided(commits: &mut Commits) -> Mark {
        commits.mark().unwrap()
    }

    #[test]
    fn after_a_failure_nothing_is_sent_and_nothing_begins() {
        let mut commits = commits();
        let refusal = decided(&mut commits);
        commits.begin();
        commits.end(Ok(()));
        commits.note(&mut set(1));
        let grant = decided(&mut commits);
        commits.begin();
        commits.note(&mut set(1));
        commits.end(Err(Failed));
        for mark in [refusal, grant] {
            assert_eq!(commits.may_send(mark), Err(Failed));
        }
        assert_eq!(commits.begin(), None);
    }

    #[test]
    fn keys_that_are_taken_together_are_committed_together() {
        let mut commits = commits();
        for _ in 0..8 {
            commits.note(&mut set(16));
        }
        let mark = decided(&mut commits);
        assert_eq!(commits.begin(), Some(Call::Commit(set(7 * 16))));
        commits.end(Ok(()));
        assert_eq!(commits.may_send(mark), Ok(false), "its last record is in the next one");
        assert_eq!(commits.begin(), Some(Call::Commit(set(16))));
        commits.end(Ok(()));
        assert_eq!(commits.may_send(mark), Ok(true));
    }

    /// One that is decided in the next term depends on nothing of the last one.
    #[test]
    fn a_term_begins_with_nothing_to_commit() {
        let mut commits = commits();
        commits.note(&mut set(200));
        let old = decided(&mut commits);
        commits.end_term();
        commits.begin_term();
        let new = decided(&mut commits);
        assert_eq!(commits.begin(), Some(Call::Confirm));
        commits.end(Ok(()));
        assert_eq!((commits.may_send(old), commits.may_send(new)), (Err(Failed), Ok(true)));
    }

    /// The end of a connection with many holds is one set.
    #[test]
    fn a_set_may_be_larger_than_a_commit() {
        let mut commits = commits();
        commits.note(&mut set(300));
        commits.note(&mut set(10));
        for size in [126, 126, 58] {
            assert_eq!(commits.begin(), Some(Call::Commit(set(size))));
            commits.end(Ok(()));
        }
        assert_eq!(commits.begin(), None);
    }

    #[test]
    fn without_a_journal_no_answer_waits() {
        let mut commits = Commits::default();
        assert!(commits.has_term());
        assert_eq!((commits.mark(), commits.begin()), (None, None));
    }

    proptest! {
        /// Whatever the order: an answer is sent only after its records and after a call that began later, all records
        /// are committed once and in order, and every answer is sent in the end.
        #[test]
        fn no_answer_is_early_and_none_is_forgotten(steps in proptest::collection::vec(0..20_usize, 0..200)) {
            let mut commits = commits();
            let (mut noted, mut done, mut begun, mut running) = (0, 0, 0, None);
            let mut marks = Vec::new();
            let rest = std::iter::repeat_n(19, 200);
            for step in steps.into_iter().chain(rest) {
                match step {
                    1..=16 => {
                        commits.note(&mut set(step));
                        noted += step;
                        marks.push((decided(&mut commits), noted, begun));
                    }
                    17 => marks.push((decided(&mut commits), noted, begun)),
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
