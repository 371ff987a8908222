//! The boundary between the engine and the record of its holds. The engine decides, the journal remembers, and an
//! answer waits for the commit of every record that was noted before it.
//!
//! A server calls [`Journal::load`] once at the start of each term and restores those holds. Then it has
//! one [`Journal::commit`] or [`Journal::confirm`] under way at a time (they take `&mut self`) and gathers records
//! meanwhile. After [`Failed`] the term is over: the server drops its engine and the records that were not committed,
//! releases nothing, and loads again. There is no other recovery.
//!
//! Pure.

mod commits;

pub use commits::{Call, Commits, Mark};

use crate::{Change, Claim, Hold, Key, Label, Moment, Token, Ttl};

/// The most records of one [`Journal::commit`]. The keys that were granted together fit into one.
pub const MAX_RECORDS: usize = 126;

/// A hold in the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The key.
    pub key: Box<[u8]>,
    /// What is held of the key.
    pub claim: Claim,
    /// The token of the hold.
    pub token: Token,
    /// The length of the lease in the last request.
    pub ttl: Ttl,
    /// The time that was left of the lease when this was recorded.
    pub left_micros: u64,
    /// The label of its holder.
    pub label: Option<Label>,
}

/// A change of one hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// It began.
    Granted(Kept),
    /// Its lease was renewed, or the time that is left is recorded.
    Extended(Kept),
    /// It was released, or its lease ended.
    Ended(Token),
}

/// What [`Journal::load`] has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// All holds that may not be over.
    pub holds: Vec<Kept>,
    /// Greater than the fence of every token that a client was told.
    pub next_fence: u64,
    /// For this long nothing may be granted, because holds may be missing.
    pub closed_micros: u64,
}

/// The term is over: whether the last records were committed is unknown, or somebody else leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

/// The record of the holds of one engine.
pub trait Journal: Send {
    /// Begins a term and reads all holds. A journal that several servers share returns when this server leads.
    fn load(&mut self) -> impl Future<Output = Result<Recovered, Failed>> + Send;

    /// Records at most [`MAX_RECORDS`] changes, all or none of them. Of several records of one hold the last one
    /// counts. If it is done, this server also led when the call began.
    fn commit(&mut self, records: &[Record]) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Returns `Ok` if this server still led when the call began: nobody else has changed a hold since the last commit.
    /// A journal of one server is done at once.
    fn confirm(&mut self) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Whether new holds can be recorded. Present ones can be extended, handed on and ended even if not.
    fn has_room(&self) -> bool;
}

impl Kept {
    /// The record of a hold.
    #[must_use]
    pub fn new(hold: &Hold<'_>, now: Moment) -> Self {
        Self {
            key: hold.key.bytes().into(),
            claim: hold.claim,
            token: hold.token,
            ttl: hold.ttl,
            left_micros: hold.expires.micros_since(now),
            label: hold.label.cloned(),
        }
    }

    /// The hold, with its lease counted from `now`; `None` if the name is no key.
    #[must_use]
    pub fn hold(&self, now: Moment) -> Option<Hold<'_>> {
        Some(Hold {
            key: Key::new(&self.key)?,
            claim: self.claim,
            token: self.token,
            ttl: self.ttl,
            expires: now.after_micros(self.left_micros),
            label: self.label.as_ref(),
        })
    }
}

impl Record {
    /// The record of a change.
    #[must_use]
    pub fn new(change: &Change<'_>, now: Moment) -> Self {
        match change {
            Change::Granted(hold) => Self::Granted(Kept::new(hold, now)),
            Change::Renewed(hold) => Self::Extended(Kept::new(hold, now)),
            Change::Ended { token, .. } => Self::Ended(*token),
        }
    }

    /// The token of the hold.
    #[must_use]
    pub const fn token(&self) -> Token {
        match self {
            Self::Granted(kept) | Self::Extended(kept) => kept.token,
            Self::Ended(token) => *token,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{CAPS, Counting};
    use crate::{Answer, Engine, Request, Verdict};
    use std::hash::RandomState;

    const fn at(micros: u64) -> Moment {
        Moment::from_micros(micros)
    }

    fn engine() -> Engine<Counting> {
        let mut engine = Engine::new(CAPS, Counting(0), RandomState::new());
        engine.record();
        engine
    }

    fn changes(engine: &mut Engine<Counting>, now: Moment) -> Vec<Record> {
        let mut records = Vec::new();
        engine.take_changes(|change| records.push(Record::new(&change, now)));
        records
    }

    /// A grant, a renewal and the end of a hold, and a second engine that continues with the record.
    #[test]
    fn an_engine_continues_from_the_records_of_another_one() {
        let (key, ttl) = (Key::new(b"nightly").unwrap(), Ttl::new(33));
        let mut first = engine();
        let conn = first.connect(1);
        first.introduce(conn, &std::sync::Arc::new(Label { name: "al".into(), value: "1".into() }));
        let acquire =
            Request::Acquire { key, claim: Claim::Shared, timeout: crate::Seconds::ZERO, ttl };
        let Verdict::Now(Answer::Granted(grant)) = first.ask(at(0), conn, acquire) else {
            panic!()
        };
        let [Record::Granted(granted)] = &changes(&mut first, at(0))[..] else { panic!() };
        assert_eq!((granted.token, granted.left_micros), (grant.token, 33_000_000));

        let renew = Request::Renew { key, token: Some(grant.token), ttl };
        first.ask(at(5), conn, renew);
        let [Record::Extended(kept)] = &changes(&mut first, at(1_000_005))[..] else { panic!() };
        assert_eq!((kept.token, kept.left_micros), (grant.token, 32_000_000));

        let mut second = engine();
        second.restore(at(7), &kept.hold(at(7)).unwrap());
        let mut restored = Vec::new();
        let all = second.look_over_holds(&mut 0, 9, |hold| restored.push(Kept::new(&hold, at(7))));
        assert_eq!(all, crate::Progress::Done);
        assert_eq!(restored.first(), Some(kept));
        assert_eq!(restored.len(), 1);

        first.ask(at(9), conn, Request::Release { key, token: Some(grant.token) });
        assert_eq!(changes(&mut first, at(9)), [Record::Ended(grant.token)]);
    }

    #[test]
    fn a_name_that_is_no_key_is_no_hold() {
        let kept = Kept {
            key: b"two words".as_slice().into(),
            claim: Claim::LOCK,
            token: Token::new(1, 2),
            ttl: Ttl::new(1).unwrap(),
            left_micros: 0,
            label: None,
        };
        assert_eq!(kept.hold(at(0)), None);
    }
}
