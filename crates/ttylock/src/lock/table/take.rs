//! Takes every lock file of a device, or none.

use std::borrow::Borrow;
use std::cell::Cell;
use std::time::{Instant, SystemTime};

use nix::errno::Errno;
use pidlockfile::{
    Breaking, Claim, Durability, Found, Name, Publication, Published, Removal, Status,
};

use super::judge::{Busy, Verdict};
use super::keeping::room;
use super::{ATTEMPTS, LOCK_MODE, Stop, TEMPORARY, Table, Taken};
use crate::device::node::ResolvedDevice;
use crate::dialects::content::READ_LIMIT;
use crate::lock::backoff::Contention;
use crate::lock::directories::{Directories, Place, Role};
use crate::lock::holder_records::{Claimant, Written};
use crate::lock::names::LockNames;
use crate::lock::{Cause, Request, Weight};

/// What became of the record of a lock that was taken.
#[derive(Debug)]
pub(super) struct Remembering<'f> {
    /// The name of a lock file that is gone already: a program that ignores the rules has removed it at once.
    pub(super) lost: Option<&'f Name>,
    /// Whether records are kept.
    pub(super) is_on_record: bool,
}

impl Table {
    pub(super) fn try_lock(
        &mut self,
        request: &Request,
        resolved: Option<ResolvedDevice>,
        contention: Contention,
        asked: Instant,
    ) -> Result<(), Stop> {
        let claimant = self.records().claimant(request.pid);
        let (resolved, lock_names) = self.names(request, resolved)?;
        let open = self.open()?;
        let taken = self
            .refuse_invented(&resolved, &open.own)
            .and_then(|()| self.refuse_one_too_many(request.pid))
            .and_then(|()| self.refuse_flock(&resolved, request.pid, contention, asked))
            .and_then(|()| self.clear_searched(&open, &lock_names, contention))
            .and_then(|()| self.take_written(&open.own, &lock_names, request, contention));
        let published = taken?;
        let remembering = self.remember(&open.own, &lock_names, &claimant, &published);
        if let Some(name) = remembering.lost {
            self.take_back(&open.own, &lock_names, &published);
            return Err(self.not_yet(&open.own, name, contention, Cause::Breaking));
        }
        self.keep_if_there(&open.own, &lock_names, &claimant, &published)?;
        let room = room(Some(&resolved));
        for (name, published) in lock_names.written.iter().zip(published) {
            if claimant.was_there() {
                self.watched.add(name, &claimant.who, claimant.uid);
            }
            self.guards.keep(name, &claimant.who, published, room);
        }
        self.say(Weight::Info, format!("locked {} for pid {}", resolved.real(), request.pid));
        let (request, device) = (request.clone(), resolved.real().to_owned());
        self.taken = Some(Taken { request, device, names: lock_names.written });
        Ok(())
    }

    /// A process that ended while the lock was taken gets no lock: another process may have its number.
    pub(super) fn keep_if_there(
        &mut self,
        own: &Place,
        lock_names: &LockNames,
        claimant: &Claimant,
        published: &[Published],
    ) -> Result<(), Stop> {
        if self.records().is_there(claimant) {
            return Ok(());
        }
        self.take_back(own, lock_names, published);
        self.say(Weight::Info, format!("pid {} ended while its lock was taken", claimant.who.pid));
        Err(Stop::Busy(None))
    }

    /// Gives back the files that were taken and recorded.
    fn take_back(&mut self, own: &Place, lock_names: &LockNames, published: &[Published]) {
        // The records are removed while the files are held: afterwards, the record of the next lock might be removed
        // instead.
        for (name, published) in lock_names.written.iter().zip(published) {
            self.records().forget_lock(name, published.identity);
        }
        self.give_back(own, lock_names, published);
    }

    /// Examines every name that is not going to be written. A dead lock is removed; if it may not be removed, it is
    /// ignored.
    pub(super) fn clear_searched(
        &mut self,
        open: &Directories,
        lock_names: &LockNames,
        contention: Contention,
    ) -> Result<(), Stop> {
        let now = SystemTime::now();
        for name in &lock_names.searched {
            self.clear(&open.own, name, now, (Role::Written, contention))?;
        }
        for place in &open.others {
            for name in place.those_present(lock_names.all(), now) {
                if self.counts(place, Role::Searched, name) {
                    self.clear(place, name, now, (Role::Searched, contention))?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn clear(
        &mut self,
        place: &Place,
        name: &Name,
        now: SystemTime,
        (role, contention): (Role, Contention),
    ) -> Result<(), Stop> {
        for _ in 0..ATTEMPTS {
            let cause = match self.judge(place, name, now, contention) {
                Verdict::Free => return Ok(()),
                Verdict::Busy(busy) => return Err(self.busy(place, name, busy)),
                Verdict::Stale(judged, stale) => match self.remove(place, name, judged, stale) {
                    Some(Removal::Removed) => return Ok(()),
                    Some(Removal::Changed) => continue,
                    None => Cause::Breaking,
                },
                Verdict::NotYet(cause) => cause,
            };
            // This directory is only searched, and any user may make a stale lock there and hold it.
            if role == Role::Searched && place.is_open_to_all() {
                return Ok(());
            }
            return Err(self.not_yet(place, name, contention, cause));
        }
        Err(self.busy(place, name, Busy::Unknown))
    }

    /// Takes every written name in order; on the first conflict, gives back the names that it has taken.
    pub(super) fn take_written(
        &mut self,
        own: &Place,
        lock_names: &LockNames,
        request: &Request,
        contention: Contention,
    ) -> Result<Vec<Published>, Stop> {
        let content = self.layout.dialect.content.write(request.pid);
        let claim = Claim {
            content: &content,
            mode: LOCK_MODE,
            prefix: TEMPORARY.as_ref(),
            durability: Durability::Memory,
        };
        let mut taken: Vec<Published> = Vec::with_capacity(lock_names.written.len());
        for name in &lock_names.written {
            match self.take(own, name, &claim, contention) {
                Ok(published) => taken.push(published),
                Err(stop) => {
                    self.give_back(own, lock_names, &taken);
                    return Err(stop);
                }
            }
        }
        Ok(taken)
    }

    pub(super) fn take(
        &mut self,
        own: &Place,
        name: &Name,
        claim: &Claim<'_>,
        contention: Contention,
    ) -> Result<Published, Stop> {
        for _ in 0..ATTEMPTS {
            match own.directory.publish(name, claim) {
                Ok(Publication::Published(published)) => return Ok(published),
                Ok(Publication::AlreadyThere) => {
                    self.settle_each(own, std::slice::from_ref(name), contention)?;
                }
                Err(error) => return Err(self.not_taken(own, name, &error, contention)),
            }
            let (judged, stale) = match self.judge(own, name, SystemTime::now(), contention) {
                Verdict::Free => continue,
                Verdict::Busy(busy) => return Err(self.busy(own, name, busy)),
                Verdict::NotYet(cause) => {
                    return Err(self.not_yet(own, name, contention, cause));
                }
                Verdict::Stale(judged, stale) => (judged, stale),
            };
            match own.directory.replace(name, judged, claim) {
                Ok(Breaking::Replaced(published)) => {
                    self.say(Weight::Notice, format!("broke {}: {stale}", own.name(name)));
                    return Ok(published);
                }
                Ok(Breaking::Changed) => {}
                Ok(Breaking::Contended) => {
                    return Err(self.not_yet(own, name, contention, Cause::Breaking));
                }
                Err(error) => return Err(self.cannot_break(own, name, stale, &error)),
            }
        }
        Err(self.busy(own, name, Busy::Unknown))
    }

    /// The lock file could not be written, as on a full disk. If another process has the lock, that is the answer.
    fn not_taken(
        &mut self,
        own: &Place,
        name: &Name,
        error: &pidlockfile::Error,
        contention: Contention,
    ) -> Stop {
        let verdict = self.judge(own, name, SystemTime::now(), contention);
        if let Verdict::Busy(busy @ Busy::Held(_)) = verdict {
            return self.busy(own, name, busy);
        }
        self.cannot_write(error)
    }

    pub(super) fn give_back(&mut self, own: &Place, lock_names: &LockNames, taken: &[Published]) {
        for (name, published) in lock_names.written.iter().zip(taken).rev() {
            // A file that was written to since then belongs to the process that wrote it.
            let as_written = |seen: &Status| seen.modified == published.modified;
            if let Ok(Some(_)) = own.directory.try_withdraw(name, published, as_written) {
                continue;
            }
            // Otherwise our own `flock(2)` would be in the way.
            published.let_go();
            let Ok(Found::File(judged)) = own.directory.read(name, READ_LIMIT) else { continue };
            if judged.identity() != published.identity || judged.modified() != published.modified {
                continue;
            }
            if let Err(error) = own.directory.release(name, judged, TEMPORARY) {
                self.say(Weight::Warning, format!("left {} behind: {error}", own.name(name)));
            }
        }
    }

    /// Records a lock before the client is told that it is taken, and before another process may break it: without
    /// one it looks dead to processes in another pid namespace, and a reused pid goes unnoticed. The lock files are
    /// held by `flock(2)` meanwhile ([`pidlockfile::Directory::guarding`]).
    pub(super) fn remember<'f>(
        &mut self,
        own: &Place,
        lock_names: &'f LockNames,
        claimant: &Claimant,
        published: &[impl Borrow<Published>],
    ) -> Remembering<'f> {
        let published = || published.iter().map(Borrow::borrow);
        let files = lock_names.written.iter().zip(published()).map(|(name, published)| {
            let Published { identity, modified, .. } = published;
            Written { name: name.clone(), file: *identity, at: *modified }
        });
        let files: Vec<Written> = files.collect();
        let all_stand = Cell::new(true);
        let named = || lock_names.written.iter().zip(published());
        let is_lost = |lock: &Written| {
            let lost =
                |(name, it): (&Name, &Published)| *name == lock.name && !stands(own, name, it);
            let lost = named().any(lost);
            all_stand.set(all_stand.get() && !lost);
            lost
        };
        let outcome = self.records().remember(claimant, &files, |lock| !is_lost(lock));
        if let Err(errno) = outcome {
            let text =
                format!("start of pid {} is not recorded: {}", claimant.who.pid, errno.desc());
            self.say(Weight::Warning, text);
        }
        let mut lost = named().filter(|_| !all_stand.get());
        let lost = lost.find(|(name, it)| !stands(own, name, it)).map(|(name, _)| name);
        // A user who may not write the state directory has no records, here as with LOCK.
        let has_none = matches!(outcome, Err(Errno::EACCES | Errno::EPERM | Errno::EROFS));
        Remembering { lost, is_on_record: outcome.is_ok() || has_none }
    }
}

/// Whether a written lock still has its name and is unchanged. If its file has another name, a release past a
/// `flock(2)` may have moved it aside for a moment. If that lasts, a program has renamed it, and it is no lock any
/// more.
fn stands(place: &Place, name: &Name, published: &Published) -> bool {
    for _ in 0..ATTEMPTS {
        match Status::of_name(&place.directory, name.as_str()) {
            Ok(seen) if seen.identity == published.identity => {
                return seen.modified == published.modified;
            }
            Ok(_) | Err(Errno::ENOENT) if !published.has_a_name() => return false,
            Ok(_) | Err(Errno::ENOENT) => std::thread::yield_now(),
            // A file that cannot be examined is not reported as gone.
            Err(_) => return true,
        }
    }
    false
}
