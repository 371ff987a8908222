//! The other end of the Lock File Protocol: a client for programs, and the command people type.
//!
//! A serial port has one user at a time. [`lock`] asks the service `lfpd` for a port; the service makes the lock
//! files that other serial programs respect, so that its clients need no right to write them.
//!
//! ```no_run
//! # fn main() -> Result<(), lfp::LockError> {
//! let port = lfp::lock("/dev/ttyUSB0")?;           // or lfp::lock_timeout(.., duration)
//! // ... open and use /dev/ttyUSB0; it is released when `port` is dropped
//! # drop(port); Ok(()) }
//! ```
//!
//! The error says who has the port. [`Client`] does the same for any process, step by step, and tells
//! who holds and who waits. A whole program (`examples/hold.rs`):
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

pub use client::{Address, Client, Error, LockError, PortLock, lock, lock_at, lock_timeout};
pub use pidlockfile::Pid;
pub use ttylock::DeviceName;
pub use ttylock::Holder;
pub use ttylock::Outcome;

/// The README's example is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
