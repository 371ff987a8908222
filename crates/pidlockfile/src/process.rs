//! Processes as holders: their numbers, their identity ([`ProcessIdentity`]), whether they live, and their
//! users. [`Machine`] asks the system about them, and applies the rule of [`ProcessIdentity::compare`].

use std::sync::Arc;
use std::time::{Duration, Instant};

#[cfg(all(unix, feature = "caller"))]
mod caller;
mod identity;
mod pid;
#[cfg_attr(windows, expect(dead_code, unreachable_pub, reason = "there is no /proc"))]
mod stat;
#[cfg_attr(unix, path = "process/unix.rs")]
#[cfg_attr(windows, path = "process/windows.rs")]
mod system;

#[cfg(all(unix, feature = "caller"))]
pub use caller::of_caller;
pub use identity::{ClockShift, Fate, Here, ProcessIdentity, Start};
pub use pid::{Pid, PidError};
pub use stat::Ids;
#[cfg(unix)]
pub use stat::{Stat, field_in, has_ended_in, numbers_in};
pub use system::*;

/// How long an observation of another pid namespace counts. To make one, every process of the machine is examined.
const SEEN_ABROAD: Duration = Duration::from_secs(1);

/// The machine as a caller that asks about processes sees it.
///
/// ```
/// use pidlockfile::process::{Fate, Machine, Pid};
///
/// let mut machine = Machine::default();
/// let this = machine.identify(Pid::this());
/// assert_eq!(machine.fate(&this), Fate::Same);
/// ```
#[derive(Debug, Default)]
pub struct Machine {
    here: Option<Arc<Here>>,
    abroad: Option<(ProcessIdentity, Instant, Option<Start>)>,
}

impl Machine {
    /// The machine as it is seen from a given place, for tests.
    #[must_use]
    pub fn seen_from(here: Here) -> Self {
        Self { here: Some(Arc::new(here)), ..Self::default() }
    }

    /// Where this process is. It is read once.
    pub fn here(&mut self) -> &Arc<Here> {
        self.here.get_or_insert_with(|| Arc::new(here()))
    }

    /// The process that has this number now.
    pub fn identify(&mut self, pid: Pid) -> ProcessIdentity {
        ProcessIdentity { pid, start: look(pid), here: Arc::clone(self.here()) }
    }

    /// What has become of a process.
    pub fn fate(&mut self, who: &ProcessIdentity) -> Fate {
        let seen = self.start_of(who);
        who.compare(self.here(), seen)
    }

    /// The start time that the system shows for a process, or for another with its number; `None` if not everything can be seen.
    pub fn start_of(&mut self, who: &ProcessIdentity) -> Option<Start> {
        let is_elsewhere = who.is_elsewhere(self.here());
        if is_elsewhere { self.look_abroad(who) } else { Some(look(who.pid)) }
    }

    /// Whether it existed and has ended. A process that never existed has not ended.
    pub fn has_ended(&mut self, who: &ProcessIdentity) -> bool {
        who.start != Start::Nobody && self.fate(who).is_over()
    }

    fn look_abroad(&mut self, who: &ProcessIdentity) -> Option<Start> {
        if let Some((known, when, seen)) = &self.abroad {
            if known == who && when.elapsed() < SEEN_ABROAD {
                return *seen;
            }
        }
        let seen = look_abroad(who, self.here());
        self.abroad = Some((who.clone(), Instant::now(), seen));
        seen
    }
}

/// The user who has started a process. `None` as for [`users`].
#[must_use]
pub fn real_user(pid: Pid) -> Option<u32> {
    users(pid).map(|users| users.real)
}

/// Why nothing can be said of the process that started this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the caller is elsewhere or has ended")]
pub enum NoCaller {
    /// It is outside of this pid namespace (getppid(2)).
    Outside,
    /// It has ended, and another process has adopted this one.
    Ended,
}

/// The first process of a pid namespace.
const FIRST: i32 = 1;

/// The most generations that are searched for an ancestor.
const GENERATIONS: usize = 64;

/// Whether a lock of `holder` is this process's as well: it is this process, or one that it descends from, by
/// `parent`. Never the first process of a pid namespace, unless it is this one: every process descends from it, and a 1 is
/// how administrators reserve a port. Allocates nothing.
pub fn shares_locks_of(holder: Pid, parent: impl Fn(Pid) -> Option<Pid>) -> bool {
    shares(Pid::this(), holder, parent)
}

fn shares(process: Pid, holder: Pid, parent: impl Fn(Pid) -> Option<Pid>) -> bool {
    process == holder || holder.as_raw() != FIRST && is_in_line(process, holder, parent)
}

/// Whether `ancestor` is that process, or one that it descends from, by `parent`. Allocates nothing.
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// 1 has started 5, which has started 7, which has started 9.
    fn parent(process: Pid) -> Option<Pid> {
        Pid::new([(9, 7), (7, 5), (5, 1)].iter().find(|(child, _)| *child == process.as_raw())?.1)
    }

    #[rstest]
    #[case::its_own(9, 9, true)]
    #[case::its_parents(9, 7, true)]
    #[case::an_ancestors(9, 5, true)]
    #[case::its_childs(5, 9, false)]
    #[case::a_strangers(9, 6, false)]
    #[case::everybodys_ancestor(9, 1, false)]
    #[case::its_parent_is_the_first(5, 1, false)]
    #[case::it_is_the_first(1, 1, true)]
    fn a_process_shares_the_locks_of_its_ancestors_but_the_first(
        #[case] process: i64,
        #[case] holder: i64,
        #[case] shared: bool,
    ) {
        let pid = |number| Pid::new(number).unwrap();
        assert_eq!(shares(pid(process), pid(holder), parent), shared);
    }
}
