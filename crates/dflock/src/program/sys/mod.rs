//! What the program asks of the operating system: how a command is started, attended and stopped, which
//! signals end the program, and its user.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(unix)]
mod posix;
#[cfg(all(unix, not(target_os = "linux")))]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(target_os = "linux")]
use linux::die_with_parent;
#[cfg(unix)]
pub(super) use posix::{Attended, Endings, Tie, bytes, host, output_closed, told_to_end, user};
#[cfg(all(unix, not(target_os = "linux")))]
use unix::die_with_parent;
#[cfg(windows)]
pub(super) use windows::{Attended, Endings, Tie, bytes, host, output_closed, told_to_end, user};
