//! What a daemon does besides requests: it keeps its lock files open, and removes the locks of processes that have
//! ended. `lfp clean` does the latter, too.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use pidlockfile::process::ProcessIdentity;
use pidlockfile::{Attempt, Found, Judged, Name, Status};

use super::classify::{Busy, Stale, pid_in};
use super::handover;
use super::state::{LOCK_MODE, State, TEMPORARY};
use crate::device::name::DeviceName;
use crate::device::node::{ResolvedDevice, follow};
use crate::dialects::Dialect;
use crate::dialects::content::READ_LIMIT;
use crate::layout::Layout;
use crate::limits::{KEPT_FILES, KEPT_WITHOUT_DEVICE, WATCHED_FILES};
use crate::lock::backoff::Backoff;
use crate::lock::directories::{Directories, Place};
use crate::lock::flock::Flocks;
use crate::lock::flock_guards::{FlockGuards, Kept};
use crate::lock::holders::Holder;
use crate::lock::watched::Watched;
use crate::lock::{Weight, names};

/// The most records that are examined at the start of a daemon.
const RECORDS_SWEPT: usize = 10_000;

/// A younger record may be of a lock that is being taken.
const TIME_TO_TAKE: Duration = Duration::from_secs(60);

/// The start of a daemon: see [`super::Table::keep_open`].
pub(super) fn start(layout: &Layout, own: &Place, state: &mut State, limit: usize) {
    state.guards = FlockGuards::of(Kept::UpTo(limit));
    state.backoff = Backoff::since(Instant::now());
    handover::settle_all(state, own);
    sweep(own);
    // Killed services have left them.
    let is_gone = |_: &Name, lock: Option<&Name>| lock.is_none_or(|name| !own.may_hold(name));
    state.records.sweep_all(RECORDS_SWEPT, is_gone);
    match Flocks::read_by_a_thread() {
        Ok(flocks) => state.flocks = flocks,
        Err(error) => {
            let text = "no thread for reading the kernel's locks, so clients wait for it";
            state.say(Weight::Warning, format!("{text}: {error}"));
        }
    }
    watch_all(layout, own, state);
}

/// Removes drafts of processes that were killed while they wrote a lock.
pub(super) fn sweep(own: &Place) {
    let _ = own.directory.sweep(TEMPORARY, SystemTime::now());
}

/// Removes the records of locks that are gone, but none that may be of a lock that is being taken. Returns how many.
pub(super) fn forget_gone(own: &Place, state: &State) -> usize {
    let Some(directory) = state.records.directory() else { return 0 };
    let is_old = |entry: &Name| {
        let written = Status::of_name(directory, entry.as_str()).ok().map(|seen| seen.modified);
        let age = written.and_then(|written| written.elapsed().ok());
        age.is_some_and(|age| age > TIME_TO_TAKE)
    };
    state.records.sweep_all(RECORDS_SWEPT, |entry, lock| {
        lock.is_some_and(|name| !own.may_hold(name)) && is_old(entry)
    })
}

/// Lists every lock in our own directory by its holder, and removes those of the dead. Those of the
/// living that an earlier daemon has written are kept open.
fn watch_all(layout: &Layout, own: &Place, state: &mut State) {
    state.watched = Watched::up_to(WATCHED_FILES);
    for name in own.lock_names() {
        // Our flock(2) would prevent a process that passes the lock from finishing.
        let whole = handover::settle(state, own, &name);
        match state.examine(own, &name) {
            Err(Busy::Held(who)) => {
                let found = own.directory.read(&name, READ_LIMIT);
                let Ok(Found::File(judged)) = found else { continue };
                // The user of a lock by our own record, or else the owner of the file, whichever process it names.
                let noted = state.record_of(&name, &judged).and_then(|record| record.uid);
                state.watched.add(&name, &who, noted.or(Some(judged.owner())));
                if whole && !state.is_elsewhere(&who) {
                    keep_of_earlier(layout, state, &name, judged, &who);
                }
            }
            Ok(Some((judged, stale @ (Stale::Gone(_) | Stale::Reused(_))))) => {
                state.remove(own, &name, judged, stale);
            }
            Ok(Some((_, Stale::Unreadable)) | None) | Err(_) => {}
        }
    }
}

/// Keeps a lock of a living holder of our pid namespace open that an earlier daemon has written. A lock of another
/// namespace has a daemon of its own, and here its number is another process's.
fn keep_of_earlier(
    layout: &Layout,
    state: &mut State,
    name: &Name,
    judged: Judged,
    who: &ProcessIdentity,
) {
    let (file, form) = (judged.identity(), state.content.write(who.pid));
    let room = |name: &Name| room(trail_of(layout.dialect, &layout.dev_dir, name).as_ref());
    state.guards.adopt(name, &judged, who, (LOCK_MODE, &form), room);
    // Before we held it, its maker may have recorded another holder.
    let seen = state.classify(name, judged);
    if !matches!(seen, Err(Busy::Held(now)) if now == *who) {
        state.guards.let_go(name, file);
    }
}

/// The number of kept lock files above which another one is not kept open; it depends on the device.
pub(super) fn room(resolved: Option<&ResolvedDevice>) -> usize {
    resolved.filter(|resolved| resolved.is_device()).map_or(KEPT_WITHOUT_DEVICE, |_| KEPT_FILES)
}

/// The device that a lock file is named after.
fn trail_of(dialect: &Dialect, dev_dir: &Path, name: &Name) -> Option<ResolvedDevice> {
    let device =
        DeviceName::parse(names::device_of(dialect, name.as_str(), &[])?.as_bytes()).ok()?;
    follow(dev_dir, &device).ok()
}

/// Removes the locks of a process that has ended. Those that another process holds now stay listed for another attempt.
pub(super) fn remove_dead(own: &Place, state: &mut State, who: &ProcessIdentity) {
    let mut watched = std::mem::take(&mut state.watched);
    watched.clear(who, Instant::now(), |name, backoff| {
        state.backoff = backoff;
        match state.examine(own, name) {
            Ok(None) => false,
            Err(busy) => matches!(busy, Busy::NotYet(_)),
            Ok(Some((judged, stale))) => {
                state.remove(own, name, judged, stale) != Attempt::Done(())
            }
        }
    });
    state.watched = watched;
}

/// See [`super::Table::clear_away`].
pub(super) fn clear_away(
    open: &Directories,
    state: &mut State,
    seen: &Holder,
) -> Result<(), String> {
    let Some((path, name)) = seen.scheme.file().and_then(split) else { return Ok(()) };
    let Some(place) = open.each().find(|place| place.path == path) else { return Ok(()) };
    let mut backoff = Backoff::since(Instant::now());
    loop {
        state.backoff = backoff;
        match try_clear(place, state, &name, seen)? {
            Err(Busy::NotYet(cause)) => std::thread::sleep(backoff.pause(cause)),
            Err(Busy::Changing(holder)) => {
                let by = holder.map(|holder| format!(": {holder}")).unwrap_or_default();
                return Err(format!("another process is removing it, or keeps it locked{by}"));
            }
            // It may be a lock again.
            Ok(()) | Err(Busy::Held(_) | Busy::BeingWritten | Busy::Obstacle(_)) => return Ok(()),
        }
    }
}

/// One attempt: whether the file is gone, or why it keeps others out.
fn try_clear(
    place: &Place,
    state: &mut State,
    name: &Name,
    seen: &Holder,
) -> Result<Result<(), Busy>, String> {
    let found = place.directory.read(name, READ_LIMIT).map_err(|error| error.to_string())?;
    let Found::File(judged) = found else { return Ok(Ok(())) };
    if !is_the_same(seen, &judged) {
        return Ok(Ok(()));
    }
    let judged = match state.examine_found(place, name, Ok(Found::File(judged))) {
        Ok(Some((judged, _))) => judged,
        other => return Ok(other.map(|_| ())),
    };
    let file = judged.status();
    match state.take_away(place, name, judged, false).map_err(|error| error.to_string())? {
        Attempt::Done(()) | Attempt::Changed => Ok(Ok(())),
        Attempt::Contended => Ok(Err(state.contended(place, Some(file)))),
    }
}

fn split(path: &Path) -> Option<(&Path, Name)> {
    let name = path.file_name().and_then(OsStr::to_str)?;
    Some((path.parent()?, Name::new(name.to_owned())?))
}

/// Whether the file still has the content by which it was stale.
fn is_the_same(seen: &Holder, judged: &Judged) -> bool {
    pid_in(judged) == seen.pid && Some(judged.modified()) == seen.since
}
