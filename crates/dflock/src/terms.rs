//! Checked values of a client: keys, tokens, lengths of leases. Pure.

use std::fmt;

/// The longest line of the protocol, without its newline.
pub const MAX_LINE_BYTES: usize = 256;

/// A key every server accepts: 1 to 256 bytes without blank, tab, carriage return or newline.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Vec<u8>);

impl Key {
    /// Checks the bytes of a key.
    ///
    /// # Errors
    /// The rule that is broken.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, TermError> {
        let bytes = bytes.into();
        if bytes.is_empty() {
            return Err(TermError::KeyEmpty);
        }
        if bytes.len() > MAX_LINE_BYTES {
            return Err(TermError::KeyLong);
        }
        if bytes.iter().any(|byte| b" \t\r\n".contains(byte)) {
            return Err(TermError::KeyBlank);
        }
        Ok(Self(bytes))
    }

    /// The bytes as they go over the wire.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// For messages: control characters and bytes that are no text are escaped.
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

/// Proof of a grant. Who knows it may renew and release, so it is never shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Checks the text of a token: printable ASCII without blanks, at most 128 bytes.
    ///
    /// # Errors
    /// [`TermError::Token`].
    pub fn new(text: impl Into<String>) -> Result<Self, TermError> {
        let text = text.into();
        if text.is_empty() || text.len() > 128 || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(TermError::Token);
        }
        Ok(Self(text))
    }

    /// The text as the server gave it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The fencing number: the first 16 of 32 hex digits, a number that grows with every grant of
    /// a key. Storage that remembers the highest number it has seen can turn away a holder whose
    /// lease is over. Nothing when the token has another form; note that a server of another make
    /// may fill all 32 digits with chance.
    #[must_use]
    pub fn fence(&self) -> Option<u64> {
        let is_hex = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        if self.0.len() != 32 || !self.0.bytes().all(is_hex) {
            return None;
        }
        u64::from_str_radix(self.0.get(..16)?, 16).ok()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Lock, or semaphore with its limit. Semaphores of limit 1 and locks exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One holder.
    Lock,
    /// This many holders, at least 1. The first request for a key fixes the number.
    Semaphore(u32),
}

/// A term the protocol has no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TermError {
    /// A key of no bytes.
    KeyEmpty,
    /// A key of more than 256 bytes.
    KeyLong,
    /// A key with a blank, tab, carriage return or newline.
    KeyBlank,
    /// A token that no server would have given.
    Token,
    /// A lease of 0 seconds.
    Ttl,
    /// A semaphore with 0 slots.
    Limit,
}

impl fmt::Display for TermError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KeyEmpty => "the key is empty",
            Self::KeyLong => "the key is longer than 256 bytes",
            Self::KeyBlank => "the key contains a blank, tab or line end",
            Self::Token => "not a token: 32 hexadecimal digits",
            Self::Ttl => "the lease must be at least 1 second",
            Self::Limit => "the limit must be at least 1",
        })
    }
}

impl std::error::Error for TermError {}

#[cfg(test)]
mod tests {
    use super::{Key, MAX_LINE_BYTES, TermError, Token};
    use rstest::rstest;

    #[rstest]
    #[case(b"k".to_vec(), None)]
    #[case(vec![b'k'; MAX_LINE_BYTES], None)]
    #[case(b"\x00\xff\xc2\xa0".to_vec(), None)]
    #[case(b"".to_vec(), Some(TermError::KeyEmpty))]
    #[case(vec![b'k'; MAX_LINE_BYTES + 1], Some(TermError::KeyLong))]
    #[case(b"a b".to_vec(), Some(TermError::KeyBlank))]
    #[case(b"a\tb".to_vec(), Some(TermError::KeyBlank))]
    #[case(b"a\rb".to_vec(), Some(TermError::KeyBlank))]
    #[case(b"a\nb".to_vec(), Some(TermError::KeyBlank))]
    fn a_key_is_what_fits_on_its_line(#[case] bytes: Vec<u8>, #[case] error: Option<TermError>) {
        assert_eq!(Key::new(bytes).err(), error);
    }

    #[test]
    fn a_key_is_shown_without_its_control_characters() {
        assert_eq!(Key::new("a\u{1b}[2J").unwrap().to_string(), "a\\u{1b}[2J");
    }

    #[rstest]
    #[case("00000000000000ff0123456789abcdef", Some(255))]
    #[case("ffffffffffffffff0123456789abcdef", Some(u64::MAX))]
    #[case("00000000000000FF0123456789ABCDEF", None)]
    #[case("00000000000000ff0123456789abcde", None)]
    #[case("+0000000000000ff0123456789abcdef", None)]
    #[case("anything", None)]
    fn the_fence_is_the_first_half(#[case] text: &str, #[case] fence: Option<u64>) {
        assert_eq!(Token::new(text).unwrap().fence(), fence);
    }

    #[rstest]
    #[case("")]
    #[case("a b")]
    #[case("a\nr")]
    #[case("\u{e9}")]
    fn a_token_that_breaks_the_line_is_none(#[case] text: &str) {
        assert_eq!(Token::new(text).err(), Some(TermError::Token));
    }

    #[test]
    fn debug_does_not_show_the_token() {
        let token = Token::new("secret").unwrap();
        assert!(!format!("{token:?}").contains("secret"));
    }
}
