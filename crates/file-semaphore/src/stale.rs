//! Whether a lock is stale. First the rule: what the file says, compared with what is known of its holder; the process
//! table, the clock and the machine's names come in as values. Then [`Judge`], which applies the rule to a file that was
//! read, on the running system, and changes nothing.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use pidlockfile::process::{self, ClockShift, Fate, Start};
use pidlockfile::{Age, OpenFile};

use crate::error::{Error, InTheWay};
use crate::limits::WRITING_TIME;
use crate::record::{Fragment, Holder, LockInfo, ParseError};

/// By which rule a lock counts as stale.
///
/// Without a timeout ("never"), no lock is ever stale, whatever the rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StaleRule {
    /// A lock whose holder is surely dead is stale at once. If only the holder's number is known, the lock is stale if no
    /// process has that number, and the lock is older than the timeout.
    #[default]
    Dead,
    /// As [`StaleRule::Dead`]. A lock that was taken under this machine's host name in another pid namespace, whose
    /// processes cannot be seen from here ([`Liveness::Namesake`]), is stale at once, too. For containers of which only
    /// one at a time has the name: the one that was killed and started anew.
    Host,
    /// As [`StaleRule::Dead`]. A lock that is older than the timeout is stale, too, even if its holder lives (the
    /// original Rust tool).
    Age,
    /// A lock is stale if its holder is dead, or no process has its number, and the lock is older than the timeout (the
    /// original TypeScript tool).
    DeadAndOld,
}

/// What this process knows of where it runs. What it cannot find out is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Here {
    /// The current boot's name.
    pub boot: Option<String>,
    /// The inode number of the pid namespace.
    pub pidns: Option<u64>,
    /// The machine's name.
    pub host: Option<String>,
    /// What this process's time namespace adds to the time since boot.
    pub shift: ClockShift,
}

impl Here {
    /// The same without the name, which the kernel knows nothing of.
    pub(crate) fn place(&self) -> process::Here {
        process::Here { boot: self.boot.clone(), namespace: self.pidns, shift: self.shift }
    }
}

/// What is known of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Liveness {
    /// The very process that took the lock lives, as far as can be seen.
    Alive,
    /// It is surely dead: no such process, or one that started at another time, or another boot.
    Dead,
    /// Only its number is known, and some process has it.
    NumberTaken,
    /// Only its number is known, and no process has it here.
    NumberFree,
    /// It belongs to another pid namespace of this machine, under this host name: a container of
    /// the same name, whose processes cannot be seen from here.
    Namesake,
    /// It belongs to another machine, or to a container of another name: nothing is known from
    /// here.
    Elsewhere,
    /// There is no holder: the lock was taken to be released by name.
    Ownerless,
}

impl Liveness {
    /// Judges a holder. `seen` must be what the kernel shows of it ([`Holder::liveness`] asks); `None` if it does not
    /// show everything.
    ///
    /// Which machine it is, is decided here: the same boot is the same machine, whatever it is called by
    /// now; another boot may be this machine restarted if that has the same name; with another name, or
    /// none, it may be another. What has become of a process of this machine, all programs of this
    /// workspace decide in one place: [`process::ProcessIdentity::compare`].
    #[must_use]
    pub fn of(holder: &Holder, here: &Here, seen: Option<Start>) -> Self {
        if holder.is_nobody() {
            return Self::Ownerless;
        }
        if !is_of_this_machine(holder, here) {
            return Self::Elsewhere;
        }
        let Some(who) = holder.identity() else { return Self::NumberFree };
        let place = here.place();
        let is_known = holder.exact_start().is_some()
            || who.is_elsewhere(&place)
            || who.compare(&place, Some(Start::Unknown)).is_over();
        match who.compare(&place, seen) {
            Fate::Gone | Fate::Replaced if is_known => Self::Dead,
            Fate::Gone | Fate::Replaced => Self::NumberFree,
            Fate::Same if is_known => Self::Alive,
            Fate::Same => Self::NumberTaken,
            Fate::Elsewhere if is_named_here(holder, here) => Self::Namesake,
            Fate::Elsewhere => Self::Elsewhere,
        }
    }

    /// Whether the holder lives, where that is known.
    #[must_use]
    pub fn is_alive(self) -> Option<bool> {
        match self {
            Self::Alive | Self::NumberTaken => Some(true),
            Self::Dead | Self::NumberFree => Some(false),
            Self::Namesake | Self::Elsewhere | Self::Ownerless => None,
        }
    }
}

pub(crate) fn is_of_this_machine(holder: &Holder, here: &Here) -> bool {
    let other_namespace = holder.pidns().is_some() && holder.pidns() != here.pidns;
    match (holder.boot(), here.boot.as_deref()) {
        (Some(theirs), Some(ours)) => theirs == ours || is_named_here(holder, here),
        (Some(_), None) => false,
        (None, _) => !other_namespace && (holder.host().is_none() || is_named_here(holder, here)),
    }
}

fn is_named_here(holder: &Holder, here: &Here) -> bool {
    holder.host().is_some() && holder.host() == here.host.as_deref()
}

/// How to judge: by which rule, and what counts as old. `None` is never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StalePolicy {
    /// The rule.
    pub rule: StaleRule,
    /// Older than this is old; without it no lock is ever stale.
    pub timeout: Option<Duration>,
}

impl StalePolicy {
    /// By this rule, with what counts as old.
    #[must_use]
    pub const fn new(rule: StaleRule, timeout: Option<Duration>) -> Self {
        Self { rule, timeout }
    }

    /// Whether a lock of this age, since it was taken or renewed, is stale.
    #[must_use]
    pub fn is_stale(&self, liveness: Liveness, age: Age) -> bool {
        let Some(timeout) = self.timeout else { return false };
        let old = is_older(age, timeout);
        match (self.rule, liveness) {
            (StaleRule::Dead | StaleRule::Host | StaleRule::Age, Liveness::Dead) => true,
            (StaleRule::Host, Liveness::Namesake) => true,
            (StaleRule::Age, _) => old,
            (StaleRule::Dead | StaleRule::Host, Liveness::NumberFree) => old,
            (StaleRule::DeadAndOld, Liveness::Dead | Liveness::NumberFree) => old,
            (
                _,
                Liveness::Alive
                | Liveness::NumberTaken
                | Liveness::Namesake
                | Liveness::Elsewhere
                | Liveness::Ownerless,
            ) => false,
        }
    }
}

/// Ages count in whole seconds, as the times in lock files do.
fn is_older(age: Age, timeout: Duration) -> bool {
    age.known().is_none_or(|age| Duration::from_secs(age.as_secs()) > timeout)
}

/// What is known of a lock that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldStatus {
    /// What the file says. `None`: this process may not read it.
    pub info: Option<Result<LockInfo, ParseError>>,
    /// What is known of the holder, if the file names it; also if it names only the process, because it was cut.
    pub liveness: Option<Liveness>,
    /// Whether the next taker would break it, by this semaphore's configuration.
    pub stale: bool,
    /// How long it has been held by what the file says, else how old the file is; in seconds. `None` if both times
    /// lie in the future, or the file may not be read.
    pub age_seconds: Option<u64>,
    /// Content that does not parse, but may be the beginning of a lock.
    pub(crate) fragment: Option<Fragment>,
    /// Whether it is so young that its writer may be at it.
    pub(crate) is_being_written: bool,
}

impl HeldStatus {
    /// A lock file that may not be read: held by an unknown process.
    pub(crate) const UNREADABLE: Self = Self {
        info: None,
        liveness: None,
        stale: false,
        age_seconds: None,
        fragment: None,
        is_being_written: false,
    };

    /// What the file says, where it says anything.
    #[must_use]
    pub fn lock_info(&self) -> Option<&LockInfo> {
        self.info.as_ref()?.as_ref().ok()
    }

    /// What keeps others out, of a lock that is not stale.
    ///
    /// # Errors
    /// [`Error::Parse`]: the file is no lock, so nobody will ever release it.
    pub(crate) fn in_the_way(&self, path: impl FnOnce() -> PathBuf) -> Result<InTheWay, Error> {
        let is_being_written = self.is_being_written;
        match &self.info {
            Some(Err(problem)) if !is_being_written => {
                Err(Error::Parse { path: path(), problem: *problem })
            }
            Some(_) | None => Ok(InTheWay { is_being_written, ..InTheWay::of(self.lock_info()) }),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Judge {
    policy: StalePolicy,
    here: OnceLock<Here>,
}

impl Judge {
    pub(crate) fn new(policy: StalePolicy) -> Self {
        Self { policy, here: OnceLock::new() }
    }

    /// Where this process runs; found out once.
    pub(crate) fn here(&self) -> &Here {
        self.here.get_or_init(Here::detect)
    }

    pub(crate) fn judge(&self, opened: &OpenFile) -> HeldStatus {
        let info = LockInfo::parse(opened.content());
        let now = SystemTime::now();
        let of_file = Age::of([opened.modified()], now);
        let (liveness, stale, age) = match &info {
            Ok(info) => {
                let liveness = info.holder().liveness(self.here());
                let age = Age::of(info.taken().into_iter().chain([opened.modified()]), now);
                let idle = if info.can_be_renewed() { age.min(of_file) } else { age };
                (Some(liveness), self.policy.is_stale(liveness, idle), age)
            }
            Err(_) => (None, false, of_file),
        };
        let status = HeldStatus {
            info: Some(info),
            liveness,
            stale,
            age_seconds: age.known().map(|age| age.as_secs()),
            fragment: None,
            is_being_written: false,
        };
        if liveness.is_some() { status } else { self.judge_unparsable(status, opened, of_file) }
    }

    /// What an interrupted write has left counts as a lock of the process that it names; if it names none, of one that
    /// is gone. Any other file counts as a lock of another machine, of which nothing is known.
    fn judge_unparsable(&self, status: HeldStatus, opened: &OpenFile, age: Age) -> HeldStatus {
        let fragment = Fragment::of(opened.content());
        let named = fragment.and_then(|fragment| fragment.pid);
        let liveness = named.map(|pid| Holder::bare(pid).liveness(self.here()));
        let unnamed = if fragment.is_some() { Liveness::NumberFree } else { Liveness::Elsewhere };
        let is_being_written = fragment.is_some() && !age.reaches(WRITING_TIME);
        let is_stale = self.policy.is_stale(liveness.unwrap_or(unnamed), age);
        HeldStatus {
            liveness,
            stale: is_stale && !is_being_written,
            fragment,
            is_being_written,
            ..status
        }
    }
}

#[cfg(test)]
#[path = "stale_tests.rs"]
mod tests;
