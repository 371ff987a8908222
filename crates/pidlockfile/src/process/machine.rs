//! Asks the system about processes, and applies the rule of [`ProcessIdentity::compare`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::identity::{Fate, Here, ProcessIdentity, Start};
use super::pid::Pid;
use super::system;

/// For how long it is believed what was seen of another pid namespace: every process of the machine is
/// looked at for that.
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
    /// As it looks from a place that is given, for tests.
    #[must_use]
    pub fn seen_from(here: Here) -> Self {
        Self { here: Some(Arc::new(here)), ..Self::default() }
    }

    /// Where we are. It is looked at once.
    pub fn here(&mut self) -> &Arc<Here> {
        self.here.get_or_insert_with(|| Arc::new(system::here()))
    }

    /// The process that has this number now.
    pub fn identify(&mut self, pid: Pid) -> ProcessIdentity {
        ProcessIdentity { pid, start: system::look(pid), here: Arc::clone(self.here()) }
    }

    /// What has become of a process.
    pub fn fate(&mut self, who: &ProcessIdentity) -> Fate {
        let seen = self.start_of(who);
        who.compare(self.here(), seen)
    }

    /// The start time that the system shows for a process, or for another with its number; `None` if not everything can be seen.
    pub fn start_of(&mut self, who: &ProcessIdentity) -> Option<Start> {
        let is_elsewhere = who.is_elsewhere(self.here());
        if is_elsewhere { self.look_abroad(who) } else { Some(system::look(who.pid)) }
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
        let seen = system::look_abroad(who, self.here());
        self.abroad = Some((who.clone(), Instant::now(), seen));
        seen
    }
}
