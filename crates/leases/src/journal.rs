//! The boundary between the engine and the record of its holds. The engine decides, the journal remembers, and an
//! answer waits for the commit of every record that was noted before it.
//!
//! A server calls [`Journal::load`] once at the start of each term and restores those holds. Then it has
//! one [`Journal::commit`] or [`Journal::confirm`] under way at a time (they take `&mut self`) and gathers records
//! meanwhile, as [`Commits`] says. After [`Failed`] the term is over: the server empties its engine
//! ([`Engine::restart`]), drops the records that were not committed, releases nothing, and loads again. There is no
//! other recovery.
//!
//! Pure.

mod commits;

pub use crate::engine::{Kept, Record};
pub use commits::{Call, Commits, Mark};

use crate::{Engine, Moment};

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
    /// The most records of one commit. The keys that are granted together fit into one.
    const MAX_RECORDS: usize;

    /// Whether another server may take the lead at any time. Then an answer without a record needs a confirmation.
    const IS_SHARED: bool;

    /// Begins a term and reads all holds. Waits until it can: a journal that several servers share, until this server
    /// leads.
    fn load(&mut self) -> impl Future<Output = Recovered> + Send;

    /// Records at most [`Journal::MAX_RECORDS`] changes, all or none of them. Of several records of one hold the last one
    /// counts. If it is done, this server also led when the call began.
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
    /// missing.
    pub fn restore(&self, now: Moment, engine: &mut Engine) {
        self.holds.iter().for_each(|kept| engine.restore(now, kept));
        let until = now.after_micros(self.closed_micros).max(engine.closed_until());
        engine.close(until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{CAPS, Counting};
    use crate::{Answer, Claim, Key, Label, LeaseStart, Request, Token, Ttl, Verdict};
    use std::hash::RandomState;
    use std::sync::Arc;

    const fn at(micros: u64) -> Moment {
        Moment::from_micros(micros)
    }

    fn engine() -> Engine {
        let mut engine = Engine::new(CAPS, Counting(0), RandomState::new());
        engine.record(LeaseStart::Grant);
        engine
    }

    fn changes(engine: &mut Engine, now: Moment) -> Vec<Record> {
        let mut records = Vec::new();
        engine.take_changes(now, &mut records);
        records
    }

    /// A grant, a renewal and the end of a hold, and a second engine that continues with the record.
    #[test]
    fn an_engine_continues_from_the_records_of_another_one() {
        let (key, ttl) = (Key::new(b"nightly").unwrap(), Ttl::new(33));
        let mut first = engine();
        let conn = first.connect(1);
        first.introduce(conn, &Arc::new(Label { name: "al".into(), value: "1".into() }));
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
        let recovered = Recovered { holds: vec![kept.clone()], ..Recovered::default() };
        recovered.restore(at(7), &mut second);
        let view = second.view(at(7), key, 9).unwrap();
        assert_eq!((view.held, view.holders[0].left_micros), (1, Some(kept.left_micros)));
        assert!(view.holders[0].is_reader);
        assert_eq!(second.sight(at(7), key).unwrap().label.as_deref(), kept.label.as_ref());
        let conn = second.connect(1);
        let renew = Request::Renew { key, token: Some(grant.token), ttl };
        assert!(matches!(second.ask(at(7), conn, renew), Verdict::Now(Answer::Renewed(_))));

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
        let mut engine = engine();
        engine.restore(at(0), &kept);
        assert_eq!(engine.census().locks.holders, 0);
    }
}
