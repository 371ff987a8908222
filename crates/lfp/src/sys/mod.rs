//! What the client asks of the operating system: one file for each kind of system.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod unix;

#[cfg(target_os = "linux")]
pub(crate) use linux::{QUIETLY, peer, unix_socket};
#[cfg(all(target_os = "linux", feature = "cli"))]
pub(crate) use linux::{gains_nothing, has_capabilities};
#[cfg(not(target_os = "linux"))]
pub(crate) use unix::{QUIETLY, peer, unix_socket};
#[cfg(all(not(target_os = "linux"), feature = "cli"))]
pub(crate) use unix::{gains_nothing, has_capabilities};
