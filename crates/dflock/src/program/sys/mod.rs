//! What the program asks of the operating system: how a command is started, attended and stopped, which
//! signals end the program, and its user.

#[cfg(unix)]
mod posix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(super) use posix::{Attended, Endings, Tie, bytes, host, output_closed, told_to_end, user};
#[cfg(windows)]
pub(super) use windows::{Attended, Endings, Tie, bytes, host, output_closed, told_to_end, user};
