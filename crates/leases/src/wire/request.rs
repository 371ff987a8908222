//! Three lines → [`Request`], or the [`Fault`] in them. The order of checks is the reference's: if there are
//! several faults, it decides which one operators read in the log.
//!
//! Pure.

use super::watch::read_tag;
use crate::{Claim, Key, Keys, Limit, MAX_SECONDS, Seconds, Token, Ttl};

/// A well-formed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// `auth`: the token, blanks around it cut.
    Auth(&'a [u8]),
    /// `ping`.
    Ping,
    /// `ping` with `hello` as its key line: what can this server do beyond the reference?
    Hello {
        /// The client understands the line `lost`.
        hears_lost: bool,
        /// The client leaves the line by closing its side of the connection.
        leaves: bool,
    },
    /// `stats`; with `long` as its key line, it also shows the names that holders give themselves.
    Stats(Detail),
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
    Lock(crate::Request<'a>),
}

/// The arguments of `watch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch<'a> {
    /// The key.
    pub key: Key<'a>,
    /// The longest wait for a change.
    pub timeout: Seconds,
    /// The tag of the state that the client saw last; `None` if it has seen none.
    pub last: Option<u64>,
}

/// How much `stats` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// What the reference tells.
    Usual,
    /// Names of holders, too.
    Long,
}

/// What is wrong with a frame or its connection. The wire says `error`; the code is for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Code 3.
    UnknownCommand,
    /// Code 4.
    BadInteger,
    /// Code 5.
    BadKey,
    /// Code 6.
    NegativeTimeout,
    /// Code 7.
    EmptyToken,
    /// Code 8.
    ArgumentCount,
    /// Code 9.
    BadLease,
    /// Code 10.
    ReadTimeout,
    /// Code 11.
    Disconnected,
    /// Code 12.
    LineTooLong,
    /// Code 13.
    BadLimit,
}

impl Fault {
    /// The protocol's number for it, 3 to 13.
    pub const fn code(self) -> u8 {
        match self {
            Self::UnknownCommand => 3,
            Self::BadInteger => 4,
            Self::BadKey => 5,
            Self::NegativeTimeout => 6,
            Self::EmptyToken => 7,
            Self::ArgumentCount => 8,
            Self::BadLease => 9,
            Self::ReadTimeout => 10,
            Self::Disconnected => 11,
            Self::LineTooLong => 12,
            Self::BadLimit => 13,
        }
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
pub fn parse<'a>(lines: [&'a [u8]; 3]) -> Result<Request<'a>, Fault> {
    let [command, key, arg] = lines;
    let shape = match command {
        b"l" => acquire_lock,
        b"rl" => acquire_shared,
        b"r" | b"sr" => release,
        b"n" | b"sn" => renew,
        b"e" => enqueue_lock,
        b"re" => enqueue_shared,
        b"w" | b"sw" => wait,
        b"sl" => acquire_slot,
        b"se" => enqueue_slot,
        b"ping" if key == b"hello" => {
            let says = |wanted: &[u8]| Fields(arg).any(|word| word == wanted);
            return Ok(Request::Hello { hears_lost: says(b"lost"), leaves: says(b"leaves") });
        }
        b"ping" => return Ok(Request::Ping),
        b"stats" if key == b"long" => return Ok(Request::Stats(Detail::Long)),
        b"stats" if key == b"key" => {
            return Key::new(arg).map(Request::KeyStats).ok_or(Fault::BadKey);
        }
        b"stats" => return Ok(Request::Stats(Detail::Usual)),
        b"name" => return Ok(Request::Name(trim(arg))),
        b"value" => return Ok(Request::Value(trim(arg))),
        b"watch" => return watch(key, arg).map(Request::Watch),
        b"al" => return acquire_all(key, arg).map(Request::Lock),
        b"grace" => return Ok(Request::Grace),
        b"auth" => return Ok(Request::Auth(trim(arg))),
        _ => return Err(Fault::UnknownCommand),
    };
    let key = Key::new(key).ok_or(Fault::BadKey)?;
    shape(key, arg).map(Request::Lock)
}

fn acquire_lock<'a>(key: Key<'a>, arg: &'a [u8]) -> Result<crate::Request<'a>, Fault> {
    acquire(key, Claim::LOCK, arg)
}

fn acquire_shared<'a>(key: Key<'a>, arg: &'a [u8]) -> Result<crate::Request<'a>, Fault> {
    acquire(key, Claim::Shared, arg)
}

fn acquire<'a>(key: Key<'a>, claim: Claim, arg: &'a [u8]) -> Result<crate::Request<'a>, Fault> {
    let (timeout, lease) = one_or_two(arg)?;
    let timeout = seconds(timeout)?;
    Ok(crate::Request::Acquire { key, claim, timeout, ttl: optional_lease(lease)? })
}

fn acquire_all<'a>(keys: &'a [u8], arg: &[u8]) -> Result<crate::Request<'a>, Fault> {
    let keys = Keys::new(keys).ok_or(Fault::BadKey)?;
    Ok(crate::Request::AcquireAll { keys, ttl: only_lease(arg)? })
}

fn acquire_slot<'a>(key: Key<'a>, arg: &'a [u8]) -> Result<crate::Request<'a>, Fault> {
    let mut fields = Fields(arg);
    let (Some(timeout), Some(slots), lease, None) =
        (fields.next(), fields.next(), fields.next(), fields.next())
    else {
        return Err(Fault::ArgumentCount);
    };
    let timeout = seconds(timeout)?;
    let claim = Claim::Slot(limit(slots)?);
    Ok(crate::Request::Acquire { key, claim, timeout, ttl: optional_lease(lease)? })
}

fn enqueue_lock<'a>(key: Key<'a>, arg: &'a [u8]) -> Result<crate::Request<'a>, Fault> {
    enqueue(key, Claim::LOCK, arg)
}

fn enqueue_shared<'a>(key: Key<'a>, arg: &'a [u8]) -> Result<crate::Request<'a>, Fault> {
    enqueue(key, Claim::Shared, arg)
}

fn enqueue<'a>(key: Key<'a>, claim: Claim, arg: &'a [u8]) -> Result<crate::Request<'a>, Fault> {
    Ok(crate::Request::Enqueue { key, claim, ttl: only_lease(arg)? })
}

fn enqueue_slot<'a>(key: Key<'a>, arg: &'a [u8]) -> Result<crate::Request<'a>, Fault> {
    let (slots, lease) = one_or_two(arg)?;
    let claim = Claim::Slot(limit(slots)?);
    Ok(crate::Request::Enqueue { key, claim, ttl: optional_lease(lease)? })
}

fn wait<'a>(key: Key<'a>, arg: &'a [u8]) -> Result<crate::Request<'a>, Fault> {
    let timeout = trim(arg);
    if timeout.is_empty() {
        return Err(Fault::ArgumentCount);
    }
    Ok(crate::Request::Wait { key, timeout: seconds(timeout)? })
}

fn release<'a>(key: Key<'a>, arg: &'a [u8]) -> Result<crate::Request<'a>, Fault> {
    let token = trim(arg);
    if token.is_empty() {
        return Err(Fault::EmptyToken);
    }
    Ok(crate::Request::Release { key, token: Token::parse(token) })
}

fn renew<'a>(key: Key<'a>, arg: &'a [u8]) -> Result<crate::Request<'a>, Fault> {
    let (token, lease) = one_or_two(arg)?;
    Ok(crate::Request::Renew { key, token: Token::parse(token), ttl: optional_lease(lease)? })
}

fn watch<'a>(key: &'a [u8], arg: &[u8]) -> Result<Watch<'a>, Fault> {
    let key = Key::new(key).ok_or(Fault::BadKey)?;
    let (timeout, last) = one_or_two(arg)?;
    // A tag in another form was not made by this server: the client has seen no state that is known here.
    let last = last.and_then(read_tag);
    Ok(Watch { key, timeout: seconds(timeout)?, last })
}

fn one_or_two(arg: &[u8]) -> Result<(&[u8], Option<&[u8]>), Fault> {
    let mut fields = Fields(arg);
    match (fields.next(), fields.next(), fields.next()) {
        (Some(first), second, None) => Ok((first, second)),
        (None, _, _) | (_, _, Some(_)) => Err(Fault::ArgumentCount),
    }
}

fn seconds(text: &[u8]) -> Result<Seconds, Fault> {
    let value = integer(text)?;
    let value = u64::try_from(value).map_err(|_| Fault::NegativeTimeout)?;
    Seconds::new(value).ok_or(Fault::BadInteger)
}

/// An argument that is a lease, or nothing.
fn only_lease(arg: &[u8]) -> Result<Option<Ttl>, Fault> {
    let mut fields = Fields(arg);
    let (lease, None) = (fields.next(), fields.next()) else {
        return Err(Fault::ArgumentCount);
    };
    optional_lease(lease)
}

fn optional_lease(text: Option<&[u8]>) -> Result<Option<Ttl>, Fault> {
    let Some(text) = text else { return Ok(None) };
    let value = u64::try_from(integer(text)?).map_err(|_| Fault::BadLease)?;
    if value > MAX_SECONDS {
        return Err(Fault::BadInteger);
    }
    Ttl::new(value).map(Some).ok_or(Fault::BadLease)
}

fn limit(text: &[u8]) -> Result<Limit, Fault> {
    let value = u64::try_from(integer(text)?).map_err(|_| Fault::BadLimit)?;
    Limit::new(value).ok_or(Fault::BadLimit)
}

/// Reads a signed 64-bit decimal number with at most one sign, as the reference does.
fn integer(text: &[u8]) -> Result<i64, Fault> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return Err(Fault::BadInteger);
    }
    let value = digits.iter().try_fold(0i64, |value, digit| {
        let digit = i64::from(char::from(*digit).to_digit(10).ok_or(Fault::BadInteger)?);
        let value = value.checked_mul(10).ok_or(Fault::BadInteger)?;
        let next = if negative { value.checked_sub(digit) } else { value.checked_add(digit) };
        next.ok_or(Fault::BadInteger)
    })?;
    Ok(value)
}

/// Splits at Unicode white space, like the reference. Bytes that are not UTF-8 are not white space.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = trim_start(self.0);
        let mut end = 0;
        while let Some(tail) = rest.get(end..).filter(|tail| !tail.is_empty()) {
            if leading_space(tail) > 0 {
                break;
            }
            end += 1;
        }
        let (field, tail) = rest.split_at_checked(end)?;
        self.0 = tail;
        (!field.is_empty()).then_some(field)
    }
}

fn trim(text: &[u8]) -> &[u8] {
    let mut rest = trim_start(text);
    while let Some(shorter) = without_trailing_space(rest) {
        rest = shorter;
    }
    rest
}

fn trim_start(text: &[u8]) -> &[u8] {
    let mut rest = text;
    loop {
        match leading_space(rest) {
            0 => return rest,
            length => rest = rest.get(length..).unwrap_or_default(),
        }
    }
}

fn without_trailing_space(text: &[u8]) -> Option<&[u8]> {
    (1..=3).find_map(|length| {
        let (head, tail) = text.split_at_checked(text.len().checked_sub(length)?)?;
        (leading_space(tail) == length).then_some(head)
    })
}

/// The length in bytes of the white-space character at the beginning of `text`; 0 if there is none.
fn leading_space(text: &[u8]) -> usize {
    match *text {
        [b' ' | b'\t' | b'\n' | b'\x0b' | b'\x0c' | b'\r', ..] => 1,
        [0xc2, 0x85 | 0xa0, ..] => 2,
        [0xe1, 0x9a, 0x80, ..]
        | [0xe2, 0x80, 0x80..=0x8a | 0xa8 | 0xa9 | 0xaf, ..]
        | [0xe2, 0x81, 0x9f, ..]
        | [0xe3, 0x80, 0x80, ..] => 3,
        _ => 0,
    }
}
