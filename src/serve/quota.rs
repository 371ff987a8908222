//! How many lock files each user's processes have: whoever fills the lock directory keeps everybody
//! from locking anything. Numbers only; how many files a process has, the caller knows.

use std::collections::{BTreeSet, HashMap};

use pidlockfile::Pid;

/// Who has locks, by the user that asked for them.
#[derive(Debug, Default)]
pub(super) struct Quota {
    holders: HashMap<u32, BTreeSet<Pid>>,
}

impl Quota {
    /// A process has taken a lock for this user. Root has no quota.
    pub(super) fn note(&mut self, user: Option<u32>, pid: Pid) {
        if let Some(user) = user.filter(|user| *user != 0) {
            self.holders.entry(user).or_default().insert(pid);
        }
    }

    /// How many files the processes of a user have; those without any are forgotten.
    pub(super) fn files(&mut self, user: Option<u32>, files_of: impl Fn(Pid) -> usize) -> usize {
        let Some(user) = user else { return 0 };
        let Some(holders) = self.holders.get_mut(&user) else { return 0 };
        holders.retain(|pid| files_of(*pid) > 0);
        let files = holders.iter().map(|pid| files_of(*pid)).fold(0, usize::saturating_add);
        if files == 0 {
            self.holders.remove(&user);
        }
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_counted_by_user_and_the_gone_are_forgotten() {
        let [a, b, c] = [5, 6, 7].map(|pid| Pid::new(pid).unwrap());
        let mut quota = Quota::default();
        for (user, pid) in [(Some(1), a), (Some(1), b), (Some(2), c), (Some(0), c), (None, c)] {
            quota.note(user, pid);
        }
        let files_of = |pid: Pid| if pid == a { 3 } else { 4 };
        assert_eq!(quota.files(Some(1), files_of), 7);
        assert_eq!(quota.files(Some(2), files_of), 4);
        assert_eq!((quota.files(Some(0), files_of), quota.files(None, files_of)), (0, 0));
        assert_eq!(quota.files(Some(1), |pid| usize::from(pid == b)), 1);
        assert_eq!(quota.files(Some(1), files_of), 4);
        assert_eq!(quota.files(Some(1), |_| 0), 0);
        assert!(!quota.holders.contains_key(&1));
    }
}
