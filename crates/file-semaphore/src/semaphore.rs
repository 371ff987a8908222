//! A semaphore: combines the record, the rule for stale locks, and the lock file. It never removes a file
//! that it did not read and judge a moment ago, and never waits while it holds anything.

mod guard;
mod request;
mod waiting;

pub use guard::{Guard, Releaser};
pub(crate) use request::Sharing;
pub use request::{Cancel, Request};
pub(crate) use waiting::Patience;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use pidlockfile::{
    Breaking, Claim, Directory, Found, Name, Obstacle, Pid, Publication, Published, Step,
};

use crate::config::Config;
use crate::error::{Error, InTheWay, PathProblem};
use crate::judge::{HeldStatus, Judge};
use crate::limits::{LONGEST_FILE, LONGEST_NAME, MODE_BITS, MOST_LOOKS};
use crate::path::{self, Place};
use crate::record::{Holder, LockInfo, Tag};
use crate::sys::line::Line;
use crate::sys::now_seconds;
use crate::temporary::beside;

/// A file-based semaphore: at most one holder, or at most N, among all processes that use the
/// same path, in whatever language they are written.
///
/// Opening it takes nothing. [`try_acquire`](Self::try_acquire) and [`acquire`](Self::acquire)
/// give a [`Guard`]; the semaphore is held until that is released or dropped. It may be shared
/// and cloned freely between threads: each guard is a holding of its own, and threads of one
/// process exclude each other like processes.
///
/// ```
/// use file_semaphore::{Error, Semaphore};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let scratch = tempfile::tempdir()?;
/// # let path = scratch.path().join("deploy.lock");
/// let semaphore = Semaphore::open(&path)?;
///
/// let guard = semaphore.try_acquire(Some("deploy v1.2.3"))?;
/// match semaphore.try_acquire(None) {
///     Err(Error::AlreadyLocked { holder: Some(info), .. }) => {
///         assert_eq!(info.pid(), u64::from(std::process::id()));
///         assert_eq!(info.tag(), Some("deploy v1.2.3"));
///     }
///     other => return Err(format!("two holders: {other:?}").into()),
/// }
/// guard.release()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) directory: Directory,
    pub(crate) place: Place,
    pub(crate) names: Vec<Name>,
    pub(crate) config: Config,
    pub(crate) judge: Judge,
    own: Mutex<Option<Holder>>,
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

/// Gives the holder to record; called only when the lock is about to be taken.
pub(crate) type Claimant<'a> = &'a mut dyn FnMut() -> Result<Holder, Error>;

pub(crate) enum Attempt {
    Taken(Guard),
    Held(InTheWay),
}

enum Slot {
    Taken(Published, LockInfo),
    Held(InTheWay),
}

impl Semaphore {
    /// Opens the semaphore at `path` with the default [`Config`].
    ///
    /// # Errors
    /// As [`with_config`](Self::with_config).
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::with_config(path, Config::default())
    }

    /// Opens the semaphore at `path`. Symbolic links are followed to their target, which need
    /// not exist; the parent directory must.
    ///
    /// # Errors
    /// [`Error::InvalidPath`]; [`Error::System`] when the directory cannot be opened.
    pub fn with_config(path: impl AsRef<Path>, config: Config) -> Result<Self, Error> {
        let path = path.as_ref();
        let place = path::resolve(path)?;
        let names = slot_names(&place.name, config.slots.count()).ok_or_else(|| {
            Error::InvalidPath { path: path.to_owned(), problem: PathProblem::TooLong }
        })?;
        let directory = Directory::open(&place.directory)?;
        let judge = Judge::new(config);
        let inner = Inner { directory, place, names, config, judge, own: Mutex::new(None) };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Takes the semaphore for this process if it is free or stale.
    ///
    /// It does not overtake waiters: if it is free while some wait, one of them is about to take it. This call
    /// gives them a quarter of a second; if none does, they are stopped, and the semaphore is taken.
    ///
    /// # Errors
    /// [`Error::AlreadyLocked`] with the holder, also when a stale lock is somebody else's file in a
    /// directory where only its owner may remove it; [`Error::Obstacle`]; [`Error::System`].
    pub fn try_acquire(&self, tag: Option<&str>) -> Result<Guard, Error> {
        self.try_acquire_as(tag, &mut || self.inner.own_holder(), Sharing::Alone)
    }

    /// Waits until the semaphore can be taken for this process, at most the configured
    /// [`acquire_timeout`](Config::acquire_timeout).
    ///
    /// A release wakes the next waiter at once (inotify(7)). Waiters take turns, first come, first
    /// served; a waiter that is killed or stopped keeps nobody waiting.
    ///
    /// Behind a waiter of another process this starts a thread that blocks in flock(2), as nothing else tells
    /// of its end. A wait that is over leaves it to the next, until that waiter ends: one thread and
    /// four descriptors for each such waiter at most.
    ///
    /// # Errors
    /// [`Error::Timeout`]; otherwise as [`try_acquire`](Self::try_acquire).
    pub fn acquire(&self, tag: Option<&str>) -> Result<Guard, Error> {
        let patience =
            Patience { timeout: self.inner.config.acquire_timeout, ..Patience::default() };
        self.acquire_as(tag, &mut || self.inner.own_holder(), &patience, Sharing::Alone)
    }

    /// Waits until the semaphore could be taken (free, or stale), without taking it.
    ///
    /// # Errors
    /// [`Error::Timeout`] after the configured [`acquire_timeout`](Config::acquire_timeout).
    pub fn wait(&self) -> Result<(), Error> {
        let timeout = self.inner.config.acquire_timeout;
        self.wait_with(&Patience { timeout, ..Patience::default() })
    }

    /// Every slot as it is now, slot 1 first.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn status(&self) -> Result<Vec<SlotStatus>, Error> {
        let inner = &self.inner;
        inner.names.iter().map(|name| inner.located(inner.slot_status(name))).collect()
    }

    pub(crate) fn try_acquire_as(
        &self,
        tag: Option<&str>,
        claimant: Claimant<'_>,
        sharing: Sharing,
    ) -> Result<Guard, Error> {
        let guard = match self.attempt_beside(tag, claimant)? {
            Attempt::Taken(guard) => guard,
            Attempt::Held(in_the_way) => return Err(in_the_way.refused(self.path())),
        };
        if sharing == Sharing::Shared {
            return self.share(guard, tag, claimant);
        }
        match self.reader_in_the_way()? {
            None => Ok(guard),
            Some(reader) => {
                guard.release()?;
                Err(reader.refused(self.path()))
            }
        }
    }

    /// Takes the lock itself, even if others share it.
    pub(crate) fn attempt_alone(
        &self,
        tag: Option<&str>,
        claimant: Claimant<'_>,
    ) -> Result<Guard, Error> {
        match self.attempt(tag, claimant)? {
            Attempt::Taken(guard) => Ok(guard),
            Attempt::Held(in_the_way) => Err(in_the_way.refused(self.path())),
        }
    }

    fn share(
        &self,
        held: Guard,
        tag: Option<&str>,
        claimant: Claimant<'_>,
    ) -> Result<Guard, Error> {
        let reader = self.join_readers(tag, claimant)?;
        held.release()?;
        Ok(reader)
    }

    pub(crate) fn acquire_as(
        &self,
        tag: Option<&str>,
        claimant: Claimant<'_>,
        patience: &Patience<'_>,
        sharing: Sharing,
    ) -> Result<Guard, Error> {
        let begin = Instant::now();
        let guard = self.acquire_turn(begin, tag, claimant, patience)?;
        if sharing == Sharing::Shared {
            return self.share(guard, tag, claimant);
        }
        // Should that fail, the guard lets go.
        self.await_readers(begin, patience)?;
        Ok(guard)
    }

    pub(crate) fn attempt(
        &self,
        tag: Option<&str>,
        claimant: Claimant<'_>,
    ) -> Result<Attempt, Error> {
        let mut first = InTheWay::default();
        for (index, name) in self.inner.names.iter().enumerate() {
            match self.inner.located(self.inner.attempt_slot(name, tag, claimant))? {
                Slot::Taken(published, info) => {
                    let guard = Guard::new(Arc::clone(&self.inner), index, published, info);
                    return Ok(Attempt::Taken(guard));
                }
                Slot::Held(in_the_way) => first = first.or(in_the_way),
            }
        }
        Ok(Attempt::Held(first))
    }

    /// Where the lock file is, links followed; with several slots the name they begin with.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.inner.place.directory.join(&self.inner.place.name)
    }

    pub(crate) fn obstacle(&self) -> Error {
        Error::Obstacle { path: self.path() }
    }
}

/// What a mutex of ours guards is whole at any time, also after a panic elsewhere.
pub(crate) fn guarded<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    /// Where a slot's lock file is.
    pub(crate) fn path_of(&self, name: &Name) -> PathBuf {
        self.place.directory.join(name)
    }

    /// The line of its waiters.
    pub(crate) fn line(&self) -> Line<'_> {
        Line { directory: &self.directory, lock: &self.place.name, mode: self.config.mode }
    }

    /// Errors of a file in the directory name it whole.
    pub(crate) fn located<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|error| error.within(&self.place.directory))
    }

    /// This process as a holder. A fork changes the number, so that is checked every time.
    pub(crate) fn own_holder(&self) -> Result<Holder, Error> {
        let pid = Pid::this();
        let number = crate::sys::number(pid);
        let mut own = guarded(&self.own);
        if let Some(holder) = own.as_ref().filter(|holder| holder.pid() == number) {
            return Ok(holder.clone());
        }
        let holder = Holder::of(pid, self.judge.here()).ok_or(Error::NoHolder { pid: number })?;
        *own = Some(holder.clone());
        Ok(holder)
    }

    /// Takes one slot if it is free or stale. Repeats itself only when the file changed between
    /// the look and the deed, which is somebody else's progress.
    fn attempt_slot(
        &self,
        name: &Name,
        tag: Option<&str>,
        claimant: Claimant<'_>,
    ) -> Result<Slot, Error> {
        for _ in 0..MOST_LOOKS {
            match self.directory.read(name, LONGEST_FILE + 1)? {
                Found::Nothing => {
                    if let Some(taken) = self.publish(name, tag, claimant)? {
                        return Ok(taken);
                    }
                }
                Found::File(judged) => {
                    let seen = self.judge.judge(&judged);
                    if !seen.stale {
                        return Ok(Slot::Held(seen.in_the_way(|| self.path_of(name))?));
                    }
                    let in_the_way = InTheWay::of(seen.lock_info());
                    let owner = judged.owner();
                    let info = self.claim(tag, claimant)?;
                    let text = info.to_text();
                    match self.directory.replace(name, judged, &self.words(name, &text)) {
                        Ok(Breaking::Replaced(published)) => {
                            return Ok(Slot::Taken(published, info));
                        }
                        Ok(Breaking::Changed) => {}
                        // The process that is breaking it is about to hold it.
                        Ok(Breaking::Contended) => return Ok(Slot::Held(in_the_way)),
                        Err(error) if may_go(&error) => {
                            return Ok(Slot::Held(InTheWay { left_by: Some(owner), ..in_the_way }));
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
                Found::Obstacle(Obstacle::Unreadable) => {
                    return Ok(Slot::Held(InTheWay::default()));
                }
                Found::Obstacle(Obstacle::Link | Obstacle::Directory | Obstacle::Special) => {
                    let path = self.place.directory.join(name);
                    return Err(Error::Obstacle { path });
                }
            }
        }
        Ok(Slot::Held(InTheWay::default()))
    }

    fn publish(
        &self,
        name: &Name,
        tag: Option<&str>,
        claimant: Claimant<'_>,
    ) -> Result<Option<Slot>, Error> {
        let info = self.claim(tag, claimant)?;
        let text = info.to_text();
        match self.directory.publish(name, &self.words(name, &text)) {
            Ok(Publication::Published(published)) => Ok(Some(Slot::Taken(published, info))),
            Ok(Publication::AlreadyThere) => Ok(None),
            // A cleaner in another pid namespace took our temporary file for an orphan.
            Err(error) if error.step == Step::Publish && is_absent(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn claim(&self, tag: Option<&str>, claimant: Claimant<'_>) -> Result<LockInfo, Error> {
        let tag = tag.and_then(|tag| Tag::clean_to(tag, self.config.longest_tag));
        Ok(LockInfo::new(claimant()?, now_seconds(), tag))
    }

    fn words<'a>(&self, name: &'a Name, text: &'a str) -> Claim<'a> {
        Claim {
            content: text.as_bytes(),
            mode: self.config.mode & MODE_BITS,
            prefix: name.as_os_str(),
            durability: self.config.durability,
        }
    }

    pub(crate) fn slot_status(&self, name: &Name) -> Result<SlotStatus, Error> {
        Ok(match self.directory.read(name, LONGEST_FILE + 1)? {
            Found::Nothing => SlotStatus::Free,
            Found::File(judged) => SlotStatus::Held(self.judge.judge(&judged)),
            Found::Obstacle(Obstacle::Unreadable) => SlotStatus::Held(HeldStatus::UNREADABLE),
            Found::Obstacle(Obstacle::Link | Obstacle::Directory | Obstacle::Special) => {
                SlotStatus::Obstacle
            }
        })
    }
}

/// Whether a stale lock could not be broken because it is another user's, in a sticky directory: that
/// one, or root, may yet remove it. On Windows nobody can be told apart so.
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

#[cfg(test)]
#[path = "semaphore_tests.rs"]
mod tests;
