//! Removes stale locks, and temporary files whose maker is dead. Never touches a file of a living process.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, SystemTime};

use pidlockfile::process::lives;
use pidlockfile::{Age, Attempt, Directory, Found, Name, Obstacle, Pid};

use crate::error::Error;
use crate::limits::LONGEST_FILE;
use crate::record::{LockInfo, QUEUE, READERS, lock_before, maker, temporary_of};
use crate::semaphore::files::Files;
use crate::semaphore::{Config, Slots};
use crate::stale::{HeldStatus, Judge, Liveness};
use crate::sys::number;

/// A temporary file of another machine or pid namespace is an orphan when it is older: no claim
/// takes that long.
const FOREIGN_ORPHAN: Duration = Duration::from_secs(3600);

/// What was swept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Swept {
    /// Stale locks.
    pub locks: usize,
    /// Temporary files of dead makers.
    pub temporaries: usize,
}

/// One lock of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// The lock file's name in the directory.
    pub name: OsString,
    /// What it says, and what is known of its holder.
    pub status: HeldStatus,
    /// Whether the holder shares the lock; then the name is that of the lock, and each holder is listed.
    pub shared: bool,
}

impl Listed {
    /// Whether it is more than a file without content.
    fn is_evidently_a_lock(&self) -> bool {
        self.status.fragment.is_none_or(|fragment| fragment.has_key)
    }

    /// Whether a file in the directory of readers counts as a lock. A reader's lock is never seen half-written, so a
    /// fragment is what a power cut has left. It holds nothing, and counts only when it is stale, so that it is swept.
    pub(crate) fn may_be_held(&self) -> bool {
        self.status.fragment.is_none() || self.status.stale
    }
}

/// Removes stale locks, and the temporary files beside them of dead makers.
pub(crate) fn sweep(files: &Files) -> Result<Swept, Error> {
    files.located(sweep_all(files))
}

fn sweep_all(files: &Files) -> Result<Swept, Error> {
    let mut swept = Swept::default();
    for name in &files.names {
        let Found::File(opened) = files.directory.read(name, LONGEST_FILE + 1)? else {
            continue;
        };
        if files.judge.judge(&opened).stale {
            let removal = files.directory.try_release(name, opened)?;
            swept.locks += usize::from(removal == Attempt::Done(()));
        }
    }
    swept.temporaries += usize::from(files.queue().sweep());
    let lock_names = || files.names.iter().chain([&files.place.name]);
    for name in files.directory.names()? {
        let maker = lock_names().find_map(|lock| maker(name.as_os_str().as_encoded_bytes(), lock));
        if let Some(maker) = maker {
            swept.temporaries += usize::from(sweep_one(files, &name, maker));
        }
    }
    Ok(swept)
}

fn sweep_one(files: &Files, name: &Name, maker: Pid) -> bool {
    let directory = &files.directory;
    let Ok(Found::File(opened)) = directory.read(name, LONGEST_FILE + 1) else { return false };
    let age = Age::of([opened.modified()], SystemTime::now());
    // A ticket without flock(2) belongs to no waiter, which the removal finds out; but as long as there is a
    // line, a waiter behind may have to read it.
    let queue = files.queue();
    let left = queue.is_ticket(opened.content()) && !queue.exists();
    let here = files.judge.here();
    let info = LockInfo::parse(opened.content()).ok();
    let orphan = match info.as_ref().map(LockInfo::holder) {
        _ if left => true,
        // Its maker's number means a process of another namespace, or may do so.
        Some(holder) if !holder.is_from_here(here) => !lives(maker) && age.reaches(FOREIGN_ORPHAN),
        // The number was used again.
        Some(holder)
            if holder.pid() == number(maker) && holder.liveness(here) == Liveness::Dead =>
        {
            true
        }
        Some(_) | None => !lives(maker),
    };
    orphan && matches!(directory.try_release(name, opened), Ok(Attempt::Done(())))
}

/// The locks in a directory, sorted by name: every regular file whose content parses, except
/// temporary ones, every one that is empty or cut, as a full disk or a power cut leaves it, every one that may not be
/// read, and the holders of shared locks.
///
/// # Errors
/// [`Error::System`] when the directory cannot be read.
pub fn list(directory: impl AsRef<Path>, config: Config) -> Result<Vec<Listed>, Error> {
    let directory = directory.as_ref();
    let mut listed = list_all(directory, config)?;
    for name in Directory::open(directory)?.names()? {
        let Some(lock) = lock_before(READERS, &name) else { continue };
        let readers = directory.join(name.as_os_str());
        if !readers.symlink_metadata().is_ok_and(|it| it.is_dir()) {
            continue;
        }
        // A directory that is gone by now, or is closed to the caller, has no holders that could be shown.
        let holders = list_all(&readers, config).unwrap_or_default().into_iter();
        let holders = holders.filter(Listed::may_be_held);
        listed.extend(holders.map(|it| Listed { name: lock.clone(), shared: true, ..it }));
    }
    listed.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(listed)
}

/// The lock files of a directory, sorted by name.
pub(crate) fn list_all(directory: &Path, config: Config) -> Result<Vec<Listed>, Error> {
    let handle = Directory::open(directory)?;
    let mut names = handle.names()?;
    names.retain(|name| temporary_of(name).is_none());
    names.sort();
    let judge = Judge::new(config.stale_policy());
    let mut listed = Vec::new();
    for name in names {
        let status = match handle.read(&name, LONGEST_FILE + 1) {
            Ok(Found::File(opened)) => judge.judge(&opened),
            Ok(Found::Obstacle(Obstacle::Unreadable)) => HeldStatus::UNREADABLE,
            // A file that cannot be read now is no lock that could be shown.
            Ok(Found::Nothing | Found::Obstacle(_)) | Err(_) => continue,
        };
        let is_lock = status.lock_info().is_some();
        let may_be_lock = status.info.is_none() || status.fragment.is_some();
        if is_lock || may_be_lock && lock_before(QUEUE, &name).is_none() {
            let name = name.as_os_str().to_owned();
            listed.push(Listed { name, status, shared: false });
        }
    }
    Ok(listed)
}

/// [`Semaphore::clean`](crate::Semaphore::clean) for all locks in a directory, and for those of which only temporary files
/// are left. A file in which there is nothing stays: it may be another program's, such as that of a `flock(1)`.
///
/// # Errors
/// [`Error::System`] when the directory cannot be read; a lock that cannot be removed is passed
/// over.
pub fn clean_all(directory: impl AsRef<Path>, config: Config) -> Result<Swept, Error> {
    let directory = directory.as_ref();
    let names = Directory::open(directory)?.names()?;
    let lock_of = |name| temporary_of(name).or_else(|| lock_before(QUEUE, name));
    let mut locks: Vec<OsString> = names.iter().filter_map(lock_of).collect();
    let listed = list(directory, config)?.into_iter();
    locks.extend(listed.filter(Listed::is_evidently_a_lock).map(|listed| listed.name));
    locks.sort();
    locks.dedup();
    let mut swept = Swept::default();
    let config = Config { slots: Slots::ONE, ..config };
    for lock in locks {
        let one = Files::open(&directory.join(lock), config);
        if let Ok(one) = one.and_then(|files| sweep(&files)) {
            swept.locks += one.locks;
            swept.temporaries += one.temporaries;
        }
    }
    Ok(swept)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::ours("a.lock.12.0123456789abcdef.tmp", Some(12))]
    #[case::original_tool("a.lock.12.9f8e7d6c5b4a3f2e.tmp", Some(12))]
    #[case::other_random("a.lock.12.x1Y2.tmp", Some(12))]
    #[case::other_lock("b.lock.12.0123456789abcdef.tmp", None)]
    #[case::longer_lock("a.lock.1.12.0123456789abcdef.tmp", None)]
    #[case::no_pid("a.lock.x.0123456789abcdef.tmp", None)]
    #[case::pid_zero("a.lock.0.0123456789abcdef.tmp", None)]
    #[case::pid_too_large("a.lock.99999999999.0123456789abcdef.tmp", None)]
    #[case::no_random("a.lock.12..tmp", None)]
    #[case::no_suffix("a.lock.12.0123456789abcdef", None)]
    #[case::the_lock("a.lock", None)]
    fn only_temporary_files_of_the_lock_have_a_maker(#[case] name: &str, #[case] pid: Option<i64>) {
        let lock = Name::new("a.lock").unwrap();
        assert_eq!(maker(name.as_bytes(), &lock), pid.and_then(Pid::new));
    }

    #[rstest]
    #[case::ours("a.lock.12.0123456789abcdef.tmp", true)]
    #[case::of_a_slot("a.lock.2.12.0123456789abcdef.tmp", true)]
    #[case::a_lock("a.lock", false)]
    #[case::a_slot("a.lock.12", false)]
    #[case::without_a_lock("12.0123456789abcdef.tmp", false)]
    fn a_listing_leaves_temporary_files_out(#[case] name: &str, #[case] temporary: bool) {
        assert_eq!(temporary_of(&Name::new(name).unwrap()).is_some(), temporary);
    }
}
