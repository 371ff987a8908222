//! What the program asks of the system and gets in another way on each: itself, to be started again,
//! and an end that follows the parent's.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod unix;

#[cfg(target_os = "linux")]
pub(super) use linux::{die_with_parent, itself};
#[cfg(not(target_os = "linux"))]
pub(super) use unix::{die_with_parent, itself};
