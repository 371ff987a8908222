//! The other end of the Lock File Protocol: a client for programs, and the command people type.
//!
//! [`client`] speaks to a service and needs nothing else. With feature `cli` there is also
//! `command`, the whole of `lfp`.

pub mod client;
#[cfg(feature = "cli")]
pub mod command;
#[cfg(feature = "cli")]
mod limits;
