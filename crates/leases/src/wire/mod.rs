//! The protocol's text, both ways. For servers: bytes → three lines ([`scan`]) → [`Command`], answer → bytes. For
//! clients: [`Ask`] → bytes, line → words of an answer. Pure. No state is kept between calls.
//!
//! This file reads commands. The order of checks is the reference's: if there are several faults, it decides which one
//! operators read in the log.

mod client;
mod reply;

use crate::{Claim, Key, Keys, Limit, MAX_SECONDS, Request, Seconds, Token, Ttl, read_hex};
pub use client::{
    Ask, Granted, Holder, Kind, MAX_NAME_BYTES, is_ok, read_body, read_grace, read_grants,
    read_hello, read_lost, read_place, read_renewal, read_sight,
};
pub use reply::{
    Decimal, MOST_KEYS, StatsCursor, push_answer, push_grace, push_json_string, push_lost,
    push_sight, push_stats, refusal_status, status, tag_of,
};
use std::borrow::Cow;

/// Longest line, without its end.
pub const MAX_LINE_BYTES: usize = 256;

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
    let mut lines: [&[u8]; 3] = [&[]; 3];
    let mut rest = bytes;
    for place in 0..3u8 {
        let end = if rest.is_empty() { None } else { memchr::memchr(b'\n', rest) };
        let (line, after) = rest.split_at_checked(end.unwrap_or(rest.len())).unwrap_or_default();
        if line.len() > MAX_LINE_BYTES && is_too_long(line, place, lines[0], caps) {
            return Scan::TooLong { at: bytes.len() - rest.len() };
        }
        let [b'\n', after @ ..] = after else { return Scan::Partial { lines: place } };
        rest = after;
        if let Some(slot) = lines.get_mut(usize::from(place)) {
            *slot = without_carriage_returns(line);
        }
    }
    Scan::Frame { lines, used: bytes.len() - rest.len() }
}

/// Whether a line, with one carriage return at most, is longer than the line at this place may be.
fn is_too_long(line: &[u8], place: u8, command: &[u8], caps: LineCaps) -> bool {
    let most = match caps {
        LineCaps::BeforeAuth(most) if place == 2 && command == b"auth" => {
            most.clamp(MAX_LINE_BYTES, MAX_AUTH_LINE_BYTES)
        }
        LineCaps::BeforeAuth(_) | LineCaps::Usual => MAX_LINE_BYTES,
    };
    line.strip_suffix(b"\r").unwrap_or(line).len() > most
}

fn without_carriage_returns(mut line: &[u8]) -> &[u8] {
    while let [kept @ .., b'\r'] = line {
        line = kept;
    }
    line
}

/// A well-formed command: what a frame asks for.
///
/// ```
/// use leases::wire::{Command, Fault, parse};
///
/// assert_eq!(parse([b"auth", b"_", b"secret"]), Ok(Command::Auth(b"secret")));
/// assert_eq!(parse([b"open", b"_", b""]), Err(Fault::UnknownCommand));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a server answers each")]
pub enum Command<'a> {
    /// `auth`: the token, blanks around it cut.
    Auth(&'a [u8]),
    /// `ping`.
    Ping,
    /// `ping` with `hello` as its key line: what can this server do beyond the reference?
    Hello {
        /// The client understands the line `lost`.
        hears_lost: bool,
        /// The client leaves the queue by closing its side of the connection.
        leaves: bool,
        /// The client wants to know which slot of a semaphore it gets.
        asks_slots: bool,
    },
    /// `stats`; with `long` as its key line, it also shows the names that holders give themselves.
    Stats {
        /// With names.
        has_names: bool,
    },
    /// `stats` with `key` as its key line: the holders of one key, and the clients that wait for it.
    KeyStats(Key<'a>),
    /// `name`: the name of the client, for people.
    Name(&'a [u8]),
    /// `value`: a text for programs that watch the holds of this client.
    Value(&'a [u8]),
    /// `watch`: the holder of a key, as soon as the state is no longer the one that the client saw last.
    Watch(Watch<'a>),
    /// `grace`: how long the holds of a connection stay after it has closed.
    Grace,
    /// A request about keys.
    Lock(Request<'a>),
}

/// The arguments of `watch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Watch<'a> {
    /// The key.
    pub key: Key<'a>,
    /// The longest wait for a change.
    pub timeout: Seconds,
    /// The tag of the state that the client saw last; `None` if it has seen none.
    pub last: Option<u64>,
}

/// What is wrong with a frame or its connection, with the protocol's number for it. The wire says `error`; the number is
/// for the log.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "Fault::words says what each is")]
#[non_exhaustive]
pub enum Fault {
    UnknownCommand = 3,
    BadInteger = 4,
    BadKey = 5,
    NegativeTimeout = 6,
    EmptyToken = 7,
    ArgumentCount = 8,
    BadLease = 9,
    ReadTimeout = 10,
    Disconnected = 11,
    LineTooLong = 12,
    BadLimit = 13,
}

impl Fault {
    /// The protocol's number for it, 3 to 13.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// A few words for the log.
    pub const fn words(self) -> &'static str {
        match self {
            Self::UnknownCommand => "invalid command",
            Self::BadInteger => "invalid integer",
            Self::BadKey => "empty key or blank in key",
            Self::NegativeTimeout => "timeout must be >= 0",
            Self::EmptyToken => "empty token",
            Self::ArgumentCount => "wrong argument count",
            Self::BadLease => "lease ttl must be > 0",
            Self::ReadTimeout => "read timeout",
            Self::Disconnected => "client disconnected",
            Self::LineTooLong => "line too long",
            Self::BadLimit => "limit must be > 0",
        }
    }
}

/// Reads a frame's lines.
///
/// # Errors
/// The first fault in the order command, key, argument.
pub fn parse<'a>(lines: [&'a [u8]; 3]) -> Result<Command<'a>, Fault> {
    let [command, name, arg] = lines;
    let key = || Key::new(name).ok_or(Fault::BadKey);
    if let b"r" | b"sr" = command {
        return Ok(Command::Lock(release(key()?, arg)?));
    }
    // Where text is not UTF-8, it is neither white space nor a number, nor a token of this server.
    let text =
        std::str::from_utf8(arg).map_or_else(|_| String::from_utf8_lossy(arg), Cow::Borrowed);
    let text = &*text;
    let request = match command {
        b"l" => acquire(key()?, Claim::LOCK, text)?,
        b"rl" => acquire(key()?, Claim::Shared, text)?,
        b"n" | b"sn" => renew(key()?, text)?,
        b"e" => enqueue(key()?, Claim::LOCK, text)?,
        b"re" => enqueue(key()?, Claim::Shared, text)?,
        b"w" | b"sw" => wait(key()?, text)?,
        b"sl" => acquire_slot(key()?, text)?,
        b"se" => enqueue_slot(key()?, text)?,
        b"al" => acquire_all(name, text)?,
        b"ping" if name == b"hello" => {
            let says = |wanted| text.split_whitespace().any(|word| word == wanted);
            return Ok(Command::Hello {
                hears_lost: says("lost"),
                leaves: says("leaves"),
                asks_slots: says("slots"),
            });
        }
        b"ping" => return Ok(Command::Ping),
        b"stats" if name == b"key" => {
            return Key::new(arg).map(Command::KeyStats).ok_or(Fault::BadKey);
        }
        b"stats" => return Ok(Command::Stats { has_names: name == b"long" }),
        b"name" => return Ok(Command::Name(trim(arg))),
        b"value" => return Ok(Command::Value(trim(arg))),
        b"watch" => return watch(key()?, text).map(Command::Watch),
        b"grace" => return Ok(Command::Grace),
        b"auth" => return Ok(Command::Auth(trim(arg))),
        _ => return Err(Fault::UnknownCommand),
    };
    Ok(Command::Lock(request))
}

fn acquire<'a>(key: Key<'a>, claim: Claim, arg: &str) -> Result<Request<'a>, Fault> {
    let [timeout, lease] = fields(arg, 1)?;
    let timeout = seconds(timeout)?;
    Ok(Request::Acquire { key, claim, timeout, ttl: optional_lease(lease)? })
}

fn acquire_all<'a>(keys: &'a [u8], arg: &str) -> Result<Request<'a>, Fault> {
    let keys = Keys::new(keys).ok_or(Fault::BadKey)?;
    let [lease] = fields(arg, 0)?;
    Ok(Request::AcquireAll { keys, ttl: optional_lease(lease)? })
}

fn acquire_slot<'a>(key: Key<'a>, arg: &str) -> Result<Request<'a>, Fault> {
    let [timeout, slots, lease] = fields(arg, 2)?;
    let timeout = seconds(timeout)?;
    let claim = Claim::Slot(limit(slots)?);
    Ok(Request::Acquire { key, claim, timeout, ttl: optional_lease(lease)? })
}

fn enqueue<'a>(key: Key<'a>, claim: Claim, arg: &str) -> Result<Request<'a>, Fault> {
    let [lease] = fields(arg, 0)?;
    Ok(Request::Enqueue { key, claim, ttl: optional_lease(lease)? })
}

fn enqueue_slot<'a>(key: Key<'a>, arg: &str) -> Result<Request<'a>, Fault> {
    let [slots, lease] = fields(arg, 1)?;
    let claim = Claim::Slot(limit(slots)?);
    Ok(Request::Enqueue { key, claim, ttl: optional_lease(lease)? })
}

fn wait<'a>(key: Key<'a>, arg: &str) -> Result<Request<'a>, Fault> {
    let timeout = Some(arg.trim()).filter(|timeout| !timeout.is_empty());
    let timeout = timeout.ok_or(Fault::ArgumentCount)?;
    Ok(Request::Wait { key, timeout: seconds(Some(timeout))? })
}

fn release<'a>(key: Key<'a>, arg: &[u8]) -> Result<Request<'a>, Fault> {
    match trim(arg) {
        [] => Err(Fault::EmptyToken),
        token => Ok(Request::Release { key, token: Token::parse(token) }),
    }
}

fn renew<'a>(key: Key<'a>, arg: &str) -> Result<Request<'a>, Fault> {
    let [token, lease] = fields(arg, 1)?;
    let token = token.and_then(|token| Token::parse(token.as_bytes()));
    Ok(Request::Renew { key, token, ttl: optional_lease(lease)? })
}

fn watch<'a>(key: Key<'a>, arg: &str) -> Result<Watch<'a>, Fault> {
    let [timeout, last] = fields(arg, 1)?;
    let timeout = seconds(timeout)?;
    let last = last.map(|tag| read_hex(tag.as_bytes()).ok_or(Fault::BadInteger)).transpose()?;
    Ok(Watch { key, timeout, last })
}

/// The words of an argument, at least `least` of them. As in the reference, Unicode white space is between them.
fn fields<const MOST: usize>(arg: &str, least: usize) -> Result<[Option<&str>; MOST], Fault> {
    let mut words = arg.split_whitespace();
    let fields = [(); MOST].map(|()| words.next());
    let has_all = fields.iter().flatten().count() >= least;
    if has_all && words.next().is_none() { Ok(fields) } else { Err(Fault::ArgumentCount) }
}

fn seconds(text: Option<&str>) -> Result<Seconds, Fault> {
    let value = u64::try_from(integer(text)?).map_err(|_| Fault::NegativeTimeout)?;
    Seconds::new(value).ok_or(Fault::BadInteger)
}

fn optional_lease(text: Option<&str>) -> Result<Option<Ttl>, Fault> {
    if text.is_none() {
        return Ok(None);
    }
    let value = u64::try_from(integer(text)?).map_err(|_| Fault::BadLease)?;
    if value > MAX_SECONDS {
        return Err(Fault::BadInteger);
    }
    Ttl::new(value).map(Some).ok_or(Fault::BadLease)
}

fn limit(text: Option<&str>) -> Result<Limit, Fault> {
    let value = u64::try_from(integer(text)?).map_err(|_| Fault::BadLimit)?;
    Limit::new(value).ok_or(Fault::BadLimit)
}

/// Reads a signed 64-bit decimal number with at most one sign, as the reference does.
fn integer(text: Option<&str>) -> Result<i64, Fault> {
    text.and_then(|text| text.parse().ok()).ok_or(Fault::BadInteger)
}

/// Without the Unicode white space around it. Bytes that are not UTF-8 are not white space.
fn trim(text: &[u8]) -> &[u8] {
    if let [first, .., last] = text {
        if first.is_ascii_graphic() && last.is_ascii_graphic() {
            return text;
        }
    }
    let start = text.utf8_chunks().next().map_or("", |first| first.valid());
    let text = text.get(start.len() - start.trim_start().len()..).unwrap_or_default();
    match text.utf8_chunks().last() {
        Some(last) if last.invalid().is_empty() => {
            let blanks = last.valid().len() - last.valid().trim_end().len();
            text.get(..text.len() - blanks).unwrap_or_default()
        }
        Some(_) | None => text,
    }
}

#[cfg(test)]
mod tests;
