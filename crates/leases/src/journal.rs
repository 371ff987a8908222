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

/// What [`Journal::load`] has found. The default is nothing: no holds, and no time to wait for any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
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
    /// missing. A hold without a slot, from a record of an earlier version, gets one that no other hold has.
    pub fn restore(&self, now: Moment, engine: &mut Engine) {
        let (known, unknown): (Vec<_>, Vec<_>) =
            self.holds.iter().partition(|it| it.slot.is_some());
        known.into_iter().chain(unknown).for_each(|kept| engine.restore(now, kept));
        let until = now.after_micros(self.closed_micros).max(engine.closed_until());
        engine.close(until);
    }
}
