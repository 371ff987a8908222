//! Error numbers as in `errno(3)`, also on systems with other numbers.
//!
//! Pure.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use unix::*;
#[cfg(windows)]
pub(crate) use windows::*;
