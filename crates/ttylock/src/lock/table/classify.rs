//! Classifies a lock file for a request, and holds or removes a stale one.

use std::time::{Duration, Instant, SystemTime};

use nix::errno::Errno;
use pidlockfile::process::{self, Fate, ProcessIdentity, lives};
use pidlockfile::{Age, Attempt, Found, Judged, Name, Obstacle, Occupant, Pid, Status};

use super::handover;
use super::state::{State, TEMPORARY};
use crate::dialects::content::Content;
use crate::lock::directories::{LockFile, Place, Role};
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

/// What a lock file means for the caller: why it keeps others out; or that it is stale, and why. `None` if there is none.
pub(super) type Classification = Result<Option<(Judged, Stale)>, Busy>;

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
    /// Reads a lock file and classifies it for a caller that would break it. A stale one is held and classified once
    /// more, while no other process may break or make it: its maker held `flock(2)` on it until the lock was recorded, and
    /// without the record, a lock of another pid namespace looks dead.
    pub(super) fn examine(&mut self, file: LockFile<'_>) -> Classification {
        self.examine_found(file, file.read())
    }

    /// The same of a file that was read.
    pub(super) fn examine_found(
        &mut self,
        file: LockFile<'_>,
        found: Result<Found, pidlockfile::Error>,
    ) -> Classification {
        let judged = match found {
            Ok(Found::Nothing) => return Ok(None),
            Ok(Found::Obstacle(obstacle)) => return Err(Busy::Obstacle(obstacle)),
            Ok(Found::File(judged)) => judged,
            Err(error) => {
                self.say(Weight::Warning, format!("in {}: {error}", file.place.path.display()));
                return Err(Busy::Changing(None));
            }
        };
        let (mut judged, _) = self.classify(file.name, judged)?;
        // Until one process has a lock that is being passed completely, none of its files is removed.
        if file.place.role == Role::Written && !handover::settle(self, file, None) {
            return Err(self.contended(file.place, Some(judged.status())));
        }
        // Our own `flock(2)` must not count as that of another process.
        self.guards.let_go(judged.identity());
        self.hold(file, &mut judged, self.backoff.decides())?;
        self.classify(file.name, judged).map(Some)
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
        entered.map_err(|error| {
            let dir = self.layout.state_dir.display();
            self.say(Weight::Warning, format!("busy: {file}: {error}; see gate in {dir}"));
            Busy::Shut
        })
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
        if self.backoff.waits_for(occupant, Instant::now()) {
            return Err(Busy::NotYet(Cause::Gate(occupant)));
        }
        let dir = self.layout.state_dir.display();
        let who = occupant.pid().map_or_else(|| "a process".to_owned(), |pid| format!("pid {pid}"));
        let text = format!("busy: {file}: {who} stays in the gate; see gate in {dir}");
        self.say(Weight::Warning, text);
        Err(Busy::Changing(None))
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
    pub(super) fn classify(
        &mut self,
        name: &Name,
        judged: Judged,
    ) -> Result<(Judged, Stale), Busy> {
        let Some(who) = self.holder_of(name, &judged)? else {
            return match Age::of([judged.modified()], SystemTime::now()).reaches(WRITER_GRACE) {
                true => Ok((judged, Stale::Unreadable)),
                false => Err(Busy::BeingWritten),
            };
        };
        match self.machine.fate(&who) {
            Fate::Same | Fate::Elsewhere => Err(Busy::Held(who)),
            Fate::Gone => Ok((judged, Stale::Gone(who.pid))),
            Fate::Replaced => Ok((judged, Stale::Reused(who.pid))),
        }
    }

    /// The process that a lock file names: the recorded one, or else the one that has the number.
    ///
    /// # Errors
    /// Its record cannot be read now.
    pub(super) fn holder_of(
        &mut self,
        name: &Name,
        judged: &Judged,
    ) -> Result<Option<ProcessIdentity>, Busy> {
        match self.record_of(name, judged) {
            Ok(Some(record)) => Ok(Some(record.holder)),
            // For a bare number, all that is known now, because a later process with this number is another one.
            Ok(None) => Ok(pid_in(judged).map(|pid| self.machine.identify(pid))),
            Err(errno) => {
                let text = format!("busy: the record of {} cannot be read: {errno}", name.as_str());
                self.say(Weight::Warning, text);
                Err(Busy::Changing(None))
            }
        }
    }

    /// The record about a lock file that was read.
    ///
    /// # Errors
    /// It cannot be read now.
    pub(super) fn record_of(
        &self,
        name: &Name,
        judged: &Judged,
    ) -> Result<Option<HolderRecord>, Errno> {
        let Ok(content) = Content::parse(judged.content()) else { return Ok(None) };
        for pid in content.pids() {
            let record = self.records.of_lock(name, pid, judged.identity(), judged.modified())?;
            if record.is_some() {
                return Ok(record);
            }
        }
        Ok(None)
    }

    /// Whether the holder of a lock file is known: by its record, or because no lock is ever recorded here.
    pub(super) fn is_settled(&self, name: &Name, judged: &Judged) -> bool {
        self.records.directory().is_none() || matches!(self.record_of(name, judged), Ok(Some(_)))
    }

    /// Whether a process was identified in another pid namespace, where its number means another process.
    pub(super) fn is_elsewhere(&mut self, who: &ProcessIdentity) -> bool {
        who.is_elsewhere(self.machine.here())
    }

    /// Removes a stale lock whose place we do not take. A lock that may not be removed counts as removed.
    pub(super) fn remove(&mut self, file: LockFile<'_>, judged: Judged, stale: Stale) -> Attempt {
        match self.take_away(file, judged, false) {
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
        judged: Judged,
        by_force: bool,
    ) -> Result<Attempt, pidlockfile::Error> {
        Ok(match self.take_each_away(file, &[], judged, by_force)? {
            Attempt::Done(_) => Attempt::Done(()),
            Attempt::Changed => Attempt::Changed,
            Attempt::Contended => Attempt::Contended,
        })
    }

    /// Removes a file that is ours to remove, with its record; a lock that is not removed keeps its record. The other names
    /// of the file in `also` go with it, but not past another process's lock of the file. By force, also
    /// if another process holds it by `flock(2)`. But never past a process in the gate: if that one is stopped before its
    /// last step, it removes whichever lock has the name when it goes on.
    pub(super) fn take_each_away(
        &mut self,
        file: LockFile<'_>,
        also: &[&Name],
        mut judged: Judged,
        by_force: bool,
    ) -> Result<Attempt<Vec<Name>>, pidlockfile::Error> {
        if self.enter(file, &mut judged) != Ok(None) {
            return Ok(Attempt::Contended);
        }
        let LockFile { place, name } = file;
        if by_force {
            judged.ignore_flock();
        }
        let by_force = by_force || judged.ignores_flock();
        let file = judged.identity();
        // The record goes first, while no other process can put another lock there: afterwards, the record of the next
        // lock might be removed instead.
        let found = self.records.of_file(name, file).ok().flatten();
        let forget = || found.iter().for_each(|(entry, ..)| self.records.forget(entry));
        let seen = || Status::of_name(&place.directory, name.as_str());
        let is_there = || seen().is_ok_and(|seen| seen.identity == file);
        let (mut forgets, mut forgotten) = (false, Vec::new());
        let one = |removal| match removal {
            Attempt::Done(()) => Attempt::Done(vec![name.clone()]),
            Attempt::Changed => Attempt::Changed,
            Attempt::Contended => Attempt::Contended,
        };
        let removal = if by_force {
            let held = judged.ignores_flock()
                || matches!(place.directory.hold(name, &mut judged), Ok(Attempt::Done(())));
            forgets = held && is_there();
            forgets.then(forget);
            place.directory.release(name, judged, TEMPORARY).map(one)
        } else {
            let names = std::iter::once(name).chain(also.iter().copied());
            place.directory.try_release_each(names, judged, |it| {
                if it == name {
                    forgets = true;
                    forget();
                } else if let Ok(Some((entry, _, record))) = self.records.of_file(it, file) {
                    self.records.forget(&entry);
                    forgotten.push((it.clone(), record));
                }
            })
        };
        if let Ok(Attempt::Done(gone)) = &removal {
            let stay = forgotten.iter().filter(|(name, _)| !gone.contains(name));
            stay.for_each(|(name, record)| self.records.put_back(name, record));
        }
        match (&removal, found) {
            // It could not be forgotten before, because another process held the file.
            (Ok(Attempt::Done(_)), Some(found)) if !forgets => self.records.sweep(&found),
            (Ok(Attempt::Done(_)), _) => {}
            // Another process may be releasing it, or have been killed at that.
            (Ok(Attempt::Changed), _) if !is_there() => {}
            (_, Some((.., record))) if forgets => self.records.put_back(name, &record),
            (_, _) => {}
        }
        removal
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

impl std::fmt::Display for Busy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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

impl std::fmt::Display for Stale {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Gone(pid) => write!(f, "pid {pid} is gone"),
            Self::Reused(pid) => write!(f, "pid {pid} belongs to another process now"),
            Self::Unreadable => f.write_str("it has named no process for 30 seconds"),
        }
    }
}
