//! The other end of the Lock File Protocol: a client for programs, and the command people type.
//!
//! A serial port has one user at a time. [`Client`] asks the service `lfpd` for a port's lock, in
//! the name of a process; the service makes the lock files that other serial programs look at, so
//! its clients need no right to write them. This is a whole program (`examples/hold.rs`):
//!
//! ```no_run
#![doc = include_str!("../examples/hold.rs")]
//! ```
//!
//! Blocking, one connection, the standard library's sockets: every wait has a deadline, every
//! reply a largest size. Nothing is retried, and no extension is sent unasked.
//!
//! With feature `cli` there is also `command`, the whole of the program `lfp`; without it (`default-features =
//! false`) the library brings `nix` and `rustix` and nothing else of others.

pub mod client;
#[cfg(feature = "cli")]
pub mod command;
mod limits;
mod sys;

pub use client::{Address, Client, Error};
pub use pidlockfile::Pid;
pub use ttylock::device::name::DeviceName;
pub use ttylock::lock::Outcome;
pub use ttylock::lock::who::Holder;
