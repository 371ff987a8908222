//! Why a command was not started, in the words and with the exit codes of a shell.

#[cfg(unix)]
use std::ffi::OsStr;
use std::ffi::OsString;
use std::fmt;
use std::io;
#[cfg(unix)]
use std::os::unix::fs::MetadataExt;
use std::path::Path;

#[cfg(unix)]
use nix::errno::Errno;

use crate::exit;
use pidlockfile::words_of;

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
                Some(exit::NOT_FOUND)
            }
            Self::Command { .. } => Some(exit::NOT_EXECUTABLE),
        }
    }

    /// The error of a command that certainly cannot be executed: there is no file of its name in `PATH`, or at its path if
    /// it has a `/`, or nobody may execute that file. execve(2) would report the same. `None`: only execve(2) can find
    /// out.
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
        self.code() == Some(exit::NOT_FOUND)
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
