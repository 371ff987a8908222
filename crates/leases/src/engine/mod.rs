//! The lock manager: its tables, and the effect of each request on them. [The crate](crate) says which calls to make,
//! and in which order.

#[expect(clippy::indexing_slicing, reason = "slab ids are made by the engine, not by clients")]
mod acquiring;
mod counters;
#[expect(clippy::indexing_slicing, reason = "slab ids are made by the engine, not by clients")]
mod keys;
pub mod ownership;
#[expect(clippy::indexing_slicing, reason = "slab ids are made by the engine, not by clients")]
mod owning;
#[expect(clippy::indexing_slicing, reason = "slab ids are made by the engine, not by clients")]
mod recorded;
mod request;
mod roster;
mod sharing;
#[expect(clippy::indexing_slicing, reason = "slab ids are made by the engine, not by clients")]
mod slab;
#[expect(clippy::indexing_slicing, reason = "slab ids are made by the engine, not by clients")]
mod state;
mod terms;
mod timers;
#[expect(clippy::indexing_slicing, reason = "slab ids are made by the engine, not by clients")]
mod waiting;
mod watching;

pub use counters::{Census, Counters, Histogram, WAIT_BOUNDS_MICROS};
pub use recorded::{Change, Hold, LeaseStart, Space};
pub use request::{
    Answer, AutoRelease, ConnId, Effect, Grant, Progress, Refusal, Request, Verdict,
};
pub use roster::{Cursor, KeyLine, KeyView, Party};
pub use sharing::{Ahead, Claim};
pub use state::{Caps, Engine};
pub use terms::{
    Key, Keys, Limit, MAX_KEY_BYTES, MAX_KEYS, MAX_SECONDS, Mint, Moment, Seconds, TOKEN_DIGITS,
    Token, Ttl,
};
pub use timers::Timers;
pub use watching::{Label, Sight};
