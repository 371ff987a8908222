//! What the operating system knows of processes and of itself, and how it wakes a waiter. Everything that only Linux
//! has (`/proc`, namespaces, inotify) is in this directory. Other systems know less: of a holder only the number is
//! known, and waiters check from time to time. Decides nothing about locks; `queue.rs` decides who tries next.

#[cfg(unix)]
mod queue;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
mod watch;
#[cfg(windows)]
mod windows;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use pidlockfile::Pid;
use pidlockfile::process::{self, Fate, Machine, ProcessIdentity, Start};

use crate::limits::LONGEST_WORD;
use crate::record::{Holder, one_line};
use crate::stale::{Here, Liveness, is_of_this_machine};

#[cfg(unix)]
pub(crate) use queue::{Queue, Ticket};
#[cfg(all(unix, any(feature = "cli", test)))]
pub(crate) use unix::flock_exclusively;
#[cfg(unix)]
use unix::host_name;
#[cfg(unix)]
pub(crate) use unix::{make_directory_alike, may_follow_link};
#[cfg(unix)]
pub(crate) use watch::{Alarm, Bell, Watch};
#[cfg(windows)]
use windows::host_name;
#[cfg(windows)]
pub(crate) use windows::{
    Alarm, Bell, Queue, Ticket, Watch, make_directory_alike, may_follow_link,
};

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// One of the names was removed, moved or closed after writing, the readers' directory has changed, or the ticket
    /// before is gone.
    #[cfg_attr(windows, expect(dead_code, reason = "Windows does not report it"))]
    Change,
    /// The time is over.
    Time,
    /// The alarm became readable.
    Alarm,
}

impl Here {
    /// Looks where this process runs: `/proc/sys/kernel/random/boot_id`, `/proc/self/ns/pid`,
    /// `/proc/self/timens_offsets` and uname(2). Without `/proc` locks can still be taken, only
    /// less is known of them.
    #[must_use]
    pub fn detect() -> Self {
        let host = host_name();
        let host = host.and_then(|name| one_line(&name.to_string_lossy(), LONGEST_WORD));
        let process::Here { boot, namespace, shift } = (**Machine::default().here()).clone();
        Self { boot, pidns: namespace, host, shift }
    }
}

impl Holder {
    /// Describes a process of this pid namespace, as exactly as the system allows. `None` when
    /// there is no such process.
    ///
    /// Its start time is left out where a time namespace shifts it by a part of a tick: another
    /// reader would see another tick.
    #[must_use]
    pub fn of(pid: Pid, here: &Here) -> Option<Self> {
        let start_ticks = match Machine::seen_from(here.place()).identify(pid).start {
            Start::Nobody => return None,
            Start::Unknown => None,
            Start::At(ticks) => Some(ticks),
        };
        let per_second = process::ticks_per_second();
        let exactly = per_second.filter(|per_second| here.shift.is_exact(*per_second));
        let start = start_ticks.zip(exactly);
        let start = start.and_then(|(ticks, per_second)| here.shift.undo(ticks, per_second));
        let Here { boot, pidns, host, .. } = here.clone();
        Some(Self { start, boot, pidns, host, ..Self::bare(number(pid)) })
    }

    /// Which process it is, where it is one of this machine: its start time as the machine counts it. A
    /// number that no process can have is none.
    pub(crate) fn identity(&self) -> Option<ProcessIdentity> {
        let pid = i64::try_from(self.pid()).ok().and_then(Pid::new)?;
        let start = self.exact_start().map_or(Start::Unknown, Start::At);
        let boot = self.boot().map(str::to_owned);
        let here = process::Here { boot, namespace: self.pidns(), ..process::Here::default() };
        Some(ProcessIdentity { pid, start, here: Arc::new(here) })
    }

    /// What is known of this holder now.
    #[must_use]
    pub fn liveness(&self, here: &Here) -> Liveness {
        let who = self.identity().filter(|_| is_of_this_machine(self, here));
        let seen = who.and_then(|who| Machine::seen_from(here.place()).start_of(&who));
        Liveness::of(self, here, seen)
    }

    /// Whether its number is one of this boot and pid namespace, as far as is known.
    pub(crate) fn is_from_here(&self, here: &Here) -> bool {
        let place = here.place();
        let is_ours = |who: ProcessIdentity| {
            !who.is_elsewhere(&place) && who.compare(&place, Some(Start::Unknown)) == Fate::Same
        };
        is_of_this_machine(self, here) && self.identity().is_none_or(is_ours)
    }
}

/// What a mutex of ours guards is whole at any time, also after a panic elsewhere.
pub(crate) fn guarded<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes a directory, unless somebody has a file in it.
pub(crate) fn remove_if_empty(directory: &Path) {
    let _ = std::fs::remove_dir(directory);
}

/// A process number as lock files write it.
pub(crate) fn number(pid: Pid) -> u64 {
    u64::from(pid.as_raw().unsigned_abs())
}

/// A random number, for a name.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Seconds since 1970; a clock before that stands at zero.
pub(crate) fn now_seconds() -> u64 {
    seconds(SystemTime::now()).unwrap_or(0)
}

/// A time in seconds since 1970; none before that.
pub(crate) fn seconds(time: SystemTime) -> Option<u64> {
    time.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn this_process_is_known_exactly_and_lives() {
        let here = Here::detect();
        let holder = Holder::of(Pid::this(), &here).unwrap();
        assert_eq!(holder.pid(), u64::from(std::process::id()));
        assert!(holder.start().is_some() && holder.pidns().is_some());
        // On Windows start times go on over a boot.
        assert_eq!(holder.boot().is_some(), cfg!(unix));
        assert_eq!(holder.liveness(&here), Liveness::Alive);
    }

    #[test]
    fn a_process_that_is_gone_cannot_be_described() {
        let short = if cfg!(windows) { "hostname" } else { "true" };
        let mut child = std::process::Command::new(short).spawn().unwrap();
        let pid = Pid::new(i64::from(child.id())).unwrap();
        child.wait().unwrap();
        assert_eq!(Holder::of(pid, &Here::detect()), None);
    }

    #[rstest]
    #[case::zero(0)]
    #[case::beyond_any_pid(5_000_000_000)]
    #[case::largest(u64::MAX)]
    fn a_number_no_process_can_have_is_free(#[case] pid: u64) {
        assert_eq!(Holder::bare(pid).liveness(&Here::detect()), Liveness::NumberFree);
    }
}
