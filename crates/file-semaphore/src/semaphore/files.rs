//! The lock files of a semaphore, one for each slot: opens, takes and reads them, renews and releases them. Replaces no
//! file that it did not read and judge a moment ago. Deletes only a file that is the releaser's, or the very file that
//! was published. Never waits for a holder.
//!
//! [`resolve`] says which paths are refused, and to which file the links of a path lead.

use crate::error::{Error, InTheWay, PathProblem};
use crate::limits::{LONGEST_FILE, LONGEST_NAME, MODE_BITS, MOST_LINKS, MOST_READINGS};
use crate::record::{Holder, LockInfo, Tag, beside};
use crate::semaphore::Config;
use crate::stale::{HeldStatus, Judge};
use crate::sys::{Queue, may_follow_link, now_seconds, number};
use pidlockfile::{
    Attempt, Directory, Found, Identity, Name, NewFile, Obstacle, OpenFile, Pid, Published, Status,
    Step,
};
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The thing, or else what is in its way.
pub(crate) type Tried<T> = Result<T, InTheWay>;

#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) directory: Directory,
    pub(crate) place: LockPlace,
    pub(crate) names: Vec<Name>,
    pub(crate) config: Config,
    pub(crate) judge: Judge,
}

/// For what a lock is taken, and in whose name.
pub(crate) struct Claimant<'a> {
    pub(crate) tag: Option<&'a str>,
    /// Gives the holder to record; called when the lock is about to be taken, or its caller is the next in the queue.
    pub(crate) holder: &'a mut dyn FnMut() -> Result<Holder, Error>,
}

/// A slot that was taken: its number from 0, its lock file, and what that says.
pub(crate) struct Taken {
    pub(crate) slot: usize,
    pub(crate) name: Name,
    pub(crate) published: Published,
    pub(crate) info: LockInfo,
}

/// How much of a semaphore is to be free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Free {
    /// A slot.
    One,
    /// All slots, for the program `sema`.
    #[cfg(feature = "cli")]
    All,
}

/// One slot as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SlotStatus {
    /// There is no lock file.
    Free,
    /// There is one.
    Held(HeldStatus),
    /// There is something that is no lock file and is never touched: a directory, a fifo, a
    /// device, a link.
    Obstacle,
}

impl Files {
    /// Follows symbolic links to their target, which need not exist; the parent directory must.
    pub(crate) fn open(path: &Path, config: Config) -> Result<Arc<Self>, Error> {
        let place = resolve(path)?;
        let names = slot_names(&place.name, config.slots.count()).ok_or_else(|| {
            Error::InvalidPath { path: path.to_owned(), problem: PathProblem::TooLong }
        })?;
        let directory = Directory::open(&place.directory)?;
        let judge = Judge::new(config.stale_policy());
        Ok(Arc::new(Self { directory, place, names, config, judge }))
    }

    /// Where the lock file is; with several slots the name they begin with.
    pub(crate) fn path(&self) -> PathBuf {
        self.path_of(&self.place.name)
    }

    /// Where a slot's lock file is.
    pub(crate) fn path_of(&self, name: &Name) -> PathBuf {
        self.place.directory.join(name)
    }

    /// Whether the path still leads to the open directory: a waiter in one that was moved away would
    /// wait for a lock that no other process means.
    pub(crate) fn check_place(&self) -> Result<(), Error> {
        let ours = self.directory.identity();
        let now = Status::of_path(&self.place.directory);
        match now.is_ok_and(|status| status.identity == ours) {
            true => Ok(()),
            false => Err(Error::InvalidPath { path: self.path(), problem: PathProblem::Moved }),
        }
    }

    /// The queue of its waiters.
    pub(crate) fn queue(&self) -> Queue<'_> {
        Queue { directory: &self.directory, lock: &self.place.name, mode: self.config.mode }
    }

    /// Completes the path in an error about a file of the directory.
    pub(crate) fn located<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|error| error.within(&self.place.directory))
    }

    /// This process as a holder.
    pub(crate) fn own_holder(&self) -> Result<Holder, Error> {
        let pid = Pid::this();
        Holder::of(pid, self.judge.here()).ok_or(Error::NoHolder { pid: number(pid) })
    }

    /// Takes the first slot that is free or stale.
    pub(crate) fn attempt(&self, claimant: &mut Claimant<'_>) -> Result<Tried<Taken>, Error> {
        let mut first = InTheWay::default();
        for (slot, name) in self.names.iter().enumerate() {
            match self.located(self.take(name, claimant))? {
                Ok((published, info)) => {
                    return Ok(Ok(Taken { slot, name: name.clone(), published, info }));
                }
                Err(in_the_way) => first = first.or(in_the_way),
            }
        }
        Ok(Err(first))
    }

    /// Takes one slot if it is free or stale. Repeats itself only when the file changed between
    /// reading it and replacing it, which is somebody else's progress.
    fn take(
        &self,
        name: &Name,
        claimant: &mut Claimant<'_>,
    ) -> Result<Tried<(Published, LockInfo)>, Error> {
        for _ in 0..MOST_READINGS {
            match self.directory.read(name, LONGEST_FILE + 1)? {
                Found::Nothing => {
                    if let Some(taken) = self.publish(name, claimant)? {
                        return Ok(Ok(taken));
                    }
                }
                Found::File(opened) => {
                    let seen = self.judge.judge(&opened);
                    if !seen.stale {
                        return Ok(Err(seen.in_the_way(|| self.path_of(name))?));
                    }
                    let in_the_way = InTheWay::of(seen.lock_info());
                    let owner = opened.status().owner;
                    let info = self.info(claimant)?;
                    let text = info.to_text();
                    match self.directory.replace(name, opened, &self.words(name, &text)) {
                        Ok(Attempt::Done(published)) => return Ok(Ok((published, info))),
                        Ok(Attempt::Changed) => {}
                        // The process that is breaking it is about to hold it.
                        Ok(Attempt::Contended) => return Ok(Err(in_the_way)),
                        Err(error) if may_go(&error) => {
                            return Ok(Err(InTheWay { left_by: Some(owner), ..in_the_way }));
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
                Found::Obstacle(Obstacle::Unreadable) => return Ok(Err(InTheWay::default())),
                Found::Obstacle(Obstacle::Link | Obstacle::Directory | Obstacle::Special) => {
                    return Err(Error::Obstacle { path: self.path_of(name) });
                }
            }
        }
        Ok(Err(InTheWay::default()))
    }

    fn publish(
        &self,
        name: &Name,
        claimant: &mut Claimant<'_>,
    ) -> Result<Option<(Published, LockInfo)>, Error> {
        let info = self.info(claimant)?;
        let text = info.to_text();
        match self.directory.publish(name, &self.words(name, &text)) {
            Ok(published) => Ok(published.map(|published| (published, info))),
            // A cleaner in another pid namespace took our temporary file for an orphan.
            Err(error) if error.step == Step::Publish && is_absent(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn info(&self, claimant: &mut Claimant<'_>) -> Result<LockInfo, Error> {
        let tag = claimant.tag.and_then(|tag| Tag::clean_to(tag, self.config.longest_tag));
        Ok(LockInfo::new((claimant.holder)()?, now_seconds(), tag))
    }

    fn words<'a>(&self, name: &'a Name, text: &'a str) -> NewFile<'a> {
        let mut file = NewFile::new(text.as_bytes(), name);
        file.mode = self.config.mode & MODE_BITS;
        file.durability = self.config.durability;
        file
    }

    /// Every slot as it is now.
    pub(crate) fn status(&self) -> Result<Vec<SlotStatus>, Error> {
        let status = |name| {
            Ok(match self.directory.read(name, LONGEST_FILE + 1)? {
                Found::Nothing => SlotStatus::Free,
                Found::File(opened) => SlotStatus::Held(self.judge.judge(&opened)),
                Found::Obstacle(Obstacle::Unreadable) => SlotStatus::Held(HeldStatus::UNREADABLE),
                Found::Obstacle(Obstacle::Link | Obstacle::Directory | Obstacle::Special) => {
                    SlotStatus::Obstacle
                }
            })
        };
        self.names.iter().map(|name| self.located(status(name))).collect()
    }

    /// Whether a slot, or all, could be taken, or else the holder of the first that cannot.
    pub(crate) fn check_free(&self, wanted: Free) -> Result<Tried<()>, Error> {
        let mut first: Option<InTheWay> = None;
        for status in self.status()? {
            match status {
                SlotStatus::Held(held) if !held.stale => {
                    let in_the_way = held.in_the_way(|| self.path())?;
                    first = Some(first.unwrap_or_default().or(in_the_way));
                }
                SlotStatus::Free | SlotStatus::Held(_) if wanted == Free::One => return Ok(Ok(())),
                SlotStatus::Free | SlotStatus::Held(_) => {}
                SlotStatus::Obstacle => return Err(self.obstacle()),
            }
        }
        Ok(first.map_or(Ok(()), Err))
    }

    pub(crate) fn obstacle(&self) -> Error {
        Error::Obstacle { path: self.path() }
    }
}

/// Whether a stale lock could not be broken because it is another user's, in a sticky directory: that
/// one, or root, may yet remove it. On Windows users cannot be distinguished in this way.
fn may_go(error: &pidlockfile::Error) -> bool {
    cfg!(unix) && error.step == Step::Break && error.is_not_permitted()
}

fn is_absent(error: &pidlockfile::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound
}

/// The lock files of a semaphore, with room for the temporary name beside each.
fn slot_names(name: &Name, count: u32) -> Option<Vec<Name>> {
    let fits = |name: &Name| name.as_os_str().len() <= LONGEST_NAME;
    if count == 1 {
        return fits(name).then(|| vec![name.clone()]);
    }
    let slot = |number| beside(name, &format!(".{number}")).filter(fits);
    (1..=count).map(slot).collect()
}

/// How often a release is tried while another process is at the file, and the pause between.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(2);

/// The right by which a semaphore that another process or guard took is released.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Releaser<'a> {
    /// Only the recorded holder: the same number, and nothing known that distinguishes the two. A
    /// lock without an owner ([`Holder::nobody`]) is everybody's.
    Holder(&'a Holder),
    /// Anyone.
    Anyone,
}

impl Files {
    /// Releases the first slot that is the releaser's.
    pub(crate) fn release(&self, releaser: Releaser<'_>) -> Result<(), Error> {
        self.first_slot(|name| self.release_slot(name, releaser))
    }

    /// Renews the first slot that is the releaser's.
    pub(crate) fn renew(&self, releaser: Releaser<'_>) -> Result<LockInfo, Error> {
        self.first_slot(|name| self.renew_slot(name, releaser))
    }

    /// Does it to the first slot that is the releaser's; where none is, the error that says most of why.
    fn first_slot<T>(&self, action: impl Fn(&Name) -> Result<T, Error>) -> Result<T, Error> {
        let mut worst = Error::NotLocked { path: self.path() };
        for name in &self.names {
            match self.located(action(name)) {
                Err(Error::NotLocked { .. }) => {}
                Err(error @ (Error::NotHolder { .. } | Error::Parse { .. })) => worst = error,
                other => return other,
            }
        }
        Err(worst)
    }

    /// The slot's file, if the releaser may release it.
    fn releasable(&self, name: &Name, releaser: Releaser<'_>) -> Result<OpenFile, Error> {
        let opened = match self.directory.read(name, LONGEST_FILE + 1)? {
            Found::Nothing => return Err(Error::NotLocked { path: self.path_of(name) }),
            Found::Obstacle(Obstacle::Unreadable) => {
                return Err(Error::NotHolder { path: self.path_of(name), holder: None });
            }
            Found::Obstacle(_) => return Err(self.obstacle()),
            Found::File(opened) => opened,
        };
        let Releaser::Holder(holder) = releaser else { return Ok(opened) };
        let problem = |problem| Error::Parse { path: self.path_of(name), problem };
        let info = LockInfo::parse(opened.content()).map_err(problem)?;
        if info.holder().is_nobody() || info.holder().is_same_process(holder) {
            return Ok(opened);
        }
        Err(Error::NotHolder { path: self.path_of(name), holder: Some(Box::new(info)) })
    }

    fn renew_slot(&self, name: &Name, releaser: Releaser<'_>) -> Result<LockInfo, Error> {
        let opened = self.releasable(name, releaser)?;
        let problem = |problem| Error::Parse { path: self.path_of(name), problem };
        let info = LockInfo::parse(opened.content()).map_err(problem)?;
        let file = opened.try_clone().map_err(|_| Error::Process { message: "no descriptor" })?;
        self.renew_file(name, &file, opened.identity()).map(|()| info)
    }

    /// Sets the time a lock was written to now, if its name still leads to it.
    pub(crate) fn renew_file(
        &self,
        name: &Name,
        file: &File,
        identity: Identity,
    ) -> Result<(), Error> {
        file.set_modified(SystemTime::now())
            .map_err(|_| Error::Process { message: "the lock file's time cannot be set" })?;
        if self.leads_to(name, identity)? { Ok(()) } else { Err(self.lost(name)) }
    }

    fn release_slot(&self, name: &Name, releaser: Releaser<'_>) -> Result<(), Error> {
        for _ in 0..TRIES {
            let opened = self.releasable(name, releaser)?;
            match self.directory.try_release(name, opened)? {
                Attempt::Done(()) => return Ok(()),
                Attempt::Changed => {}
                Attempt::Contended => std::thread::sleep(PAUSE),
            }
        }
        // A breaker is at a file for milliseconds. A process that holds flock(2) on it for longer is not
        // breaking it, and must not keep its owner from releasing it.
        match self.directory.release(name, self.releasable(name, releaser)?, name)? {
            Attempt::Done(()) => Ok(()),
            Attempt::Changed | Attempt::Contended => {
                Err(Error::NotLocked { path: self.path_of(name) })
            }
        }
    }

    /// Releases what was published.
    pub(crate) fn withdraw(&self, name: &Name, published: &Published) -> Result<(), Error> {
        match self.directory.withdraw_patiently(name, published, name)? {
            Attempt::Done(()) => Ok(()),
            Attempt::Changed | Attempt::Contended => Err(self.lost(name)),
        }
    }

    /// Whether a lock's name leads to that very file.
    pub(crate) fn leads_to(&self, name: &Name, identity: Identity) -> Result<bool, Error> {
        match self.directory.read(name, 0)? {
            Found::File(opened) => Ok(opened.identity() == identity),
            Found::Nothing | Found::Obstacle(_) => Ok(false),
        }
    }

    /// Somebody removed or replaced the lock while it was held.
    fn lost(&self, name: &Name) -> Error {
        let path = self.path_of(name);
        match self.directory.read(name, LONGEST_FILE + 1) {
            Ok(Found::File(opened)) => {
                let holder = LockInfo::parse(opened.content()).ok().map(Box::new);
                Error::NotHolder { path, holder }
            }
            Ok(Found::Nothing | Found::Obstacle(_)) | Err(_) => Error::NotLocked { path },
        }
    }
}

/// A lock's place: an existing directory (as far as was seen) and a name in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LockPlace {
    pub(crate) directory: PathBuf,
    pub(crate) name: Name,
}

/// Checks a path as it was given.
pub(crate) fn check(path: &Path) -> Result<(), PathProblem> {
    let bytes = path.as_os_str().as_encoded_bytes();
    if bytes.iter().all(u8::is_ascii_whitespace) {
        Err(PathProblem::Empty)
    } else if bytes.contains(&0) {
        Err(PathProblem::Nul)
    } else if bytes.windows(2).any(|pair| pair == b"..") {
        Err(PathProblem::Traversal)
    } else {
        Ok(())
    }
}

/// Finds the place of a path: checked, and its last part followed while it is a symbolic link,
/// also to a target that does not exist.
pub(crate) fn resolve(path: &Path) -> Result<LockPlace, Error> {
    let invalid = |problem| Error::InvalidPath { path: path.to_owned(), problem };
    check(path).map_err(invalid)?;
    let mut place = path.to_owned();
    for _ in 0..MOST_LINKS {
        let (directory, name) = split(&place).ok_or_else(|| invalid(PathProblem::NoName))?;
        // The error does not matter: opening the directory will say what is wrong.
        let Ok(link) = place.symlink_metadata() else { return plain(directory, name, invalid) };
        if !link.is_symlink() {
            return plain(directory, name, invalid);
        }
        let around = directory.metadata().map_err(|_| invalid(PathProblem::NoDirectory))?;
        if !may_follow_link(&link, &around) {
            return Err(invalid(PathProblem::ForeignLink));
        }
        let target = place.read_link().map_err(|_| invalid(PathProblem::NoName))?;
        place = directory.join(target);
    }
    Err(invalid(PathProblem::LinkLoop))
}

fn plain(
    directory: PathBuf,
    name: &OsStr,
    invalid: impl Fn(PathProblem) -> Error,
) -> Result<LockPlace, Error> {
    if name.len() > LONGEST_NAME {
        return Err(invalid(PathProblem::TooLong));
    }
    let name = Name::new(name).ok_or_else(|| invalid(PathProblem::NoName))?;
    if directory.is_dir() {
        Ok(LockPlace { directory, name })
    } else {
        Err(invalid(PathProblem::NoDirectory))
    }
}

/// Directory and last part. A path that ends with a slash names a directory, not a lock.
fn split(path: &Path) -> Option<(PathBuf, &OsStr)> {
    let bytes = path.as_os_str().as_encoded_bytes();
    let backslash = cfg!(windows) && (bytes.ends_with(b"\\") || bytes.ends_with(b"\\."));
    if bytes.ends_with(b"/") || bytes.ends_with(b"/.") || backslash {
        return None;
    }
    let name = path.file_name()?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Some((directory.unwrap_or(Path::new(".")).to_owned(), name))
}

#[cfg(test)]
#[path = "path_tests.rs"]
mod tests;
