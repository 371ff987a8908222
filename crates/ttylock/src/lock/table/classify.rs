//! Classifies a lock file for a request: it is free or stale, or keeps others out.

use std::time::{Duration, SystemTime};

use pidlockfile::process::{self, Fate, ProcessIdentity, lives};
use pidlockfile::{Age, Found};

use super::lock_file::{Busy, Lock, Stale, pid_in};
use super::recovery;
use super::state::State;
use crate::lock::directories::{LockFile, Place};
use crate::subordinate::OVERFLOW_UID;

/// A lock file without a readable pid is busy until it is this old: a program may be about to write it (FreeBSD's
/// `uu_lock`, efax, and every program that creates the file first and fills it then).
const WRITER_GRACE: Duration = Duration::from_secs(30);

impl State {
    /// Reads a lock file and classifies it for a caller that would break it. A stale one is held and classified once
    /// more, while no other process may break it: then it is the caller's to remove. `None` if there is no file.
    ///
    /// # Errors
    /// Why the file keeps the caller out.
    pub(super) fn examine(&mut self, file: LockFile<'_>) -> Result<Option<(Lock, Stale)>, Busy> {
        self.examine_found(file, file.read())
    }

    /// The same of a file that was read.
    pub(super) fn examine_found(
        &mut self,
        file: LockFile<'_>,
        found: Result<Found, pidlockfile::Error>,
    ) -> Result<Option<(Lock, Stale)>, Busy> {
        let Some(lock) = self.read_on(file, found)? else { return Ok(None) };
        self.examine_lock(file, lock)
    }

    /// The same of a lock that was read.
    pub(super) fn examine_lock(
        &mut self,
        file: LockFile<'_>,
        lock: Lock,
    ) -> Result<Option<(Lock, Stale)>, Busy> {
        let Some(lock) = recovery::recovered(self, file, lock)? else { return Ok(None) };
        let (mut lock, _) = self.classify(lock)?;
        // Our own `flock(2)` must not count as that of another process.
        self.guards.let_go(lock.opened.identity());
        self.hold(file, &mut lock.opened, self.backoff.is_exhausted())?;
        self.classify(lock).map(Some)
    }

    /// Whether a lock file that was read is stale. Nothing is held or changed.
    ///
    /// # Errors
    /// Why it keeps others out.
    pub(super) fn classify(&mut self, lock: Lock) -> Result<(Lock, Stale), Busy> {
        let who = self.holder_of(&lock);
        let holder = who.map(|who| (self.machine.fate(&who), who));
        let age = Age::of([lock.opened.modified()], SystemTime::now());
        classify(holder, age).map(|stale| (lock, stale))
    }
}

/// Whether a lock file is stale: by the process that it names, if any, and what has become of it, and by its age.
fn classify(holder: Option<(Fate, ProcessIdentity)>, age: Age) -> Result<Stale, Busy> {
    match holder {
        Some((Fate::Same | Fate::Elsewhere, who)) => Err(Busy::Held(who)),
        Some((Fate::Gone, who)) => Ok(Stale::Gone(who.pid)),
        Some((Fate::Replaced, who)) => Ok(Stale::Reused(who.pid)),
        None if age.reaches(WRITER_GRACE) => Ok(Stale::Unreadable),
        None => Err(Busy::BeingWritten),
    }
}

/// Whether a file is to be taken for a lock at all. In a directory that is only searched and open to everybody (`/tmp`,
/// where Qt programs leave locks), only these are: a file of root, a file of the user whose living process it names, and a
/// file of a dead process, which can be removed. Otherwise any user could block any port for ever, without a process.
///
/// # Errors
/// Why it is not, in words.
pub(super) fn counts_as_lock(
    place: &Place,
    found: &Result<Found, pidlockfile::Error>,
) -> Result<(), String> {
    if !place.is_open_to_all() {
        return Ok(());
    }
    match found {
        Ok(Found::Nothing) => Ok(()),
        Ok(Found::File(opened)) => {
            let (pid, owner) = (pid_in(opened), opened.owner());
            let is_over = pid.is_some_and(|pid| !lives(pid));
            // With `hidepid`, the user of a living process may be unknown.
            let is_owners = |pid| process::users(pid).is_none_or(|users| users.belong_to(owner));
            // That number is many users.
            let is_its = || owner != OVERFLOW_UID && pid.is_some_and(is_owners);
            let counts = is_over || owner == 0 || is_its();
            counts.then_some(()).ok_or_else(|| format!("uid {owner}"))
        }
        Ok(Found::Obstacle(obstacle)) => Err(Busy::Obstacle(*obstacle).to_string()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use pidlockfile::Pid;
    use rstest::rstest;

    use super::*;

    /// Everything that a lock file may be to a caller, by its holder's fate and its age in seconds.
    #[rstest]
    #[case::held(Some(Fate::Same), 0, "is held by pid 7")]
    #[case::held_elsewhere(Some(Fate::Elsewhere), 0, "is held by pid 7")]
    #[case::held_for_long(Some(Fate::Same), 1_000_000, "is held by pid 7")]
    #[case::gone(Some(Fate::Gone), 0, "pid 7 is gone")]
    #[case::replaced(Some(Fate::Replaced), 0, "pid 7 belongs to another process now")]
    #[case::nobodys_and_young(None, 29, "has no pid yet")]
    #[case::nobodys_and_old(None, 31, "it has named no process for 30 seconds")]
    fn a_lock_file_is_classified(
        #[case] fate: Option<Fate>,
        #[case] seconds: u64,
        #[case] expected: &str,
    ) {
        let who = ProcessIdentity::bare(Pid::new(7).unwrap());
        let now = SystemTime::now();
        let age = Age::of([now - Duration::from_secs(seconds)], now);
        let said = match classify(fate.map(|fate| (fate, who)), age) {
            Ok(stale) => stale.to_string(),
            Err(busy) => busy.to_string(),
        };
        assert_eq!(said, expected);
    }
}
