//! The identity and state of a directory at one moment: what was read in it then is still valid if both are
//! unchanged. Opens and reads nothing.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pidlockfile::{Identity, Status};

/// A directory that changed less than this before it was looked at may change again without its
/// time of change moving: file systems keep time in steps of the kernel's clock, a few
/// milliseconds, some in seconds (ext4 with small inodes) and FAT in two of them.
pub const SETTLED: Duration = Duration::from_millis(2100);

/// A directory as it was at one time: its device and inode number, and the time of its last
/// change (`st_ctime`, which nobody can set).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryStamp {
    directory: Identity,
    changed: Duration,
}

impl DirectoryStamp {
    /// The stamp from a new result of `stat(2)`; `None` if the directory last changed before 1970.
    #[must_use]
    pub(crate) fn of(seen: &Status) -> Option<Self> {
        Some(Self { directory: seen.identity, changed: seen.changed? })
    }

    /// Whether a change of the directory after it was examined would have changed the stamp.
    #[must_use]
    pub(crate) fn is_settled(&self, now: SystemTime) -> bool {
        let changed = UNIX_EPOCH.checked_add(self.changed);
        let age = changed.and_then(|changed| now.duration_since(changed).ok());
        age.is_some_and(|age| age >= SETTLED)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const STAMP: DirectoryStamp = DirectoryStamp {
        directory: Identity { device: 5, inode: 6 },
        changed: Duration::new(1000, 7),
    };

    #[rstest]
    #[case::just_before(Duration::new(1002, 100_000_006), false)]
    #[case::just_then(Duration::new(1002, 100_000_007), true)]
    #[case::in_the_future(Duration::new(999, 0), false)]
    fn a_directory_is_settled_a_moment_after_its_last_change(
        #[case] now: Duration,
        #[case] settled: bool,
    ) {
        assert_eq!(STAMP.is_settled(UNIX_EPOCH + now), settled);
    }

    #[test]
    fn every_change_makes_it_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let stamp = || DirectoryStamp::of(&Status::of_path(dir.path()).unwrap());
        let first = stamp();
        let other = tempfile::tempdir().unwrap();
        assert_ne!(DirectoryStamp::of(&Status::of_path(other.path()).unwrap()), first);
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while stamp() == first {
            assert!(std::time::Instant::now() < deadline, "the clock stands still");
            std::fs::write(dir.path().join("x"), "").unwrap();
            std::fs::remove_file(dir.path().join("x")).unwrap();
        }
    }
}
