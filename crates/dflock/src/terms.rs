//! Checked values of a client: keys, tokens, lengths of leases. Pure.

use std::fmt;
use std::time::Duration;

pub use leases::wire::{Kind, MAX_LINE_BYTES};

/// A key that every server accepts: 1 to 256 bytes without blank, tab, carriage return or newline.
///
/// ```
/// use dflock::Key;
///
/// assert!(Key::new("nightly-report").is_ok());
/// assert!(Key::new("nightly report").is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Vec<u8>);

impl Key {
    /// Checks the bytes of a key.
    ///
    /// # Errors
    /// The broken rule.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, ArgumentError> {
        let bytes = bytes.into();
        if bytes.is_empty() {
            return Err(ArgumentError::KeyEmpty);
        }
        if bytes.len() > MAX_LINE_BYTES {
            return Err(ArgumentError::KeyLong);
        }
        if bytes.iter().any(|byte| b" \t\r\n".contains(byte)) {
            return Err(ArgumentError::KeyBlank);
        }
        Ok(Self(bytes))
    }

    /// The bytes as they go over the wire.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// For messages: control characters and bytes that are not text are escaped.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(&self.0).escape_debug().fmt(f)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// The proof of a grant. It gives the right to renew and release, so `Debug` never shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Checks the text of a token: printable ASCII without blanks, at most 128 bytes.
    ///
    /// # Errors
    /// [`ArgumentError::Token`].
    pub fn new(text: impl Into<String>) -> Result<Self, ArgumentError> {
        let text = text.into();
        if text.is_empty() || text.len() > 128 || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(ArgumentError::Token);
        }
        Ok(Self(text))
    }

    /// The text as received from the server.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// The longest time to wait and the longest lease: 2,147,483,647 seconds, 68 years. All servers accept it.
pub const MAX_TIME: Duration = Duration::from_secs(2_147_483_647);

/// The time to wait for something, in whole seconds, as the protocol has it. A part of a second counts as a whole one.
pub(super) fn seconds_to_wait(time: Duration) -> Result<u32, ArgumentError> {
    if time > MAX_TIME {
        return Err(ArgumentError::TimeLong);
    }
    let count = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    u32::try_from(count).map_err(|_| ArgumentError::TimeLong)
}

/// The same of the length of a lease, which is never zero.
pub(super) fn seconds_of_lease(time: Option<Duration>) -> Result<Option<u32>, ArgumentError> {
    let count = time.map(seconds_to_wait).transpose()?;
    if count == Some(0) { Err(ArgumentError::Ttl) } else { Ok(count) }
}

/// A number of the protocol or of the command line.
pub(super) fn seconds(count: u32) -> Duration {
    Duration::from_secs(count.into())
}

/// A value that the protocol cannot express.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgumentError {
    /// An empty key.
    KeyEmpty,
    /// A key longer than 256 bytes.
    KeyLong,
    /// A key with a blank, tab, carriage return or newline.
    KeyBlank,
    /// No key where at least one is needed.
    KeyMissing,
    /// A key that is named twice.
    KeyTwice,
    /// A token that no server can have sent.
    Token,
    /// A lease of zero length.
    Ttl,
    /// A timeout or a lease longer than [`MAX_TIME`].
    TimeLong,
    /// A semaphore with 0 slots.
    Limit,
    /// A value that does not fit on its line.
    Value,
}

impl fmt::Display for ArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KeyEmpty => "the key is empty",
            Self::KeyLong => "the key is longer than 256 bytes",
            Self::KeyBlank => "the key contains a blank, tab or line end",
            Self::KeyMissing => "no key is named",
            Self::KeyTwice => "a key is named twice",
            Self::Token => "not a token: 32 hexadecimal digits",
            Self::Ttl => "the lease must be longer than nothing",
            Self::TimeLong => "the time is longer than 2147483647 seconds (68 years)",
            Self::Limit => "the limit must be at least 1",
            Self::Value => {
                "a value is 1 to 256 bytes without control characters, and without blanks at its ends"
            }
        })
    }
}

impl std::error::Error for ArgumentError {}

/// What a client wants to hold, and for how long without a renewal: `None` stands for the server's default.
#[derive(Clone)]
pub(super) struct Wanted {
    pub(super) key: Key,
    pub(super) kind: Kind,
    pub(super) ttl: Option<Duration>,
}

/// What a server must know to renew or release a hold.
#[derive(Clone)]
pub(super) struct Proof {
    pub(super) key: Key,
    pub(super) kind: Kind,
    pub(super) token: Token,
}

#[cfg(test)]
mod tests {
    use super::{
        ArgumentError, Key, MAX_LINE_BYTES, MAX_TIME, Token, seconds_of_lease, seconds_to_wait,
    };
    use rstest::rstest;
    use std::time::Duration;

    #[rstest]
    #[case(b"k".to_vec(), None)]
    #[case(vec![b'k'; MAX_LINE_BYTES], None)]
    #[case(b"\x00\xff\xc2\xa0".to_vec(), None)]
    #[case(b"".to_vec(), Some(ArgumentError::KeyEmpty))]
    #[case(vec![b'k'; MAX_LINE_BYTES + 1], Some(ArgumentError::KeyLong))]
    #[case(b"a b".to_vec(), Some(ArgumentError::KeyBlank))]
    #[case(b"a\tb".to_vec(), Some(ArgumentError::KeyBlank))]
    #[case(b"a\rb".to_vec(), Some(ArgumentError::KeyBlank))]
    #[case(b"a\nb".to_vec(), Some(ArgumentError::KeyBlank))]
    fn a_key_is_what_fits_on_its_line(
        #[case] bytes: Vec<u8>,
        #[case] error: Option<ArgumentError>,
    ) {
        assert_eq!(Key::new(bytes).err(), error);
    }

    #[test]
    fn a_key_is_shown_without_its_control_characters() {
        assert_eq!(Key::new("a\u{1b}[2J").unwrap().to_string(), "a\\u{1b}[2J");
    }

    #[rstest]
    #[case("")]
    #[case("a b")]
    #[case("a\nr")]
    #[case("\u{e9}")]
    fn a_token_with_a_line_end_or_non_ascii_is_refused(#[case] text: &str) {
        assert_eq!(Token::new(text).err(), Some(ArgumentError::Token));
    }

    const TICK: Duration = Duration::from_nanos(1);

    #[rstest]
    #[case(Duration::ZERO, Ok(0), Err(ArgumentError::Ttl))]
    #[case(TICK, Ok(1), Ok(1))]
    #[case(Duration::from_secs(1), Ok(1), Ok(1))]
    #[case(Duration::from_millis(1001), Ok(2), Ok(2))]
    #[case(MAX_TIME - TICK, Ok(2_147_483_647), Ok(2_147_483_647))]
    #[case(MAX_TIME, Ok(2_147_483_647), Ok(2_147_483_647))]
    #[case(MAX_TIME + TICK, Err(ArgumentError::TimeLong), Err(ArgumentError::TimeLong))]
    #[case(Duration::MAX, Err(ArgumentError::TimeLong), Err(ArgumentError::TimeLong))]
    fn times_are_rounded_up_to_whole_seconds(
        #[case] time: Duration,
        #[case] to_wait: Result<u32, ArgumentError>,
        #[case] of_lease: Result<u32, ArgumentError>,
    ) {
        assert_eq!(seconds_to_wait(time), to_wait);
        assert_eq!(seconds_of_lease(Some(time)), of_lease.map(Some));
    }
}
