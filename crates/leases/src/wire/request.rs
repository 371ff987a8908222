//! Three lines → [`Request`], or the [`Fault`] in them. The order of checks is the reference's: if there are
//! several faults, it decides which one operators read in the log.
//!
//! Pure.

use crate::{Claim, Key, Keys, Limit, MAX_SECONDS, Seconds, Token, Ttl, read_hex};

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

/// What is wrong with a frame or its connection, with the protocol's number for it. The wire says `error`; the number is
/// for the log.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "Fault::words says what each is")]
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
pub fn parse<'a>(lines: [&'a [u8]; 3]) -> Result<Request<'a>, Fault> {
    let [command, name, arg] = lines;
    let key = || Key::new(name).ok_or(Fault::BadKey);
    let request = match command {
        b"l" => acquire(key()?, Claim::LOCK, arg)?,
        b"rl" => acquire(key()?, Claim::Shared, arg)?,
        b"r" | b"sr" => release(key()?, arg)?,
        b"n" | b"sn" => renew(key()?, arg)?,
        b"e" => enqueue(key()?, Claim::LOCK, arg)?,
        b"re" => enqueue(key()?, Claim::Shared, arg)?,
        b"w" | b"sw" => wait(key()?, arg)?,
        b"sl" => acquire_slot(key()?, arg)?,
        b"se" => enqueue_slot(key()?, arg)?,
        b"al" => acquire_all(name, arg)?,
        b"ping" if name == b"hello" => {
            let says = |wanted: &[u8]| Fields(arg).any(|word| word == wanted);
            return Ok(Request::Hello { hears_lost: says(b"lost"), leaves: says(b"leaves") });
        }
        b"ping" => return Ok(Request::Ping),
        b"stats" if name == b"key" => {
            return Key::new(arg).map(Request::KeyStats).ok_or(Fault::BadKey);
        }
        b"stats" => return Ok(Request::Stats { has_names: name == b"long" }),
        b"name" => return Ok(Request::Name(trim(arg))),
        b"value" => return Ok(Request::Value(trim(arg))),
        b"watch" => return watch(key()?, arg).map(Request::Watch),
        b"grace" => return Ok(Request::Grace),
        b"auth" => return Ok(Request::Auth(trim(arg))),
        _ => return Err(Fault::UnknownCommand),
    };
    Ok(Request::Lock(request))
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

fn watch<'a>(key: Key<'a>, arg: &[u8]) -> Result<Watch<'a>, Fault> {
    let (timeout, last) = one_or_two(arg)?;
    // A tag in another form was not made by this server: the client has seen no state that is known here.
    let last = last.and_then(read_hex);
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
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Fault::BadInteger)
}

/// Splits at Unicode white space, like the reference. Bytes that are not UTF-8 are not white space.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = trim_start(self.0);
        let mut end = 0;
        for chunk in rest.utf8_chunks() {
            let space = chunk.valid().find(char::is_whitespace);
            end += space.unwrap_or(chunk.valid().len() + chunk.invalid().len());
            if space.is_some() {
                break;
            }
        }
        let (field, tail) = rest.split_at_checked(end)?;
        self.0 = tail;
        (!field.is_empty()).then_some(field)
    }
}

fn trim(text: &[u8]) -> &[u8] {
    let text = trim_start(text);
    match text.utf8_chunks().last() {
        Some(last) if last.invalid().is_empty() => {
            let blanks = last.valid().len() - last.valid().trim_end().len();
            text.get(..text.len() - blanks).unwrap_or_default()
        }
        Some(_) | None => text,
    }
}

fn trim_start(text: &[u8]) -> &[u8] {
    let start = text.utf8_chunks().next().map_or("", |first| first.valid());
    text.get(start.len() - start.trim_start().len()..).unwrap_or_default()
}
