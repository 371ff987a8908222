//! Reports changes of lock files to a waiter: one file for each kind of system.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod unix;

#[cfg(target_os = "linux")]
pub(super) use linux::Watching;
#[cfg(not(target_os = "linux"))]
pub(super) use unix::Watching;
