//! The kinds of rename(2) that a line needs: the two that never lose a file, on systems that have them, and
//! the plain one.

use std::ffi::OsStr;
use std::os::fd::AsFd;

use nix::errno::Errno;

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Two files change places in one step.
    Exchange,
    /// Only to a name that is free.
    NoReplace,
    /// What had the name goes.
    Over,
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
pub(super) fn rename(within: impl AsFd, from: &OsStr, to: &OsStr, how: How) -> Result<(), Errno> {
    use rustix::fs::RenameFlags;

    let flags = match how {
        How::Exchange => RenameFlags::EXCHANGE,
        How::NoReplace => RenameFlags::NOREPLACE,
        How::Over => RenameFlags::empty(),
    };
    rustix::fs::renameat_with(within.as_fd(), from, within.as_fd(), to, flags)
        .map_err(|error| Errno::from_raw(error.raw_os_error()))
}

/// Other systems have not all of them, and then there is no line.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub(super) fn rename(
    _within: impl AsFd,
    _from: &OsStr,
    _to: &OsStr,
    how: How,
) -> Result<(), Errno> {
    match how {
        How::Exchange | How::NoReplace | How::Over => Err(Errno::EINVAL),
    }
}
