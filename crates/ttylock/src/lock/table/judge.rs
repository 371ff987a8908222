//! Judges a lock file for a request, and breaks a stale one.

use std::io;
use std::time::{Duration, SystemTime};

use pidlockfile::process::{self, Fate, ProcessIdentity, lives};
use pidlockfile::{Found, Hold, Identity, Judged, Name, Obstacle, Pid, Removal, Status};

use super::{Stop, TEMPORARY, Table};
use crate::dialects::content::{Content, READ_LIMIT};
use crate::lock::backoff::Contention;
use crate::lock::directories::{Place, Role};
use crate::lock::flock;
use crate::lock::flock_rights::{self, Entitled, Flocker};
use crate::lock::holder_record::HolderRecord;
use crate::lock::{Cause, Weight};

/// A lock file without a readable pid is busy until it is this old: a program may be about to write it (FreeBSD's
/// `uu_lock`, efax, and every program that creates the file first and fills it then).
const WRITER_GRACE: Duration = Duration::from_secs(30);

/// All users without a number in our user namespace have this one, so it does not tell their files apart. Source:
/// `DEFAULT_OVERFLOWUID` in the kernel's include/linux/highuid.h.
const UNMAPPED_UID: u32 = 65_534;

/// What a lock file means for the caller.
#[derive(Debug)]
pub(super) enum Verdict {
    Free,
    Busy(Busy),
    Stale(Judged, Stale),
    /// Another process holds it by `flock(2)`, because it makes, breaks or releases the lock now; or the list that
    /// shows such a process is being read. The next look decides.
    NotYet(Cause),
}

/// Whether a stale lock file is ours to break or remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Breakable {
    Ours,
    NotYet(Cause),
}

/// Why a lock stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Busy {
    Held(ProcessIdentity),
    BeingWritten,
    Obstacle(Obstacle),
    /// It is stale, but a process whose `flock(2)` counts holds it.
    Flock(flock::Holder),
    Unknown,
}

/// What prevents the breaking of a stale lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    By(flock::Holder),
    ByNobodyKnown,
}

impl Blocked {
    pub(super) fn holder(self) -> Option<flock::Holder> {
        match self {
            Self::By(holder) => Some(holder),
            Self::ByNobodyKnown => None,
        }
    }
}

/// Why a lock is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stale {
    Gone(Pid),
    Reused(Pid),
    Unreadable,
}

impl Table {
    /// Reads a lock file and decides what it means for a caller that would break it.
    pub(super) fn judge(
        &mut self,
        place: &Place,
        name: &Name,
        now: SystemTime,
        contention: Contention,
    ) -> Verdict {
        match place.directory.read(name, READ_LIMIT) {
            Ok(Found::Nothing) => Verdict::Free,
            Ok(Found::Obstacle(obstacle)) => Verdict::Busy(Busy::Obstacle(obstacle)),
            Ok(Found::File(judged)) => self.verdict(place, name, judged, now, contention),
            Err(error) => {
                self.say(Weight::Warning, format!("in {}: {error}", place.path.display()));
                Verdict::Busy(Busy::Unknown)
            }
        }
    }

    /// A stale lock is judged once more while no other process may break or make it: its maker held `flock(2)` on it
    /// until the lock was recorded, and without the record, a lock of another pid namespace looks dead.
    pub(super) fn verdict(
        &mut self,
        place: &Place,
        name: &Name,
        judged: Judged,
        now: SystemTime,
        contention: Contention,
    ) -> Verdict {
        match self.sentence(judged, now, name) {
            Verdict::Stale(..) if !self.is_whole(place, name) => Verdict::NotYet(Cause::Breaking),
            Verdict::Stale(mut judged, stale) => {
                // Our own `flock(2)` must not count as that of another process.
                self.guards.let_go(name, judged.identity());
                match self.hold(place, name, &mut judged, contention) {
                    Ok(Breakable::Ours) => self.sentence(judged, now, name),
                    Ok(Breakable::NotYet(cause)) => Verdict::NotYet(cause),
                    // A network file system requires that the file is open for writing; breaking it handles that.
                    Err(_) => Verdict::Stale(judged, stale),
                }
            }
            verdict @ (Verdict::Free | Verdict::Busy(_) | Verdict::NotYet(_)) => verdict,
        }
    }

    /// Whether no process is passing that lock: until one process has it completely, none of its files is removed.
    fn is_whole(&mut self, place: &Place, name: &Name) -> bool {
        let own = self.open.as_ref().map(|open| open.own.directory.identity());
        own != Some(place.directory.identity()) || self.settle(place, name)
    }

    /// Whether it is ours to break or remove. A process that has `flock(2)` on it may be about to break it, without
    /// our gate. So a caller that can comes back later, and only then the right of that process is checked.
    pub(super) fn hold(
        &mut self,
        place: &Place,
        name: &Name,
        judged: &mut Judged,
        contention: Contention,
    ) -> io::Result<Breakable> {
        match (place.directory.hold(judged)?, contention) {
            (Hold::Ours, _) => Ok(Breakable::Ours),
            (Hold::InTheGate, Contention::Decides) => {
                let by = match self.flocker(judged.identity(), judged.owner()) {
                    None => return Ok(Breakable::NotYet(Cause::Reading)),
                    Some(Flocker::Entitled(_)) => return Ok(Breakable::NotYet(Cause::Breaking)),
                    Some(Flocker::Outsider(holder)) => holder.to_string(),
                    Some(Flocker::Nobody) => "a process that is gone".to_owned(),
                };
                judged.go_past();
                self.say(
                    Weight::Notice,
                    format!("ignored flock(2) of {by} on {}", place.name(name)),
                );
                Ok(Breakable::Ours)
            }
            (Hold::InTheGate | Hold::Others, _) => Ok(Breakable::NotYet(Cause::Breaking)),
        }
    }

    /// The holder of `flock(2)` on a lock file of this owner; `None` while the list is being read.
    pub(super) fn flocker(&mut self, file: Identity, owner: u32) -> Option<Flocker> {
        let Ok(sight) = self.flocks.on_file(file) else {
            return Some(Flocker::Entitled(flock::Holder::Unseen));
        };
        let sight = sight?;
        let entitled = Entitled { own: nix::unistd::geteuid().as_raw(), owner };
        let of = |pid| (process::owner(pid), lives(pid));
        Some(flock_rights::flocker(&sight, flock::sees_all(), entitled, of))
    }

    pub(super) fn sentence(&mut self, judged: Judged, now: SystemTime, name: &Name) -> Verdict {
        let Ok(content) = Content::parse(judged.content()) else {
            let young = match now.duration_since(judged.modified()) {
                Ok(age) => age < WRITER_GRACE,
                Err(_) => true,
            };
            return if young {
                Verdict::Busy(Busy::BeingWritten)
            } else {
                Verdict::Stale(judged, Stale::Unreadable)
            };
        };
        let pid = content.pid;
        let who = self.holder_of(name, pid, &judged);
        match self.records().fate(&who) {
            Fate::Same | Fate::Elsewhere => Verdict::Busy(Busy::Held(who)),
            Fate::Gone => Verdict::Stale(judged, Stale::Gone(pid)),
            Fate::Replaced => Verdict::Stale(judged, Stale::Reused(pid)),
        }
    }

    /// The process with the lock that names this number: the recorded one, or else the one that has the number.
    pub(super) fn holder_of(&mut self, name: &Name, pid: Pid, judged: &Judged) -> ProcessIdentity {
        let who = self.records().holder(name, pid, judged.identity(), judged.modified());
        // For a bare number, all that is known now, because a later process with this number is another one.
        if who == ProcessIdentity::bare(pid) { self.identify(pid) } else { who }
    }

    /// Whether the lock was taken in another pid namespace, where its number means another process.
    pub(super) fn is_elsewhere(&mut self, name: &Name, pid: Pid, judged: &Judged) -> bool {
        let who = self.holder_of(name, pid, judged);
        self.records().is_elsewhere(&who)
    }

    /// Whether the file keeps others out, whatever its content: a mere claim does not.
    pub(super) fn counts(&mut self, place: &Place, role: Role, name: &Name) -> bool {
        role == Role::Written || !place.is_open_to_all() || self.may_be_a_lock(place, name)
    }

    /// Whether something in a directory that is only searched, and open to everybody (`/tmp`, where
    /// Qt programs leave locks), is more than a claim: a lock of root's, or of the process that it
    /// names. Otherwise any user could block any port for ever, without a process.
    fn may_be_a_lock(&mut self, place: &Place, name: &Name) -> bool {
        let owner = match place.directory.read(name, READ_LIMIT) {
            Ok(Found::Nothing) => return false,
            Ok(Found::File(judged)) => {
                let pid = Content::parse(judged.content()).ok().map(|content| content.pid);
                let gone =
                    pid.is_some_and(|pid| self.records().machine().fate_of_number(pid).is_over());
                if gone
                    || judged.owner() == 0
                    || (judged.owner() != UNMAPPED_UID
                        && pid.and_then(process::owner) == Some(judged.owner()))
                {
                    return true;
                }
                format!("uid {}", judged.owner())
            }
            Ok(Found::Obstacle(obstacle)) => Busy::Obstacle(obstacle).to_string(),
            Err(error) => error.to_string(),
        };
        self.say(Weight::Notice, format!("ignored {}, no lock: {owner}", place.name(name)));
        false
    }

    /// Removes a stale lock whose place we do not take. A lock that may not be removed counts as removed; `None`
    /// while another process is breaking or removing it.
    pub(super) fn remove(
        &mut self,
        place: &Place,
        name: &Name,
        judged: Judged,
        stale: Stale,
    ) -> Option<Removal> {
        match self.take_away(place, name, judged) {
            Ok(Some(Removal::Removed)) => {
                self.say(Weight::Notice, format!("removed {}: {stale}", place.name(name)));
                Some(Removal::Removed)
            }
            Ok(other) => other,
            Err(error) => {
                let text = format!("ignored {}: {stale}; {error}", place.name(name));
                self.say(Weight::Warning, text);
                Some(Removal::Removed)
            }
        }
    }

    /// The same, with its record; a lock that may not be removed keeps its record.
    pub(super) fn take_away(
        &mut self,
        place: &Place,
        name: &Name,
        mut judged: Judged,
    ) -> Result<Option<Removal>, pidlockfile::Error> {
        let record = self.forget_held(place, name, &mut judged);
        let removal = let_go(place, name, judged);
        if removal.is_err() {
            self.put_back(name, record);
        }
        removal
    }

    /// Forgets a lock that is about to be removed, while no other process can put another lock there: afterwards, the
    /// record of the next lock might be removed instead. Call it only while the file with that name is ours to
    /// remove.
    pub(super) fn forget_held(
        &mut self,
        place: &Place,
        name: &Name,
        judged: &mut Judged,
    ) -> Option<HolderRecord> {
        let held = judged.goes_past() || matches!(place.directory.hold(judged), Ok(Hold::Ours));
        let seen = || Status::of_name(&place.directory, name.as_str());
        let is_there = held && seen().is_ok_and(|seen| seen.identity == judged.identity());
        is_there.then(|| self.records().forget_lock(name, judged.identity()))?
    }

    /// A lock that may not be removed keeps its record.
    pub(super) fn put_back(&mut self, name: &Name, record: Option<HolderRecord>) {
        if let Some(record) = record {
            self.records().put_back(name, &record);
        }
    }

    pub(super) fn busy(&mut self, place: &Place, name: &Name, busy: Busy) -> Stop {
        self.say(Weight::Info, format!("busy: {} {busy}", place.name(name)));
        Stop::Busy(match busy {
            Busy::Held(who) => Some(who),
            Busy::Flock(holder) => self.process_of(holder),
            Busy::BeingWritten | Busy::Obstacle(_) | Busy::Unknown => None,
        })
    }

    /// There is no answer yet about this file. A caller that comes back is told so, and so are all callers while the
    /// kernel's list is being read. For a caller that decides, the file is busy, and the answer names the holder.
    pub(super) fn not_yet(
        &mut self,
        place: &Place,
        name: &Name,
        contention: Contention,
        cause: Cause,
    ) -> Stop {
        if cause == Cause::Reading || contention == Contention::ComesBack {
            return Stop::NotYet(cause);
        }
        match self.blocked_by(place, name) {
            None => Stop::NotYet(Cause::Reading),
            Some(blocked) => {
                let busy = blocked.holder().map_or(Busy::Unknown, Busy::Flock);
                self.busy(place, name, busy)
            }
        }
    }

    /// What prevents the breaking of a stale lock file; `None` while the list is being read.
    pub(super) fn blocked_by(&mut self, place: &Place, name: &Name) -> Option<Blocked> {
        let Ok(seen) = Status::of_name(&place.directory, name.as_str()) else {
            return Some(Blocked::ByNobodyKnown);
        };
        Some(match self.flocker(seen.identity, seen.owner)? {
            Flocker::Entitled(holder) => Blocked::By(holder),
            // Without a gate, that `flock(2)` stops all processes.
            Flocker::Outsider(holder) if !place.directory.is_gated() => Blocked::By(holder),
            Flocker::Outsider(_) | Flocker::Nobody => Blocked::ByNobodyKnown,
        })
    }

    pub(super) fn cannot_write(&mut self, error: &pidlockfile::Error) -> Stop {
        self.say(Weight::Warning, format!("no lock can be written: {error}"));
        Stop::Denied
    }

    pub(super) fn cannot_break(
        &mut self,
        place: &Place,
        name: &Name,
        stale: Stale,
        error: &pidlockfile::Error,
    ) -> Stop {
        let file = place.name(name);
        let help = "run lfpd as the owner of the locks, or give it CAP_FOWNER";
        self.say(Weight::Warning, format!("busy: {file} is stale ({stale}) but {error}; {help}"));
        Stop::Busy(None)
    }
}

/// Removes a lock file that is ours to remove.
pub(super) fn let_go(
    place: &Place,
    name: &Name,
    judged: Judged,
) -> Result<Option<Removal>, pidlockfile::Error> {
    if judged.goes_past() {
        place.directory.release(name, judged, TEMPORARY).map(Some)
    } else {
        place.directory.try_release(name, judged)
    }
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
            Self::Flock(holder) => write!(f, "is stale, but flock(2) on it is held by {holder}"),
            Self::Unknown => f.write_str("is being changed by others"),
        }
    }
}

impl Stale {
    pub(super) fn is_of_the_dead(self) -> bool {
        match self {
            Self::Gone(_) | Self::Reused(_) => true,
            Self::Unreadable => false,
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
