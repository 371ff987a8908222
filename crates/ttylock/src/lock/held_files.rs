//! The lock files of a daemon's locks, by their holders, so that they can be removed when these end: otherwise
//! programs that never break a stale lock would be kept out for ever. Names and numbers only: it touches no files or
//! processes.
//!
//! The list is only a hint: when a process ends, the file itself is judged.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use pidlockfile::process::{ProcessIdentity, Start};
use pidlockfile::{Name, Pid};

use super::Cause;
use super::backoff::Backoff;
use crate::limits::WATCHED_FILES_OF_A_USER;
use crate::subordinate::owner_of;

/// The user of a file; `None` if it is not known: all of these count as one user.
type User = Option<u32>;

/// The pause between two attempts at the files of a process that has ended.
const FIRST_REST: Duration = Duration::from_secs(1);

/// The longest one: a file that is held for ever costs two attempts in this time.
const LONGEST_REST: Duration = Duration::from_secs(8);

/// When a file that could not be removed is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Again {
    /// This attempt decided nothing.
    Soon,
    /// It may be kept for long. Each such attempt doubles the rest.
    Later,
}

/// The holders, each with its files. With a limit of 0, it stays empty. Only root may use all of it.
#[derive(Debug, Default)]
pub struct HeldFiles {
    limit: usize,
    holders: BTreeMap<ProcessIdentity, HolderFiles>,
    /// How many of the files are of each user.
    counts: BTreeMap<User, usize>,
    fresh: BTreeSet<ProcessIdentity>,
}

/// The files of one holder.
#[derive(Debug, Default)]
struct HolderFiles {
    files: BTreeMap<Name, User>,
    /// If it has ended, and a file of it could not be removed.
    attempts: Option<Attempts>,
}

/// The attempts to remove the files of a process that has ended.
#[derive(Clone, Copy, Debug)]
struct Attempts {
    backoff: Backoff,
    next: Instant,
    rest: Duration,
}

impl Attempts {
    fn since(now: Instant) -> Self {
        Self { backoff: Backoff::since(now), next: now, rest: FIRST_REST }
    }

    fn pause(&mut self, again: Again, now: Instant) {
        self.backoff.pause(Cause::Contended, now);
        let longer = self.rest.saturating_mul(2).min(LONGEST_REST);
        let rest = match again {
            Again::Soon => FIRST_REST,
            Again::Later => std::mem::replace(&mut self.rest, longer),
        };
        self.next = now.checked_add(rest).unwrap_or(now);
        // After the rest, another process may hold the file: the old reading of the kernel's list says nothing.
        if again == Again::Later && self.backoff.is_exhausted() {
            self.backoff = Backoff::since(self.next).exhausted(self.next);
        }
    }
}

impl HeldFiles {
    /// A list of at most this many names.
    pub(super) fn up_to(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Lists the names of a lock file, if there is room for all of them, also among those of this user.
    pub(super) fn add(&mut self, names: &[Name], who: &ProcessIdentity, user: User) {
        let user = user.map(owner_of);
        let all = self.counts.values().sum();
        let of_user = self.counts.entry(user).or_default();
        let fits = |count: usize, limit: usize| count.saturating_add(names.len()) <= limit;
        if !fits(all, self.limit) || user != Some(0) && !fits(*of_user, WATCHED_FILES_OF_A_USER) {
            return;
        }
        let files = &mut self.holders.entry(who.clone()).or_default().files;
        for name in names {
            files.entry(name.clone()).or_insert_with(|| {
                *of_user = of_user.saturating_add(1);
                user
            });
        }
        self.fresh.insert(who.clone());
    }

    /// These files are no longer of a process of this number.
    pub(super) fn forget(&mut self, names: &[Name], pid: Pid) {
        self.holders.retain(|who, held| {
            held.files.retain(|name, user| {
                let stays = who.pid != pid || !names.contains(name);
                if !stays {
                    uncount(&mut self.counts, *user);
                }
                stays
            });
            !held.files.is_empty()
        });
    }

    /// Calls `try_remove` for each file of a process that has ended. It removes the file, or returns when another
    /// attempt is needed: only then the file stays listed.
    pub(super) fn remove_each(
        &mut self,
        who: &ProcessIdentity,
        now: Instant,
        mut try_remove: impl FnMut(&Name, Backoff) -> Option<Again>,
    ) {
        let Some(held) = self.holders.get_mut(who) else { return };
        let attempts = held.attempts.get_or_insert(Attempts::since(now));
        let mut latest = None;
        held.files.retain(|name, user| {
            let again = try_remove(name, attempts.backoff);
            latest = latest.max(again);
            if again.is_none() {
                uncount(&mut self.counts, *user);
            }
            again.is_some()
        });
        match latest {
            Some(again) => attempts.pause(again, now),
            None => drop(self.holders.remove(who)),
        }
        self.fresh.remove(who);
    }

    /// When the next attempt is due, if files of ended processes are listed that could not be removed yet.
    #[must_use]
    pub fn next_attempt(&self) -> Option<Instant> {
        self.holders.values().filter_map(|held| Some(held.attempts?.next)).min()
    }

    /// The holders that have come since this was last asked. The caller reports when they end.
    pub fn take_fresh(&mut self) -> Vec<ProcessIdentity> {
        let fresh = std::mem::take(&mut self.fresh).into_iter();
        fresh.filter(|who| self.holders.contains_key(who)).collect()
    }

    /// The holders, except those that have ended and whose files are not to be tried yet.
    pub(super) fn holders(&self, now: Instant) -> impl Iterator<Item = &ProcessIdentity> {
        let is_due = move |held: &HolderFiles| held.attempts.is_none_or(|it| it.next <= now);
        self.holders.iter().filter(move |(_, held)| is_due(held)).map(|(who, _)| who)
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

/// One file of this user is no longer listed.
fn uncount(counts: &mut BTreeMap<User, usize>, user: User) {
    if let Some(count) = counts.get_mut(&user) {
        *count = count.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{LOCKS_OF_A_USER, NAMES_OF_A_LOCK};

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
    fn take(held: &mut HeldFiles, who: &ProcessIdentity) -> BTreeSet<Name> {
        let mut files = BTreeSet::new();
        held.remove_each(who, Instant::now(), |name, _| {
            files.insert(name.clone());
            None
        });
        files
    }

    #[test]
    fn each_holder_has_its_files_until_they_are_forgotten() {
        let mut held = HeldFiles::up_to(10);
        for (file, holder) in [("LCK..a", 5), ("LCK..b", 5), ("LCK..c", 6)] {
            held.add(&[name(file)], &who(holder), USER);
        }
        assert!(!held.is_empty() && held.holders(Instant::now()).eq(&[who(5), who(6)]));
        assert_eq!([5, 6, 7].map(|holder| held.count_of(&who(holder))), [2, 1, 0]);
        assert_eq!(held.take_fresh(), [who(5), who(6)]);
        assert_eq!(held.take_fresh(), []);
        held.forget(&[name("LCK..a")], pid(5));
        assert!(held.of_number(pid(5)) == [who(5)]);
        held.forget(&[name("LCK..c"), name("LCK..x")], pid(6));
        assert!(held.of_number(pid(6)).is_empty());
        assert_eq!(take(&mut held, &who(5)), BTreeSet::from([name("LCK..b")]));
        assert!(held.is_empty());
    }

    #[test]
    fn processes_of_one_number_are_told_apart() {
        let mut held = HeldFiles::up_to(10);
        let [first, second] =
            [7, 9].map(|ticks| ProcessIdentity { start: Start::At(ticks), ..who(5) });
        held.add(&[name("LCK..a")], &first, USER);
        held.add(&[name("LCK..b")], &second, USER);
        assert_eq!(held.of_number(pid(5)), [first.clone(), second.clone()]);
        assert_eq!(take(&mut held, &first), BTreeSet::from([name("LCK..a")]));
        assert_eq!((held.count_of(&first), held.count_of(&second)), (0, 1));
        held.forget(&[name("LCK..b")], pid(5));
        assert!(held.is_empty());
    }

    /// Five attempts decide nothing. Each later one that finds the file held doubles the rest, up to a bound, and is followed
    /// by one that decides by a reading of the kernel's list that began after the rest.
    #[test]
    fn a_file_that_is_held_for_long_is_tried_more_and_more_seldom() {
        let begun = Instant::now();
        let mut now = begun;
        let mut held = HeldFiles::up_to(10);
        held.add(&[name("LCK..a")], &who(5), USER);
        let (mut rests, mut is_read) = (Vec::new(), false);
        for _ in 0..18 {
            held.remove_each(&who(5), now, |_, backoff| {
                let again = if is_read { Again::Later } else { Again::Soon };
                is_read = backoff.is_exhausted() && !is_read;
                if is_read && rests.len() > 6 {
                    assert_eq!(backoff.exhausted_at(), now);
                }
                Some(again)
            });
            let next = held.next_attempt().expect("another attempt");
            assert_eq!(held.holders(next - Duration::from_nanos(1)).count(), 0);
            assert!(held.holders(next).eq(&[who(5)]));
            rests.push((next - now).as_secs());
            now = next;
        }
        assert_eq!(rests, [1, 1, 1, 1, 1, 1, 1, 1, 2, 1, 4, 1, 8, 1, 8, 1, 8, 1]);
        take(&mut held, &who(5));
        assert_eq!((held.is_empty(), held.next_attempt()), (true, None));
    }

    /// A user that plants lock files leaves room for those of all others, and all names of all locks of a user are listed.
    #[test]
    fn one_user_does_not_fill_the_list() {
        const ALL: usize = LOCKS_OF_A_USER * NAMES_OF_A_LOCK;
        let mut held = HeldFiles::up_to(4 * ALL);
        // A process for each user.
        let of = |user: u32| who(i64::from(user % 100_000) + 1);
        let add = |held: &mut HeldFiles, lock: usize, user: u32| {
            let names = (0..NAMES_OF_A_LOCK).map(|at| name(&format!("LCK..{lock}.{at}")));
            held.add(&names.collect::<Vec<_>>(), &of(user), Some(user));
        };
        (0..2 * LOCKS_OF_A_USER).for_each(|lock| add(&mut held, lock, 1000));
        assert_eq!(held.count_of(&of(1000)), ALL);
        add(&mut held, 0, 1001);
        // The numbers of a user are one user.
        crate::subordinate::add("1002:3000000000:65536");
        (0..2 * LOCKS_OF_A_USER).for_each(|lock| {
            add(&mut held, lock, 3_000_000_000 + u32::try_from(lock % 2).unwrap());
        });
        let theirs = [3_000_000_000, 3_000_000_001].map(|user| take(&mut held, &of(user)).len());
        assert_eq!(theirs.iter().sum::<usize>(), ALL);
        (0..4 * LOCKS_OF_A_USER).for_each(|lock| add(&mut held, lock, 0));
        let files = [1000, 1001, 0].map(|user| take(&mut held, &of(user)).len());
        assert_eq!(files, [ALL, NAMES_OF_A_LOCK, 3 * ALL - NAMES_OF_A_LOCK]);
        assert!(held.is_empty() && held.take_fresh().is_empty());
        // What has gone leaves room.
        for _ in 0..2 {
            (0..LOCKS_OF_A_USER).for_each(|lock| add(&mut held, lock, 1000));
            assert_eq!(take(&mut held, &of(1000)).len(), ALL);
            (0..LOCKS_OF_A_USER).for_each(|lock| add(&mut held, lock, 1000));
            let listed: Vec<Name> = held.holders[&of(1000)].files.keys().cloned().collect();
            assert_eq!(listed.len(), ALL);
            held.forget(&listed, of(1000).pid);
        }
    }
}
