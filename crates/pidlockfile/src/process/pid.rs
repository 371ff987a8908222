//! Process numbers as values: the valid range, and parsing. Pure.

use std::fmt;

/// A process number that can be real: 1 to the largest `pid_t`.
///
/// ```
/// use pidlockfile::Pid;
///
/// assert_eq!(Pid::parse(b"1234").map(Pid::as_raw), Ok(1234));
/// assert!(Pid::parse(b"0").is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(i32);

/// The text is no process number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "no number, or none of a process")]
pub enum PidError {
    /// Not a decimal integer at all.
    Malformed,
    /// A decimal integer, but zero, negative, or larger than any `pid_t`.
    OutOfRange,
}

impl Pid {
    /// The largest that the type has room for.
    pub(super) const LARGEST: Self = Self(i32::MAX);

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
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::smallest("1", Ok(1))]
    #[case::usual("1234", Ok(1234))]
    #[case::leading_zeros("0000001234", Ok(1234))]
    #[case::largest("2147483647", Ok(2_147_483_647))]
    #[case::one_over("2147483648", Err(PidError::OutOfRange))]
    #[case::wraps_to_one("4294967297", Err(PidError::OutOfRange))]
    #[case::endless("99999999999999999999999999999999", Err(PidError::OutOfRange))]
    #[case::zero("0", Err(PidError::OutOfRange))]
    #[case::many_zeros("000", Err(PidError::OutOfRange))]
    #[case::negative("-1", Err(PidError::OutOfRange))]
    #[case::minus_zero("-0", Err(PidError::OutOfRange))]
    #[case::most_negative("-2147483648", Err(PidError::OutOfRange))]
    #[case::empty("", Err(PidError::Malformed))]
    #[case::only_minus("-", Err(PidError::Malformed))]
    #[case::two_minus("--1", Err(PidError::Malformed))]
    #[case::plus("+1", Err(PidError::Malformed))]
    #[case::words("abc", Err(PidError::Malformed))]
    #[case::trailing_word("12x", Err(PidError::Malformed))]
    #[case::blank(" 12", Err(PidError::Malformed))]
    #[case::hexadecimal("0x10", Err(PidError::Malformed))]
    fn reads_pids(#[case] text: &str, #[case] pid: Result<i32, PidError>) {
        assert_eq!(Pid::parse(text.as_bytes()).map(Pid::as_raw), pid);
    }
}
