//! The protocol's text, both ways: bytes → three lines → [`Request`], answer → bytes.
//! Pure: no socket, no clock, no lock. Nothing is kept between calls.

mod frame;
mod reply;
mod request;

pub use frame::{Caps, Scan, scan};
pub use reply::{MAX_REPLY_BYTES, push_answer, refusal_status, status};
pub use request::{Fault, Request, parse};

/// Longest line, without its end.
pub const MAX_LINE_BYTES: usize = 256;

/// Longest token line of `auth`, before a connection has authenticated.
pub const MAX_AUTH_LINE_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests;
