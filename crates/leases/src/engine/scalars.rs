//! The scalar values of the engine: keys, tokens, limits, spans and points of time; also the source of tokens, and the
//! caps.
//!
//! Pure. Only a checked constructor makes the scalars, so no later code checks them again.

use std::num::NonZeroU64;

/// The most bytes in a key, which is one line of the protocol.
pub const MAX_KEY_BYTES: usize = 256;

/// The most keys that are taken together.
pub const MAX_KEYS: usize = 16;

/// The most seconds that a request may name: as many as fit into signed 64-bit nanoseconds, the limit of the
/// reference.
pub const MAX_SECONDS: u64 = 9_223_372_036;

/// A point on the server's one monotonic clock, in microseconds since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(u64);

impl Moment {
    /// Later than any deadline.
    pub const NEVER: Self = Self(u64::MAX);

    /// The point `micros` microseconds after the clock's start.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the clock's start.
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// The point `span` later; stops at [`Moment::NEVER`].
    #[must_use]
    pub const fn after(self, span: Seconds) -> Self {
        self.after_micros(span.micros())
    }

    /// The point `micros` microseconds later; stops at [`Moment::NEVER`].
    #[must_use]
    pub const fn after_micros(self, micros: u64) -> Self {
        Self(self.0.saturating_add(micros))
    }

    /// Microseconds from `earlier` to here, 0 when it is not earlier.
    pub const fn micros_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A span in whole seconds, at most [`MAX_SECONDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seconds(u64);

impl Seconds {
    /// No time at all: a try that does not wait.
    pub const ZERO: Self = Self(0);

    /// `None` when over [`MAX_SECONDS`].
    pub const fn new(seconds: u64) -> Option<Self> {
        if seconds > MAX_SECONDS { None } else { Some(Self(seconds)) }
    }

    /// A short span; every number of this type is one.
    pub const fn from_u16(seconds: u16) -> Self {
        Self(seconds as u64)
    }

    /// The number of seconds.
    pub const fn count(self) -> u64 {
        self.0
    }

    /// The same in microseconds.
    #[must_use]
    pub const fn micros(self) -> u64 {
        self.0.saturating_mul(1_000_000)
    }
}

/// How long a lease runs: whole seconds, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(Seconds);

impl Ttl {
    /// The usual length of a lease: 33 s.
    pub const USUAL: Self = Self(Seconds::from_u16(33));

    /// `None` for 0 and over [`MAX_SECONDS`].
    pub const fn new(seconds: u64) -> Option<Self> {
        match Seconds::new(seconds) {
            Some(span) if span.0 > 0 => Some(Self(span)),
            Some(_) | None => None,
        }
    }

    /// As a span.
    pub const fn span(self) -> Seconds {
        self.0
    }
}

/// How many holders a key may have at the same time; 1 makes it a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit(NonZeroU64);

impl Limit {
    /// A lock.
    pub const ONE: Self = Self(NonZeroU64::MIN);

    /// `None` for 0.
    pub fn new(limit: u64) -> Option<Self> {
        NonZeroU64::new(limit).map(Self)
    }

    /// The number of slots.
    pub const fn count(self) -> u64 {
        self.0.get()
    }
}

/// The name of a lock: 1 to [`MAX_KEY_BYTES`] bytes without blank, tab, carriage return or newline. Bytes, not text:
/// two keys are the same if their bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key<'a>(&'a [u8]);

impl<'a> Key<'a> {
    /// `None` when empty, too long or with a byte a key must not have.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let bad = |b: &u8| matches!(b, b' ' | b'\t' | b'\r' | b'\n');
        let fits = !bytes.is_empty() && bytes.len() <= MAX_KEY_BYTES;
        (fits && !bytes.iter().any(bad)).then_some(Self(bytes))
    }

    /// The bytes.
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }
}

/// Keys that are taken together: 1 to [`MAX_KEYS`], each once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys<'a>(&'a [u8]);

impl<'a> Keys<'a> {
    /// Reads keys with one blank between them. `None` if there are too many, if one is named twice, or if one is not
    /// a valid key.
    pub fn new(line: &'a [u8]) -> Option<Self> {
        let mut keys = Vec::new();
        for key in words(line) {
            let key = Key::new(key)?;
            if keys.len() == MAX_KEYS || keys.contains(&key) {
                return None;
            }
            keys.push(key);
        }
        Some(Self(line))
    }

    /// The keys, in the order in which they were named.
    pub fn iter(self) -> impl Iterator<Item = Key<'a>> {
        words(self.0).map(Key)
    }

    /// The number of keys.
    #[must_use]
    pub fn count(self) -> usize {
        self.iter().count()
    }
}

/// A single key, which contains no blank.
impl<'a> From<Key<'a>> for Keys<'a> {
    fn from(key: Key<'a>) -> Self {
        Self(key.0)
    }
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b' ')
}

/// The proof of a hold: a fence that only grows, and 64 random bits that cannot be guessed. On the wire 32 lower-case
/// hexadecimal digits, the fence first.
///
/// ```
/// use leases::Token;
///
/// let token = Token::new(41, 7);
/// assert_eq!(token.digits(), *b"00000000000000290000000000000007");
/// assert_eq!(Token::parse(&token.digits()), Some(token));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token {
    fence: u64,
    salt: u64,
}

/// Digits of a token on the wire.
pub const TOKEN_DIGITS: usize = 32;

impl Token {
    /// Puts the two halves together.
    pub const fn new(fence: u64, salt: u64) -> Self {
        Self { fence, salt }
    }

    /// The number that grows with every grant of this server.
    pub const fn fence(self) -> u64 {
        self.fence
    }

    /// Both halves, big-endian.
    #[must_use]
    pub fn bytes(self) -> [u8; 16] {
        ((u128::from(self.fence) << 64) | u128::from(self.salt)).to_be_bytes()
    }

    /// The half that cannot be guessed.
    pub const fn salt(self) -> u64 {
        self.salt
    }

    /// Reads exactly 32 lower-case hexadecimal digits; `None` for any other text.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (fence, salt) = text.split_at_checked(TOKEN_DIGITS / 2)?;
        Some(Self { fence: read_hex(fence)?, salt: read_hex(salt)? })
    }

    /// The 32 digits.
    pub fn digits(self) -> [u8; TOKEN_DIGITS] {
        let digit = |half: u8| if half < 10 { b'0' + half } else { b'a' - 10 + half };
        let mut text = [0; TOKEN_DIGITS];
        for (two, byte) in text.chunks_exact_mut(2).zip(self.bytes()) {
            two.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
        }
        text
    }
}

/// Never shows the random half, because with a token from a log, another process could release the lock.
impl std::fmt::Debug for Token {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Token({:016x}…)", self.fence)
    }
}

/// Reads exactly 16 lower-case hexadecimal digits; `None` for any other text.
#[must_use]
pub fn read_hex(digits: &[u8]) -> Option<u64> {
    let digits: &[u8; 16] = digits.try_into().ok()?;
    // All digits at once: the compiler makes vectors of this.
    let values = digits.map(|digit| match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => u8::MAX,
    });
    let number = values.iter().fold(0, |number, value| number << 4 | u64::from(*value));
    values.iter().all(|value| *value < 16).then_some(number)
}

/// The source of tokens: the caller's fence counter and random numbers.
pub trait Mint: Send {
    /// A token whose fence is greater than that of every token before it.
    fn token(&mut self) -> Token;
}

/// The limits and times of the engine. Begin with [`Caps::DEFAULT`], which has those of `dflockd`, and change some.
///
/// ```
/// let mut caps = leases::Caps::DEFAULT;
/// caps.max_waiters = 100;
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Caps {
    /// The length of a lease if a request names none.
    pub default_ttl: Ttl,
    /// The most keys, including idle ones.
    pub max_locks: usize,
    /// The most waiters per key; 0 for no cap.
    pub max_waiters: usize,
    /// How often idle keys are searched.
    pub gc_interval: Seconds,
    /// A key that was idle for longer is forgotten.
    pub gc_max_idle: Seconds,
    /// A hold whose owner has gone is released only after this time.
    pub disconnect_grace: Seconds,
    /// The most held slots, places in queues and requests of `e`, all together.
    pub max_entries: usize,
    /// The same for one connection.
    pub max_entries_per_connection: usize,
}

impl Caps {
    /// Leases of 33 s, 1024 keys, any number of waiters; idle keys are searched every 5 s and forgotten after 60 s; no
    /// grace; 100,000 entries, half of them for one connection.
    pub const DEFAULT: Self = Self {
        default_ttl: Ttl::USUAL,
        max_locks: 1024,
        max_waiters: 0,
        gc_interval: Seconds::from_u16(5),
        gc_max_idle: Seconds::from_u16(60),
        disconnect_grace: Seconds::ZERO,
        max_entries: 100_000,
        max_entries_per_connection: 50_000,
    };
}

impl Default for Caps {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::empty(b"", false)]
    #[case::blank(b"a b", false)]
    #[case::tab(b"a\tb", false)]
    #[case::carriage_return(b"a\r", false)]
    #[case::newline(b"a\n", false)]
    #[case::one(b"k", true)]
    #[case::nul(b"\0", true)]
    #[case::not_utf8(b"\xff\xfe", true)]
    #[case::no_break_space(b"\xc2\xa0", true)]
    #[case::longest(&[b'k'; 256], true)]
    #[case::too_long(&[b'k'; 257], false)]
    fn keys(#[case] bytes: &[u8], #[case] good: bool) {
        assert_eq!(Key::new(bytes).is_some(), good);
    }

    #[rstest]
    #[case(b"00000000000000000000000000000000", Some((0, 0)))]
    #[case(b"000000000000000f00000000000000a0", Some((15, 160)))]
    #[case(b"ffffffffffffffffffffffffffffffff", Some((u64::MAX, u64::MAX)))]
    #[case(b"000000000000000F00000000000000a0", None)]
    #[case(b"+00000000000000f00000000000000a0", None)]
    #[case(b"0000000000000000000000000000000", None)]
    #[case(b"000000000000000000000000000000000", None)]
    #[case(b"", None)]
    fn tokens_are_parsed_and_written(#[case] text: &[u8], #[case] want: Option<(u64, u64)>) {
        let token = Token::parse(text);
        assert_eq!(token, want.map(|(fence, salt)| Token::new(fence, salt)));
        if let Some(token) = token {
            assert_eq!(token.digits(), text);
        }
    }

    #[test]
    fn a_token_does_not_print_its_secret() {
        let token = Token::new(7, 0xdead_beef_dead_beef);
        assert!(!format!("{token:?}").contains("dead"));
    }

    #[test]
    fn spans_stop_at_the_limit() {
        assert!(Seconds::new(MAX_SECONDS).is_some());
        assert!(Seconds::new(MAX_SECONDS + 1).is_none());
        assert!(Ttl::new(0).is_none());
        assert!(Ttl::new(1).is_some());
        let far = Moment::from_micros(u64::MAX - 5).after(Seconds::new(MAX_SECONDS).unwrap());
        assert_eq!(far, Moment::NEVER);
    }
}
