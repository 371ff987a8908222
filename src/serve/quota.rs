//! How many lock files the processes of each user have: a user who fills the lock directory keeps all others
//! from locking. Numbers only; the caller knows how many files a process has.

use std::collections::{BTreeSet, HashMap};

use pidlockfile::process::ProcessIdentity;

/// The holders of locks, by the user that asked for them.
#[derive(Debug, Default)]
pub(super) struct Quota {
    holders: HashMap<u32, BTreeSet<ProcessIdentity>>,
}

impl Quota {
    /// A process has taken a lock for this user. Root has no quota.
    pub(super) fn note(&mut self, user: Option<u32>, who: ProcessIdentity) {
        if let Some(user) = user.filter(|user| *user != 0) {
            self.holders.entry(user).or_default().insert(who);
        }
    }

    /// How many files the processes of a user have; those without any are forgotten.
    pub(super) fn files(
        &mut self,
        user: Option<u32>,
        files_of: impl Fn(&ProcessIdentity) -> usize,
    ) -> usize {
        let Some(user) = user else { return 0 };
        let Some(holders) = self.holders.get_mut(&user) else { return 0 };
        holders.retain(|who| files_of(who) > 0);
        let files = holders.iter().map(files_of).fold(0, usize::saturating_add);
        if files == 0 {
            self.holders.remove(&user);
        }
        files
    }
}

#[cfg(test)]
mod tests {
    use pidlockfile::Pid;

    use super::*;

    #[test]
    fn files_are_counted_by_user_and_the_gone_are_forgotten() {
        let [a, b, c] = [5, 6, 7].map(|pid| ProcessIdentity::bare(Pid::new(pid).unwrap()));
        let mut quota = Quota::default();
        for (user, who) in [(Some(1), &a), (Some(1), &b), (Some(2), &c), (Some(0), &c), (None, &c)]
        {
            quota.note(user, who.clone());
        }
        let files_of = |who: &ProcessIdentity| if *who == a { 3 } else { 4 };
        assert_eq!(quota.files(Some(1), files_of), 7);
        assert_eq!(quota.files(Some(2), files_of), 4);
        assert_eq!((quota.files(Some(0), files_of), quota.files(None, files_of)), (0, 0));
        assert_eq!(quota.files(Some(1), |who| usize::from(*who == b)), 1);
        assert_eq!(quota.files(Some(1), files_of), 4);
        assert_eq!(quota.files(Some(1), |_| 0), 0);
        assert!(!quota.holders.contains_key(&1));
    }
}
