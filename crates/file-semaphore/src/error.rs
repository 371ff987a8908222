//! The errors of a semaphore, as a closed list.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, io};

use pidlockfile::shown;

use crate::record::{LockInfo, ParseError};

/// What is wrong with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PathProblem {
    /// It is empty, or blank.
    Empty,
    /// It contains a NUL byte.
    Nul,
    /// It contains `..`.
    Traversal,
    /// It does not end with a file name, or on Windows with one that is no text.
    NoName,
    /// Its file name is longer than [`LONGEST_NAME`](crate::limits::LONGEST_NAME), or would be with
    /// the number of a slot.
    TooLong,
    /// Its parent directory does not exist.
    NoDirectory,
    /// Its parent directory was moved, removed or replaced after it was opened.
    Moved,
    /// It means the same as another one of those that are to be held together.
    Twice,
    /// Its symbolic links lead in a circle.
    LinkLoop,
    /// Its last part is another user's link in a directory that everybody may write.
    ForeignLink,
}

impl fmt::Display for PathProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the path is empty",
            Self::Nul => "the path contains a NUL byte",
            Self::Traversal => "path traversal: the path contains \"..\"",
            Self::NoName => "the path does not end with a usable file name",
            Self::TooLong => "the file name is longer than 223 bytes (with the slot's number)",
            Self::NoDirectory => "the parent directory does not exist",
            Self::Moved => "the parent directory was moved or replaced",
            Self::Twice => "the same lock is named twice",
            Self::LinkLoop => "too many symbolic links",
            Self::ForeignLink => {
                "the path is another user's link in a directory that everybody may write"
            }
        })
    }
}

impl std::error::Error for PathProblem {}

/// Why a semaphore could not be taken, released or read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// It is held. `holder` is `None` when the file does not name it.
    AlreadyLocked {
        /// Which semaphore.
        path: PathBuf,
        /// The holder, since when, what for.
        holder: Option<Box<LockInfo>>,
        /// The uid of the only user that may remove it, though it is stale.
        left_by: Option<u32>,
    },
    /// It did not become free within the time allowed.
    TimedOut {
        /// Which semaphore.
        path: PathBuf,
        /// The time that was waited; zero if the caller gave no time to wait.
        waited: Duration,
        /// The last holder.
        holder: Option<Box<LockInfo>>,
        /// The uid of the only user that may remove it, though it is stale.
        left_by: Option<u32>,
    },
    /// It is not held.
    NotLocked {
        /// Which semaphore.
        path: PathBuf,
    },
    /// Another process holds it than the one that releases it.
    NotHolder {
        /// Which semaphore.
        path: PathBuf,
        /// The holder; `None` when the file does not name it.
        holder: Option<Box<LockInfo>>,
    },
    /// The path can be no lock's.
    InvalidPath {
        /// The path as it was given.
        path: PathBuf,
        /// What is wrong with it.
        problem: PathProblem,
    },
    /// There is a file, and it is no lock file: it is foreign, or damaged and not old enough to be stale.
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
    /// The wait was ended by [`Cancel`](crate::Cancel).
    Cancelled,
    /// The system refused something that concerns no lock file: a process, a signal, a pipe.
    Process {
        /// The system's reason.
        message: &'static str,
    },
    /// The system refused.
    System {
        /// The lock file, or its directory.
        path: PathBuf,
        /// What was being done, and the system's reason.
        error: pidlockfile::Error,
    },
}

impl Error {
    /// The semaphore or file that it is about, where it is about one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        let (Self::AlreadyLocked { path, .. }
        | Self::TimedOut { path, .. }
        | Self::NotLocked { path }
        | Self::NotHolder { path, .. }
        | Self::InvalidPath { path, .. }
        | Self::Parse { path, .. }
        | Self::Obstacle { path }
        | Self::System { path, .. }) = self
        else {
            return None;
        };
        Some(path)
    }

    /// What happened to a file of a directory: says which one, whole.
    pub(crate) fn within(self, directory: &Path) -> Self {
        let Self::System { path, error } = self else { return self };
        Self::System { path: directory.join(path), error }
    }

    /// The same without the path, for messages that have named it already.
    #[cfg(feature = "cli")]
    pub(crate) fn reason(&self) -> impl fmt::Display + '_ {
        Reason(self)
    }

    /// As the standard library sorts errors.
    #[must_use]
    pub fn io_kind(&self) -> io::ErrorKind {
        match self {
            Self::AlreadyLocked { .. } => io::ErrorKind::WouldBlock,
            Self::TimedOut { .. } => io::ErrorKind::TimedOut,
            Self::NotLocked { .. } | Self::NoHolder { .. } => io::ErrorKind::NotFound,
            Self::NotHolder { .. } => io::ErrorKind::PermissionDenied,
            Self::InvalidPath { problem: PathProblem::NoDirectory, .. } => io::ErrorKind::NotFound,
            Self::InvalidPath { problem: PathProblem::ForeignLink, .. } => {
                io::ErrorKind::PermissionDenied
            }
            Self::InvalidPath { .. } => io::ErrorKind::InvalidInput,
            Self::Parse { .. } => io::ErrorKind::InvalidData,
            Self::Obstacle { .. } => io::ErrorKind::AlreadyExists,
            Self::Interrupted { .. } | Self::Cancelled => io::ErrorKind::Interrupted,
            Self::Process { .. } => io::ErrorKind::Other,
            Self::System { error, .. } => error.kind(),
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.io_kind(), error)
    }
}

/// "held by process 12: "/run/lock/a"".
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path() {
            Some(path) => write!(f, "{}: \"{}\"", Reason(self), shown(path)),
            None => Reason(self).fmt(f),
        }
    }
}

/// An error without the path of the semaphore.
struct Reason<'a>(&'a Error);

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Error::AlreadyLocked { holder, left_by, .. } => {
                f.write_str(&in_the_way(holder.as_deref(), *left_by))
            }
            Error::TimedOut { waited, holder, left_by, .. } => {
                if !waited.is_zero() {
                    write!(f, "timed out after {:.3} s, ", waited.as_secs_f64())?;
                }
                f.write_str(&in_the_way(holder.as_deref(), *left_by))
            }
            Error::NotLocked { .. } => f.write_str("not held"),
            Error::NotHolder { holder, .. } => {
                write!(f, "not held by you but by {}", named(holder.as_deref()))
            }
            Error::InvalidPath { problem, .. } => problem.fmt(f),
            Error::Parse { problem, .. } => write!(f, "not a lock file: {problem}"),
            Error::Obstacle { .. } => f.write_str("not a regular file"),
            Error::NoHolder { pid: 0 } => {
                f.write_str("the calling process is outside this pid namespace: use --pid")
            }
            Error::NoHolder { pid } => write!(f, "there is no process {pid}"),
            Error::Interrupted { signal } => write!(f, "interrupted by signal {signal}"),
            Error::Cancelled => f.write_str("the wait was cancelled"),
            Error::Process { message } => f.write_str(message),
            Error::System { error, .. } if is_closed_directory(error) => {
                f.write_str("you may not write the directory of the lock")
            }
            Error::System { error, .. } => error.reason().fmt(f),
        }
    }
}

/// Whether the caller may not write the directory, as opposed to a file system that nobody may write.
pub(crate) fn is_closed_directory(error: &pidlockfile::Error) -> bool {
    error.step == pidlockfile::Step::Prepare && error.kind() == io::ErrorKind::PermissionDenied
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::InvalidPath { problem, .. } => Some(problem),
            Self::Parse { problem, .. } => Some(problem),
            Self::System { error, .. } => Some(error),
            Self::AlreadyLocked { .. }
            | Self::TimedOut { .. }
            | Self::NotLocked { .. }
            | Self::NotHolder { .. }
            | Self::Obstacle { .. }
            | Self::NoHolder { .. }
            | Self::Process { .. }
            | Self::Cancelled
            | Self::Interrupted { .. } => None,
        }
    }
}

impl From<pidlockfile::Error> for Error {
    fn from(error: pidlockfile::Error) -> Self {
        Self::System { path: PathBuf::from(&error.name), error }
    }
}

/// Why a lock cannot be taken, in words for a message of one line.
fn in_the_way(holder: Option<&LockInfo>, left_by: Option<u32>) -> String {
    let holder = named(holder);
    match left_by {
        None => format!("held by {holder}"),
        // By number: a name would be asked of libraries that a static program cannot load.
        Some(uid) => format!("stale, of user {uid}: {holder}"),
    }
}

fn named(holder: Option<&LockInfo>) -> String {
    let Some(info) = holder else { return "somebody".to_owned() };
    let host = info.holder().host().map(|host| format!(" on {}", host.escape_debug()));
    let tag = info.tag().map(|tag| format!(" ({})", tag.escape_debug()));
    format!("process {}{}{}", info.pid(), host.unwrap_or_default(), tag.unwrap_or_default())
}

/// The reason why a semaphore cannot be taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct InTheWay {
    pub(crate) holder: Option<Box<LockInfo>>,
    pub(crate) left_by: Option<u32>,
    /// Its file is so young that its writer may be at it.
    pub(crate) is_being_written: bool,
}

impl InTheWay {
    /// The holder, as far as the file names it.
    pub(crate) fn of(holder: Option<&LockInfo>) -> Self {
        Self { holder: holder.cloned().map(Box::new), ..Self::default() }
    }

    /// This error or the other one, whichever has more details.
    pub(crate) fn or(self, other: Self) -> Self {
        if self.holder.is_some() || self.left_by.is_some() { self } else { other }
    }

    pub(crate) fn refused(self, path: PathBuf) -> Error {
        Error::AlreadyLocked { path, holder: self.holder, left_by: self.left_by }
    }

    pub(crate) fn timeout(self, path: PathBuf, waited: Duration) -> Error {
        Error::TimedOut { path, waited, holder: self.holder, left_by: self.left_by }
    }
}
