//! A PASS that was not finished, and its recovery.
//!
//! Each name of the giver's file changes places with a link to the receiver's file, which has a private name; the first
//! name of the lock comes last. Until that one is exchanged, the lock is the giver's, afterwards the receiver's. The giver's
//! links stay under the private names until the end, so that going back needs no new link.
//!
//! Before the first exchange, a link `from.DEVICE.INODE.NANOSECONDS` in the state directory, named after the receiver's file,
//! leads to the giver's; it goes when all names are passed. All of this happens in the gate. So a process that is in the
//! gate and finds such a link knows that its maker was killed, or could not go on. It *recovers* the PASS: all names become
//! the receiver's or the giver's, by the first one. Private names go last: as long as a file has one, no other file gets
//! its inode number, and by then its record is gone.
//!
//! Without a state directory that may be written, there is no such link. Then nothing is recovered: if the maker of a PASS
//! is killed half-way, some names of the lock lead to the receiver's file and the first one to the giver's, until each of the
//! two has released its own or has ended.

use pidlockfile::{Attempt, Directory, Entry, Found, Name, OpenFile, Passage, Status, words_of};
use rustix::fs::{AtFlags, linkat};

use super::lock_file::{Busy, Lock};
use super::state::{State, TEMPORARY};
use crate::dialects::content::READ_LIMIT;
use crate::lock::Weight;
use crate::lock::directories::{LockFile, Place, Role, WrittenFile};
use crate::lock::holder_records::HolderRecord;

/// The most unfinished PASSes that are recovered at once.
const PASSES: usize = 1024;

/// The files of a PASS and their names.
#[derive(Clone, Debug)]
pub(super) struct Handover {
    pub(super) receiver: WrittenFile,
    /// Most often one.
    pub(super) givers: Vec<WrittenFile>,
    /// The names of the receiver's lock: those that the giver had, in its order, and further ones of the device.
    pub(super) names: Vec<Name>,
    /// The private name of the receiver's file. A name that is passed changes places with a further one of these.
    pub(super) draft: Name,
}

impl Handover {
    /// `None` if it is no record of a lock that was passed.
    fn of(record: &HolderRecord, givers: Vec<WrittenFile>) -> Option<Self> {
        let draft = record.draft.clone().filter(|_| record.is_passed)?;
        Some(Self { receiver: record.file, givers, names: record.names.clone(), draft })
    }

    /// The names of the lock, each with the private name with which it changes places.
    fn each(&self) -> impl Iterator<Item = (&Name, Name)> {
        let private = |number| self.draft.further_temporary(number);
        self.names.iter().enumerate().filter_map(move |(at, name)| Some((name, private(at)?)))
    }

    fn pair(&self, directory: &Directory, name: &Name, private: &Name) -> std::io::Result<Pair> {
        let is_receivers = |seen: &WrittenFile| *seen == self.receiver;
        let is_givers = |seen: &WrittenFile| self.givers.contains(seen);
        let leads = |name: &Name, may_be_anothers: &dyn Fn(&Status) -> bool| {
            Ok(match Status::of_name(directory, name.as_str()) {
                Ok(seen) if is_receivers(&WrittenFile::of(&seen)) => Leads::ToReceivers,
                Ok(seen) if is_givers(&WrittenFile::of(&seen)) => Leads::ToGivers,
                Ok(seen) if may_be_anothers(&seen) => Leads::ToAnothers,
                Ok(_) => Leads::Nowhere,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Leads::Nowhere,
                Err(error) => return Err(error),
            })
        };
        let may_rename = |seen: &Status| may_rename(directory, seen.owner);
        Ok(Pair { name: leads(name, &|_| true)?, private: leads(private, &may_rename)? })
    }
}

/// Whether a user may have put a file in the place of a lock. In a directory like `/tmp`, any user may put one at a free
/// private name, but only these may remove what has a name of a lock.
fn may_rename(directory: &Directory, user: u32) -> bool {
    const STICKY: u32 = 0o1000;
    let own = rustix::process::geteuid().as_raw();
    directory.mode() & STICKY == 0 || [0, own, directory.owner()].contains(&user)
}

/// Reads a lock. A PASS of it that was not finished is recovered first, in the gate: names may change.
///
/// # Errors
/// As [`State::read`] and [`recovered`].
pub(super) fn read_recovered(state: &mut State, file: LockFile<'_>) -> Result<Option<Lock>, Busy> {
    match state.read(file)? {
        Some(lock) => recovered(state, file, lock),
        None => Ok(None),
    }
}

/// A lock that was read. A PASS of it that was not finished is recovered first, and the lock is read again: it may be
/// another one then. Only a lock that was passed costs a look. A process that may not enter the gate leaves this to
/// others.
///
/// # Errors
/// The PASS cannot be recovered now.
pub(super) fn recovered(
    state: &mut State,
    file: LockFile<'_>,
    lock: Lock,
) -> Result<Option<Lock>, Busy> {
    let passed = lock.record.as_ref().filter(|it| it.is_passed && file.place.role == Role::Written);
    let Some(record) = passed.cloned() else { return Ok(Some(lock)) };
    if state.givers_of(&record)?.is_none() {
        return Ok(Some(lock));
    }
    let Lock { mut opened, record: read } = lock;
    state.must_enter(file, &mut opened)?;
    if opened.passage().is_none() {
        return Ok(Some(Lock { opened, record: read }));
    }
    recover(state, file, &record, Some(opened))?;
    state.read(file)
}

/// The same of the locks with these names. Returns whether a name leads to another file now, or to none.
///
/// # Errors
/// As [`recovered`].
pub(super) fn recover_names(state: &mut State, own: &Place, names: &[Name]) -> Result<bool, Busy> {
    let mut is_changed = false;
    for name in names {
        let file = own.file(name);
        let Some(lock) = state.read(file)? else { continue };
        let before = lock.opened.identity();
        let after = recovered(state, file, lock)?.map(|it| it.opened.identity());
        is_changed |= after != Some(before);
    }
    Ok(is_changed)
}

/// Recovers every PASS that was not finished, at the start of a daemon and before drafts are swept. Returns whether none is
/// left.
pub(super) fn recover_all(state: &mut State, own: &Place) -> bool {
    let mut are_recovered = true;
    for (link, record) in state.records.unfinished(PASSES) {
        let Some(name) = record.as_ref().and_then(|it| it.names.first().cloned()) else {
            are_recovered &= remove_orphan(state, own, &link);
            continue;
        };
        let Some(record) = record else { continue };
        let file = own.file(&name);
        let opened = receivers_file(own, &record);
        let recovered = state.in_the_gate(file, |state| recover(state, file, &record, opened));
        are_recovered &= recovered.is_ok_and(|it| it.is_ok());
    }
    are_recovered
}

/// Removes a link of a PASS without the record of the receiver's file. No PASS needs it: the record is made before the
/// link.
fn remove_orphan(state: &State, own: &Place, link: &Name) -> bool {
    match own.directory.try_enter() {
        Ok(_inside @ (Entry::Inside(_) | Entry::NoGate)) => state.records.remove_orphan(link),
        Ok(Entry::Occupied(_)) | Err(_) => false,
    }
}

/// The receiver's file, if one of its names leads to it.
fn receivers_file(own: &Place, record: &HolderRecord) -> Option<OpenFile> {
    let further = |at| record.draft.as_ref()?.further_temporary(at);
    let further = (0..record.names.len()).filter_map(further);
    let names = record.names.iter().cloned().chain(record.draft.clone()).chain(further);
    let is_its = |opened: &OpenFile| WrittenFile::of(&opened.status()) == record.file;
    names
        .filter_map(|name| match own.directory.read(&name, READ_LIMIT) {
            Ok(Found::File(opened)) => Some(opened),
            Ok(Found::Nothing | Found::Obstacle(_)) | Err(_) => None,
        })
        .find(is_its)
}

/// Recovers one PASS, in the gate. The receiver's file is held meanwhile.
fn recover(
    state: &mut State,
    file: LockFile<'_>,
    record: &HolderRecord,
    mut receivers: Option<OpenFile>,
) -> Result<(), Busy> {
    if let Some(opened) = &mut receivers {
        if let Some(kept) = state.guards.lend(opened.identity()) {
            opened.hold_by(kept);
        }
        state.hold(file, opened, state.backoff.is_exhausted())?;
    }
    // While the kernel's list was read, we were outside.
    let Some(givers) = state.givers_of(record)? else { return Ok(()) };
    let Some(handover) = Handover::of(record, givers) else { return Ok(()) };
    let recovered = mend(state, file.place, &handover, receivers);
    recovered.map_err(|why| {
        state.say(
            Weight::Warning,
            format!("busy: {file} was being passed, which cannot be settled: {why}"),
        );
        Busy::Failed
    })
}

/// Makes all names the receiver's or the giver's, and removes what only a PASS needs. The receiver's file is held, and we are
/// in the gate.
pub(super) fn mend(
    state: &mut State,
    own: &Place,
    handover: &Handover,
    mut receivers: Option<OpenFile>,
) -> Result<(), String> {
    let directory = &own.directory;
    let mut pairs = Vec::with_capacity(handover.names.len());
    for (name, private) in handover.each() {
        let pair = handover.pair(directory, name, &private).map_err(|error| error.to_string())?;
        pairs.push((name, private, pair));
    }
    let is_receivers = pairs.first().is_some_and(|(.., pair)| pair.is_receivers());
    if !is_receivers {
        link_what_was_swept(directory, &mut pairs);
    }
    let passage = receivers.as_ref().and_then(OpenFile::passage).cloned();
    for (name, private, pair) in &pairs {
        let mut givers;
        let there = match pair.name {
            Leads::ToReceivers => receivers.as_mut(),
            Leads::ToGivers | Leads::ToAnothers | Leads::Nowhere => {
                givers = read_inside(directory, name, passage.as_ref());
                givers.as_mut()
            }
        };
        let outcome = match (pair.mending(is_receivers), there) {
            (Mending::Stays, _) | (_, None) => continue,
            (Mending::GoesBack, Some(there)) => directory.exchange_again(name, private, there),
            (Mending::Goes, Some(there)) => directory
                .try_release_each(std::slice::from_ref(*name), there, Some(TEMPORARY.as_ref()))
                .map(|it| it.map(|_| ())),
        };
        match outcome.map_err(|error| error.to_string())? {
            // Otherwise another program has put its own file there meanwhile.
            Attempt::Done(()) | Attempt::Changed => {}
            Attempt::Contended => return Err(format!("{} is held", own.file(name))),
        }
    }
    if !is_receivers {
        state.say(
            Weight::Notice,
            format!("{}: a lock that was being passed is its giver's again", own.path.display()),
        );
    }
    finish(state, own, handover, is_receivers)
}

/// Makes private links to the giver's file again, as long as another name leads to the file. A service in another pid
/// namespace may have swept them, because it took their maker for dead. Where that is not possible, as with another
/// user's file, the name goes.
fn link_what_was_swept(directory: &Directory, pairs: &mut [(&Name, Name, Pair)]) {
    let givers = pairs.iter().find_map(|(name, private, pair)| match (pair.name, pair.private) {
        (Leads::ToGivers, _) => Some((*name).clone()),
        (_, Leads::ToGivers) => Some(private.clone()),
        _ => None,
    });
    let Some(givers) = givers else { return };
    for (_, private, pair) in pairs {
        let is_swept = *pair == Pair { name: Leads::ToReceivers, private: Leads::Nowhere };
        let (from, to) = (givers.as_str(), private.as_str());
        if is_swept && linkat(directory, from, directory, to, AtFlags::empty()).is_ok() {
            pair.private = Leads::ToGivers;
        }
    }
}

fn read_inside(directory: &Directory, name: &Name, passage: Option<&Passage>) -> Option<OpenFile> {
    let Ok(Found::File(mut opened)) = directory.read(name, READ_LIMIT) else { return None };
    passage.into_iter().for_each(|passage| opened.enter_by(passage.clone()));
    Some(opened)
}

/// All names are the receiver's, or the giver's: the link goes, the record of the other lock, and the private names.
pub(super) fn finish(
    state: &State,
    own: &Place,
    handover: &Handover,
    is_receivers: bool,
) -> Result<(), String> {
    let Handover { receiver, givers, names, draft } = handover;
    state.records.end_pass(*receiver).map_err(|errno| words_of(&errno.into()))?;
    let others = if is_receivers { givers.as_slice() } else { std::slice::from_ref(receiver) };
    for lock in others {
        for name in names {
            state.records.remove_if_nameless(own, name, *lock);
        }
    }
    for private in handover.each().map(|(_, private)| private).chain([draft.clone()]) {
        own.directory.discard(&private).map_err(|error| error.to_string())?;
    }
    Ok(())
}

impl State {
    /// The files of the giver, while a lock is being passed.
    fn givers_of(&mut self, receiver: &HolderRecord) -> Result<Option<Vec<WrittenFile>>, Busy> {
        self.records.givers_of(receiver).map_err(|errno| {
            let why = words_of(&errno.into());
            self.say(Weight::Warning, format!("busy: a link of a PASS cannot be read: {why}"));
            Busy::Failed
        })
    }
}

/// The lock to which a name leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leads {
    /// There is no such name.
    Nowhere,
    ToGivers,
    ToReceivers,
    /// Another program has put its file there.
    ToAnothers,
}

/// One name of the lock, and the private name with which it changes places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) name: Leads,
    pub(super) private: Leads,
}

/// What becomes of a name that was met half-way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mending {
    Stays,
    /// It changes places with its private name once more.
    GoesBack,
    /// It leads to the receiver's file, and what had it before is not to be found.
    Goes,
}

impl Pair {
    /// Whether the lock is the receiver's, by its first name. The private name shows that the exchange took place, also if
    /// another program has removed the name since. Without the private name, which somebody may have swept, the name
    /// shows it.
    pub(super) fn is_receivers(self) -> bool {
        match self.private {
            // Otherwise another process has made that link.
            Leads::ToGivers => self.name != Leads::ToGivers,
            Leads::Nowhere => self.name == Leads::ToReceivers,
            Leads::ToReceivers | Leads::ToAnothers => false,
        }
    }

    /// What becomes of it when the whole lock is the receiver's, or the giver's again. What another program had put there
    /// just before an exchange goes back in any case.
    pub(super) fn mending(self, is_receivers: bool) -> Mending {
        match (self.name, self.private) {
            (Leads::ToReceivers | Leads::ToGivers, Leads::ToAnothers) => Mending::GoesBack,
            (Leads::ToReceivers, Leads::ToGivers) if !is_receivers => Mending::GoesBack,
            (Leads::ToReceivers, Leads::Nowhere | Leads::ToReceivers) if !is_receivers => {
                Mending::Goes
            }
            (Leads::Nowhere | Leads::ToGivers | Leads::ToReceivers | Leads::ToAnothers, _) => {
                Mending::Stays
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::Leads::{Nowhere, ToAnothers, ToGivers, ToReceivers};
    use super::*;

    #[rstest]
    #[case::not_begun(ToGivers, Nowhere, false, Mending::Stays, Mending::Stays)]
    #[case::has_its_link(ToGivers, ToReceivers, false, Mending::Stays, Mending::Stays)]
    #[case::exchanged(ToReceivers, ToGivers, true, Mending::Stays, Mending::GoesBack)]
    #[case::removed_before(Nowhere, ToReceivers, false, Mending::Stays, Mending::Stays)]
    #[case::removed_afterwards(Nowhere, ToGivers, true, Mending::Stays, Mending::Stays)]
    #[case::taken_afterwards(ToAnothers, ToGivers, true, Mending::Stays, Mending::Stays)]
    #[case::anothers_came_out(ToReceivers, ToAnothers, false, Mending::GoesBack, Mending::GoesBack)]
    #[case::anothers_came_out_on_the_way_back(
        ToGivers,
        ToAnothers,
        false,
        Mending::GoesBack,
        Mending::GoesBack
    )]
    #[case::linked(ToGivers, ToGivers, false, Mending::Stays, Mending::Stays)]
    #[case::swept(ToReceivers, Nowhere, true, Mending::Stays, Mending::Goes)]
    fn a_name_shows_how_far_the_pass_came(
        #[case] name: Leads,
        #[case] private: Leads,
        #[case] is_receivers: bool,
        #[case] if_receivers: Mending,
        #[case] otherwise: Mending,
    ) {
        let pair = Pair { name, private };
        assert_eq!(pair.is_receivers(), is_receivers);
        assert_eq!([pair.mending(true), pair.mending(false)], [if_receivers, otherwise]);
    }
}
