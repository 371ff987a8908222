//! What a daemon does besides requests: it keeps its lock files open, and removes the locks of processes that have
//! ended. `lfp clean` does the latter, too.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Instant, SystemTime};

use pidlockfile::process::ProcessIdentity;
use pidlockfile::{Attempt, Entry, Found, Name};

use super::lock_file::{Busy, Lock, Stale, pid_in};
use super::recovery;
use super::state::{LOCK_MODE, State, TEMPORARY};
use crate::device::DeviceName;
use crate::device::node::{ResolvedDevice, follow};
use crate::dialects::Dialect;
use crate::layout::Layout;
use crate::limits::{KEPT_FILES, KEPT_WITHOUT_DEVICE, WATCHED_FILES};
use crate::lock::backoff::Backoff;
use crate::lock::directories::{LockFile, Place};
use crate::lock::flock::Flocks;
use crate::lock::flock_guards::{FlockGuards, Kept};
use crate::lock::held_files::{Again, HeldFiles};
use crate::lock::holders::Holder;
use crate::lock::{Stop, Weight, names};

/// The most records that are examined at the start of a daemon.
const RECORDS_SWEPT: usize = 10_000;

/// So many records are removed while others wait at the gate.
const RECORDS_AT_ONCE: usize = 64;

/// The start of a daemon: see [`super::Table::keep_open`].
pub(super) fn start(state: &mut State, limit: usize) -> Result<(), Stop> {
    let open = state.open()?;
    let own = &open.own;
    state.guards = FlockGuards::of(Kept::UpTo(limit));
    state.backoff = Backoff::since(Instant::now());
    if let Some(gate) = state.records.gate() {
        gate.make_ready();
    }
    // What processes have left that were killed while they made a file of the gate.
    if let Some(directory) = state.records.directory() {
        let _ = directory.sweep("gate", SystemTime::now());
    }
    sweep_drafts(state, own);
    sweep_records(state, own);
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

/// Removes drafts of processes that were killed while they wrote a lock. A PASS needs its own until it is recovered.
pub(super) fn sweep_drafts(state: &mut State, own: &Place) {
    if !recovery::recover_all(state, own) {
        return;
    }
    let Ok(_inside @ (Entry::Inside(_) | Entry::NoGate)) = own.directory.try_enter() else {
        return;
    };
    if state.records.unfinished(1).is_empty() {
        let _ = own.directory.sweep(TEMPORARY, SystemTime::now());
    }
}

/// See [`super::Table::clean_records`].
pub(super) fn clean_records(state: &mut State) -> usize {
    let Ok(open) = state.open() else { return 0 };
    recovery::recover_all(state, &open.own);
    sweep_records(state, &open.own)
}

/// Removes the records that killed processes have left, and those of locks that other programs have removed. Returns how
/// many were removed. In the gate, no lock is without its names for a moment.
pub(super) fn sweep_records(state: &State, own: &Place) -> usize {
    let missing = state.records.missing(own, RECORDS_SWEPT);
    let some_at_once = missing.chunks(RECORDS_AT_ONCE).map(|records| {
        let Ok(_inside @ (Entry::Inside(_) | Entry::NoGate)) = own.directory.try_enter() else {
            return 0;
        };
        let over = records.iter().filter(|record| state.records.is_over(own, record));
        over.filter(|record| state.records.remove(record)).count()
    });
    some_at_once.sum()
}

/// Lists every lock in our own directory by its holder, and removes those of the dead. Those of the
/// living that an earlier daemon has written are kept open.
fn watch_all(own: &Place, state: &mut State) {
    state.held = HeldFiles::up_to(WATCHED_FILES);
    for name in own.lock_names(WATCHED_FILES) {
        let file = own.file(&name);
        match state.examine(file) {
            Err(Busy::Held(who)) => {
                let Some(lock) = watch(state, file, &who) else { continue };
                if !state.is_elsewhere(&who) {
                    keep_of_earlier(state, file, &lock, &who);
                }
            }
            // Another process changes or passes it now. Our `flock(2)` would keep that one out, so the file is watched and
            // not kept open.
            Err(Busy::NotYet(_) | Busy::Changing(_) | Busy::Failed) => {
                let lock = state.read(file).ok().flatten();
                // If its holder is dead, the lock is tried again.
                if let Some(who) = lock.and_then(|lock| state.holder_of(&lock)) {
                    watch(state, file, &who);
                }
            }
            Ok(Some((lock, stale @ (Stale::Gone(_) | Stale::Reused(_))))) => {
                state.remove_stale(file, lock, stale);
            }
            Ok(Some((_, Stale::Unreadable)) | None)
            | Err(Busy::BeingWritten | Busy::Obstacle(_)) => {}
        }
    }
}

/// Watches for the end of a lock's holder. Returns the lock.
fn watch(state: &mut State, file: LockFile<'_>, who: &ProcessIdentity) -> Option<Lock> {
    let lock = state.read(file).ok()??;
    // The user of a lock by our own record, or else the owner of the file, whichever process it names.
    let noted = lock.record.as_ref().and_then(|it| it.uid);
    let name = std::slice::from_ref(file.name);
    state.held.add(name, who, noted.or(Some(lock.opened.owner())));
    Some(lock)
}

/// Keeps a lock of a living holder of our pid namespace open that an earlier daemon has written. A lock of another
/// namespace has a daemon of its own, and here its number is another process's.
fn keep_of_earlier(state: &mut State, file: LockFile<'_>, lock: &Lock, who: &ProcessIdentity) {
    let Layout { dialect, dev_dir, .. } = &state.layout;
    let form = dialect.content.write(who.pid);
    let most = |name: &Name| most_kept(device_of_file(dialect, dev_dir, name).as_ref());
    state.guards.adopt(file.name, &lock.opened, who, (LOCK_MODE, &form), most);
}

/// A new lock file of this device is kept open only while fewer files than this are.
pub(super) fn most_kept(resolved: Option<&ResolvedDevice>) -> usize {
    resolved.filter(|resolved| resolved.is_device()).map_or(KEPT_WITHOUT_DEVICE, |_| KEPT_FILES)
}

/// The device that a lock file is named after.
pub(super) fn device_of_file(
    dialect: &Dialect,
    dev_dir: &Path,
    name: &Name,
) -> Option<ResolvedDevice> {
    let device =
        DeviceName::parse(names::device_of(dialect, name.as_str(), &[])?.as_bytes()).ok()?;
    follow(dev_dir, &device).ok()
}

/// Removes the locks of a process that has ended. Those that another process holds now stay listed for another attempt,
/// for as long as it holds them.
pub(super) fn remove_dead(own: &Place, state: &mut State, who: &ProcessIdentity) {
    let mut watched = std::mem::take(&mut state.held);
    watched.remove_each(who, Instant::now(), |name, backoff| {
        let file = own.file(name);
        state.backoff = backoff;
        match state.examine(file) {
            Ok(Some((lock, stale))) => match state.remove_stale(file, lock, stale) {
                Attempt::Done(()) => None,
                Attempt::Changed | Attempt::Contended => Some(Again::Soon),
            },
            Err(Busy::NotYet(_)) => Some(Again::Soon),
            Err(Busy::Changing(_) | Busy::Failed) => Some(Again::Later),
            Ok(None) | Err(Busy::Held(_) | Busy::BeingWritten | Busy::Obstacle(_)) => None,
        }
    });
    state.held = watched;
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
            Err(Busy::Failed) => {
                let why = state.events.last().map(|event| event.text.clone());
                return Err(why.unwrap_or_else(|| Busy::Failed.to_string()));
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
    let Found::File(opened) = found else { return Ok(Ok(())) };
    // If it differs, this is no longer the file that was judged stale.
    if pid_in(&opened) != seen.pid || Some(opened.modified()) != seen.since {
        return Ok(Ok(()));
    }
    let lock = match state.examine_found(file, Ok(Found::File(opened))) {
        Ok(Some((lock, _))) => lock,
        other => return Ok(other.map(|_| ())),
    };
    let status = lock.opened.status();
    match state.remove_name(file, lock).map_err(|error| error.to_string())? {
        Attempt::Done(()) | Attempt::Changed => Ok(Ok(())),
        Attempt::Contended => Ok(Err(state.contended(file.place, Some(status)))),
    }
}

fn split(path: &Path) -> Option<(&Path, Name)> {
    let name = path.file_name().and_then(OsStr::to_str)?;
    Some((path.parent()?, Name::new(name.to_owned())?))
}
