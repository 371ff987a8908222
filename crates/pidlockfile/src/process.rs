//! Processes as holders: their numbers, their identity ([`ProcessIdentity`]), whether they live, and their
//! users.

#[cfg(unix)]
mod caller;
mod identity;
mod machine;
mod pid;
#[cfg(unix)]
mod stat;
#[cfg_attr(unix, path = "process/unix.rs")]
#[cfg_attr(windows, path = "process/windows.rs")]
mod system;

#[cfg(unix)]
pub use caller::of_caller;
pub use identity::{ClockShift, Fate, Here, ProcessIdentity, Start};
pub use machine::Machine;
pub use pid::{Pid, PidError};
#[cfg(unix)]
pub(crate) use stat::real_uid_in;
#[cfg(unix)]
pub use stat::{Stat, has_ended_in, numbers_in};
pub use system::*;

/// Why nothing can be said of the process that started this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the caller is elsewhere or has ended")]
pub enum NoCaller {
    /// It is outside of this pid namespace (getppid(2)).
    Outside,
    /// It has ended, and another process has adopted this one.
    Ended,
}

/// How far up is looked for an ancestor.
const GENERATIONS: usize = 64;

/// Whether `other` is this process, or one that it descends from, as `parent` tells. Allocates nothing.
pub fn descends_from(other: Pid, parent: impl Fn(Pid) -> Option<Pid>) -> bool {
    is_in_line(Pid::this(), other, parent)
}

/// Whether `ancestor` is that process, or one that it descends from, as `parent` tells. Allocates nothing.
pub fn is_in_line(process: Pid, ancestor: Pid, parent: impl Fn(Pid) -> Option<Pid>) -> bool {
    let line = std::iter::successors(Some(process), |child| parent(*child));
    line.take(GENERATIONS).any(|process| process == ancestor)
}

impl Pid {
    /// This process.
    #[must_use]
    pub fn this() -> Self {
        Self::new(std::process::id().into()).unwrap_or(Self::LARGEST)
    }
}
