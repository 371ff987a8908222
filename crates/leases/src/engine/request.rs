//! Requests to the engine, and its answers, as values without protocol text. Pure.

use super::terms::{Key, Limit, Moment, Seconds, Token, Ttl};

/// A connection, as a store knows it. The place is reused after the connection is gone, the
/// generation is not: what is still under way to a gone connection never reaches the next one in
/// its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnId {
    pub(super) place: u32,
    pub(super) generation: u32,
}

impl ConnId {
    /// For stores that number connections themselves.
    pub const fn new(place: u32, generation: u32) -> Self {
        Self { place, generation }
    }

    /// A small number, reused after the connection is gone: a place in a table beside the store's.
    pub const fn place(self) -> usize {
        self.place as usize
    }
}

/// One request about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// `l`, `sl`: take a slot, wait for it at most `timeout`.
    Acquire {
        /// Of which key.
        key: Key<'a>,
        /// How many may hold it; 1 for a lock.
        limit: Limit,
        /// [`Seconds::ZERO`] only tries.
        timeout: Seconds,
        /// `None`: the server's default.
        ttl: Option<Ttl>,
    },
    /// `e`, `se`: take a slot or a place in the queue, without waiting.
    Enqueue {
        /// Of which key.
        key: Key<'a>,
        /// How many may hold it; 1 for a lock.
        limit: Limit,
        /// `None`: the server's default.
        ttl: Option<Ttl>,
    },
    /// `w`, `sw`: wait for what [`Request::Enqueue`] began.
    Wait {
        /// Of which key.
        key: Key<'a>,
        /// [`Seconds::ZERO`] only looks.
        timeout: Seconds,
    },
    /// `r`, `sr`: give a slot back.
    Release {
        /// Of which key.
        key: Key<'a>,
        /// `None` for text that is no token of ours.
        token: Option<Token>,
    },
    /// `n`, `sn`: start the lease anew.
    Renew {
        /// Of which key.
        key: Key<'a>,
        /// `None` for text that is no token of ours.
        token: Option<Token>,
        /// `None`: the server's default.
        ttl: Option<Ttl>,
    },
}

impl<'a> Request<'a> {
    /// The key it is about.
    pub const fn key(&self) -> Key<'a> {
        match *self {
            Self::Acquire { key, .. }
            | Self::Enqueue { key, .. }
            | Self::Wait { key, .. }
            | Self::Release { key, .. }
            | Self::Renew { key, .. } => key,
        }
    }
}

/// A slot given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Proves the hold.
    pub token: Token,
    /// The lease as asked for: an echo, not a remainder.
    pub ttl: Ttl,
    /// When the lease ends.
    pub expires: Moment,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// `l` and `w`: the slot is yours.
    Granted(Grant),
    /// `e`: the slot is yours at once.
    Acquired(Grant),
    /// `e`: you have a place in the queue.
    Queued,
    /// The wait ended without a grant.
    TimedOut,
    /// The slot is given back.
    Released,
    /// The lease starts anew and runs this long.
    Renewed(Ttl),
    /// Refused, nothing changed.
    Refused(Refusal),
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// As many keys as the server keeps.
    MaxLocks,
    /// As many waiters as a key may have.
    MaxWaiters,
    /// The key exists with another limit.
    LimitMismatch,
    /// `w` without `e`.
    NotEnqueued,
    /// A second `e`.
    AlreadyEnqueued,
    /// The lease ended before the grant was seen.
    LeaseExpired,
    /// No such hold.
    NotHeld,
    /// The server is going down.
    Draining,
    /// What is granted could not be recorded.
    NoSpace,
    /// The store cannot be reached: nothing is known about the hold. The connection ends, and what
    /// it holds is not given back for it.
    Unavailable,
}

impl Refusal {
    /// All of them, each at its own place.
    pub const ALL: [Self; 10] = [
        Self::MaxLocks,
        Self::MaxWaiters,
        Self::LimitMismatch,
        Self::NotEnqueued,
        Self::AlreadyEnqueued,
        Self::LeaseExpired,
        Self::NotHeld,
        Self::Draining,
        Self::NoSpace,
        Self::Unavailable,
    ];
}

/// What [`Engine::ask`](super::Engine::ask) says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Here is the answer.
    Now(Answer),
    /// The connection waits; the answer comes as [`Effect::Answer`].
    Later,
}

/// What happened besides the answer to the request at hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The wait of this connection is over.
    Answer(ConnId, Answer),
    /// What answered [`Progress::Later`] to this connection wants to be asked again.
    Wake(ConnId),
    /// A lease ran out; for the log.
    Expired {
        /// The number given to [`Engine::connect`](super::Engine::connect).
        serial: u64,
        /// Of which key.
        key: Box<[u8]>,
    },
    /// Its tables have become much smaller: the allocator may give memory back.
    Shrunk,
}

/// Whether [`Engine::disconnect`](super::Engine::disconnect) and
/// [`Engine::advance`](super::Engine::advance) have more to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// All done.
    Done,
    /// The budget is used up: call again soon.
    More,
    /// Something is under way: an [`Effect::Wake`] says when to call again.
    Later,
}

/// What becomes of a connection's holds when it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoRelease {
    /// They are released.
    On,
    /// They stay until released by token or run out.
    Off,
}
