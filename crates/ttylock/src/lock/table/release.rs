//! Releases every lock file of a device that belongs to the caller or is stale.

use pidlockfile::process::lives;
use pidlockfile::{Attempt, Found, Judged, Name, Pid, Status};
use std::io::ErrorKind;

use super::classify::{Busy, Classification, Stale};
use super::state::State;
use super::{ATTEMPTS, Stop, handover, resolve};
use crate::lock::directories::{LockFile, Place, Role};
use crate::lock::flock::FlockHolder;
use crate::lock::{Cause, Request, Weight};

/// What became of an existing lock file.
#[derive(Debug)]
struct Released {
    /// Whether it is, or was, the caller's. Otherwise it was stale, or is the lock of another process or no lock.
    is_own: bool,
    removal: Result<(), Stop>,
    /// The names that were removed.
    gone: Vec<Name>,
}

/// UNLOCK: the recorded names; if these are not enough, all names in all directories. Returns the real name of the
/// device that was released.
pub(super) fn release(state: &mut State, request: &Request) -> Result<String, Stop> {
    let (open, pid) = (state.open()?, request.pid);
    let own = &open.own;
    let mut resolved = resolve::find(state, &request.device)?;
    // If the lock is recorded, the record has all its names.
    let mut lock_names = resolve::lock_names_of(state, &resolved, &request.device)?;
    let written = state.names_written(&lock_names.written, pid);
    let mut files = state.in_the_gate(|state| release_written(state, own, &written, pid));
    if let Some(Released { is_own: true, removal: Err(Stop::NotYet(cause)), .. }) = files.last() {
        return Err(Stop::NotYet(*cause));
    }
    if is_enough(&files) {
        let is_gone = |name: &&Name| files.iter().any(|it| it.gone.contains(*name));
        let missing: Vec<Name> = written.iter().filter(|it| !is_gone(it)).cloned().collect();
        forget_missing(state, own, &missing);
        state.watched.forget(&written, pid);
        return Ok(unlocked(state, resolved.real(), pid));
    }
    // The known names are released in any case.
    let _ = resolve::add_links(state, &mut resolved);
    lock_names = resolve::lock_names_of(state, &resolved, &request.device)?;
    for name in written {
        lock_names.write_too(name);
    }
    handover::settle_each(state, own, &lock_names.written, Some(pid))?;
    // The files that were not removed are examined again.
    files.retain(|it| it.removal.is_ok());
    // In the reverse order of taking: a process that meets the first name still finds it held.
    let written = lock_names.written.iter().rev().map(|name| own.file(name));
    let mut vacant = Vec::new();
    for file in open.searched(&lock_names).chain(written) {
        let released = release_one(state, file, &[], pid);
        let stays = released.as_ref().filter(|it| it.removal.is_err()).map(|it| it.is_own);
        files.extend(released);
        match stays {
            _ if file.place.role != Role::Written => {}
            None => vacant.push(file.name.clone()),
            Some(true) => break,
            Some(false) => {}
        }
    }
    // For files that other programs removed. When a file is removed here, its record is removed first.
    forget_missing(state, own, &vacant);
    if files.iter().any(|it| it.removal.is_ok()) {
        state.watched.forget(&vacant, pid);
    }
    let device = resolved.real();
    match outcome(&files) {
        Ok(()) => Ok(unlocked(state, device, pid)),
        Err(stop) => {
            // An event already says why a file of its own is still there.
            if stop == Stop::Busy(None) && !files.iter().any(|it| it.is_own) {
                state.say(Weight::Info, format!("{device} is not pid {pid}'s to unlock"));
            }
            Err(stop)
        }
    }
}

fn unlocked(state: &mut State, device: &str, pid: Pid) -> String {
    state.say(Weight::Info, format!("unlocked {device} for pid {pid}"));
    device.to_owned()
}

/// Whether the caller's lock was released, and no file prevents the next lock.
fn is_enough(files: &[Released]) -> bool {
    files.iter().all(|it| it.removal.is_ok()) && files.iter().any(|it| it.is_own)
}

/// Whether a device with these files is released.
fn outcome(files: &[Released]) -> Result<(), Stop> {
    let any = |is_it: &dyn Fn(&Released) -> bool| files.iter().any(is_it);
    let is_done = any(&|it| it.is_own && it.removal.is_ok());
    let waits =
        |it: &&Released| matches!(it.removal, Err(Stop::NotYet(_))) && (it.is_own || !is_done);
    let reads = |it: &Released| it.removal == Err(Stop::NotYet(Cause::Reading));
    if let Some(it) = files.iter().filter(waits).max_by_key(|it| reads(it)) {
        return it.removal.clone();
    }
    let denied = Err(Stop::Denied);
    let is_busy = |it: &Released| matches!(it.removal, Err(Stop::Busy(_)));
    if let Some(stays) = files.iter().find(|it| it.is_own && it.removal.is_err()) {
        stays.removal.clone()
    } else if is_done || any(&|it| it.removal.is_ok()) && !any(&is_busy) {
        Ok(())
    } else if any(&|it| it.removal == denied) {
        denied
    } else {
        Err(Stop::Busy(None))
    }
}

/// Removes the records of those files that do not exist any more.
pub(super) fn forget_missing(state: &State, own: &Place, names: &[Name]) {
    for name in names {
        // A file that cannot be examined is not gone.
        state.records.sweep_name(name, |file| {
            match Status::of_name(&own.directory, name.as_str()) {
                Ok(seen) => seen.identity == file,
                Err(error) => error.kind() != ErrorKind::NotFound,
            }
        });
    }
}

/// Releases the files that were written for this process, up to the first one that stays: the other names then keep others
/// out. If all of them can be removed, no other file is searched.
fn release_written(state: &mut State, own: &Place, written: &[Name], pid: Pid) -> Vec<Released> {
    let first = written.first().map(|name| own.file(name));
    if first.is_some_and(|it| !handover::settle_note(state, it, it.name, Some(pid))) {
        // It is reported when all names of the device have been tried.
        return Vec::new();
    }
    let mut files: Vec<Released> = Vec::new();
    let mut names: Vec<&Name> = written.iter().collect();
    while let Some(name) = names.pop() {
        if files.last().is_some_and(|it| it.removal.is_err()) {
            break;
        }
        let also: Vec<&Name> = names.iter().rev().copied().collect();
        let released = release_one(state, own.file(name), &also, pid);
        let gone = released.iter().flat_map(|it| &it.gone).collect::<Vec<_>>();
        names.retain(|name| !gone.contains(name));
        files.extend(released);
    }
    files
}

/// Removes a lock file of this process or a stale one, and the other names of the file in `also`. `None` if there is no
/// such file.
fn release_one(
    state: &mut State,
    file: LockFile<'_>,
    also: &[&Name],
    pid: Pid,
) -> Option<Released> {
    let came_to = |is_own, removal| Some(Released { is_own, removal, gone: Vec::new() });
    let mut is_contended = false;
    for _ in 0..ATTEMPTS {
        let mut judged = match file.read() {
            Ok(Found::File(judged)) => judged,
            Ok(Found::Nothing) => return None,
            Ok(Found::Obstacle(_)) | Err(_) => return came_to(false, Err(Stop::Busy(None))),
        };
        let is_own = is_own(state, file.name, &judged, pid);
        if !is_own {
            // To classify another's lock may take long.
            state.passage = None;
        }
        if is_own {
            if let Err(busy) = state.must_enter(file, &mut judged) {
                return came_to(true, Err(not_released(state, file, busy)));
            }
            if let Some(kept) = state.guards.lend(judged.identity()) {
                judged.hold_by(kept);
            }
        }
        // A living owner's lock is released in the end whichever process holds the file by flock: no process may break
        // it. A dead owner's lock may be broken at this moment, which can take long on a busy machine, and then it
        // belongs to the process that breaks it.
        let is_living = || is_own && lives(pid);
        let classification = match is_own {
            true => hold_own(state, file, judged, pid),
            false => state.examine_found(file, Ok(Found::File(judged))),
        };
        let judged = match classification {
            Ok(None) => return None,
            Ok(Some((judged, _))) => judged,
            Err(busy) => {
                let is_own = is_living() && !matches!(busy, Busy::Held(_));
                return came_to(is_own, Err(not_released(state, file, busy)));
            }
        };
        let seen = judged.status();
        match state.take_each_away(file, also, judged, is_contended && is_living()) {
            Ok(Attempt::Done(gone)) => {
                state.guards.forget(seen.identity, &gone);
                return Some(Released { is_own, removal: Ok(()), gone });
            }
            Ok(Attempt::Changed) => {}
            Ok(Attempt::Contended) if !is_contended && state.backoff.decides() && is_living() => {
                is_contended = true;
            }
            Ok(Attempt::Contended) => {
                let busy = state.contended(file.place, Some(seen));
                return came_to(is_living(), Err(not_released(state, file, busy)));
            }
            Err(error) => {
                state.say(Weight::Warning, format!("left {file}: {error}"));
                return came_to(is_own, Err(Stop::Denied));
            }
        }
    }
    let busy = state.contended(file.place, None);
    came_to(false, Err(not_released(state, file, busy)))
}

/// If another process is breaking or removing the file, an event names that process.
fn not_released(state: &mut State, file: LockFile<'_>, busy: Busy) -> Stop {
    match busy {
        Busy::NotYet(_) | Busy::Changing(_) => state.busy(file, busy),
        Busy::Held(_) | Busy::BeingWritten | Busy::Obstacle(_) | Busy::Shut => Stop::Busy(None),
    }
}

/// Whether a file is the lock of this process. The same number in another pid namespace is another process.
fn is_own(state: &mut State, name: &Name, judged: &Judged, pid: Pid) -> bool {
    let who = state.holder_of(name, judged).ok().flatten().filter(|who| who.pid == pid);
    who.is_some_and(|who| !state.is_elsewhere(&who))
}

/// Holds a lock with the caller's number. If it is the caller's, it is classified as stale.
fn hold_own(state: &mut State, file: LockFile<'_>, mut judged: Judged, pid: Pid) -> Classification {
    // A recorded lock of a living process is released whichever process holds the file by flock, so the list of these
    // need not be read.
    let reads_list =
        state.backoff.decides() && !(lives(pid) && state.is_settled(file.name, &judged));
    let held = match state.hold(file, &mut judged, reads_list) {
        Err(Busy::Shut) => Err(Busy::Shut),
        // The lock of a living process is released whichever process holds the file, if it is recorded. Without a
        // record, it may be the lock of another pid namespace that is being made: its maker holds it until then.
        Err(_) if lives(pid) && state.is_settled(file.name, &judged) => Ok(()),
        Err(Busy::Changing(maker)) if lives(pid) && maker.is_none_or(FlockHolder::is_here) => {
            Ok(())
        }
        held => held,
    };
    // We hold the file after its maker did, so the record exists.
    let who = state.holder_of(file.name, &judged)?;
    match who.filter(|who| state.is_elsewhere(who)) {
        Some(who) => Err(Busy::Held(who)),
        None => held.map(|()| Some((judged, Stale::Gone(pid)))),
    }
}
