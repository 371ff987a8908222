//! Windows: the few errors that this crate distinguishes, by their POSIX names; all others keep their
//! numbers.
//!
//! Pure.

use std::io;

/// Why Windows refused something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errno {
    /// `ERROR_ACCESS_DENIED`; also of a file that is gone as soon as its last handle is closed.
    EACCES,
    /// The handle is none that others can be excluded by.
    EBADF,
    /// Another program has the file open and does not share it for this.
    EBUSY,
    /// Here nobody waits for anything: as `EBUSY`.
    EAGAIN,
    EWOULDBLOCK,
    /// There is a file of that name.
    EEXIST,
    /// Windows has no such step, or the name cannot be one of a file.
    EINVAL,
    ELOOP,
    EMLINK,
    /// There is no such file, or no such directory.
    ENOENT,
    ENOSYS,
    ENXIO,
    EOPNOTSUPP,
    EPERM,
    EROFS,
    /// Any other, by its own number.
    Other(i32),
}

impl Errno {
    /// Source: System Error Codes in winerror.h.
    pub(crate) fn of_number(number: i32) -> Self {
        match number {
            1 | 120 => Self::ENOSYS,
            2 | 3 | 53 | 67 => Self::ENOENT,
            5 => Self::EACCES,
            6 => Self::EBADF,
            19 => Self::EROFS,
            // Shared otherwise; a part is locked; a section or a loaded program uses it.
            32 | 1224 => Self::EBUSY,
            33 => Self::EWOULDBLOCK,
            50 => Self::EOPNOTSUPP,
            55 => Self::ENXIO,
            80 | 183 => Self::EEXIST,
            87 | 123 => Self::EINVAL,
            170 => Self::EAGAIN,
            1142 => Self::EMLINK,
            1314 => Self::EPERM,
            1921 => Self::ELOOP,
            other => Self::Other(other),
        }
    }
}

/// Windows' number of it.
pub(crate) fn number(errno: Errno) -> i32 {
    match errno {
        Errno::ENOSYS => 1,
        Errno::ENOENT => 2,
        Errno::EACCES => 5,
        Errno::EBADF => 6,
        Errno::EROFS => 19,
        Errno::EBUSY => 32,
        Errno::EWOULDBLOCK => 33,
        Errno::EOPNOTSUPP => 50,
        Errno::ENXIO => 55,
        Errno::EEXIST => 183,
        Errno::EINVAL => 87,
        Errno::EAGAIN => 170,
        Errno::EMLINK => 1142,
        Errno::EPERM => 1314,
        Errno::ELOOP => 1921,
        Errno::Other(number) => number,
    }
}

/// Windows' words for it.
pub(crate) fn words(errno: Errno) -> io::Error {
    io::Error::from(errno)
}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        /// For an error that the standard library has made up.
        const ERROR_GEN_FAILURE: i32 = 31;
        Self::of_number(error.raw_os_error().unwrap_or(ERROR_GEN_FAILURE))
    }
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(number(errno))
    }
}
