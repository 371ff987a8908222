//! Errors of system calls: the step, the file, and the kernel's reason. Pure.

use std::ffi::{OsStr, OsString};
use std::{fmt, io};

use crate::errno::{self, Errno};
use crate::shown::shown;

/// A system call that failed while handling a lock file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What was being done.
    pub step: Step,
    /// The file or directory it was done to.
    pub name: OsString,
    pub(crate) errno: Errno,
}

/// The steps that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Opening the lock directory.
    OpenDirectory,
    /// Listing the lock directory.
    List,
    /// Looking at a lock file.
    Inspect,
    /// Reading a lock file.
    Read,
    /// Creating, filling or naming the temporary file.
    Prepare,
    /// Giving the lock its name.
    Publish,
    /// Excluding other breakers of the same file.
    Exclude,
    /// Taking a stale lock out of its place.
    Break,
    /// Removing a lock file.
    Remove,
}

impl Error {
    pub(crate) fn new(step: Step, name: impl AsRef<OsStr>, errno: Errno) -> Self {
        Self { step, name: name.as_ref().to_owned(), errno }
    }

    /// The error of a step at a name, by the system's reason.
    pub(crate) fn at(step: Step, name: &impl AsRef<OsStr>) -> impl Fn(Errno) -> Self {
        move |errno| Self::new(step, name, errno)
    }

    /// The kind of the system error, as the standard library sorts them.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        io::Error::from(self.errno).kind()
    }

    /// The system's error number.
    #[must_use]
    pub fn raw_os_error(&self) -> i32 {
        errno::number(self.errno)
    }

    /// Whether the caller lacks the right, rather than something being broken.
    #[must_use]
    pub fn is_not_permitted(&self) -> bool {
        matches!(self.errno, Errno::EACCES | Errno::EPERM | Errno::EROFS)
    }

    /// The same without the name, where it is named already: "cannot be published: No space left on device".
    pub fn reason(&self) -> impl fmt::Display + '_ {
        Reason(self)
    }
}

struct Reason<'a>(&'a Error);

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match self.0.step {
            Step::OpenDirectory => "the directory cannot be opened",
            Step::List => "the directory cannot be listed",
            Step::Inspect => "cannot be looked at",
            Step::Read => "cannot be read",
            Step::Prepare => "a temporary file for it cannot be prepared",
            Step::Publish => "cannot be published",
            Step::Exclude => "other breakers cannot be excluded",
            Step::Break => "cannot be broken",
            Step::Remove => "cannot be removed",
        };
        write!(f, "{step}: {}", errno::words(self.0.errno))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match self.step {
            Step::OpenDirectory => "opening directory",
            Step::List => "listing directory",
            Step::Inspect => "looking at",
            Step::Read => "reading",
            Step::Prepare => "preparing a temporary file for",
            Step::Publish => "publishing",
            Step::Exclude => "excluding other breakers of",
            Step::Break => "breaking",
            Step::Remove => "removing",
        };
        write!(f, "{step} {}: {}", shown(&self.name), errno::words(self.errno))
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        io::Error::new(error.kind(), error)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::not_readable(Errno::EACCES, true)]
    #[case::not_ones_own(Errno::EPERM, true)]
    #[case::read_only(Errno::EROFS, true)]
    #[case::in_use(Errno::EBUSY, false)]
    fn an_error_shows_whether_rights_were_missing(#[case] errno: Errno, #[case] expected: bool) {
        assert_eq!(Error::new(Step::Remove, "x", errno).is_not_permitted(), expected);
    }

    /// With Unix' words and number.
    #[cfg(unix)]
    #[test]
    fn an_error_names_its_step_file_and_reason() {
        let error = Error::new(Step::Publish, "LCK..\n", Errno::ENOSPC);
        assert_eq!(error.to_string(), "publishing LCK..\\n: No space left on device");
        assert_eq!((error.raw_os_error(), error.kind()), (28, io::ErrorKind::StorageFull));
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::StorageFull);
    }
}
