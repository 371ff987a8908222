//! Whether a lock is stale: what its file says, against what is known of its holder. Pure: the
//! process table, the clock and the machine's names come in as values.

use std::time::Duration;

use crate::record::{Holder, LockInfo};

/// By which rule a lock counts as stale.
///
/// Under none of them is a lock ever stale when the timeout is "never".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StaleRule {
    /// The holder is surely dead: at once. Of a holder of whom only the number is known: gone,
    /// and older than the timeout.
    #[default]
    Dead,
    /// As above, and whatever is older than the timeout, whoever lives (the original Rust tool).
    Age,
    /// Gone, and older than the timeout as well, however sure its death is (the original
    /// TypeScript tool).
    DeadAndOld,
}

/// What this process knows of where it runs. What it cannot find out is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Here {
    /// The current boot's name.
    pub boot: Option<String>,
    /// The inode number of the pid namespace.
    pub pidns: Option<u64>,
    /// The machine's name.
    pub host: Option<String>,
}

/// What the kernel says of a process number, in this namespace, now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// There is no such process; nothing else counts as gone.
    Gone,
    /// There is one, perhaps one that may not be asked further.
    Alive {
        /// When it started, in clock ticks since boot, where that can be seen.
        start: Option<u64>,
    },
}

/// What is known of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// The very process that took the lock lives, as far as can be told.
    Alive,
    /// It is surely dead: no such process, or one that started at another time, or another boot.
    Dead,
    /// Only its number is known, and some process has it.
    NumberTaken,
    /// Only its number is known, and no process has it here.
    NumberFree,
    /// It belongs to another machine or another pid namespace: nothing can be told from here.
    Elsewhere,
}

impl Standing {
    /// Judges a holder. `process` must be what the kernel says of the holder's number.
    ///
    /// The same boot is the same machine, whatever it is called by now. Another boot of a machine
    /// of the same name is this machine restarted; with another name, or none, it may be another.
    #[must_use]
    pub fn of(holder: &Holder, here: &Here, process: Process) -> Self {
        if is_elsewhere(holder, here) {
            return Self::Elsewhere;
        }
        match (holder.start(), holder.boot(), holder.pidns()) {
            (Some(_), Some(boot), Some(_)) if here.boot.as_deref() != Some(boot) => Self::Dead,
            (Some(start), Some(_), Some(_)) => match process {
                Process::Gone => Self::Dead,
                Process::Alive { start: Some(other) } if other != start => Self::Dead,
                Process::Alive { .. } => Self::Alive,
            },
            _ => match process {
                Process::Gone => Self::NumberFree,
                Process::Alive { .. } => Self::NumberTaken,
            },
        }
    }

    /// Whether the holder lives, where that can be told.
    #[must_use]
    pub fn is_alive(self) -> Option<bool> {
        match self {
            Self::Alive | Self::NumberTaken => Some(true),
            Self::Dead | Self::NumberFree => Some(false),
            Self::Elsewhere => None,
        }
    }
}

fn is_elsewhere(holder: &Holder, here: &Here) -> bool {
    let other_namespace = holder.pidns().is_some() && holder.pidns() != here.pidns;
    let named_here = holder.host().is_some() && holder.host() == here.host.as_deref();
    let other_machine = match (holder.boot(), here.boot.as_deref()) {
        (Some(theirs), Some(ours)) => theirs != ours && !named_here,
        (Some(_), None) => true,
        (None, _) => holder.host().is_some() && !named_here,
    };
    other_namespace || other_machine
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
    /// Whether a lock is stale. `now_seconds` is in seconds since 1970.
    #[must_use]
    pub fn is_stale(&self, info: &LockInfo, standing: Standing, now_seconds: u64) -> bool {
        let Some(timeout) = self.timeout else { return false };
        let old = Duration::from_secs(info.age_seconds(now_seconds)) > timeout;
        match (self.rule, standing) {
            (StaleRule::Dead | StaleRule::Age, Standing::Dead) => true,
            (StaleRule::Age, _) | (StaleRule::Dead, Standing::NumberFree) => old,
            (StaleRule::DeadAndOld, Standing::Dead | Standing::NumberFree) => old,
            (_, Standing::Alive | Standing::NumberTaken | Standing::Elsewhere) => false,
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
