//! The protocol's text, both ways. For servers: bytes → three lines → [`Request`], answer → bytes. For clients: [`Ask`] →
//! bytes, line → words of an answer. Pure. No state is kept between calls.

mod answer;
mod ask;
mod frame;
mod json;
mod reply;
mod request;
mod stats;
mod watch;

pub use answer::{
    Granted, Holder, is_ok, read_body, read_grace, read_grants, read_hello, read_lost, read_place,
    read_renewal, read_sight,
};
pub use ask::{Ask, Kind};
pub use frame::{LineCaps, Scan, scan};
pub use json::{Decimal, push_json_string};
pub use reply::{MAX_REPLY_BYTES, push_answer, push_grace, push_lost, refusal_status, status};
pub use request::{Fault, Request, Watch, parse};
pub use stats::{MOST_KEYS, StatsCursor, push_stats};
pub use watch::{push_sight, tag_of};

/// Longest line, without its end.
pub const MAX_LINE_BYTES: usize = 256;

/// Longest name of a client; the rest is cut.
pub const MAX_NAME_BYTES: usize = 200;

/// Longest value of a holder: as much as a line has room for.
pub const MAX_VALUE_BYTES: usize = MAX_LINE_BYTES;

/// Longest token line of `auth`, before a connection has authenticated.
pub const MAX_AUTH_LINE_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests;
