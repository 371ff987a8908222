//! Locks for process numbers that no process has yet, as the memo takes one over telnet: the user and the
//! device of each. Values only.

use ttylock::{Request, ResolvedDevice};

use super::admission::User;

/// The locks for processes that do not exist yet.
#[derive(Debug, Default)]
pub(super) struct Foreseen {
    locks: Vec<Lock>,
}

/// One of them.
#[derive(Clone, Debug)]
pub(super) struct Lock {
    /// The user that asked for it.
    pub(super) user: User,
    /// What was asked for.
    pub(super) request: Request,
    /// The device that was judged.
    pub(super) device: ResolvedDevice,
    /// How many files it has.
    pub(super) files: usize,
}

impl Foreseen {
    /// One that was taken; the same one is noted once.
    pub(super) fn note(&mut self, lock: Lock) {
        let real = lock.device.real();
        let same = |it: &Lock| it.request.pid == lock.request.pid && it.device.real() == real;
        self.locks.retain(|it| !same(it));
        self.locks.push(lock);
    }

    /// How many files those of one user have; without a name all are one user.
    pub(super) fn files(&self, user: User) -> usize {
        let of_user = self.locks.iter().filter(|lock| lock.user == user);
        of_user.map(|lock| lock.files).fold(0, usize::saturating_add)
    }

    /// Keeps those of which this is true.
    pub(super) fn retain(&mut self, keeps: impl FnMut(&Lock) -> bool) {
        self.locks.retain(keeps);
    }

    /// Takes out those of which this is true.
    pub(super) fn take(&mut self, wanted: impl Fn(&Lock) -> bool) -> Vec<Lock> {
        let (taken, kept) = std::mem::take(&mut self.locks).into_iter().partition(wanted);
        self.locks = kept;
        taken
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pidlockfile::Pid;
    use ttylock::{DeviceName, follow};

    use super::*;

    fn lock(user: u32, device: &str, pid: i64, files: usize) -> Lock {
        let name = DeviceName::parse(device.as_bytes()).unwrap();
        let device = follow(Path::new("/nonexistent"), &name).unwrap();
        let request = Request { device: name, pid: Pid::new(pid).unwrap() };
        Lock { user: Some(user), request, device, files }
    }

    #[test]
    fn locks_for_future_pids_count_for_the_user_that_asked() {
        let mut foreseen = Foreseen::default();
        assert!(foreseen.is_empty());
        for (user, device, pid) in [(1, "a", 5), (1, "a", 5), (1, "a", 6), (1, "b", 5), (2, "c", 5)]
        {
            foreseen.note(lock(user, device, pid, 2));
        }
        assert_eq!([1, 2, 3].map(|user| foreseen.files(Some(user))), [6, 2, 0]);
        let came = foreseen.take(|lock| lock.request.pid == Pid::new(5).unwrap());
        assert_eq!((came.len(), foreseen.files(Some(1))), (3, 2));
        foreseen.retain(|_| false);
        assert!(foreseen.is_empty());
    }
}
