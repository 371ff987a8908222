//! Processes as holders: is that pid alive, whose is it, and since when?

use std::fmt;

/// A process number that can be real: 1 to the largest `pid_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(i32);

/// The text is no process number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PidError {
    /// Not a decimal integer at all.
    Malformed,
    /// A decimal integer, but zero, negative, or larger than any `pid_t`.
    OutOfRange,
}

impl Pid {
    /// Takes a number as a process number.
    #[must_use]
    pub fn new(number: i64) -> Option<Self> {
        i32::try_from(number).ok().filter(|n| *n > 0).map(Self)
    }

    /// Reads decimal digits with an optional minus, and nothing else: no plus, no blanks.
    ///
    /// # Errors
    /// [`PidError::Malformed`] when it is no decimal integer, [`PidError::OutOfRange`] when it
    /// is one that no process can have, however long.
    pub fn parse(text: &[u8]) -> Result<Self, PidError> {
        let digits = text.strip_prefix(b"-").unwrap_or(text);
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Err(PidError::Malformed);
        }
        let number = digits.iter().try_fold(0_i32, |sum, digit| {
            sum.checked_mul(10)?.checked_add(i32::from(digit - b'0'))
        });
        match number {
            Some(number) if number > 0 && digits.len() == text.len() => Ok(Self(number)),
            _ => Err(PidError::OutOfRange),
        }
    }

    /// The number.
    #[must_use]
    pub fn as_raw(self) -> i32 {
        self.0
    }

    /// This process.
    #[must_use]
    pub fn this() -> Self {
        Self(nix::unistd::getpid().as_raw())
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
