//! Unix: the system's own error numbers. Pure.

pub(crate) use nix::errno::Errno;

/// The system's number of it.
pub(crate) fn number(errno: Errno) -> i32 {
    errno as i32
}

/// The system's words for it.
pub(crate) fn words(errno: Errno) -> &'static str {
    errno.desc()
}
