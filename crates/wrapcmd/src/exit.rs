//! How a command ended, or why it did not begin, with the exit codes and words of a shell (sh(1), "Exit Status for
//! Commands" in POSIX); and dying of the signal that ended another process.

#[cfg(unix)]
use std::ffi::OsStr;
use std::ffi::OsString;
use std::fmt;
use std::io;
#[cfg(unix)]
use std::os::unix::fs::MetadataExt;
#[cfg(unix)]
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

#[cfg(unix)]
use nix::errno::Errno;
#[cfg(unix)]
use nix::sys::resource::{Resource, setrlimit};
#[cfg(unix)]
use nix::sys::signal::{SigSet, Signal, raise};
use pidlockfile::words_of;

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

/// Why this process did not become the command.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// It never got the word: its caller is gone or has changed its mind.
    WrapperEnded,
    /// The command cannot be executed.
    Command {
        /// As it was named.
        program: OsString,
        /// What execve(2) said.
        error: io::Error,
    },
}

impl StartError {
    /// The exit code, as a shell has it: 126 or 127. None for [`StartError::WrapperEnded`], which no shell
    /// knows.
    #[must_use]
    pub fn code(&self) -> Option<u8> {
        match self {
            Self::WrapperEnded => None,
            Self::Command { error, .. } if error.kind() == io::ErrorKind::NotFound => {
                Some(NOT_FOUND)
            }
            Self::Command { .. } => Some(NOT_EXECUTABLE),
        }
    }

    /// The error of a command that certainly cannot be executed: there is no file of its name in `PATH`, or at its path
    /// if it has a `/`, or nobody may execute that file. execve(2) would report the same. `None`: only execve(2) can
    /// find out.
    #[cfg(unix)]
    #[must_use]
    pub fn foreseen(program: &OsStr) -> Option<Self> {
        let is_path = program.as_encoded_bytes().contains(&b'/');
        let path = if is_path { OsString::new() } else { std::env::var_os("PATH")? };
        let (mut missing, mut forbidden) = (None, None);
        for directory in std::env::split_paths(&path) {
            match directory.join(program).metadata() {
                Ok(file) if file.is_file() && file.mode() & 0o111 != 0 => return None,
                Ok(_) => forbidden = Some(Errno::EACCES.into()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => missing = Some(error),
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => missing = Some(error),
                Err(_) => return None,
            }
        }
        let error = forbidden.or(missing)?;
        Some(Self::Command { program: program.to_owned(), error })
    }

    /// Whether there is no such command.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(NOT_FOUND)
    }
}

/// As a shell says it. Holds the command's name as it was given: clean it for a terminal.
impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Command { program, error } = self else {
            return f.write_str("the wrapper ended before it started the command");
        };
        write!(f, "{}: ", program.to_string_lossy())?;
        let is_path = program.as_encoded_bytes().contains(&b'/');
        if error.kind() == io::ErrorKind::NotFound && !is_path {
            return f.write_str("command not found");
        }
        f.write_str(&words_of(error))
    }
}

/// What this program lacks to be started again (as by `Standby::start`), if `error` came of that. In the words of a
/// command `run`.
#[must_use]
pub fn restart_lacks(error: &io::Error) -> Option<&'static str> {
    if error.kind() != io::ErrorKind::NotFound {
        None
    } else if cfg!(target_os = "linux") && !Path::new("/proc/self").exists() {
        Some("run needs /proc, which is not mounted")
    } else {
        Some("the file of this program is gone")
    }
}

#[cfg(all(unix, test))]
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

    #[test]
    fn refusals_are_worded_and_numbered_as_a_shell_does() {
        let error = |program: &str, errno| StartError::Command {
            program: program.into(),
            error: io::Error::from_raw_os_error(errno as i32),
        };
        let table = [
            (error("x", Errno::ENOENT), Some(127), "x: command not found"),
            (error("./x", Errno::ENOENT), Some(127), "./x: No such file or directory"),
            (error("x", Errno::EACCES), Some(126), "x: Permission denied"),
            (error("x", Errno::ENOEXEC), Some(126), "x: Exec format error"),
            (StartError::WrapperEnded, None, "the wrapper ended before it started the command"),
        ];
        for (error, code, words) in table {
            assert_eq!((error.code(), error.to_string().as_str()), (code, words));
        }
    }
}
