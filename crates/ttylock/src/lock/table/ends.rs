//! Removes the locks of processes that have ended: for a daemon that is told of their ends, and for `lfp
//! clean`.

use std::ffi::OsStr;
use std::path::Path;
use std::time::SystemTime;

use pidlockfile::process::{Fate, ProcessIdentity};
use pidlockfile::{Found, Judged, Name, Pid, Removal, Status};

use super::Table;
use super::judge::{Busy, Verdict};
use crate::dialects::content::{Content, READ_LIMIT};
use crate::limits::WATCHED_LOCKS;
use crate::lock::backoff::{Backoff, Contention};
use crate::lock::directories::Place;
use crate::lock::holders::Holder;
use crate::lock::watched::Watched;
use crate::lock::{Cause, Event};

impl Table {
    /// Lists every lock in our own directory by its holder, and removes those of the dead. Those of the
    /// living that an earlier daemon has written are kept open.
    pub(super) fn watch_all(&mut self, own: &Place) {
        self.watched = Watched::up_to(WATCHED_LOCKS);
        let now = SystemTime::now();
        for name in own.lock_names() {
            // Our flock(2) would prevent a process that passes the lock from finishing.
            let whole = self.settle(own, &name);
            match self.judge(own, &name, now, Contention::ComesBack) {
                Verdict::Busy(Busy::Held(who)) => {
                    if whole {
                        self.keep_of_earlier(own, &name, &who);
                    }
                    let user = self.user_of(own, &name, who.pid);
                    self.watched.add(&name, &who, user);
                }
                Verdict::Stale(judged, stale) if stale.is_of_the_dead() => {
                    self.remove(own, &name, judged, stale);
                }
                Verdict::Stale(..) | Verdict::NotYet(_) | Verdict::Busy(_) | Verdict::Free => {}
            }
        }
    }

    /// The user of a lock by our own record, or else the owner of the file, whichever process it names.
    fn user_of(&mut self, own: &Place, name: &Name, holder: Pid) -> Option<u32> {
        let file = Status::of_name(&own.directory, name.as_str()).ok()?;
        let noted = self.records().user(name, holder, file.identity, file.modified);
        noted.or(Some(file.owner))
    }

    /// The new holders of locks since the last call. The caller reports when they end.
    pub fn take_newly_watched(&mut self) -> Vec<ProcessIdentity> {
        self.watched.take_fresh()
    }

    /// Whether a process with this number is watched for its end.
    #[must_use]
    pub fn watches(&self, pid: Pid) -> bool {
        !self.watched.of_number(pid).is_empty()
    }

    /// How many lock files of this process are known.
    #[must_use]
    pub fn files_of(&self, who: &ProcessIdentity) -> usize {
        self.watched.count_of(who)
    }

    /// Whether any process is watched for its end.
    #[must_use]
    pub fn watches_any(&self) -> bool {
        !self.watched.is_empty()
    }

    /// The process that has this number now.
    pub fn identify(&mut self, pid: Pid) -> ProcessIdentity {
        self.records().machine().identify(pid)
    }

    /// Whether there is a process of this number here that has not ended.
    pub fn lives(&mut self, pid: Pid) -> bool {
        self.records().machine().lives(pid)
    }

    /// What has become of a process.
    pub fn fate(&mut self, who: &ProcessIdentity) -> Fate {
        self.records().fate(who)
    }

    /// Whether a process existed and has ended.
    pub fn has_ended(&mut self, who: &ProcessIdentity) -> bool {
        self.records().machine().has_ended(who)
    }

    /// A process of this number has ended: its locks are removed, even if another process has the number by now.
    pub fn gone(&mut self, pid: Pid) -> Vec<Event> {
        self.records();
        if let Some(records) = &mut self.records {
            self.guards.forget_the_gone(pid, records.machine());
        }
        for who in self.watched.of_number(pid) {
            if !self.fate(&who).is_over() {
                continue;
            }
            let names = self.watched.take(&who);
            if let (false, Ok(open)) = (names.is_empty(), self.open()) {
                // In the reverse order of taking: a process that meets the first name still finds it held.
                names.iter().rev().for_each(|name| self.remove_dead(&open.own, name));
            }
        }
        std::mem::take(&mut self.events)
    }

    fn remove_dead(&mut self, own: &Place, name: &Name) {
        if let Verdict::Stale(judged, stale) =
            self.judge(own, name, SystemTime::now(), Contention::ComesBack)
        {
            // If another process is breaking the lock, it takes it.
            self.remove(own, name, judged, stale);
        }
    }

    /// Removes a lock file that was seen to be stale, if it is still the same one and still stale. May sleep
    /// for some milliseconds, as [`Table::lock`].
    ///
    /// # Errors
    /// Why it is still there, in words.
    pub fn clear_away(&mut self, seen: &Holder) -> Result<(), String> {
        let Some((path, name)) = seen.scheme.file().and_then(split) else { return Ok(()) };
        let Ok(open) = self.open() else { return Err("its directory cannot be opened".to_owned()) };
        let mut places = std::iter::once(&open.own).chain(&open.others);
        let Some(place) = places.find(|place| place.path == path) else { return Ok(()) };
        let mut backoff = Backoff::default();
        loop {
            let contention = backoff.contention();
            match self.try_clear(place, &name, seen, contention) {
                Ok(cleared) => return cleared,
                Err(cause) => std::thread::sleep(backoff.pause(cause)),
            }
        }
    }

    /// One attempt. On an error, the caller tries again.
    fn try_clear(
        &mut self,
        place: &Place,
        name: &Name,
        seen: &Holder,
        contention: Contention,
    ) -> Result<Result<(), String>, Cause> {
        let judged = match place.directory.read(name, READ_LIMIT) {
            Ok(Found::File(judged)) if is_the_same(seen, &judged) => judged,
            Ok(Found::File(_) | Found::Nothing | Found::Obstacle(_)) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error.to_string())),
        };
        let cause = match self.verdict(place, name, judged, SystemTime::now(), contention) {
            Verdict::Free | Verdict::Busy(_) => return Ok(Ok(())),
            Verdict::NotYet(cause) => cause,
            Verdict::Stale(judged, _) => match self.take_away(place, name, judged) {
                Ok(Some(Removal::Removed | Removal::Changed)) => return Ok(Ok(())),
                Ok(None) => Cause::Breaking,
                Err(error) => return Ok(Err(error.to_string())),
            },
        };
        if cause == Cause::Reading || contention == Contention::ComesBack {
            return Err(cause);
        }
        let blocked = self.blocked_by(place, name).ok_or(Cause::Reading)?;
        let by = blocked.holder().map(|holder| format!(": {holder}"));
        Ok(Err(format!("{SOMEBODY_ELSE}{}", by.unwrap_or_default())))
    }

    /// The numbers of watched processes that have ended, perhaps without an event.
    pub fn the_gone(&mut self) -> Vec<Pid> {
        self.records();
        let Some(records) = &mut self.records else { return Vec::new() };
        let gone = self.watched.holders().filter(|who| records.fate(who).is_over());
        gone.map(|who| who.pid).collect()
    }
}

const SOMEBODY_ELSE: &str = "another process is removing it, or keeps it locked";

fn split(path: &Path) -> Option<(&Path, Name)> {
    let name = path.file_name().and_then(OsStr::to_str)?;
    Some((path.parent()?, Name::new(name.to_owned())?))
}

/// Whether the file still has the content by which it was stale.
fn is_the_same(seen: &Holder, judged: &Judged) -> bool {
    let pid = Content::parse(judged.content()).ok().map(|content| content.pid);
    pid == seen.pid && Some(judged.modified()) == seen.since
}
