//! Takes every lock file of a device, or none.

use nix::errno::Errno;
use pidlockfile::{Attempt, Claim, Found, Judged, Name, Published, Status};

use super::classify::{Busy, Stale};
use super::daemon::room;
use super::state::{State, TEMPORARY, claim};
use super::{ATTEMPTS, Stop, handover, refuse, resolve};
use crate::device::node::ResolvedDevice;
use crate::dialects::content::READ_LIMIT;
use crate::layout::Layout;
use crate::lock::directories::{Directories, Place};
use crate::lock::holder_records::{Claimant, Written};
use crate::lock::names::LockNames;
use crate::lock::{Request, Weight};

/// A lock file that a request has written.
pub(super) type Taken = (Name, Published);

/// LOCK: names, reasons to refuse it, files, record.
pub(super) fn take(
    layout: &Layout,
    open: &Directories,
    state: &mut State,
    request: &Request,
    resolved: Option<ResolvedDevice>,
) -> Result<(), Stop> {
    let (own, pid) = (&open.own, request.pid);
    let claimant = Claimant::of(&mut state.machine, pid);
    let (resolved, lock_names) = resolve::names(layout, state, &request.device, resolved)?;
    refuse::refuse_invented(state, &resolved, own)?;
    refuse::refuse_one_too_many(state, pid)?;
    refuse::refuse_flock(state, &resolved, pid)?;
    clear_searched(state, open, &lock_names)?;
    let taken = take_written(state, own, &lock_names.written, request)?;
    let is_recorded = match confirm(state, open, &lock_names, &claimant, &taken) {
        Ok(is_recorded) => is_recorded,
        Err(stop) => {
            give_back(state, own, &taken);
            return Err(stop);
        }
    };
    // A record shows others that the lock is not stale.
    let room = match is_recorded && !state.guards.is_a_daemons() {
        true => 0,
        false => room(Some(&resolved)),
    };
    for (name, published) in taken {
        state.keep(&name, &claimant, published, room);
    }
    state.say(Weight::Info, format!("locked {} for pid {pid}", resolved.real()));
    Ok(())
}

/// Records the lock, and looks at what has happened since the reasons to refuse it were checked. Returns whether it is
/// recorded.
fn confirm(
    state: &mut State,
    open: &Directories,
    lock_names: &LockNames,
    claimant: &Claimant,
    taken: &[Taken],
) -> Result<bool, Stop> {
    let is_recorded = remember(state, &open.own, claimant, taken)?;
    // A process that ended while the lock was taken gets no lock: another process may have its number.
    if !claimant.is_there(&mut state.machine) {
        let pid = claimant.who.pid;
        state.say(Weight::Info, format!("pid {pid} ended while its lock was taken"));
        return Err(Stop::Busy(None));
    }
    // A service that writes another directory or other names may have looked before our files were there, and then
    // written its own. The one that looks last meets the other.
    refuse_held(state, open, lock_names)?;
    Ok(is_recorded)
}

/// Examines every name that is not going to be written. A dead lock is removed; if it may not be removed, it is
/// ignored.
fn clear_searched(
    state: &mut State,
    open: &Directories,
    lock_names: &LockNames,
) -> Result<(), Stop> {
    open.searched(lock_names).try_for_each(|(place, name)| clear(state, place, name))
}

/// The same, but nothing is removed: a dead lock is ignored, unless a process holds it by `flock(2)` that may do so. That
/// process may be in another pid namespace, and make the lock now.
fn refuse_held(state: &mut State, open: &Directories, lock_names: &LockNames) -> Result<(), Stop> {
    for (place, name) in open.searched(lock_names) {
        let found = place.directory.read(name, READ_LIMIT);
        if state.counts(place, &found).is_ok() {
            stale(state, place, name, found)?;
        }
    }
    Ok(())
}

fn clear(state: &mut State, place: &Place, name: &Name) -> Result<(), Stop> {
    for _ in 0..ATTEMPTS {
        let found = place.directory.read(name, READ_LIMIT);
        if let Err(why) = state.counts(place, &found) {
            state.say(Weight::Notice, format!("ignored {}, no lock: {why}", place.name(name)));
            return Ok(());
        }
        let Some((judged, why)) = stale(state, place, name, found)? else { return Ok(()) };
        let file = judged.status();
        match state.remove(place, name, judged, why) {
            Attempt::Changed => {}
            Attempt::Contended if !place.is_open_to_all() => {
                return Err(state.stop_contended(place, name, Some(file)));
            }
            Attempt::Done(()) | Attempt::Contended => return Ok(()),
        }
    }
    Err(state.busy(place, name, Busy::Changing(None)))
}

/// A lock that is not going to be written: the stale one, or none. In a directory open to all, any user may make a stale
/// lock and hold it, so that one keeps nobody out.
fn stale(
    state: &mut State,
    place: &Place,
    name: &Name,
    found: Result<Found, pidlockfile::Error>,
) -> Result<Option<(Judged, Stale)>, Stop> {
    match state.examine_found(place, name, found) {
        Err(Busy::Changing(_) | Busy::NotYet(_)) if place.is_open_to_all() => Ok(None),
        Err(busy) => Err(state.busy(place, name, busy)),
        Ok(stale) => Ok(stale),
    }
}

/// Takes every written name in order; on the first conflict, gives back the names that it has taken.
fn take_written(
    state: &mut State,
    own: &Place,
    names: &[Name],
    request: &Request,
) -> Result<Vec<Taken>, Stop> {
    let content = state.content.write(request.pid);
    let mut taken = Vec::with_capacity(names.len());
    for name in names {
        match take_one(state, own, name, &claim(&content)) {
            Ok(published) => taken.push((name.clone(), published)),
            Err(stop) => {
                give_back(state, own, &taken);
                return Err(stop);
            }
        }
    }
    Ok(taken)
}

fn take_one(
    state: &mut State,
    own: &Place,
    name: &Name,
    claim: &Claim<'_>,
) -> Result<Published, Stop> {
    for _ in 0..ATTEMPTS {
        match own.directory.publish(name, claim) {
            Ok(Some(published)) => return Ok(published),
            Ok(None) => handover::settle_each(state, own, [name])?,
            Err(error) => return Err(not_taken(state, own, name, &error)),
        }
        let examined = state.examine(own, name).map_err(|busy| state.busy(own, name, busy))?;
        let Some((judged, stale)) = examined else { continue };
        let file = judged.status();
        match own.directory.replace(name, judged, claim) {
            Ok(Attempt::Done(published)) => {
                state.say(Weight::Notice, format!("broke {}: {stale}", own.name(name)));
                return Ok(published);
            }
            Ok(Attempt::Changed) => {}
            Ok(Attempt::Contended) => return Err(state.stop_contended(own, name, Some(file))),
            Err(error) => {
                let help = "run lfpd as the owner of the locks, or give it CAP_FOWNER";
                let file = own.name(name);
                let text = format!("busy: {file} is stale ({stale}) but {error}; {help}");
                state.say(Weight::Warning, text);
                return Err(Stop::Busy(None));
            }
        }
    }
    Err(state.busy(own, name, Busy::Changing(None)))
}

/// The lock file could not be written, as on a full disk. If another process has the lock, that is the answer.
fn not_taken(state: &mut State, own: &Place, name: &Name, error: &pidlockfile::Error) -> Stop {
    if let Err(busy @ Busy::Held(_)) = state.examine(own, name) {
        return state.busy(own, name, busy);
    }
    state.cannot_write(error)
}

fn give_back(state: &mut State, own: &Place, taken: &[Taken]) {
    for (name, published) in taken.iter().rev() {
        // While the file is held: afterwards, the record of the next lock might be removed instead.
        state.records.forget_lock(name, published.identity);
        // A file that was written to since then belongs to the process that wrote it.
        let as_written = |seen: &Status| seen.modified == published.modified;
        if let Ok(Attempt::Done(()) | Attempt::Changed) =
            own.directory.withdraw_if(name, published, as_written)
        {
            continue;
        }
        // Otherwise our own `flock(2)` would be in the way.
        published.let_go();
        let Ok(Found::File(judged)) = own.directory.read(name, READ_LIMIT) else { continue };
        if judged.identity() != published.identity || judged.modified() != published.modified {
            continue;
        }
        if let Err(error) = own.directory.release(name, judged, TEMPORARY) {
            state.say(Weight::Warning, format!("left {} behind: {error}", own.name(name)));
        }
    }
}

/// Records a lock before the client is told that it is taken, and before another process may break it: without
/// one it looks dead to processes in another pid namespace, and a reused pid goes unnoticed. The lock files are
/// held by `flock(2)` meanwhile ([`pidlockfile::Directory::guarding`]). Returns whether the lock is recorded: not every
/// user may write records.
///
/// # Errors
/// The record cannot be written now, as on a full disk, or a program that ignores the rules has removed a file at once.
pub(super) fn remember(
    state: &mut State,
    own: &Place,
    claimant: &Claimant,
    taken: &[Taken],
) -> Result<bool, Stop> {
    let files: Vec<Written> = taken.iter().map(|(name, it)| Written::of(name, it)).collect();
    let mut lost = None;
    let is_there = |lock: &Written| {
        let gone = taken.iter().find(|(name, it)| *name == lock.name && !stands(own, name, it));
        lost = gone.map(|(name, _)| name).or(lost);
        gone.is_none()
    };
    let recorded = state.records.remember(claimant, &files, is_there);
    if let Some(name) = lost {
        return Err(state.stop_contended(own, name, None));
    }
    recorded.map_err(|errno| {
        let (pid, why) = (claimant.who.pid, errno.desc());
        state.say(Weight::Warning, format!("refused pid {pid}: its start is not recorded: {why}"));
        Stop::Denied
    })
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
