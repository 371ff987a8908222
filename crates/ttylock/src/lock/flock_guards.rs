//! The lock files that a process keeps open, with `flock(2)` on each: those of a daemon, and those of a program that
//! ends with its locks, as far as they have no record.
//!
//! To a process in another pid namespace, the number in a lock file means nothing. The record says so, but an ordinary
//! user may not write one; then the file's `flock(2)` shows that the lock is not stale.
//!
//! Only this `flock(2)` stops programs that remove foreign locks: Qt as root tries `flock(2)` first. A kept file is
//! let go on UNLOCK, and as soon as the lock's holder has ended, because every program must be able to break the lock
//! of a dead process, whichever process has its number by then. Nothing is lost when the daemon ends; the next one
//! keeps the files that it finds ([`FlockGuards::adopt`]). A program that starts children unlocks a file before it
//! closes it: a child has the descriptor too, until it becomes another program.

use std::collections::BTreeMap;

use pidlockfile::process::{Machine, ProcessIdentity, Start};
use pidlockfile::{Identity, Name, OpenFile, Pid, Published};

/// The files that are kept: one for each lock, whichever names it has.
#[derive(Debug, Default)]
pub(super) struct FlockGuards {
    kept: Kept,
    files: BTreeMap<Identity, GuardedFile>,
}

/// Which files are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kept {
    /// None, for a session: it may stay after a holder has ended, and others must be able to break a stale lock.
    #[default]
    Nothing,
    /// Those without a record, for a program that ends with its locks.
    Unrecorded,
    /// So many at most, for a daemon, which is told when the holders end.
    UpTo(usize),
}

/// One file. We have `flock(2)` on it as long as it is open.
#[derive(Debug)]
struct GuardedFile {
    who: ProcessIdentity,
    names: Vec<Name>,
    published: Published,
}

impl FlockGuards {
    pub(super) fn of(kept: Kept) -> Self {
        Self { kept, ..Self::default() }
    }

    pub(super) fn is_a_daemons(&self) -> bool {
        matches!(self.kept, Kept::UpTo(_))
    }

    /// Keeps a lock that was just written, with these names, if fewer than `most` are kept. A daemon does not keep a lock
    /// without a living holder: it is stale already.
    pub(super) fn keep(
        &mut self,
        names: &[Name],
        who: &ProcessIdentity,
        published: Published,
        most: usize,
    ) {
        let takes_place = self.give_names_to(published.identity, names);
        let has_room = match self.kept {
            Kept::Nothing => false,
            // Without a limit: a lock that is not kept looks dead elsewhere.
            Kept::Unrecorded => most > 0,
            Kept::UpTo(limit) => self.files.len() < limit.min(most),
        };
        let (file, names) = (published.identity, names.to_vec());
        if let Some(held) = self.files.get_mut(&file) {
            held.names.extend(names);
            return published.close();
        }
        let is_wanted = who.start != Start::Nobody && (has_room || takes_place);
        // If another process holds it already, it is breaking or reading the file, and the guard is not needed.
        if is_wanted && published.try_hold().is_ok_and(|it| it) {
            self.files.insert(file, GuardedFile { who: who.clone(), names, published });
        } else {
            published.close();
        }
    }

    /// These names lead to that file now: another one is kept only as long as it has other names. Returns whether one went.
    fn give_names_to(&mut self, file: Identity, names: &[Name]) -> bool {
        let before = self.files.len();
        self.files.retain(|kept, held| {
            if *kept == file {
                return true;
            }
            held.names.retain(|name| !names.contains(name));
            if held.names.is_empty() {
                held.published.let_go();
            }
            !held.names.is_empty()
        });
        self.files.len() < before
    }

    /// Keeps a lock of a living holder that an earlier daemon of this user has written: a file of this user, with our
    /// mode and form, if fewer than `most` are kept.
    pub(super) fn adopt(
        &mut self,
        name: &Name,
        opened: &OpenFile,
        who: &ProcessIdentity,
        (mode, form): (u32, &[u8]),
        most: impl FnOnce(&Name) -> usize,
    ) {
        let ours = opened.status().owner == rustix::process::geteuid().as_raw()
            && opened.status().mode & 0o777 == mode
            && opened.content() == form;
        let (identity, modified) = (opened.identity(), opened.modified());
        if let Some(file) = ours.then(|| opened.try_clone().ok()).flatten() {
            let names = std::slice::from_ref(name);
            self.keep(names, who, Published { file, identity, modified }, most(name));
        }
    }

    /// Lets go of a file whose lock is void, so that our own `flock(2)` does not prevent its removal or take-over.
    pub(super) fn let_go(&mut self, file: Identity) {
        if let Some(held) = self.files.remove(&file) {
            held.published.close();
        }
    }

    /// Gives a second descriptor of a file to a caller that removes names of it: our `flock(2)` lasts until the last name is
    /// removed. Without descriptors, the only one.
    pub(super) fn lend(&mut self, file: Identity) -> Option<Published> {
        let Published { file: kept, identity, modified } = &self.files.get(&file)?.published;
        let (identity, modified) = (*identity, *modified);
        let copy = kept.try_clone().map(|file| Published { file, identity, modified });
        copy.ok().or_else(|| self.files.remove(&file).map(|held| held.published))
    }

    /// These names of a file were removed. It is kept as long as it has another one.
    pub(super) fn forget(&mut self, file: Identity, gone: &[Name]) {
        let Some(held) = self.files.get_mut(&file) else { return };
        held.names.retain(|name| !gone.contains(name));
        if held.names.is_empty() || !held.published.has_a_name() {
            self.let_go(file);
        }
    }

    /// Lets go of all files of the processes that had this number and have ended.
    pub(super) fn let_go_of_ended(&mut self, pid: Pid, machine: &mut Machine) {
        self.files.retain(|_, held| {
            let is_over = held.who.pid == pid && machine.fate(&held.who).is_over();
            if is_over {
                held.published.let_go();
            }
            !is_over
        });
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::Path;

    use pidlockfile::Status;
    use rstest::rstest;
    use rustix::fs::{FlockOperation, flock};

    use super::*;

    fn published(path: &Path) -> Published {
        let file = File::create(path).unwrap();
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        let Status { identity, modified, .. } = Status::of_open(&file).unwrap();
        Published { file, identity, modified }
    }

    /// A child that another thread starts has all our descriptors for a moment.
    #[rstest]
    #[case::there_is_no_room(0, Start::Unknown)]
    #[case::it_is_nobodys(1, Start::Nobody)]
    #[case::it_was_void(1, Start::Unknown)]
    #[case::its_holder_has_ended(1, Start::At(1))]
    fn a_released_flock_is_free_although_a_child_has_its_descriptor(
        #[case] limit: usize,
        #[case] start: Start,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("LCK..x");
        let (names, published) = ([Name::new("LCK..x").unwrap()], published(&path));
        let (copy, identity) = (published.file.try_clone().unwrap(), published.identity);
        let who = ProcessIdentity { start, ..Machine::default().identify(Pid::this()) };
        let mut guards = FlockGuards::of(Kept::UpTo(limit));
        guards.keep(&names, &who, published, limit);
        match start {
            Start::At(_) => guards.let_go_of_ended(Pid::this(), &mut Machine::default()),
            Start::Unknown => guards.let_go(identity),
            Start::Nobody => {}
        }
        let theirs = File::open(&path).unwrap();
        flock(&theirs, FlockOperation::NonBlockingLockExclusive).unwrap();
        drop(copy);
    }

    /// A lock of two names is kept by one descriptor, until both names lead to other files.
    #[test]
    fn a_file_is_kept_as_long_as_it_has_a_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = |number: usize| directory.path().join(number.to_string());
        let [first, second] = ["LCK..x", "LCK..y"].map(|name| Name::new(name).unwrap());
        let who = Machine::default().identify(Pid::this());
        let mut guards = FlockGuards::of(Kept::UpTo(10));
        let mut kept = Vec::new();
        let steps = [vec![first.clone(), second.clone()], vec![first], vec![second]];
        for (number, names) in steps.into_iter().enumerate() {
            guards.keep(&names, &who, published(&path(number)), 10);
            let file = File::open(path(0)).unwrap();
            kept.push(flock(&file, FlockOperation::NonBlockingLockExclusive).is_err());
        }
        assert_eq!((kept, guards.files.len()), (vec![true, true, false], 2));
    }
}
