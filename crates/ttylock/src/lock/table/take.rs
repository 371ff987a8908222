//! Takes every lock name of a device, or none. A lock is also refused because of `flock(2)` on the port, and because of
//! too many locks.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use pidlockfile::{
    Attempt, Entry, Error, Found, Linked, Name, NewFile, Passage, Pid, Published, Status, Step,
    words_of,
};

use super::classify::counts_as_lock;
use super::daemon::most_kept;
use super::lock_file::{Busy, Lock, Stale};
use super::state::{ATTEMPTS, State, TEMPORARY, Taken, claim};
use super::{daemon, recovery, resolve};
use crate::device::node::{Node, ResolvedDevice};
use crate::limits::LOCKS_OF_A_USER;
use crate::lock::directories::{Directories, LockFile, Place, Role, WrittenFile};
use crate::lock::flock::{Completeness, FlockHolder, Shortage, Sight};
use crate::lock::holder_records::{Applicant, Claimant, HolderRecord, Origin};
use crate::lock::holders::out_of_sight;
#[cfg(test)]
use crate::lock::meanwhile::{self, Before};
use crate::lock::names::LockNames;
use crate::lock::open::{self, LOOKS_FOR_A_LOCK};
use crate::lock::{Cause, Request, Stop, Weight};
use crate::subordinate;

/// How long a file that has been written is tried to be given back, if another process stays in the gate.
const TO_GIVE_BACK: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(2);

/// What a caller has checked before an attempt: exactly this device is locked, for this very process.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "a service makes it")]
pub struct Checked {
    /// From [`super::Table::resolve`].
    pub device: ResolvedDevice,
    /// From [`super::Table::observe`], before the rights of the process were checked; `None` if the attempt observes it.
    pub applicant: Option<Applicant>,
}

/// The most records that are read to count those of one user.
const RECORDS_COUNTED: usize = 4096;

/// LOCK: finds the names of the lock files, looks for reasons to refuse the lock, writes the file, records it, and
/// gives it its names. Returns the real name of the device.
pub(super) fn take(
    state: &mut State,
    request: &Request,
    checked: Option<Checked>,
) -> Result<String, Stop> {
    let (open, pid) = (state.open()?, request.pid);
    let own = &open.own;
    let (resolved, applicant) = checked.map(|it| (it.device, it.applicant)).unzip();
    let applicant = applicant.flatten().filter(|it| it.pid() == pid);
    let applicant = applicant.unwrap_or_else(|| Applicant::observe(&mut state.machine, pid));
    let claimant = applicant.claimant();
    let (resolved, lock_names) = resolve::with_lock_names(state, &request.device, resolved)?;
    refuse_invented(state, &resolved, own)?;
    refuse_one_too_many(state, own, &claimant)?;
    refuse_flock(state, &resolved, pid)?;
    // A living holder at the first name refuses the lock, before anything is written. Under names that this lock does
    // not write, stale locks are removed now. Those that may not be removed are ignored.
    open.searched_and_first(&lock_names).try_for_each(|file| {
        match lock_names.written.first() == Some(file.name) && file.place.role == Role::Written {
            true => refuse_held(state, file),
            false => clear_searched(state, file),
        }
    })?;
    let mut taken = Vec::with_capacity(1);
    write_lock(state, own, &lock_names.written, &claimant, &mut taken)
        .and_then(|()| confirm(state, &open, &lock_names, &applicant, &taken))
        .inspect_err(|_| give_back(state, own, &claimant, &taken))?;
    for file in taken {
        // A program that ends with its locks keeps only those without a record: a record shows that the lock is not stale.
        let most = match file.record.is_some() && !state.guards.is_a_daemons() {
            true => 0,
            false => most_kept(Some(&resolved)),
        };
        state.keep(file, &claimant, most);
    }
    let device = resolved.real();
    state.say(Weight::Info, format!("locked {device} for pid {pid}"));
    Ok(device.to_owned())
}

/// A missing device may be locked, just as an unplugged one may be unlocked. But there is a limit, because users
/// can invent names.
fn refuse_invented(state: &mut State, resolved: &ResolvedDevice, own: &Place) -> Result<(), Stop> {
    if resolved.is_device() || !own.is_crowded() {
        return Ok(());
    }
    let (device, dir) = (resolved.real(), own.path.display());
    let text = format!("refused {device}: there is no such device, and {dir} is full of locks");
    state.say(Weight::Notice, text);
    Err(Stop::Denied)
}

/// One user must not fill the lock directory. Only recorded locks count, not files that others put into the directory.
fn refuse_one_too_many(
    state: &mut State,
    own: &Place,
    &Claimant { ref who, uid }: &Claimant,
) -> Result<(), Stop> {
    // A daemon knows which user asks for a missing process.
    if uid == Some(0) || (uid.is_none() && state.guards.is_a_daemons()) {
        return Ok(());
    }
    if state.records.are_surely_fewer_than(LOCKS_OF_A_USER) {
        return Ok(());
    }
    // Rarely asked, and not only by a daemon.
    subordinate::read();
    let uid = uid.map(subordinate::owner_of);
    let is_one_too_many =
        |state: &State| state.records.count_of(uid, RECORDS_COUNTED) >= LOCKS_OF_A_USER;
    // Some may be of locks that other programs have removed, or of processes that were killed.
    if !is_one_too_many(state) || daemon::sweep_records(state, own) > 0 && !is_one_too_many(state) {
        return Ok(());
    }
    let user = uid.map_or_else(|| "processes that are gone".to_owned(), |uid| format!("uid {uid}"));
    let text = format!("refused pid {}: {user} has {LOCKS_OF_A_USER} locks", who.pid);
    state.say(Weight::Notice, text);
    Err(Stop::Denied)
}

/// Programs that lock the open port leave no file, but the kernel's list shows them.
fn refuse_flock(state: &mut State, resolved: &ResolvedDevice, asking: Pid) -> Result<(), Stop> {
    let Some(node) = resolved.node else { return Ok(()) };
    let Sight { holders, completeness } = match state.flocks.holders(&node, state.backoff.asked()) {
        Ok(Some(sight)) => sight,
        Ok(None) => return Err(Stop::NotYet(Cause::Reading)),
        Err(error) => {
            state.say_unseen(|| Some(format!("in /proc/locks: {error}")));
            return Ok(());
        }
    };
    // A process for one session would report it in each session.
    if state.guards.is_a_daemons() {
        state.say_unseen(|| out_of_sight().outside.then(|| "of other pid namespaces".into()));
    }
    let device = resolved.real();
    if let Some(holder) = holders.into_iter().find(|it| *it != FlockHolder::Process(asking)) {
        state.say(Weight::Info, format!("{device} is busy: locked by {holder}"));
        return Err(Stop::Busy(state.process_of(holder)));
    }
    match completeness {
        Completeness::Whole => Ok(()),
        Completeness::Partial(shortage) => refuse_open(state, device, &node, asking, shortage),
    }
}

/// The kernel's list is too long to be read, or changes too fast: a process that has the port open may also have
/// locked it.
fn refuse_open(
    state: &mut State,
    device: &str,
    node: &Node,
    asking: Pid,
    shortage: Shortage,
) -> Result<(), Stop> {
    let openers = open::openers(&[*node], LOOKS_FOR_A_LOCK, None);
    let Some(opener) = openers.opener(0, Some(asking)) else { return Ok(()) };
    let who = match opener {
        FlockHolder::Process(pid) => format!("pid {pid} has it open"),
        FlockHolder::Unnamed { .. } | FlockHolder::Unseen => {
            "it is not known which processes have it open".to_owned()
        }
    };
    state.say(Weight::Warning, format!("{device} is busy: {shortage}, and {who}"));
    Err(Stop::Busy(state.process_of(opener)))
}

/// A living holder at the first name is the answer. To find that out, nothing is written and the gate is not entered,
/// unless a PASS of this lock was not finished. What cannot be read now is met again in the gate.
fn refuse_held(state: &mut State, first: LockFile<'_>) -> Result<(), Stop> {
    let Ok(Some(lock)) = recovery::read_recovered(state, first) else { return Ok(()) };
    match state.classify(lock) {
        Err(held @ Busy::Held(_)) => Err(state.busy(first, held)),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Takes every written name in order. If that fails, the caller gives back those that were taken. Several names are links
/// to one file, where the file system has them.
fn write_lock(
    state: &mut State,
    own: &Place,
    names: &[Name],
    claimant: &Claimant,
    taken: &mut Vec<Taken>,
) -> Result<(), Stop> {
    let content = state.layout.dialect.content.write(claimant.who.pid);
    let (Some(first), claim) = (names.first(), claim(&content)) else { return Ok(()) };
    let of_one_file = if own.has_links() { names.len() } else { 1 };
    let steps = |state: &mut State| {
        let mut files = names.chunks(of_one_file);
        files.try_for_each(|part| write_file(state, own, (part, names), &claim, claimant, taken))
    };
    let outcome = state.in_the_gate(own.file(first), steps);
    outcome.unwrap_or_else(|busy| Err(state.busy(own.file(first), busy)))
}

/// Writes one file, records it, and gives it `names`: one or all of the names of the lock.
fn write_file(
    state: &mut State,
    own: &Place,
    (names, all): (&[Name], &[Name]),
    claim: &NewFile<'_>,
    claimant: &Claimant,
    taken: &mut Vec<Taken>,
) -> Result<(), Stop> {
    let Some((last, others)) = names.split_last() else { return Ok(()) };
    let first = own.file(others.first().unwrap_or(last));
    let linked = own.directory.linked(claim);
    let mut linked = linked.map_err(|error| not_taken(state, first, &error))?;
    let mut record = remember(state, claimant, all, Origin::Taken, &mut linked)?;
    let mut given = Vec::with_capacity(names.len());
    let mut outcome = names.iter().try_for_each(|name| {
        let publish = |linked: &mut Linked<'_>| match name == last {
            true => {
                #[cfg(test)]
                meanwhile::comes(Before::LastName);
                linked.publish_last(name)
            }
            false => linked.publish(name),
        };
        give_name(state, own.file(name), &mut linked, publish)?;
        given.push(name.clone());
        Ok(())
    });
    // Where a file can be neither renamed nor linked, another file has the name. It has no record yet, and is held by
    // `flock(2)` until it has one.
    let is_of_another = |it: &mut HolderRecord| it.file.identity != linked.identity();
    if let Some(unused) = record.take_if(is_of_another) {
        state.records.remove(&unused);
        match remember(state, claimant, all, Origin::Taken, &mut linked) {
            Ok(recorded) => record = recorded,
            Err(stop) => outcome = Err(stop),
        }
    }
    let published = linked.finish();
    if given.is_empty() {
        record.as_ref().map(|it| state.records.remove(it));
        published.close();
        return outcome;
    }
    taken.push(Taken { names: given, published, record });
    outcome
}

/// Records a lock before it is visible: without a record it looks dead to processes in another pid namespace, and a reused
/// pid goes unnoticed. `None` if this user may not write records.
///
/// # Errors
/// The record cannot be written now, as on a full disk.
pub(super) fn remember(
    state: &mut State,
    claimant: &Claimant,
    names: &[Name],
    origin: Origin,
    file: &mut Linked<'_>,
) -> Result<Option<HolderRecord>, Stop> {
    state.records.remember(claimant, names, origin, file).map_err(|errno| {
        let (pid, why) = (claimant.who.pid, words_of(&errno.into()));
        state.say(Weight::Warning, format!("refused pid {pid}: its start is not recorded: {why}"));
        Stop::Denied
    })
}

/// Checks again, when the lock has its names, that it stands, that its process exists and that no other lock of the device
/// has appeared.
fn confirm(
    state: &mut State,
    open: &Directories,
    lock_names: &LockNames,
    applicant: &Applicant,
    taken: &[Taken],
) -> Result<(), Stop> {
    #[cfg(test)]
    meanwhile::comes(Before::Confirm);
    if let Some(lost) = taken.iter().find_map(|file| lost_name(&open.own, file)) {
        return Err(state.stop_contended(open.own.file(lost), None));
    }
    // A process that ended while the lock was taken gets no lock: another process may have its number.
    if applicant.has_ended(&mut state.machine) {
        let pid = applicant.pid();
        state.say(Weight::Info, format!("pid {pid} ended while its lock was taken"));
        return Err(Stop::Busy(None));
    }
    // A service that writes another directory or other names may have searched before our files were there, and then
    // written its own. The one that searches last meets the other. Nothing is removed here. A stale lock is no obstacle,
    // unless a process whose `flock(2)` counts holds it: that process may be in another pid namespace and just be making
    // the lock.
    for file in open.searched(lock_names) {
        let found = file.read();
        if counts_as_lock(file.place, &found).is_ok() {
            stale_searched(state, file, found)?;
        }
    }
    Ok(())
}

/// Removes a stale lock in a place where this lock writes no file.
fn clear_searched(state: &mut State, file: LockFile<'_>) -> Result<(), Stop> {
    for _ in 0..ATTEMPTS {
        let found = file.read();
        if let Err(why) = counts_as_lock(file.place, &found) {
            state.say(Weight::Notice, format!("ignored {file}, no lock: {why}"));
            return Ok(());
        }
        let Some((lock, why)) = stale_searched(state, file, found)? else { return Ok(()) };
        let seen = lock.opened.status();
        match state.remove_stale(file, lock, why) {
            Attempt::Changed => {}
            Attempt::Contended if !file.place.is_open_to_all() => {
                return Err(state.stop_contended(file, Some(seen)));
            }
            Attempt::Done(()) | Attempt::Contended => return Ok(()),
        }
    }
    Err(state.busy(file, Busy::Changing(None)))
}

/// The lock in such a place if it is stale; an error if it keeps the caller out. In a directory open to all, any user may
/// make a stale lock and hold it, so that one is ignored.
fn stale_searched(
    state: &mut State,
    file: LockFile<'_>,
    found: Result<Found, Error>,
) -> Result<Option<(Lock, Stale)>, Stop> {
    match state.examine_found(file, found) {
        Err(Busy::Changing(_) | Busy::Failed | Busy::NotYet(_)) if file.place.is_open_to_all() => {
            Ok(None)
        }
        Err(busy) => Err(state.busy(file, busy)),
        Ok(stale) => Ok(stale),
    }
}

/// Gives a file one of its names, and breaks a stale lock that has it.
fn give_name(
    state: &mut State,
    file: LockFile<'_>,
    linked: &mut Linked<'_>,
    publish: impl Fn(&mut Linked<'_>) -> Result<bool, Error>,
) -> Result<(), Stop> {
    let LockFile { place, name } = file;
    for _ in 0..ATTEMPTS {
        match publish(linked) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) => return Err(not_taken(state, file, &error)),
        }
        let examined = state.examine(file).map_err(|busy| state.busy(file, busy))?;
        let Some((lock, stale)) = examined else { continue };
        let seen = lock.opened.status();
        let broken = match place.has_links() {
            true => {
                let Lock { mut opened, record } = lock;
                let broken = linked.replace(name, &mut opened);
                state.remove_record_of_nameless(&opened, record.as_ref(), &[]);
                broken
            }
            // There is no second link that could change places with it.
            false => state.remove_name(file, lock),
        };
        match broken {
            Ok(Attempt::Done(())) => {
                state.say(Weight::Notice, format!("broke {file}: {stale}"));
                if place.has_links() {
                    return Ok(());
                }
            }
            Ok(Attempt::Changed) => {}
            Ok(Attempt::Contended) => return Err(state.stop_contended(file, Some(seen))),
            Err(error) => {
                let help = match error.is_not_permitted() && error.step != Step::Prepare {
                    true => "; run lfpd as the owner of the locks, or give it CAP_FOWNER",
                    false => "",
                };
                let text = format!("busy: {file} is stale ({stale}) but {error}{help}");
                state.say(Weight::Warning, text);
                return Err(Stop::Busy(None));
            }
        }
    }
    Err(state.busy(file, Busy::Changing(None)))
}

/// The lock file could not be written, as on a full disk. If another process has the lock, that is the answer.
fn not_taken(state: &mut State, file: LockFile<'_>, error: &Error) -> Stop {
    match state.examine(file) {
        Err(busy @ Busy::Held(_)) => state.busy(file, busy),
        Ok(_) | Err(_) => state.cannot_write(error),
    }
}

/// Gives back the files that a failed LOCK has written. While another process is in the gate, it waits, up to a limit.
/// What it cannot give back stays until the process that the lock names ends or releases it.
fn give_back(state: &mut State, own: &Place, claimant: &Claimant, taken: &[Taken]) {
    let (begun, pid) = (Instant::now(), claimant.who.pid);
    while !taken.is_empty() {
        let passage = match own.directory.try_enter() {
            Ok(Entry::Inside(passage)) => Some(passage),
            Ok(Entry::NoGate) => None,
            Ok(Entry::Occupied(_)) | Err(_) if begun.elapsed() < TO_GIVE_BACK => {
                #[cfg(test)]
                meanwhile::comes(Before::GiveBack);
                std::thread::sleep(PAUSE);
                continue;
            }
            Ok(Entry::Occupied(_)) | Err(_) => break,
        };
        let files = taken.iter().rev();
        return files.for_each(|file| give_file_back(state, own, (file, pid), passage.as_ref()));
    }
    for Taken { names, .. } in taken {
        state.held.add(names, &claimant.who, claimant.uid);
        for name in names {
            let text = format!("left {} behind: the gate cannot be entered", own.file(name));
            state.say(Weight::Warning, text);
        }
    }
}

fn give_file_back(
    state: &mut State,
    own: &Place,
    (taken, pid): (&Taken, Pid),
    passage: Option<&Passage>,
) {
    let Taken { names, published, record } = taken;
    let content = state.layout.dialect.content.write(pid);
    let prefix = Some(TEMPORARY.as_ref());
    for name in names.iter().rev() {
        let Ok(Found::File(mut opened)) = own.file(name).read() else { continue };
        let written = (opened.identity(), opened.modified(), opened.content());
        // A file that was written to since then belongs to the process that wrote it. Some file systems keep whole seconds.
        if written != (published.identity, published.modified, content.as_slice()) {
            continue;
        }
        passage.into_iter().for_each(|passage| opened.enter_by(passage.clone()));
        // We still have `flock(2)` on this file by the opening that wrote it, which would keep us out.
        match published.file.try_clone() {
            Ok(file) => opened.hold_by(Published { file, ..*published }),
            Err(_) => published.let_go(),
        }
        let name_alone = std::slice::from_ref(name);
        if let Ok(Attempt::Done(_) | Attempt::Changed) =
            own.directory.try_release_each(name_alone, &mut opened, prefix)
        {
            continue;
        }
        if let Err(error) = own.directory.release(name, opened, TEMPORARY) {
            state.say(Weight::Warning, format!("left {} behind: {error}", own.file(name)));
        }
    }
    let file = WrittenFile::published(published);
    if !names.iter().any(|name| own.may_lead_to(name, file)) {
        record.as_ref().map(|it| state.records.remove(it));
    }
}

/// A name of a written lock that does not lead to it any more, if there is one. Others meet the first name. If that
/// stands and the file has as many links as names, all names stand, and one look is enough. (A program may have renamed
/// another name. It might as well do so a moment later, when nobody looks.)
pub(super) fn lost_name<'t>(own: &Place, taken: &'t Taken) -> Option<&'t Name> {
    let Taken { names, published, .. } = taken;
    let (first, count) = (names.first()?, u64::try_from(names.len()));
    let is_whole = |seen: Status| {
        let is_it = seen.identity == published.identity && seen.modified == published.modified;
        is_it && Ok(seen.links) == count
    };
    if own.has_links() && Status::of_name(&own.directory, first.as_str()).is_ok_and(is_whole) {
        return None;
    }
    names.iter().find(|name| !stands(own, name, published))
}

/// Whether a written lock still has its name and is unchanged. If its file has another name, a release past a
/// `flock(2)` may have moved it aside for a moment. If that lasts, a program has renamed it, and it is no lock any
/// more.
fn stands(own: &Place, name: &Name, published: &Published) -> bool {
    for _ in 0..ATTEMPTS {
        match Status::of_name(&own.directory, name.as_str()).map_err(|error| error.kind()) {
            Ok(seen) if seen.identity == published.identity => {
                return seen.modified == published.modified;
            }
            Ok(_) | Err(ErrorKind::NotFound) if !published.has_a_name() => return false,
            Ok(_) | Err(ErrorKind::NotFound) => std::thread::yield_now(),
            // A file that cannot be examined is not reported as gone.
            Err(_) => return true,
        }
    }
    false
}
