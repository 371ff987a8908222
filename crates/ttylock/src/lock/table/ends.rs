//! Removes the locks of processes that have ended, for a daemon that is told of their ends.

use std::time::SystemTime;

use pidlockfile::process::{Liveness, liveness};
use pidlockfile::{Name, Pid};

use super::Table;
use super::judge::{Busy, Verdict};
use crate::limits::WATCHED_LOCKS;
use crate::lock::Event;
use crate::lock::backoff::Contention;
use crate::lock::places::Place;
use crate::lock::watched::Watched;

impl Table {
    /// Lists every lock in our own directory by its holder, and removes those of the dead.
    pub(super) fn watch_all(&mut self, own: &Place) {
        self.watched = Watched::up_to(WATCHED_LOCKS);
        let now = SystemTime::now();
        for name in own.lock_names() {
            match self.judge(own, &name, now, Contention::ComesBack) {
                Verdict::Busy(Busy::Held(pid)) => self.watched.add(&name, pid),
                Verdict::Stale(judged, stale) if stale.is_of_the_dead() => {
                    self.remove(own, &name, judged, stale);
                }
                Verdict::Stale(..) | Verdict::Contended | Verdict::Busy(_) | Verdict::Free => {}
            }
        }
    }

    /// The holders of locks whose end is of interest since this was last asked.
    pub fn take_newly_watched(&mut self) -> Vec<Pid> {
        self.watched.take_fresh()
    }

    /// Whether the end of this process is of interest.
    #[must_use]
    pub fn watches(&self, pid: Pid) -> bool {
        self.watched.is_held_by(pid)
    }

    /// How many lock files of this process are known.
    #[must_use]
    pub fn files_of(&self, pid: Pid) -> usize {
        self.watched.count_of(pid)
    }

    /// Whether the end of any process is of interest.
    #[must_use]
    pub fn watches_any(&self) -> bool {
        !self.watched.is_empty()
    }

    /// This process has ended: its locks are removed. One that waits for its parent still has its
    /// number, and is found by [`Table::the_gone`] later.
    pub fn gone(&mut self, pid: Pid) -> Vec<Event> {
        if liveness(pid) == Liveness::Alive {
            return Vec::new();
        }
        self.guards.forget(pid);
        let names = self.watched.take(pid);
        if let (false, Ok(open)) = (names.is_empty(), self.open()) {
            // In the reverse order of taking: whoever meets the first name still finds it held.
            names.iter().rev().for_each(|name| self.remove_dead(&open.own, name));
        }
        std::mem::take(&mut self.events)
    }

    fn remove_dead(&mut self, own: &Place, name: &Name) {
        if let Verdict::Stale(judged, stale) =
            self.judge(own, name, SystemTime::now(), Contention::ComesBack)
        {
            // One that is contended is somebody else's to take.
            self.remove(own, name, judged, stale);
        }
    }

    /// The watched processes that are gone, for whom nobody may have told.
    #[must_use]
    pub fn the_gone(&self) -> Vec<Pid> {
        self.watched.holders().filter(|pid| liveness(*pid) == Liveness::Gone).collect()
    }
}
