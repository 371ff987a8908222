//! Requests → bytes, for clients: the inverse of [`super::parse`]. Pure.

use super::MAX_NAME_BYTES;

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
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Ask<'a> {
    /// The secret of the server.
    Auth(&'a [u8]),
    /// The name of the client, of which [`MAX_NAME_BYTES`] are sent.
    Name(&'a str),
    /// What programs that watch a key are told about its holder.
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
        /// Of which kind.
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
        /// Of which kind.
        kind: Kind,
        /// The length of the lease.
        ttl: Option<u32>,
    },
    /// `w` or `sw`.
    Wait {
        /// The key.
        key: &'a [u8],
        /// Of which kind.
        kind: Kind,
        /// The longest wait.
        timeout: u32,
    },
    /// `r` or `sr`.
    Release {
        /// The key.
        key: &'a [u8],
        /// Of which kind.
        kind: Kind,
        /// The token of the hold.
        token: &'a str,
    },
    /// `n` or `sn`.
    Renew {
        /// The key.
        key: &'a [u8],
        /// Of which kind.
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

#[cfg(test)]
mod tests {
    use super::{Ask, Kind};
    use rstest::rstest;

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
}
