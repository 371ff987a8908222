//! What a daemon does besides requests: it keeps its lock files open, and removes the locks of processes that have
//! ended. `lfp clean` does the latter, too.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use pidlockfile::process::ProcessIdentity;
use pidlockfile::{Age, Attempt, Found, Judged, Name, Status};

use super::classify::{Busy, Stale, pid_in};
use super::state::{LOCK_MODE, State, TEMPORARY};
use super::{Stop, handover};
use crate::device::name::DeviceName;
use crate::device::node::{ResolvedDevice, follow};
use crate::dialects::Dialect;
use crate::layout::Layout;
use crate::limits::{KEPT_FILES, KEPT_WITHOUT_DEVICE, WATCHED_FILES};
use crate::lock::backoff::Backoff;
use crate::lock::directories::{LockFile, Place};
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
pub(super) fn start(state: &mut State, limit: usize) -> Result<(), Stop> {
    let open = state.open()?;
    let own = &open.own;
    state.guards = FlockGuards::of(Kept::UpTo(limit));
    state.backoff = Backoff::since(Instant::now());
    if let Ok(Some(gate)) = state.records.gate() {
        gate.make_ready();
    }
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
    watch_all(own, state);
    Ok(())
}

/// Removes drafts of processes that were killed while they wrote a lock.
pub(super) fn sweep(own: &Place) {
    let _ = own.directory.sweep(TEMPORARY, SystemTime::now());
}

/// See [`super::Table::forget_missing`]. Young records stay: their locks may be just being taken.
pub(super) fn forget_missing(state: &mut State) -> usize {
    let open = state.open().ok();
    let Some((open, directory)) = open.zip(state.records.directory()) else { return 0 };
    let is_old = |entry: &Name| {
        let written = Status::of_name(directory, entry.as_str()).ok().map(|seen| seen.modified);
        written.is_some_and(|at| Age::of([at], SystemTime::now()).reaches(TIME_TO_TAKE))
    };
    state.records.sweep_all(RECORDS_SWEPT, |entry, lock| {
        lock.is_some_and(|name| !open.own.may_hold(name)) && is_old(entry)
    })
}

/// Lists every lock in our own directory by its holder, and removes those of the dead. Those of the
/// living that an earlier daemon has written are kept open.
fn watch_all(own: &Place, state: &mut State) {
    state.watched = Watched::up_to(WATCHED_FILES);
    for name in own.lock_names() {
        let file = own.file(&name);
        // Our flock(2) would prevent a process that passes the lock from finishing.
        let whole = handover::settle(state, file, None);
        match state.examine(file) {
            Err(Busy::Held(who)) => {
                let Ok(Found::File(judged)) = file.read() else { continue };
                // The user of a lock by our own record, or else the owner of the file, whichever process it names.
                let noted = state.record_of(&name, &judged).ok().flatten().and_then(|it| it.uid);
                state.watched.add(&name, &who, noted.or(Some(judged.owner())));
                if whole && !state.is_elsewhere(&who) {
                    keep_of_earlier(state, &name, judged, &who);
                }
            }
            Ok(Some((judged, stale @ (Stale::Gone(_) | Stale::Reused(_))))) => {
                state.remove(file, judged, stale);
            }
            Ok(Some((_, Stale::Unreadable)) | None) | Err(_) => {}
        }
    }
}

/// Keeps a lock of a living holder of our pid namespace open that an earlier daemon has written. A lock of another
/// namespace has a daemon of its own, and here its number is another process's.
fn keep_of_earlier(state: &mut State, name: &Name, judged: Judged, who: &ProcessIdentity) {
    let Layout { dialect, dev_dir, .. } = &state.layout;
    let (file, form) = (judged.identity(), dialect.content.write(who.pid));
    let most = |name: &Name| most_kept(device_of_file(dialect, dev_dir, name).as_ref());
    state.guards.adopt(name, &judged, who, (LOCK_MODE, &form), most);
    // Before we held it, its maker may have recorded another holder.
    let seen = state.classify(name, judged);
    if !matches!(seen, Err(Busy::Held(now)) if now == *who) {
        state.guards.let_go(file);
    }
}

/// The number of kept lock files at which one of this device is not kept open any more.
pub(super) fn most_kept(resolved: Option<&ResolvedDevice>) -> usize {
    resolved.filter(|resolved| resolved.is_device()).map_or(KEPT_WITHOUT_DEVICE, |_| KEPT_FILES)
}

/// The device that a lock file is named after.
fn device_of_file(dialect: &Dialect, dev_dir: &Path, name: &Name) -> Option<ResolvedDevice> {
    let device =
        DeviceName::parse(names::device_of(dialect, name.as_str(), &[])?.as_bytes()).ok()?;
    follow(dev_dir, &device).ok()
}

/// Removes the locks of a process that has ended. Those that another process holds now stay listed for another attempt.
pub(super) fn remove_dead(own: &Place, state: &mut State, who: &ProcessIdentity) {
    let mut watched = std::mem::take(&mut state.watched);
    watched.remove_each(who, Instant::now(), |name, backoff| {
        let file = own.file(name);
        state.backoff = backoff;
        match state.examine(file) {
            Ok(None) => false,
            Err(busy) => matches!(busy, Busy::NotYet(_) | Busy::Changing(None) | Busy::Shut),
            Ok(Some((judged, stale))) => state.remove(file, judged, stale) != Attempt::Done(()),
        }
    });
    state.watched = watched;
}

/// See [`super::Table::remove_stale`].
pub(super) fn remove_stale(state: &mut State, seen: &Holder) -> Result<(), String> {
    let open = state.open().map_err(|_| "its directory cannot be opened".to_owned())?;
    let Some((path, name)) = seen.scheme.file().and_then(split) else { return Ok(()) };
    let Some(place) = open.each().find(|place| place.path == path) else { return Ok(()) };
    let mut backoff = Backoff::since(Instant::now());
    loop {
        state.backoff = backoff;
        match try_remove_stale(state, place.file(&name), seen)? {
            Err(Busy::NotYet(cause)) => std::thread::sleep(backoff.pause(cause, Instant::now())),
            Err(Busy::Changing(holder)) => {
                let by = holder.map(|holder| format!(": {holder}")).unwrap_or_default();
                return Err(format!("another process is removing it, or keeps it locked{by}"));
            }
            Err(Busy::Shut) => {
                return Err("the gate for removing locks cannot be entered".to_owned());
            }
            // It may be a lock again.
            Ok(()) | Err(Busy::Held(_) | Busy::BeingWritten | Busy::Obstacle(_)) => return Ok(()),
        }
    }
}

/// One attempt: whether the file is gone, or why it keeps others out.
fn try_remove_stale(
    state: &mut State,
    file: LockFile<'_>,
    seen: &Holder,
) -> Result<Result<(), Busy>, String> {
    let found = file.read().map_err(|error| error.to_string())?;
    let Found::File(judged) = found else { return Ok(Ok(())) };
    // If it differs, this is no longer the file that was judged stale.
    if pid_in(&judged) != seen.pid || Some(judged.modified()) != seen.since {
        return Ok(Ok(()));
    }
    let judged = match state.examine_found(file, Ok(Found::File(judged))) {
        Ok(Some((judged, _))) => judged,
        other => return Ok(other.map(|_| ())),
    };
    let status = judged.status();
    match state.take_away(file, judged, false).map_err(|error| error.to_string())? {
        Attempt::Done(()) | Attempt::Changed => Ok(Ok(())),
        Attempt::Contended => Ok(Err(state.contended(file.place, Some(status)))),
    }
}

fn split(path: &Path) -> Option<(&Path, Name)> {
    let name = path.file_name().and_then(OsStr::to_str)?;
    Some((path.parent()?, Name::new(name.to_owned())?))
}
