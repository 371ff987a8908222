//! Error numbers as in `errno(3)`, for Windows: the few errors that this crate distinguishes, by their POSIX names; all
//! others keep their numbers.
//!
//! Pure.

use std::io;

/// Why Windows refused something, by its own number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(i32);

impl Errno {
    /// `ERROR_ACCESS_DENIED`; also of a file that is gone as soon as its last handle is closed.
    pub(crate) const EACCES: Self = Self(5);
    /// The handle is none that others can be excluded by.
    pub(crate) const EBADF: Self = Self(6);
    /// Another program has the file open and does not share it for this.
    pub(crate) const EBUSY: Self = Self(32);
    /// Here nobody waits for anything: as `EBUSY`.
    pub(crate) const EAGAIN: Self = Self(170);
    /// `ERROR_DISK_QUOTA_EXCEEDED`.
    pub(crate) const EDQUOT: Self = Self(1295);
    /// There is a file of that name.
    pub(crate) const EEXIST: Self = Self(183);
    /// Windows has no such step, or the name cannot be one of a file.
    pub(crate) const EINVAL: Self = Self(87);
    pub(crate) const ELOOP: Self = Self(1921);
    pub(crate) const EMLINK: Self = Self(1142);
    /// There is no such file, or no such directory.
    pub(crate) const ENOENT: Self = Self(2);
    /// `ERROR_DISK_FULL`.
    pub(crate) const ENOSPC: Self = Self(112);
    pub(crate) const ENOSYS: Self = Self(1);
    pub(crate) const ENXIO: Self = Self(55);
    pub(crate) const EOPNOTSUPP: Self = Self(50);
    pub(crate) const EPERM: Self = Self(1314);
    pub(crate) const EROFS: Self = Self(19);

    /// Source: System Error Codes in winerror.h.
    pub(crate) fn of_number(number: i32) -> Self {
        match number {
            39 => Self::ENOSPC,
            120 => Self::ENOSYS,
            3 | 53 | 67 => Self::ENOENT,
            // A section or a loaded program uses it.
            1224 => Self::EBUSY,
            80 => Self::EEXIST,
            123 => Self::EINVAL,
            other => Self(other),
        }
    }

    /// Windows' words for it.
    pub(crate) fn desc(self) -> io::Error {
        io::Error::from(self)
    }
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
        Self::from_raw_os_error(errno.0)
    }
}
