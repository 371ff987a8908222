//! The protocol's text, both ways: bytes → three lines → [`Request`], answer → bytes. Pure. No state is kept between
//! calls.

mod frame;
mod json;
mod reply;
mod request;
mod stats;
mod watch;

pub use frame::{Caps, Scan, scan};
pub use json::{Decimal, push_json_string};
pub use reply::{MAX_REPLY_BYTES, push_answer, push_grace, push_lost, refusal_status, status};
pub use request::{Detail, Fault, Request, Watch, parse};
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
