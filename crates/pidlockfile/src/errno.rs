//! Error numbers as in `errno(3)`. On Unix they are the system's own; `errno/windows.rs` has them for Windows.
//!
//! Pure.

pub(crate) use nix::errno::Errno;

/// The system's words for it.
pub(crate) fn words(errno: Errno) -> &'static str {
    errno.desc()
}
