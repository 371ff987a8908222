//! Which lock files of our directory belong to which living process, so that they can be removed
//! when it ends: programs that never break a stale lock would stand before it for ever. Names and
//! numbers only: no files, no processes.
//!
//! What is listed is not believed when the time comes: the file itself is judged then.

use std::collections::{BTreeMap, BTreeSet};

use pidlockfile::{Name, Pid};

/// The holders, each with its files. Empty, and of no effect, where the limit is 0.
#[derive(Debug, Default)]
pub(super) struct Watched {
    limit: usize,
    count: usize,
    holders: BTreeMap<Pid, BTreeSet<Name>>,
    fresh: BTreeSet<Pid>,
}

impl Watched {
    /// So many files at most.
    pub(super) fn up_to(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Lists a file, if there is room.
    pub(super) fn add(&mut self, name: &Name, pid: Pid) {
        if self.count >= self.limit {
            return;
        }
        if self.holders.entry(pid).or_default().insert(name.clone()) {
            self.count = self.count.saturating_add(1);
            self.fresh.insert(pid);
        }
    }

    /// These files are this process's no longer.
    pub(super) fn forget(&mut self, names: &[Name], pid: Pid) {
        let Some(held) = self.holders.get_mut(&pid) else { return };
        let before = held.len();
        held.retain(|name| !names.contains(name));
        self.count = self.count.saturating_sub(before.saturating_sub(held.len()));
        if held.is_empty() {
            self.holders.remove(&pid);
            self.fresh.remove(&pid);
        }
    }

    /// The files of a process, which are not listed any more.
    pub(super) fn take(&mut self, pid: Pid) -> BTreeSet<Name> {
        let names = self.holders.remove(&pid).unwrap_or_default();
        self.count = self.count.saturating_sub(names.len());
        self.fresh.remove(&pid);
        names
    }

    /// The holders that have come since this was last asked.
    pub(super) fn take_fresh(&mut self) -> Vec<Pid> {
        std::mem::take(&mut self.fresh).into_iter().collect()
    }

    pub(super) fn holders(&self) -> impl Iterator<Item = Pid> {
        self.holders.keys().copied()
    }

    pub(super) fn count_of(&self, pid: Pid) -> usize {
        self.holders.get(&pid).map_or(0, BTreeSet::len)
    }

    pub(super) fn is_held_by(&self, pid: Pid) -> bool {
        self.holders.contains_key(&pid)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(number: i64) -> Pid {
        Pid::new(number).unwrap()
    }

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn each_holder_has_its_files_until_they_are_forgotten() {
        let mut watched = Watched::up_to(10);
        for (file, holder) in [("LCK..a", 5), ("LCK..b", 5), ("LCK..c", 6)] {
            watched.add(&name(file), pid(holder));
        }
        assert!(!watched.is_empty() && watched.holders().eq([pid(5), pid(6)]));
        assert_eq!([5, 6, 7].map(|holder| watched.count_of(pid(holder))), [2, 1, 0]);
        assert_eq!(watched.take_fresh(), [pid(5), pid(6)]);
        assert_eq!(watched.take_fresh(), []);
        watched.forget(&[name("LCK..a")], pid(5));
        assert!(watched.is_held_by(pid(5)));
        watched.forget(&[name("LCK..c"), name("LCK..x")], pid(6));
        assert!(!watched.is_held_by(pid(6)));
        assert_eq!(watched.take(pid(5)), BTreeSet::from([name("LCK..b")]));
        assert!(watched.is_empty() && watched.count == 0);
    }

    #[test]
    fn the_list_is_bounded() {
        let mut watched = Watched::up_to(2);
        for file in ["LCK..a", "LCK..a", "LCK..b", "LCK..c"] {
            watched.add(&name(file), pid(5));
        }
        assert_eq!(watched.take(pid(5)).len(), 2);
        watched.add(&name("LCK..c"), pid(6));
        assert!(watched.is_held_by(pid(6)));
        let mut without = Watched::default();
        without.add(&name("LCK..a"), pid(5));
        assert!(without.is_empty());
    }
}
