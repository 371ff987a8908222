//! Whether a lock is stale: what its file says, against what is known of its holder. Pure: the
//! process table, the clock and the machine's names come in as values.

use std::time::Duration;

use crate::record::Holder;

/// By which rule a lock counts as stale.
///
/// Under none of them is a lock ever stale when the timeout is "never".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StaleRule {
    /// The holder is surely dead: at once. Of a holder of whom only the number is known: gone,
    /// and older than the timeout.
    #[default]
    Dead,
    /// As above, and at once what a holder took under this machine's host name in another pid
    /// namespace that cannot be looked into from here ([`Standing::Namesake`]). For containers of
    /// which only one at a time bears the name: the one that was killed and started anew.
    Host,
    /// As [`StaleRule::Dead`], and whatever is older than the timeout, whoever lives (the original
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

/// What a time namespace adds to every start time that is read in it (time_namespaces(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockShift {
    /// In nanoseconds; zero outside containers.
    pub nanoseconds: i128,
}

impl ClockShift {
    /// A start time as the machine itself counts it, from one that was read here; none from before
    /// the machine's start.
    #[must_use]
    pub fn undo(self, ticks: u64, ticks_per_second: u64) -> Option<u64> {
        let tick = 1_000_000_000_i128.checked_div(i128::from(ticks_per_second))?;
        u64::try_from(i128::from(ticks).checked_sub(self.nanoseconds.checked_div_euclid(tick)?)?)
            .ok()
    }

    /// Whether [`undo`](Self::undo) gives the very tick, not one beside it.
    #[must_use]
    pub fn is_exact(self, ticks_per_second: u64) -> bool {
        let tick = 1_000_000_000_i128.checked_div(i128::from(ticks_per_second));
        tick.is_some_and(|tick| self.nanoseconds.checked_rem(tick) == Some(0))
    }
}

/// What the kernel says of a holder's process now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Process {
    /// There is none: no such number, or one that has ended and whose parent has yet to take note
    /// (a zombie).
    Gone,
    /// There is one, perhaps one that may not be asked further.
    Alive {
        /// When it started, in clock ticks since the machine did, where that can be seen.
        start: Option<u64>,
    },
    /// The number belongs to another pid namespace, and from here not all processes are seen.
    Unseen,
}

/// What is known of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Standing {
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

/// Where a holder belongs, seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// This boot and pid namespace, as far as is known.
    Here,
    /// An earlier boot of this machine.
    EarlierBoot,
    /// This boot, and another pid namespace.
    OtherNamespace,
    /// Perhaps another machine.
    Elsewhere,
}

impl Standing {
    /// Judges a holder. `process` must be what the kernel says of it
    /// ([`Holder::standing`] asks).
    ///
    /// The same boot is the same machine, whatever it is called by now. Another boot of a machine
    /// of the same name is this machine restarted, with all its containers; with another name, or
    /// none, it may be another.
    #[must_use]
    pub fn of(holder: &Holder, here: &Here, process: Process) -> Self {
        if holder.is_nobody() {
            return Self::Ownerless;
        }
        match Place::of(holder, here) {
            Place::EarlierBoot => Self::Dead,
            Place::Elsewhere => Self::Elsewhere,
            Place::Here => Self::of_local(holder, process),
            Place::OtherNamespace => match process {
                Process::Gone => Self::Dead,
                Process::Alive { .. } => Self::Alive,
                Process::Unseen if is_named_here(holder, here) => Self::Namesake,
                Process::Unseen => Self::Elsewhere,
            },
        }
    }

    fn of_local(holder: &Holder, process: Process) -> Self {
        match holder.exact_start() {
            Some(start) => match process {
                Process::Gone => Self::Dead,
                Process::Alive { start: Some(other) } if other != start => Self::Dead,
                Process::Alive { .. } | Process::Unseen => Self::Alive,
            },
            None => match process {
                Process::Gone => Self::NumberFree,
                Process::Alive { .. } | Process::Unseen => Self::NumberTaken,
            },
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

impl Place {
    pub(crate) fn of(holder: &Holder, here: &Here) -> Self {
        let other_namespace = holder.pidns().is_some() && holder.pidns() != here.pidns;
        match (holder.boot(), here.boot.as_deref()) {
            (Some(theirs), Some(ours)) if theirs == ours && other_namespace => Self::OtherNamespace,
            (Some(theirs), Some(ours)) if theirs == ours => Self::Here,
            (Some(_), Some(_)) if is_named_here(holder, here) => Self::EarlierBoot,
            (Some(_), _) => Self::Elsewhere,
            (None, _) if other_namespace => Self::Elsewhere,
            (None, _) if holder.host().is_some() && !is_named_here(holder, here) => Self::Elsewhere,
            (None, _) => Self::Here,
        }
    }
}

fn is_named_here(holder: &Holder, here: &Here) -> bool {
    holder.host().is_some() && holder.host() == here.host.as_deref()
}

/// How to judge: by which rule, and what counts as old. `None` is never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The rule.
    pub rule: StaleRule,
    /// Older than this is old; without it no lock is ever stale.
    pub timeout: Option<Duration>,
}

impl Judgement {
    /// Whether a lock is stale, that was taken or renewed so long ago.
    #[must_use]
    pub fn is_stale(&self, standing: Standing, age_seconds: u64) -> bool {
        let Some(timeout) = self.timeout else { return false };
        let old = Duration::from_secs(age_seconds) > timeout;
        match (self.rule, standing) {
            (StaleRule::Dead | StaleRule::Host | StaleRule::Age, Standing::Dead) => true,
            (StaleRule::Host, Standing::Namesake) => true,
            (StaleRule::Age, _) => old,
            (StaleRule::Dead | StaleRule::Host, Standing::NumberFree) => old,
            (StaleRule::DeadAndOld, Standing::Dead | Standing::NumberFree) => old,
            (
                _,
                Standing::Alive
                | Standing::NumberTaken
                | Standing::Namesake
                | Standing::Elsewhere
                | Standing::Ownerless,
            ) => false,
        }
    }

    /// Whether a file that does not parse is stale: nothing is known of its holder, who may be
    /// writing it or use it as an empty lock, so only age by the file's own time can tell.
    #[must_use]
    pub fn is_unreadable_stale(&self, age: Duration) -> bool {
        self.rule == StaleRule::Age && self.timeout.is_some_and(|timeout| age > timeout)
    }
}

#[cfg(test)]
#[path = "stale_tests.rs"]
mod tests;
