//! The lock directories: the one that is written and all those that are searched, opened once.
//!
//! A directory that has several names is searched once. One in which nothing looks like a lock
//! file is not searched again until it changes, so that a machine with every known directory
//! costs no more than one with two.

use std::cell::Cell;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, fstat, lstat, stat};
use pidlockfile::{Directory, Identity, Name};

use crate::limits::{LOCKS_FOR_INVENTED, NAMES_OF_A_LOCK};
use crate::stamp::Stamp;

/// The beginnings of every lock file name that is ever looked for.
const LOCK_BEGINNINGS: [&str; 3] = ["LCK.", "LK.", "lk.."];

/// A directory of more bytes or files than this is not read through; it is asked for each name.
const SMALL: i64 = 4096;
const FEW: usize = 128;

/// As many entries of a directory are read through, and as many locks found in it, when all are
/// asked for: anybody may fill `/tmp`.
const LISTED: usize = 65_536;
const LOCKS_LISTED: usize = LOCKS_FOR_INVENTED;

/// A directory with fewer bytes than this surely has room: a file takes 20 bytes of a directory on
/// tmpfs, twice its name on btrfs, and one on ZFS.
const UNCROWDED: i64 = 512;

/// A directory with more files than this, whatever they are, has no room, and is read no further:
/// anybody may fill one that is open to all, and ask again and again.
const CROWD: usize = 4096;

/// The open lock directories.
#[derive(Debug)]
pub struct Open {
    /// Where locks are written.
    pub own: Place,
    /// Where other programs may have left locks.
    pub others: Vec<Place>,
    absent: Vec<Absence>,
}

/// Directories that are missing as long as the nearest one above them stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absence {
    /// The nearest directory above that exists.
    pub ancestor: String,
    /// The state of that one when it was looked at.
    pub stamp: Stamp,
    /// The directories.
    pub paths: Vec<String>,
}

impl Absence {
    fn holds(&self) -> bool {
        stamp_of(Path::new(&self.ancestor)) == Some(self.stamp)
    }

    /// As text: paths compare part by part, and there are many of these in each session.
    fn names(&self, path: &Path) -> bool {
        path.to_str().is_some_and(|path| self.paths.iter().any(|known| known == path))
    }

    /// Adds a directory that was found missing. Whatever was made since has changed the ancestor
    /// by now; so it is looked at again, behind the ancestor.
    ///
    /// Nothing can be noted behind a directory that has just changed; such are `restless`.
    fn note(
        absences: &mut Vec<Self>,
        restless: &mut Vec<PathBuf>,
        path: &Path,
        now: SystemTime,
    ) -> Option<()> {
        if restless.iter().any(|above| path.parent() == Some(above)) {
            return None;
        }
        let ancestors = path.ancestors().skip(1);
        let (ancestor, stamp) =
            ancestors.into_iter().find_map(|above| Some((above, stamp_of(above)?)))?;
        if !stamp.is_settled(now) {
            restless.push(ancestor.to_owned());
            return None;
        }
        let first = path.ancestors().find(|below| below.parent() == Some(ancestor))?;
        if lstat(first) != Err(Errno::ENOENT) {
            return None;
        }
        let (ancestor, path) = (ancestor.to_str()?, path.to_str()?.to_owned());
        match absences.iter_mut().find(|known| known.ancestor == ancestor && known.stamp == stamp) {
            Some(known) => known.paths.push(path),
            None => absences.push(Self { ancestor: ancestor.to_owned(), stamp, paths: vec![path] }),
        }
        Some(())
    }
}

fn stamp_of(directory: &Path) -> Option<Stamp> {
    Stamp::of(&stat(directory).ok()?)
}

/// One open lock directory.
#[derive(Debug)]
pub struct Place {
    /// The handle everything is relative to.
    pub directory: Directory,
    /// The name it was opened by, for the journal and for people.
    pub path: PathBuf,
    looked: Option<Look>,
    /// For so many more invented names there is room without another count.
    room: Cell<usize>,
    /// The same for anybody's.
    room_for_all: Cell<usize>,
}

/// What was seen in a directory that had settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    stamp: Stamp,
    is_lockless: bool,
}

impl Open {
    /// Opens the directory to write, and of the others all that exist.
    ///
    /// `seen` tells which were missing when another service looked.
    ///
    /// # Errors
    /// When the directory to write cannot be opened. The others are optional.
    pub fn all(
        own: &Path,
        others: &[PathBuf],
        seen: &[Absence],
    ) -> Result<Self, pidlockfile::Error> {
        let own = Place::open(own)?;
        let mut known: Vec<Identity> = vec![own.directory.identity()];
        let mut places = Vec::new();
        let missing: Vec<&Absence> = seen.iter().filter(|absence| absence.holds()).collect();
        let mut absent: Vec<Absence> = missing.iter().copied().cloned().collect();
        let now = SystemTime::now();
        let mut restless = Vec::new();
        for path in others {
            if missing.iter().any(|absence| absence.names(path)) {
                continue;
            }
            match Place::open_to_search(path, &own) {
                Ok(place) if known.contains(&place.directory.identity()) => {}
                Ok(place) => {
                    known.push(place.directory.identity());
                    places.push(place);
                }
                Err(ErrorKind::NotFound) => {
                    Absence::note(&mut absent, &mut restless, path, now);
                }
                Err(_) => {}
            }
        }
        Ok(Self { own, others: places, absent })
    }

    /// The directories that are missing, as far as others need not look for them again.
    #[must_use]
    pub fn absent(&self) -> &[Absence] {
        &self.absent
    }

    /// The directories to be searched that are known to hold no locks, each in its state then.
    pub fn lockless(&self) -> impl Iterator<Item = Stamp> {
        let looks = self.others.iter().filter_map(|place| place.looked);
        looks.filter(|look| look.is_lockless).map(|look| look.stamp)
    }
}

impl Place {
    fn open(path: &Path) -> Result<Self, pidlockfile::Error> {
        let directory = Directory::open(path)?;
        Ok(Self {
            directory,
            path: path.to_owned(),
            looked: None,
            room: Cell::new(0),
            room_for_all: Cell::new(0),
        })
    }

    /// Opens a directory that is only searched, if nobody else than root, we and whoever owns the
    /// lock directory has a say in it: a file system in user space may never answer.
    fn open_to_search(path: &Path, own: &Self) -> Result<Self, ErrorKind> {
        let trusted = [0, nix::unistd::geteuid().as_raw(), own.directory.owner()];
        let kind = |errno: Errno| std::io::Error::from(errno).kind();
        let above = path.parent().unwrap_or(Path::new("/"));
        let seen = stat(above).map_err(kind)?;
        let directory = if seen.st_mode & 0o002 == 0 && trusted.contains(&seen.st_uid) {
            Directory::open(path).map_err(|error| error.kind())?
        } else {
            let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
            let above = Directory::open(above).map_err(|error| error.kind())?;
            Directory::from_handle(open_below(&above, name).map_err(kind)?)
                .map_err(|error| error.kind())?
        };
        if !trusted.contains(&directory.owner()) {
            return Err(ErrorKind::PermissionDenied);
        }
        let (looked, room, room_for_all) = (None, Cell::new(0), Cell::new(0));
        Ok(Self { directory, path: path.to_owned(), looked, room, room_for_all })
    }

    /// Whether everybody may put files there, as into `/tmp`.
    #[must_use]
    pub fn is_open_to_all(&self) -> bool {
        self.directory.mode() & 0o002 != 0
    }

    /// The full name of a file in it, for the journal.
    #[must_use]
    pub fn name(&self, file: &Name) -> String {
        self.path.join(file.as_str()).display().to_string()
    }

    /// Whether it surely holds no lock file at all, so that no name needs to be looked for.
    ///
    /// `seen` are such directories that another service has seen.
    pub fn is_lockless(&mut self, seen: &[Stamp], now: SystemTime) -> bool {
        let Ok(stat) = fstat(&self.directory) else { return false };
        let Some(stamp) = Stamp::of(&stat) else { return false };
        if let Some(look) = self.looked.filter(|look| look.stamp == stamp) {
            return look.is_lockless;
        }
        let settled = stamp.is_settled(now);
        let is_lockless =
            seen.contains(&stamp) || (settled && stat.st_size <= SMALL && self.holds_no_lock());
        self.looked = settled.then_some(Look { stamp, is_lockless });
        is_lockless
    }

    fn holds_no_lock(&self) -> bool {
        let Some(mut listing) = self.listing() else { return false };
        let mut seen = 0;
        listing.iter().all(|entry| {
            seen += 1;
            seen <= FEW && entry.is_ok_and(|entry| !looks_like_a_lock(entry.file_name().to_bytes()))
        })
    }

    /// Whether so many locks are in it that there is no room for invented names.
    pub(super) fn is_crowded(&self) -> bool {
        // Counted anew when as many questions have been asked as there was room.
        if let Some(room) = self.room.get().checked_sub(1) {
            self.room.set(room);
            return false;
        }
        let small = fstat(&self.directory).is_ok_and(|stat| stat.st_size < UNCROWDED);
        let locks = if small { 0 } else { self.count_locks() };
        let room = LOCKS_FOR_INVENTED.saturating_sub(locks);
        self.room.set(room.saturating_sub(1));
        room == 0
    }

    /// Whether there are fewer locks in it than this, whoever's they are.
    pub(super) fn has_room_for_all(&self, limit: usize) -> bool {
        if let Some(room) = self.room_for_all.get().checked_sub(NAMES_OF_A_LOCK) {
            self.room_for_all.set(room);
            return true;
        }
        let small = fstat(&self.directory).is_ok_and(|stat| stat.st_size < UNCROWDED / 2);
        let room = limit.saturating_sub(if small { 0 } else { self.count_locks() });
        self.room_for_all.set(room.saturating_sub(NAMES_OF_A_LOCK));
        room > 0
    }

    /// How many locks are in it, as far as that is of interest.
    fn count_locks(&self) -> usize {
        let Some(mut listing) = self.listing() else { return 0 };
        let (mut files, mut locks) = (0_usize, 0_usize);
        for entry in listing.iter().flatten() {
            files = files.saturating_add(1);
            let is_lock = looks_like_a_lock(entry.file_name().to_bytes());
            locks = locks.saturating_add(usize::from(is_lock));
            if files > CROWD || locks >= LOCKS_FOR_INVENTED {
                return LOCKS_FOR_INVENTED;
            }
        }
        locks
    }

    /// The files whose names are those of locks, in no order, up to a bound.
    pub(super) fn lock_names(&self) -> Vec<Name> {
        let Some(mut listing) = self.listing() else { return Vec::new() };
        listing
            .iter()
            .take(LISTED)
            .map_while(Result::ok)
            .filter(|entry| looks_like_a_lock(entry.file_name().to_bytes()))
            .filter_map(|entry| entry.file_name().to_str().ok().and_then(Name::new))
            .take(LOCKS_LISTED)
            .collect()
    }

    fn listing(&self) -> Option<nix::dir::Dir> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        nix::dir::Dir::openat(&self.directory, ".", flags, Mode::empty()).ok()
    }
}

/// Opens a directory in one that others may write: they may have made it, put a link in its place,
/// or mounted something over it.
fn open_below(above: &Directory, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let resolve = ResolveFlag::RESOLVE_NO_XDEV | ResolveFlag::RESOLVE_NO_SYMLINKS;
    match openat2(above, name, OpenHow::new().flags(flags).resolve(resolve)) {
        // Before Linux 5.6 nothing more can be asked.
        Err(Errno::ENOSYS) => nix::fcntl::openat(above, name, flags, Mode::empty()),
        answer => answer,
    }
}

fn looks_like_a_lock(name: &[u8]) -> bool {
    LOCK_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::stamp::SETTLED;

    fn later() -> SystemTime {
        SystemTime::now() + 2 * SETTLED
    }

    #[test]
    fn one_directory_under_two_names_is_searched_once() {
        let root = tempfile::tempdir().unwrap();
        let (own, alias) = (root.path().join("run"), root.path().join("var"));
        std::fs::create_dir(&own).unwrap();
        symlink(&own, &alias).unwrap();
        let other = root.path().join("other");
        std::fs::create_dir(&other).unwrap();
        let gone = root.path().join("gone");
        let open = Open::all(&own, &[alias, other.clone(), gone, other.clone()], &[]).unwrap();
        let paths: Vec<_> = open.others.iter().map(|place| place.path.clone()).collect();
        assert_eq!(paths, [other]);
    }

    #[test]
    fn an_empty_directory_is_lockless_until_it_changes() {
        let root = tempfile::tempdir().unwrap();
        let mut place = Place::open(root.path()).unwrap();
        assert!(place.is_lockless(&[], later()));
        assert!(place.is_lockless(&[], later()));
        std::fs::write(root.path().join("LCK..ttyS0"), "x").unwrap();
        assert!(!place.is_lockless(&[], later()));
    }

    #[test]
    fn a_directory_that_changed_just_now_may_change_again() {
        let root = tempfile::tempdir().unwrap();
        let mut place = Place::open(root.path()).unwrap();
        std::fs::write(root.path().join("x"), "x").unwrap();
        assert!(!place.is_lockless(&[], SystemTime::now()));
        assert!(place.is_lockless(&[], later()));
    }

    #[test]
    fn only_locks_are_listed_and_not_without_end() {
        let root = tempfile::tempdir().unwrap();
        let place = Place::open(root.path()).unwrap();
        for name in ["LCK..ttyS0", "LK.005.004.064", "lk..x", "LTMP.1", "lfpd.1.x.tmp", "x"] {
            std::fs::write(root.path().join(name), "").unwrap();
        }
        let mut names: Vec<_> =
            place.lock_names().iter().map(|name| name.as_str().to_owned()).collect();
        names.sort();
        assert_eq!(names, ["LCK..ttyS0", "LK.005.004.064", "lk..x"]);
        for number in 0..=LOCKS_LISTED {
            std::fs::write(root.path().join(format!("LCK..x{number}")), "").unwrap();
        }
        assert_eq!(place.lock_names().len(), LOCKS_LISTED);
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
        // Every listing has `.` and `..` besides.
        for number in 2..CROWD {
            std::fs::write(root.path().join(format!("x{number}")), "").unwrap();
        }
        assert!(!Place::open(root.path()).unwrap().is_crowded());
        std::fs::write(root.path().join("x"), "").unwrap();
        assert!(Place::open(root.path()).unwrap().is_crowded());
    }

    #[test]
    fn a_full_directory_is_asked_for_each_name() {
        let root = tempfile::tempdir().unwrap();
        for number in 0..=FEW {
            std::fs::write(root.path().join(format!("x{number}")), "").unwrap();
        }
        let mut place = Place::open(root.path()).unwrap();
        assert!(!place.is_lockless(&[], later()));
    }
}
