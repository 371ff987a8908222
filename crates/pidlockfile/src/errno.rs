//! Error numbers as in `errno(3)`, for Windows: the few errors that this crate distinguishes, by the names that rustix has
//! for them; all others keep their numbers.
//!
//! Pure.

use std::io;

/// Why Windows refused something, by its own number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(i32);

impl Errno {
    /// `ERROR_ACCESS_DENIED`; also of a file that is gone as soon as its last handle is closed.
    pub(crate) const ACCESS: Self = Self(5);
    /// The handle is none that others can be excluded by.
    pub(crate) const BADF: Self = Self(6);
    /// Another program has the file open and does not share it for this.
    pub(crate) const BUSY: Self = Self(32);
    /// Here nobody waits for anything: as `BUSY`.
    pub(crate) const AGAIN: Self = Self(170);
    /// `ERROR_DISK_QUOTA_EXCEEDED`.
    pub(crate) const DQUOT: Self = Self(1295);
    /// There is a file of that name.
    pub(crate) const EXIST: Self = Self(183);
    /// Windows has no such step, or the name cannot be one of a file.
    pub(crate) const INVAL: Self = Self(87);
    pub(crate) const LOOP: Self = Self(1921);
    pub(crate) const MLINK: Self = Self(1142);
    /// There is no such file, or no such directory.
    pub(crate) const NOENT: Self = Self(2);
    /// `ERROR_DISK_FULL`.
    pub(crate) const NOSPC: Self = Self(112);
    pub(crate) const NOSYS: Self = Self(1);
    pub(crate) const NXIO: Self = Self(55);
    pub(crate) const OPNOTSUPP: Self = Self(50);
    pub(crate) const PERM: Self = Self(1314);
    pub(crate) const ROFS: Self = Self(19);

    /// Source: System Error Codes in winerror.h.
    pub(crate) fn of_number(number: i32) -> Self {
        match number {
            39 => Self::NOSPC,
            120 => Self::NOSYS,
            3 | 53 | 67 => Self::NOENT,
            // A section or a loaded program uses it.
            1224 => Self::BUSY,
            80 => Self::EXIST,
            123 => Self::INVAL,
            other => Self(other),
        }
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
