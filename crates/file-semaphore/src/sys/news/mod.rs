//! How a waiter learns that something happened to lock files: one file for each kind of system.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod unix;

#[cfg(target_os = "linux")]
pub(super) use linux::Watching;
#[cfg(not(target_os = "linux"))]
pub(super) use unix::Watching;
