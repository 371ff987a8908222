//! Passes a lock from one process to another, without a moment in which it is free.

use pidlockfile::process::{self, Fate, lives};
use pidlockfile::{Attempt, Found, Judged, Name, Pid, Published};

use super::classify::Busy;
use super::daemon::most_kept;
use super::state::{State, claim};
use super::take::{self, Taken};
use super::{ATTEMPTS, Stop, handover, resolve};
use crate::device::node::ResolvedDevice;
use crate::limits::KEPT_FILES;
use crate::lock::directories::{LockFile, Place};
use crate::lock::flock::FlockHolder;
use crate::lock::holder_records::{Claimant, Written};
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
    for name in state.names_written(&lock_names.written, *from) {
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
        if let Some(judged) = passable(state, own.file(name), pass)? {
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

/// Passes all files, and records them. If that fails, the caller must give back those that were passed.
fn pass_all(
    state: &mut State,
    own: &Place,
    held: &[Written],
    pass: &Pass,
    receiver: &Claimant,
    passed: &mut Vec<Taken>,
) -> Result<(), Stop> {
    for Written { name, .. } in held {
        let published = pass_one(state, own.file(name), pass)?;
        passed.push(Taken { names: vec![name.clone()], published });
    }
    take::remember(state, own, receiver, passed).map(|_| ())
}

/// A lock file that the giver holds, or that the receiver already holds after an interrupted hand-over; `None` if
/// the name was not written.
fn passable(state: &mut State, file: LockFile<'_>, pass: &Pass) -> Result<Option<Judged>, Stop> {
    let judged = match file.read() {
        Ok(Found::Nothing) => return Ok(None),
        Ok(Found::File(judged)) => judged,
        Ok(Found::Obstacle(_)) | Err(_) => return Err(state.busy(file, Busy::Changing(None))),
    };
    refuse_foreign(state, file, &judged, pass)?;
    Ok(Some(judged))
}

/// Refuses a lock file that is of another process than these two, even if that has the same number elsewhere.
fn refuse_foreign(
    state: &mut State,
    file: LockFile<'_>,
    judged: &Judged,
    pass: &Pass,
) -> Result<(), Stop> {
    let Ok(Some(who)) = state.holder_of(file.name, judged) else {
        return Err(state.busy(file, Busy::Changing(None)));
    };
    let is_its_own = [pass.from, pass.to].contains(&who.pid)
        && state.machine.fate(&who) == Fate::Same
        && !state.is_elsewhere(&who);
    if is_its_own { Ok(()) } else { Err(state.busy(file, Busy::Held(who))) }
}

fn pass_one(state: &mut State, file: LockFile<'_>, pass: &Pass) -> Result<Published, Stop> {
    let LockFile { place, name } = file;
    let content = state.layout.dialect.content.write(pass.to);
    let claim = claim(&content);
    for _ in 0..ATTEMPTS {
        // Another process has removed the file meanwhile: then none is passed.
        let Some(mut judged) = passable(state, file, pass)? else { break };
        let seen = judged.status();
        state.enter(file, &mut judged).map_err(|busy| state.busy(file, busy))?;
        let broken = match state.guards.take(judged.identity()) {
            // It is protected by our `flock(2)`.
            Some((mut names, held)) => {
                let broken = place.directory.replace_held(name, judged, &held, &claim);
                if matches!(broken, Ok(Attempt::Done(_))) {
                    names.retain(|it| it != name);
                }
                if !names.is_empty() {
                    let giver = state.machine.identify(pass.from);
                    state.guards.keep(&names, &giver, held, KEPT_FILES);
                }
                broken
            }
            None => match hold(state, file, &mut judged, pass.from) {
                Ok(()) => {
                    // We hold the file after its maker did, so the record exists.
                    refuse_foreign(state, file, &judged, pass)?;
                    place.directory.replace(name, judged, &claim)
                }
                Err(busy) => return Err(state.busy(file, busy)),
            },
        };
        match broken {
            Ok(Attempt::Done(published)) => return Ok(published),
            Ok(Attempt::Changed) => {}
            Ok(Attempt::Contended) => return Err(state.stop_contended(file, Some(seen))),
            Err(error) => return Err(state.cannot_write(&error)),
        }
    }
    Err(state.busy(file, Busy::Changing(None)))
}

/// Holds a lock of the giver. A lock without a record is held by `flock(2)` for as long as its program lives: by the giver
/// itself, or by `lfp run` for its command, which may pass it. Any other process may be about to remove the file.
fn hold(
    state: &mut State,
    file: LockFile<'_>,
    judged: &mut Judged,
    giver: Pid,
) -> Result<(), Busy> {
    match state.hold(file, judged, state.backoff.decides()) {
        Err(Busy::Changing(Some(FlockHolder::Process(keeper))))
            if keeps_for(keeper, giver)
                && state.enter(file, judged)?.is_none()
                && state.record_of(file.name, judged) == Ok(None) =>
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
