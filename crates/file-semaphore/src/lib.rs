//! File-based semaphores for programs and shell scripts, that never let two in.
//!
//! Needs Linux (`/proc`, inotify, `renameat2`), Rust 1.85 and a directory that all users of the lock
//! may write to. Nothing else: no daemon, no rights, and one crate besides its own (`nix`).
//!
//! A semaphore is a path. While it is held there is a small text file, which says who holds it,
//! since when and what for; the format is that of the `file-based-semaphore` tools, so programs
//! and scripts in other languages take part. Over a plain lock file this crate adds what those
//! get wrong:
//!
//! * The file appears complete or not at all; an existing one is never replaced.
//! * "Is the holder alive?" is exact: the process number together with the process's start time,
//!   the boot and the pid namespace. A number used again, a reboot or another container neither
//!   free a lock that is held nor keep one that is not.
//! * A stale lock is broken by identity: however many try at once, only the very file that was
//!   judged goes, never a fresh one.
//! * A waiter wakes within milliseconds of a release, and waiters take turns: first come, first
//!   served.
//!
//! What to begin with: [`Semaphore::try_acquire`] and [`Semaphore::acquire`]; a timeout for one
//! call, a wait that another thread ends, or sharing: [`Semaphore::request`]; several at once:
//! [`Semaphore::try_acquire_many`]; as a future: the feature `async`. The programs `sema` and
//! `semats` are behind the feature `cli`.
//!
//! ```
//! use file_semaphore::{Config, Semaphore, Slots};
//! use std::time::Duration;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let scratch = tempfile::tempdir()?;
//! # let path = scratch.path().join("downloads");
//!
//! // At most three downloads at a time, among all processes that use this path.
//! let slots = Slots::new(3).ok_or("1 to 1024")?;
//! let config = Config { slots, acquire_timeout: Some(Duration::from_secs(30)), ..Config::default() };
//! let downloads = Semaphore::with_config(&path, config)?;
//! {
//!     let held = downloads.acquire(Some("mirror"))?;
//!     println!("downloading in slot {}", held.slot());
//! } // released here
//! # Ok(()) }
//! ```
//!
//! Locks are advisory and local: the directory must be one that the users of the lock trust, and
//! on a network file system machines must have different host names. See `sema(5)`.

/// The README's examples run as tests.
#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct Readme;

mod cleaning;
/// The programs. No part of the library's API: it may change at any time.
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
mod config;
mod error;
#[cfg(feature = "async")]
mod future;
mod judge;
pub mod limits;
mod many;
mod path;
mod record;
mod semaphore;
mod shared;
mod stale;
mod sys;
mod temporary;

pub use cleaning::{Listed, Swept, clean_all, list};
pub use config::{Config, Slots};
pub use error::{Error, PathProblem};
#[cfg(feature = "async")]
pub use future::Acquiring;
pub use judge::HeldStatus;
pub use pidlockfile::process::{ClockShift, Seen};
pub use pidlockfile::{Durability, Pid};
pub use record::{Holder, LockInfo, ParseError, Tag};
pub use semaphore::{Cancel, Guard, Releaser, Request, Semaphore, SlotStatus};
pub use stale::{Here, Judgement, StaleRule, Standing};
