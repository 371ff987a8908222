//! Decides whether a known process still exists, for every lock, guard, watch and signal of all programs
//! here.
//!
//! A number alone does not identify a process for long. A [`ProcessIdentity`] also has the start time and the
//! namespace and boot in which both are valid, so a later process with the same number is another one.
//! [`ProcessIdentity::compare`] is the rule; [`Machine`](super::Machine) asks the system and applies it.

use std::sync::Arc;

use super::Pid;
use super::system;

/// Where process numbers and start times mean something. `None` is what the system does not show.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_structs, reason = "a record of a process has every field")]
pub struct Here {
    /// The kernel's name for this boot.
    pub boot: Option<String>,
    /// The inode number of the pid namespace.
    pub namespace: Option<u64>,
    /// By how much a time namespace moves start times.
    pub shift: ClockShift,
}

/// What a time namespace adds to every start time that is read in it (time_namespaces(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_structs, reason = "it is one number")]
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

/// When a process began, as it is remembered, or as the system shows it now: of its number here, or of the very
/// process in another pid namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a record of a process has each")]
pub enum Start {
    /// There is no such process, or one that has ended: none that comes later is it.
    Nobody,
    /// There is one, and the system does not show since when; or only the number is known.
    Unknown,
    /// In clock ticks, as they are read here; in an identity, as they were read in [`ProcessIdentity::here`].
    At(u64),
}

/// A process, with what distinguishes it from later processes with its number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_structs, reason = "a record of a process has every field")]
pub struct ProcessIdentity {
    /// Its number.
    pub pid: Pid,
    /// When it began.
    pub start: Start,
    /// Where both mean something.
    pub here: Arc<Here>,
}

/// What has become of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "whoever breaks locks decides about each")]
pub enum Fate {
    /// It is there still, as far as that can be found out.
    Same,
    /// It has ended: there is no such process, or one that nobody has waited for yet (a zombie), or
    /// the machine was started anew.
    Gone,
    /// It has ended, and its number is another process's now.
    Replaced,
    /// Its number belongs to another pid namespace that cannot be looked into from here.
    Elsewhere,
}

impl Fate {
    /// Whether it has surely ended.
    #[must_use]
    pub fn is_over(self) -> bool {
        match self {
            Self::Gone | Self::Replaced => true,
            Self::Same | Self::Elsewhere => false,
        }
    }
}

impl ProcessIdentity {
    /// A process of which only the number is known, and that it is one of ours.
    #[must_use]
    pub fn bare(pid: Pid) -> Self {
        Self { pid, start: Start::Unknown, here: Arc::default() }
    }

    /// Whether its number means something in another pid namespace than this.
    #[must_use]
    pub fn is_elsewhere(&self, here: &Here) -> bool {
        self.here.namespace.is_some() && self.here.namespace != here.namespace
    }

    /// The rule, apart from where the facts come from. `seen` is what the system shows of the process now; `None` if
    /// not everything can be seen from here. The namespace comes before the boot: a container
    /// may have a boot's name of its own, and its processes live all the same.
    #[must_use]
    pub fn compare(&self, here: &Here, seen: Option<Start>) -> Fate {
        if self.is_elsewhere(here) {
            return match seen {
                Some(Start::Nobody) => Fate::Gone,
                Some(Start::Unknown | Start::At(_)) => Fate::Same,
                None => Fate::Elsewhere,
            };
        }
        let boots = self.here.boot.as_ref().zip(here.boot.as_ref());
        if boots.is_some_and(|(theirs, ours)| theirs != ours) {
            return Fate::Gone;
        }
        match (seen, self.start) {
            (Some(Start::Nobody), _) => Fate::Gone,
            (None, _) => Fate::Elsewhere,
            (Some(_), Start::Nobody) => Fate::Replaced,
            (Some(_), Start::Unknown) | (Some(Start::Unknown), _) => Fate::Same,
            (Some(Start::At(now)), Start::At(then)) => {
                let same = is_one_moment((then, self.here.shift), (now, here.shift));
                if same { Fate::Same } else { Fate::Replaced }
            }
        }
    }
}

/// Whether two start times that were read in two time namespaces are one. Where a shift is no whole
/// number of ticks, the tick beside it may be the same.
pub(super) fn is_one_moment(one: (u64, ClockShift), other: (u64, ClockShift)) -> bool {
    if one.1 == other.1 {
        return one.0 == other.0;
    }
    let Some(per_second) = system::ticks_per_second() else { return false };
    let moments = one.1.undo(one.0, per_second).zip(other.1.undo(other.0, per_second));
    let inexact = [one.1, other.1].iter().filter(|shift| !shift.is_exact(per_second)).count();
    moments.is_some_and(|(one, other)| {
        usize::try_from(one.abs_diff(other)).is_ok_and(|apart| apart <= inexact)
    })
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
