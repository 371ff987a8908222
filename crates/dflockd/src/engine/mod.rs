//! The lock manager as one state machine without input or output: (now, request) → answer, effects.
//!
//! What to tell it, and in which order:
//! 1. [`Engine::connect`] for a connection, before its first request.
//! 2. [`Engine::ask`] per request. After [`Verdict::Later`] nothing more is asked for that
//!    connection until its answer came as an [`Effect::Answer`], or [`Engine::cancel`] took it back.
//! 3. [`Engine::advance`] when [`Engine::next_deadline`] has come.
//! 4. [`Engine::disconnect`] until it is done; the id is free then.
//!
//! After each of these, take the effects ([`Engine::take_effect`]).
//!
//! It never reads a clock, a socket or a random source: `now` and the [`Mint`] are given.
//! The same calls give the same answers. Time must not run backwards between calls.

#[expect(clippy::indexing_slicing, reason = "slab ids are made by the engine, not by clients")]
mod acquiring;
mod counters;
#[expect(clippy::indexing_slicing, reason = "slab ids are made by the engine, not by clients")]
mod keys;
pub(crate) mod ownership;
#[expect(clippy::indexing_slicing, reason = "slab ids are made by the engine, not by clients")]
mod owning;
#[expect(clippy::indexing_slicing, reason = "slab ids are made by the engine, not by clients")]
mod recorded;
mod request;
mod roster;
#[cfg(test)]
#[path = "sample_tests.rs"]
pub(crate) mod sample;
mod slab;
#[expect(clippy::indexing_slicing, reason = "slab ids are made by the engine, not by clients")]
mod state;
mod terms;
mod tidying;
#[expect(clippy::indexing_slicing, reason = "slab ids are made by the engine, not by clients")]
mod waiting;
#[expect(clippy::indexing_slicing, reason = "slab ids are made by the engine, not by clients")]
pub(crate) mod wheel;

pub use counters::{Census, Counters, Histogram, WAIT_BOUNDS_MICROS};
pub use recorded::{Change, Hold, Space};
pub use request::{
    Answer, AutoRelease, ConnId, Effect, Grant, Progress, Refusal, Request, Verdict,
};
pub use roster::{Cursor, KeyLine, KeyView, Party};
#[cfg(feature = "etcd")]
pub(crate) use slab::{is_roomy, is_worth_telling};
pub use state::{Caps, Engine};
pub use terms::{
    Key, Limit, MAX_KEY_BYTES, MAX_SECONDS, Mint, Moment, Seconds, TOKEN_DIGITS, Token, Ttl,
};
