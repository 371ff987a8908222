//! Requests to the engine, its answers, what a record of holds says, and the counters of events, as values without
//! protocol text. Pure.

use std::sync::Arc;

use super::rules::Claim;
use super::scalars::{Key, Keys, Limit, Moment, Seconds, Token, Ttl};

/// A connection, as the engine knows it. The place is reused after the connection has ended, but the generation is not:
/// an answer to an ended connection never reaches the next one in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId {
    pub(super) place: u32,
    pub(super) generation: u32,
}

impl ConnId {
    /// A small number that is reused after the connection has ended, for tables that are indexed by it.
    pub const fn place(self) -> usize {
        self.place as usize
    }
}

/// One request about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a server answers each")]
pub enum Request<'a> {
    /// `l`, `sl`, `rl`: take a slot, wait for it at most `timeout`.
    Acquire {
        /// The key.
        key: Key<'a>,
        /// What is asked of the key.
        claim: Claim,
        /// How long to wait; [`Seconds::ZERO`] only tries.
        timeout: Seconds,
        /// The length of the lease; `None`: the server's default.
        ttl: Option<Ttl>,
    },
    /// `al`: take all these locks now, or none of them.
    AcquireAll {
        /// The keys.
        keys: Keys<'a>,
        /// The length of the lease; `None`: the server's default.
        ttl: Option<Ttl>,
    },
    /// `e`, `se`, `re`: take a slot or a place in the queue, without waiting.
    Enqueue {
        /// The key.
        key: Key<'a>,
        /// What is asked of the key.
        claim: Claim,
        /// The length of the lease; `None`: the server's default.
        ttl: Option<Ttl>,
    },
    /// `w`, `sw`: wait for what [`Request::Enqueue`] began.
    Wait {
        /// The key.
        key: Key<'a>,
        /// How long to wait; [`Seconds::ZERO`] does not wait.
        timeout: Seconds,
    },
    /// `r`, `sr`: release a slot.
    Release {
        /// The key.
        key: Key<'a>,
        /// The token; `None` for text that is not a token of this server.
        token: Option<Token>,
    },
    /// `n`, `sn`: renew the lease.
    Renew {
        /// The key.
        key: Key<'a>,
        /// The token; `None` for text that is not a token of this server.
        token: Option<Token>,
        /// The length of the lease; `None`: the server's default.
        ttl: Option<Ttl>,
    },
}

impl<'a> Request<'a> {
    /// The keys of the request; only [`Request::AcquireAll`] may have several.
    pub fn keys(&self) -> Keys<'a> {
        match *self {
            Self::AcquireAll { keys, .. } => keys,
            Self::Acquire { key, .. }
            | Self::Enqueue { key, .. }
            | Self::Wait { key, .. }
            | Self::Release { key, .. }
            | Self::Renew { key, .. } => key.into(),
        }
    }
}

/// A slot given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The token of the hold.
    pub token: Token,
    /// The length of the lease as requested, not the remaining time.
    pub ttl: Ttl,
    /// When the lease ends; [`Moment::NEVER`] if it begins only with its record.
    pub expires: Moment,
    /// Which slot of a semaphore it is: the lowest number from 0 that no other holder had. It stays until the hold
    /// ends. `None` for a lock, which has only one slot.
    pub slot: Option<u32>,
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// `l` and `w`: the slot is yours.
    Granted(Grant),
    /// `al`: all locks are yours; the grants are in the order of the request.
    All(Box<[Grant]>),
    /// `e`: the slot is yours at once.
    Acquired(Grant),
    /// `e`: you have a place in the queue.
    Queued,
    /// The wait ended without a grant.
    TimedOut,
    /// The slot is released.
    Released,
    /// The lease was renewed and has this length.
    Renewed(Ttl),
    /// Refused, nothing changed.
    Refused(Refusal),
}

impl Answer {
    /// The grants in this answer.
    #[must_use]
    pub fn grants(&self) -> &[Grant] {
        match self {
            Self::Granted(grant) | Self::Acquired(grant) => std::slice::from_ref(grant),
            Self::All(grants) => grants,
            Self::Queued
            | Self::TimedOut
            | Self::Released
            | Self::Renewed(_)
            | Self::Refused(_) => &[],
        }
    }
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// No room for another key, or for another entry of the server or of this connection.
    MaxLocks,
    /// No room for another waiter of the key, for another entry, or for another client that watches.
    MaxWaiters,
    /// The key exists with another limit.
    LimitMismatch,
    /// `w` without `e`.
    NotEnqueued,
    /// A second `e`.
    AlreadyEnqueued,
    /// The lease ended before the grant was seen.
    LeaseExpired,
    /// There is no such hold.
    NotHeld,
    /// The server is shutting down.
    Draining,
    /// A grant could not be recorded.
    NoSpace,
}

impl Refusal {
    /// All refusals, each at its own place.
    pub const ALL: [Self; 9] = [
        Self::MaxLocks,
        Self::MaxWaiters,
        Self::LimitMismatch,
        Self::NotEnqueued,
        Self::AlreadyEnqueued,
        Self::LeaseExpired,
        Self::NotHeld,
        Self::Draining,
        Self::NoSpace,
    ];
}

/// The result of [`Engine::ask`](super::Engine::ask).
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "whoever drives the engine acts on each")]
pub enum Verdict {
    /// Here is the answer.
    Now(Answer),
    /// The connection waits; the answer comes as [`Effect::Answer`].
    Later,
}

/// An event other than the answer to the present request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "whoever drives the engine acts on each")]
pub enum Effect {
    /// The wait of this connection is over.
    Answer(ConnId, Answer),
    /// A lease ran out; for the log.
    Expired {
        /// The number given to [`Engine::connect`](super::Engine::connect).
        serial: u64,
        /// The key.
        key: Box<[u8]>,
    },
    /// An administrator has taken this hold from its connection.
    Taken(ConnId, Token),
    /// The holders of a watched key have changed.
    Moved(Box<[u8]>),
}

/// Whether work that is done in steps is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[expect(clippy::exhaustive_enums, reason = "work is done or it is not")]
pub enum Progress {
    /// All done.
    Done,
    /// The budget is used up: call again soon.
    More,
}

/// The progress of taking away the holds of a key. The default is before the first step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forced {
    /// The fence of the last hold to take away, since the first step.
    pub(super) last: Option<u64>,
    pub(super) released: usize,
}

impl Forced {
    /// The number of holds that were taken away so far.
    #[must_use]
    pub const fn released(&self) -> usize {
        self.released
    }
}

/// The label of a connection. A hold keeps the label that its connection had at the grant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Label {
    /// A name for people; empty if there is none.
    pub name: Arc<str>,
    /// A value for programs, such as the address of the holder; empty if there is none.
    pub value: Arc<str>,
}

impl Label {
    /// Both texts.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, value: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), value: value.into() }
    }

    /// As text: the name, a line end and the value. Neither has a line end.
    #[must_use]
    pub fn write(&self) -> String {
        format!("{}\n{}", self.name, self.value)
    }

    /// Reads the text of [`Label::write`]; `None` for text without a line end.
    #[must_use]
    pub fn read(text: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(text);
        let (name, value) = text.split_once('\n')?;
        Some(Self { name: name.into(), value: value.into() })
    }
}

/// A hold in the record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a journal writes every field")]
pub struct RecordedHold {
    /// The key.
    pub key: Arc<[u8]>,
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
    /// Which slot of a semaphore it has; `None` for a lock, and in records of versions that knew no slots.
    pub slot: Option<u32>,
}

/// A change of one hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a journal records every change")]
pub enum Record {
    /// It began: its token is announced to a client.
    Granted(RecordedHold),
    /// Its lease was renewed, or the time that is left is recorded.
    Extended(RecordedHold),
    /// It was released, or its lease ended.
    Ended(Token),
}

impl Record {
    /// The token of the hold.
    #[must_use]
    pub const fn token(&self) -> Token {
        match self {
            Self::Granted(hold) | Self::Extended(hold) => hold.token,
            Self::Ended(token) => *token,
        }
    }
}

/// When the lease of a hold that is recorded begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a server knows both")]
pub enum LeaseStart {
    /// With the grant or the renewal.
    Grant,
    /// When that is recorded, as [`Engine::start_lease`](super::Engine::start_lease) reports. Until then the hold does
    /// not end by itself.
    Record,
}

/// Upper bounds of the wait histogram's buckets in microseconds; one more bucket has no bound.
pub const WAIT_BOUNDS_MICROS: [u64; 9] =
    [100, 1_000, 5_000, 10_000, 50_000, 100_000, 1_000_000, 10_000_000, 60_000_000];

/// The waiting times of granted requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Histogram {
    /// Per bucket, not cumulated; bounds are [`WAIT_BOUNDS_MICROS`].
    pub buckets: [u64; WAIT_BOUNDS_MICROS.len() + 1],
    /// All waits together.
    pub sum_micros: u64,
    /// Number of waits.
    pub count: u64,
}

impl Histogram {
    /// Counts one wait.
    pub fn record(&mut self, micros: u64) {
        let place = WAIT_BOUNDS_MICROS.partition_point(|&bound| bound < micros);
        self.buckets[place] += 1;
        self.sum_micros = self.sum_micros.saturating_add(micros);
        self.count += 1;
    }
}

/// Events since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a server shows every number")]
pub struct Counters {
    /// Slots given out.
    pub grants: u64,
    /// Slots given back by token.
    pub releases: u64,
    /// Slots freed because their connection ended.
    pub disconnect_releases: u64,
    /// Leases renewed by token.
    pub renewals: u64,
    /// Leases that ran out.
    pub expiries: u64,
    /// Waits that ended without a grant.
    pub timeouts: u64,
    /// Refused requests, indexed by the place of their [`Refusal`].
    pub refusals: [u64; Refusal::ALL.len()],
    /// The times from request to grant, including immediate grants.
    pub waits: Histogram,
}

impl Counters {
    /// Refusals of one kind.
    #[must_use]
    pub fn refused(&self, refusal: Refusal) -> u64 {
        self.refusals[refusal as usize]
    }
}

/// The numbers of entries in the tables. They are updated at each change, so that no search is necessary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a server shows every number")]
pub struct Census {
    /// Keys with a limit of 1.
    pub locks: Population,
    /// Keys with a greater limit.
    pub semaphores: Population,
    /// Readers: holders that share a lock.
    pub lock_readers: usize,
}

/// The keys of one kind, and what is in their lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a server shows every number")]
pub struct Population {
    /// Keys that have a holder or a waiter.
    pub in_use: usize,
    /// Keys that have neither.
    pub idle: usize,
    /// Slots that are held, also those of readers.
    pub holders: usize,
    /// Places in queues.
    pub waiters: usize,
}

impl Census {
    /// The numbers of keys with this limit.
    pub(super) const fn of(&mut self, limit: Limit) -> &mut Population {
        if limit.count() == 1 { &mut self.locks } else { &mut self.semaphores }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("name", "value")]
    #[case("", "value")]
    #[case("a b", "")]
    fn a_written_label_is_read_back(#[case] name: &str, #[case] value: &str) {
        let label = Label { name: name.into(), value: value.into() };
        assert_eq!(Label::read(label.write().as_bytes()), Some(label));
    }

    #[test]
    fn text_without_a_line_end_is_no_label() {
        assert_eq!(Label::read(b"name"), None);
    }

    #[rstest]
    #[case(0, 0)]
    #[case(100, 0)]
    #[case(101, 1)]
    #[case(60_000_000, 8)]
    #[case(60_000_001, 9)]
    fn each_wait_is_counted_in_its_bucket(#[case] micros: u64, #[case] bucket: usize) {
        let mut waits = Histogram::default();
        waits.record(micros);
        assert_eq!((waits.buckets[bucket], waits.count, waits.sum_micros), (1, 1, micros));
    }
}
