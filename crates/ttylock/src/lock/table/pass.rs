//! Passes a lock from one process to another, without a moment in which it is free.

use pidlockfile::process::{self, Fate};
use pidlockfile::{Attempt, Found, Judged, Name, Published};

use super::classify::{Busy, pid_in};
use super::daemon::room;
use super::resolve::Resolver;
use super::state::{State, claim};
use super::{ATTEMPTS, Stop, handover, take};
use crate::device::node::ResolvedDevice;
use crate::dialects::content::READ_LIMIT;
use crate::limits::KEPT_FILES;
use crate::lock::directories::{Directories, Place};
use crate::lock::flock;
use crate::lock::holder_records::{Claimant, Written};
use crate::lock::{Pass, Weight};

/// PASS: names, files of the giver, note, files of the receiver, record.
pub(super) fn pass(
    resolver: &mut Resolver,
    open: &Directories,
    state: &mut State,
    pass: &Pass,
    resolved: Option<ResolvedDevice>,
) -> Result<(), Stop> {
    let (own, Pass { device, from, to }) = (&open.own, pass);
    let receiver = state.claimant(*to);
    let machine = &mut state.machine;
    let gone = [*to, *from].into_iter().find(|pid| machine.fate_of_number(*pid).is_over());
    if let Some(gone) = gone {
        let device = device.as_str();
        state.say(Weight::Info, format!("{device} cannot be passed: pid {gone} is gone"));
        return Err(if gone == *to { Stop::Denied } else { Stop::Busy(None) });
    }
    let (resolved, mut lock_names) = resolver.names(state, device, resolved)?;
    for name in state.names_written(&lock_names.written, *from) {
        lock_names.write_too(name);
    }
    handover::settle_each(state, own, &lock_names.written)?;
    let held = held(state, own, &lock_names.written, pass)?;
    let giver = state.claimant(*from);
    let begun = handover::begin(state, pass, &giver, &held)?;
    let passed = match pass_all(state, own, &held, pass) {
        Ok(passed) => passed,
        Err((stop, passed)) => {
            handover::call_off(state, own, begun, &passed);
            return Err(stop);
        }
    };
    let names: Vec<Name> = passed.iter().map(|(name, _)| name.clone()).collect();
    let published: Vec<&Published> = passed.iter().map(|(_, published)| published).collect();
    // Another process may have had the receiver's number when its user was looked up.
    let uid = receiver.uid.filter(|_| receiver.is_there(&mut state.machine));
    let receiver = Claimant { uid, ..receiver };
    let recorded = take::remember(state, own, &names, &receiver, &published);
    if let Err(stop) = recorded {
        handover::call_off(state, own, begun, &passed);
        return Err(stop);
    }
    handover::end(state, begun);
    state.watched.forget(&names, *from);
    let room = room(Some(&resolved));
    for (name, published) in passed {
        state.keep(&name, &receiver, published, room);
    }
    state.say(Weight::Info, format!("passed {} from pid {from} to pid {to}", resolved.real()));
    Ok(())
}

/// The files that are going to be passed: all are examined before one is changed. A written name to which no link
/// leads any more is passed as well.
fn held(state: &mut State, own: &Place, names: &[Name], pass: &Pass) -> Result<Vec<Written>, Stop> {
    let mut held = Vec::with_capacity(names.len());
    for name in names {
        if let Some(judged) = passable(state, own, name, pass)? {
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

/// Passes all files. If one cannot be passed, the files that were passed before it must be given back.
fn pass_all(
    state: &mut State,
    own: &Place,
    held: &[Written],
    pass: &Pass,
) -> Result<Passed, (Stop, Passed)> {
    let mut passed = Vec::with_capacity(held.len());
    for Written { name, .. } in held {
        match pass_one(state, own, name, pass) {
            Ok(Some(published)) => passed.push((name.clone(), published)),
            // Another process has removed the file meanwhile: then none is passed.
            Ok(None) => return Err((state.busy(own, name, Busy::Changing(None)), passed)),
            Err(stop) => return Err((stop, passed)),
        }
    }
    Ok(passed)
}

/// A lock file that the giver holds, or that the receiver already holds after an interrupted hand-over; `None` if
/// the name was not written.
fn passable(
    state: &mut State,
    own: &Place,
    name: &Name,
    pass: &Pass,
) -> Result<Option<Judged>, Stop> {
    let judged = match own.directory.read(name, READ_LIMIT) {
        Ok(Found::Nothing) => return Ok(None),
        Ok(Found::File(judged)) => judged,
        Ok(Found::Obstacle(_)) | Err(_) => return Err(state.busy(own, name, Busy::Changing(None))),
    };
    refuse_foreign(state, own, name, &judged, pass)?;
    Ok(Some(judged))
}

/// Refuses a lock file that is of another process than these two, even if that has the same number elsewhere.
fn refuse_foreign(
    state: &mut State,
    own: &Place,
    name: &Name,
    judged: &Judged,
    pass: &Pass,
) -> Result<(), Stop> {
    let Some(pid) = pid_in(judged) else { return Err(state.busy(own, name, Busy::Changing(None))) };
    let who = state.holder_of(name, pid, judged);
    let is_its_own = [pass.from, pass.to].contains(&pid)
        && state.machine.fate(&who) == Fate::Same
        && !state.is_elsewhere(&who);
    if is_its_own { Ok(()) } else { Err(state.busy(own, name, Busy::Held(who))) }
}

fn pass_one(
    state: &mut State,
    own: &Place,
    name: &Name,
    pass: &Pass,
) -> Result<Option<Published>, Stop> {
    let content = state.content.write(pass.to);
    let claim = claim(&content);
    for _ in 0..ATTEMPTS {
        let Some(mut judged) = passable(state, own, name, pass)? else { return Ok(None) };
        let file = judged.status();
        let broken = match state.guards.take(name, pass.from, state.machine.here()) {
            // It is protected by our `flock(2)`.
            Some(held) => {
                let broken = own.directory.replace_held(name, judged, &held, &claim);
                if !matches!(broken, Ok(Attempt::Done(_))) {
                    let giver = state.machine.identify(pass.from);
                    state.guards.keep(name, &giver, held, KEPT_FILES);
                }
                broken
            }
            None => match hold(state, own, name, &mut judged) {
                Ok(()) => {
                    // We hold the file after its maker did, so the record exists.
                    refuse_foreign(state, own, name, &judged, pass)?;
                    own.directory.replace(name, judged, &claim)
                }
                Err(busy) => return Err(state.busy(own, name, busy)),
            },
        };
        match broken {
            Ok(Attempt::Done(published)) => return Ok(Some(published)),
            Ok(Attempt::Changed) => {}
            Ok(Attempt::Contended) => return Err(state.stop_contended(own, name, Some(file))),
            Err(error) => return Err(state.cannot_write(&error)),
        }
    }
    Err(state.busy(own, name, Busy::Changing(None)))
}

/// Holds a lock of the giver. `lfp run` holds one without a record by `flock(2)` for its command, which may pass it.
fn hold(state: &mut State, own: &Place, name: &Name, judged: &mut Judged) -> Result<(), Busy> {
    let held = state.hold(own, name, judged, state.backoff.decides());
    let Err(Busy::Changing(Some(flock::Holder::Process(keeper)))) = held else { return held };
    let (file, at) = (judged.identity(), judged.modified());
    let record = pid_in(judged).and_then(|pid| state.records.of_lock(name, pid, file, at));
    if record.is_some() || !process::is_in_our_namespace(keeper) {
        return held;
    }
    judged.go_past_with_consent();
    Ok(())
}

/// The files that the receiver holds already.
type Passed = Vec<(Name, Published)>;
