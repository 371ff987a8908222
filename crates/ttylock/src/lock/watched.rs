//! Knows which of our lock files belong to which living process, so that they can be removed when it ends: otherwise
//! programs that never break a stale lock would be kept out for ever. It has names and numbers only, and touches no
//! files or processes.
//!
//! The list is only a hint: when a process ends, the file itself is judged.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use pidlockfile::process::{ProcessIdentity, Start};
use pidlockfile::{Name, Pid};

use super::Cause;
use super::backoff::Backoff;
use crate::limits::WATCHED_FILES_OF_A_USER;
use crate::subordinate::owner_of;

/// The user of a file; `None` if it is not known: all of these count as one user.
type User = Option<u32>;

/// The holders, each with its files. With a limit of 0, it stays empty. No user but root fills it.
#[derive(Debug, Default)]
pub struct Watched {
    limit: usize,
    holders: BTreeMap<ProcessIdentity, HolderFiles>,
    fresh: BTreeSet<ProcessIdentity>,
}

/// The files of one holder.
#[derive(Debug, Default)]
struct HolderFiles {
    files: BTreeMap<Name, User>,
    /// If it has ended, and another process holds a file of it.
    attempts: Option<Backoff>,
}

impl Watched {
    /// A list of at most this many files.
    pub(super) fn up_to(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Lists a file, if there is room for one more, and for one more of this user.
    pub(super) fn add(&mut self, name: &Name, who: &ProcessIdentity, user: User) {
        let user = user.map(owner_of);
        let files = || self.holders.values().flat_map(|held| &held.files);
        let of_user = || files().filter(|(_, it)| **it == user).count();
        let has_room = files().count() < self.limit
            && (user == Some(0) || of_user() < WATCHED_FILES_OF_A_USER);
        let is_known = self.holders.get(who).is_some_and(|held| held.files.contains_key(name));
        if is_known || !has_room {
            return;
        }
        self.holders.entry(who.clone()).or_default().files.insert(name.clone(), user);
        self.fresh.insert(who.clone());
    }

    /// These files are no longer of a process of this number.
    pub(super) fn forget(&mut self, names: &[Name], pid: Pid) {
        self.holders.retain(|who, held| {
            held.files.retain(|name, _| who.pid != pid || !names.contains(name));
            !held.files.is_empty()
        });
    }

    /// Calls `is_left` for each file of a process that has ended. It removes the file, or returns true if another attempt
    /// is needed: only then the file stays listed.
    pub(super) fn remove_each(
        &mut self,
        who: &ProcessIdentity,
        now: Instant,
        mut is_left: impl FnMut(&Name, Backoff) -> bool,
    ) {
        let Some(held) = self.holders.get_mut(who) else { return };
        let backoff = held.attempts.get_or_insert(Backoff::since(now));
        held.files.retain(|name, _| is_left(name, *backoff));
        backoff.pause(Cause::Breaking, now);
        if held.files.is_empty() {
            self.holders.remove(who);
        }
        self.fresh.remove(who);
    }

    /// Whether files of ended processes are listed that could not be removed yet.
    #[must_use]
    pub fn has_leftovers(&self) -> bool {
        self.holders.values().any(|held| held.attempts.is_some())
    }

    /// The holders that have come since this was last asked. The caller reports when they end.
    pub fn take_fresh(&mut self) -> Vec<ProcessIdentity> {
        let fresh = std::mem::take(&mut self.fresh).into_iter();
        fresh.filter(|who| self.holders.contains_key(who)).collect()
    }

    pub(super) fn holders(&self) -> impl Iterator<Item = &ProcessIdentity> {
        self.holders.keys()
    }

    /// The holders that have, or had, this number.
    #[must_use]
    pub fn of_number(&self, pid: Pid) -> Vec<ProcessIdentity> {
        // The smallest possible identity with this number.
        let first = ProcessIdentity { start: Start::Nobody, ..ProcessIdentity::bare(pid) };
        let later = self.holders.range(first..).map(|(who, _)| who);
        later.take_while(|who| who.pid == pid).cloned().collect()
    }

    /// How many files of this process are listed.
    #[cfg(test)]
    fn count_of(&self, who: &ProcessIdentity) -> usize {
        self.holders.get(who).map_or(0, |held| held.files.len())
    }

    /// Whether no process is listed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: User = Some(1000);

    fn pid(number: i64) -> Pid {
        Pid::new(number).unwrap()
    }

    fn who(number: i64) -> ProcessIdentity {
        ProcessIdentity::bare(pid(number))
    }

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    /// The files of a process, which all can be removed.
    fn take(watched: &mut Watched, who: &ProcessIdentity) -> BTreeSet<Name> {
        let mut files = BTreeSet::new();
        watched.remove_each(who, Instant::now(), |name, _| !files.insert(name.clone()));
        files
    }

    #[test]
    fn each_holder_has_its_files_until_they_are_forgotten() {
        let mut watched = Watched::up_to(10);
        for (file, holder) in [("LCK..a", 5), ("LCK..b", 5), ("LCK..c", 6)] {
            watched.add(&name(file), &who(holder), USER);
        }
        assert!(!watched.is_empty() && watched.holders().eq(&[who(5), who(6)]));
        assert_eq!([5, 6, 7].map(|holder| watched.count_of(&who(holder))), [2, 1, 0]);
        assert_eq!(watched.take_fresh(), [who(5), who(6)]);
        assert_eq!(watched.take_fresh(), []);
        watched.forget(&[name("LCK..a")], pid(5));
        assert!(watched.of_number(pid(5)) == [who(5)]);
        watched.forget(&[name("LCK..c"), name("LCK..x")], pid(6));
        assert!(watched.of_number(pid(6)).is_empty());
        assert_eq!(take(&mut watched, &who(5)), BTreeSet::from([name("LCK..b")]));
        assert!(watched.is_empty());
    }

    #[test]
    fn processes_of_one_number_are_told_apart() {
        let mut watched = Watched::up_to(10);
        let [first, second] =
            [7, 9].map(|ticks| ProcessIdentity { start: Start::At(ticks), ..who(5) });
        watched.add(&name("LCK..a"), &first, USER);
        watched.add(&name("LCK..b"), &second, USER);
        assert_eq!(watched.of_number(pid(5)), [first.clone(), second.clone()]);
        assert_eq!(take(&mut watched, &first), BTreeSet::from([name("LCK..a")]));
        assert_eq!((watched.count_of(&first), watched.count_of(&second)), (0, 1));
        watched.forget(&[name("LCK..b")], pid(5));
        assert!(watched.is_empty());
    }

    /// A user that plants lock files leaves room for those of all others.
    #[test]
    fn one_user_does_not_fill_the_list() {
        let mut watched = Watched::up_to(4 * WATCHED_FILES_OF_A_USER);
        // A process for each user.
        let of = |user: u32| who(i64::from(user % 100_000) + 1);
        let add = |watched: &mut Watched, file: usize, user: u32| {
            watched.add(&name(&format!("LCK..{file}")), &of(user), Some(user));
        };
        (0..2 * WATCHED_FILES_OF_A_USER).for_each(|file| add(&mut watched, file, 1000));
        assert_eq!(watched.count_of(&of(1000)), WATCHED_FILES_OF_A_USER);
        add(&mut watched, 0, 1001);
        // The numbers of a user are one user.
        crate::subordinate::add("1002:3000000000:65536");
        (0..2 * WATCHED_FILES_OF_A_USER).for_each(|file| {
            add(&mut watched, file, 3_000_000_000 + u32::try_from(file % 2).unwrap());
        });
        let theirs = [3_000_000_000, 3_000_000_001].map(|user| take(&mut watched, &of(user)).len());
        assert_eq!(theirs.iter().sum::<usize>(), WATCHED_FILES_OF_A_USER);
        (0..4 * WATCHED_FILES_OF_A_USER).for_each(|file| add(&mut watched, file, 0));
        let files = [1000, 1001, 0].map(|user| take(&mut watched, &of(user)).len());
        assert_eq!(files, [WATCHED_FILES_OF_A_USER, 1, 3 * WATCHED_FILES_OF_A_USER - 1]);
        assert!(watched.is_empty() && watched.take_fresh().is_empty());
    }
}
