//! Records about the locks that we wrote: when their holders started, so that a later process with the same
//! pid is not taken for the holder; and the names of the lock, so that it can be released when the device and
//! its links are gone.
//!
//! A lock file has room for a pid and nothing else. The rest is kept in the state directory, in one symbolic
//! link for each lock file, whose *target* is the record. One system call makes a link, so no record is ever
//! half written, and reading one opens nothing. Only we may write that directory; a record from anybody else
//! is ignored unless it matches the lock file exactly.
//!
//! The link has the name of the lock file. Services with different lock directories may share a state directory, as in
//! a container that has a `/run/lock` of its own. So each record also tells its lock directory, and a service leaves
//! the records of other directories alone. If the name already belongs to such a record, ours is the name with the
//! device and inode of the lock file in front.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::slice;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, readlinkat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, linkat, symlinkat, unlinkat};
use pidlockfile::process::{ClockShift, Here, Machine, Observed, ProcessIdentity, Start};
use pidlockfile::{Directory, Gate, Identity, Name, Pid, Published, Status, process};

use super::directories::listing;
#[cfg(test)]
use super::meanwhile::{self, Before};
use crate::limits::NAMES_OF_A_LOCK;
use crate::subordinate::owner_of;
use crate::sys::HANDLE;

/// A state directory with a smaller size than this has few records: a file adds 20 bytes to the size on tmpfs, twice
/// its name on btrfs, and one byte on ZFS.
const SMALL: u64 = 256;

/// How often a record is written again if other processes write one under the same name meanwhile.
const TRIES: usize = 8;

/// The most records that are read to find one.
const RECORDS: usize = 10_000;

/// The state directory, if there is one. Without it, the reuse of a pid is never noticed.
#[derive(Debug)]
pub(crate) struct HolderRecords {
    directory: Option<Directory>,
    /// The lock directory of which records are written.
    locks: Identity,
}

/// The facts that are remembered of one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HolderRecord {
    /// The holder, with the boot and pid namespace in which its number means something.
    pub holder: ProcessIdentity,
    /// The user of the holder at that time; `None` if unknown.
    pub uid: Option<u32>,
    /// The lock file of the record, and when it was written, in nanoseconds: a later lock with the same name and pid
    /// is another lock.
    pub file: Identity,
    /// See `file`.
    pub written: u128,
    /// The lock directory: services with other lock directories may keep their records in the same state directory.
    pub directory: Identity,
    /// The names of all lock files of this lock.
    pub names: Vec<Name>,
}

fn nanoseconds(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

/// The second name for a record, if a record of another lock directory has the first. No lock file has such a name.
fn beside(name: &Name, file: Identity) -> Option<Name> {
    Name::new(format!("{}.{}.{}", file.device, file.inode, name.as_str()))
}

impl HolderRecord {
    /// Whether its lock file was written at that moment.
    pub(crate) fn is_of(&self, written: SystemTime) -> bool {
        self.written == nanoseconds(written)
    }

    /// The lock of the record that has this name.
    fn lock_of<'n>(&'n self, entry: &'n Name) -> &'n Name {
        let is_it = |name: &&Name| beside(name, self.file).as_ref() == Some(entry);
        self.names.iter().find(is_it).unwrap_or(entry)
    }

    /// `None` if the boot or the pid namespace of the number is unknown.
    pub(crate) fn to_text(&self) -> Option<String> {
        let Self { holder, uid, file, written, directory, names } = self;
        let ProcessIdentity { pid, start, here } = holder;
        let (boot, namespace) = (here.boot.as_ref()?, here.namespace?);
        let uid = uid.map(|uid| format!("uid={uid} ")).unwrap_or_default();
        let shift = match here.shift.nanoseconds {
            0 => String::new(),
            nanoseconds => format!("shift={nanoseconds} "),
        };
        let Identity { device, inode } = file;
        let Identity { device: of_locks, inode: locks } = directory;
        let start = match start {
            Start::Nobody => "-".to_owned(),
            Start::Unknown => "?".to_owned(),
            Start::At(ticks) => ticks.to_string(),
        };
        let names: Vec<_> = names.iter().map(Name::as_str).collect();
        // No file name holds a slash.
        let names = names.join("/");
        Some(format!(
            "{uid}{shift}pid={pid} start={start} boot={boot} pidns={namespace} \
             file={device}:{inode}:{written}:{of_locks}:{locks} names={names}"
        ))
    }

    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let (uid, text) = optional(text, "uid=")?;
        let (shift, text) = optional(text, "shift=")?;
        let mut words = text.splitn(6, ' ');
        let mut field = |key: &str| words.next()?.strip_prefix(key);
        let pid = Pid::parse(field("pid=")?.as_bytes()).ok()?;
        let start = match field("start=")? {
            "-" => Start::Nobody,
            "?" => Start::Unknown,
            ticks => Start::At(ticks.parse().ok()?),
        };
        let boot = Some(field("boot=")?.to_owned());
        let namespace = Some(field("pidns=")?.parse().ok()?);
        let mut file = field("file=")?.split(':');
        let (device, inode) = (file.next()?.parse().ok()?, file.next()?.parse().ok()?);
        let written = file.next()?.parse().ok()?;
        let (of_locks, locks) = (file.next()?.parse().ok()?, file.next()?.parse().ok()?);
        let file = Identity { device, inode };
        let directory = Identity { device: of_locks, inode: locks };
        let names = field("names=")?.split('/').map(Name::new).collect::<Option<_>>()?;
        let shift = ClockShift { nanoseconds: shift.unwrap_or(0) };
        let here = Arc::new(Here { boot, namespace, shift });
        let holder = ProcessIdentity { pid, start, here };
        Some(Self { holder, uid, file, written, directory, names })
    }
}

/// An optional word at the start of the text; `None` if it cannot be read.
fn optional<'t, N: FromStr>(text: &'t str, key: &str) -> Option<(Option<N>, &'t str)> {
    let Some(rest) = text.strip_prefix(key) else { return Some((None, text)) };
    let (word, text) = rest.split_once(' ')?;
    Some((Some(word.parse().ok()?), text))
}

/// The process for which a lock is taken, as it was before the lock existed: a later process with the same number is
/// not the holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claimant {
    /// The identity of the process.
    pub who: ProcessIdentity,
    /// The real user of the process, if it exists; `None` if the user is unknown.
    pub uid: Option<u32>,
}

impl Claimant {
    /// Identifies a process before a lock is taken for it.
    pub(crate) fn of(machine: &mut Machine, pid: Pid) -> Self {
        Applicant::observe(machine, pid).claimant()
    }

    /// Whether there was such a process.
    #[must_use]
    pub(crate) fn was_there(&self) -> bool {
        self.who.start != Start::Nobody
    }
}

/// The process that asks for a lock, observed since before its rights were checked: its user is not that of a later
/// process with its number.
#[derive(Debug)]
pub struct Applicant {
    process: Observed,
    /// Its user, if that has been read since.
    user: Option<u32>,
}

impl Applicant {
    pub(crate) fn observe(machine: &mut Machine, pid: Pid) -> Self {
        Self { process: Observed::of(machine, pid), user: None }
    }

    /// The user of the process as it was read since, so that it is not read again; `None` if it was not.
    #[must_use]
    pub fn with_user(self, user: Option<u32>) -> Self {
        Self { user, ..self }
    }

    /// The number of the process.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.process.identity().pid
    }

    pub(crate) fn claimant(&self) -> Claimant {
        let who = self.process.identity().clone();
        let uid = self.user.or_else(|| process::real_user(who.pid));
        Claimant { uid: uid.filter(|_| matches!(who.start, Start::At(_))), who }
    }

    /// Whether it existed and has ended.
    pub(crate) fn has_ended(&self, machine: &mut Machine) -> bool {
        self.process.has_ended(machine)
    }
}

/// One file of a new lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// Its name.
    pub name: Name,
    /// The identity of the file.
    pub file: Identity,
    /// When it was written, by the file's time of change.
    pub at: SystemTime,
}

impl Written {
    pub(crate) fn of(name: &Name, published: &Published) -> Self {
        Self { name: name.clone(), file: published.identity, at: published.modified }
    }
}

impl HolderRecords {
    /// Opens the state directory, if there is one for this process, for the records of locks in this directory.
    ///
    /// # Errors
    /// There is one, and it cannot be opened now.
    pub(crate) fn open(path: &Path, locks: Identity) -> io::Result<Self> {
        let flags = HANDLE | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let handle = match nix::fcntl::open(path, flags, Mode::empty()) {
            Ok(handle) => handle,
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EACCES | Errno::EPERM) => {
                return Ok(Self { directory: None, locks });
            }
            Err(errno) => return Err(errno.into()),
        };
        Ok(Self { directory: Some(Directory::from_handle(handle)?.guarding()), locks })
    }

    /// Without a state directory: nothing is recorded.
    #[must_use]
    pub(crate) fn none() -> Self {
        Self { directory: None, locks: Identity { device: 0, inode: 0 } }
    }

    /// Whether a record is of another lock directory.
    pub(crate) fn is_anothers(&self, record: &HolderRecord) -> bool {
        record.directory != self.locks
    }

    /// The record of one file of a lock with these names.
    pub(crate) fn record_for(
        &self,
        claimant: &Claimant,
        file: &Written,
        names: Vec<Name>,
    ) -> HolderRecord {
        let Claimant { who, uid } = claimant.clone();
        let (directory, written) = (self.locks, nanoseconds(file.at));
        HolderRecord { holder: who, uid, file: file.file, written, directory, names }
    }

    /// The state directory; also for files that are more than records: their makers hold them by `flock(2)`. A directory
    /// that every user may write is not used: its content may be any user's, and `/tmp` is also searched for locks.
    #[must_use]
    pub(crate) fn directory(&self) -> Option<&Directory> {
        self.directory.as_ref().filter(|it| it.mode() & 0o002 == 0)
    }

    /// The identity of the directory, also if it is not used.
    #[must_use]
    pub(crate) fn identity(&self) -> Option<Identity> {
        self.directory.as_ref().map(Directory::identity)
    }

    /// Whether there is a state directory that every user may write.
    #[must_use]
    pub(crate) fn is_everybodys(&self) -> bool {
        self.directory.is_some() && self.directory().is_none()
    }

    /// The gate for breaking and removing locks: other users cannot lock a file in the state directory. `None` without
    /// such a directory.
    ///
    /// # Errors
    /// No descriptor is left for it.
    pub(crate) fn gate(&self) -> io::Result<Option<Gate>> {
        let Some(directory) = self.directory() else { return Ok(None) };
        Ok(Directory::from_handle(directory.as_fd().try_clone_to_owned()?)?.into_gate())
    }

    /// Remembers a lock under the name of each of its files: when its holder started, and all
    /// the names. `false` if nothing is recorded here: without a state directory that this user may write, or without
    /// `/proc`.
    ///
    /// `stands` says whether all these names still have their file: another process may have released the lock meanwhile,
    /// and its record would stay for ever. It is called for every name at the end, whether they could be recorded or not:
    /// for the names of one file together, and only if these do not all stand, for each.
    ///
    /// # Errors
    /// If the record cannot be written for another reason, as on a full disk.
    pub(crate) fn remember(
        &self,
        claimant: &Claimant,
        files: &[Written],
        mut stands: impl FnMut(&[Written]) -> bool,
    ) -> Result<bool, Errno> {
        let outcome = match self.record(claimant, files, &mut stands) {
            // The directory is gone, may not be written, or takes only shorter texts.
            Err(
                Errno::ENOENT | Errno::EACCES | Errno::EPERM | Errno::EROFS | Errno::ENAMETOOLONG,
            ) => Ok(false),
            outcome => outcome,
        };
        // In this order, because a release after the check also removes the record.
        let groups = files.chunk_by(|one, other| one.file == other.file);
        let doubtful = groups.filter(|group| !stands(group)).flatten().collect::<Vec<_>>();
        for lock in doubtful.into_iter().filter(|lock| !stands(slice::from_ref(lock))) {
            // The file of a later lock may have the same number.
            let found = self.of_file(&lock.name, lock.file).ok().flatten();
            let found = found.filter(|(.., record)| record.is_of(lock.at));
            found.iter().for_each(|record| self.sweep(record));
        }
        outcome
    }

    fn record(
        &self,
        claimant: &Claimant,
        files: &[Written],
        stands: &mut impl FnMut(&[Written]) -> bool,
    ) -> Result<bool, Errno> {
        let Some(handle) = self.directory() else { return Ok(false) };
        let names: Vec<Name> = files.iter().map(|file| file.name.clone()).collect();
        // The record of the first name is written last: it shows to which lock the others belong.
        for lock in files.iter().rev() {
            let name = &lock.name;
            let record = self.record_for(claimant, lock, names.clone());
            let Some(text) = record.to_text() else { return Ok(false) };
            #[cfg(test)]
            meanwhile::comes(Before::Record);
            let is_anothers = |it: &HolderRecord| self.is_anothers(it);
            if !write(handle, name, &text, is_anothers, || stands(slice::from_ref(lock)))? {
                let name = beside(name, lock.file).ok_or(Errno::ENAMETOOLONG)?;
                write(handle, &name, &text, |_| false, || stands(slice::from_ref(lock)))?;
            }
        }
        Ok(true)
    }

    /// Removes the record of a lock file that is gone, without holding `flock(2)` on it: the next lock may be recorded at
    /// this moment, and that record stays, even if its file has the same number.
    pub(crate) fn sweep(&self, (entry, text, _): &Entry) {
        if let Some(handle) = self.directory() {
            let _ = take_out(handle, entry, text);
        }
    }

    /// Removes the records that are `over`, by their own names and those of their locks; a link without a lock is no
    /// record. Returns how many were removed.
    pub(crate) fn sweep_all(
        &self,
        most: usize,
        over: impl Fn(&Name, Option<&Name>) -> bool,
    ) -> usize {
        let Some(handle) = self.directory() else { return 0 };
        let entries = self.entries(most, |_| true).into_iter();
        let is_removed = |(entry, text, record): &(Name, OsString, Option<HolderRecord>)| {
            let lock = record.as_ref().map(|record| record.lock_of(entry));
            // Unless it is about another lock by now.
            over(entry, lock) && take_out(handle, entry, text).is_ok()
        };
        entries.filter(is_removed).count()
    }

    /// Forgets the lock file of this name if it is gone. The next holder may have taken the name already, and be recorded.
    pub(crate) fn sweep_name(&self, name: &Name, is_there: impl FnOnce(Identity) -> bool) {
        let found = self.find(name).filter(|(.., record)| !is_there(record.file));
        found.iter().for_each(|record| self.sweep(record));
    }

    /// Forgets a lock file that is about to go, unless the record is about another one. The caller must hold
    /// `flock(2)` on that file.
    pub(crate) fn forget_lock(&self, name: &Name, file: Identity) {
        if let Ok(Some((entry, ..))) = self.of_file(name, file) {
            self.forget(&entry);
        }
    }

    /// Restores the record of a lock that was not removed after all. A record that was made meanwhile stays.
    pub(crate) fn put_back(&self, name: &Name, record: &HolderRecord) {
        let Some((handle, text)) = self.directory().zip(record.to_text()) else { return };
        let put = |name: &Name| symlinkat(text.as_str(), handle, name.as_str());
        let there = || parsed(&readlinkat(handle, name.as_str()).ok()?);
        if put(name).is_err() && there().is_some_and(|it| self.is_anothers(&it)) {
            let _ = beside(name, record.file).map(|name| put(&name));
        }
    }

    /// Forgets the record with this name of its own, under the same condition.
    pub(crate) fn forget(&self, name: &Name) {
        if let Some(handle) = self.directory() {
            // A record without its lock file is never believed, so a failure does no harm.
            let _ = unlinkat(handle, name.as_str(), UnlinkatFlags::NoRemoveDir);
        }
    }

    /// Whether there is room for another lock, with this limit of recorded lock files of all users.
    pub(crate) fn has_room_for_all(&self, limit: usize) -> bool {
        let is_small = |handle| Status::of_open(handle).is_ok_and(|stat| stat.size < SMALL);
        let room = limit.saturating_sub(NAMES_OF_A_LOCK);
        self.directory().is_none_or(is_small)
            || self.listing().is_none_or(|mut it| it.iter().take(limit).count() <= room)
    }

    fn listing(&self) -> Option<nix::dir::Dir> {
        listing(self.directory()?)
    }

    /// The number of recorded locks of a user and of those that this one owns, by their first files; `None` stands for those of processes that had ended.
    /// At most `most` records are read.
    #[must_use]
    pub(crate) fn count_of(&self, uid: Option<u32>, most: usize) -> usize {
        let is_first_of_user = |entry: &Name, it: &HolderRecord| {
            it.uid.map(owner_of) == uid && it.names.first() == Some(it.lock_of(entry))
        };
        let entries = self.entries(most, |_| true).into_iter();
        entries
            .filter(|(entry, _, it)| it.as_ref().is_some_and(|it| is_first_of_user(entry, it)))
            .count()
    }

    /// The links with these names, up to a bound: the own name, the text, and the record. Records of other lock directories
    /// are left out; a link without a record is no record at all.
    fn entries(
        &self,
        most: usize,
        is_wanted: impl Fn(&Name) -> bool,
    ) -> Vec<(Name, OsString, Option<HolderRecord>)> {
        let Some((handle, mut listing)) = self.directory().zip(self.listing()) else {
            return Vec::new();
        };
        // Records are links. Other files, such as the service's socket, are no records.
        let is_link = |entry: &nix::dir::Entry| entry.file_type() == Some(nix::dir::Type::Symlink);
        let links = listing.iter().map_while(Result::ok).take(most).filter(is_link);
        let read = |entry: nix::dir::Entry| {
            let name = Name::new(entry.file_name().to_str().ok()?).filter(&is_wanted)?;
            let text = readlinkat(handle, name.as_str()).ok()?;
            let record = parsed(&text);
            (!record.as_ref().is_some_and(|it| self.is_anothers(it)))
                .then_some((name, text, record))
        };
        links.filter_map(read).collect()
    }

    /// The record of this name, whichever lock of our directory it is about.
    #[must_use]
    pub(crate) fn read(&self, name: &Name) -> Option<HolderRecord> {
        self.find(name).map(|(.., record)| record)
    }

    /// The same, with its own name and its text. All records are listed only if another lock directory's has the name: most
    /// names that are looked up have none, and any user may ask.
    fn find(&self, name: &Name) -> Option<Entry> {
        let text = readlinkat(self.directory()?, name.as_str()).ok()?;
        let record = parsed(&text)?;
        if !self.is_anothers(&record) {
            return Some((name.clone(), text, record));
        }
        let ending = format!(".{}", name.as_str());
        let beside = |(entry, text, record): (Name, OsString, Option<HolderRecord>)| {
            let record = record.filter(|it| it.lock_of(&entry) == name)?;
            Some((entry, text, record))
        };
        let entries = self.entries(RECORDS, |entry| entry.as_str().ends_with(&ending));
        entries.into_iter().find_map(beside)
    }

    /// The record of a lock file: its own name, its text, and what it says.
    ///
    /// # Errors
    /// It is not known whether there is one.
    pub(crate) fn of_file(&self, name: &Name, file: Identity) -> Result<Option<Entry>, Errno> {
        let Some(handle) = self.directory() else { return Ok(None) };
        let second = std::iter::once_with(|| beside(name, file)).flatten();
        for name in std::iter::once(name.clone()).chain(second) {
            let text = match readlinkat(handle, name.as_str()) {
                Err(
                    Errno::ENOENT
                    | Errno::EINVAL
                    | Errno::ENAMETOOLONG
                    | Errno::EACCES
                    | Errno::EPERM,
                ) => continue,
                text => text?,
            };
            if let Some(record) = parsed(&text).filter(|record| record.file == file) {
                return Ok(Some((name, text, record)));
            }
        }
        Ok(None)
    }

    /// The record of the lock in `file`, which names `pid`.
    ///
    /// # Errors
    /// As [`HolderRecords::of_file`].
    pub(crate) fn of_lock(
        &self,
        name: &Name,
        pid: Pid,
        file: Identity,
        written: SystemTime,
    ) -> Result<Option<HolderRecord>, Errno> {
        let record = self.of_file(name, file)?.map(|(.., record)| record);
        Ok(record.filter(|it| it.holder.pid == pid && it.is_of(written)))
    }
}

/// A record: its own name, its text, and what it says.
pub(crate) type Entry = (Name, OsString, HolderRecord);

fn parsed(text: &OsStr) -> Option<HolderRecord> {
    HolderRecord::from_text(text.to_str()?)
}

/// Writes a record. Another one of the same name is of an earlier lock if our file `stands` afterwards. Otherwise our
/// lock was broken or released already, and that record stays: it may be of the next lock, whatever its time is.
/// `false` if the name is that of a record of another lock directory.
fn write(
    handle: &Directory,
    name: &Name,
    text: &str,
    is_anothers: impl Fn(&HolderRecord) -> bool,
    mut stands: impl FnMut() -> bool,
) -> Result<bool, Errno> {
    for _ in 0..TRIES {
        match symlinkat(text, handle, name.as_str()) {
            Err(Errno::EEXIST) => {}
            outcome => return outcome.map(|()| true),
        }
        let earlier = readlinkat(handle, name.as_str());
        if earlier.as_ref().is_ok_and(|it| parsed(it).is_some_and(|it| is_anothers(&it))) {
            return Ok(false);
        }
        // A record that says the same stays.
        if earlier.as_ref().is_ok_and(|it| it == text) || !stands() {
            return Ok(true);
        }
        match earlier {
            Ok(earlier) if readlinkat(handle, name.as_str()).as_ref() == Ok(&earlier) => {
                let new = aside();
                symlinkat(text, handle, new.as_str())?;
                match renameat(handle, new.as_str(), handle, name.as_str()) {
                    // A daemon that starts has swept it.
                    Err(Errno::ENOENT) => {}
                    outcome => return outcome.map(|()| true),
                }
            }
            // Another process has removed or replaced it meanwhile.
            Ok(_) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EEXIST)
}

/// A name that no record has. What a killed process leaves there is swept at the start of a daemon.
fn aside() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("swept.{}.{}", Pid::this(), now.as_nanos())
}

/// Removes the record with this text. Another process may write the next record at this moment. So the record is moved
/// aside first, read there, and put back if it is another one.
fn take_out(handle: &Directory, name: &Name, text: &OsStr) -> Result<(), Errno> {
    let aside = aside();
    match renameat(handle, name.as_str(), handle, aside.as_str()) {
        Err(Errno::ENOENT) => return Ok(()),
        outcome => outcome?,
    }
    // A hard link does not replace a later record, which then is the right one.
    if readlinkat(handle, aside.as_str()).is_ok_and(|it| it != text) {
        let _ = linkat(handle, aside.as_str(), handle, name.as_str(), AtFlags::empty());
    }
    unlinkat(handle, aside.as_str(), UnlinkatFlags::NoRemoveDir)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use pidlockfile::process::Fate;
    use rstest::rstest;

    use super::*;

    const LOCKS: Identity = Identity { device: 22, inode: 5 };

    fn record(start: Start) -> HolderRecord {
        let shift = ClockShift::default();
        let here = Here { boot: Some("b-1".to_owned()), namespace: Some(5), shift };
        HolderRecord {
            holder: ProcessIdentity { pid: Pid::new(77).unwrap(), start, here: Arc::new(here) },
            uid: (start != Start::Nobody).then_some(1000),
            file: Identity { device: 22, inode: 33 },
            written: 44,
            directory: LOCKS,
            names: ["LCK..a", "LCK..b c"].into_iter().filter_map(Name::new).collect(),
        }
    }

    fn claimant(pid: Pid) -> Claimant {
        Claimant { who: Machine::default().identify(pid), uid: process::real_user(pid) }
    }

    /// A state directory, and a lock that may be recorded there.
    struct Ground {
        dir: tempfile::TempDir,
        state: HolderRecords,
        lock: Written,
    }

    impl Ground {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let state = HolderRecords::open(dir.path(), LOCKS).unwrap();
            let file = Identity { device: 1, inode: 2 };
            let name = Name::new("LCK..ttyS0").unwrap();
            Self { dir, state, lock: Written { name, file, at: SystemTime::now() } }
        }

        /// Another lock file of that name.
        fn file(&self, inode: u64) -> Written {
            Written { file: Identity { device: 1, inode }, ..self.lock.clone() }
        }

        fn remember(&self, who: &Claimant, lock: &Written, stands: bool) {
            self.state.remember(who, slice::from_ref(lock), |_| stands).unwrap();
        }

        /// What has become of the holder of a recorded lock; `None` if it is not recorded.
        fn fate(&self, lock: &Written) -> Option<Fate> {
            let record =
                self.state.of_lock(&lock.name, Pid::this(), lock.file, lock.at).unwrap()?;
            Some(Machine::default().fate(&record.holder))
        }

        fn records(&self) -> usize {
            std::fs::read_dir(self.dir.path()).unwrap().count()
        }
    }

    #[rstest]
    #[case::at(Start::At(9))]
    #[case::nobody(Start::Nobody)]
    #[case::unknown(Start::Unknown)]
    fn records_survive_the_disk(#[case] start: Start) {
        let record = record(start);
        assert_eq!(HolderRecord::from_text(&record.to_text().unwrap()), Some(record));
    }

    #[test]
    fn the_shift_of_a_time_namespace_is_on_record() {
        let plain = record(Start::At(9));
        let shift = ClockShift { nanoseconds: -5_000_000_007 };
        let here = Arc::new(Here { shift, ..(*plain.holder.here).clone() });
        let record =
            HolderRecord { holder: ProcessIdentity { here, ..plain.holder.clone() }, ..plain };
        let text = record.to_text().unwrap();
        assert!(text.starts_with("uid=1000 shift=-5000000007 pid=77 "), "{text}");
        assert_eq!(HolderRecord::from_text(&text), Some(record));
    }

    /// If the system does not report our boot and pid namespace, nothing is recorded.
    #[test]
    fn a_number_that_may_mean_anything_is_not_put_on_record() {
        let holder = ProcessIdentity::bare(Pid::this());
        assert_eq!(HolderRecord { holder, ..record(Start::At(9)) }.to_text(), None);
    }

    #[rstest]
    #[case::empty("")]
    #[case::no_shift("shift=x pid=77 start=9 boot=b-1 pidns=5 file=22:33:44:22:5 names=LCK..a")]
    #[case::no_user("uid=x pid=77 start=9 boot=b-1 pidns=5 file=22:33:44:22:5 names=LCK..a")]
    #[case::other_order("start=9 pid=77 boot=b-1 pidns=5 file=22:33:44:22:5 names=LCK..a")]
    #[case::no_number("pid=77 start=x boot=b-1 pidns=5 file=22:33:44:22:5 names=LCK..a")]
    #[case::pid_zero("pid=0 start=9 boot=b-1 pidns=5 file=22:33:44:22:5 names=LCK..a")]
    #[case::cut("pid=77 start=9 boot=b-1 pidns=5 file=22:33 names=LCK..a")]
    #[case::half_a_directory("pid=77 start=9 boot=b-1 pidns=5 file=22:33:44:22 names=LCK..a")]
    #[case::no_names("pid=77 start=9 boot=b-1 pidns=5 file=22:33:44:22:5 names=")]
    #[case::climbing_name("pid=77 start=9 boot=b-1 pidns=5 file=22:33:44:22:5 names=LCK..a/..")]
    fn planted_records_are_not_read(#[case] text: &str) {
        assert_eq!(HolderRecord::from_text(text), None);
    }

    #[test]
    fn a_record_is_about_one_file_only() {
        let ground = Ground::new();
        let (state, lock, pid) = (&ground.state, &ground.lock, Pid::this());
        let other_name = Name::new("LCK..modem").unwrap();
        let files = [lock.clone(), Written { name: other_name.clone(), ..lock.clone() }];
        state.remember(&claimant(pid), &files, |_| true).unwrap();
        state.remember(&claimant(pid), &files, |_| true).unwrap();
        let names = vec![lock.name.clone(), other_name.clone()];
        for name in &names {
            let record = state.read(name).unwrap();
            assert_eq!((record.holder.pid, record.names), (pid, names.clone()));
        }
        assert_eq!(ground.fate(lock), Some(Fate::Same));
        let earlier = Written { at: UNIX_EPOCH + Duration::from_secs(5), ..lock.clone() };
        assert_eq!([ground.fate(&earlier), ground.fate(&ground.file(3))], [None, None]);
        state.forget(&lock.name);
        assert_eq!(ground.fate(lock), None);
    }

    #[test]
    fn a_lock_for_a_free_number_is_not_the_next_processs() {
        let ground = Ground::new();
        // This very process came after the lock was taken, and before it was recorded.
        let who = ProcessIdentity { start: Start::Nobody, ..claimant(Pid::this()).who };
        ground.remember(&Claimant { who, uid: None }, &ground.lock, true);
        assert_eq!(ground.fate(&ground.lock), Some(Fate::Replaced));
    }

    /// A process may be stopped for long before it records its lock, and the clock may be set meanwhile.
    #[rstest]
    fn only_a_lock_that_stands_replaces_a_record(
        #[values(-62_000_000_000, -1, 1, 62_000_000_000)] later: i64,
        #[values(true, false)] stands: bool,
        // The file of the later lock may have the number of the earlier one.
        #[values(2, 3)] inode: u64,
    ) {
        let ground = Ground::new();
        let then = UNIX_EPOCH + Duration::from_secs(1_763_700_000);
        let apart = Duration::from_nanos(later.unsigned_abs());
        let at = if later > 0 { then + apart } else { then - apart };
        let [known, ours] =
            [(3, at), (inode, then)].map(|(inode, at)| Written { at, ..ground.file(inode) });
        ground.remember(&claimant(Pid::this()), &known, true);
        let is_there = |locks: &[Written]| locks.iter().all(|lock| lock.at == known.at || stands);
        ground.state.remember(&claimant(Pid::this()), slice::from_ref(&ours), is_there).unwrap();
        let same = |is_it: bool| is_it.then_some(Fate::Same);
        assert_eq!([known, ours].map(|lock| ground.fate(&lock)), [same(!stands), same(stands)]);
    }

    /// Our lock is released, and the next one is recorded, just before the earlier record is removed.
    #[test]
    fn a_record_that_comes_at_the_last_moment_stays() {
        let ground = Ground::new();
        let who = claimant(Pid::this());
        let [earlier, ours, next] = [1, 2, 3].map(|inode| ground.file(inode));
        ground.remember(&who, &earlier, true);
        let stands = std::cell::Cell::new(true);
        let is_there = |_: &[Written]| {
            let stands = stands.replace(false);
            if stands {
                ground.remember(&who, &next, true);
            }
            stands
        };
        ground.state.remember(&who, &[ours], is_there).unwrap();
        assert_eq!((ground.fate(&next), ground.records()), (Some(Fate::Same), 1));
    }

    /// The file of the next lock has the same number, and is recorded before the earlier record is swept.
    #[test]
    fn a_sweep_leaves_the_record_of_the_next_lock() {
        let ground = Ground::new();
        let who = claimant(Pid::this());
        let next = Written { at: UNIX_EPOCH + Duration::from_secs(5), ..ground.lock.clone() };
        ground.remember(&who, &ground.lock, true);
        let is_there = |_| {
            ground.remember(&who, &next, true);
            false
        };
        ground.state.sweep_name(&next.name, is_there);
        assert_eq!((ground.fate(&next), ground.records()), (Some(Fate::Same), 1));
    }

    /// While a lock of several names is passed or given back, each record leads to the note about that.
    #[test]
    fn a_record_that_is_replaced_is_never_absent() {
        let ground = Ground::new();
        let who = claimant(Pid::this());
        ground.remember(&who, &ground.lock, true);
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let is_absent = || ground.state.read(&ground.lock.name).is_none();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    assert!(!is_absent());
                }
            });
            for inode in 0..3000 {
                ground.remember(&who, &ground.file(inode), true);
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            reader.join().unwrap();
        });
        assert_eq!(ground.records(), 1);
    }

    #[test]
    fn a_lock_that_is_gone_leaves_no_record() {
        let ground = Ground::new();
        let (Ground { state, lock, .. }, other) = (&ground, ground.file(3).file);
        ground.remember(&claimant(Pid::this()), lock, false);
        assert_eq!(ground.records(), 0);
        ground.remember(&claimant(Pid::this()), lock, true);
        state.forget_lock(&lock.name, other);
        assert!(state.of_file(&lock.name, other).unwrap().is_none());
        assert_eq!(ground.fate(lock), Some(Fate::Same));
        state.forget_lock(&lock.name, lock.file);
        assert_eq!(ground.records(), 0);
    }

    #[test]
    fn a_claimant_is_one_process_only() {
        let mut machine = Machine::default();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::new(i64::from(child.id())).unwrap();
        for pid in [Pid::this(), pid, pid, Pid::this(), pid] {
            assert_eq!(Claimant::of(&mut machine, pid), claimant(pid));
        }
        let before = Claimant::of(&mut machine, pid);
        assert!(!machine.has_ended(&before.who));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(machine.has_ended(&before.who));
        let gone = Claimant::of(&mut machine, pid);
        assert_eq!((gone.was_there(), gone.uid), (false, None));
    }

    /// The start time that counts was read before the lock was taken, however late the record is written.
    #[test]
    fn a_late_record_is_about_the_process_that_was_there() {
        let ground = Ground::new();
        // This process has the number of one that started earlier.
        let here = claimant(Pid::this());
        let Start::At(ticks) = here.who.start else { unreachable!("it may be seen") };
        let who = ProcessIdentity { start: Start::At(ticks - 1), ..here.who.clone() };
        ground.remember(&Claimant { who, ..here }, &ground.lock, true);
        assert_eq!(ground.fate(&ground.lock), Some(Fate::Replaced));
    }

    #[test]
    fn records_that_anybody_may_have_written_are_not_read() {
        let mut ground = Ground::new();
        ground.remember(&claimant(Pid::this()), &ground.lock, true);
        for (mode, is_everybodys) in [(0o1777, true), (0o775, false)] {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(ground.dir.path(), mode).unwrap();
            ground.state = HolderRecords::open(ground.dir.path(), LOCKS).unwrap();
            assert_eq!(ground.state.is_everybodys(), is_everybodys);
            assert_eq!(ground.state.directory().is_none(), is_everybodys);
            let fate = (!is_everybodys).then_some(Fate::Same);
            assert_eq!(ground.fate(&ground.lock), fate);
        }
    }

    #[test]
    fn without_a_state_directory_nothing_is_guessed() {
        let mut ground = Ground::new();
        ground.state = HolderRecords::open(Path::new("/nonexistent/state"), LOCKS).unwrap();
        let files = [ground.lock.clone()];
        let remembered = ground.state.remember(&claimant(Pid::this()), &files, |_| true);
        assert_eq!((remembered, ground.fate(&ground.lock)), (Ok(false), None));
        assert!(ground.state.directory().is_none());
    }
}
