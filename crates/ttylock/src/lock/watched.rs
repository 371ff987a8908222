//! Which lock files of our directory belong to which living process, so that they can be removed
//! when it ends: programs that never break a stale lock would stand before it for ever. Names and
//! numbers only: no files, no processes.
//!
//! What is listed is not believed when the time comes: the file itself is judged then.

use std::collections::{BTreeMap, BTreeSet};

use pidlockfile::process::{ProcessIdentity, Start};
use pidlockfile::{Name, Pid};

/// The holders, each with its files. Empty, and of no effect, where the limit is 0.
#[derive(Debug, Default)]
pub(super) struct Watched {
    limit: usize,
    count: usize,
    holders: BTreeMap<ProcessIdentity, BTreeSet<Name>>,
    fresh: BTreeSet<ProcessIdentity>,
}

impl Watched {
    /// So many files at most.
    pub(super) fn up_to(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Lists a file, if there is room.
    pub(super) fn add(&mut self, name: &Name, who: &ProcessIdentity) {
        if self.count >= self.limit {
            return;
        }
        if self.holders.entry(who.clone()).or_default().insert(name.clone()) {
            self.count = self.count.saturating_add(1);
            self.fresh.insert(who.clone());
        }
    }

    /// These files are no longer of a process of this number.
    pub(super) fn forget(&mut self, names: &[Name], pid: Pid) {
        for who in self.of_number(pid) {
            let Some(held) = self.holders.get_mut(&who) else { continue };
            let before = held.len();
            held.retain(|name| !names.contains(name));
            self.count = self.count.saturating_sub(before.saturating_sub(held.len()));
            if held.is_empty() {
                self.holders.remove(&who);
                self.fresh.remove(&who);
            }
        }
    }

    /// The files of a process, which are not listed any more.
    pub(super) fn take(&mut self, who: &ProcessIdentity) -> BTreeSet<Name> {
        let names = self.holders.remove(who).unwrap_or_default();
        self.count = self.count.saturating_sub(names.len());
        self.fresh.remove(who);
        names
    }

    /// The holders that have come since this was last asked.
    pub(super) fn take_fresh(&mut self) -> Vec<ProcessIdentity> {
        std::mem::take(&mut self.fresh).into_iter().collect()
    }

    pub(super) fn holders(&self) -> impl Iterator<Item = &ProcessIdentity> {
        self.holders.keys()
    }

    /// The holders that have, or had, this number.
    pub(super) fn of_number(&self, pid: Pid) -> Vec<ProcessIdentity> {
        // The least of them.
        let first = ProcessIdentity { start: Start::Nobody, ..ProcessIdentity::bare(pid) };
        let later = self.holders.range(first..).map(|(who, _)| who);
        later.take_while(|who| who.pid == pid).cloned().collect()
    }

    pub(super) fn count_of(&self, who: &ProcessIdentity) -> usize {
        self.holders.get(who).map_or(0, BTreeSet::len)
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

    fn who(number: i64) -> ProcessIdentity {
        ProcessIdentity::bare(pid(number))
    }

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn each_holder_has_its_files_until_they_are_forgotten() {
        let mut watched = Watched::up_to(10);
        for (file, holder) in [("LCK..a", 5), ("LCK..b", 5), ("LCK..c", 6)] {
            watched.add(&name(file), &who(holder));
        }
        assert!(!watched.is_empty() && watched.holders().eq(&[who(5), who(6)]));
        assert_eq!([5, 6, 7].map(|holder| watched.count_of(&who(holder))), [2, 1, 0]);
        assert_eq!(watched.take_fresh(), [who(5), who(6)]);
        assert_eq!(watched.take_fresh(), []);
        watched.forget(&[name("LCK..a")], pid(5));
        assert!(watched.of_number(pid(5)) == [who(5)]);
        watched.forget(&[name("LCK..c"), name("LCK..x")], pid(6));
        assert!(watched.of_number(pid(6)).is_empty());
        assert_eq!(watched.take(&who(5)), BTreeSet::from([name("LCK..b")]));
        assert!(watched.is_empty() && watched.count == 0);
    }

    #[test]
    fn those_who_had_one_number_are_told_apart() {
        let mut watched = Watched::up_to(10);
        let [first, second] =
            [7, 9].map(|ticks| ProcessIdentity { start: Start::At(ticks), ..who(5) });
        watched.add(&name("LCK..a"), &first);
        watched.add(&name("LCK..b"), &second);
        assert_eq!(watched.of_number(pid(5)), [first.clone(), second.clone()]);
        assert_eq!(watched.take(&first), BTreeSet::from([name("LCK..a")]));
        assert_eq!((watched.count_of(&first), watched.count_of(&second)), (0, 1));
        watched.forget(&[name("LCK..b")], pid(5));
        assert!(watched.is_empty());
    }

    #[test]
    fn the_list_is_bounded() {
        let mut watched = Watched::up_to(2);
        for file in ["LCK..a", "LCK..a", "LCK..b", "LCK..c"] {
            watched.add(&name(file), &who(5));
        }
        assert_eq!(watched.take(&who(5)).len(), 2);
        watched.add(&name("LCK..c"), &who(6));
        assert!(watched.of_number(pid(6)) == [who(6)]);
        let mut without = Watched::default();
        without.add(&name("LCK..a"), &who(5));
        assert!(without.is_empty());
    }
}
