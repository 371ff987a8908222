//! Lock files that are complete from the first moment, and are broken only if their holder is gone.
//!
//! ```
//! # let scratch = tempfile::tempdir().unwrap();
//! # let path = scratch.path().join("LCK..job");
//! match pidlockfile::try_lock(&path)? {
//!     Some(lock) => drop(lock), // this process has it until `lock` is dropped
//!     None => println!("another process has it"),
//! }
//! # Ok::<(), pidlockfile::Error>(())
//! ```
//!
//! A lock file is a file whose *name* is the lock: the process that manages to create it holds the
//! lock. Forty years of programs have got three things wrong about them. This crate does those three
//! things, and [`try_lock`] is made of them:
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
//! The three steps do not know what a lock file says; their callers bring the words and the rule for
//! stale locks:
//!
//! ```
//! use pidlockfile::{Directory, Found, Name, NewFile};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let scratch = tempfile::tempdir()?;
//! let directory = Directory::open(scratch.path())?;
//! let name = Name::new("LCK..ttyS0").ok_or("a plain file name")?;
//! let words = format!("{:>10}\n", pidlockfile::Pid::this());
//! let file = NewFile::new(words.as_bytes(), "demo");
//!
//! assert!(directory.publish(&name, &file)?.is_some());
//! assert!(directory.publish(&name, &file)?.is_none());
//!
//! let Found::File(opened) = directory.read(&name, 64)? else { return Err("it is there".into()) };
//! assert_eq!(opened.content(), words.as_bytes());
//! directory.release(&name, opened, "demo")?;
//! assert!(matches!(directory.read(&name, 64)?, Found::Nothing));
//! # Ok(()) }
//! ```
//!
//! # How a stale lock is broken
//!
//! Breakers of one file exclude each other by `flock(2)` on that file (on the inode that was
//! judged, not on its name). Under it, the name is checked to lead to that inode still, with the
//! same content and not touched since; then the finished new lock and the old one change places
//! in one step (`renameat2` with `RENAME_EXCHANGE`), so that no third party can slip in between;
//! what came out is checked once more and, should it not be what was judged (a foreign program
//! broke the lock in that very moment), changed back. Where the kernel or file system cannot
//! exchange, the old file is renamed to a private name, checked, and put back if it is not the
//! judged one.
//!
//! # How a lock is released
//!
//! [`Directory::withdraw`] removes what this process published and kept open;
//! [`Directory::try_release`] what it read and judged. Both hold `flock(2)` on the file meanwhile,
//! and step back if another process has it, which may be about to break the lock. But every user
//! who may read a lock file can hold `flock(2)` on it for ever, and must not keep its owner
//! from releasing it: after some tries, the caller calls [`Directory::release`], which ignores that
//! `flock(2)` at once.
//!
//! # Which `flock(2)` counts
//!
//! In this way a hostile local user can keep a stale lock from being broken, but cannot get it.
//! Callers with a directory that only they may write go through a [`Gate`] ([`Directory::gated`]):
//! a file in it that no other user may open excludes them from each other, so they may ignore the
//! `flock(2)` of other users ([`OpenFile::ignore_flock`]). With [`Directory::guarding`], the maker of a
//! new file locks it before it has its name, and before others may open it.
//!
//! # What is not promised
//!
//! Among programs that use this crate there is one holder, in every order of their steps, even if
//! some of them die at any step, with these exceptions and no others:
//!
//! * **Blind breakers.** A program that unlinks by name what it read some time ago can remove a
//!   fresh lock, this crate's as well as any other, and then there are two holders. Nothing can
//!   prevent that.
//! * **Death while undoing.** If a blind breaker changes the lock between the last look and the
//!   exchange, or a forced [`Directory::release`] meets a breaker that holds the `flock(2)` it
//!   took for a stranger's, a live lock is aside under a temporary name until it is changed back,
//!   some microseconds later. The name is not vacant, and what is there is busy, but if the process
//!   is killed in between, the next breaker takes the dead process's lock, and the one aside is
//!   swept. (Try [`Directory::try_release`] for longer than breaking takes before a forced
//!   release, and the second case needs a breaker stopped in mid-step as well.)
//! * **Beside the gate.** A caller that goes past a `flock(2)` of a program that knows no gate, and is breaking
//!   the same lock, has the exceptions of the forced release: "death while undoing" above, and
//!   "stopped in mid-step" below where that program removes the lock.
//! * **Stopped in mid-step.** A forced [`Directory::release`] cannot tell a foreign process that holds
//!   `flock(2)` for ever from a process of ours that was stopped between its last look and its
//!   removal of the same lock. When our process continues, it removes the file that has the name by then. Any number
//!   of forced releases keep out of each other's way; none waits for one that was stopped
//!   for more than a minute.
//! * **No exchange.** Where files cannot be exchanged (kernels before 3.15, NFS, systems other
//!   than Linux), the name is vacant while a stale lock is broken. A third process may then
//!   get the lock instead of the breaker, which does no harm; only if a blind breaker's fresh lock, or a
//!   breaker's that a forced release met, was moved aside, there can be two holders.
//! * **File systems that identify a file by its name alone**, such as bindfs and other FUSE file systems. They
//!   cannot exchange files either, and there `flock(2)` through one hard link does not exclude
//!   `flock(2)` through another. So breakers of one stale lock can meet, and two can hold: on
//!   bindfs five times in 51,494 locks, with holders that were killed all the time.
//! * **Neither rename without replacing nor hard links.** The lock is then created under its name
//!   and filled in place, so that it is visible before it is whole: a young short file must be
//!   treated as busy, because many programs write in this way.
//! * **Displacement seen from inside.** While a lock is aside, its owner's own release says
//!   "contended"; it has to try again.
//!
//! On NFS, `flock(2)` is a lock of the server's on the whole file that needs the file open for
//! writing: breaking and releasing work for those who may write the lock file, and fail with
//! [`Step::Exclude`] for others. Directories are opened once and used by handle: if one is moved
//! or replaced, the handle still means the old one.
//!
//! # What is left behind
//!
//! A process that dies between two steps leaves at most temporary files,
//! `PREFIX.PID.RANDOM.tmp` with sixteen hexadecimal digits, which [`Directory::sweep`] removes,
//! or a complete lock of a dead process, which is stale by every rule.

#![warn(clippy::exhaustive_enums, clippy::exhaustive_structs)]

mod breaking;
mod directory;
mod draft;
#[cfg(windows)]
mod errno;
mod error;
mod exchange;
mod flocked;
#[cfg(unix)]
mod forced;
mod found;
mod gate;
mod guard;
#[cfg(unix)]
mod linked;
mod name;
pub mod process;
mod status;
mod sys;
mod temporary;

#[cfg(fuzzing)]
mod checks {
    include!("../fuzz/checks.rs");
}
#[cfg(test)]
#[cfg(unix)]
mod tests;

/// The example of the README is compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(unix)]
use rustix::io as errno;

pub use directory::Directory;
#[cfg(unix)]
pub use directory::open_directory;
#[cfg(all(unix, feature = "program"))]
pub use draft::catch_file_size_signal;
pub use draft::{Durability, NewFile, Published};
pub use error::{Error, Step, words_of};
pub use exchange::Attempt;
#[cfg(feature = "program")]
pub use flocked::without_children;
pub use found::{Found, OpenFile};
pub use gate::{Entry, Gate, Occupant, Passage};
pub use guard::{PidLock, try_lock};
#[cfg(unix)]
pub use linked::Linked;
pub use name::{Name, ascii, shown};
pub use process::Pid;
pub use status::{Age, Identity, Obstacle, Status, span};
pub use sys::Rename;

/// For the fuzz target alone, which cargo-fuzz compiles with `--cfg fuzzing`: whatever is read here must be
/// right for these bytes.
#[cfg(fuzzing)]
pub fn fuzz_every_parser(data: &[u8]) {
    checks::every_parser(data);
}
