//! The boundary between the server and the store that keeps the locks: one enum of stores, which all have the same
//! calls. It forwards calls and decides nothing.
//!
//! # The contract
//!
//! All calls come from one thread at a time, under the one lock of `core`. That lock is never held across a system
//! call or an await, so no call may block. `now` is the server's clock and never runs backwards. After every call
//! `core` takes the effects and looks at the next deadline.
//!
//! - [`Store::connect`] returns an id. Its place is a small number that is used again, but its generation is not: an
//!   answer to a connection that has left never reaches the next connection in its place.
//! - [`Store::ask`] answers [`Verdict::Now`], or [`Verdict::Later`]: then exactly one
//!   [`Effect::Answer`] follows, unless [`Store::cancel`] comes first. One request of a connection
//!   is under way at a time.
//! - [`Store::cancel`]: the peer is gone. Waits end; a release or renewal that is under way may still arrive.
//! - [`Store::take_back`] ends a grant of which no client was told.
//! - [`Store::disconnect`] until it says [`Progress::Done`]; the id is free then. After [`Progress::Later`] the call is
//!   repeated when an [`Effect::Wake`] comes.
//! - [`Store::advance`] when [`Store::next_deadline`] has come.
//! - [`Store::look_over`] and [`Store::view`] show keys in steps; a key that exists throughout is shown once. A store
//!   may show an earlier state, and return [`Progress::Later`] until it has one.
//! - [`Refusal::Unavailable`](leases::Refusal::Unavailable) may answer any request: the client is told
//!   `error_draining`, the connection ends, and its holds stay ([`AutoRelease::Off`]): a store that is unavailable
//!   never says "not held". While [`Store::is_available`] is false, `ping` and `stats` get the same answer.
//!
//! Every store decides by one rule which connection owns a hold: see [`leases::ownership`].
//!
//! The store in memory answers inside the call, without an allocation but for the list of several grants, and without
//! an await. A store that has to ask other servers starts its tasks in [`Store::start`], and passes their results
//! through the [`Inlet`].

use super::mint::ServerMint;
use super::settings::{Settings, StoreChoice};
#[cfg(feature = "etcd")]
use leases::Unreachable;
use leases::{
    AutoRelease, Census, ConnId, Counters, Cursor, Effect, Engine, Inlet, Key, KeyLine, KeyView,
    Label, Moment, Progress, Request, Sight, Token, Verdict,
};
use leases_etcd::EtcdNumbers;
use std::hash::RandomState;
use std::ops::ControlFlow;
#[cfg(feature = "etcd")]
use std::pin::Pin;
use std::sync::Arc;

/// What keeps the locks.
#[cfg_attr(
    feature = "etcd",
    expect(
        clippy::large_enum_variant,
        reason = "there is one store, and memory needs no indirection"
    )
)]
pub(super) enum Store {
    /// In this process.
    Memory(Engine),
    /// In etcd.
    #[cfg(feature = "etcd")]
    Etcd(Box<leases_etcd::Engine>),
}

/// The number of holds of a key that were taken away.
pub(super) enum Forced {
    Done(usize),
    /// The number comes when the store has answered.
    #[cfg(feature = "etcd")]
    Later(Pin<Box<dyn Future<Output = Result<usize, Unreachable>> + Send>>),
}

/// Forwards a call to the store.
macro_rules! store {
    ($self:expr, $store:ident => $call:expr) => {
        match $self {
            Self::Memory($store) => $call,
            #[cfg(feature = "etcd")]
            Self::Etcd($store) => $call,
        }
    };
}

impl Store {
    pub(super) fn new(settings: &Settings) -> Self {
        match &settings.store {
            #[cfg(feature = "etcd")]
            StoreChoice::Etcd(etcd) => {
                Self::Etcd(Box::new(leases_etcd::Engine::new(etcd.clone(), settings.caps)))
            }
            #[cfg(feature = "etcd")]
            StoreChoice::Leader(_) => Self::memory(settings),
            StoreChoice::Memory => Self::memory(settings),
        }
    }

    fn memory(settings: &Settings) -> Self {
        Self::Memory(Engine::new(settings.caps, ServerMint::new(0), RandomState::new()))
    }

    /// The engine in memory, whose holds can be recorded.
    pub(super) const fn engine(&mut self) -> Option<&mut Engine> {
        match self {
            Self::Memory(engine) => Some(engine),
            #[cfg(feature = "etcd")]
            Self::Etcd(_) => None,
        }
    }

    /// Called once, on the runtime, before the first connection.
    pub(super) fn start(&mut self, inlet: Inlet) {
        match self {
            Self::Memory(_) => drop(inlet),
            #[cfg(feature = "etcd")]
            Self::Etcd(store) => store.start(inlet),
        }
    }

    pub(super) fn connect(&mut self, serial: u64) -> ConnId {
        store!(self, store => store.connect(serial))
    }

    /// Sets the label of a connection from now on.
    pub(super) fn introduce(&mut self, conn: ConnId, label: &Arc<Label>) {
        store!(self, store => store.introduce(conn, label));
    }

    /// From now on, [`Effect::Moved`] reports each change of this key's holders, or no longer does.
    pub(super) fn watch(&mut self, key: Key<'_>, is_watched: bool) {
        store!(self, store => store.watch(key, is_watched));
    }

    /// The holders of a watched key, `Some(None)` if it is free. `None` if the store has to ask for them first: an
    /// [`Effect::Moved`] follows.
    #[expect(clippy::option_option, reason = "what is not known, and that there is none")]
    pub(super) fn sight(&self, now: Moment, key: Key<'_>) -> Option<Option<Sight>> {
        match self {
            Self::Memory(engine) => Some(engine.sight(now, key)),
            #[cfg(feature = "etcd")]
            Self::Etcd(store) => store.sight(now, key),
        }
    }

    pub(super) fn ask(&mut self, now: Moment, conn: ConnId, request: Request<'_>) -> Verdict {
        store!(self, store => store.ask(now, conn, request))
    }

    pub(super) fn cancel(&mut self, now: Moment, conn: ConnId) {
        store!(self, store => store.cancel(now, conn));
    }

    pub(super) fn take_back(&mut self, now: Moment, conn: ConnId, token: Token) {
        store!(self, store => store.take_back(now, conn, token));
    }

    pub(super) fn disconnect(&mut self, now: Moment, conn: ConnId, auto: AutoRelease) -> Progress {
        match self {
            Self::Memory(engine) => {
                engine.disconnect(now, conn, auto);
                Progress::Done
            }
            #[cfg(feature = "etcd")]
            Self::Etcd(store) => store.disconnect(now, conn, auto),
        }
    }

    pub(super) fn advance(&mut self, now: Moment) {
        store!(self, store => store.advance(now));
    }

    pub(super) fn next_deadline(&self) -> Moment {
        store!(self, store => store.next_deadline())
    }

    pub(super) fn take_effect(&mut self) -> Option<Effect> {
        store!(self, store => store.take_effect())
    }

    pub(super) fn drain(&mut self, now: Moment) {
        store!(self, store => store.drain(now));
    }

    /// Takes away all holds of a key.
    pub(super) fn force_release(&mut self, now: Moment, key: Key<'_>) -> Forced {
        match self {
            Self::Memory(engine) => Forced::Done(engine.force_release(now, key)),
            #[cfg(feature = "etcd")]
            Self::Etcd(store) => Forced::Later(store.force_release(key)),
        }
    }

    pub(super) fn is_available(&self) -> bool {
        match self {
            Self::Memory(_) => true,
            #[cfg(feature = "etcd")]
            Self::Etcd(store) => store.is_available(),
        }
    }

    pub(super) fn etcd_numbers(&self) -> Option<EtcdNumbers> {
        match self {
            Self::Memory(_) => None,
            #[cfg(feature = "etcd")]
            Self::Etcd(store) => Some(store.numbers()),
        }
    }

    pub(super) fn counters(&self) -> &Counters {
        store!(self, store => store.counters())
    }

    pub(super) fn census(&self) -> &Census {
        store!(self, store => store.census())
    }

    pub(super) fn look_over(
        &self,
        now: Moment,
        cursor: &mut Cursor,
        budget: u32,
        note: impl FnMut(&KeyLine<'_>) -> ControlFlow<()>,
    ) -> Progress {
        store!(self, store => store.look_over(now, cursor, budget, note))
    }

    pub(super) fn view(&self, now: Moment, key: Key<'_>, most: usize) -> Option<KeyView> {
        store!(self, store => store.view(now, key, most))
    }
}
