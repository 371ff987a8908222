//! The protocol's text, both ways. For servers: bytes → three lines ([`scan`]) → [`Request`], answer → bytes. For
//! clients: [`Ask`] → bytes, line → words of an answer. Pure. No state is kept between calls.

mod client;
mod reply;
mod request;
mod stats;

pub use client::{
    Ask, Granted, Holder, Kind, is_ok, read_body, read_grace, read_grants, read_hello, read_lost,
    read_place, read_renewal, read_sight,
};
pub use reply::{
    MAX_REPLY_BYTES, push_answer, push_grace, push_lost, push_sight, refusal_status, status, tag_of,
};
pub use request::{Fault, Request, Watch, parse};
pub use stats::{Decimal, MOST_KEYS, StatsCursor, push_json_string, push_stats};

/// Longest line, without its end.
pub const MAX_LINE_BYTES: usize = 256;

/// Longest name of a client; the rest is cut.
pub const MAX_NAME_BYTES: usize = 200;

/// Longest value of a holder: as much as a line has room for.
pub const MAX_VALUE_BYTES: usize = MAX_LINE_BYTES;

/// Longest token line of `auth`, before a connection has authenticated.
pub const MAX_AUTH_LINE_BYTES: usize = 64 * 1024;

/// The longest lines that a frame may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LineCaps {
    /// [`MAX_LINE_BYTES`] for all.
    Usual,
    /// As usual, but the token line of an `auth` frame may have this many bytes, at most [`MAX_AUTH_LINE_BYTES`].
    BeforeAuth(usize),
}

/// What was found at the beginning of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a reader acts on each")]
pub enum Scan<'a> {
    /// A whole frame, its lines without their ends; `used` bytes belong to it.
    Frame {
        /// Command, key, argument.
        lines: [&'a [u8]; 3],
        /// Bytes of the frame.
        used: usize,
    },
    /// More bytes are needed.
    Partial {
        /// Lines that are whole already, 0 to 2.
        lines: u8,
    },
    /// The next line is too long, whether or not its end has come.
    TooLong {
        /// Where that line starts.
        at: usize,
    },
}

/// Examines the beginning of `bytes`. Length is judged line by line, so an endless command line is refused without
/// waiting for the other two.
pub fn scan(bytes: &[u8], caps: LineCaps) -> Scan<'_> {
    if bytes.is_empty() {
        return Scan::Partial { lines: 0 };
    }
    let mut lines: [&[u8]; 3] = [&[]; 3];
    let mut at = 0;
    for place in 0..3u8 {
        let rest = bytes.get(at..).unwrap_or_default();
        let cap = match (caps, place, lines) {
            (LineCaps::BeforeAuth(most), 2, [b"auth", _, _]) => {
                most.clamp(MAX_LINE_BYTES, MAX_AUTH_LINE_BYTES)
            }
            (LineCaps::BeforeAuth(_) | LineCaps::Usual, _, _) => MAX_LINE_BYTES,
        };
        // One more than the longest line with its carriage return.
        let window = rest.get(..cap + 2).unwrap_or(rest);
        let end = memchr::memchr(b'\n', window);
        let raw = window.get(..end.unwrap_or(window.len())).unwrap_or_default();
        let line = raw.strip_suffix(b"\r").unwrap_or(raw);
        if line.len() > cap {
            return Scan::TooLong { at };
        }
        let Some(end) = end else { return Scan::Partial { lines: place } };
        if let Some(slot) = lines.get_mut(usize::from(place)) {
            *slot = trim_carriage_returns(line);
        }
        at += end + 1;
    }
    Scan::Frame { lines, used: at }
}

fn trim_carriage_returns(line: &[u8]) -> &[u8] {
    let kept = line.iter().rposition(|&b| b != b'\r').map_or(0, |last| last + 1);
    line.get(..kept).unwrap_or_default()
}

#[cfg(test)]
mod tests;
