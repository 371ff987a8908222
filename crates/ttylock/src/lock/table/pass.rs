//! Passes a lock from one process to another, without a moment in which it is free: the receiver's file and record, the link
//! to the giver's file, the names, the first one last. `recovery.rs` has what happens if this is not finished.

use pidlockfile::process::{self, Fate, lives};
use pidlockfile::{Attempt, Entry, Linked, Name, Pid, words_of};

use super::daemon::most_kept;
use super::lock_file::{Busy, Lock};
use super::recovery::Handover;
use super::state::{State, Taken, claim};
use super::{recovery, resolve, take};
use crate::device::node::{Node, ResolvedDevice};
use crate::lock::directories::{LockFile, Place, WrittenFile};
use crate::lock::flock::FlockHolder;
use crate::lock::holder_records::{Claimant, Origin};
#[cfg(test)]
use crate::lock::meanwhile::{self, Before};
use crate::lock::{Pass, Stop, Weight};

/// A file of the giver, and the names that lead to it.
struct Given {
    names: Vec<Name>,
    lock: Lock,
}

/// The first name of a lock of a device, and its node.
type Device<'n> = (&'n Name, Option<Node>);

/// PASS: names, and the steps in the gate. Returns the real name of the device.
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
    let (resolved, lock_names) = resolve::with_lock_names(state, device, resolved)?;
    // The giver's names come first, in their order. A name goes with them also if its link in `/dev` is gone.
    let mut names = state.names_on_record(own, &lock_names.written, (*from, resolved.node));
    let further = lock_names.written.iter().filter(|it| !names.contains(it)).cloned();
    names.extend(further.collect::<Vec<_>>());
    let Some(first) = names.first().map(|name| own.file(name)) else {
        return Err(Stop::Busy(None));
    };
    let written = lock_names.written.first().unwrap_or(first.name);
    let device = (written, resolved.node);
    let steps = |state: &mut State| pass_written(state, own, (device, &names), pass, &receiver);
    let passed = state.in_the_gate(first, steps);
    let passed = passed.unwrap_or_else(|busy| Err(state.busy(first, busy)))?;
    state.held.forget(&passed.names, *from);
    state.keep(passed, &receiver, most_kept(Some(&resolved)));
    let device = resolved.real();
    state.say(Weight::Info, format!("passed {device} from pid {from} to pid {to}"));
    Ok(device.to_owned())
}

/// The steps in the gate: all files are examined and held before one name is changed.
fn pass_written(
    state: &mut State,
    own: &Place,
    (device, names): (Device<'_>, &[Name]),
    pass: &Pass,
    receiver: &Claimant,
) -> Result<Taken, Stop> {
    let Pass { from, to, .. } = pass;
    // A lock of an ended giver may be half removed.
    refuse_ended(state, pass, &[*to, *from])?;
    let mut given = files_of_giver(state, own, (device, names), pass)?;
    for Given { names, lock } in &mut given {
        let Some(file) = names.first().map(|name| own.file(name)) else { continue };
        if let Some(kept) = state.guards.lend(lock.opened.identity()) {
            lock.opened.hold_by(kept);
        }
        hold(state, file, lock, *from).map_err(|busy| state.busy(file, busy))?;
    }
    let is_given = |name: &&Name| given.iter().any(|it| it.names.contains(name));
    let existing: Vec<Name> = names.iter().filter(is_given).cloned().collect();
    let further = names.iter().filter(|it| !existing.contains(it));
    let all: Vec<Name> = existing.iter().chain(further).cloned().collect();
    let content = state.layout.dialect.content.write(*to);
    let claim = claim(&content);
    let linked = own.directory.linked(&claim).map_err(|error| state.cannot_write(&error))?;
    match own.has_links() {
        true => pass_each(state, own, (&existing, &all), given, (pass, receiver), linked),
        false => pass_alone(state, own, &all, given, receiver, linked),
    }
}

fn refuse_ended(state: &mut State, pass: &Pass, pids: &[Pid]) -> Result<(), Stop> {
    let Some(gone) = pids.iter().find(|pid| !lives(**pid)) else { return Ok(()) };
    let device = pass.device.as_str();
    state.say(Weight::Info, format!("{device} cannot be passed: pid {gone} is gone"));
    Err(if *gone == pass.to { Stop::Denied } else { Stop::Busy(None) })
}

/// The files of the giver, with its names in their order. Its lock of another port stays, even if one of that port's links
/// has come to this device since.
fn files_of_giver(
    state: &mut State,
    own: &Place,
    (device, names): (Device<'_>, &[Name]),
    pass: &Pass,
) -> Result<Vec<Given>, Stop> {
    let mut files: Vec<Given> = Vec::new();
    for name in names {
        let file = own.file(name);
        let lock = match recovery::read_recovered(state, file) {
            Ok(None) => continue,
            Ok(Some(lock)) => refuse_foreign(state, file, lock, pass)?,
            Err(busy @ (Busy::NotYet(_) | Busy::Failed)) => return Err(state.busy(file, busy)),
            Err(_) => return Err(state.busy(file, Busy::Changing(None))),
        };
        let record = lock.record.as_ref();
        if record.is_some_and(|it| state.is_of_another_port(own, it, device)) {
            continue;
        }
        let is_it = |it: &&mut Given| it.lock.opened.identity() == lock.opened.identity();
        match files.iter_mut().find(is_it) {
            Some(given) => given.names.push(name.clone()),
            None => files.push(Given { names: vec![name.clone()], lock }),
        }
    }
    if files.is_empty() {
        let device = pass.device.as_str();
        state.say(Weight::Info, format!("{device} is not pid {}'s to pass", pass.from));
        return Err(Stop::Busy(None));
    }
    Ok(files)
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
        && !state.is_elsewhere(&who)
        && !(who.pid == pass.from && state.is_a_newcomer(&who));
    if is_its_own { Ok(lock) } else { Err(state.busy(file, Busy::Held(who))) }
}

/// Exchanges the giver's names, the first one last; then the receiver gets the further names of the device.
fn pass_each(
    state: &mut State,
    own: &Place,
    (existing, all): (&[Name], &[Name]),
    mut given: Vec<Given>,
    (pass, receiver): (&Pass, &Claimant),
    mut linked: Linked<'_>,
) -> Result<Taken, Stop> {
    let record = take::remember(state, receiver, all, Origin::Passed, &mut linked)?;
    let givers = given.iter().map(|it| WrittenFile::of(&it.lock.opened.status())).collect();
    let handover = Handover {
        receiver: WrittenFile::written_at(linked.identity(), linked.modified()),
        givers,
        names: all.to_vec(),
        draft: linked.private_name().clone(),
    };
    if let Some(record) = &record {
        if let Err(errno) = state.records.begin_pass(record, &handover.givers) {
            state.records.remove(record);
            let why = words_of(&errno.into());
            let text = format!("{} cannot be passed: {why}", own.path.display());
            state.say(Weight::Warning, text);
            return Err(Stop::Denied);
        }
    }
    let numbered = existing.iter().enumerate();
    let outcome = numbered.clone().skip(1).chain(numbered.take(1)).try_for_each(|(at, name)| {
        if at == 0 {
            #[cfg(test)]
            meanwhile::comes(Before::Decision);
            // Its lock is stale by now.
            refuse_ended(state, pass, &[pass.from])?;
        }
        let it = given.iter_mut().find(|it| it.names.contains(name));
        it.map_or(Ok(()), |it| pass_one(state, own.file(name), it, &linked, at))
    });
    if let Err(stop) = outcome {
        call_off(state, own, &handover, linked);
        return Err(stop);
    }
    let mut names = existing.to_vec();
    let further = all.iter().filter(|name| !existing.contains(name));
    names.extend(further.filter(|name| linked.publish(name) == Ok(true)).cloned());
    #[cfg(test)]
    meanwhile::comes(Before::End);
    let is_receivers = true;
    if let Err(why) = recovery::finish(state, own, &handover, is_receivers) {
        state.say(Weight::Notice, format!("left a part of a PASS behind: {why}"));
    }
    for Given { names, lock } in &given {
        state.guards.forget(lock.opened.identity(), names);
    }
    let mut passed = Taken { names, published: linked.finish(), record };
    if let Some(lost) = take::lost_name(own, &passed).cloned() {
        // Another program has removed it. The receiver keeps the others.
        let file = WrittenFile::published(&passed.published);
        passed.names.retain(|name| own.may_lead_to(name, file));
        if passed.names.is_empty() {
            passed.record.as_ref().map(|it| state.records.remove(it));
            passed.published.close();
            return Err(state.stop_contended(own.file(&lost), None));
        }
    }
    Ok(passed)
}

/// What has one name changes places with a link to the receiver's file.
fn pass_one(
    state: &mut State,
    file: LockFile<'_>,
    given: &mut Given,
    linked: &Linked<'_>,
    number: usize,
) -> Result<(), Stop> {
    let seen = given.lock.opened.status();
    match linked.exchange(file.name, &mut given.lock.opened, number) {
        Ok(Attempt::Done(())) => Ok(()),
        Ok(Attempt::Changed) => Err(state.busy(file, Busy::Changing(None))),
        Ok(Attempt::Contended) => Err(state.stop_contended(file, Some(seen))),
        Err(error) => Err(state.cannot_write(&error)),
    }
}

/// All names become the giver's again. If that fails now, whoever finds the link does it.
fn call_off(state: &mut State, own: &Place, handover: &Handover, linked: Linked<'_>) {
    let receivers = linked.held(state.passage.as_ref()).map_err(|error| error.to_string());
    let mended = receivers.and_then(|it| recovery::mend(state, own, handover, Some(it)));
    if let Err(why) = mended {
        linked.leave();
        let text = format!("a lock in {} is still half passed: {why}", own.path.display());
        state.say(Weight::Warning, text);
    }
}

/// Where a file has one name at most: nothing can be left half-way.
fn pass_alone(
    state: &mut State,
    own: &Place,
    all: &[Name],
    given: Vec<Given>,
    receiver: &Claimant,
    mut linked: Linked<'_>,
) -> Result<Taken, Stop> {
    let [Given { names, lock }] = <[Given; 1]>::try_from(given).map_err(|given| {
        let text = format!(
            "{} cannot be passed: it has {} files, as there are no hard links",
            own.path.display(),
            given.len()
        );
        state.say(Weight::Warning, text);
        Stop::Denied
    })?;
    let Some(name) = names.first() else { return Err(Stop::Busy(None)) };
    let record = take::remember(state, receiver, all, Origin::Taken, &mut linked)?;
    #[cfg(test)]
    meanwhile::comes(Before::Decision);
    let (file, seen) = (own.file(name), lock.opened.status());
    let Lock { mut opened, record: givers } = lock;
    let replaced = linked.replace_alone(name, &mut opened);
    state.remove_record_of_nameless(&opened, givers.as_ref(), &[]);
    drop(opened);
    let stop = match replaced {
        Ok(Attempt::Done(())) => {
            state.guards.forget(seen.identity, &names);
            return Ok(Taken { names, published: linked.finish(), record });
        }
        Ok(Attempt::Changed) => state.busy(file, Busy::Changing(None)),
        Ok(Attempt::Contended) => state.stop_contended(file, Some(seen)),
        Err(error) => state.cannot_write(&error),
    };
    record.as_ref().map(|it| state.records.remove(it));
    Err(stop)
}

/// Holds a lock of the giver. A lock without a record is held by `flock(2)` for as long as its program lives: by the giver
/// itself, or by `lfp run` for its command, which may pass it. Any other process may be about to remove the file.
fn hold(state: &mut State, file: LockFile<'_>, lock: &mut Lock, giver: Pid) -> Result<(), Busy> {
    let opened = &mut lock.opened;
    match state.hold(file, opened, state.backoff.is_exhausted()) {
        Err(Busy::Changing(Some(FlockHolder::Process(keeper))))
            if keeps_for(keeper, giver)
                && !matches!(state.enter(file, opened)?, Entry::Occupied(_))
                && lock.record.is_none() =>
        {
            opened.ignore_flock_with_consent();
            Ok(())
        }
        held => held,
    }
}

fn keeps_for(keeper: Pid, giver: Pid) -> bool {
    keeper == giver || process::parent(giver) == Some(keeper)
}
