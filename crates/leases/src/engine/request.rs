//! Requests to the engine, and its answers, as values without protocol text. Pure.

use super::sharing::Claim;
use super::terms::{Key, Keys, Moment, Seconds, Token, Ttl};

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
        /// How long to wait; [`Seconds::ZERO`] only looks.
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
    /// When the lease ends.
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
    /// The server has its maximum of keys.
    MaxLocks,
    /// The key has its maximum of waiters.
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

/// What becomes of a connection's holds when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "on or off")]
pub enum AutoRelease {
    /// They are released.
    On,
    /// They stay until they are released by token or their leases end.
    Off,
}
