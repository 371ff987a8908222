//! The two kinds of rename(2) that never lose a file, on systems that have them.

use std::os::fd::AsFd;

use nix::errno::Errno;

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Two files change places in one step.
    Exchange,
    /// Only to a name that is free.
    NoReplace,
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
pub(super) fn rename(within: impl AsFd, from: &str, to: &str, how: How) -> Result<(), Errno> {
    use rustix::fs::RenameFlags;

    let flags = match how {
        How::Exchange => RenameFlags::EXCHANGE,
        How::NoReplace => RenameFlags::NOREPLACE,
    };
    rustix::fs::renameat_with(within.as_fd(), from, within.as_fd(), to, flags)
        .map_err(|error| Errno::from_raw(error.raw_os_error()))
}

/// Other systems have neither.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub(super) fn rename(_within: impl AsFd, _from: &str, _to: &str, how: How) -> Result<(), Errno> {
    match how {
        How::Exchange | How::NoReplace => Err(Errno::EINVAL),
    }
}
