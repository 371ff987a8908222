//! A request for a semaphore, and the guard that it gives. A request has settings for one call: the tag, the timeout,
//! what ends the wait, and whether the semaphore is shared. A guard removes only the very file that it published, and
//! only in the process that took it: a forked child that drops its copy releases nothing.

#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use pidlockfile::{Name, Pid, Published};

use crate::error::Error;
use crate::record::LockInfo;
use crate::semaphore::files::Files;
use crate::semaphore::readers::Readers;
use crate::semaphore::{Patience, Semaphore, Wish};
use crate::sys::{Alarm, Bell, guarded};

/// How to take a semaphore this time. Made by [`Semaphore::request`]; ends with
/// [`try_acquire`](Self::try_acquire) or [`acquire`](Self::acquire).
///
/// ```
/// use std::time::Duration;
/// use file_semaphore::{Cancel, Error, Semaphore};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let scratch = tempfile::tempdir()?;
/// # let path = scratch.path().join("index.lock");
/// let index = Semaphore::open(&path)?;
/// let reader = index.request().tag("search").shared().acquire()?;
///
/// let cancel = Cancel::new()?;
/// let other = cancel.clone();
/// std::thread::spawn(move || other.cancel());
/// let writer = index.request().timeout(Duration::from_secs(30)).cancelled_by(&cancel).acquire();
/// assert!(matches!(writer, Err(Error::Cancelled)));
/// reader.release()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "nothing is taken before acquire() or try_acquire()"]
pub struct Request<'a> {
    pub(crate) semaphore: &'a Semaphore,
    pub(crate) tag: Option<&'a str>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) cancel: Option<&'a Cancel>,
    pub(crate) sharing: Sharing,
}

/// Whether a semaphore is taken alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    Alone,
    Shared,
}

impl<'a> Request<'a> {
    /// What it is for.
    pub fn tag(self, tag: &'a str) -> Self {
        Self { tag: Some(tag), ..self }
    }

    /// How long to wait at most.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Wait for ever.
    pub fn without_timeout(self) -> Self {
        Self { timeout: None, ..self }
    }

    /// What ends the wait from another thread.
    pub fn cancelled_by(self, cancel: &'a Cancel) -> Self {
        Self { cancel: Some(cancel), ..self }
    }

    /// Together with others that share it. Not for semaphores of several slots, where it means
    /// nothing.
    pub fn shared(self) -> Self {
        Self { sharing: Sharing::Shared, ..self }
    }

    /// Takes the semaphore if that is possible now.
    ///
    /// # Errors
    /// As [`Semaphore::try_acquire`].
    pub fn try_acquire(self) -> Result<Guard, Error> {
        self.take(Patience::TRY)
    }

    /// Waits until the semaphore can be taken, and takes it.
    ///
    /// # Errors
    /// As [`Semaphore::acquire`], and [`Error::Cancelled`].
    pub fn acquire(self) -> Result<Guard, Error> {
        let alarm = self.cancel.map(|cancel| cancel as &dyn Alarm);
        if let Some(error) = alarm.and_then(|alarm| alarm.ring()) {
            return Err(error);
        }
        self.take(Patience { timeout: self.timeout, alarm, ..Patience::default() })
    }

    fn take(self, patience: Patience<'_>) -> Result<Guard, Error> {
        let Self { semaphore, tag, sharing, .. } = self;
        semaphore.take(Wish { tag, sharing, patience }, &mut || semaphore.files.own_holder())
    }
}

/// Ends waits from another thread. All clones are one; it stays cancelled.
///
/// ```
/// use file_semaphore::{Cancel, Error, Semaphore};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let scratch = tempfile::tempdir()?;
/// # let path = scratch.path().join("index");
/// let index = Semaphore::open(&path)?;
/// let held = index.acquire(None)?;
/// let cancel = Cancel::new()?;
/// let other = cancel.clone();
/// let thread = std::thread::spawn(move || other.cancel());
/// let waiting = index.request().cancelled_by(&cancel).acquire();
/// assert!(matches!(waiting, Err(Error::Cancelled)));
/// # thread.join().unwrap();
/// # drop(held); Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Cancel(Arc<CancelLine>);

#[derive(Debug)]
struct CancelLine {
    cancelled: AtomicBool,
    bell: Bell,
    /// Those that are cancelled with it, as long as somebody waits for them.
    followers: Mutex<Vec<Weak<CancelLine>>>,
}

impl Cancel {
    /// Makes one that is not cancelled.
    ///
    /// # Errors
    /// [`Error::Process`] when there are no more descriptors.
    pub fn new() -> Result<Self, Error> {
        let bell = Bell::new();
        let bell = bell.map_err(|_| Error::Process { message: "no descriptor is left" })?;
        let cancelled = AtomicBool::new(false);
        Ok(Self(Arc::new(CancelLine { cancelled, bell, followers: Mutex::default() })))
    }

    /// Another, which is cancelled with this one, and alone as well.
    #[cfg(feature = "async")]
    pub(crate) fn follower(&self) -> Result<Self, Error> {
        let follower = Self::new()?;
        let mut followers = guarded(&self.0.followers);
        followers.retain(|other| other.strong_count() > 0);
        followers.push(Arc::downgrade(&follower.0));
        drop(followers);
        // A cancel from now on reaches it through `followers`.
        if self.is_cancelled() {
            follower.cancel();
        }
        Ok(follower)
    }

    /// Ends every wait that was given this, now and later, with [`Error::Cancelled`].
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Release);
        self.0.bell.ring();
        let followers: Vec<_> = guarded(&self.0.followers).drain(..).collect();
        for follower in followers.iter().filter_map(Weak::upgrade) {
            Self(follower).cancel();
        }
    }

    /// Whether it was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }
}

impl Alarm for Cancel {
    #[cfg(unix)]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.bell.as_fd()
    }

    fn ring(&self) -> Option<Error> {
        self.is_cancelled().then_some(Error::Cancelled)
    }
}

/// A semaphore that is held, until this is released or dropped.
///
/// Dropping releases too, but cannot report a failure.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let scratch = tempfile::tempdir()?;
/// # let path = scratch.path().join("index");
/// let held = file_semaphore::Semaphore::open(&path)?.acquire(Some("rebuild"))?;
/// for _piece in 0..3 {
///     // ... work
///     if !held.still_held()? {
///         return Err("somebody has removed the lock".into());
///     }
/// }
/// held.release()?;
/// # Ok(()) }
/// ```
#[must_use = "the semaphore is released when the guard is dropped"]
#[derive(Debug)]
pub struct Guard {
    files: Arc<Files>,
    slot: usize,
    name: Name,
    published: Option<Published>,
    info: LockInfo,
    taker: Pid,
    /// The semaphore that is shared, if this is a reader's.
    shared: Option<Arc<Files>>,
}

impl Guard {
    /// Of the slot with this number, from 0, and this lock file.
    pub(crate) fn new(
        files: Arc<Files>,
        (slot, name): (usize, Name),
        published: Published,
        info: LockInfo,
    ) -> Self {
        let (published, taker) = (Some(published), Pid::this());
        Self { files, slot, name, published, info, taker, shared: None }
    }

    /// Makes it a reader's.
    pub(crate) fn sharing(mut self, semaphore: Arc<Files>) -> Self {
        self.shared = Some(semaphore);
        self
    }

    /// What the lock file says.
    #[must_use]
    pub fn info(&self) -> &LockInfo {
        &self.info
    }

    /// Which slot of the semaphore is held, from 1.
    #[must_use]
    pub fn slot(&self) -> usize {
        self.slot.saturating_add(1)
    }

    /// Lets the semaphore go.
    ///
    /// # Errors
    /// [`Error::NotLocked`] or [`Error::NotHolder`] when somebody took it away in the meantime;
    /// nothing was removed then. [`Error::System`].
    pub fn release(mut self) -> Result<(), Error> {
        self.release_if_held()
    }

    /// Leaves the semaphore held when the guard is gone: for programs that take it in the name
    /// of another process.
    pub fn keep(mut self) -> LockInfo {
        self.published = None;
        self.info.clone()
    }

    /// Whether the semaphore is still held: nobody has removed or replaced the lock file.
    ///
    /// # Errors
    /// [`Error::System`] when that cannot be looked at.
    pub fn still_held(&self) -> Result<bool, Error> {
        let Some(published) = &self.published else { return Ok(false) };
        self.files.located(self.files.leads_to(&self.name, published.identity))
    }

    /// Renews the lock: by `StaleRule::Age` it is as young as if it were taken now.
    ///
    /// # Errors
    /// [`Error::NotLocked`] or [`Error::NotHolder`] when somebody took it away;
    /// [`Error::System`].
    pub fn renew(&self) -> Result<(), Error> {
        let Some(published) = &self.published else {
            return Err(Error::NotLocked { path: self.path() });
        };
        self.files.located(self.files.renew_file(&self.name, &published.file, published.identity))
    }

    /// Where the lock file is.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.files.path_of(&self.name)
    }

    /// Writes the lock to the disk, for a program that took it with
    /// [`Durability::Memory`](crate::Durability::Memory).
    #[cfg(all(feature = "cli", unix))]
    pub(crate) fn sync(&self) {
        if let Some(published) = &self.published {
            // It is held all the same.
            let _ = published.file.sync_all();
        }
    }

    /// Keeps breakers off until the lock is released, even when its holder has ended: for a caller
    /// that waits for the holder and then releases, and must be able to tell an orderly end from a
    /// lock that was taken away.
    #[cfg(all(feature = "cli", unix))]
    pub(crate) fn shield(&self) {
        if let Some(published) = &self.published {
            // Where that fails a release may find the lock broken a moment before.
            let _ = crate::sys::flock_exclusively(&published.file);
        }
    }

    fn release_if_held(&mut self) -> Result<(), Error> {
        let Some(published) = self.published.take() else { return Ok(()) };
        let released = self.files.located(self.files.withdraw(&self.name, &published));
        if let Some(semaphore) = &self.shared {
            Readers::of(semaphore).remove_if_empty();
        }
        released
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.taker == Pid::this() {
            let _ = self.release_if_held();
        }
    }
}
