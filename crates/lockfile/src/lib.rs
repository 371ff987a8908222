//! Lock files that are published whole, judged by their holder and broken by identity.
//!
//! A lock file is a file whose *name* is the lock: who manages to create it holds the lock. Forty
//! years of programs have got three things wrong about them, and this crate does those three
//! things and nothing else:
//!
//! * **Publish** ([`Directory::publish`]): the file gets its name only when it is complete, so
//!   nobody ever reads an empty or half-written lock; an existing lock is never replaced.
//! * **Judge** ([`Directory::read`], [`process`]): the open descriptor is judged, never the name;
//!   links, fifos, directories and huge files planted in a world-writable directory neither block
//!   nor mislead. A process is gone only if the kernel says so.
//! * **Break** and **release** ([`Directory::replace`], [`Directory::release`]): only the very
//!   file that was judged is ever removed. Any number of breakers never remove a fresh lock, and
//!   the name is never vacant between the dead holder and the next one.
//!
//! What a lock file says is not known here; callers bring the words and the rule for stale ones.
//!
//! ```
//! use lockfile::{Claim, Directory, Found, Name, Publication, Durability};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let scratch = tempfile::tempdir()?;
//! let directory = Directory::open(scratch.path())?;
//! let name = Name::new("LCK..ttyS0").ok_or("a plain file name")?;
//! let words = format!("{:>10}\n", lockfile::Pid::this());
//! let claim = Claim { content: words.as_bytes(), mode: 0o444, prefix: "demo", durability: Durability::Memory };
//!
//! assert!(matches!(directory.publish(&name, &claim)?, Publication::Published(_)));
//! assert!(matches!(directory.publish(&name, &claim)?, Publication::AlreadyThere));
//!
//! let Found::File(judged) = directory.read(&name, 64)? else { return Err("it is there".into()) };
//! assert_eq!(judged.content(), words.as_bytes());
//! directory.release(&name, judged, "demo")?;
//! assert!(matches!(directory.read(&name, 64)?, Found::Nothing));
//! # Ok(()) }
//! ```
//!
//! # How a stale lock is broken
//!
//! Breakers of one file exclude each other by `flock(2)` on that file (on the inode that was
//! judged, not on its name). Under it, the name is checked to lead to that inode still, with the
//! same content; then the finished new lock and the old one change places in one step
//! (`renameat2` with `RENAME_EXCHANGE`), so that no third party can slip in between; what came
//! out is checked once more and, should it not be what was judged (a foreign program broke the
//! lock in that very moment), changed back. Where the kernel or file system cannot exchange, the
//! old file is renamed to a private name, checked, and put back if it is not the judged one.
//!
//! # What is left behind
//!
//! A process that dies between two steps leaves at most a temporary file,
//! `PREFIX.PID.RANDOM.tmp` with sixteen hexadecimal digits, which [`Directory::sweep`] removes,
//! or a complete lock of a dead process, which is stale by anybody's rule.

mod breaking;
mod directory;
mod draft;
mod error;
mod found;
mod name;
pub mod process;
mod sys;
mod temporary;

#[cfg(test)]
mod corpus_tests;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod order_tests;
#[cfg(test)]
mod schedule;
#[cfg(test)]
mod step_tests;
#[cfg(test)]
mod swap_tests;

pub use breaking::{Breaking, Removal, Withdrawal};
pub use directory::{Directory, Publication};
pub use draft::{Claim, Durability, Published};
pub use error::{Error, Step};
pub use found::{Found, Identity, Judged, Obstacle};
pub use name::Name;
pub use process::Pid;
