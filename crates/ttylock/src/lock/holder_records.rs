//! What we remember of the locks we wrote: when their holders started, so that a pid that was
//! given out again is not taken for the holder; and under which names they were written, so that
//! they can be released when the device and its links are gone.
//!
//! A lock file has room for a pid and nothing else. The rest is kept in the state directory, one
//! symbolic link per device whose *target* is the record: making one is a single step, so there
//! is no half-written record, and reading one opens nothing. The directory is ours alone; what
//! somebody else puts there is not believed unless it fits the lock file to the letter.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::Mode;
use nix::unistd::UnlinkatFlags;
use pidlockfile::process::{Liveness, Witness, liveness};
use pidlockfile::{Identity, Name, Pid, Status, process};

use super::memory::{Here, Memory, nanoseconds};
use crate::limits::NAMES_OF_A_LOCK;
use crate::sys::HANDLE;

/// A state directory with fewer bytes than this has few records: a file takes 20 bytes of a directory
/// on tmpfs, twice its name on btrfs, and one on ZFS.
const SMALL: u64 = 256;

#[path = "state_directory.rs"]
mod state_directory;

/// The state directory, or the lack of one: then no pid is ever thought to be reused.
#[derive(Debug)]
pub struct HolderRecords {
    handle: Option<OwnedFd>,
    identity: Option<Identity>,
    everybodys: bool,
    /// For so many more lock files there is room, whoever's they are.
    room: usize,
    here: Option<Here>,
    /// The process that was looked at last: a client that locks and unlocks all day is the same
    /// all day.
    witness: Option<Witness>,
    /// Whose it was when that was first asked.
    witness_owner: Option<u32>,
}

/// The process that a lock is taken for, as it was before the lock was there: one that has its
/// number later is not the holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// Its number.
    pub pid: Pid,
    /// Whether there was such a process.
    pub then: Liveness,
    /// When that had started, as far as it can be seen.
    pub start: Option<u64>,
    /// The user it ran as, as long as it is there; `None` when nobody tells.
    pub uid: Option<u32>,
}

/// One file of a new lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its name.
    pub name: Name,
    /// Which file it is.
    pub file: Identity,
    /// When it was written, by its own time of change.
    pub at: SystemTime,
}

/// What the memory says of the process that a lock file names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remembered {
    /// Nothing is known of this lock: it is believed.
    Nothing,
    /// It is the process that took the lock, or may be.
    Same,
    /// The lock is ours, but its pid means a process of another pid namespace, which cannot be
    /// seen from here: it may live, whatever our kernel says of the number.
    Elsewhere,
    /// The lock is ours, and its holder is gone: the pid was given out again.
    Reused,
}

impl HolderRecords {
    /// Opens the state directory if there is one. One that everybody may write is left alone: what
    /// we would find there may be anybody's, and `/tmp` is searched for locks as well.
    #[must_use]
    pub fn open(path: &Path) -> Self {
        let flags = HANDLE | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let handle = nix::fcntl::open(path, flags, Mode::empty()).ok();
        let stat = handle.as_ref().and_then(|handle| Status::of_open(handle).ok());
        let everybodys = stat.is_some_and(|stat| stat.mode & 0o002 != 0);
        let handle = handle.filter(|_| !everybodys);
        let identity = stat.map(|stat| stat.identity);
        Self { handle, identity, everybodys, ..Self::none() }
    }

    /// No state directory.
    #[must_use]
    pub fn none() -> Self {
        Self {
            handle: None,
            identity: None,
            everybodys: false,
            room: 0,
            here: None,
            witness: None,
            witness_owner: None,
        }
    }

    /// Counts processes in another pid namespace from now on, for tests.
    #[cfg(test)]
    pub(super) fn pretend_to_be_elsewhere(&mut self) {
        if let Some(here) = here(&mut self.here) {
            self.here = Some(Here { namespace: here.namespace.wrapping_add(1), ..here.clone() });
        }
    }

    /// Which directory it is.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        self.identity
    }

    /// Whether there is a state directory, but one that everybody may write.
    #[must_use]
    pub fn is_everybodys(&self) -> bool {
        self.everybodys
    }

    /// Looks at a process before a lock is taken for it.
    pub fn claimant(&mut self, pid: Pid) -> Claimant {
        let start = self.start_of(pid);
        let then = if start.is_some() { Liveness::Alive } else { liveness(pid) };
        let uid = start.and_then(|_| self.owner(pid));
        Claimant { pid, then, start, uid }
    }

    fn start_of(&mut self, pid: Pid) -> Option<u64> {
        let known = self.witness.take().filter(|known| known.pid() == pid && known.exists());
        self.witness = known.or_else(|| {
            self.witness_owner = None;
            Witness::of(pid)
        });
        self.witness.as_ref().map(Witness::start)
    }

    /// Whether it is there still, when the lock is.
    #[must_use]
    pub fn is_there(&self, claimant: &Claimant) -> bool {
        // Of what was not seen before nothing can be told.
        let Some(start) = claimant.start else { return true };
        match self.witness.as_ref().filter(|seen| seen.pid() == claimant.pid) {
            Some(seen) => seen.start() == start && seen.exists(),
            None => process::start_time(claimant.pid) == Some(start),
        }
    }

    /// Of one that has ended meanwhile, it cannot be told whose it was: another may have had its
    /// number when that was asked.
    #[must_use]
    pub fn as_it_is_now(&self, claimant: Claimant) -> Claimant {
        if self.is_there(&claimant) { claimant } else { Claimant { uid: None, ..claimant } }
    }

    /// Remembers a lock under the name of each of its files: when its holder started, and all
    /// the names. Without a state directory, or without `/proc`, this does nothing.
    ///
    /// `stands` tells whether a file is still there: others may have released the lock meanwhile, and
    /// would leave the record of it for ever. It is asked of every file when all are on record,
    /// or are not going to be.
    ///
    /// # Errors
    /// When the record cannot be written; the lock is good all the same.
    pub fn remember(
        &mut self,
        claimant: &Claimant,
        files: &[Written],
        stands: impl Fn(&Written) -> bool,
    ) -> Result<(), Errno> {
        let outcome = self.record(claimant, files, &stands);
        // In this order: who releases the lock after our look removes the record, too.
        for lock in files.iter().filter(|lock| !stands(lock)) {
            self.sweep(&lock.name, lock.file);
        }
        outcome
    }

    fn record(
        &mut self,
        claimant: &Claimant,
        files: &[Written],
        stands: &impl Fn(&Written) -> bool,
    ) -> Result<(), Errno> {
        let (Some(handle), Some(here)) = (&self.handle, here(&mut self.here).cloned()) else {
            return Ok(());
        };
        let Claimant { pid, then, start, .. } = *claimant;
        if start.is_none() && then == Liveness::Alive && liveness(pid) == Liveness::Alive {
            // It lives, and we may not see since when: nothing to tell a later one from it.
            return Ok(());
        }
        let names: Vec<Name> = files.iter().map(|file| file.name.clone()).collect();
        // The first name last: by that it is seen whose the others are.
        for lock in files.iter().rev() {
            let name = &lock.name;
            let memory = memory_for(claimant, here.clone(), lock, names.clone());
            let text = memory.to_text();
            #[cfg(test)]
            before_record::happens();
            match nix::unistd::symlinkat(text.as_str(), handle, name.as_str()) {
                // Another process was faster, if our lock is broken or released by now. A lock is as old
                // as its draft, so a later one may have come and gone before ours had its name.
                Err(Errno::EEXIST)
                    if known(handle, name).is_some_and(|it| it.follows(&memory))
                        && !stands(lock) =>
                {
                    continue;
                }
                Err(Errno::EEXIST) => {
                    // Who swept the earlier record away meanwhile has done our work.
                    match nix::unistd::unlinkat(handle, name.as_str(), UnlinkatFlags::NoRemoveDir) {
                        Ok(()) | Err(Errno::ENOENT) => {}
                        Err(errno) => return Err(errno),
                    }
                    nix::unistd::symlinkat(text.as_str(), handle, name.as_str())?;
                }
                outcome => outcome?,
            }
        }
        Ok(())
    }

    fn owner(&mut self, pid: Pid) -> Option<u32> {
        if self.witness.as_ref().is_none_or(|witness| witness.pid() != pid) {
            return process::owner(pid);
        }
        self.witness_owner = self.witness_owner.or_else(|| process::owner(pid));
        self.witness_owner
    }

    /// Forgets a lock file that is gone, of which nobody holds `flock(2)`: the next lock may be put
    /// on record just now. So the record is moved aside first, looked at there, and put back if it
    /// is about another lock.
    pub fn sweep(&self, name: &Name, file: Identity) {
        let Some(handle) = self.handle.as_ref() else { return };
        if self.memory(name).is_none_or(|memory| memory.file != file) {
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let Some(aside) = Name::new(format!("swept.{}.{}", Pid::this(), now.as_nanos())) else {
            return;
        };
        if nix::fcntl::renameat(handle, name.as_str(), handle, aside.as_str()).is_err() {
            return;
        }
        // No hard link is made over a later record, which is the true one then.
        if self.memory(&aside).is_some_and(|memory| memory.file != file) {
            let flags = AtFlags::empty();
            let _ = nix::unistd::linkat(handle, aside.as_str(), handle, name.as_str(), flags);
        }
        self.forget(&aside);
    }

    /// Forgets a lock file that is about to go, unless the record is about another one. Only under
    /// `flock(2)` on that file. Gives back what the record said, for [`HolderRecords::put_back`].
    pub fn forget_lock(&self, name: &Name, file: Identity) -> Option<Memory> {
        let memory = self.memory(name).filter(|memory| memory.file == file)?;
        self.forget(name);
        Some(memory)
    }

    /// The record of a lock that stands after all. One that was made meanwhile is the true one.
    pub fn put_back(&self, name: &Name, memory: &Memory) {
        if let Some(handle) = &self.handle {
            let _ = nix::unistd::symlinkat(memory.to_text().as_str(), handle, name.as_str());
        }
    }

    /// Forgets a lock file that is gone.
    pub fn forget(&self, name: &Name) {
        if let Some(handle) = &self.handle {
            // A record without its lock file is never believed, so a failure does no harm.
            let _ = nix::unistd::unlinkat(handle, name.as_str(), UnlinkatFlags::NoRemoveDir);
        }
    }

    /// Under which names the lock of this pid was written, if one of them was this.
    #[must_use]
    pub fn names(&self, name: &Name, pid: Pid) -> Vec<Name> {
        let memory = self.memory(name).filter(|memory| memory.pid == pid);
        memory.map(|memory| memory.names).unwrap_or_default()
    }

    /// Whether another lock fits below this many lock files on record, whoever's they are. Counted
    /// anew when as many locks may have been taken since as there was room for.
    pub fn has_room_for_all(&mut self, limit: usize) -> bool {
        if self.room < NAMES_OF_A_LOCK {
            self.room = limit.saturating_sub(self.entries(limit));
        }
        let left = self.room.checked_sub(NAMES_OF_A_LOCK);
        self.room = left.unwrap_or(self.room);
        left.is_some()
    }

    /// How many files are in the directory, up to a bound.
    fn entries(&self, most: usize) -> usize {
        let small = |handle| Status::of_open(handle).is_ok_and(|stat| stat.size < SMALL);
        match &self.handle {
            Some(handle) if small(handle) => 0,
            Some(_) => self.listing().map_or(0, |mut listing| listing.iter().take(most).count()),
            None => 0,
        }
    }

    fn listing(&self) -> Option<nix::dir::Dir> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        nix::dir::Dir::openat(self.handle.as_ref()?, ".", flags, Mode::empty()).ok()
    }

    /// How many lock files of a user there are records of, or of nobody for those of processes that
    /// were gone. No more than `most` records are read.
    #[must_use]
    pub fn count_of(&self, uid: Option<u32>, most: usize) -> usize {
        let records = self.names_of_records(most);
        records.iter().filter(|name| self.memory(name).is_some_and(|it| it.uid == uid)).count()
    }

    /// The lock file that a record is about.
    #[must_use]
    pub fn file_of(&self, name: &Name) -> Option<Identity> {
        self.memory(name).map(|memory| memory.file)
    }

    /// The locks of which there are records, up to a bound.
    #[must_use]
    pub fn names_of_records(&self, most: usize) -> Vec<Name> {
        let Some(mut listing) = self.listing() else { return Vec::new() };
        // Records are links. Whatever else is here is somebody's: the service's socket, as a rule.
        let is_record =
            |entry: &nix::dir::Entry| entry.file_type() == Some(nix::dir::Type::Symlink);
        let names = listing.iter().map_while(Result::ok).take(most).filter(is_record);
        names.filter_map(|entry| entry.file_name().to_str().ok().and_then(Name::new)).collect()
    }

    fn memory(&self, name: &Name) -> Option<Memory> {
        known(self.handle.as_ref()?, name)
    }

    /// Who the holder of the lock in `file` was, as long as there is such a file.
    #[must_use]
    pub fn user(&self, name: &Name, pid: Pid, file: Identity, written: SystemTime) -> Option<u32> {
        self.memory_of(name, pid, file, written)?.uid
    }

    fn memory_of(
        &self,
        name: &Name,
        pid: Pid,
        file: Identity,
        written: SystemTime,
    ) -> Option<Memory> {
        self.memory(name).filter(|memory| {
            memory.pid == pid && memory.file == file && memory.written == nanoseconds(written)
        })
    }

    /// Asks whether the process `pid`, as it is now, is the one that took the lock in `file`.
    pub fn recall(
        &mut self,
        name: &Name,
        pid: Pid,
        file: Identity,
        written: SystemTime,
    ) -> Remembered {
        let Some(memory) = self.memory_of(name, pid, file, written) else {
            return Remembered::Nothing;
        };
        let start = self.start_of(pid);
        match here(&mut self.here) {
            Some(here) => compare(&memory, here, start),
            None => Remembered::Nothing,
        }
    }
}

fn memory_for(claimant: &Claimant, here: Here, file: &Written, names: Vec<Name>) -> Memory {
    let Claimant { pid, start, uid, .. } = *claimant;
    Memory { pid, start, uid, here, file: file.file, written: nanoseconds(file.at), names }
}

fn known(directory: &OwnedFd, name: &Name) -> Option<Memory> {
    let text = nix::fcntl::readlinkat(directory, name.as_str()).ok()?;
    Memory::from_text(text.to_str()?)
}

/// Where we are is read once, and only when it is needed.
fn here(known: &mut Option<Here>) -> Option<&Here> {
    if known.is_none() {
        let boot = process::boot_id()?;
        *known = Some(Here { boot, namespace: process::pid_namespace()? });
    }
    known.as_ref()
}

/// The rule, apart from where the facts come from.
fn compare(memory: &Memory, here: &Here, start: Option<u64>) -> Remembered {
    if memory.here.boot != here.boot {
        return Remembered::Reused;
    }
    if memory.here.namespace != here.namespace {
        return Remembered::Elsewhere;
    }
    match start {
        None => Remembered::Same,
        start if start == memory.start => Remembered::Same,
        Some(_) => Remembered::Reused,
    }
}

/// What else happens at the moment between a lock file and its record, for tests.
#[cfg(test)]
pub(super) mod before_record {
    use std::cell::RefCell;

    thread_local! {
        static EVENT: RefCell<Option<Box<dyn FnOnce()>>> = RefCell::default();
    }

    pub(in crate::lock) fn set(event: impl FnOnce() + 'static) {
        EVENT.set(Some(Box::new(event)));
    }

    pub(super) fn happens() {
        if let Some(event) = EVENT.take() {
            event();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use rstest::rstest;

    use super::*;
    use crate::lock::memory::LATEST;

    fn memory(start: Option<u64>) -> Memory {
        Memory {
            pid: Pid::new(77).unwrap(),
            start,
            uid: start.map(|_| 1000),
            here: Here { boot: "b-1".to_owned(), namespace: 5 },
            file: Identity { device: 22, inode: 33 },
            written: 44,
            names: ["LCK..a", "LCK..b c"].into_iter().filter_map(Name::new).collect(),
        }
    }

    fn claimant(pid: Pid) -> Claimant {
        let (start, uid) = (process::start_time(pid), process::owner(pid));
        Claimant { pid, then: Liveness::Alive, start, uid }
    }

    #[rstest]
    #[case::same_process(Some(9), "b-1", 5, Some(9), Remembered::Same)]
    #[case::another_start(Some(9), "b-1", 5, Some(10), Remembered::Reused)]
    #[case::was_nobody_then(None, "b-1", 5, Some(10), Remembered::Reused)]
    #[case::another_boot(Some(9), "b-2", 5, Some(9), Remembered::Reused)]
    #[case::another_namespace(Some(9), "b-1", 6, Some(10), Remembered::Elsewhere)]
    #[case::another_boot_and_namespace(Some(9), "b-2", 6, Some(9), Remembered::Reused)]
    #[case::start_is_hidden(Some(9), "b-1", 5, None, Remembered::Same)]
    fn a_pid_is_the_holder_only_if_it_started_then(
        #[case] start: Option<u64>,
        #[case] boot: &str,
        #[case] namespace: u64,
        #[case] start_now: Option<u64>,
        #[case] remembered: Remembered,
    ) {
        let here = Here { boot: boot.to_owned(), namespace };
        assert_eq!(compare(&memory(start), &here, start_now), remembered);
    }

    #[rstest]
    #[case(Some(9))]
    #[case(None)]
    fn records_survive_the_disk(#[case] start: Option<u64>) {
        let memory = memory(start);
        assert_eq!(Memory::from_text(&memory.to_text()), Some(memory));
    }

    #[test]
    fn records_of_older_versions_are_read() {
        let text = "pid=77 start=9 boot=b-1 pidns=5 file=22:33:44 names=LCK..a/LCK..b c";
        assert_eq!(Memory::from_text(text), Some(Memory { uid: None, ..memory(Some(9)) }));
    }

    #[rstest]
    #[case::empty("")]
    #[case::no_user("uid=x pid=77 start=9 boot=b-1 pidns=5 file=22:33:44 names=LCK..a")]
    #[case::other_order("start=9 pid=77 boot=b-1 pidns=5 file=22:33:44 names=LCK..a")]
    #[case::no_number("pid=77 start=x boot=b-1 pidns=5 file=22:33:44 names=LCK..a")]
    #[case::pid_zero("pid=0 start=9 boot=b-1 pidns=5 file=22:33:44 names=LCK..a")]
    #[case::cut("pid=77 start=9 boot=b-1 pidns=5 file=22:33 names=LCK..a")]
    #[case::no_names("pid=77 start=9 boot=b-1 pidns=5 file=22:33:44 names=")]
    #[case::climbing_name("pid=77 start=9 boot=b-1 pidns=5 file=22:33:44 names=LCK..a/..")]
    fn planted_records_are_not_read(#[case] text: &str) {
        assert_eq!(Memory::from_text(text), None);
    }

    #[test]
    fn a_record_is_about_one_file_only() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = HolderRecords::open(dir.path());
        let name = Name::new("LCK..ttyS0").unwrap();
        let file = Identity { device: 1, inode: 2 };
        let (then, later) = (UNIX_EPOCH + Duration::from_secs(5), SystemTime::now());
        let pid = Pid::this();
        let other_name = Name::new("LCK..modem").unwrap();
        let files = [&name, &other_name].map(|name| Written { name: name.clone(), file, at: then });
        state.remember(&claimant(pid), &files, |_| true).unwrap();
        state.remember(&claimant(pid), &files, |_| true).unwrap();
        assert_eq!(state.names(&name, pid), [name.clone(), other_name.clone()]);
        assert_eq!(state.names(&other_name, pid), [name.clone(), other_name]);
        assert_eq!(state.recall(&name, pid, file, then), Remembered::Same);
        assert_eq!(state.recall(&name, pid, file, later), Remembered::Nothing);
        let other = Identity { inode: 3, ..file };
        assert_eq!(state.recall(&name, pid, other, then), Remembered::Nothing);
        state.forget(&name);
        assert_eq!(state.recall(&name, pid, file, then), Remembered::Nothing);
    }

    #[test]
    fn a_lock_for_nobody_is_not_the_lock_of_whoever_comes_next() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = HolderRecords::open(dir.path());
        let name = Name::new("LCK..ttyS0").unwrap();
        let file = Identity { device: 1, inode: 2 };
        let then = SystemTime::now();
        let files = [Written { name: name.clone(), file, at: then }];
        // This very process came after the lock was taken, and before it was recorded.
        state
            .remember(
                &Claimant { pid: Pid::this(), then: Liveness::Gone, start: None, uid: None },
                &files,
                |_| true,
            )
            .unwrap();
        assert_eq!(state.recall(&name, Pid::this(), file, then), Remembered::Reused);
    }

    #[rstest]
    #[case::just_before(Duration::from_nanos(1), true)]
    #[case::long_before(LATEST, true)]
    #[case::just_after(Duration::from_nanos(1), false)]
    #[case::in_the_future_before_the_clock_was_set_back(LATEST, false)]
    fn only_a_lock_taken_since_keeps_its_record(#[case] distance: Duration, #[case] before: bool) {
        let dir = tempfile::tempdir().unwrap();
        let mut state = HolderRecords::open(dir.path());
        let name = Name::new("LCK..ttyS0").unwrap();
        let (file, now) = (Identity { device: 1, inode: 2 }, SystemTime::now());
        let known = if before { now - distance } else { now + distance };
        let replaced = before || distance >= LATEST;
        for (inode, at) in [(3, known), (2, now)] {
            let file = Identity { inode, ..file };
            let files = [Written { name: name.clone(), file, at }];
            // One that has been broken since, by the later lock, is there no more.
            let stands = |lock: &Written| lock.file.inode == 3 || replaced;
            state.remember(&claimant(Pid::this()), &files, stands).unwrap();
        }
        let expected = if replaced { Remembered::Same } else { Remembered::Nothing };
        assert_eq!(state.recall(&name, Pid::this(), file, now), expected);
    }

    #[test]
    fn a_lock_that_is_gone_leaves_no_record() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = HolderRecords::open(dir.path());
        let name = Name::new("LCK..ttyS0").unwrap();
        let (file, at) = (Identity { device: 1, inode: 2 }, SystemTime::now());
        let files = [Written { name: name.clone(), file, at }];
        state.remember(&claimant(Pid::this()), &files, |_| false).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        state.remember(&claimant(Pid::this()), &files, |_| true).unwrap();
        state.forget_lock(&name, Identity { inode: 3, ..file });
        state.sweep(&name, Identity { inode: 3, ..file });
        assert_eq!(state.recall(&name, Pid::this(), file, at), Remembered::Same);
        state.forget_lock(&name, file);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_claimant_is_one_process_only() {
        let mut state = HolderRecords::none();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::new(i64::from(child.id())).unwrap();
        for pid in [Pid::this(), pid, pid, Pid::this(), pid] {
            assert_eq!(state.claimant(pid), claimant(pid));
        }
        let before = state.claimant(pid);
        assert!(state.is_there(&before));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!state.is_there(&before));
        let gone = Claimant { pid, then: Liveness::Gone, start: None, uid: None };
        assert_eq!(state.claimant(pid), gone);
    }

    /// The start that counts is that of before the lock, however late the record is written.
    #[test]
    fn a_late_record_is_about_the_process_that_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = HolderRecords::open(dir.path());
        let name = Name::new("LCK..ttyS0").unwrap();
        let (file, at) = (Identity { device: 1, inode: 2 }, SystemTime::now());
        let files = [Written { name: name.clone(), file, at }];
        // This very process has the number of one that started earlier.
        let pid = Pid::this();
        let gone =
            Claimant { start: process::start_time(pid).map(|ticks| ticks - 1), ..claimant(pid) };
        state.remember(&gone, &files, |_| true).unwrap();
        assert_eq!(state.recall(&name, pid, file, at), Remembered::Reused);
    }

    #[test]
    fn what_anybody_may_have_written_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let name = Name::new("LCK..ttyS0").unwrap();
        let (file, then) = (Identity { device: 1, inode: 2 }, SystemTime::now());
        let files = [Written { name: name.clone(), file, at: then }];
        let mut state = HolderRecords::open(dir.path());
        state.remember(&claimant(Pid::this()), &files, |_| true).unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
        let mut state = HolderRecords::open(dir.path());
        assert!(state.is_everybodys() && !state.is_open());
        assert_eq!(state.recall(&name, Pid::this(), file, then), Remembered::Nothing);
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o775)).unwrap();
        let mut state = HolderRecords::open(dir.path());
        assert!(!state.is_everybodys() && state.is_open());
        assert_eq!(state.recall(&name, Pid::this(), file, then), Remembered::Same);
    }

    #[test]
    fn without_a_state_directory_nothing_is_guessed() {
        let mut state = HolderRecords::open(Path::new("/nonexistent/state"));
        let name = Name::new("LCK..ttyS0").unwrap();
        let file = Identity { device: 1, inode: 2 };
        let then = SystemTime::now();
        let files = [Written { name: name.clone(), file, at: then }];
        assert_eq!(state.remember(&claimant(Pid::this()), &files, |_| true), Ok(()));
        assert_eq!(state.recall(&name, Pid::this(), file, then), Remembered::Nothing);
        assert!(!state.is_open());
    }
}
