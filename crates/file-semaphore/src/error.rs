//! What can go wrong with a semaphore, as a closed list.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::path::PathProblem;
use crate::record::{LockInfo, ParseError};

/// Why a semaphore could not be taken, released or looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// Somebody holds it. `holder` is `None` when the file does not say who.
    AlreadyLocked {
        /// Who, since when, what for.
        holder: Option<Box<LockInfo>>,
    },
    /// Nobody let it go within the time allowed.
    Timeout {
        /// How long was waited.
        waited: Duration,
        /// Who held it last.
        holder: Option<Box<LockInfo>>,
    },
    /// It is not held.
    NotLocked,
    /// It is held by another process than the one that wants to release it.
    NotHolder {
        /// Who holds it; `None` when the file does not say.
        holder: Option<Box<LockInfo>>,
    },
    /// The path can be no lock's.
    InvalidPath {
        /// The path as it was given.
        path: PathBuf,
        /// What is wrong with it.
        problem: PathProblem,
    },
    /// There is a file, and it is no lock file.
    Parse {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        problem: ParseError,
    },
    /// Something that can be no lock file stands in the lock's place: a directory, a fifo, a
    /// device, or a link that was planted after the path was resolved.
    Obstacle {
        /// What stands there.
        path: PathBuf,
    },
    /// There is no process that could hold the lock.
    NoHolder {
        /// The number that was to be recorded; 0 is a caller outside this pid namespace.
        pid: u64,
    },
    /// A signal ended the waiting. Only programs that ask for it get this.
    Interrupted {
        /// Its number.
        signal: i32,
    },
    /// The system refused something that concerns no lock file: a process, a signal, a pipe.
    Process {
        /// The system's reason.
        message: &'static str,
    },
    /// The system refused.
    System(pidlockfile::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyLocked { holder } => write!(f, "held by {}", Who(holder)),
            Self::Timeout { waited, holder } => {
                let seconds = waited.as_secs_f64();
                write!(f, "timed out after {seconds:.3} s, held by {}", Who(holder))
            }
            Self::NotLocked => f.write_str("not held"),
            Self::NotHolder { holder } => write!(f, "not held by you but by {}", Who(holder)),
            Self::InvalidPath { path, problem } => {
                write!(f, "{problem}: \"{}\"", path.to_string_lossy().escape_debug())
            }
            Self::Parse { path, problem } => {
                write!(f, "{problem}: \"{}\"", path.to_string_lossy().escape_debug())
            }
            Self::Obstacle { path } => {
                write!(f, "not a regular file: \"{}\"", path.to_string_lossy().escape_debug())
            }
            Self::NoHolder { pid: 0 } => {
                f.write_str("the calling process is outside this pid namespace: use --pid")
            }
            Self::NoHolder { pid } => write!(f, "there is no process {pid}"),
            Self::Interrupted { signal } => write!(f, "interrupted by signal {signal}"),
            Self::Process { message } => f.write_str(message),
            Self::System(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::InvalidPath { problem, .. } => Some(problem),
            Self::Parse { problem, .. } => Some(problem),
            Self::System(error) => Some(error),
            Self::AlreadyLocked { .. }
            | Self::Timeout { .. }
            | Self::NotLocked
            | Self::NotHolder { .. }
            | Self::Obstacle { .. }
            | Self::NoHolder { .. }
            | Self::Process { .. }
            | Self::Interrupted { .. } => None,
        }
    }
}

impl From<pidlockfile::Error> for Error {
    fn from(error: pidlockfile::Error) -> Self {
        Self::System(error)
    }
}

/// A holder in words for a message of one line.
struct Who<'a>(&'a Option<Box<LockInfo>>);

impl fmt::Display for Who<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(info) = self.0 else { return f.write_str("somebody") };
        write!(f, "process {}", info.pid())?;
        if let Some(host) = info.holder().host() {
            write!(f, " on {}", host.escape_debug())?;
        }
        match info.tag() {
            Some(tag) => write!(f, " ({})", tag.escape_debug()),
            None => Ok(()),
        }
    }
}
