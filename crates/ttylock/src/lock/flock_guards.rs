//! Our own lock files that are kept open: by a daemon with `flock(2)` on each, by a session so that
//! it can remove them without reading them again.
//!
//! The `flock(2)` is the only thing that stops a program that removes locks without asking whose they are:
//! Qt run as root tries `flock(2)` first. What is kept is let go on UNLOCK, and as soon as the
//! holder is gone: a lock that a dead process left must be breakable by everybody. Nothing is
//! lost when the daemon ends; the next one keeps what it finds ([`FlockGuards::find`]).

use std::collections::BTreeMap;
use std::fs::File;

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use pidlockfile::process::{Liveness, liveness};
use pidlockfile::{Found, Identity, Name, Pid, Published, Status};
use rustix::fs::{FlockOperation, flock};

use super::places::Place;
use super::record::{self, READ_LIMIT};

/// The files that are kept, by name.
#[derive(Debug)]
pub(super) struct FlockGuards {
    keeper: Keeper,
    files: BTreeMap<Name, Held>,
}

/// Who keeps files open, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeper {
    /// A daemon, which is told when their holders end: `flock(2)` is on so many.
    Daemon { limit: usize },
    /// Whoever may end at any time, or stay when a holder has ended: without `flock(2)`, so that
    /// others may break a stale one. What is open need not be read again to be removed.
    Session,
}

/// Lock files that a session keeps open.
const OF_A_SESSION: usize = 16;

impl Default for FlockGuards {
    fn default() -> Self {
        Self { keeper: Keeper::Session, files: BTreeMap::new() }
    }
}

/// One file, in a daemon with `flock(2)` on it as long as it is open.
#[derive(Debug)]
struct Held {
    pid: Pid,
    published: Published,
}

impl FlockGuards {
    pub(super) fn up_to(limit: usize) -> Self {
        Self { keeper: Keeper::Daemon { limit }, ..Self::default() }
    }

    pub(super) fn is_a_daemons(&self) -> bool {
        matches!(self.keeper, Keeper::Daemon { .. })
    }

    /// Keeps a lock that was just written, if there are fewer than `room` yet. A lock for nobody
    /// is not kept by a daemon: it is stale already.
    pub(super) fn keep(&mut self, name: &Name, pid: Pid, published: Published, room: usize) {
        let limit = match self.keeper {
            Keeper::Daemon { limit } => limit,
            Keeper::Session => OF_A_SESSION,
        };
        if self.files.len() >= limit.min(room) && !self.files.contains_key(name) {
            return;
        }
        match self.keeper {
            Keeper::Daemon { .. } => self.hold(name, pid, published),
            Keeper::Session => {
                published.let_go();
                self.files.insert(name.clone(), Held { pid, published });
            }
        }
    }

    fn hold(&mut self, name: &Name, pid: Pid, published: Published) {
        if liveness(pid) == Liveness::Gone {
            return;
        }
        // Somebody who holds it already is breaking or looking at it, and needs no help from us.
        if flock(&published.file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            self.files.insert(name.clone(), Held { pid, published });
        }
    }

    /// Keeps the locks that an earlier daemon of this user has written: files of ours, of our
    /// mode and form, whose holder lives; each among as many as there is `room` for it.
    pub(super) fn find(
        &mut self,
        own: &Place,
        mode: u32,
        form: impl Fn(Pid) -> Vec<u8>,
        room: impl Fn(&Name) -> usize,
    ) {
        for name in own.lock_names() {
            let Ok(Found::File(judged)) = own.directory.read(&name, READ_LIMIT) else { continue };
            let Ok(pid) = record::parse(judged.content()).map(|record| record.pid) else {
                continue;
            };
            let ours = judged.owner() == nix::unistd::geteuid().as_raw()
                && judged.mode() & 0o777 == mode
                && judged.content() == form(pid);
            let (identity, modified) = (judged.identity(), judged.modified());
            if let Some(file) = ours.then(|| open(own, &name, identity)).flatten() {
                let room = room(&name);
                self.keep(&name, pid, Published { file, identity, modified }, room);
            }
        }
    }

    /// Lets go of these files where the pid is the holder, or the holder is gone, so that we do
    /// not stand in our own way when they are removed or taken over.
    pub(super) fn let_go(&mut self, names: &[Name], pid: Option<Pid>) {
        if self.files.is_empty() {
            return;
        }
        for name in names {
            let over = |held: &Held| pid == Some(held.pid) || liveness(held.pid) == Liveness::Gone;
            if self.files.get(name).is_some_and(over) {
                self.files.remove(name);
            }
        }
    }

    /// Gives a file of this holder to the one who removes or replaces it, a daemon's lock still on it.
    /// Somebody may have written to it since.
    pub(super) fn take(&mut self, name: &Name, pid: Pid) -> Option<Published> {
        self.files.get(name).filter(|held| held.pid == pid)?;
        self.files.remove(name).map(|held| held.published)
    }

    /// Lets go of everything of a process that is gone.
    pub(super) fn forget(&mut self, pid: Pid) {
        self.files.retain(|_, held| held.pid != pid);
    }
}

fn open(place: &Place, name: &Name, identity: Identity) -> Option<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = nix::fcntl::openat(&place.directory, name.as_str(), flags, Mode::empty()).ok()?;
    let same = Status::of_open(&file).ok()?.identity == identity;
    same.then(|| file.into())
}
