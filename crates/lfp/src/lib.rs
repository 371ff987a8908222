//! Locks for serial ports from the service `lfpd`: a client library.
//!
//! ```no_run
//! # fn main() -> Result<(), lfp::LockError> {
//! let port = lfp::try_lock("/dev/ttyUSB0")?;       // lock_timeout(.., duration) waits, and lock(..) without end
//! // ... open and use /dev/ttyUSB0; it is released when `port` is dropped
//! # drop(port); Ok(()) }
//! ```
//!
//! The error says who has the port. The service makes the lock files that other serial programs respect, so its
//! clients need no right to write them.
//!
//! [`Client`] does the same for any process, step by step, and shows holders and waiters. A whole program
//! (`examples/hold.rs`):
//!
//! ```no_run
#![doc = include_str!("../examples/hold.rs")]
//! ```
//!
//! A [`Client`] blocks and has one connection, a socket of the standard library. Every wait has a deadline, and every
//! reply a largest size. It retries nothing, and uses extensions only if the caller asks for them; [`lock_timeout`] does
//! both.
//!
//! The library needs only `nix` and `rustix`. The command `lfp` is the package `lfp-cli`, which turns on the feature
//! `cli`.

pub mod client;
/// The command. No part of the library's API: it may change at any time.
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod command;
mod sys;

pub use client::{
    Address, Client, Error, LockError, PortLock, lock, lock_at, lock_timeout, try_lock,
};
pub use pidlockfile::Pid;
pub use ttylock::DeviceName;
pub use ttylock::Holder;
pub use ttylock::Outcome;

/// The README's example is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
