//! Exit codes as a shell has them (sh(1), "Exit Status for Commands" in POSIX). Pure.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// The command is there and cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
pub const NOT_FOUND: u8 = 127;

/// Ended by this signal: 128 and its number.
#[must_use]
pub fn by_signal(number: i32) -> u8 {
    u8::try_from(number).unwrap_or(0).saturating_add(128)
}

/// The code of a process that has ended; `None` for one that has not.
#[must_use]
pub fn of(status: ExitStatus) -> Option<u8> {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.or_else(|| status.signal().map(by_signal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_128_and_its_number() {
        for (signal, code) in [(1, 129), (9, 137), (64, 192)] {
            assert_eq!(by_signal(signal), code);
        }
    }

    /// Raw as wait(2) gives it: the code in the second byte, the signal in the first.
    #[test]
    fn every_end_has_its_code() {
        let table = [
            (0, Some(0)),
            (1 << 8, Some(1)),
            (255 << 8, Some(255)),
            (9, Some(137)),
            (15 | 0x80, Some(143)),
            // Stopped.
            (0x137f, None),
        ];
        for (raw, code) in table {
            assert_eq!(of(ExitStatus::from_raw(raw)), code, "{raw:#x}");
        }
    }
}
