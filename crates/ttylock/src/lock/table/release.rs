//! Releases every lock file of a device that belongs to the caller or is stale.

use std::time::SystemTime;

use nix::errno::Errno;
use pidlockfile::{Found, Identity, Judged, Name, Pid, Removal, Status};

use super::judge::{Breakable, Busy, Stale, Verdict, let_go};
use super::{ATTEMPTS, Stop, TEMPORARY, Table};
use crate::dialects::content::{Content, READ_LIMIT};
use crate::lock::backoff::Contention;
use crate::lock::directories::{Directories, Place};
use crate::lock::names::LockNames;
use crate::lock::{Cause, Request, Weight};

/// The results for the files of a device that was unlocked.
#[derive(Debug, Default)]
pub(super) struct Tally {
    removed: usize,
    own: usize,
    busy: usize,
    /// Files that may not be removed, or could not be.
    failed: usize,
    /// Those among them that are the caller's.
    own_failed: usize,
    /// Stale files that another process is breaking or removing.
    contended: usize,
    /// Whether the list that shows the process with one of them is being read.
    is_being_read: bool,
    /// The files in our own directory that still exist; the records are about these.
    standing: Vec<Name>,
}

impl Table {
    /// The real name of the device that was released.
    pub(super) fn try_unlock(
        &mut self,
        request: &Request,
        contention: Contention,
    ) -> Result<String, Stop> {
        let open = self.open()?;
        let mut tally = Tally::default();
        if let Some(taken) = self.taken.take_if(|taken| taken.request == *request) {
            tally = self.release_written(&open.own, &taken.names, request.pid, contention);
            if tally.is_enough() {
                self.watched.forget(&taken.names, request.pid);
                return Ok(self.unlocked(&taken.device, request.pid));
            }
        }
        let mut resolved = self.follow(&request.device)?;
        // If the lock is recorded, the record has all its names.
        let mut lock_names = self.lock_names(&resolved, &request.device)?;
        let written = self.names_written(&lock_names, request.pid);
        let those_written = self.release_written(&open.own, &written, request.pid, contention);
        if those_written.is_enough() {
            self.watched.forget(&written, request.pid);
            return Ok(self.unlocked(resolved.real(), request.pid));
        }
        tally = tally.and(those_written);
        // The known names are released in any case.
        let _ = self.add_links(&mut resolved);
        lock_names = self.lock_names(&resolved, &request.device)?;
        for name in written {
            lock_names.write_too(name);
        }
        self.settle_each(&open.own, &lock_names.written, contention)?;
        tally = tally.and(self.release_all(&open, &lock_names, request.pid, contention));
        // For files that other programs removed. When a file is removed here, its record is removed first.
        self.forget_gone(&open.own, &lock_names.written, &tally.standing);
        if tally.removed > 0 {
            let vacant: Vec<Name> = lock_names
                .written
                .into_iter()
                .filter(|name| !tally.standing.contains(name))
                .collect();
            self.watched.forget(&vacant, request.pid);
        }
        let (device, pid) = (resolved.real(), request.pid);
        if tally.own == 0 && tally.is_being_read {
            return Err(Stop::NotYet(Cause::Reading));
        }
        if tally.own == 0 && tally.contended > 0 && contention == Contention::ComesBack {
            return Err(Stop::NotYet(Cause::Breaking));
        }
        let stands = tally.busy.saturating_add(tally.contended) > 0;
        if tally.own_failed > 0 {
            Err(Stop::Denied)
        } else if tally.own > 0 || (tally.removed > 0 && !stands) {
            Ok(self.unlocked(device, pid))
        } else if tally.failed > 0 {
            Err(Stop::Denied)
        } else {
            self.say(Weight::Info, format!("{device} is not pid {pid}'s to unlock"));
            Err(Stop::Busy(None))
        }
    }

    fn unlocked(&mut self, device: &str, pid: Pid) -> String {
        self.say(Weight::Info, format!("unlocked {device} for pid {pid}"));
        device.to_owned()
    }

    /// The names under which this pid's lock of the device was written.
    pub(super) fn names_written(&mut self, lock_names: &LockNames, pid: Pid) -> Vec<Name> {
        let first = lock_names.written.first();
        first.map(|name| self.records().names(name, pid)).unwrap_or_default()
    }

    /// Forgets files that are gone. The next holder may have taken a name already, and be recorded.
    fn forget_gone(&mut self, own: &Place, names: &[Name], standing: &[Name]) {
        for name in names.iter().filter(|name| !standing.contains(name)) {
            let Some(file) = self.records().file_of(name) else { continue };
            if !leads_to(own, name, file) {
                self.records().sweep(name, file);
            }
        }
    }

    /// Releases the files that were written for this process. If all of them can be removed, no other file is
    /// searched.
    fn release_written(
        &mut self,
        own: &Place,
        written: &[Name],
        pid: Pid,
        contention: Contention,
    ) -> Tally {
        let mut tally = Tally::default();
        if !self.settle_written(own, written) {
            // It is reported when all names of the device have been tried.
            return tally;
        }
        // The lock of an ended process may be broken at this moment, past a `flock(2)` that we get a moment later.
        if !self.guards.is_a_daemons() && !self.lives(pid) {
            for name in written {
                drop(self.guards.take(name, pid));
            }
        }
        for name in written.iter().rev() {
            if !self.withdraw(own, name, pid, &mut tally) {
                self.release(own, name, pid, contention, &mut tally);
            }
        }
        tally
    }

    pub(super) fn release_all(
        &mut self,
        open: &Directories,
        lock_names: &LockNames,
        pid: Pid,
        contention: Contention,
    ) -> Tally {
        let now = SystemTime::now();
        let mut tally = Tally::default();
        // In the reverse order of taking: a process that meets the first name still finds it held.
        for name in lock_names.written.iter().chain(&lock_names.searched).rev() {
            if !self.withdraw(&open.own, name, pid, &mut tally) {
                let stood = tally.stood();
                self.release(&open.own, name, pid, contention, &mut tally);
                if stood != tally.stood() {
                    tally.standing.push(name.clone());
                }
            }
        }
        for place in &open.others {
            for name in place.those_present(lock_names.all(), now) {
                self.release(place, name, pid, contention, &mut tally);
            }
        }
        tally
    }

    /// Removes a lock that was kept open: its content and owner are known. If that fails, the file is let go, and
    /// released like any other.
    pub(super) fn withdraw(
        &mut self,
        own: &Place,
        name: &Name,
        pid: Pid,
        tally: &mut Tally,
    ) -> bool {
        let Some(published) = self.guards.take(name, pid) else { return false };
        let records = self.records();
        let removal = own.directory.try_withdraw(name, &published, |seen| {
            let is_as_written = seen.modified == published.modified;
            if is_as_written {
                // The name belongs to this lock, so the record of that name does, too, and no process of the service
                // replaces either meanwhile.
                records.forget(name);
            }
            is_as_written
        });
        let removed = matches!(removal, Ok(Some(Removal::Removed)));
        // A file that still exists must not keep our `flock(2)`: it is released in another way.
        if removed && self.guards.is_a_daemons() {
            self.put_off_closing(Some(published.file));
        }
        tally.removed += usize::from(removed);
        tally.own += usize::from(removed);
        removed
    }

    pub(super) fn release(
        &mut self,
        place: &Place,
        name: &Name,
        pid: Pid,
        contention: Contention,
        tally: &mut Tally,
    ) {
        let mut is_contended = false;
        for _ in 0..ATTEMPTS {
            let found = place.directory.read(name, READ_LIMIT);
            let Ok(Found::File(judged)) = found else {
                tally.busy += usize::from(!matches!(found, Ok(Found::Nothing)));
                return;
            };
            let (own, living, verdict) =
                self.judge_for_release(place, name, judged, pid, contention);
            let mut judged = match verdict {
                Verdict::Free => return,
                Verdict::Busy(_) => {
                    tally.busy += 1;
                    return;
                }
                Verdict::NotYet(cause) => {
                    return self.not_yet_here(place, name, (contention, cause), tally);
                }
                Verdict::Stale(judged, _) => judged,
            };
            // Only a daemon defers it.
            let file = judged.identity();
            let spent = self.guards.is_a_daemons().then(|| judged.try_clone()).and_then(Result::ok);
            let forced = living && is_contended;
            if forced {
                judged.go_past();
            }
            let record = if own { self.forget_held(place, name, &mut judged) } else { None };
            let removal = if forced {
                place.directory.release(name, judged, TEMPORARY).map(Some)
            } else {
                let_go(place, name, judged)
            };
            if matches!(removal, Ok(Some(Removal::Removed))) {
                tally.removed += 1;
                tally.own += usize::from(own);
                if record.is_none() {
                    // It could not be forgotten before, because another process held the file.
                    self.records().sweep(name, file);
                }
                self.put_off_closing(spent);
                return;
            }
            // Closing the descriptor releases the `flock(2)`, if there is one.
            drop(spent);
            match removal {
                Ok(Some(Removal::Removed | Removal::Changed)) => {}
                Ok(None) if living => is_contended = true,
                Ok(None) => break,
                Err(error) => {
                    self.put_back(name, record);
                    self.say(Weight::Warning, format!("left {}: {error}", place.name(name)));
                    tally.failed += 1;
                    tally.own_failed += usize::from(own);
                    return;
                }
            }
        }
        self.not_yet_here(place, name, (contention, Cause::Breaking), tally);
    }

    /// Another process is breaking or removing it; the event names that process.
    fn not_yet_here(
        &mut self,
        place: &Place,
        name: &Name,
        (contention, cause): (Contention, Cause),
        tally: &mut Tally,
    ) {
        let stop = self.not_yet(place, name, contention, cause);
        tally.is_being_read |= stop == Stop::NotYet(Cause::Reading);
        tally.contended += 1;
    }

    /// Judges a lock for a release: whether it is the caller's own, and whether the caller is alive.
    fn judge_for_release(
        &mut self,
        place: &Place,
        name: &Name,
        judged: Judged,
        pid: Pid,
        contention: Contention,
    ) -> (bool, bool, Verdict) {
        let held_by = Content::parse(judged.content()).ok().map(|content| content.pid);
        // The same number in another pid namespace is another process.
        let own = held_by == Some(pid) && !self.is_elsewhere(name, pid, &judged);
        // A living owner's lock is released whichever process holds the file by flock: no process may break it, so
        // there is none to wait for. A dead owner's lock may be broken at this moment, which can take long on a busy
        // machine, and then it belongs to the process that breaks it.
        let living = own && self.lives(pid);
        let verdict = match own {
            true => self.own_to_release(place, name, judged, pid, (living, contention)),
            false => self.verdict(place, name, judged, SystemTime::now(), contention),
        };
        (own, living, verdict)
    }

    /// Judges a lock with the caller's number.
    fn own_to_release(
        &mut self,
        place: &Place,
        name: &Name,
        mut judged: Judged,
        pid: Pid,
        (living, contention): (bool, Contention),
    ) -> Verdict {
        // We hold the file after its maker did, so the record exists.
        let held = if living {
            place.directory.hold(&mut judged).map(|_| Breakable::Ours)
        } else {
            self.hold(place, name, &mut judged, contention)
        };
        let who = self.holder_of(name, pid, &judged);
        if self.records().is_elsewhere(&who) {
            Verdict::Busy(Busy::Held(who))
        } else if let Ok(Breakable::NotYet(cause)) = held {
            Verdict::NotYet(cause)
        } else {
            Verdict::Stale(judged, Stale::Gone(pid))
        }
    }
}

/// Whether the name still belongs to that file. If that cannot be found out, it does.
fn leads_to(own: &Place, name: &Name, file: Identity) -> bool {
    match Status::of_name(&own.directory, name.as_str()) {
        Ok(seen) => seen.identity == file,
        Err(errno) => errno != Errno::ENOENT,
    }
}

impl Tally {
    /// Adds the result of a second pass: files removed before still count; the others were examined again.
    fn and(self, later: Self) -> Self {
        let removed = self.removed.saturating_add(later.removed);
        Self { removed, own: self.own.saturating_add(later.own), ..later }
    }

    /// Whether the caller's lock was released, and no file prevents the next lock.
    fn is_enough(&self) -> bool {
        self.own > 0 && self.stood() == (0, 0, 0)
    }

    pub(super) fn stood(&self) -> (usize, usize, usize) {
        (self.busy, self.failed, self.contended)
    }
}
