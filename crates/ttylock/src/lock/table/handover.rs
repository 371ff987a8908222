//! A lock that is being passed, and how an interrupted pass is undone.
//!
//! A lock consists of several files, and the holder of each changes separately. Before the first change, a note in
//! the state directory names the giver, and the names of the lock. The record of the first name is written last.
//! Until that record names the receiver, the whole lock belongs to the giver. From then on it belongs to the receiver,
//! and the note means nothing. A process that finds a note without its maker *settles* the hand-over: it gives everything
//! back, or removes the note.

use std::time::SystemTime;

use pidlockfile::process::lives;
use pidlockfile::{Attempt, Directory, Found, Identity, Name, Pid, Published, Status};

use super::classify::{Busy, LastLook, pid_in};
use super::state::{State, TEMPORARY, claim};
use super::take::{self, Taken};
use super::{ATTEMPTS, Stop};
use crate::limits::KEPT_WITHOUT_DEVICE;
use crate::lock::directories::{LockFile, Place};
use crate::lock::holder_records::{Claimant, HolderRecord};
#[cfg(test)]
use crate::lock::meanwhile::{self, Before};
use crate::lock::{Cause, Pass, Weight};

/// The beginning of a note's name.
const NOTE: &str = "pass.";

/// The number of characters of the lock's first name in a note's name.
const NOTE_CHARS: usize = 60;

/// No other user may open a note and hold it.
const NOTE_MODE: u32 = 0o600;

/// More than the length of the longest note: a record with all names, and a number.
const NOTE_BYTES: usize = 8192;

/// The most notes that are examined at the start of a daemon.
const NOTES: usize = 1024;

/// The facts that are needed to undo a hand-over.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Handover {
    giver: HolderRecord,
    to: Pid,
}

/// A hand-over by this process that is under way.
#[derive(Debug)]
pub(super) struct Begun {
    handover: Handover,
    /// The note about it; none without a state directory. It is held by `flock(2)` until the hand-over ends.
    note: Option<(Name, Published)>,
}

/// One name of a lock, and its file.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) name: Name,
    pub(super) file: Identity,
    /// When it was written.
    pub(super) at: SystemTime,
}

impl Handover {
    fn to_text(&self) -> Option<String> {
        Some(format!("to={} {}", self.to, self.giver.to_text()?))
    }

    fn from_text(text: &str) -> Option<Self> {
        let (to, giver) = text.strip_prefix("to=")?.split_once(' ')?;
        let to = Pid::parse(to.as_bytes()).ok()?;
        let note = Name::new(NOTE)?;
        Some(Self { giver: HolderRecord::from_text(note, giver)?, to })
    }

    /// Whether the process that asks, or else the one that a file names, need not wait until the hand-over is over. A file
    /// of a process that neither gives nor receives is not half passed, nor is the only file of a lock while it names the
    /// giver.
    fn spares(&self, asking: Option<Pid>, named: Option<Pid>) -> bool {
        let from = self.giver.holder.pid;
        let is_givers_only_file = self.giver.names.len() == 1 && named == Some(from);
        asking.or(named).is_some_and(|pid| ![from, self.to].contains(&pid))
            || asking == Some(from) && is_givers_only_file
    }
}

fn note_of(first: &Name) -> Option<Name> {
    let first: String = first.as_str().chars().take(NOTE_CHARS).collect();
    Name::new(format!("{NOTE}{first}"))
}

/// Begins a hand-over by writing its note: from now on, the lock is given back unless it is passed completely.
pub(super) fn begin(
    state: &mut State,
    pass: &Pass,
    giver: &Claimant,
    files: &[Written],
) -> Result<Begun, Stop> {
    let names: Vec<Name> = files.iter().map(|file| file.name.clone()).collect();
    let Some(first) = files.first() else { return Err(Stop::Busy(None)) };
    let record = state.records.record_for(giver, &names, (first.file, first.at));
    let Some(record) = record else { return Err(Stop::Busy(None)) };
    let handover = Handover { giver: record, to: pass.to };
    let mut begun = Begun { handover, note: None };
    let place = state.records.directory().zip(note_of(&first.name));
    // If the state directory may not be written, or the giver has no record, there is no note.
    let Some(((directory, name), text)) = place.zip(begun.handover.to_text()) else {
        return Ok(begun);
    };
    let mut claim = claim(text.as_bytes());
    claim.mode = NOTE_MODE;
    match directory.publish(&name, &claim) {
        Ok(Some(note)) => begun.note = Some((name, note)),
        // Another process is passing the lock.
        Ok(None) if state.backoff.decides() => return Err(Stop::Busy(None)),
        Ok(None) => return Err(Stop::NotYet(Cause::Breaking)),
        Err(error) if error.is_not_permitted() => {}
        Err(_) => return Err(Stop::Denied),
    }
    Ok(begun)
}

/// Ends a hand-over by removing its note, when all files are recorded for one process. A note that cannot be removed means
/// nothing any more.
pub(super) fn end(state: &mut State, begun: Begun) {
    let Some(((name, note), directory)) = begun.note.zip(state.records.directory()) else { return };
    if let Err(error) = directory.withdraw(&name, &note) {
        state.say(Weight::Notice, format!("left a note behind: {error}"));
    }
}

/// Calls a hand-over off: gives all files back. If that fails now, the next process that finds the note does it.
pub(super) fn call_off(state: &mut State, own: &Place, begun: Begun, passed: &[Taken]) {
    // Otherwise our own `flock(2)` would be in the way.
    passed.iter().for_each(|it| it.published.let_go());
    if give_all_back(state, own, &begun.handover) {
        end(state, begun);
    }
}

/// Settles the hand-over of a lock by one of its files. Returns whether no hand-over is left that concerns the process that
/// asks or, if that does not matter, the one that the file names: a half passed lock must not be broken, released or passed.
pub(super) fn settle(state: &mut State, file: LockFile<'_>, asking: Option<Pid>) -> bool {
    let first = state.record_at(file).and_then(|record| record.names.into_iter().next());
    let first = first.filter(|first| first != file.name);
    // All notes are tried, even if one cannot be settled.
    let is_settled = settle_note(state, file, file.name, asking);
    first.is_none_or(|first| settle_note(state, file, &first, asking)) && is_settled
}

/// Settles the hand-overs of the locks with these names.
///
/// # Errors
/// Another process is passing such a lock.
pub(super) fn settle_each<'n>(
    state: &mut State,
    own: &Place,
    names: impl IntoIterator<Item = &'n Name>,
    asking: Option<Pid>,
) -> Result<(), Stop> {
    let mut files = names.into_iter().map(|name| own.file(name));
    let unsettled = files.find(|file| !settle(state, *file, asking));
    let Some(file) = unsettled else { return Ok(()) };
    let seen = Status::of_name(&own.directory, file.name.as_str()).ok();
    Err(state.stop_contended(file, seen))
}

/// Settles every hand-over that was interrupted, at the start of a daemon.
pub(super) fn settle_all(state: &mut State, own: &Place) {
    let Some(directory) = state.records.directory() else { return };
    // Files left by processes that were killed while they made a note, or a file of the gate.
    for made in [TEMPORARY, "gate"] {
        let _ = directory.sweep(made, SystemTime::now());
    }
    let names = directory.names().unwrap_or_default();
    let firsts = names.iter().filter_map(|name| Name::new(name.as_str().strip_prefix(NOTE)?));
    for first in firsts.take(NOTES) {
        settle_note(state, own.file(&first), &first, None);
    }
}

/// Settles a hand-over by the lock's first name and one of its files. Returns as [`settle`].
pub(super) fn settle_note(
    state: &mut State,
    file: LockFile<'_>,
    first: &Name,
    asking: Option<Pid>,
) -> bool {
    let Some((directory, note)) = state.records.directory().zip(note_of(first)) else {
        return true;
    };
    let judged = match directory.read(&note, NOTE_BYTES) {
        Ok(Found::File(judged)) => judged,
        // An ordinary user may not read it.
        Ok(Found::Nothing | Found::Obstacle(_)) => return true,
        Err(_) => return false,
    };
    let handover = std::str::from_utf8(judged.content()).ok().and_then(Handover::from_text);
    // Those of another lock directory are left to its services.
    if handover.as_ref().is_some_and(|it| state.records.is_anothers(&it.giver)) {
        return true;
    }
    // Its maker holds the note during the hand-over, and removes it afterwards.
    let is_abandoned = judged.try_hold().is_ok_and(|held| held)
        && Status::of_name(directory, note.as_str())
            .is_ok_and(|seen| seen.identity == judged.identity());
    if !is_abandoned {
        // On a busy machine, its maker may take long to clear up after a lock that is gone.
        return handover.is_some_and(|it| it.spares(asking, named_by(file).ok().flatten()));
    }
    let own = file.place;
    let is_settled = match handover.map(|it| (has_come_to_its_end(state, own, &it), it)) {
        Some((None, _)) => false,
        Some((Some(false), handover)) => {
            let (from, to) = (handover.giver.holder.pid, handover.to);
            let text =
                format!("a lock that was being passed from pid {from} to pid {to} is given back");
            state.say(Weight::Notice, text);
            // A giver that releases the lock needs no record of it.
            let is_released = asking == Some(from) && !state.is_elsewhere(&handover.giver.holder);
            give_all_back(state, own, &handover)
                || is_released
                    && handover
                        .giver
                        .names
                        .iter()
                        .all(|it| named_by(own.file(it)).is_ok_and(|pid| pid != Some(to)))
        }
        Some((Some(true), _)) | None => true,
    };
    let remove = |directory: &Directory| directory.try_release(&note, judged);
    if is_settled && !matches!(state.records.directory().map(remove), Some(Ok(Attempt::Done(())))) {
        state.say(Weight::Warning, format!("left {note} behind"));
    }
    is_settled
}

/// Whether the lock of the first name is on record as the receiver's. `None` if that cannot be seen now.
fn has_come_to_its_end(state: &mut State, own: &Place, handover: &Handover) -> Option<bool> {
    let Some(first) = handover.giver.names.first() else { return Some(true) };
    let Some(lock) = state.read(own.file(first)).ok()? else { return Some(false) };
    Some(lock.record.is_some_and(|record| record.holder.pid == handover.to))
}

/// The process that a file names.
fn named_by(file: LockFile<'_>) -> Result<Option<Pid>, pidlockfile::Error> {
    Ok(match file.read()? {
        Found::File(judged) => pid_in(&judged),
        Found::Nothing | Found::Obstacle(_) => None,
    })
}

/// Makes every file the giver's again, and records it. Returns whether all of that is done.
fn give_all_back(state: &mut State, own: &Place, handover: &Handover) -> bool {
    let Handover { giver, to } = handover;
    let claimant = Claimant { who: giver.holder.clone(), uid: giver.uid };
    let mut given = Vec::new();
    let mut is_done = true;
    for name in &giver.names {
        let names = (name, &giver.names[..]);
        if let Err(why) = give_one_back(state, own, names, &claimant, *to, &mut given) {
            is_done = false;
            let text = format!("{} is not given back: {why}", own.file(name));
            state.say(Weight::Warning, text);
        }
    }
    // A lock of another pid namespace has a daemon of its own.
    let most = if state.is_elsewhere(&claimant.who) { 0 } else { KEPT_WITHOUT_DEVICE };
    for file in given {
        state.keep(file, &claimant, most);
    }
    is_done
}

/// Gives one name back to the giver, unless another process has removed it, or has put its own lock there. Its new file is
/// added to `given`.
fn give_one_back(
    state: &mut State,
    own: &Place,
    (name, all): (&Name, &[Name]),
    giver: &Claimant,
    to: Pid,
    given: &mut Vec<Taken>,
) -> Result<(), String> {
    let (file, from) = (own.file(name), giver.who.pid);
    let content = state.layout.dialect.content.write(from);
    for _ in 0..ATTEMPTS {
        let mut lock = match state.read(file) {
            Ok(Some(lock)) => lock,
            Ok(None) | Err(Busy::Obstacle(_)) => return Ok(()),
            Err(busy) => return Err(busy.to_string()),
        };
        let Some(pid) = pid_in(&lock.judged).filter(|pid| [from, to].contains(pid)) else {
            return Ok(());
        };
        let is_of_the_hand_over = match &lock.record {
            Some(record) if pid == from => record.holder == giver.who,
            Some(record) => !record.holder.is_elsewhere(&giver.who.here),
            None if state.is_elsewhere(&giver.who) && lives(pid) => {
                return Err(format!("a process here has the number {pid}, too"));
            }
            None if state.is_elsewhere(&giver.who) => true,
            None => pid == to || state.machine.identify(pid) == giver.who,
        };
        if !is_of_the_hand_over || pid == from {
            return Ok(());
        }
        // Our own `flock(2)` must not count as that of another process.
        state.guards.let_go(lock.judged.identity());
        if state.hold(file, &mut lock.judged, true).is_err() {
            return Err("another process keeps it locked".to_owned());
        }
        let claim = claim(&content);
        let mut linked = own.directory.linked(&claim).map_err(|error| error.to_string())?;
        let record = take::remember(state, giver, all, &mut linked);
        let record = record.map_err(|_| "it cannot be recorded".to_owned())?;
        let last = LastLook::of(&lock.judged, lock.record);
        let replaced = linked.replace_alone(name, lock.judged);
        state.forget_if_nameless(last);
        let published = linked.finish();
        if replaced == Ok(Attempt::Done(())) {
            given.push(Taken { names: vec![name.clone()], published, record });
            #[cfg(test)]
            meanwhile::comes(Before::NextName);
            return Ok(());
        }
        published.close();
        record.as_ref().map(|it| state.records.forget(it));
        replaced.map_err(|error| error.to_string())?;
    }
    Err("it is being changed by others".to_owned())
}
