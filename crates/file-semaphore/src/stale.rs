//! The rule for stale locks: what the file says, compared with what is known of its holder. The process
//! table, the clock and the machine's names come in as values.

use std::time::Duration;

use pidlockfile::Age;
use pidlockfile::process::{self, ClockShift, Fate, Start};

use crate::record::Holder;

/// By which rule a lock counts as stale.
///
/// Under none of them is a lock ever stale when the timeout is "never".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StaleRule {
    /// The holder is surely dead: at once. If only its number is known: gone, and older than the
    /// timeout.
    #[default]
    Dead,
    /// As above, and at once what a holder took under this machine's host name in another pid
    /// namespace that cannot be looked into from here ([`Liveness::Namesake`]). For containers of
    /// which only one at a time bears the name: the one that was killed and started anew.
    Host,
    /// As [`StaleRule::Dead`], and whatever is older than the timeout, even if its holder lives (the original
    /// Rust tool).
    Age,
    /// Gone, and older than the timeout as well, however sure its death is (the original
    /// TypeScript tool).
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
    /// The very process that took the lock lives, as far as can be told.
    Alive,
    /// It is surely dead: no such process, or one that started at another time, or another boot.
    Dead,
    /// Only its number is known, and some process has it.
    NumberTaken,
    /// Only its number is known, and no process has it here.
    NumberFree,
    /// It belongs to another pid namespace of this machine, under this host name: a container of
    /// the same name, which cannot be looked into from here.
    Namesake,
    /// It belongs to another machine, or to a container of another name: nothing can be told from
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

    /// Whether the holder lives, where that can be told.
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

    /// Whether a lock is stale, that was taken or renewed so long ago.
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

#[cfg(test)]
#[path = "stale_tests.rs"]
mod tests;
