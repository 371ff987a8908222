//! Exit codes as in a shell (sh(1), "Exit Status for Commands" in POSIX), and dying of the signal that ended
//! another process.

#[cfg(unix)]
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

#[cfg(unix)]
use nix::sys::resource::{Resource, setrlimit};
#[cfg(unix)]
use nix::sys::signal::{SigSet, Signal, raise};

/// The command is there and cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
pub const NOT_FOUND: u8 = 127;

/// Ended by this signal: 128 and its number.
#[must_use]
pub fn by_signal(number: i32) -> u8 {
    u8::try_from(number).unwrap_or(0).saturating_add(128)
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a process ends in one of two ways")]
pub enum End {
    /// With a code.
    Code(u8),
    /// By a signal of that number.
    Signal(i32),
}

impl End {
    /// `None` for a process that has not ended. A code of 32 bits (Windows) that does not fit into one of ours is a failure
    /// still.
    #[must_use]
    pub fn of(status: ExitStatus) -> Option<Self> {
        let code = status.code().map(|code| Self::Code(u8::try_from(code).unwrap_or(u8::MAX)));
        #[cfg(unix)]
        let code = code.or_else(|| status.signal().map(Self::Signal));
        code
    }

    /// The code, as a shell has it.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(number) => by_signal(number),
        }
    }

    /// Ends this process in the same way: by the same signal, so that its parent sees that
    /// (a shell stops its script at Ctrl-C only if the command died of it). What is to be released
    /// must have been. Comes back, with the code to end with, where there is no signal or it is
    /// ignored.
    #[must_use]
    pub fn follow(self) -> u8 {
        #[cfg(unix)]
        if let Self::Signal(number) = self {
            // One process has left what there is to be seen of it: no second core file.
            let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
            if let Ok(signal) = Signal::try_from(number) {
                let _ = raise(signal);
                let _ = SigSet::from(signal).thread_unblock();
            }
        }
        self.code()
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(End::of(ExitStatus::from_raw(raw)).map(End::code), code, "{raw:#x}");
        }
    }
}
