//! File-based semaphores for programs and shell scripts.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let scratch = tempfile::tempdir()?;
//! # let path = scratch.path().join("backup");
//! let backup = file_semaphore::Semaphore::open(&path)?;
//! let held = backup.acquire(Some("nightly"))?; // waits for it; `try_acquire` does not
//! // ... work; it is released when `held` is dropped
//! # drop(held); Ok(()) }
//! ```
//!
//! Needs Linux (`/proc`, inotify, `renameat2`), Rust 1.85 and a directory that all users of the lock
//! may write to. It needs no daemon and no further rights.
//!
//! A semaphore is a path. While it is held, a small text file at that path says which process holds it,
//! since when and what for. The format is that of the `file-based-semaphore` tools, so programs
//! and scripts in other languages can take part. This crate does right what plain lock files get wrong:
//!
//! * The file appears complete or not at all; an existing one is never replaced.
//! * "Is the holder alive?" has an exact answer: the file records the process number with the start
//!   time, the boot and the pid namespace. If a number is used again, after a reboot, or in another
//!   container, a held lock is not freed, and a free one is not kept.
//! * A stale lock is broken by identity: however many processes try at once, only the very file that was
//!   judged is removed, never a fresh one.
//! * A waiter wakes within milliseconds of a release, and waiters take turns: first come, first
//!   served.
//!
//! Begin with [`Semaphore::try_acquire`] and [`Semaphore::acquire`]. [`Semaphore::request`] has a timeout for
//! one call, a wait that another thread can end, and sharing. [`Semaphore::try_acquire_many`] takes
//! several locks at once. The feature `async` has futures, and `cli` the programs `sema` and `semats`.
//!
//! ```
//! use file_semaphore::{Config, Semaphore, Slots};
//! use std::time::Duration;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let scratch = tempfile::tempdir()?;
//! # let path = scratch.path().join("downloads");
//!
//! // At most three downloads at a time, among all processes that use this path.
//! let mut config = Config::default();
//! config.slots = Slots::new(3).ok_or("1 to 1024")?;
//! config.acquire_timeout = Some(Duration::from_secs(30));
//! let downloads = Semaphore::with_config(&path, config)?;
//! {
//!     let held = downloads.acquire(Some("mirror"))?;
//!     println!("downloading in slot {}", held.slot());
//! } // released here
//! # Ok(()) }
//! ```
//!
//! Locks are advisory and local. The users of a lock must trust its directory. On a network file
//! system the machines must have different host names. See `sema(5)`.

#![warn(clippy::exhaustive_enums, clippy::exhaustive_structs)]

/// The examples of the README and of the guide run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../../../docs/sema.md")]
struct Readme;

/// The programs. No part of the library's API: it may change at any time.
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
mod error;
#[cfg(feature = "async")]
mod future;
pub mod limits;
mod record;
mod semaphore;
mod stale;
mod sys;

pub use error::{Error, PathProblem};
#[cfg(feature = "async")]
pub use future::Acquiring;
pub use pidlockfile::process::{ClockShift, Start};
pub use pidlockfile::{Durability, Pid};
pub use record::{Holder, LockInfo, ParseError, Tag};
pub use semaphore::cleaning::{Listed, Swept, clean_all, list};
pub use semaphore::{Cancel, Config, Guard, Releaser, Request, Semaphore, SlotStatus, Slots};
pub use stale::{HeldStatus, Here, Liveness, StalePolicy, StaleRule};
