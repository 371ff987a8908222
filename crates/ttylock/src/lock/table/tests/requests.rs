//! The requests of the model, each call of which may be the last: under the names of the functions that make these calls.

use super::Fault;
use super::disk::{Actor, Calls, Entry, File, Holder, NAMES, Open, Record, Step, Why};
use crate::lock::table::recovery::{Leads, Mending, Pair};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    Busy,
}

use Outcome::{Busy, Done};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Classification {
    Held,
    Stale,
    Changed,
}

/// How often a name is tried again if it changes meanwhile.
const ATTEMPTS: usize = 3;

/// The private name of a new file; those below are of its further links, one for each name.
const DRAFT: u8 = 9;

fn private(maker: Actor, number: u8) -> Entry {
    Entry::Private { maker, number }
}

/// LOCK: the draft, its record, its names.
pub(super) fn take(calls: &mut Calls<'_>, holder: Holder) -> Step<Outcome> {
    calls.enter()?;
    let is_late = calls.fault == Fault::ARecordComesAfterTheFirstName;
    let mut file = create(calls, holder)?;
    let record = Record { holder, names: NAMES.into(), maker: calls.me };
    if !is_late {
        file = remember(calls, file, &record)?;
    }
    for (given, name) in NAMES.into_iter().enumerate() {
        if !give_name(calls, name)? {
            give_back(calls, file, &NAMES[..given])?;
            return Ok(Busy);
        }
        if is_late && given == 0 {
            file = remember(calls, file, &record)?;
        }
    }
    calls.remove(private(calls.me, DRAFT))?;
    if !calls.lives(holder)? {
        give_back(calls, file, &NAMES)?;
        return Ok(Busy);
    }
    calls.grant(holder)?;
    Ok(Done)
}

/// The same by a user who may enter no gate and write no record.
pub(super) fn take_without_gate(calls: &mut Calls<'_>, holder: Holder) -> Step<Outcome> {
    let file = create(calls, holder)?;
    for (given, name) in NAMES.into_iter().enumerate() {
        if !give_name(calls, name)? {
            give_back(calls, file, &NAMES[..given])?;
            return Ok(Busy);
        }
    }
    calls.remove(private(calls.me, DRAFT))?;
    calls.grant_unrecorded(holder, file)?;
    calls.keep(file);
    Ok(Done)
}

/// Under its private name, and held.
fn create(calls: &mut Calls<'_>, holder: Holder) -> Step<File> {
    let draft = calls.create(private(calls.me, DRAFT), holder)?.map(|it| it.file);
    let draft = draft.expect("a file was made");
    calls.flock(draft)?;
    Ok(draft)
}

/// Records a draft. A record is never replaced: the draft gets another time.
fn remember(calls: &mut Calls<'_>, mut draft: File, record: &Record) -> Step<File> {
    while !calls.write_record(draft, record.clone())? {
        draft = calls.set_back(draft)?.expect("it is open").file;
    }
    Ok(draft)
}

fn give_name(calls: &mut Calls<'_>, name: u8) -> Step<bool> {
    let (draft, aside) = (private(calls.me, DRAFT), private(calls.me, name));
    for _ in 0..ATTEMPTS {
        if calls.link(draft, Entry::Lock(name))? {
            return Ok(true);
        }
        let Some(open) = stale(calls, name)? else { return Ok(false) };
        let Some(open) = open else { continue };
        calls.link(draft, aside)?;
        if !is_still(calls, name, open)? || !calls.exchange(aside, name, Why::Breaks)? {
            calls.remove(aside)?;
            continue;
        }
        let is_caught = calls.find(aside)? == Some(open);
        if is_caught {
            forget(calls, open)?;
        } else {
            calls.exchange(aside, name, Why::Moves)?;
        }
        calls.remove(aside)?;
        if is_caught {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A stale lock, which is held; `Some(None)` if it changes; `None` if it keeps others out.
fn stale(calls: &mut Calls<'_>, name: u8) -> Step<Option<Option<Open>>> {
    let Some(open) = find_recovered(calls, name)? else { return Ok(Some(None)) };
    match classify(calls, name, open)? {
        Classification::Held => return Ok(None),
        Classification::Changed => return Ok(Some(None)),
        Classification::Stale => {}
    }
    if !hold(calls, open.file)? {
        return Ok(None);
    }
    // Its maker held it until it was recorded.
    Ok(match classify(calls, name, open)? {
        Classification::Held => None,
        Classification::Changed => Some(None),
        Classification::Stale => Some(Some(open)),
    })
}

/// The lock of a name, after the PASS of its file, if that was not finished, is recovered.
fn find_recovered(calls: &mut Calls<'_>, name: u8) -> Step<Option<Open>> {
    let Some(open) = calls.find(Entry::Lock(name))? else { return Ok(None) };
    if calls.fault == Fault::NobodyRecovers || !calls.is_inside() {
        return Ok(Some(open));
    }
    let Some(giver) = calls.giver_of(open.file)? else { return Ok(Some(open)) };
    recover(calls, open.file, giver)?;
    calls.find(Entry::Lock(name))
}

fn hold(calls: &mut Calls<'_>, file: File) -> Step<bool> {
    Ok(calls.fault == Fault::AFileIsRemovedWithoutFlock || calls.flock(file)?)
}

fn classify(calls: &mut Calls<'_>, name: u8, open: Open) -> Step<Classification> {
    let record = calls.record_of(open.file)?;
    let counts = |it: &Record| it.holder == open.names && it.names.contains(&name);
    if !record.as_ref().is_some_and(counts) && !is_still(calls, name, open)? {
        return Ok(Classification::Changed);
    }
    Ok(if calls.lives(open.names)? { Classification::Held } else { Classification::Stale })
}

fn is_still(calls: &mut Calls<'_>, name: u8, open: Open) -> Step<bool> {
    Ok(calls.find(Entry::Lock(name))? == Some(open))
}

fn give_back(calls: &mut Calls<'_>, file: File, given: &[u8]) -> Step {
    for name in given.iter().rev().copied() {
        if calls.find(Entry::Lock(name))?.is_some_and(|it| it.file == file) {
            calls.remove(Entry::Lock(name))?;
        }
    }
    calls.remove_record(file)?;
    calls.remove(private(calls.me, DRAFT))?;
    Ok(())
}

/// The record of a file goes when none of its names leads to it. The file is open.
fn forget(calls: &mut Calls<'_>, open: Open) -> Step {
    let Some(record) = calls.record_of(open.file)? else { return Ok(()) };
    for name in record.names {
        if is_still(calls, name, open)? {
            return Ok(());
        }
    }
    calls.remove_record(open.file)?;
    Ok(())
}

/// UNLOCK: every lock of this process, and what is stale.
pub(super) fn release(calls: &mut Calls<'_>, holder: Holder) -> Step<Outcome> {
    calls.enter()?;
    let mut outcome = Busy;
    for name in NAMES {
        let Some(open) = find_recovered(calls, name)? else { continue };
        if open.names != holder {
            if let Some(Some(open)) = stale(calls, name)? {
                remove_name(calls, name, open)?;
            }
            continue;
        }
        if !hold(calls, open.file)? {
            return Ok(Busy);
        }
        let record = calls.record_of(open.file)?.filter(|it| it.holder == holder);
        let names = record.map_or(NAMES.to_vec(), |it| it.names);
        if calls.fault == Fault::ARecordGoesBeforeItsNames {
            calls.remove_record(open.file)?;
        }
        for name in names.iter().copied() {
            find_recovered(calls, name)?;
        }
        for name in names.into_iter().rev() {
            if is_still(calls, name, open)? {
                calls.remove_own(name, holder)?;
            }
        }
        calls.remove_record(open.file)?;
        outcome = Done;
    }
    Ok(outcome)
}

fn remove_name(calls: &mut Calls<'_>, name: u8, open: Open) -> Step {
    if is_still(calls, name, open)? {
        calls.remove(Entry::Lock(name))?;
        forget(calls, open)?;
    }
    Ok(())
}

/// PASS: the receiver's file, its record, the link to the giver's file, the names, the first one last.
pub(super) fn pass(calls: &mut Calls<'_>, from: Holder, to: Holder) -> Step<Outcome> {
    calls.enter()?;
    if !calls.lives(to)? || !calls.lives(from)? {
        return Ok(Busy);
    }
    let Some((giver, names)) = held(calls, from)? else { return Ok(Busy) };
    let receiver = create(calls, to)?;
    // Further names of the device follow those of the giver.
    let others = NAMES.into_iter().filter(|it| !names.contains(it));
    let record = Record {
        holder: to,
        names: names.iter().copied().chain(others).collect(),
        maker: calls.me,
    };
    let receiver = remember(calls, receiver, &record)?;
    if calls.fault != Fault::NoLinkToTheGiversFile {
        calls.write_from(receiver, giver.file)?;
    }
    let (first, others) = names.split_first().expect("the lock has a name");
    let mut order: Vec<u8> = others.iter().chain([first]).copied().collect();
    if calls.fault == Fault::TheFirstNameIsNotLast {
        order.rotate_right(1);
    }
    for name in order {
        let why = if name == *first { Why::Passes { from, to } } else { Why::Moves };
        if name == *first && calls.fault == Fault::TheGiversRecordGoesTooEarly {
            calls.remove_record(giver.file)?;
        }
        if name == *first && calls.fault == Fault::TheLinkGoesTooEarly {
            calls.remove_from(receiver)?;
        }
        if !pass_one(calls, name, giver, why)? {
            recover(calls, receiver, giver.file)?;
            return Ok(Busy);
        }
    }
    for name in record.names.iter().filter(|it| !names.contains(it)) {
        calls.link(private(calls.me, DRAFT), Entry::Lock(*name))?;
    }
    calls.remove_from(receiver)?;
    calls.remove_record(giver.file)?;
    remove_private(calls, &names, calls.me)?;
    Ok(Done)
}

/// The giver's file, which is held, and its names.
fn held(calls: &mut Calls<'_>, from: Holder) -> Step<Option<(Open, Vec<u8>)>> {
    let mut found: Vec<(u8, Open)> = Vec::new();
    for name in NAMES {
        let Some(open) = find_recovered(calls, name)? else { continue };
        if open.names != from || found.iter().any(|(_, it)| *it != open) {
            return Ok(None);
        }
        found.push((name, open));
    }
    let Some((_, giver)) = found.first().copied() else { return Ok(None) };
    let names = found.into_iter().map(|(name, _)| name).collect();
    Ok(calls.flock(giver.file)?.then_some((giver, names)))
}

fn pass_one(calls: &mut Calls<'_>, name: u8, giver: Open, why: Why) -> Step<bool> {
    let aside = private(calls.me, name);
    calls.link(private(calls.me, DRAFT), aside)?;
    if !is_still(calls, name, giver)? || !calls.exchange(aside, name, why)? {
        return Ok(false);
    }
    Ok(calls.find(aside)? == Some(giver))
}

/// Last, so that the numbers of both files are not given to others while there is a record of them.
fn remove_private(calls: &mut Calls<'_>, names: &[u8], maker: Actor) -> Step {
    for name in names {
        calls.remove(private(maker, *name))?;
    }
    calls.remove(private(maker, DRAFT))?;
    Ok(())
}

/// Recovers every PASS whose process was killed. Whoever enters the gate does so.
fn recover_each(calls: &mut Calls<'_>) -> Step<bool> {
    if calls.fault == Fault::NobodyRecovers {
        return Ok(true);
    }
    for (receiver, giver) in calls.list_from()? {
        if !recover(calls, receiver, giver)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn recover(calls: &mut Calls<'_>, receiver: File, giver: File) -> Step<bool> {
    let Some(record) = calls.record_of(receiver)? else {
        calls.remove_from(receiver)?;
        return Ok(true);
    };
    if !calls.flock(receiver)? {
        return Ok(false);
    }
    let Record { names, maker, .. } = record;
    let mut pairs = Vec::new();
    for name in &names {
        let leads = |found: Option<Open>| match found.map(|it| it.file) {
            None => Leads::Nowhere,
            Some(file) if file == receiver => Leads::ToReceivers,
            Some(file) if file == giver => Leads::ToGivers,
            Some(_) => Leads::ToAnothers,
        };
        let private = leads(calls.find(private(maker, *name))?);
        pairs.push(Pair { name: leads(calls.find(Entry::Lock(*name))?), private });
    }
    let is_receivers = match (calls.fault, pairs.first()) {
        (Fault::TheNameAloneShowsTheEnd, Some(first)) => first.name == Leads::ToReceivers,
        (_, first) => first.is_some_and(|first| first.is_receivers()),
    };
    for (name, pair) in names.iter().zip(&pairs) {
        match pair.mending(is_receivers) {
            Mending::Stays => {}
            Mending::GoesBack => {
                let seen = if pair.name == Leads::ToReceivers { receiver } else { giver };
                go_back(calls, *name, private(maker, *name), seen)?;
            }
            Mending::Goes => {
                calls.remove(Entry::Lock(*name))?;
            }
        }
    }
    calls.remove_from(receiver)?;
    calls.remove_record(if is_receivers { giver } else { receiver })?;
    remove_private(calls, &names, maker)?;
    Ok(true)
}

/// What a foreign program has put there since goes back in turn.
fn go_back(calls: &mut Calls<'_>, name: u8, aside: Entry, seen: File) -> Step {
    let went = calls.exchange(aside, name, Why::Moves)?;
    let is_looked_at = went && calls.fault != Fault::NobodyLooksAtWhatGoesBack;
    if is_looked_at && calls.find(aside)?.is_some_and(|it| it.file != seen) {
        calls.exchange(aside, name, Why::Moves)?;
    }
    Ok(())
}

/// The start of a daemon: what killed processes have left, and the locks of ended holders.
pub(super) fn sweep(calls: &mut Calls<'_>) -> Step<Outcome> {
    calls.enter()?;
    if !recover_each(calls)? {
        return Ok(Busy);
    }
    for name in NAMES {
        if let Some(Some(open)) = stale(calls, name)? {
            remove_name(calls, name, open)?;
        }
    }
    for entry in calls.list_private()? {
        let Entry::Private { maker, .. } = entry else { continue };
        if !calls.is_running(maker)? {
            calls.remove(entry)?;
        }
    }
    'records: for (file, record) in calls.list_records()? {
        let names = record.names.iter().map(|it| Entry::Lock(*it));
        for entry in names.chain([private(record.maker, DRAFT)]) {
            if calls.find(entry)?.is_some_and(|it| it.file == file) {
                continue 'records;
            }
        }
        calls.remove_record(file)?;
    }
    Ok(Done)
}
