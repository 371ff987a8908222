//! The lock directories, opened once: the one to which locks are written, and all that are searched.
//!
//! A directory with several names is searched once.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr};
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use pidlockfile::{Directory, Found, Gate, Identity, Name, Published, Status, open_directory};
use rustix::fs::{Dir, Mode, OFlags};

use super::names::{LockNames, begins_as_a_lock, is_lock_file};
use crate::dialects::content::READ_LIMIT;
use crate::limits::LOCKS_FOR_INVENTED;
use crate::subordinate::owner_of;
use crate::sys::{self, FileSystem, Opened, SmallListing};

/// When all locks are asked for, at most this many entries of a directory are read: any user may fill `/tmp`.
const LISTED: usize = 65_536;

/// A directory with more files than this, of any kind, counts as full and is read no further: any user may fill a
/// directory that is open to all, and ask again and again.
const FILES_COUNTED: usize = 4096;

/// The open lock directories.
#[derive(Debug)]
pub(crate) struct Directories {
    /// Where locks are written.
    pub own: Place,
    /// Where other programs may have left locks.
    pub others: Vec<Place>,
}

/// How a directory is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Locks are written there: every file in it is a lock.
    Written,
    /// Other programs may have left locks there.
    Searched,
}

/// One open lock directory.
#[derive(Debug)]
pub(crate) struct Place {
    /// The handle to which all names are relative.
    pub directory: Directory,
    /// The name it was opened by, for the log and for people.
    pub path: PathBuf,
    /// How it is used.
    pub role: Role,
    opened: Opened,
    /// Asked when it is first needed, once for all directories of one file system.
    file_system: Arc<OnceLock<FileSystem>>,
    /// Made when it is first needed; `None` if the names are asked for one by one.
    listing: OnceLock<Option<SmallListing>>,
    /// By the file system, but in some tests.
    counts_links: OnceLock<bool>,
}

/// A directory and the name of a lock file in it, which may or may not exist.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockFile<'d> {
    pub place: &'d Place,
    pub name: &'d Name,
}

impl LockFile<'_> {
    pub(crate) fn read(self) -> Result<Found, pidlockfile::Error> {
        self.place.directory.read(self.name, READ_LIMIT)
    }
}

/// A lock file, and when it was written, in nanoseconds. The next file may have its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrittenFile {
    pub identity: Identity,
    pub written: u64,
}

impl WrittenFile {
    pub(crate) fn of(seen: &Status) -> Self {
        Self::written_at(seen.identity, seen.modified)
    }

    pub(crate) fn published(file: &Published) -> Self {
        Self::written_at(file.identity, file.modified)
    }

    pub(crate) fn written_at(identity: Identity, at: SystemTime) -> Self {
        let since = at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        // Enough for the next five hundred years.
        let written = u64::try_from(since).unwrap_or(u64::MAX);
        Self { identity, written }
    }
}

/// The full name, for the log.
impl fmt::Display for LockFile<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.path.join(self.name.as_str()).display().fmt(f)
    }
}

impl Directories {
    /// Opens the directory that is written, and all others that exist.
    ///
    /// # Errors
    /// If the directory that is written cannot be opened. The others are optional. But if one cannot be opened for lack of
    /// descriptors or memory, a lock in it would not be met as long as these stay open, and none is opened.
    pub(crate) fn all(own: &Path, others: &[PathBuf]) -> io::Result<Self> {
        let mut open = Self { own: Place::open(own)?, others: Vec::new() };
        let mut met: Vec<Met<'_>> = Vec::new();
        for path in others.iter().filter(|path| path.as_os_str() != open.own.path.as_os_str()) {
            let above = path.parent().unwrap_or(Path::new("/"));
            let seen = open.above(above, &met)?;
            let this = Met { above, seen, name: path.file_name() };
            let is_new = !met.iter().any(|it| it.is_one_with(&this));
            met.push(this);
            let Some(above) = seen.filter(|_| is_new) else { continue };
            let Some(place) = open_searched(path, &above, &open.own)? else { continue };
            let identity = place.directory.identity();
            if open.each().any(|known| known.directory.identity() == identity) {
                continue;
            }
            let is_with = |known: &&Place| known.directory.identity().device == identity.device;
            let file_system = open.each().find(is_with).map(|it| Arc::clone(&it.file_system));
            let file_system = file_system.unwrap_or_default();
            open.others.push(Place { file_system, ..place });
        }
        Ok(open)
    }

    /// The directory above a searched one. Most are looked at once, the one that is written not at all, and one that is below
    /// a missing one is missing, too. Names are compared as text: as paths, it takes as long as to look at the directory.
    fn above(&self, path: &Path, met: &[Met<'_>]) -> io::Result<Option<Above>> {
        if path.as_os_str() == self.own.path.as_os_str() {
            return Ok(Some(Above::of(&self.own.directory)));
        }
        let known = |path: &Path| met.iter().find(|it| it.above.as_os_str() == path.as_os_str());
        if let Some(known) = known(path) {
            return Ok(known.seen);
        }
        if path.parent().and_then(known).is_some_and(|above| above.seen.is_none()) {
            return Ok(None);
        }
        let seen = sys::unless_hidden(Status::of_path(path))?;
        Ok(seen.map(|Status { identity, mode, owner, .. }| Above { identity, mode, owner }))
    }

    /// From now on, locks in any of them are broken and removed only in this gate.
    pub(super) fn gated(self, gate: Option<Gate>) -> Self {
        let through = |place: Place| {
            let directory = place.directory.gated(gate.clone());
            Place { directory, ..place }
        };
        Self { own: through(self.own), others: self.others.into_iter().map(through).collect() }
    }

    /// The files that may be a lock of a device with these names and that a LOCK does not write: in our own directory
    /// those at the searched names, in every other one those at all names. Each directory is asked when its turn comes.
    pub(super) fn searched<'d>(
        &'d self,
        names: &'d LockNames,
    ) -> impl Iterator<Item = LockFile<'d>> {
        let own = std::iter::once_with(|| self.own.present(names.searched.iter()));
        own.chain(self.others_with(names)).flatten()
    }

    /// The same, and before them the file at the first written name in our own directory.
    pub(super) fn searched_and_first<'d>(
        &'d self,
        names: &'d LockNames,
    ) -> impl Iterator<Item = LockFile<'d>> {
        let met = names.written.first().into_iter().chain(&names.searched);
        let own = std::iter::once_with(move || self.own.present(met));
        own.chain(self.others_with(names)).flatten()
    }

    fn others_with<'d>(&'d self, names: &'d LockNames) -> impl Iterator<Item = Vec<LockFile<'d>>> {
        self.others.iter().map(|place| place.present(names.all()))
    }

    /// All directories, the one that is written first.
    pub(crate) fn each(&self) -> impl Iterator<Item = &Place> {
        std::iter::once(&self.own).chain(&self.others)
    }
}

/// A searched directory by its name, and what is above it. Many are in one directory, which is looked at once; and one
/// directory may have two names, such as `/run` and `/var/run`.
struct Met<'p> {
    above: &'p Path,
    seen: Option<Above>,
    name: Option<&'p OsStr>,
}

impl Met<'_> {
    /// Whether both have the same name in one directory.
    fn is_one_with(&self, other: &Self) -> bool {
        let above = |it: &Self| it.seen.map(|seen| seen.identity);
        self.name == other.name && above(self).is_some() && above(self) == above(other)
    }
}

/// A directory above a searched one: which it is, and who controls what is in it.
#[derive(Clone, Copy)]
struct Above {
    identity: Identity,
    mode: u32,
    owner: u32,
}

impl Above {
    fn of(open: &Directory) -> Self {
        Self { identity: open.identity(), mode: open.mode(), owner: open.owner() }
    }
}

/// Opens a directory that is only searched, but only if root, this user and the owner of the lock directory alone control
/// it: a file system in user space may never answer. `None` also if it is seen to be the lock directory.
fn open_searched(path: &Path, above: &Above, own: &Place) -> io::Result<Option<Place>> {
    let is_trusted = |owner: u32| {
        owner == 0 || owner == own.directory.owner() || owner == rustix::process::geteuid().as_raw()
    };
    let name = path.file_name();
    let opened = if above.mode & 0o002 == 0 && is_trusted(above.owner) {
        // As a rule, another path to the lock directory has the same last name. To look takes a call, and to open it three.
        if name == own.path.file_name() {
            match sys::unless_hidden(Status::of_path(path))? {
                Some(seen) if seen.identity != own.directory.identity() => {}
                Some(_) | None => return Ok(None),
            }
        }
        sys::open_examined(|| open_directory(path))
    } else {
        // Other users may decide where names lead there: nothing below it is followed.
        let Some(name) = name else { return Ok(None) };
        sys::open_examined(|| match above.identity == own.directory.identity() {
            true => Ok(sys::open_below(&own.directory, name)?),
            false => Ok(sys::open_below(open_directory(path.parent().unwrap_or(path))?, name)?),
        })
    };
    let opened = sys::unless_hidden(opened)?.filter(|opened| is_trusted(opened.0.owner()));
    Ok(opened.map(|opened| Place::of(opened, path, Role::Searched)))
}

impl Place {
    pub(super) fn open(path: &Path) -> Result<Self, pidlockfile::Error> {
        let opened = Opened::now();
        Ok(Self::of((Directory::open(path)?.guarding(), opened), path, Role::Written))
    }

    fn of((directory, opened): (Directory, Opened), path: &Path, role: Role) -> Self {
        Self {
            directory,
            path: path.to_owned(),
            role,
            opened,
            file_system: Arc::default(),
            listing: OnceLock::new(),
            counts_links: OnceLock::new(),
        }
    }

    /// Whether it is only searched, and all users may put files there, as into `/tmp`.
    #[must_use]
    pub(crate) fn is_open_to_all(&self) -> bool {
        self.role == Role::Searched && self.directory.mode() & 0o002 != 0
    }

    /// The lock file of this name in this directory.
    #[must_use]
    pub(crate) fn file<'d>(&'d self, name: &'d Name) -> LockFile<'d> {
        LockFile { place: self, name }
    }

    /// Whether a file may have been there with a name that begins so, when the names were listed last. They are listed now if
    /// they never were. False only if a listing shows that there was none.
    pub(super) fn may_have_held_beginning(&self, beginning: &str) -> bool {
        let mut is_there = false;
        let mut see = |name: &[u8]| is_there |= name.starts_with(beginning.as_bytes());
        let listing = self.listing.get().and_then(Option::as_ref);
        let is_whole =
            listing.is_some_and(|listing| listing.show_last(&mut see)) || self.show_all(&mut see);
        is_there || !is_whole
    }

    /// Whether a lock of several names is one file here.
    pub(super) fn has_links(&self) -> bool {
        *self.counts_links.get_or_init(|| self.file_system().counts_links())
    }

    fn file_system(&self) -> FileSystem {
        *self.file_system.get_or_init(|| FileSystem::of(&self.directory))
    }

    /// As on a file system without hard links.
    #[cfg(test)]
    pub(super) fn forget_links(&self) {
        self.counts_links.set(false).unwrap();
    }

    /// Calls `see` with each name in the directory, if it is small; in one that is only searched, with those that begin as
    /// locks do. Whether these are all: the names at one moment. What we write changes one directory all the time, so its times
    /// need not be looked at.
    fn show_all(&self, see: impl FnMut(&[u8])) -> bool {
        let wanted: Option<fn(&[u8]) -> bool> = match self.role {
            Role::Written => None,
            Role::Searched => Some(begins_as_a_lock),
        };
        let listing = self
            .listing
            .get_or_init(|| SmallListing::of(self.file_system(), Some(self.opened), wanted));
        listing.as_ref().is_some_and(|listing| listing.show_all(&self.directory, see))
    }

    /// The names under which a file may be there, in their order. A name under which a file is there all the time is among
    /// them. A small directory is listed, which shows all names at one moment. In a larger one, such as `/tmp` may be, each
    /// name is looked up.
    fn present<'d>(&'d self, names: impl Iterator<Item = &'d Name> + Clone) -> Vec<LockFile<'d>> {
        let mut present: Vec<(usize, &Name)> = Vec::new();
        let is_whole = self.show_all(|shown| {
            let mut names = names.clone().enumerate();
            present.extend(names.find(|(_, name)| name.as_os_str().as_bytes() == shown));
        });
        if !is_whole {
            return names.filter(|name| self.may_hold(name)).map(|name| self.file(name)).collect();
        }
        present.sort_unstable_by_key(|(at, _)| *at);
        present.into_iter().map(|(_, name)| self.file(name)).collect()
    }

    /// Whether a file of that name may be there; if that cannot be found out, it may.
    pub(super) fn may_hold(&self, name: &Name) -> bool {
        let seen = Status::of_name(&self.directory, name.as_str());
        seen.map_or_else(|error| error.kind() != ErrorKind::NotFound, |_| true)
    }

    /// Whether a name may lead to that file, unchanged; if that cannot be found out, it may.
    pub(super) fn may_lead_to(&self, name: &Name, file: WrittenFile) -> bool {
        match Status::of_name(&self.directory, name.as_str()) {
            Ok(seen) => WrittenFile::of(&seen) == file,
            Err(error) => error.kind() != ErrorKind::NotFound,
        }
    }

    /// Whether it contains so many locks that there is no room for invented names.
    pub(super) fn is_crowded(&self) -> bool {
        let Some(listing) = listing(&self.directory) else { return false };
        let (mut files, mut locks) = (0_usize, 0_usize);
        for entry in listing.flatten() {
            files = files.saturating_add(1);
            locks = locks.saturating_add(usize::from(is_lock(entry.file_name())));
            if files > FILES_COUNTED || locks >= LOCKS_FOR_INVENTED {
                return true;
            }
        }
        false
    }

    /// The files with names of locks, in no order, `most` of them. If there are more, each owner of files has the same
    /// share.
    pub(super) fn lock_names(&self, most: usize) -> Vec<Name> {
        let Some(listing) = listing(&self.directory) else { return Vec::new() };
        let names = listing
            .take(LISTED)
            .map_while(Result::ok)
            .filter(|entry| is_lock(entry.file_name()))
            .filter_map(|entry| entry.file_name().to_str().ok().and_then(Name::new));
        let mut names: Vec<Name> = names.collect();
        if names.len() > most {
            self.by_turns_of_owners(&mut names);
            names.truncate(most);
        }
        names
    }

    /// The first name of each owner, then the second of each.
    fn by_turns_of_owners(&self, names: &mut [Name]) {
        let mut counts: BTreeMap<Option<u32>, usize> = BTreeMap::new();
        names.sort_by_cached_key(|name| {
            let seen = Status::of_name(&self.directory, name.as_str());
            let count = counts.entry(seen.ok().map(|seen| owner_of(seen.owner))).or_default();
            *count = count.saturating_add(1);
            *count
        });
    }
}

/// The entries of a directory.
pub(super) fn listing(directory: impl AsFd) -> Option<Dir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Dir::new(rustix::fs::openat(directory, ".", flags, Mode::empty()).ok()?).ok()
}

fn is_lock(name: &CStr) -> bool {
    name.to_str().is_ok_and(is_lock_file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rstest::rstest;

    use super::*;

    #[test]
    fn one_directory_under_two_names_is_searched_once() {
        let root = tempfile::tempdir().unwrap();
        let (own, alias) = (root.path().join("run"), root.path().join("var"));
        std::fs::create_dir(&own).unwrap();
        symlink(&own, &alias).unwrap();
        let other = root.path().join("other");
        std::fs::create_dir(&other).unwrap();
        let gone = root.path().join("gone");
        let open = Directories::all(&own, &[alias, other.clone(), gone, other.clone()]).unwrap();
        let paths: Vec<_> = open.others.iter().map(|place| place.path.clone()).collect();
        assert_eq!(paths, [other]);
    }

    /// Whether it is listed or not, and whatever else is there.
    #[rstest]
    #[case::small(3, true)]
    #[case::large(500, true)]
    #[case::small_and_never_listed(3, false)]
    fn every_name_with_a_file_is_present(#[case] others: usize, #[case] may_be_listed: bool) {
        let root = tempfile::tempdir().unwrap();
        let place = Place::open(root.path()).unwrap();
        if !may_be_listed {
            place.listing.set(None).unwrap();
        }
        for number in 0..others {
            std::fs::write(root.path().join(format!("LCK..other{number}")), "").unwrap();
        }
        let names: Vec<Name> =
            (0..9).filter_map(|number| Name::new(format!("LCK..x{number}"))).collect();
        let present = || -> Vec<_> {
            place.present(names.iter()).iter().map(|it| it.name.as_str()).collect()
        };
        assert_eq!(present(), [""; 0]);
        // What comes and goes afterwards is seen by the same opening.
        for name in ["LCK..x7", "LCK..x2", "LCK..x20"] {
            std::fs::write(root.path().join(name), "").unwrap();
        }
        symlink("nowhere", root.path().join("LCK..x4")).unwrap();
        assert_eq!(present(), ["LCK..x2", "LCK..x4", "LCK..x7"]);
        std::fs::rename(root.path().join("LCK..x2"), root.path().join("LCK..x5")).unwrap();
        std::fs::remove_file(root.path().join("LCK..x7")).unwrap();
        assert_eq!(present(), ["LCK..x4", "LCK..x5"]);
        std::fs::write(root.path().join("lfpd.1.x.tmp"), "").unwrap();
        let is_seen = || {
            present();
            place.may_have_held_beginning("lfpd")
        };
        assert!(is_seen());
        std::fs::remove_file(root.path().join("lfpd.1.x.tmp")).unwrap();
        let is_not_listed = others > 3 || !may_be_listed;
        assert_eq!(is_seen(), is_not_listed);
        std::fs::write(root.path().join("lfpd.1.x.tmp"), "").unwrap();
        assert_eq!(place.may_have_held_beginning("lfpd"), is_not_listed, "by the last listing");
        let anew = Place::open(root.path()).unwrap();
        assert!(anew.may_have_held_beginning("lfpd"), "it was never listed");
    }

    /// A user with the numbers of a range has the share of one user.
    #[test]
    #[ignore = "needs root: tests/run"]
    fn the_files_of_subordinate_users_hide_no_others() {
        crate::subordinate::add("1003:3100000000:65536");
        let root = tempfile::tempdir().unwrap();
        let plant = |name: &str, owner: u32| {
            let file = root.path().join(name);
            std::fs::write(&file, "").unwrap();
            std::os::unix::fs::chown(file, Some(owner), None).unwrap();
        };
        for number in 0..1100 {
            plant(&format!("LCK..planted{number}"), 3_100_000_000 + number);
        }
        let others: Vec<String> = (0..8).map(|number| format!("LCK..other{number}")).collect();
        others.iter().for_each(|name| plant(name, 0));
        let listed = Place::open(root.path()).unwrap().lock_names(1024);
        let is_listed = |name: &String| listed.iter().any(|it| it.as_str() == name);
        assert!(others.iter().all(is_listed), "{listed:?}");
    }

    #[test]
    fn only_locks_are_listed_and_not_without_end() {
        let root = tempfile::tempdir().unwrap();
        let place = Place::open(root.path()).unwrap();
        for name in ["LCK..ttyS0", "LK.005.004.064", "lk..x", "LTMP.1", "lfpd.1.x.tmp", "x"] {
            std::fs::write(root.path().join(name), "").unwrap();
        }
        let mut names: Vec<_> =
            place.lock_names(10).iter().map(|name| name.as_str().to_owned()).collect();
        names.sort();
        assert_eq!(names, ["LCK..ttyS0", "LK.005.004.064", "lk..x"]);
        for number in 0..=LOCKS_FOR_INVENTED {
            std::fs::write(root.path().join(format!("LCK..x{number}")), "").unwrap();
        }
        assert_eq!(place.lock_names(20).len(), 20);
        assert!(place.is_crowded());
        for number in 0..7 {
            std::fs::remove_file(root.path().join(format!("LCK..x{number}"))).unwrap();
        }
        for number in 0..3 {
            assert!(!place.is_crowded());
            std::fs::write(root.path().join(format!("LCK..y{number}")), "").unwrap();
        }
        assert!(place.is_crowded());
    }

    #[test]
    fn a_directory_full_of_anything_is_not_read_to_its_end() {
        let root = tempfile::tempdir().unwrap();
        // Every listing also has `.` and `..`.
        for number in 2..FILES_COUNTED {
            std::fs::write(root.path().join(format!("x{number}")), "").unwrap();
        }
        assert!(!Place::open(root.path()).unwrap().is_crowded());
        std::fs::write(root.path().join("x"), "").unwrap();
        assert!(Place::open(root.path()).unwrap().is_crowded());
    }
}
