//! An open lock directory: publishing, reading, breaking and releasing the lock files in it.
//!
//! Everything is relative to one directory handle and never follows a link in it. Nothing here
//! waits: where another process is in the way, the answer says so and the caller decides.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{FileStat, Mode, SFlag};

use crate::error::{Error, Step};
use crate::name::Name;
use crate::process::{Liveness, Pid, liveness};
use crate::sys::{self, Rename};
use crate::temporary;

/// A temporary file is swept only when it is older than this, whoever made it: in a container the
/// pid in its name may mean another process.
const SWEEP_AGE: Duration = Duration::from_secs(60);

/// An open lock directory.
#[derive(Debug)]
pub struct Directory {
    handle: OwnedFd,
    identity: Identity,
}

/// Which file it is, whatever its name: device and inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The number of the device that holds the file.
    pub device: u64,
    /// The file's number on it.
    pub inode: u64,
}

/// What a name leads to.
#[derive(Debug)]
pub enum Found {
    /// There is no such name: the lock is free.
    Nothing,
    /// A regular file, read and open.
    File(Judged),
    /// Something that is no readable regular file. It is never followed, opened for writing or
    /// removed; a lock is busy behind it.
    Obstacle(Obstacle),
}

/// What stands where a lock file was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// A symbolic link, dangling or not.
    Link,
    /// A directory.
    Directory,
    /// A fifo, socket or device.
    Special,
    /// A regular file that this process may not read.
    Unreadable,
}

/// A lock file as it was read: the open descriptor, and what was in it.
///
/// As long as this value lives the inode cannot be used again for another file, so "the very file
/// that was judged" is exact.
#[derive(Debug)]
pub struct Judged {
    file: File,
    facts: Facts,
}

/// What was seen through the descriptor.
#[derive(Debug)]
struct Facts {
    identity: Identity,
    content: Vec<u8>,
    limit: usize,
    modified: SystemTime,
    owner: u32,
    mode: u32,
    size: u64,
}

/// What to publish.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// The whole content of the lock file.
    pub content: &'a [u8],
    /// Its permission bits, whatever the umask.
    pub mode: u32,
    /// The start of the temporary file's name: `PREFIX.PID.RANDOM.tmp`.
    pub prefix: &'a str,
    /// Whether it must be on the disk before it becomes visible.
    pub durability: Durability,
}

/// How much a published lock must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The death of its process. After a crash of the machine the lock is void anyway.
    Memory,
    /// A crash of the machine: `fsync(2)` before the name appears.
    Disk,
}

/// The answer to [`Directory::publish`].
#[derive(Debug)]
pub enum Publication {
    /// The lock is ours, and visible.
    Published(Published),
    /// The name is taken; nothing was changed.
    AlreadyThere,
}

impl Publication {
    /// A name that no longer leads to the new file was taken by somebody else.
    fn of(published: Option<Published>) -> Self {
        published.map_or(Self::AlreadyThere, Self::Published)
    }
}

/// A lock file that was published.
#[derive(Debug)]
pub struct Published {
    /// The file, open for writing: a daemon may keep it to hold `flock(2)` on its own lock.
    pub file: File,
    /// Which file it is.
    pub identity: Identity,
}

/// The answer to [`Directory::replace`].
#[derive(Debug)]
pub enum Breaking {
    /// The judged file is gone and the claim stands in its place.
    Replaced(Published),
    /// The name leads to another file, or the file says something else by now: judge again.
    Changed,
    /// Another process is breaking the same file, or holds it with `flock(2)`.
    Contended,
}

/// The answer to [`Directory::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The judged file is gone.
    Removed,
    /// The name led to another file, or to none; nothing was removed.
    Changed,
}

/// The answer to [`Directory::withdraw`].
#[derive(Debug)]
pub enum Withdrawal {
    /// The lock is no longer there under its name, or was not.
    Done(Removal),
    /// Another process holds `flock(2)` on it: here it is, to try again.
    Contended(Published),
}

impl Directory {
    /// Opens a lock directory, following links in its path: the path is the administrator's.
    ///
    /// # Errors
    /// [`Step::OpenDirectory`] with the system's reason.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let failed = |errno| Error::new(Step::OpenDirectory, path.display(), errno);
        let handle = sys::open_directory(path).map_err(failed)?;
        let stat = nix::sys::stat::fstat(&handle).map_err(failed)?;
        Ok(Self { handle, identity: Identity::of(&stat) })
    }

    /// Which directory it is: two paths to one directory have one identity.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Reads what a name leads to: at most `limit` bytes of a regular file, never through a link,
    /// never blocking.
    ///
    /// # Errors
    /// [`Step::Inspect`] or [`Step::Read`] when the system fails for another reason than the file
    /// being absent or unreadable.
    pub fn read(&self, name: &Name, limit: usize) -> Result<Found, Error> {
        let looked = match sys::inspect(&self.handle, name.as_str()) {
            Ok(stat) => stat,
            Err(Errno::ENOENT) => return Ok(Found::Nothing),
            Err(errno) => return Err(Error::new(Step::Inspect, name, errno)),
        };
        if let Some(obstacle) = obstacle(&looked) {
            return Ok(Found::Obstacle(obstacle));
        }
        let file = match sys::open_to_read(&self.handle, name.as_str()) {
            Ok(file) => file,
            Err(Errno::ENOENT) => return Ok(Found::Nothing),
            Err(Errno::EACCES | Errno::EPERM) => {
                return Ok(Found::Obstacle(Obstacle::Unreadable));
            }
            Err(Errno::ELOOP) => return Ok(Found::Obstacle(Obstacle::Link)),
            Err(Errno::ENXIO) => return Ok(Found::Obstacle(Obstacle::Special)),
            Err(errno) => return Err(Error::new(Step::Read, name, errno)),
        };
        Judged::of(file, limit).map_err(|errno| Error::new(Step::Read, name, errno))
    }

    /// Creates a lock, complete or not at all. An existing name is never replaced.
    ///
    /// The finished temporary file is linked to the name; where there are no hard links it is
    /// renamed without replacing; where that is unknown too, the lock is created exclusively and
    /// filled in place, as the old programs do.
    ///
    /// # Errors
    /// [`Step::Prepare`] or [`Step::Publish`] with the system's reason; nothing is left behind.
    pub fn publish(&self, name: &Name, claim: &Claim<'_>) -> Result<Publication, Error> {
        let temporary = self.prepare(name, claim)?;
        match sys::link(&self.handle, &temporary.name, name.as_str()) {
            Ok(()) => temporary.published(name).map(Publication::of),
            // An NFS server may have done it although its answer got lost and the repeated
            // request failed; two names tell.
            Err(Errno::EEXIST) if temporary.has_two_names(name)? => {
                temporary.published(name).map(Publication::of)
            }
            Err(Errno::EEXIST) => Ok(Publication::AlreadyThere),
            Err(Errno::EPERM | Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EMLINK) => {
                self.publish_without_links(name, claim, temporary)
            }
            Err(errno) => Err(Error::new(Step::Publish, name, errno)),
        }
    }

    fn publish_without_links(
        &self,
        name: &Name,
        claim: &Claim<'_>,
        mut temporary: Temporary<'_>,
    ) -> Result<Publication, Error> {
        let how = Rename::NoReplace;
        match sys::rename_with(&self.handle, &temporary.name, name.as_str(), how) {
            Ok(()) => {
                temporary.forget();
                temporary.published(name).map(Publication::of)
            }
            Err(Errno::EEXIST) => Ok(Publication::AlreadyThere),
            Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => {
                self.publish_in_place(name, claim)
            }
            Err(errno) => Err(Error::new(Step::Publish, name, errno)),
        }
    }

    /// The last resort: exclusive creation under the final name. It is visible before it is full;
    /// readers take a young empty file for busy.
    fn publish_in_place(&self, name: &Name, claim: &Claim<'_>) -> Result<Publication, Error> {
        let failed = |errno| Error::new(Step::Publish, name, errno);
        let file = match sys::create(&self.handle, name.as_str(), OWNER_ONLY) {
            Ok(file) => file,
            Err(Errno::EEXIST) => return Ok(Publication::AlreadyThere),
            Err(errno) => return Err(failed(errno)),
        };
        // From here on the guard removes the half-made lock should filling it fail.
        let made = name.as_str().to_owned();
        let mut made =
            Temporary { directory: self, prefix: claim.prefix, name: made, file, live: true };
        made.fill(claim).map_err(failed)?;
        made.forget();
        made.published(name).map(Publication::of)
    }

    /// Breaks a stale lock and takes its place in one step.
    ///
    /// Only the very file that was judged, with the very content that was judged, is removed.
    ///
    /// # Errors
    /// With the system's reason; [`Error::is_not_permitted`] where the file belongs to somebody
    /// else in a sticky directory. The old lock then stands as it was.
    pub fn replace(
        &self,
        name: &Name,
        judged: Judged,
        claim: &Claim<'_>,
    ) -> Result<Breaking, Error> {
        let Judged { file, facts } = judged;
        let file = match sys::lock_inode(file) {
            Ok(file) => file,
            Err((_, Errno::EWOULDBLOCK | Errno::EINTR)) => return Ok(Breaking::Contended),
            Err((_, errno)) => return Err(Error::new(Step::Exclude, name, errno)),
        };
        if !self.leads_to(name.as_str(), &file, &facts, Step::Inspect)? {
            return Ok(Breaking::Changed);
        }
        let temporary = self.prepare(name, claim)?;
        match sys::rename_with(&self.handle, &temporary.name, name.as_str(), Rename::Exchange) {
            Ok(()) => self.check_exchange(name, &file, &facts, temporary),
            Err(Errno::ENOENT) => Ok(Breaking::Changed),
            Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => {
                self.replace_by_rename(name, &file, &facts, temporary)
            }
            Err(errno) => Err(Error::new(Step::Break, name, errno)),
        }
    }

    /// After the exchange the temporary name leads to what had the lock's name. If that is not
    /// the judged file, a program that does not know our rules broke the lock in that moment: it
    /// gets its place back.
    fn check_exchange(
        &self,
        name: &Name,
        file: &File,
        facts: &Facts,
        mut temporary: Temporary<'_>,
    ) -> Result<Breaking, Error> {
        match self.leads_to(&temporary.name, file, facts, Step::Break) {
            Ok(true) => {
                return Ok(temporary
                    .published(name)?
                    .map_or(Breaking::Changed, Breaking::Replaced));
            }
            Ok(false) => {}
            Err(error) => {
                // What was displaced is unknown: it must not be removed with our temporary name.
                temporary.forget();
                return Err(error);
            }
        }
        match sys::rename_with(&self.handle, &temporary.name, name.as_str(), Rename::Exchange) {
            // ENOENT: its owner has already let it go, so there is nothing to give back.
            Ok(()) | Err(Errno::ENOENT) => Ok(Breaking::Changed),
            Err(errno) => {
                temporary.forget();
                Err(Error::new(Step::Break, name, errno))
            }
        }
    }

    /// Breaking where files cannot be exchanged: away, check, and either link the new lock or
    /// put back what was caught.
    fn replace_by_rename(
        &self,
        name: &Name,
        file: &File,
        facts: &Facts,
        temporary: Temporary<'_>,
    ) -> Result<Breaking, Error> {
        match self.take_out(name, file, facts, temporary.prefix)? {
            Removal::Changed => Ok(Breaking::Changed),
            Removal::Removed => match sys::link(&self.handle, &temporary.name, name.as_str()) {
                Ok(()) => {
                    Ok(temporary.published(name)?.map_or(Breaking::Changed, Breaking::Replaced))
                }
                Err(Errno::EEXIST) => Ok(Breaking::Changed),
                Err(errno) => Err(Error::new(Step::Publish, name, errno)),
            },
        }
    }

    /// Removes a lock that is the caller's to remove: its own, or a stale one whose place nobody
    /// is to take.
    ///
    /// `prefix` is the start of the private name that is used when another process holds
    /// `flock(2)` on the file: in a world-readable directory that must not keep an owner from
    /// letting go.
    ///
    /// # Errors
    /// [`Step::Remove`] or [`Step::Break`] with the system's reason.
    pub fn release(&self, name: &Name, judged: Judged, prefix: &str) -> Result<Removal, Error> {
        let Judged { file, facts } = judged;
        match sys::lock_inode(file) {
            Ok(file) => {
                if !self.leads_to(name.as_str(), &file, &facts, Step::Inspect)? {
                    return Ok(Removal::Changed);
                }
                match sys::unlink(&self.handle, name.as_str()) {
                    Ok(()) => Ok(Removal::Removed),
                    Err(Errno::ENOENT) => Ok(Removal::Changed),
                    Err(errno) => Err(Error::new(Step::Remove, name, errno)),
                }
            }
            Err((file, Errno::EWOULDBLOCK | Errno::EINTR)) => {
                if !self.leads_to(name.as_str(), &file, &facts, Step::Inspect)? {
                    return Ok(Removal::Changed);
                }
                self.take_out(name, &file, &facts, prefix)
            }
            Err((_, errno)) => Err(Error::new(Step::Exclude, name, errno)),
        }
    }

    /// Like [`Directory::release`], but steps back, with `None`, when another process holds
    /// `flock(2)` on the file: it is most likely breaking it, and then the name is its to fill.
    /// What another program judged stale must be removed like this, or a breaker's fresh lock
    /// could be moved aside for a moment in which a third one finds the name vacant.
    ///
    /// # Errors
    /// [`Step::Exclude`], [`Step::Inspect`] or [`Step::Remove`] with the system's reason.
    pub fn try_release(&self, name: &Name, judged: Judged) -> Result<Option<Removal>, Error> {
        let Judged { file, facts } = judged;
        let file = match sys::lock_inode(file) {
            Ok(file) => file,
            Err((_, Errno::EWOULDBLOCK | Errno::EINTR)) => return Ok(None),
            Err((_, errno)) => return Err(Error::new(Step::Exclude, name, errno)),
        };
        if !self.leads_to(name.as_str(), &file, &facts, Step::Inspect)? {
            return Ok(Some(Removal::Changed));
        }
        self.unlink_judged(name).map(Some)
    }

    /// Removes a lock that this process published and kept open: the descriptor says exactly
    /// which file it is, so nothing has to be read again.
    ///
    /// # Errors
    /// [`Step::Exclude`], [`Step::Inspect`] or [`Step::Remove`] with the system's reason.
    pub fn withdraw(&self, name: &Name, published: Published) -> Result<Withdrawal, Error> {
        let Published { file, identity } = published;
        let _file = match sys::lock_inode(file) {
            Ok(file) => file,
            Err((file, Errno::EWOULDBLOCK | Errno::EINTR)) => {
                return Ok(Withdrawal::Contended(Published { file, identity }));
            }
            Err((_, errno)) => return Err(Error::new(Step::Exclude, name, errno)),
        };
        match sys::inspect(&self.handle, name.as_str()) {
            Ok(stat) if Identity::of(&stat) == identity => {
                self.unlink_judged(name).map(Withdrawal::Done)
            }
            Ok(_) | Err(Errno::ENOENT) => Ok(Withdrawal::Done(Removal::Changed)),
            Err(errno) => Err(Error::new(Step::Inspect, name, errno)),
        }
    }

    /// The last step of a removal, under `flock(2)` on the file the name was seen to lead to.
    fn unlink_judged(&self, name: &Name) -> Result<Removal, Error> {
        match sys::unlink(&self.handle, name.as_str()) {
            Ok(()) => Ok(Removal::Removed),
            Err(Errno::ENOENT) => Ok(Removal::Changed),
            Err(errno) => Err(Error::new(Step::Remove, name, errno)),
        }
    }

    /// Renames the lock to a private name and removes it there, or gives it its name back when it
    /// turns out to be another than the judged file.
    fn take_out(
        &self,
        name: &Name,
        file: &File,
        facts: &Facts,
        prefix: &str,
    ) -> Result<Removal, Error> {
        let private = temporary::fresh(prefix, Pid::this());
        match sys::rename(&self.handle, name.as_str(), &private) {
            Ok(()) => {}
            Err(Errno::ENOENT) => return Ok(Removal::Changed),
            Err(errno) => return Err(Error::new(Step::Break, name, errno)),
        }
        let removal = if self.leads_to(&private, file, facts, Step::Break)? {
            Removal::Removed
        } else {
            // Only fails when a third party has taken the name meanwhile; then the private
            // name is all that is left of a lock its owner has lost to that party.
            let _ = sys::link(&self.handle, &private, name.as_str());
            Removal::Changed
        };
        sys::unlink(&self.handle, &private).map_err(|e| Error::new(Step::Break, name, e))?;
        Ok(removal)
    }

    /// The files in the directory, in no order, for programs that show or clean all locks. Names
    /// that are no text are left out: no convention writes such locks.
    ///
    /// # Errors
    /// [`Step::List`] with the system's reason.
    pub fn names(&self) -> Result<Vec<Name>, Error> {
        let failed = |errno| Error::new(Step::List, ".", errno);
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut listing =
            nix::dir::Dir::openat(&self.handle, ".", flags, Mode::empty()).map_err(failed)?;
        let mut names = Vec::new();
        for entry in listing.iter() {
            let entry = entry.map_err(failed)?;
            names.extend(entry.file_name().to_str().ok().and_then(Name::new));
        }
        Ok(names)
    }

    /// Removes temporary files with this prefix whose maker is gone, once they are a minute old.
    /// Those of the living are never touched. Tells how many were removed.
    ///
    /// # Errors
    /// [`Step::List`] when the directory cannot be read; files that cannot be removed are passed
    /// over.
    pub fn sweep(&self, prefix: &str, now: SystemTime) -> Result<usize, Error> {
        let mut removed = 0;
        for name in self.names()? {
            let Some(maker) = temporary::maker(name.as_str(), prefix) else { continue };
            let Ok(stat) = sys::inspect(&self.handle, name.as_str()) else { continue };
            let age = now.duration_since(modified(&stat)).unwrap_or_default();
            let regular = obstacle(&stat).is_none();
            if regular
                && age >= SWEEP_AGE
                && liveness(maker) == Liveness::Gone
                && sys::unlink(&self.handle, name.as_str()).is_ok()
            {
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Writes the claim to a temporary file, complete and with its final mode.
    fn prepare<'d>(&'d self, name: &Name, claim: &Claim<'d>) -> Result<Temporary<'d>, Error> {
        let failed = |errno| Error::new(Step::Prepare, name, errno);
        let private = temporary::fresh(claim.prefix, Pid::this());
        let file = sys::create(&self.handle, &private, OWNER_ONLY).map_err(failed)?;
        let temporary =
            Temporary { directory: self, prefix: claim.prefix, name: private, file, live: true };
        temporary.fill(claim).map_err(failed)?;
        Ok(temporary)
    }

    /// Whether a name leads to the very file that was judged, unchanged.
    fn leads_to(&self, at: &str, file: &File, facts: &Facts, step: Step) -> Result<bool, Error> {
        let failed = |errno| Error::new(step, at, errno);
        match sys::inspect(&self.handle, at) {
            Ok(stat) if Identity::of(&stat) == facts.identity => {}
            Ok(_) | Err(Errno::ENOENT) => return Ok(false),
            Err(errno) => return Err(failed(errno)),
        }
        Ok(read_limited(file, facts.limit).map_err(failed)? == facts.content)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

impl Identity {
    fn of(stat: &FileStat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino }
    }
}

impl Judged {
    fn of(file: File, limit: usize) -> Result<Found, Errno> {
        let stat = sys::stat_open(&file)?;
        if let Some(obstacle) = obstacle(&stat) {
            return Ok(Found::Obstacle(obstacle));
        }
        let content = read_limited(&file, limit)?;
        let facts = Facts {
            identity: Identity::of(&stat),
            content,
            limit,
            modified: modified(&stat),
            owner: stat.st_uid,
            mode: stat.st_mode & 0o7777,
            size: u64::try_from(stat.st_size).unwrap_or_default(),
        };
        Ok(Found::File(Self { file, facts }))
    }

    /// What the file says, up to the limit it was read with.
    #[must_use]
    pub fn content(&self) -> &[u8] {
        &self.facts.content
    }

    /// The file's whole size in bytes, which may be more than was read.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.facts.size
    }

    /// When it was last written.
    #[must_use]
    pub fn modified(&self) -> SystemTime {
        self.facts.modified
    }

    /// The user the file belongs to, as a uid: not necessarily the holder's.
    #[must_use]
    pub fn owner(&self) -> u32 {
        self.facts.owner
    }

    /// The file's permission bits.
    #[must_use]
    pub fn mode(&self) -> u32 {
        self.facts.mode
    }

    /// Which file it is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.facts.identity
    }
}

/// A temporary file that removes its own name, unless told that the name is no longer its own.
#[derive(Debug)]
struct Temporary<'d> {
    directory: &'d Directory,
    prefix: &'d str,
    name: String,
    file: File,
    live: bool,
}

impl Temporary<'_> {
    fn fill(&self, claim: &Claim<'_>) -> Result<(), Errno> {
        sys::write_all(&self.file, claim.content)?;
        sys::set_mode(&self.file, Mode::from_bits_truncate(claim.mode))?;
        match claim.durability {
            Durability::Memory => Ok(()),
            Durability::Disk => sys::sync(&self.file),
        }
    }

    fn forget(&mut self) {
        self.live = false;
    }

    fn has_two_names(&self, name: &Name) -> Result<bool, Error> {
        let stat = sys::stat_open(&self.file);
        stat.map(|stat| stat.st_nlink == 2).map_err(|e| Error::new(Step::Publish, name, e))
    }

    /// The last check of a claim: the name leads to our file. It fails only when somebody who
    /// knows no rules has already removed or replaced it.
    fn published(self, name: &Name) -> Result<Option<Published>, Error> {
        let failed = |errno| Error::new(Step::Publish, name, errno);
        let identity = Identity::of(&sys::stat_open(&self.file).map_err(failed)?);
        let ours = match sys::inspect(&self.directory.handle, name.as_str()) {
            Ok(stat) => Identity::of(&stat) == identity,
            Err(Errno::ENOENT) => false,
            Err(errno) => return Err(failed(errno)),
        };
        if !ours {
            return Ok(None);
        }
        let file = self.file.try_clone().map_err(|_| failed(Errno::EMFILE))?;
        Ok(Some(Published { file, identity }))
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if self.live {
            // A name that cannot be removed is swept later.
            let _ = sys::unlink(&self.directory.handle, &self.name);
        }
    }
}

const OWNER_ONLY: Mode = Mode::S_IRUSR.union(Mode::S_IWUSR);

fn read_limited(file: &File, limit: usize) -> Result<Vec<u8>, Errno> {
    let mut content = vec![0; limit];
    let length = sys::read_start(file, &mut content)?;
    content.truncate(length);
    Ok(content)
}

/// Why this is no lock file, if it is none.
fn obstacle(stat: &FileStat) -> Option<Obstacle> {
    match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFREG => None,
        SFlag::S_IFLNK => Some(Obstacle::Link),
        SFlag::S_IFDIR => Some(Obstacle::Directory),
        _ => Some(Obstacle::Special),
    }
}

fn modified(stat: &FileStat) -> SystemTime {
    let nanoseconds = u32::try_from(stat.st_mtime_nsec).unwrap_or_default();
    match u64::try_from(stat.st_mtime) {
        Ok(seconds) => SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds),
        Err(_) => SystemTime::UNIX_EPOCH,
    }
}
