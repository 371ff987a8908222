//! Our own lock files that a daemon keeps open, with `flock(2)` on each.
//!
//! It is the only thing that stops a program that removes locks without asking whose they are:
//! Qt run as root tries `flock(2)` first. What is kept is let go on UNLOCK, and as soon as the
//! holder is gone: a lock that a dead process left must be breakable by everybody. Nothing is
//! lost when the daemon ends; the next one keeps what it finds ([`Kept::find`]).

use std::collections::BTreeMap;
use std::fs::File;

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use pidlockfile::process::{Liveness, liveness};
use pidlockfile::{Found, Identity, Name, Pid, Published, Status};
use rustix::fs::{FlockOperation, flock};

use super::places::Place;
use super::record::{self, READ_LIMIT};

/// The files that are kept, by name. Empty, and of no effect, where the limit is 0.
#[derive(Debug, Default)]
pub(super) struct Kept {
    limit: usize,
    files: BTreeMap<Name, Held>,
}

/// One file, with `flock(2)` on it as long as it is open.
#[derive(Debug)]
struct Held {
    pid: Pid,
    published: Published,
}

impl Kept {
    pub(super) fn up_to(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.limit > 0
    }

    /// Keeps a lock that was just written, if there are fewer than `room` yet. A lock for nobody
    /// is not kept: it is stale already.
    pub(super) fn keep(&mut self, name: &Name, pid: Pid, published: Published, room: usize) {
        if self.is_wanted() {
            self.hold(name, pid, published, room);
        }
    }

    fn hold(&mut self, name: &Name, pid: Pid, published: Published, room: usize) {
        let room = self.files.len() < self.limit.min(room) || self.files.contains_key(name);
        if !room || liveness(pid) == Liveness::Gone {
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
        if !self.is_wanted() {
            return;
        }
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
                self.hold(&name, pid, Published { file, identity, modified }, room);
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

    /// Gives a file of this holder to the one who removes it, the lock still on it, if nobody has
    /// written to it since.
    pub(super) fn take(&mut self, name: &Name, pid: Pid) -> Option<Published> {
        self.files.get(name).filter(|held| held.pid == pid)?;
        let held = self.files.remove(name)?;
        let written = held.published.file.metadata().and_then(|data| data.modified()).ok();
        (written == Some(held.published.modified)).then_some(held.published)
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
