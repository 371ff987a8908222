//! Errors of system calls: the step, the file, and the kernel's reason. Pure.

use std::ffi::{OsStr, OsString};
use std::{fmt, io};

use crate::errno::Errno;
use crate::name::shown;

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
#[non_exhaustive]
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
    /// Entering the gate.
    Enter,
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

    /// Whether the caller lacks the right, rather than something being broken.
    #[must_use]
    pub fn is_not_permitted(&self) -> bool {
        matches!(self.errno, Errno::ACCESS | Errno::PERM | Errno::ROFS)
    }

    /// The same without the name, where it is named already: "cannot be published: No space left on device".
    pub fn reason(&self) -> impl fmt::Display + '_ {
        format!("{}: {}", self.step.words().1, words_of(&self.errno.into()))
    }
}

impl Step {
    /// What was being done to a file that is named next, and what could not be done to a file that was named before.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::OpenDirectory => ("opening directory", "the directory cannot be opened"),
            Self::List => ("listing directory", "the directory cannot be listed"),
            Self::Inspect => ("looking at", "cannot be looked at"),
            Self::Read => ("reading", "cannot be read"),
            Self::Prepare => {
                let temporary = "a temporary file for it cannot be prepared";
                ("preparing a temporary file for", temporary)
            }
            Self::Publish => ("publishing", "cannot be published"),
            Self::Enter => ("entering the gate for", "the gate cannot be entered"),
            Self::Exclude => ("excluding other breakers of", "other breakers cannot be excluded"),
            Self::Break => ("breaking", "cannot be broken"),
            Self::Remove => ("removing", "cannot be removed"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.step.words().0, shown(&self.name), words_of(&self.errno.into()))
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        io::Error::new(error.kind(), error)
    }
}

/// The system's words for an error, without its number.
#[must_use]
pub fn words_of(error: &io::Error) -> String {
    let text = error.to_string();
    let number = error.raw_os_error().map(|number| format!(" (os error {number})"));
    number.and_then(|number| text.strip_suffix(&number)).unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::not_readable(Errno::ACCESS, true)]
    #[case::not_ones_own(Errno::PERM, true)]
    #[case::read_only(Errno::ROFS, true)]
    #[case::in_use(Errno::BUSY, false)]
    fn an_error_shows_whether_rights_were_missing(#[case] errno: Errno, #[case] expected: bool) {
        assert_eq!(Error::new(Step::Remove, "x", errno).is_not_permitted(), expected);
    }

    #[cfg(unix)]
    #[rstest]
    #[case::of_the_system(io::Error::from_raw_os_error(2), "No such file or directory")]
    #[case::not_of_the_system(io::Error::other("no luck (os error 2)"), "no luck (os error 2)")]
    fn words_come_without_their_number(#[case] error: io::Error, #[case] words: &str) {
        assert_eq!(words_of(&error), words);
    }

    /// With Unix' words.
    #[cfg(unix)]
    #[test]
    fn an_error_names_its_step_file_and_reason() {
        let error = Error::new(Step::Publish, "LCK..\n", Errno::NOSPC);
        assert_eq!(error.to_string(), "publishing LCK..\\n: No space left on device");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::StorageFull);
    }
}
