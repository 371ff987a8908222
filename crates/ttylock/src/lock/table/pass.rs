//! Passes a lock from one process to another, without a moment in which it is free.

use pidlockfile::process::{self, Fate, lives};
use pidlockfile::{Attempt, Linked, Name, NewFile, Pid};

use super::classify::{Busy, LastLook, Lock};
use super::daemon::most_kept;
use super::handover::Written;
use super::state::{State, claim};
use super::take::{self, Taken};
use super::{ATTEMPTS, Stop, handover, resolve};
use crate::device::node::ResolvedDevice;
use crate::lock::directories::{LockFile, Place};
use crate::lock::flock::FlockHolder;
use crate::lock::holder_records::Claimant;
#[cfg(test)]
use crate::lock::meanwhile::{self, Before};
use crate::lock::{Pass, Weight};

/// PASS: names, files of the giver, note, files of the receiver, record. Returns the real name of the device.
pub(super) fn pass(
    state: &mut State,
    pass: &Pass,
    resolved: Option<ResolvedDevice>,
) -> Result<String, Stop> {
    let (open, Pass { device, from, to }) = (state.open()?, pass);
    let own = &open.own;
    let mut receiver = Claimant::of(&mut state.machine, *to);
    // Another process may have had the receiver's number when its user was looked up.
    receiver.uid = receiver.uid.filter(|_| !state.machine.has_ended(&receiver.who));
    let gone = [*to, *from].into_iter().find(|pid| !lives(*pid));
    if let Some(gone) = gone {
        let device = device.as_str();
        state.say(Weight::Info, format!("{device} cannot be passed: pid {gone} is gone"));
        return Err(if gone == *to { Stop::Denied } else { Stop::Busy(None) });
    }
    let (resolved, mut lock_names) = resolve::with_lock_names(state, device, resolved)?;
    for name in state.names_written(own, &lock_names.written, *from) {
        lock_names.write_too(name);
    }
    handover::settle_each(state, own, &lock_names.written, None)?;
    let held = held(state, own, &lock_names.written, pass)?;
    let giver = Claimant::of(&mut state.machine, *from);
    let begun = handover::begin(state, pass, &giver, &held)?;
    let mut passed = Vec::with_capacity(held.len());
    if let Err(stop) = pass_all(state, own, &held, pass, &receiver, &mut passed) {
        handover::call_off(state, own, begun, &passed);
        return Err(stop);
    }
    handover::end(state, begun);
    let most = most_kept(Some(&resolved));
    for file in passed {
        state.watched.forget(&file.names, *from);
        state.keep(file, &receiver, most);
    }
    let device = resolved.real();
    state.say(Weight::Info, format!("passed {device} from pid {from} to pid {to}"));
    Ok(device.to_owned())
}

/// The files that are going to be passed: all are examined before one is changed. A written name to which no link
/// leads any more is passed as well.
fn held(state: &mut State, own: &Place, names: &[Name], pass: &Pass) -> Result<Vec<Written>, Stop> {
    let mut held = Vec::with_capacity(names.len());
    for name in names {
        if let Some(Lock { judged, .. }) = passable(state, own.file(name), pass)? {
            let (file, at) = (judged.identity(), judged.modified());
            held.push(Written { name: name.clone(), file, at });
        }
    }
    if held.is_empty() {
        let device = pass.device.as_str();
        state.say(Weight::Info, format!("{device} is not pid {}'s to pass", pass.from));
        return Err(Stop::Busy(None));
    }
    Ok(held)
}

/// Passes all names, the first one last. If that fails, the caller must give back those that were passed.
fn pass_all(
    state: &mut State,
    own: &Place,
    held: &[Written],
    pass: &Pass,
    receiver: &Claimant,
    passed: &mut Vec<Taken>,
) -> Result<(), Stop> {
    let content = state.layout.dialect.content.write(pass.to);
    let (claim, names) = (claim(&content), names_of(held));
    let of_one_file = if own.has_links() { names.len() } else { 1 };
    for part in names.chunks(of_one_file).rev() {
        pass_file(state, own, (part, &names), &claim, (pass, receiver), passed)?;
    }
    match passed.iter().find_map(|file| take::lost_name(own, file)) {
        Some(lost) => Err(state.stop_contended(own.file(lost), None)),
        None => Ok(()),
    }
}

fn names_of(held: &[Written]) -> Vec<Name> {
    held.iter().map(|file| file.name.clone()).collect()
}

/// Writes a file of the receiver, records it, and gives it these names of the lock, the first one last.
fn pass_file(
    state: &mut State,
    own: &Place,
    (names, all): (&[Name], &[Name]),
    claim: &NewFile<'_>,
    (pass, receiver): (&Pass, &Claimant),
    passed: &mut Vec<Taken>,
) -> Result<(), Stop> {
    let linked = own.directory.linked(claim);
    let mut linked = linked.map_err(|error| state.cannot_write(&error))?;
    let record = take::remember(state, receiver, all, &mut linked)?;
    let mut given = Vec::with_capacity(names.len());
    let outcome = names.iter().skip(1).chain(names.first()).try_for_each(|name| {
        #[cfg(test)]
        if all.first() == Some(name) {
            meanwhile::comes(Before::Decision);
        }
        pass_one(state, own.file(name), pass, &mut linked)?;
        given.push(name.clone());
        Ok(())
    });
    let published = linked.finish();
    match (given.is_empty(), record) {
        (true, record) => {
            record.as_ref().map(|it| state.records.forget(it));
            published.close();
        }
        (false, record) => {
            // In the order of the names.
            given.rotate_right(usize::from(outcome.is_ok()));
            passed.push(Taken { names: given, published, record });
        }
    }
    outcome
}

/// A lock file that the giver holds, or that the receiver already holds after an interrupted hand-over; `None` if
/// the name was not written.
fn passable(state: &mut State, file: LockFile<'_>, pass: &Pass) -> Result<Option<Lock>, Stop> {
    match state.read(file) {
        Ok(None) => Ok(None),
        Ok(Some(lock)) => refuse_foreign(state, file, lock, pass).map(Some),
        Err(_) => Err(state.busy(file, Busy::Changing(None))),
    }
}

/// Refuses a lock file that is of another process than these two, even if that has the same number elsewhere.
fn refuse_foreign(
    state: &mut State,
    file: LockFile<'_>,
    lock: Lock,
    pass: &Pass,
) -> Result<Lock, Stop> {
    let Some(who) = state.holder_of(&lock) else {
        return Err(state.busy(file, Busy::Changing(None)));
    };
    let is_its_own = [pass.from, pass.to].contains(&who.pid)
        && state.machine.fate(&who) == Fate::Same
        && !state.is_elsewhere(&who);
    if is_its_own { Ok(lock) } else { Err(state.busy(file, Busy::Held(who))) }
}

fn pass_one(
    state: &mut State,
    file: LockFile<'_>,
    pass: &Pass,
    linked: &mut Linked<'_>,
) -> Result<(), Stop> {
    let LockFile { place, name } = file;
    for _ in 0..ATTEMPTS {
        // Another process has removed the file meanwhile: then none is passed.
        let Some(mut lock) = passable(state, file, pass)? else { break };
        let seen = lock.judged.status();
        state.enter(file, &mut lock.judged).map_err(|busy| state.busy(file, busy))?;
        // It may be protected by our `flock(2)`.
        if let Some(kept) = state.guards.lend(seen.identity) {
            lock.judged.hold_by(kept);
        }
        hold(state, file, &mut lock, pass.from).map_err(|busy| state.busy(file, busy))?;
        let last = LastLook::of(&lock.judged, lock.record);
        let broken = match place.has_links() {
            true => linked.replace(name, lock.judged),
            false => linked.replace_alone(name, lock.judged),
        };
        state.forget_if_nameless(last);
        match broken {
            Ok(Attempt::Done(())) => {
                state.guards.forget(seen.identity, std::slice::from_ref(name));
                return Ok(());
            }
            Ok(Attempt::Changed) => {}
            Ok(Attempt::Contended) => return Err(state.stop_contended(file, Some(seen))),
            Err(error) => return Err(state.cannot_write(&error)),
        }
    }
    Err(state.busy(file, Busy::Changing(None)))
}

/// Holds a lock of the giver. A lock without a record is held by `flock(2)` for as long as its program lives: by the giver
/// itself, or by `lfp run` for its command, which may pass it. Any other process may be about to remove the file.
fn hold(state: &mut State, file: LockFile<'_>, lock: &mut Lock, giver: Pid) -> Result<(), Busy> {
    let judged = &mut lock.judged;
    match state.hold(file, judged, state.backoff.decides()) {
        Err(Busy::Changing(Some(FlockHolder::Process(keeper))))
            if keeps_for(keeper, giver)
                && state.enter(file, judged)?.is_none()
                && lock.record.is_none() =>
        {
            judged.ignore_flock_with_consent();
            Ok(())
        }
        held => held,
    }
}

fn keeps_for(keeper: Pid, giver: Pid) -> bool {
    keeper == giver || process::parent(giver) == Some(keeper)
}
