//! What is done to one lock file: it is read with its record, held in the gate, and removed. Why it keeps others out, or is
//! stale, as values and in words. `LockFile`, a directory and a name in it, is in `directories`.

use std::ffi::OsStr;
use std::fmt::{self, Display};
use std::time::Instant;

use pidlockfile::process::{self, Fate, ProcessIdentity, Start, lives};
use pidlockfile::{Attempt, Entry, Found, Name, Obstacle, Occupant, OpenFile, Pid, Status};

use super::state::{ATTEMPTS, State, TEMPORARY};
use crate::dialects::content::Content;
use crate::lock::directories::{LockFile, Place, WrittenFile};
use crate::lock::flock::{self, Entitled, FlockHolder, Flocker};
use crate::lock::holder_records::HolderRecord;
use crate::lock::holders::out_of_sight;
#[cfg(test)]
use crate::lock::meanwhile::{self, Before};
use crate::lock::{Cause, Stop, Weight};
use crate::sys::is_record_locked;

/// A lock file as it was read, and its record.
#[derive(Debug)]
pub(super) struct Lock {
    pub(super) opened: OpenFile,
    pub(super) record: Option<HolderRecord>,
}

/// Why a lock file keeps others out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Busy {
    Held(ProcessIdentity),
    BeingWritten,
    Obstacle(Obstacle),
    /// It cannot be read, broken or removed now, also because a process stays in the gate: an event says why. A request that
    /// meets it is refused.
    Failed,
    /// With a holder: it is stale, but this process holds it by a `flock(2)` that counts. Without one: it is being
    /// changed. A request that meets it is refused.
    Changing(Option<FlockHolder>),
    /// Another process holds it by `flock(2)`, because it makes, breaks or releases the lock now; or one is in the
    /// gate; or the list that shows such a process is being read. The caller comes back.
    NotYet(Cause),
}

/// Why a lock is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stale {
    Gone(Pid),
    Reused(Pid),
    Unreadable,
}

/// In which way the names of a lock are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// The process has ended. A program that keeps no rules may write its own number into the file until the name is
    /// gone, so the file is looked at once more.
    OfStale,
    /// The process lives, and releases its lock.
    OfOwn,
    /// The same, also if another process holds it by `flock(2)`.
    ByForce,
}

impl Removal {
    /// How a lock is released, by whether the process that has it lives. If that has ended, the lock goes as a stale one, also
    /// if nobody has waited for the process yet: at any moment somebody may, and then its number is nobody's.
    pub(super) fn by(is_living: bool, is_forced: bool) -> Self {
        match is_living {
            true if is_forced => Self::ByForce,
            true => Self::OfOwn,
            false => Self::OfStale,
        }
    }
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
            let opened = match found {
                Ok(Found::Nothing) => return Ok(None),
                Ok(Found::Obstacle(obstacle)) => return Err(Busy::Obstacle(obstacle)),
                Ok(Found::File(opened)) => opened,
                Err(error) => {
                    let text = format!("busy: in {}: {error}", file.place.path.display());
                    self.say(Weight::Warning, text);
                    return Err(Busy::Failed);
                }
            };
            #[cfg(test)]
            meanwhile::comes(Before::Record);
            let record = self.record_of(file, &opened)?;
            if record.is_some()
                || file.place.may_lead_to(file.name, WrittenFile::of(&opened.status()))
            {
                return Ok(Some(Lock { opened, record }));
            }
            found = file.read();
        }
        Err(Busy::Changing(None))
    }

    /// The record about a lock file that was read.
    ///
    /// # Errors
    /// It cannot be read now.
    fn record_of(
        &mut self,
        file: LockFile<'_>,
        opened: &OpenFile,
    ) -> Result<Option<HolderRecord>, Busy> {
        let Ok(content) = Content::parse(opened.content()) else { return Ok(None) };
        let written = WrittenFile::of(&opened.status());
        let record = self.records.of_file(file.place.directory.identity(), file.name, written);
        match record {
            Ok(record) => Ok(record.filter(|it| content.pids().any(|pid| pid == it.holder.pid))),
            Err(errno) => {
                self.say(
                    Weight::Warning,
                    format!("busy: the record of {file} cannot be read: {errno}"),
                );
                Err(Busy::Failed)
            }
        }
    }

    /// The process that a lock file names: the recorded one, or else the one that has the number.
    pub(super) fn holder_of(&mut self, lock: &Lock) -> Option<ProcessIdentity> {
        let Lock { opened, record } = lock;
        let recorded = record.as_ref().map(|record| record.holder.clone());
        // For a bare number, all that is known now, because a later process with this number is another one.
        recorded.or_else(|| pid_in(opened).map(|pid| self.machine.identify(pid)))
    }

    /// Whether the holder of a lock file is known: by its record, or because no lock is ever recorded here.
    pub(super) fn is_holder_known(&self, lock: &Lock) -> bool {
        lock.record.is_some() || self.records.directory().is_none()
    }

    /// Whether a process has got its number since the request was first attempted, which was about another one.
    pub(super) fn is_a_newcomer(&mut self, who: &ProcessIdentity) -> bool {
        let Some(before @ (Start::Nobody | Start::At(_))) = self.backoff.owner else {
            return false;
        };
        let now = self.machine.identify(who.pid).start;
        matches!(now, Start::At(_)) && now != before && self.machine.fate(who) == Fate::Same
    }

    /// Whether a process was identified in another pid namespace, where its number means another process.
    pub(super) fn is_elsewhere(&mut self, who: &ProcessIdentity) -> bool {
        who.is_elsewhere(self.machine.here())
    }

    /// Enters the gate on account of a file, and is inside for as long as the file is kept. Whatever breaks a file, or
    /// removes one that it does not keep open, comes here first. An error of the gate lasts for a while only, as when no
    /// descriptor is left.
    ///
    /// # Errors
    /// [`Busy::Failed`].
    pub(super) fn enter(
        &mut self,
        file: LockFile<'_>,
        opened: &mut OpenFile,
    ) -> Result<Entry, Busy> {
        if let Some(passage) = &self.passage {
            opened.enter_by(passage.clone());
        }
        let entered = file.place.directory.enter(file.name, opened);
        // A request that stays inside keeps the passage for its next files.
        self.passage = opened.passage().filter(|_| self.stays_in_gate).cloned();
        entered.map_err(|error| self.shut(file, &error))
    }

    /// The same for a caller that cannot go on outside.
    ///
    /// # Errors
    /// As [`State::enter`]; or another process is inside, and the caller comes back or gives up.
    pub(super) fn must_enter(
        &mut self,
        file: LockFile<'_>,
        opened: &mut OpenFile,
    ) -> Result<(), Busy> {
        match self.enter(file, opened)? {
            Entry::Inside(_) | Entry::NoGate => Ok(()),
            Entry::Occupied(occupant) => Err(self.kept_outside(file, occupant)),
        }
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

    /// The gate cannot be entered now, and what is done is left.
    fn shut(&mut self, what: impl Display, error: &pidlockfile::Error) -> Busy {
        let dir = self.layout.state_dir.display();
        self.say(Weight::Warning, format!("busy: {what}: {error}; see gate in {dir}"));
        Busy::Failed
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
        Busy::Failed
    }

    /// Holds a file so that no other process breaks or removes it. If another process has `flock(2)` on it, that one
    /// may be about to break it, without our gate. Then the caller comes back. Only an attempt that `reads_list`, the
    /// kernel's list of locks, finds out whether that `flock(2)` counts.
    ///
    /// # Errors
    /// Why the file cannot be held.
    pub(super) fn hold(
        &mut self,
        file: LockFile<'_>,
        opened: &mut OpenFile,
        reads_list: bool,
    ) -> Result<(), Busy> {
        #[cfg(test)]
        meanwhile::comes(Before::Hold);
        // An error of the gate is no error of the file.
        self.must_enter(file, opened)?;
        let mut besides = None;
        match file.place.directory.hold(file.name, opened) {
            // Breaking it will show that it has changed, or why it cannot be held.
            Ok(Attempt::Changed) | Err(_) => return Ok(()),
            // A lock by `fcntl(2)` counts as a `flock(2)` does, and does not conflict with ours.
            Ok(Attempt::Done(())) if !is_record_locked(&*opened) => return Ok(()),
            Ok(Attempt::Done(())) if reads_list => besides = Some(Pid::this()),
            Ok(Attempt::Contended) if reads_list => {}
            Ok(Attempt::Done(()) | Attempt::Contended) => {
                return Err(Busy::NotYet(Cause::Contended));
            }
        }
        // Others must not wait while the kernel's list is being read.
        opened.leave_gate();
        self.passage = None;
        #[cfg(test)]
        meanwhile::comes(Before::List);
        let flocker = self.flocker(file.place, opened.status(), besides).map_err(Busy::NotYet)?;
        self.must_enter(file, opened)?;
        match flocker {
            Flocker::Ignored(by) if opened.ignore_flock() => {
                self.say(Weight::Notice, format!("ignored the lock of {by} on {file}"));
                Ok(())
            }
            // Nobody is in the list, and still the file could not be held: the list may have changed while it was read.
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
        let Ok(sight) = self.flocks.on_file(seen.identity, self.backoff.exhausted_at()) else {
            return Ok(Flocker::Counts(FlockHolder::Unseen));
        };
        let mut sight = sight.ok_or(Cause::Reading)?;
        sight.holders.retain(|holder| Some(*holder) != besides.map(FlockHolder::Process));
        let everybody = !place.directory.is_gated();
        let own = rustix::process::geteuid().as_raw();
        let entitled = Entitled { own, owner: seen.owner, everybody };
        let of = |pid| (process::real_user(pid), lives(pid));
        Ok(flock::flocker(&sight, !out_of_sight().outside, entitled, of))
    }

    /// Removes a stale lock whose place we do not take. A lock that may not be removed counts as removed.
    pub(super) fn remove_stale(&mut self, file: LockFile<'_>, lock: Lock, stale: Stale) -> Attempt {
        match self.remove_name(file, lock) {
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

    /// As [`State::remove_names`], of one name.
    pub(super) fn remove_name(
        &mut self,
        file: LockFile<'_>,
        lock: Lock,
    ) -> Result<Attempt, pidlockfile::Error> {
        let name = std::slice::from_ref(file.name);
        Ok(self.remove_names(file, name, lock, Removal::OfStale)?.map(|_| ()))
    }

    /// Removes these names of a file that is ours to remove, in this order. By force, also if another process holds it
    /// by `flock(2)`: each name then goes by itself, and those behind one that cannot be removed stay. Never past a
    /// process in the gate: if that one is stopped before its last step, it removes whichever lock has the name when it
    /// goes on. The record goes after the last name.
    pub(super) fn remove_names(
        &mut self,
        file: LockFile<'_>,
        names: &[Name],
        lock: Lock,
        removal: Removal,
    ) -> Result<Attempt<Vec<Name>>, pidlockfile::Error> {
        let Lock { mut opened, record } = lock;
        let Ok(Entry::Inside(_) | Entry::NoGate) = self.enter(file, &mut opened) else {
            return Ok(Attempt::Contended);
        };
        let removed = match removal == Removal::ByForce || opened.ignores_flock() {
            true => remove_by_force(file.place, names, &opened),
            false => {
                let prefix = (removal == Removal::OfStale).then_some(OsStr::new(TEMPORARY));
                file.place.directory.try_release_each(names, &mut opened, prefix)
            }
        };
        if let Ok(Attempt::Done(gone)) = &removed {
            self.remove_record_of_nameless(&opened, record.as_ref(), gone);
        }
        removed
    }

    /// Removes the record of a file that has lost names, the last of them these, if it has no other one. While it is open, no
    /// other file has its number. The record of a file with a name that we do not know is swept later.
    pub(super) fn remove_record_of_nameless(
        &self,
        opened: &OpenFile,
        record: Option<&HolderRecord>,
        gone: &[Name],
    ) {
        let is_over = |record: &&HolderRecord| {
            record.names.iter().all(|name| gone.contains(name)) || !opened.has_a_name()
        };
        if let Some(record) = record.filter(is_over) {
            self.records.remove(record);
        }
    }

    /// The process that holds a flock, if it is visible. One that has ended left its descriptor to another: its end says
    /// nothing about the flock.
    pub(super) fn process_of(&mut self, holder: FlockHolder) -> Option<ProcessIdentity> {
        match holder {
            FlockHolder::Process(pid) => {
                Some(self.machine.identify(pid)).filter(|who| who.start != Start::Nobody)
            }
            FlockHolder::Unnamed { .. } | FlockHolder::Unseen => None,
        }
    }

    /// Another process is making, breaking or removing the lock of this file. If the pauses are over, it is busy, and the
    /// answer names that process; otherwise the caller comes back.
    pub(super) fn contended(&mut self, place: &Place, seen: Option<Status>) -> Busy {
        if !self.backoff.is_exhausted() {
            return Busy::NotYet(Cause::Contended);
        }
        let flocker = seen.map(|seen| self.flocker(place, seen, None)).transpose();
        let holder = flocker.map(|flocker| flocker.and_then(Flocker::that_counts));
        holder.map_or_else(Busy::NotYet, Busy::Changing)
    }

    /// The same as the answer.
    pub(super) fn stop_contended(&mut self, file: LockFile<'_>, seen: Option<Status>) -> Stop {
        let busy = self.contended(file.place, seen);
        self.busy(file, busy)
    }

    /// This file keeps the caller out: the answer, and the event that says why.
    pub(super) fn busy(&mut self, file: LockFile<'_>, busy: Busy) -> Stop {
        match busy {
            Busy::NotYet(cause) => return Stop::NotYet(cause),
            // An event has said why.
            Busy::Failed => return Stop::Busy(None),
            Busy::Held(_) | Busy::BeingWritten | Busy::Obstacle(_) | Busy::Changing(_) => {}
        }
        self.say(Weight::Info, format!("busy: {file} {busy}"));
        Stop::Busy(match busy {
            Busy::Held(who) => Some(who),
            Busy::Changing(holder) => holder.and_then(|holder| self.process_of(holder)),
            Busy::BeingWritten | Busy::Obstacle(_) | Busy::Failed | Busy::NotYet(_) => None,
        })
    }
}

/// Removes these names of a file by force, in this order, up to one that cannot be removed. Tells which went.
fn remove_by_force(
    place: &Place,
    names: &[Name],
    opened: &OpenFile,
) -> Result<Attempt<Vec<Name>>, pidlockfile::Error> {
    let mut gone = Vec::new();
    for name in names {
        let Ok(Found::File(mut again)) = place.file(name).read() else { continue };
        if again.identity() != opened.identity() || again.modified() != opened.modified() {
            continue;
        }
        opened.passage().into_iter().for_each(|passage| again.enter_by(passage.clone()));
        again.ignore_flock();
        match place.directory.release(name, again, TEMPORARY) {
            Ok(Attempt::Done(())) => gone.push(name.clone()),
            outcome if gone.is_empty() => return outcome.map(|it| it.map(|()| gone)),
            Ok(Attempt::Changed | Attempt::Contended) | Err(_) => break,
        }
    }
    Ok(if gone.is_empty() { Attempt::Changed } else { Attempt::Done(gone) })
}

/// The process that a lock file names. If its content can be read as two numbers, that of a living process counts.
pub(super) fn pid_in(opened: &OpenFile) -> Option<Pid> {
    Content::parse(opened.content()).ok().map(|content| content.holder(lives))
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
            Self::Failed => f.write_str("cannot be read or removed now"),
            Self::Changing(None) | Self::NotYet(_) => f.write_str("is being changed by others"),
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
