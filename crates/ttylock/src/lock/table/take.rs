//! Takes every lock file of a device, or none. A lock is also refused because of `flock(2)` on the port, and because of
//! too many locks.

use std::io::ErrorKind;

use pidlockfile::{
    Attempt, Found, Given, Judged, Linked, Name, NewFile, Pid, Published, Status, process,
};

use super::classify::{Busy, Stale, counts_as_lock};
use super::daemon::most_kept;
use super::state::{State, TEMPORARY, claim};
use super::{ATTEMPTS, Checked, Stop, handover, resolve};
use crate::device::node::{Node, ResolvedDevice};
use crate::limits::LOCKS_OF_A_USER;
use crate::lock::directories::{Directories, LockFile, Place};
use crate::lock::flock::{Completeness, FlockHolder, Shortage, Sight};
use crate::lock::holder_records::{Applicant, Claimant, Written};
use crate::lock::names::LockNames;
use crate::lock::open::{self, LOOKS_FOR_A_LOCK};
use crate::lock::out_of_sight::out_of_sight;
use crate::lock::{Cause, Request, Weight};
use crate::subordinate;

/// A lock file that a request has written.
#[derive(Debug)]
pub(super) struct Taken {
    /// The names that lead to it, in the order in which they were given.
    pub(super) names: Vec<Name>,
    pub(super) published: Published,
}

/// The most records that are read to count those of one user.
const RECORDS_COUNTED: usize = 4096;

/// LOCK: names, reasons to refuse it, files, record. Returns the real name of the device.
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
    refuse_one_too_many(state, pid)?;
    refuse_flock(state, &resolved, pid)?;
    // Stale locks under names that this lock does not write. Those that may not be removed are ignored.
    open.searched(&lock_names).try_for_each(|file| clear_searched(state, file))?;
    let mut taken = Vec::with_capacity(lock_names.written.len());
    let recorded = take_written(state, own, &lock_names.written, pid, &mut taken)
        .and_then(|()| remember(state, own, &claimant, &taken))
        .and_then(|is_recorded| {
            confirm(state, &open, &lock_names, &applicant).map(|()| is_recorded)
        });
    let is_recorded = recorded.inspect_err(|_| give_back(state, own, &taken))?;
    // A program that ends with its locks keeps only those without a record: a record shows that the lock is not stale.
    let most = match is_recorded && !state.guards.is_a_daemons() {
        true => 0,
        false => most_kept(Some(&resolved)),
    };
    for file in taken {
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
fn refuse_one_too_many(state: &mut State, pid: Pid) -> Result<(), Stop> {
    if state.records.has_room_for_all(LOCKS_OF_A_USER) {
        return Ok(());
    }
    let uid = process::real_user(pid);
    // A daemon knows which user asks for a missing process.
    if uid == Some(0) || (uid.is_none() && state.guards.is_a_daemons()) {
        return Ok(());
    }
    // Rarely asked, and not only by a daemon.
    subordinate::read();
    let uid = uid.map(subordinate::owner_of);
    if state.records.count_of(uid, RECORDS_COUNTED) < LOCKS_OF_A_USER {
        return Ok(());
    }
    let who = uid.map_or_else(|| "processes that are gone".to_owned(), |uid| format!("uid {uid}"));
    let text = format!("refused pid {pid}: {who} has {LOCKS_OF_A_USER} locks");
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

/// Takes every written name in order. If that fails, the caller gives back those that were taken. Several names are links
/// to one file, where the file system has them.
fn take_written(
    state: &mut State,
    own: &Place,
    names: &[Name],
    pid: Pid,
    taken: &mut Vec<Taken>,
) -> Result<(), Stop> {
    let content = state.layout.dialect.content.write(pid);
    let claim = claim(&content);
    let (first, linked) = match names {
        [first, _, ..] if own.has_links() => (first, own.directory.linked(&claim)),
        _ => {
            let alone = Source::Alone(&claim);
            return names.iter().try_for_each(|name| {
                take_one(state, own.file(name), &alone).map(|given| add(taken, name, given))
            });
        }
    };
    let linked = linked.map_err(|error| not_taken(state, own.file(first), &error))?;
    let (mut links, source) = (Vec::with_capacity(names.len()), Source::Linked(&linked));
    let outcome = names.iter().try_for_each(|name| {
        match take_one(state, own.file(name), &source)? {
            Given::Link => links.push(name.clone()),
            alone @ Given::File(_) => add(taken, name, alone),
        }
        Ok(())
    });
    let published = linked.finish();
    match links.is_empty() {
        true => published.close(),
        false => taken.insert(0, Taken { names: links, published }),
    }
    outcome
}

fn add(taken: &mut Vec<Taken>, name: &Name, given: Given) {
    if let Given::File(published) = given {
        taken.push(Taken { names: vec![name.clone()], published });
    }
}

/// Where a lock file with another name comes from.
enum Source<'s> {
    /// It is written for this name alone.
    Alone(&'s NewFile<'s>),
    /// It is a link to a file that was written before.
    Linked(&'s Linked<'s>),
}

impl Source<'_> {
    fn publish(&self, file: LockFile<'_>) -> Result<Option<Given>, pidlockfile::Error> {
        match self {
            Self::Alone(claim) => {
                Ok(file.place.directory.publish(file.name, claim)?.map(Given::File))
            }
            Self::Linked(linked) => linked.publish(file.name),
        }
    }

    fn replace(
        &self,
        file: LockFile<'_>,
        judged: Judged,
    ) -> Result<Attempt<Given>, pidlockfile::Error> {
        match self {
            Self::Alone(claim) => {
                Ok(match file.place.directory.replace(file.name, judged, claim)? {
                    Attempt::Done(published) => Attempt::Done(Given::File(published)),
                    Attempt::Changed => Attempt::Changed,
                    Attempt::Contended => Attempt::Contended,
                })
            }
            Self::Linked(linked) => linked.replace(file.name, judged),
        }
    }
}

/// Checks again, when the lock is recorded, that its process exists and that no other lock of the device has appeared.
fn confirm(
    state: &mut State,
    open: &Directories,
    lock_names: &LockNames,
    applicant: &Applicant,
) -> Result<(), Stop> {
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
        let Some((judged, why)) = stale_searched(state, file, found)? else { return Ok(()) };
        let seen = judged.status();
        match state.remove(file, judged, why) {
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
    found: Result<Found, pidlockfile::Error>,
) -> Result<Option<(Judged, Stale)>, Stop> {
    match state.examine_found(file, found) {
        Err(Busy::Changing(_) | Busy::Shut | Busy::NotYet(_)) if file.place.is_open_to_all() => {
            Ok(None)
        }
        Err(busy) => Err(state.busy(file, busy)),
        Ok(stale) => Ok(stale),
    }
}

fn take_one(state: &mut State, file: LockFile<'_>, source: &Source<'_>) -> Result<Given, Stop> {
    let LockFile { place, name } = file;
    for _ in 0..ATTEMPTS {
        match source.publish(file) {
            Ok(Some(given)) => return Ok(given),
            Ok(None) => handover::settle_each(state, place, [name], None)?,
            Err(error) => return Err(not_taken(state, file, &error)),
        }
        let examined = state.examine(file).map_err(|busy| state.busy(file, busy))?;
        let Some((judged, stale)) = examined else { continue };
        let seen = judged.status();
        match source.replace(file, judged) {
            Ok(Attempt::Done(given)) => {
                state.say(Weight::Notice, format!("broke {file}: {stale}"));
                return Ok(given);
            }
            Ok(Attempt::Changed) => {}
            Ok(Attempt::Contended) => return Err(state.stop_contended(file, Some(seen))),
            Err(error) => {
                let help = match error.is_not_permitted() {
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
fn not_taken(state: &mut State, file: LockFile<'_>, error: &pidlockfile::Error) -> Stop {
    match state.examine(file) {
        Err(busy @ Busy::Held(_)) => state.busy(file, busy),
        Ok(_) | Err(_) => state.cannot_write(error),
    }
}

fn give_back(state: &mut State, own: &Place, taken: &[Taken]) {
    let files = taken.iter().rev();
    let names = files.flat_map(|it| it.names.iter().rev().map(|name| (name, &it.published)));
    for (name, published) in names {
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
        let Ok(Found::File(judged)) = own.file(name).read() else { continue };
        if judged.identity() != published.identity || judged.modified() != published.modified {
            continue;
        }
        if let Err(error) = own.directory.release(name, judged, TEMPORARY) {
            state.say(Weight::Warning, format!("left {} behind: {error}", own.file(name)));
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
    let written = |it: &Taken| -> Vec<Written> {
        it.names.iter().map(|name| Written::of(name, &it.published)).collect()
    };
    let files: Vec<Written> = taken.iter().flat_map(written).collect();
    let mut lost = None;
    let are_there = |locks: &[Written]| {
        let file = |lock: &Written| taken.iter().find(|it| it.names.contains(&lock.name));
        if locks.len() > 1 && locks.first().and_then(file).is_some_and(all_stand) {
            return true;
        }
        let is_gone =
            |lock: &&Written| file(lock).is_some_and(|it| !stands(own, &lock.name, &it.published));
        let gone = locks.iter().find(is_gone).map(|lock| lock.name.clone());
        let are_there = gone.is_none();
        lost = gone.or(lost.take());
        are_there
    };
    let recorded = state.records.remember(claimant, &files, are_there);
    if let Some(name) = lost {
        return Err(state.stop_contended(own.file(&name), None));
    }
    recorded.map_err(|errno| {
        let (pid, why) = (claimant.who.pid, errno.desc());
        state.say(Weight::Warning, format!("refused pid {pid}: its start is not recorded: {why}"));
        Stop::Denied
    })
}

/// Whether a file that was written has all its names, unchanged, by one look at it.
fn all_stand(file: &Taken) -> bool {
    let names = u64::try_from(file.names.len());
    let is_it = |seen: Status| Ok(seen.links) == names && seen.modified == file.published.modified;
    Status::of_open(&file.published.file).is_ok_and(is_it)
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
