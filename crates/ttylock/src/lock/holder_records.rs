//! Records about the locks that we wrote: when their holders started, so that a later process with the same
//! pid is not taken for the holder; and the names of the lock, so that it can be released when the device and
//! its links are gone.
//!
//! A lock file has room for a pid and nothing else. The rest is kept in the state directory, in one symbolic
//! link for each lock file, whose *target* is the record. One system call makes a link, so no record is ever
//! half written, and reading one opens nothing. Only we may write that directory. Even so, a record is ignored unless
//! it matches the lock file exactly.
//!
//! The link is named after the lock file: `held.DEVICE.INODE.NANOSECONDS`, by the time at which the file was written. It is
//! made before the file has a name of a lock, and goes after the last one, so no lock of ours is visible without it. It
//! counts only for a file with this identity and time that has one of its names and says its number. Services with
//! different lock directories may share a state directory, as in a container that has a `/run/lock` of its own. So each
//! record also tells its lock directory, and a service leaves the records of other directories alone.

use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pidlockfile::process::{ClockShift, Here, Machine, Observed, ProcessIdentity, Start};
use pidlockfile::{Age, Directory, Gate, Identity, Linked, Name, Pid, Status, process};
use rustix::fs::{
    AtFlags, Dir, DirEntry, FileType, Mode, OFlags, readlinkat_raw, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::directories::{Place, WrittenFile, listing};
use crate::limits::NAMES_OF_A_LOCK;
use crate::subordinate::owner_of;
use crate::sys::HANDLE;

/// A state directory with a smaller size than this has few records: a file adds 20 bytes to the size on tmpfs, twice
/// its name on btrfs, and one byte on ZFS.
const SMALL: u64 = 256;

/// The start of a record's name.
const HELD: &str = "held";

/// The start of the name of a link from a receiver's file to the giver's.
const FROM: &str = "from";

/// The private name of the file of a lock in the text of a record; the second if the lock was passed.
const DRAFT: &str = "draft=";
const PASSED: &str = "passed=";

/// More than most records have.
const USUAL_BYTES: usize = 256;

/// The longest target of a link (`PATH_MAX`).
const PATH_BYTES: usize = 4096;

/// How often another name is tried for a record if there is one of that name: the file then gets a time a second earlier.
const TRIES: usize = 8;

/// A younger record may be of a lock that is being taken.
const TIME_TO_TAKE: Duration = Duration::from_secs(60);

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
    /// The name of its link.
    pub entry: Name,
    /// The holder, with the boot and pid namespace in which its number means something.
    pub holder: ProcessIdentity,
    /// The user of the holder at that time; `None` if unknown.
    pub uid: Option<u32>,
    /// The lock file of the record: a later lock with the same name and pid is another lock.
    pub file: WrittenFile,
    /// The lock directory: services with other lock directories may keep their records in the same state directory.
    pub directory: Identity,
    /// All names of this lock.
    pub names: Vec<Name>,
    /// The name of the file until it has those.
    pub draft: Option<Name>,
    /// Whether the lock was passed in several steps. Then the private names of the PASS follow from `draft`.
    pub is_passed: bool,
}

impl WrittenFile {
    /// The name of a link about this file in the state directory.
    fn entry(self, start: &str) -> Option<Name> {
        let Identity { device, inode } = self.identity;
        let [device, inode, written] = [device, inode, self.written].map(|it| it.to_string());
        Name::new([start, &device, &inode, &written].join("."))
    }

    fn from_text(text: &str, separator: char) -> Option<Self> {
        let mut numbers = text.split(separator);
        let file = Self::in_numbers(&mut numbers)?;
        numbers.next().is_none().then_some(file)
    }

    fn in_numbers<'t>(numbers: &mut impl Iterator<Item = &'t str>) -> Option<Self> {
        let identity = identity_in(numbers)?;
        Some(Self { identity, written: numbers.next()?.parse().ok()? })
    }
}

impl fmt::Display for WrittenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Identity { device, inode } = self.identity;
        write!(f, "{device}:{inode}:{}", self.written)
    }
}

fn identity_in<'t>(numbers: &mut impl Iterator<Item = &'t str>) -> Option<Identity> {
    Some(Identity { device: numbers.next()?.parse().ok()?, inode: numbers.next()?.parse().ok()? })
}

/// How the holder of a record came to its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// By a LOCK, or by a PASS in one exchange, of which nothing can be left half-way.
    Taken,
    /// By a PASS in several steps, which may not be finished.
    Passed,
}

impl HolderRecord {
    /// `None` if the boot or the pid namespace of the number is unknown.
    pub(crate) fn to_text(&self) -> Option<String> {
        let Self { holder, uid, file, directory, names, draft, is_passed, .. } = self;
        let ProcessIdentity { pid, start, here } = holder;
        let (boot, namespace) = (here.boot.as_ref()?, here.namespace?);
        let mut text = String::with_capacity(USUAL_BYTES);
        if let Some(uid) = uid {
            write!(text, "uid={uid} ").ok()?;
        }
        if here.shift.nanoseconds != 0 {
            write!(text, "shift={} ", here.shift.nanoseconds).ok()?;
        }
        if let Some(draft) = draft {
            let key = if *is_passed { PASSED } else { DRAFT };
            write!(text, "{key}{draft} ").ok()?;
        }
        write!(text, "pid={pid} start=").ok()?;
        match start {
            Start::Nobody => text.push('-'),
            Start::Unknown => text.push('?'),
            Start::At(ticks) => write!(text, "{ticks}").ok()?,
        }
        let Identity { device: of_locks, inode: locks } = directory;
        write!(text, " boot={boot} pidns={namespace} file={file}:{of_locks}:{locks} names=")
            .ok()?;
        for (at, name) in names.iter().enumerate() {
            // No file name holds a slash.
            text.push_str(if at == 0 { "" } else { "/" });
            text.push_str(name.as_str());
        }
        Some(text)
    }

    pub(crate) fn from_text(entry: Name, text: &str) -> Option<Self> {
        let (uid, text) = optional(text, "uid=")?;
        let (shift, text) = optional(text, "shift=")?;
        let (draft, text) = optional::<String>(text, DRAFT)?;
        let (passed, text) = optional::<String>(text, PASSED)?;
        let is_passed = passed.is_some();
        let draft = draft.or(passed).and_then(Name::new);
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
        let mut numbers = field("file=")?.split(':');
        let file = WrittenFile::in_numbers(&mut numbers)?;
        let directory = identity_in(&mut numbers)?;
        let names = field("names=")?.split('/').map(Name::new).collect::<Option<_>>()?;
        let shift = ClockShift { nanoseconds: shift.unwrap_or(0) };
        let here = Arc::new(Here { boot, namespace, shift });
        let holder = ProcessIdentity { pid, start, here };
        Some(Self { entry, holder, uid, file, directory, names, draft, is_passed })
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
    process: Arc<Observed>,
    /// Its user, if that has been read since.
    user: Option<u32>,
}

impl Applicant {
    pub(crate) fn observe(machine: &mut Machine, pid: Pid) -> Self {
        Self { process: Arc::new(Observed::of(machine, pid)), user: None }
    }

    /// The same for a process that asks again and again: as long as it lives, what shows it stays open.
    pub(crate) fn observe_again(
        last: &mut Option<Arc<Observed>>,
        machine: &mut Machine,
        pid: Pid,
    ) -> Self {
        let applicant =
            Self::known(last.as_ref(), pid).unwrap_or_else(|| Self::observe(machine, pid));
        *last = Some(Arc::clone(&applicant.process));
        applicant
    }

    /// The process that has asked last, if it has this number and lives.
    pub(crate) fn known(last: Option<&Arc<Observed>>, pid: Pid) -> Option<Self> {
        let known = last.filter(|it| it.identity().pid == pid && it.is_there());
        known.map(|process| Self { process: Arc::clone(process), user: None })
    }

    /// The user of the process as it was read since, so that it is not read again; `None` if it was not.
    #[must_use]
    pub fn with_user(self, user: Option<u32>) -> Self {
        Self { user, ..self }
    }

    /// Its `/proc/PID/status`, as [`Observed::status`].
    #[must_use]
    pub fn status(&self) -> Option<&File> {
        self.process.status()
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

impl HolderRecords {
    /// Opens the state directory, if there is one for this process, for the records of locks in this directory.
    ///
    /// # Errors
    /// There is one, and it cannot be opened now.
    pub(crate) fn open(path: &Path, locks: Identity) -> io::Result<Self> {
        let flags = HANDLE | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(handle) => handle,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::PERM) => {
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

    /// The record of a lock file. `None` if a record cannot have its name.
    pub(crate) fn record_for(
        &self,
        claimant: &Claimant,
        names: &[Name],
        file: WrittenFile,
    ) -> Option<HolderRecord> {
        let Claimant { who, uid } = claimant.clone();
        Some(HolderRecord {
            entry: file.entry(HELD)?,
            holder: who,
            uid,
            file,
            directory: self.locks,
            names: names.to_vec(),
            draft: None,
            is_passed: false,
        })
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
    pub(crate) fn gate(&self) -> Option<Gate> {
        self.directory()?.as_gate()
    }

    /// Remembers a lock that is going to have these names, before its file has one: when its holder started, and the names.
    /// `None` if nothing is recorded here: without a state directory that this user may write and that takes so long a text,
    /// or without `/proc`.
    ///
    /// # Errors
    /// If the record cannot be written for another reason, as on a full disk.
    pub(crate) fn remember(
        &self,
        claimant: &Claimant,
        names: &[Name],
        origin: Origin,
        file: &mut Linked<'_>,
    ) -> Result<Option<HolderRecord>, Errno> {
        for _ in 0..TRIES {
            let written = WrittenFile::written_at(file.identity(), file.modified());
            let record = self.record_for(claimant, names, written);
            let Some(mut record) = record else { return Ok(None) };
            record.draft = Some(file.private_name().clone());
            record.is_passed = origin == Origin::Passed;
            match self.write(&record) {
                // An earlier file had the same number, and a time that differs by less than the file system keeps. Never
                // a later time: some programs take files from the future for stale.
                Err(Errno::EXIST) => file.make_earlier().map_err(|_| Errno::EXIST)?,
                outcome => return outcome.map(|is_written| is_written.then_some(record)),
            }
        }
        Err(Errno::EXIST)
    }

    /// Writes a record, and replaces none. `false` as for [`HolderRecords::remember`].
    pub(crate) fn write(&self, record: &HolderRecord) -> Result<bool, Errno> {
        let Some((handle, text)) = self.directory().zip(record.to_text()) else { return Ok(false) };
        match symlinkat(text.as_str(), handle, record.entry.as_str()) {
            // The directory is gone, may not be written, or takes only shorter texts.
            Err(Errno::NOENT | Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NAMETOOLONG) => {
                Ok(false)
            }
            outcome => outcome.map(|()| true),
        }
    }

    /// Removes the record of a lock whose file has none of its names any more. The caller must have that file open, or
    /// keep a private name of it, so that its number is no other file's; or the record is old ([`HolderRecords::is_over`]).
    /// Returns whether the record was removed. One without its lock file is never believed, so a failure does no harm.
    pub(crate) fn remove(&self, record: &HolderRecord) -> bool {
        self.unlink(&record.entry).is_ok()
    }

    fn unlink(&self, entry: &Name) -> Result<(), Errno> {
        let handle = self.directory().ok_or(Errno::NOENT)?;
        unlinkat(handle, entry.as_str(), AtFlags::empty())
    }

    /// The same by one of the lock's names, if there is such a record and none of its names leads to the file: it may have
    /// further names, of another port whose link has come to this device.
    pub(crate) fn remove_if_nameless(&self, own: &Place, name: &Name, lock: WrittenFile) {
        let record = self.of_file(own.directory.identity(), name, lock).ok().flatten();
        let leads =
            |record: &HolderRecord| record.names.iter().any(|name| own.may_lead_to(name, lock));
        if let Some(record) = record.filter(|it| !leads(it)) {
            self.remove(&record);
        }
    }

    /// Notes from which files a recorded lock is going to be passed, before the first of its names is.
    pub(crate) fn begin_pass(
        &self,
        receiver: &HolderRecord,
        givers: &[WrittenFile],
    ) -> Result<(), Errno> {
        let from = self.directory().zip(receiver.file.entry(FROM));
        let (handle, entry) = from.ok_or(Errno::NOENT)?;
        let text: Vec<String> = givers.iter().map(|it| it.to_string()).collect();
        let write = || symlinkat(text.join("/").as_str(), handle, entry.as_str());
        match write() {
            // Of a file that is gone: the record of this one is new.
            Err(Errno::EXIST) => {
                self.unlink(&entry)?;
                write()
            }
            outcome => outcome,
        }
    }

    /// The giver's files, as long as the lock of this record is being passed to its holder.
    ///
    /// # Errors
    /// It is not known whether it is.
    pub(crate) fn givers_of(
        &self,
        receiver: &HolderRecord,
    ) -> Result<Option<Vec<WrittenFile>>, Errno> {
        let from = self.directory().zip(receiver.file.entry(FROM));
        let Some((handle, entry)) = from else { return Ok(None) };
        match readlinkat(handle, entry.as_str()) {
            Ok(text) => {
                let givers = text.split('/').filter_map(|it| WrittenFile::from_text(it, ':'));
                Ok(Some(givers.collect()))
            }
            Err(Errno::NOENT | Errno::INVAL) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// The lock is not being passed any more.
    pub(crate) fn end_pass(&self, receiver: WrittenFile) -> Result<(), Errno> {
        let Some(entry) = receiver.entry(FROM) else { return Ok(()) };
        match self.unlink(&entry) {
            Err(Errno::NOENT) => Ok(()),
            outcome => outcome,
        }
    }

    /// The links of this lock directory that a PASS has left, each with the record of the receiver's lock. Without that, it
    /// may be of any directory.
    pub(crate) fn unfinished(&self, most: usize) -> Vec<(Name, Option<HolderRecord>)> {
        let Some(listing) = self.listing() else { return Vec::new() };
        let names = listing.map_while(Result::ok);
        let names = names.filter_map(|entry| Name::new(entry.file_name().to_str().ok()?));
        let links = names.filter_map(|entry| {
            let record = self.receiver_of(&entry)?;
            Some((entry, record))
        });
        let is_ours =
            |record: &Option<HolderRecord>| !record.as_ref().is_some_and(|it| self.is_anothers(it));
        links.filter(|(_, record)| is_ours(record)).take(most).collect()
    }

    /// The record of the receiver's lock to which a link of a PASS belongs, if it has one. `None` if it is no such link.
    fn receiver_of(&self, from: &Name) -> Option<Option<HolderRecord>> {
        let file = from.as_str().strip_prefix(FROM)?.strip_prefix('.')?;
        let held = WrittenFile::from_text(file, '.')?.entry(HELD)?;
        let record = readlinkat(self.directory()?, held.as_str()).ok();
        Some(record.and_then(|text| HolderRecord::from_text(held, &text)))
    }

    /// Removes such a link if there is still no record to it. Returns whether it is gone.
    pub(crate) fn remove_orphan(&self, from: &Name) -> bool {
        self.receiver_of(from).is_some_and(|record| record.is_none()) && self.unlink(from).is_ok()
    }

    /// The records of locks of this directory that are gone; at most `most` records are read. Young ones are left out.
    pub(crate) fn missing(&self, own: &Place, most: usize) -> Vec<HolderRecord> {
        let mut records = self.entries(most);
        records.retain(|record| self.is_over(own, record));
        records
    }

    /// Whether a record is old, and no name leads to its file.
    pub(crate) fn is_over(&self, own: &Place, record: &HolderRecord) -> bool {
        let Some(handle) = self.directory() else { return false };
        let made = Status::of_name(handle, record.entry.as_str()).map(|seen| seen.modified);
        let is_old = |at| Age::of([at], SystemTime::now()).reaches(TIME_TO_TAKE);
        // The draft first: it has the names of the lock before its own goes.
        let mut names = record.draft.iter().chain(&record.names);
        made.is_ok_and(is_old) && names.all(|name| !own.may_lead_to(name, record.file))
    }

    /// Whether there are so few records, of all users together, that no user can have `limit` locks: then they need not be
    /// counted.
    pub(crate) fn are_surely_fewer_than(&self, limit: usize) -> bool {
        let is_small = |handle| Status::of_open(handle).is_ok_and(|stat| stat.size < SMALL);
        let room = limit.saturating_sub(NAMES_OF_A_LOCK);
        self.directory().is_none_or(is_small)
            || self.listing().is_none_or(|it| it.take(limit).count() <= room)
    }

    fn listing(&self) -> Option<Dir> {
        listing(self.directory()?)
    }

    /// The number of recorded locks of a user and of those that this one owns, by their first names; `None` stands for
    /// those of processes that had ended. At most `most` records are read.
    #[must_use]
    pub(crate) fn count_of(&self, uid: Option<u32>, most: usize) -> usize {
        let records = self.entries(most);
        let own = records.iter().filter(|it| it.uid.map(owner_of) == uid);
        own.filter_map(|it| it.names.first()).collect::<BTreeSet<_>>().len()
    }

    /// The records of our lock directory, up to a bound.
    fn entries(&self, most: usize) -> Vec<HolderRecord> {
        let Some((handle, listing)) = self.directory().zip(self.listing()) else {
            return Vec::new();
        };
        // Records are links. Other files, such as the service's socket, are no records.
        let is_link = |entry: &DirEntry| entry.file_type() == FileType::Symlink;
        let links = listing.map_while(Result::ok).take(most).filter(is_link);
        let read = |entry: DirEntry| {
            let name = Name::new(entry.file_name().to_str().ok()?)?;
            let text = readlinkat(handle, name.as_str()).ok()?;
            HolderRecord::from_text(name, &text).filter(|it| !self.is_anothers(it))
        };
        links.filter_map(read).collect()
    }

    /// The record of a lock file that has this name, in that lock directory.
    ///
    /// # Errors
    /// It is not known whether there is one.
    pub(crate) fn of_file(
        &self,
        directory: Identity,
        name: &Name,
        file: WrittenFile,
    ) -> Result<Option<HolderRecord>, Errno> {
        let Some((handle, entry)) = self.directory().zip(file.entry(HELD)) else { return Ok(None) };
        let text = match readlinkat(handle, entry.as_str()) {
            Err(Errno::NOENT | Errno::INVAL | Errno::ACCESS | Errno::PERM) => return Ok(None),
            text => text?,
        };
        let is_it = |it: &HolderRecord| {
            it.file == file && it.directory == directory && it.names.contains(name)
        };
        Ok(HolderRecord::from_text(entry, &text).filter(is_it))
    }
}

/// The target of a link in an open directory; empty if it is not text.
fn readlinkat(handle: impl AsFd, entry: &str) -> Result<String, Errno> {
    let mut room = [MaybeUninit::uninit(); PATH_BYTES];
    let (target, _) = readlinkat_raw(handle, entry, &mut room)?;
    Ok(std::str::from_utf8(target).unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    use pidlockfile::NewFile;
    use pidlockfile::process::Fate;
    use rstest::rstest;

    use super::*;

    const LOCKS: Identity = Identity { device: 22, inode: 5 };

    fn entry() -> Name {
        Name::new("held.22.33.44").unwrap()
    }

    fn record(start: Start) -> HolderRecord {
        let shift = ClockShift::default();
        let here = Here { boot: Some("b-1".to_owned()), namespace: Some(5), shift };
        HolderRecord {
            entry: entry(),
            holder: ProcessIdentity { pid: Pid::new(77).unwrap(), start, here: Arc::new(here) },
            uid: (start != Start::Nobody).then_some(1000),
            file: WrittenFile { identity: Identity { device: 22, inode: 33 }, written: 44 },
            directory: LOCKS,
            names: ["LCK..a", "LCK..b c"].into_iter().filter_map(Name::new).collect(),
            draft: (!matches!(start, Start::At(_))).then(|| Name::new("lfpd.7.x.tmp")).flatten(),
            is_passed: start == Start::Unknown,
        }
    }

    fn read(text: &str) -> Option<HolderRecord> {
        HolderRecord::from_text(entry(), text)
    }

    fn claimant(pid: Pid) -> Claimant {
        Claimant { who: Machine::default().identify(pid), uid: process::real_user(pid) }
    }

    /// A state directory and a lock directory.
    struct Ground {
        dir: tempfile::TempDir,
        own: Place,
        state: HolderRecords,
        names: [Name; 2],
    }

    impl Ground {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            for name in ["lock", "state"] {
                std::fs::create_dir(dir.path().join(name)).unwrap();
            }
            let own = Place::open(&dir.path().join("lock")).unwrap();
            let state = dir.path().join("state");
            let state = HolderRecords::open(&state, own.directory.identity()).unwrap();
            Self { dir, own, state, names: ["LCK..a", "LCK..b"].map(|it| Name::new(it).unwrap()) }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        fn draft(&self) -> Linked<'_> {
            self.own.directory.linked(&NewFile::new(b"        77\n", "lfpd")).unwrap()
        }

        fn remember(&self, who: &Claimant, file: &mut Linked<'_>) -> Result<bool, Errno> {
            self.state
                .remember(who, &self.names, Origin::Taken, file)
                .map(|record| record.is_some())
        }

        /// The record of a lock file under its first name.
        fn record(&self, file: &Linked<'_>) -> Option<HolderRecord> {
            let directory = self.own.directory.identity();
            let written = WrittenFile::written_at(file.identity(), file.modified());
            self.state.of_file(directory, &self.names[0], written).unwrap()
        }

        /// What has become of the holder of a recorded lock; `None` if it is not recorded.
        fn fate(&self, file: &Linked<'_>) -> Option<Fate> {
            self.record(file).map(|record| Machine::default().fate(&record.holder))
        }

        fn records(&self) -> Vec<String> {
            let entries = std::fs::read_dir(self.path("state")).unwrap().flatten();
            entries.map(|it| it.file_name().into_string().unwrap()).collect()
        }

        /// Makes all records older than the time that it takes to take a lock.
        fn age(&self) {
            let long_ago = rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 };
            let times =
                rustix::fs::Timestamps { last_access: long_ago, last_modification: long_ago };
            for name in self.records() {
                let (path, flags) = (self.path("state").join(name), AtFlags::SYMLINK_NOFOLLOW);
                rustix::fs::utimensat(rustix::fs::CWD, path, &times, flags).unwrap();
            }
        }
    }

    #[rstest]
    #[case::at(Start::At(9))]
    #[case::nobody(Start::Nobody)]
    #[case::unknown(Start::Unknown)]
    fn records_survive_the_disk(#[case] start: Start) {
        let record = record(start);
        assert_eq!(read(&record.to_text().unwrap()), Some(record));
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
        assert_eq!(read(&text), Some(record));
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
        assert_eq!(read(text), None);
    }

    /// It counts for the file with this identity and time, under one of its names, in its directory.
    #[test]
    fn a_record_is_about_one_file_only() {
        let ground = Ground::new();
        let (mut file, pid) = (ground.draft(), Pid::this());
        assert_eq!(ground.remember(&claimant(pid), &mut file), Ok(true));
        let record = ground.record(&file).unwrap();
        assert_eq!((record.holder.pid, &record.names[..]), (pid, &ground.names[..]));
        assert_eq!(record.draft.as_ref(), Some(file.private_name()));
        assert_eq!(ground.fate(&file), Some(Fate::Same));
        let (at, other) = (file.modified(), ground.draft());
        let earlier = at - Duration::from_secs(1);
        let own = ground.own.directory.identity();
        let of = |directory, name: &str, (identity, at)| {
            let written = WrittenFile::written_at(identity, at);
            let found = ground.state.of_file(directory, &Name::new(name).unwrap(), written);
            found.unwrap().is_some()
        };
        assert!(of(own, "LCK..b", (file.identity(), at)));
        assert!(!of(own, "LCK..b", (file.identity(), earlier)));
        assert!(!of(own, "LCK..b", (other.identity(), at)));
        assert!(!of(own, "LCK..c", (file.identity(), at)));
        assert!(!of(LOCKS, "LCK..b", (file.identity(), at)));
        assert!(ground.state.remove(&record));
        assert_eq!((ground.fate(&file), ground.records()), (None, vec![]));
    }

    /// The record of an earlier file may still have the name that belongs to a new one: ext4 with small inodes keeps whole
    /// seconds. No record is replaced, and no file is made to look younger.
    #[rstest]
    #[case::once(1, Ok(true))]
    #[case::as_often_as_it_is_tried(TRIES - 1, Ok(true))]
    #[case::too_often(TRIES, Err(Errno::EXIST))]
    fn a_file_whose_record_would_have_a_taken_name_gets_an_earlier_time(
        #[case] taken: usize,
        #[case] expected: Result<bool, Errno>,
    ) {
        let ground = Ground::new();
        let mut file = ground.draft();
        let at = file.modified();
        let mut entries = Vec::new();
        for seconds in 0..taken {
            let at = at - Duration::from_secs(u64::try_from(seconds).unwrap());
            let entry = WrittenFile::written_at(file.identity(), at).entry(HELD).unwrap();
            symlink("another", ground.path("state").join(entry.as_str())).unwrap();
            entries.push(entry);
        }
        assert_eq!(ground.remember(&claimant(Pid::this()), &mut file), expected);
        for entry in entries {
            let text = std::fs::read_link(ground.path("state").join(entry.as_str())).unwrap();
            assert_eq!(text.to_str(), Some("another"));
        }
        if expected.is_ok() {
            let by = Duration::from_secs(u64::try_from(taken).unwrap());
            assert_eq!((file.modified(), ground.fate(&file)), (at - by, Some(Fate::Same)));
            let path = ground.path("lock").join(file.private_name().as_str());
            assert_eq!(path.metadata().unwrap().modified().unwrap(), file.modified());
        }
    }

    /// What may lead to the file of a record, and whether the record is old.
    #[rstest]
    #[case::its_draft("lfpd", true, false)]
    #[case::its_first_name("LCK..a", true, false)]
    #[case::another_name("LCK..b", true, false)]
    #[case::a_name_that_is_not_its_own("LCK..c", true, true)]
    #[case::nothing_yet("LCK..c", false, false)]
    fn a_record_is_swept_when_no_name_leads_to_its_file(
        #[case] name: &str,
        #[case] is_old: bool,
        #[case] is_swept: bool,
    ) {
        let ground = Ground::new();
        let mut file = ground.draft();
        assert_eq!(ground.remember(&claimant(Pid::this()), &mut file), Ok(true));
        let private = ground.path("lock").join(file.private_name().as_str());
        if name != "lfpd" {
            std::fs::rename(private, ground.path("lock").join(name)).unwrap();
        }
        // Another file has another of its names.
        std::fs::write(ground.path("lock").join("LCK..b").with_extension("x"), "").unwrap();
        if is_old {
            ground.age();
        }
        assert_eq!(!ground.state.missing(&ground.own, 100).is_empty(), is_swept);
        // The records of another lock directory are left to its services.
        let others = HolderRecords::open(&ground.path("state"), LOCKS).unwrap();
        assert!(others.missing(&ground.own, 100).is_empty());
    }

    /// One lock counts once, however many files it has.
    #[test]
    fn the_locks_of_a_user_are_counted() {
        let ground = Ground::new();
        let count = || ground.state.count_of(Some(process::real_user(Pid::this()).unwrap()), 100);
        let mut files = [ground.draft(), ground.draft()];
        for file in &mut files {
            assert_eq!(ground.remember(&claimant(Pid::this()), file), Ok(true));
        }
        assert_eq!((count(), ground.records().len()), (1, 2));
        let other = [Name::new("LCK..c").unwrap()];
        let mut file = ground.draft();
        assert!(
            ground
                .state
                .remember(&claimant(Pid::this()), &other, Origin::Taken, &mut file)
                .unwrap()
                .is_some()
        );
        assert_eq!((count(), ground.state.count_of(None, 100)), (2, 0));
    }

    #[test]
    fn a_lock_for_a_free_number_is_not_the_next_processs() {
        let ground = Ground::new();
        // This very process came after the lock was taken, and before it was recorded.
        let who = ProcessIdentity { start: Start::Nobody, ..claimant(Pid::this()).who };
        let mut file = ground.draft();
        assert_eq!(ground.remember(&Claimant { who, uid: None }, &mut file), Ok(true));
        assert_eq!(ground.fate(&file), Some(Fate::Replaced));
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
        let mut file = ground.draft();
        assert_eq!(ground.remember(&Claimant { who, ..here }, &mut file), Ok(true));
        assert_eq!(ground.fate(&file), Some(Fate::Replaced));
    }

    #[test]
    fn records_that_anybody_may_have_written_are_not_read() {
        let ground = Ground::new();
        let mut file = ground.draft();
        assert_eq!(ground.remember(&claimant(Pid::this()), &mut file), Ok(true));
        for (mode, is_everybodys) in [(0o1777, true), (0o775, false)] {
            let (mode, path) = (std::fs::Permissions::from_mode(mode), ground.path("state"));
            std::fs::set_permissions(&path, mode).unwrap();
            let state = HolderRecords::open(&path, ground.own.directory.identity()).unwrap();
            assert_eq!(state.is_everybodys(), is_everybodys);
            assert_eq!(state.directory().is_none(), is_everybodys);
            let written = WrittenFile::written_at(file.identity(), file.modified());
            let found = state.of_file(ground.own.directory.identity(), &ground.names[0], written);
            assert_eq!(found.unwrap().is_none(), is_everybodys);
        }
    }

    #[test]
    fn without_a_state_directory_nothing_is_guessed() {
        let ground = Ground::new();
        let (mut file, own) = (ground.draft(), ground.own.directory.identity());
        let state = HolderRecords::open(Path::new("/nonexistent/state"), own).unwrap();
        let remembered =
            state.remember(&claimant(Pid::this()), &ground.names, Origin::Taken, &mut file);
        assert_eq!(remembered, Ok(None));
        let written = WrittenFile::written_at(file.identity(), file.modified());
        assert_eq!(state.of_file(own, &ground.names[0], written), Ok(None));
        assert!(state.directory().is_none());
    }
}
