//! Classifies a lock file for a request, and holds or removes a stale one.

use std::fmt::{self, Display};
use std::fs::File;
use std::time::{Duration, Instant, SystemTime};

use pidlockfile::process::{self, Fate, ProcessIdentity, lives};
use pidlockfile::{Age, Attempt, Entry, Found, Judged, Name, Obstacle, Occupant, Pid, Status};

use super::state::{State, TEMPORARY};
use super::{ATTEMPTS, handover};
use crate::dialects::content::Content;
use crate::lock::directories::{LockFile, Place};
use crate::lock::flock::{self, Entitled, FlockHolder, Flocker};
use crate::lock::holder_records::HolderRecord;
#[cfg(test)]
use crate::lock::meanwhile::{self, Before};
use crate::lock::out_of_sight::out_of_sight;
use crate::lock::{Cause, Weight};

/// A lock file without a readable pid is busy until it is this old: a program may be about to write it (FreeBSD's
/// `uu_lock`, efax, and every program that creates the file first and fills it then).
const WRITER_GRACE: Duration = Duration::from_secs(30);

/// All users without a number in our user namespace have this one, so it does not tell their files apart. Source:
/// `DEFAULT_OVERFLOWUID` in the kernel's include/linux/highuid.h.
const UNMAPPED_UID: u32 = 65_534;

/// A lock file as it was read, and its record.
#[derive(Debug)]
pub(super) struct Lock {
    pub(super) judged: Judged,
    pub(super) record: Option<HolderRecord>,
}

/// What a lock file means for the caller: why it keeps others out; or that it is stale, and why. `None` if there is none.
pub(super) type Classification = Result<Option<(Lock, Stale)>, Busy>;

/// Why a lock file keeps others out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Busy {
    Held(ProcessIdentity),
    BeingWritten,
    Obstacle(Obstacle),
    /// It may be broken or removed only in the gate, and that cannot be entered now: an event says why.
    Shut,
    /// It is stale, but this process holds it by a `flock(2)` that counts; or it is being changed, or cannot be read.
    Changing(Option<FlockHolder>),
    /// Another process holds it by `flock(2)`, because it makes, breaks or releases the lock now; or the list that
    /// shows such a process is being read. The next attempt decides.
    NotYet(Cause),
}

/// Why a lock is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stale {
    Gone(Pid),
    Reused(Pid),
    Unreadable,
}

impl State {
    /// Reads a lock file, and its record.
    ///
    /// # Errors
    /// It is no file, or it cannot be read now.
    pub(super) fn read(&mut self, file: LockFile<'_>) -> Result<Option<Lock>, Busy> {
        self.read_on(file, file.read())
    }

    /// The same of a file that was read. A missing record says something only if the name still leads to the file
    /// afterwards: a process that releases a lock removes the names first, and then the record.
    pub(super) fn read_on(
        &mut self,
        file: LockFile<'_>,
        mut found: Result<Found, pidlockfile::Error>,
    ) -> Result<Option<Lock>, Busy> {
        for _ in 0..ATTEMPTS {
            let judged = match found {
                Ok(Found::Nothing) => return Ok(None),
                Ok(Found::Obstacle(obstacle)) => return Err(Busy::Obstacle(obstacle)),
                Ok(Found::File(judged)) => judged,
                Err(error) => {
                    self.say(Weight::Warning, format!("in {}: {error}", file.place.path.display()));
                    return Err(Busy::Changing(None));
                }
            };
            #[cfg(test)]
            meanwhile::comes(Before::Record);
            let record = self.record_of(file, &judged)?;
            if record.is_some() || file.may_lead_to(&judged) {
                return Ok(Some(Lock { judged, record }));
            }
            found = file.read();
        }
        Err(Busy::Changing(None))
    }

    /// Reads a lock file and classifies it for a caller that would break it. A stale one is held and classified once
    /// more, while no other process may break it.
    pub(super) fn examine(&mut self, file: LockFile<'_>) -> Classification {
        self.examine_found(file, file.read())
    }

    /// The same of a file that was read.
    pub(super) fn examine_found(
        &mut self,
        file: LockFile<'_>,
        found: Result<Found, pidlockfile::Error>,
    ) -> Classification {
        let Some(lock) = self.read_on(file, found)? else { return Ok(None) };
        self.examine_lock(file, lock)
    }

    /// The same of a lock that was read.
    pub(super) fn examine_lock(&mut self, file: LockFile<'_>, lock: Lock) -> Classification {
        let Some(lock) = handover::settled(self, file, lock)? else { return Ok(None) };
        let (mut lock, _) = self.classify(lock)?;
        // Our own `flock(2)` must not count as that of another process.
        self.guards.let_go(lock.judged.identity());
        self.hold(file, &mut lock.judged, self.backoff.decides())?;
        self.classify(lock).map(Some)
    }

    /// Goes through the gate on account of a file. Whatever breaks a file, or removes one that it does not keep open, comes
    /// here first. An error of the gate lasts for a while only, as when no descriptor is left. Returns another process that
    /// is inside.
    ///
    /// # Errors
    /// [`Busy::Shut`].
    pub(super) fn enter(
        &mut self,
        file: LockFile<'_>,
        judged: &mut Judged,
    ) -> Result<Option<Occupant>, Busy> {
        if let Some(passage) = &self.passage {
            judged.enter_by(passage.clone());
        }
        let entered = file.place.directory.enter(file.name, judged);
        self.has_entered(judged);
        entered.map_err(|error| self.shut(file, &error))
    }

    /// The gate cannot be entered now, and what is done is left.
    fn shut(&mut self, what: impl Display, error: &pidlockfile::Error) -> Busy {
        let dir = self.layout.state_dir.display();
        self.say(Weight::Warning, format!("busy: {what}: {error}; see gate in {dir}"));
        Busy::Shut
    }

    /// Another process is in the gate. A caller that can comes back later.
    fn kept_outside(&mut self, what: impl Display, occupant: Occupant) -> Busy {
        if self.backoff.waits_for(occupant, Instant::now()) {
            return Busy::NotYet(Cause::Gate(occupant));
        }
        let dir = self.layout.state_dir.display();
        let who = occupant.pid().map_or_else(|| "a process".to_owned(), |pid| format!("pid {pid}"));
        let text = format!("busy: {what}: {who} stays in the gate; see gate in {dir}");
        self.say(Weight::Warning, text);
        Busy::Changing(None)
    }

    /// Does the steps of a request in the gate, which is entered once, before anything is read. The steps must not do
    /// anything slow there.
    ///
    /// # Errors
    /// As [`State::must_enter`].
    pub(super) fn in_the_gate<T>(
        &mut self,
        file: LockFile<'_>,
        steps: impl FnOnce(&mut Self) -> T,
    ) -> Result<T, Busy> {
        match file.place.directory.try_enter() {
            Ok(Entry::Inside(passage)) => self.passage = Some(passage),
            Ok(Entry::NoGate) => {}
            Ok(Entry::Occupied(occupant)) => return Err(self.kept_outside(file, occupant)),
            Err(error) => return Err(self.shut(file, &error)),
        }
        self.stays_in_gate = true;
        let outcome = steps(self);
        (self.stays_in_gate, self.passage) = (false, None);
        Ok(outcome)
    }

    /// The same for a caller that cannot go on outside.
    ///
    /// # Errors
    /// As [`State::enter`]; or another process is inside, and the caller comes back or gives up.
    pub(super) fn must_enter(
        &mut self,
        file: LockFile<'_>,
        judged: &mut Judged,
    ) -> Result<(), Busy> {
        let Some(occupant) = self.enter(file, judged)? else { return Ok(()) };
        Err(self.kept_outside(file, occupant))
    }

    /// Holds a file so that no other process breaks or removes it. A process that has `flock(2)` on it may be about
    /// to break it, without our gate. So a caller that can comes back later, and only then the right of that process
    /// is checked.
    ///
    /// # Errors
    /// Why the file cannot be held.
    pub(super) fn hold(
        &mut self,
        file: LockFile<'_>,
        judged: &mut Judged,
        decides: bool,
    ) -> Result<(), Busy> {
        #[cfg(test)]
        meanwhile::comes(Before::Hold);
        // An error of the gate is no error of the file.
        self.must_enter(file, judged)?;
        let mut besides = None;
        match file.place.directory.hold(file.name, judged) {
            // Breaking it will show that it has changed, or why it cannot be held.
            Ok(Attempt::Changed) | Err(_) => return Ok(()),
            // A lock by `fcntl(2)` counts as a `flock(2)` does, and does not conflict with ours.
            Ok(Attempt::Done(())) if !judged.is_record_locked() => return Ok(()),
            Ok(Attempt::Done(())) if decides => besides = Some(Pid::this()),
            Ok(Attempt::Contended) if decides => {}
            Ok(Attempt::Done(()) | Attempt::Contended) => {
                return Err(Busy::NotYet(Cause::Breaking));
            }
        }
        // Others must not wait while the kernel's list is being read.
        judged.leave_gate();
        self.passage = None;
        #[cfg(test)]
        meanwhile::comes(Before::List);
        let flocker = self.flocker(file.place, judged.status(), besides).map_err(Busy::NotYet)?;
        self.must_enter(file, judged)?;
        match flocker {
            Flocker::Ignored(by) if judged.ignore_flock() => {
                self.say(Weight::Notice, format!("ignored the lock of {by} on {file}"));
                Ok(())
            }
            // A list without a line for it may have been read while the list changed.
            flocker @ (Flocker::Ignored(_) | Flocker::Counts(_) | Flocker::Nobody) => {
                Err(Busy::Changing(flocker.that_counts()))
            }
        }
    }

    /// The holder of a lock on a lock file that was read, other than `besides`, and whether it counts.
    ///
    /// # Errors
    /// While the kernel's list is being read.
    pub(super) fn flocker(
        &mut self,
        place: &Place,
        seen: Status,
        besides: Option<Pid>,
    ) -> Result<Flocker, Cause> {
        let Ok(sight) = self.flocks.on_file(seen.identity, self.backoff.decides_at()) else {
            return Ok(Flocker::Counts(FlockHolder::Unseen));
        };
        let mut sight = sight.ok_or(Cause::Reading)?;
        sight.holders.retain(|holder| Some(*holder) != besides.map(FlockHolder::Process));
        let everybody = !place.directory.is_gated();
        let own = nix::unistd::geteuid().as_raw();
        let entitled = Entitled { own, owner: seen.owner, everybody };
        let of = |pid| (process::real_user(pid), lives(pid));
        Ok(flock::flocker(&sight, !out_of_sight().outside, entitled, of))
    }

    /// Whether a lock file that was read is stale. Nothing is held or changed.
    ///
    /// # Errors
    /// Why it keeps others out.
    pub(super) fn classify(&mut self, lock: Lock) -> Result<(Lock, Stale), Busy> {
        let who = self.holder_of(&lock);
        let holder = who.map(|who| (self.machine.fate(&who), who));
        let age = Age::of([lock.judged.modified()], SystemTime::now());
        classify(holder, age).map(|stale| (lock, stale))
    }

    /// The process that a lock file names: the recorded one, or else the one that has the number.
    pub(super) fn holder_of(&mut self, lock: &Lock) -> Option<ProcessIdentity> {
        let Lock { judged, record } = lock;
        let recorded = record.as_ref().map(|record| record.holder.clone());
        // For a bare number, all that is known now, because a later process with this number is another one.
        recorded.or_else(|| pid_in(judged).map(|pid| self.machine.identify(pid)))
    }

    /// The record about a lock file that was read.
    ///
    /// # Errors
    /// It cannot be read now.
    fn record_of(
        &mut self,
        file: LockFile<'_>,
        judged: &Judged,
    ) -> Result<Option<HolderRecord>, Busy> {
        let Ok(content) = Content::parse(judged.content()) else { return Ok(None) };
        let written = (judged.identity(), judged.modified());
        let record = self.records.of_file(file.place.directory.identity(), file.name, written);
        match record {
            Ok(record) => Ok(record.filter(|it| content.pids().any(|pid| pid == it.holder.pid))),
            Err(errno) => {
                self.say(
                    Weight::Warning,
                    format!("busy: the record of {file} cannot be read: {errno}"),
                );
                Err(Busy::Changing(None))
            }
        }
    }

    /// Whether the holder of a lock file is known: by its record, or because no lock is ever recorded here.
    pub(super) fn is_settled(&self, lock: &Lock) -> bool {
        lock.record.is_some() || self.records.directory().is_none()
    }

    /// Whether a process was identified in another pid namespace, where its number means another process.
    pub(super) fn is_elsewhere(&mut self, who: &ProcessIdentity) -> bool {
        who.is_elsewhere(self.machine.here())
    }

    /// Removes a stale lock whose place we do not take. A lock that may not be removed counts as removed.
    pub(super) fn remove(&mut self, file: LockFile<'_>, lock: Lock, stale: Stale) -> Attempt {
        match self.take_away(file, lock, false) {
            Ok(Attempt::Done(())) => {
                self.say(Weight::Notice, format!("removed {file}: {stale}"));
                Attempt::Done(())
            }
            Ok(other) => other,
            Err(error) => {
                self.say(Weight::Warning, format!("ignored {file}: {stale}; {error}"));
                Attempt::Done(())
            }
        }
    }

    /// As [`State::take_each_away`], of one name.
    pub(super) fn take_away(
        &mut self,
        file: LockFile<'_>,
        lock: Lock,
        by_force: bool,
    ) -> Result<Attempt, pidlockfile::Error> {
        let name = std::slice::from_ref(file.name);
        Ok(self.take_each_away(file, name, lock, by_force)?.map(|_| ()))
    }

    /// Removes these names of a file that is ours to remove, in this order. By force, also if another process holds it by
    /// `flock(2)`, but then only the name by which it was read. But never past a process in the gate: if that one is stopped
    /// before its last step, it removes whichever lock has the name when it goes on. The record goes after the last name.
    pub(super) fn take_each_away(
        &mut self,
        file: LockFile<'_>,
        names: &[Name],
        lock: Lock,
        by_force: bool,
    ) -> Result<Attempt<Vec<Name>>, pidlockfile::Error> {
        let Lock { mut judged, record } = lock;
        if self.enter(file, &mut judged) != Ok(None) {
            return Ok(Attempt::Contended);
        }
        let removal = match by_force || judged.ignores_flock() {
            true => force_away(file.place, names, &judged),
            false => file.place.directory.try_release_each(names, &mut judged),
        };
        if let (Ok(Attempt::Done(gone)), Some(record)) = (&removal, record) {
            // The file is open: no other one has its number yet.
            if record.names.iter().all(|name| gone.contains(name)) || !judged.has_a_name() {
                self.records.forget(&record);
            }
        }
        removal
    }

    /// Forgets the lock of a file that was removed or replaced, if it has no other name.
    pub(super) fn forget_if_nameless(&self, last: Option<LastLook>) {
        if let Some(LastLook { record, file }) = last {
            // While it is open, no other file has its number. A file with a name that we do not know is swept later.
            if Status::of_open(&file).is_ok_and(|seen| seen.links == 0) {
                self.records.forget(&record);
            }
        }
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

/// Removes these names of a file by force, in this order, up to one that cannot be removed. Tells which went.
fn force_away(
    place: &Place,
    names: &[Name],
    judged: &Judged,
) -> Result<Attempt<Vec<Name>>, pidlockfile::Error> {
    let mut gone = Vec::new();
    for name in names {
        let Ok(Found::File(mut again)) = place.file(name).read() else { continue };
        if again.identity() != judged.identity() || again.modified() != judged.modified() {
            continue;
        }
        judged.passage().into_iter().for_each(|passage| again.enter_by(passage.clone()));
        again.ignore_flock();
        match place.directory.release(name, again, TEMPORARY) {
            Ok(Attempt::Done(())) => gone.push(name.clone()),
            outcome if gone.is_empty() => return outcome.map(|it| it.map(|()| gone)),
            Ok(Attempt::Changed | Attempt::Contended) | Err(_) => break,
        }
    }
    Ok(if gone.is_empty() { Attempt::Changed } else { Attempt::Done(gone) })
}

/// The record of a lock that is about to lose a name, and its file.
#[derive(Debug)]
pub(super) struct LastLook {
    record: HolderRecord,
    file: File,
}

impl LastLook {
    /// `None` also without descriptors: the record is swept later.
    pub(super) fn of(judged: &Judged, record: Option<HolderRecord>) -> Option<Self> {
        record.and_then(|record| Some(Self { record, file: judged.try_clone().ok()? }))
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
        Ok(Found::File(judged)) => {
            let (pid, owner) = (pid_in(judged), judged.owner());
            let is_over = pid.is_some_and(|pid| !lives(pid));
            // With `hidepid`, the user of a living process may be unknown.
            let is_owners = |pid| process::users(pid).is_none_or(|users| users.belong_to(owner));
            let is_its = || owner != UNMAPPED_UID && pid.is_some_and(is_owners);
            let counts = is_over || owner == 0 || is_its();
            counts.then_some(()).ok_or_else(|| format!("uid {owner}"))
        }
        Ok(Found::Obstacle(obstacle)) => Err(Busy::Obstacle(*obstacle).to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// The process that a lock file names: a living one, if it may be read so.
pub(super) fn pid_in(judged: &Judged) -> Option<Pid> {
    Content::parse(judged.content()).ok().map(|content| content.holder(lives))
}

impl Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(who) => write!(f, "is held by pid {}", who.pid),
            Self::BeingWritten => f.write_str("has no pid yet"),
            Self::Obstacle(Obstacle::Link) => f.write_str("is a symbolic link"),
            Self::Obstacle(Obstacle::Directory) => f.write_str("is a directory"),
            Self::Obstacle(Obstacle::Special) => f.write_str("is a fifo, socket or device"),
            Self::Obstacle(Obstacle::Unreadable) => f.write_str("may not be read"),
            Self::Changing(Some(holder)) => {
                write!(f, "is stale, but a lock on it is held by {holder}")
            }
            Self::Changing(None) | Self::Shut | Self::NotYet(_) => {
                f.write_str("is being changed by others")
            }
        }
    }
}

impl Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone(pid) => write!(f, "pid {pid} is gone"),
            Self::Reused(pid) => write!(f, "pid {pid} belongs to another process now"),
            Self::Unreadable => f.write_str("it has named no process for 30 seconds"),
        }
    }
}

#[cfg(test)]
mod tests {
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
