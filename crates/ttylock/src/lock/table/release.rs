//! Releases every lock file of a device that belongs to the caller or is stale.

use pidlockfile::{Attempt, Identity, Name, Pid, Status};

use super::daemon::device_of_file;
use super::lock_file::{Busy, Lock, Removal};
use super::state::{ATTEMPTS, State};
use super::{recovery, resolve};
use crate::device::node::Node;
use crate::layout::Layout;
use crate::limits::WATCHED_FILES;
use crate::lock::directories::{LockFile, Place, Role};
use crate::lock::flock::FlockHolder;
use crate::lock::holder_records::HolderRecord;
use crate::lock::names::written_names;
use crate::lock::{Cause, Request, Stop, Weight};

/// What became of an existing lock file.
#[derive(Debug)]
struct Released {
    /// Whether it is, or was, the caller's. Otherwise it was stale, or is the lock of another process or no lock.
    is_own: bool,
    removal: Result<(), Stop>,
    /// The names that were removed.
    gone: Vec<Name>,
}

impl Released {
    fn stays(is_own: bool, why: Stop) -> Self {
        Self { is_own, removal: Err(why), gone: Vec::new() }
    }
}

/// UNLOCK: the lock at the device's first name, with all names that it was given; if that is not enough, all names in all
/// directories. What an earlier attempt of the same request has released counts. Returns the real name of the device that was
/// released.
pub(super) fn release(state: &mut State, request: &Request) -> Result<String, Stop> {
    let (open, pid) = (state.open()?, request.pid);
    let own = &open.own;
    let mut resolved = resolve::find(state, &request.device)?;
    let first = resolve::first_name_of(state, &resolved, &request.device)?;
    let (mut files, mut written) = (Vec::new(), Vec::new());
    let released =
        state.in_the_gate(own.file(&first), |state| release_first(state, own.file(&first), pid));
    if let Some((released, names)) =
        released.map_err(|busy| not_released(state, own.file(&first), busy))?
    {
        let is_done = released.removal.is_ok();
        state.backoff.has_released |= is_done;
        if let Err(Stop::NotYet(cause)) = released.removal {
            return Err(Stop::NotYet(cause));
        }
        let is_left = |name: &&Name| !released.gone.contains(name) && own.may_hold(name);
        if is_done && !names.iter().any(|name| is_left(&name)) {
            state.held.forget(&names, pid);
            return Ok(unlocked(state, resolved.real(), pid));
        }
        files.extend(is_done.then_some(released));
        written = names;
    }
    if written.is_empty() {
        let known = written_names(state.layout.dialect, &resolved).unwrap_or_default();
        written = names_of_the_same_file(&state.layout, own, &known.written);
    }
    // The known names are released in any case.
    let _ = resolve::add_links(state, &mut resolved);
    let mut lock_names = resolve::lock_names_of(state, &resolved, &request.device)?;
    for name in &written {
        lock_names.write_too(name);
    }
    // In the reverse order of taking: a process that meets the first name still finds it held.
    let written = lock_names.written.iter().rev().map(|name| own.file(name));
    let mut vacant = Vec::new();
    for file in open.searched(&lock_names).chain(written) {
        let released = match is_callers_of_another_port(state, file, (&first, resolved.node), pid) {
            true => Some(Released::stays(false, Stop::Busy(None))),
            false => release_file(state, file, None, pid),
        };
        let stays = released.as_ref().filter(|it| it.removal.is_err()).map(|it| it.is_own);
        files.extend(released);
        match stays {
            _ if file.place.role != Role::Written => {}
            None => vacant.push(file.name.clone()),
            Some(true) => break,
            Some(false) => {}
        }
    }
    if files.iter().any(|it| it.removal.is_ok()) {
        state.held.forget(&vacant, pid);
    }
    state.backoff.has_released |= files.iter().any(|it| it.is_own && it.removal.is_ok());
    let device = resolved.real();
    match outcome(&files, state.backoff.has_released) {
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

/// The other names of the lock file that has one of the names that the client asked for, if all of them lead nowhere. Where
/// nothing is recorded, only the file shows under which names the lock of a device that is gone was written.
fn names_of_the_same_file(layout: &Layout, own: &Place, known: &[Name]) -> Vec<Name> {
    let status = |name: &Name| Status::of_name(&own.directory, name.as_str()).ok();
    let files: Vec<Status> = known.iter().filter_map(status).collect();
    let names_known = |file: Identity| files.iter().filter(|it| it.identity == file).count();
    let has_others = |it: &&Status| it.links > names_known(it.identity) as u64;
    let Some(file) = files.iter().find(has_others).map(|it| it.identity) else { return Vec::new() };
    let is_other =
        |name: &Name| !known.contains(name) && status(name).is_some_and(|it| it.identity == file);
    let others: Vec<Name> = own.lock_names(WATCHED_FILES).into_iter().filter(is_other).collect();
    let Layout { dialect, dev_dir, .. } = layout;
    let has_node =
        |name| device_of_file(dialect, dev_dir, name).is_some_and(|it| it.node.is_some());
    if others.iter().any(has_node) { Vec::new() } else { others }
}

fn unlocked(state: &mut State, device: &str, pid: Pid) -> String {
    state.say(Weight::Info, format!("unlocked {device} for pid {pid}"));
    device.to_owned()
}

/// Whether a device with these files is released. `is_done`: a lock of the caller was.
fn outcome(files: &[Released], is_done: bool) -> Result<(), Stop> {
    let any = |is_it: &dyn Fn(&Released) -> bool| files.iter().any(is_it);
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

/// Releases the lock at the device's first name if it is on record as this process's. Returns what came of it, and the
/// names that it was given. What cannot be read now is met again among all names.
fn release_first(
    state: &mut State,
    first: LockFile<'_>,
    pid: Pid,
) -> Option<(Released, Vec<Name>)> {
    let lock = recovery::read_recovered(state, first).ok()??;
    let names = lock.record.as_ref().filter(|_| is_own(state, &lock, pid))?.names.clone();
    let released = release_file(state, first, Some(lock), pid)?;
    Some((released, names))
}

/// Whether a file is the caller's lock of another port, whose link may have come to this device since: that one stays.
fn is_callers_of_another_port(
    state: &mut State,
    file: LockFile<'_>,
    device: (&Name, Option<Node>),
    pid: Pid,
) -> bool {
    if file.place.role != Role::Written {
        return false;
    }
    let record = state.record_at(file).filter(|it| it.holder.pid == pid);
    record.is_some_and(|record| state.is_of_another_port(file.place, &record, device))
}

impl State {
    /// The names under which this pid's lock of a device was written, by its record.
    pub(super) fn names_on_record(
        &self,
        own: &Place,
        written: &[Name],
        (pid, node): (Pid, Option<Node>),
    ) -> Vec<Name> {
        let Some(first) = written.first() else { return Vec::new() };
        let names_of = |name: &Name| {
            let record = self.record_at(own.file(name)).filter(|record| {
                record.holder.pid == pid && !self.is_of_another_port(own, record, (first, node))
            });
            record.map(|record| record.names)
        };
        // The device may have come back under another real name, with the same links.
        written.iter().find_map(names_of).unwrap_or_default()
    }

    /// Whether a lock is of another port than this device, by its first name, which still leads to it. A lock that was passed
    /// without the first name of its device begins with another name of the same device.
    pub(super) fn is_of_another_port(
        &self,
        own: &Place,
        record: &HolderRecord,
        (first, node): (&Name, Option<Node>),
    ) -> bool {
        let Some(its_first) = record.names.first().filter(|it| *it != first) else { return false };
        let Layout { dialect, dev_dir, .. } = &self.layout;
        // Without its first name, no UNLOCK of the other port would find it.
        device_of_file(dialect, dev_dir, its_first)
            .is_some_and(|it| it.node.is_some() && it.node != node)
            && own.may_lead_to(its_first, record.file)
    }
}

/// Removes a lock file of this process with all its recorded names, or a stale one. The caller may have read it. `None` if
/// there is no such file.
fn release_file(
    state: &mut State,
    file: LockFile<'_>,
    mut read: Option<Lock>,
    pid: Pid,
) -> Option<Released> {
    let (mut all_gone, mut is_contended) = (Vec::new(), false);
    for _ in 0..ATTEMPTS {
        let lock = read
            .take()
            .map_or_else(|| recovery::read_recovered(state, file), |lock| Ok(Some(lock)));
        let lock = match lock {
            Ok(Some(lock)) => lock,
            Ok(None) if all_gone.is_empty() => return None,
            Ok(None) => return Some(Released { is_own: true, removal: Ok(()), gone: all_gone }),
            Err(Busy::NotYet(cause)) => return Some(Released::stays(false, Stop::NotYet(cause))),
            Err(_) => return Some(Released::stays(false, Stop::Busy(None))),
        };
        let is_own = is_own(state, &lock, pid);
        // A living owner's lock is released in the end whichever process holds the file by flock: no process may break
        // it. A dead owner's lock may be broken at this moment, and then it belongs to the process that breaks it.
        let is_living = |state: &State| is_own && state.lives(pid);
        let held = match is_own {
            true => hold_own(state, file, lock, pid).map(Some),
            false => hold_stale(state, file, lock),
        };
        let lock = match held {
            Ok(Some(lock)) => lock,
            Ok(None) => return None,
            Err(busy) => {
                let is_own = is_living(state) && !matches!(busy, Busy::Held(_));
                return Some(Released::stays(is_own, not_released(state, file, busy)));
            }
        };
        let seen = lock.opened.status();
        let names = match lock.record.as_ref().filter(|_| is_own) {
            Some(record) => record.names.iter().rev().cloned().collect(),
            None => vec![file.name.clone()],
        };
        let removal = Removal::by(is_living(state), is_contended);
        match state.remove_names(file, &names, lock, removal) {
            Ok(Attempt::Done(gone)) => {
                state.guards.forget(seen.identity, &gone);
                all_gone.extend(gone);
                if all_gone.contains(file.name) {
                    return Some(Released { is_own, removal: Ok(()), gone: all_gone });
                }
            }
            Ok(Attempt::Changed) => {}
            Ok(Attempt::Contended)
                if recovery::recover_names(state, file.place, &names) == Ok(true) => {}
            Ok(Attempt::Contended)
                if !is_contended && state.backoff.is_exhausted() && is_living(state) =>
            {
                is_contended = true;
            }
            Ok(Attempt::Contended) => {
                let busy = state.contended(file.place, Some(seen));
                return Some(Released::stays(is_living(state), not_released(state, file, busy)));
            }
            Err(error) => {
                state.say(Weight::Warning, format!("left {file}: {error}"));
                return Some(Released::stays(is_own, Stop::Denied));
            }
        }
    }
    let busy = state.contended(file.place, None);
    Some(Released::stays(false, not_released(state, file, busy)))
}

/// If another process is breaking or removing the file, an event names that process.
fn not_released(state: &mut State, file: LockFile<'_>, busy: Busy) -> Stop {
    match busy {
        Busy::NotYet(_) | Busy::Changing(_) => state.busy(file, busy),
        Busy::Held(_) | Busy::BeingWritten | Busy::Obstacle(_) | Busy::Failed => Stop::Busy(None),
    }
}

/// Whether a file is the lock of this process. The same number in another pid namespace is another process, and so is one
/// that has got the number since the client asked.
fn is_own(state: &mut State, lock: &Lock, pid: Pid) -> bool {
    let who = state.holder_of(lock).filter(|who| who.pid == pid);
    who.is_some_and(|who| !state.is_elsewhere(&who) && !state.is_a_newcomer(&who))
}

/// Enters the gate and holds a lock of the caller, which may stay unheld if only its owner can release it.
fn hold_own(state: &mut State, file: LockFile<'_>, mut lock: Lock, pid: Pid) -> Result<Lock, Busy> {
    // An error of the gate counts here; below, it would be taken for one of the file.
    state.must_enter(file, &mut lock.opened)?;
    if let Some(kept) = state.guards.lend(lock.opened.identity()) {
        lock.opened.hold_by(kept);
    }
    let is_known = state.is_holder_known(&lock);
    // A recorded lock of a living process is released whichever process holds the file by flock, so the list of these
    // need not be read.
    let reads_list = state.backoff.is_exhausted() && !(is_known && state.lives(pid));
    match state.hold(file, &mut lock.opened, reads_list) {
        Ok(()) => {}
        // Without a record, it may be the lock of another pid namespace that is being made: its maker holds it until then.
        Err(_) if is_known && state.lives(pid) => {}
        Err(Busy::Changing(maker))
            if state.lives(pid) && maker.is_none_or(FlockHolder::is_here) => {}
        Err(busy) => return Err(busy),
    }
    Ok(lock)
}

/// The same of another's lock, if that is stale. `None` if it is gone.
fn hold_stale(state: &mut State, file: LockFile<'_>, lock: Lock) -> Result<Option<Lock>, Busy> {
    // To classify another's lock may take long.
    state.passage = None;
    Ok(state.examine_lock(file, lock)?.map(|(lock, _)| lock))
}
