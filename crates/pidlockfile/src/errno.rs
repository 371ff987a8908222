//! The system's reasons for refusing something: `errno(3)`, also where the system counts otherwise.
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
