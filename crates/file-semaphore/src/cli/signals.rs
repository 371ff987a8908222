//! Signals of the programs: they end a wait, but do not interrupt short steps.

use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use wrapcmd::Signals;
pub(super) use wrapcmd::hold_off;

use crate::error::Error;
use crate::sys::watch::Alarm;

pub(super) fn catch_signals() -> Result<Signals, Error> {
    Signals::catch()
        .map_err(|error| system_error(Errno::try_from(error).unwrap_or(Errno::UnknownErrno)))
}

/// A signal ends a wait, and so does the end of the process that stands by.
impl Alarm for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        AsFd::as_fd(self)
    }

    fn ring(&self) -> Option<Error> {
        self.ending().map(|signal| Error::Interrupted { signal })
    }
}

/// An error of the few system calls that concern no file.
pub(super) fn system_error(errno: Errno) -> Error {
    Error::Process { message: errno.desc() }
}
