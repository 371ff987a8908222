//! The client's side of the text. Requests → bytes: the inverse of [`super::parse`]. Lines → the words of answers: the
//! inverse of what `reply.rs` writes; `None` means that the line is no such answer; it may be a refusal. Pure.

use std::time::Duration;

/// Longest name of a client; the rest is cut.
pub const MAX_NAME_BYTES: usize = 200;

/// Lock, shared lock, or semaphore with its limit. Semaphores of limit 1, locks and shared locks exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// One holder.
    Lock,
    /// A lock that several holders share. The Go server does not know this.
    Shared,
    /// This many holders, at least 1. The first request for a key fixes the number.
    Semaphore(u32),
}

impl Kind {
    fn command(self, [lock, shared, semaphore]: [&'static str; 3]) -> &'static str {
        match self {
            Self::Lock => lock,
            Self::Shared => shared,
            Self::Semaphore(_) => semaphore,
        }
    }

    fn limit(self) -> Option<u32> {
        match self {
            Self::Lock | Self::Shared => None,
            Self::Semaphore(limit) => Some(limit),
        }
    }
}

/// A request as a client means it; times in seconds. Keys, tokens and values are what the protocol allows.
///
/// ```
/// use leases::wire::{Ask, Kind};
///
/// let ask = Ask::Acquire { key: b"nightly", kind: Kind::Lock, timeout: 10, ttl: Some(30) };
/// assert_eq!(ask.to_bytes(), b"l\nnightly\n10 30\n");
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Ask<'a> {
    /// The secret of the server.
    Auth(&'a [u8]),
    /// The name of the client, of which [`MAX_NAME_BYTES`] are sent.
    Name(&'a str),
    /// What programs that watch a key read about its holder.
    Value(&'a str),
    /// Is the server there?
    Ping,
    /// What can it do beyond the reference? With the words that this client understands; other servers take it for
    /// `ping`.
    Hello,
    /// The figures; with names of holders, of which servers that do not know the request say nothing.
    Stats {
        /// With names.
        has_names: bool,
    },
    /// The holders of one key, and the clients that wait for it. Servers that do not know the request take it for
    /// `stats`.
    KeyStats(&'a [u8]),
    /// How long holds stay after their connection.
    Grace,
    /// `l`, `rl` or `sl`.
    Acquire {
        /// The key.
        key: &'a [u8],
        /// The kind of the key: lock, shared lock or semaphore.
        kind: Kind,
        /// The longest wait.
        timeout: u32,
        /// The length of the lease; the server's default without.
        ttl: Option<u32>,
    },
    /// `al`.
    AcquireAll {
        /// The keys.
        keys: &'a [&'a [u8]],
        /// The length of the leases.
        ttl: Option<u32>,
    },
    /// `e`, `re` or `se`.
    Enqueue {
        /// The key.
        key: &'a [u8],
        /// The kind of the key: lock, shared lock or semaphore.
        kind: Kind,
        /// The length of the lease.
        ttl: Option<u32>,
    },
    /// `w` or `sw`.
    Wait {
        /// The key.
        key: &'a [u8],
        /// The kind of the key: lock, shared lock or semaphore.
        kind: Kind,
        /// The longest wait.
        timeout: u32,
    },
    /// `r` or `sr`.
    Release {
        /// The key.
        key: &'a [u8],
        /// The kind of the key: lock, shared lock or semaphore.
        kind: Kind,
        /// The token of the hold.
        token: &'a str,
    },
    /// `n` or `sn`.
    Renew {
        /// The key.
        key: &'a [u8],
        /// The kind of the key: lock, shared lock or semaphore.
        kind: Kind,
        /// The token of the hold.
        token: &'a str,
        /// The length of the lease.
        ttl: Option<u32>,
    },
    /// `watch`.
    Watch {
        /// The key.
        key: &'a [u8],
        /// The longest wait for a change.
        timeout: u32,
        /// The tag of the state that was seen last.
        last: Option<&'a str>,
    },
}

impl Ask<'_> {
    /// The three lines.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        match *self {
            Self::Auth(token) => frame("auth", b"_", token),
            Self::Name(name) => frame("name", b"_", one_line(name).as_bytes()),
            Self::Value(value) => frame("value", b"_", value.as_bytes()),
            Self::Ping => frame("ping", b"_", b"_"),
            Self::Hello => frame("ping", b"hello", b"lost leaves slots"),
            Self::Stats { has_names: false } => frame("stats", b"_", b"_"),
            Self::Stats { has_names: true } => frame("stats", b"long", b"_"),
            Self::KeyStats(key) => frame("stats", b"key", key),
            Self::Grace => frame("grace", b"_", b"_"),
            Self::Acquire { key, kind, timeout, ttl } => {
                let numbers = numbers([Some(timeout), kind.limit(), ttl]);
                frame(kind.command(["l", "rl", "sl"]), key, numbers.as_bytes())
            }
            Self::AcquireAll { keys, ttl } => {
                frame("al", &keys.join(&b' '), numbers([None, None, ttl]).as_bytes())
            }
            Self::Enqueue { key, kind, ttl } => {
                let numbers = numbers([None, kind.limit(), ttl]);
                frame(kind.command(["e", "re", "se"]), key, numbers.as_bytes())
            }
            Self::Wait { key, kind, timeout } => {
                let timeout = timeout.to_string();
                frame(kind.command(["w", "w", "sw"]), key, timeout.as_bytes())
            }
            Self::Release { key, kind, token } => {
                frame(kind.command(["r", "r", "sr"]), key, token.as_bytes())
            }
            Self::Renew { key, kind, token, ttl } => {
                let ttl = ttl.map(|ttl| ttl.to_string());
                let words = words(token, ttl.as_deref());
                frame(kind.command(["n", "n", "sn"]), key, words.as_bytes())
            }
            Self::Watch { key, timeout, last } => {
                frame("watch", key, words(&timeout.to_string(), last).as_bytes())
            }
        }
    }
}

fn frame(command: &str, key: &[u8], argument: &[u8]) -> Vec<u8> {
    [command.as_bytes(), b"\n", key, b"\n", argument, b"\n"].concat()
}

/// As much of a name as the line of a request can hold.
fn one_line(name: &str) -> String {
    let shown = name.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut bytes = 0;
    shown
        .take_while(|c| {
            bytes += c.len_utf8();
            bytes <= MAX_NAME_BYTES
        })
        .collect()
}

fn numbers(numbers: [Option<u32>; 3]) -> String {
    let words: Vec<String> = numbers.iter().flatten().map(u32::to_string).collect();
    words.join(" ")
}

fn words(first: &str, second: Option<&str>) -> String {
    second.map_or_else(|| first.to_owned(), |second| format!("{first} {second}"))
}

/// A grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Granted<'a> {
    /// The token.
    pub token: &'a str,
    /// The seconds of its lease.
    pub ttl: u32,
    /// Its slot, of a semaphore, if the client has asked for slots and the server has them.
    pub slot: Option<u32>,
}

/// The beginning of a line that answers no request: an administrator has taken away the hold with the token that
/// follows. The next request for it says the same.
const LOST: &str = "lost ";

/// The answer to `l`, `rl`, `sl`, `w`, `sw` and, for this many keys, `al`; `Some(None)` if the time was over first, or
/// one of them is in use.
#[must_use]
pub fn read_grants(line: &str, many: usize) -> Option<Option<Vec<Granted<'_>>>> {
    if line == "timeout" {
        return Some(None);
    }
    let words: Vec<&str> = line.strip_prefix("ok ")?.split(' ').collect();
    // Several keys are locks, which have no slot.
    let size = if many == 1 { words.len() } else { 2 };
    let grants: Option<Vec<_>> = words.chunks(size).map(granted).collect();
    grants.filter(|grants| grants.len() == many).map(Some)
}

/// The answer to `e`, `re` or `se`; `Some(None)` for a place in the queue.
#[must_use]
pub fn read_place(line: &str) -> Option<Option<Granted<'_>>> {
    if line == "queued" {
        return Some(None);
    }
    let words: Vec<&str> = line.strip_prefix("acquired ")?.split(' ').collect();
    granted(&words).map(Some)
}

fn granted<'a>(words: &[&'a str]) -> Option<Granted<'a>> {
    let ([token, ttl] | [token, ttl, _]) = words else { return None };
    let slot = match words.get(2) {
        Some(slot) => Some(number(slot)?),
        None => None,
    };
    let ttl = number(ttl).filter(|ttl| *ttl > 0)?;
    (!token.is_empty()).then_some(Granted { token, ttl, slot })
}

/// The answer to `n` or `sn`: the length of the lease; `Some(None)` for a bare `ok`, which some servers send.
#[must_use]
pub fn read_renewal(line: &str) -> Option<Option<u32>> {
    if is_ok(line) { Some(None) } else { number(line.strip_prefix("ok ")?).map(Some) }
}

/// The answer to `grace`: the seconds; `Some(None)`: until the end of the lease.
#[must_use]
pub fn read_grace(line: &str) -> Option<Option<u32>> {
    match line.strip_prefix("ok ")? {
        "lease" => Some(None),
        count => number(count).map(Some),
    }
}

/// The words with which a server says what it can do: none for the reference, and for servers that are older than
/// `ping`.
pub fn read_hello(line: &str) -> Option<impl Iterator<Item = &str>> {
    let mut words = line.split(' ');
    match words.next() {
        Some("ok") => Some(words),
        Some("error") if line == "error" => Some(words),
        _ => None,
    }
}

/// The JSON text that `stats` gives.
#[must_use]
pub fn read_body(line: &str) -> Option<&str> {
    line.strip_prefix("ok ")
}

/// The answer to `r`, `sr`, `ping`, `auth`, `name` and `value`.
#[must_use]
pub fn is_ok(line: &str) -> bool {
    line == "ok"
}

/// The token of a hold that was taken away.
#[must_use]
pub fn read_lost(line: &str) -> Option<&str> {
    line.strip_prefix(LOST)
}

/// A whole number, as servers write it.
fn number(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// The holder of a key, as `watch` shows it. Of several (readers, or a semaphore) the one that got it last.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a client shows every field, and its tests make one")]
pub struct Holder {
    /// The fence of its grant.
    pub fence: u64,
    /// How long it had held the key when the server answered, as far as the server knew.
    pub age: Duration,
    /// How many hold the key: at least one.
    pub holders: u32,
    /// What it calls itself, for people: the `name` in the settings of its client.
    pub name: Option<String>,
    /// What it shows to programs, such as its address: the `value` there.
    pub value: Option<String>,
}

/// The answer to `watch`: the tag of the state, and the holder.
#[must_use]
pub fn read_sight(line: &str) -> Option<(&str, Option<Holder>)> {
    let words: Vec<&str> = line.split(' ').collect();
    match *words {
        ["free", tag] => Some((tag, None)),
        ["held", tag, fence, age_ms, holders, name, value] => {
            let (fence, age) = (fence.parse().ok()?, Duration::from_millis(age_ms.parse().ok()?));
            let (holders, name, value) = (holders.parse().ok()?, word(name)?, word(value)?);
            Some((tag, Some(Holder { fence, age, holders, name, value })))
        }
        _ => None,
    }
}

/// One word of an answer as text; `-` is none.
fn word(word: &str) -> Option<Option<String>> {
    if word == "-" {
        return Some(None);
    }
    let mut bytes = Vec::new();
    let mut rest = word.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    Some(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::{Ask, Kind, *};

    #[rstest]
    #[case(Ask::Ping, "ping\n_\n_\n")]
    #[case(Ask::Hello, "ping\nhello\nlost leaves slots\n")]
    #[case(Ask::Stats { has_names: false }, "stats\n_\n_\n")]
    #[case(Ask::Stats { has_names: true }, "stats\nlong\n_\n")]
    #[case(Ask::KeyStats(b"k"), "stats\nkey\nk\n")]
    #[case(Ask::Grace, "grace\n_\n_\n")]
    #[case(Ask::Name("me\n\u{1b}"), "name\n_\nme  \n")]
    #[case(Ask::Auth(b"s3cret"), "auth\n_\ns3cret\n")]
    fn requests_without_a_key(#[case] ask: Ask<'_>, #[case] bytes: &str) {
        assert_eq!(ask.to_bytes(), bytes.as_bytes());
    }

    #[rstest]
    #[case(Kind::Lock, Some(60), "l\nk\n10 60\n", "e\nk\n60\n", "w\nk\n10\n")]
    #[case(Kind::Lock, None, "l\nk\n10\n", "e\nk\n\n", "w\nk\n10\n")]
    #[case(Kind::Shared, Some(60), "rl\nk\n10 60\n", "re\nk\n60\n", "w\nk\n10\n")]
    #[case(Kind::Semaphore(3), Some(60), "sl\nk\n10 3 60\n", "se\nk\n3 60\n", "sw\nk\n10\n")]
    #[case(Kind::Semaphore(3), None, "sl\nk\n10 3\n", "se\nk\n3\n", "sw\nk\n10\n")]
    fn requests_for_a_place(
        #[case] kind: Kind,
        #[case] ttl: Option<u32>,
        #[case] acquire: &str,
        #[case] enqueue: &str,
        #[case] wait: &str,
    ) {
        let (key, timeout) = (&b"k"[..], 10);
        let text = |ask: Ask<'_>| String::from_utf8(ask.to_bytes()).unwrap();
        assert_eq!(text(Ask::Acquire { key, kind, timeout, ttl }), acquire);
        assert_eq!(text(Ask::Enqueue { key, kind, ttl }), enqueue);
        assert_eq!(text(Ask::Wait { key, kind, timeout }), wait);
    }

    #[rstest]
    #[case("")]
    #[case("ok")]
    #[case("ok ")]
    #[case("ok  33")]
    #[case("ok token")]
    #[case("ok token x")]
    #[case("ok token 0")]
    #[case("ok token -1")]
    #[case("ok token +1")]
    #[case("ok token 33 more")]
    #[case("ok token 33 -1")]
    #[case("ok token 33 1 2")]
    #[case("ok token 33 4294967296")]
    #[case("OK token 33")]
    #[case("queued")]
    #[case("HTTP/1.1 400 Bad Request")]
    fn other_lines_grant_nothing(#[case] line: &str) {
        assert_eq!(read_grants(line, 1), None);
    }

    #[rstest]
    #[case("ok token 33", None)]
    #[case("ok token 33 0", Some(0))]
    #[case("ok token 33 4294967295", Some(u32::MAX))]
    fn a_grant_may_have_a_slot(#[case] line: &str, #[case] slot: Option<u32>) {
        let granted = Granted { token: "token", ttl: 33, slot };
        assert_eq!(read_grants(line, 1), Some(Some(vec![granted])));
        assert_eq!(read_place(&line.replacen("ok", "acquired", 1)), Some(Some(granted)));
        // Several keys are locks.
        assert_eq!(read_grants(&format!("{line} {line}"), 2), None);
    }
}
