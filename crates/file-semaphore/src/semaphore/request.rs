//! A request for a semaphore, with settings for one call: the tag, the timeout, what ends the wait, and
//! sharing.

#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crate::error::Error;
use crate::semaphore::{Guard, Patience, Semaphore, Wish};
use crate::sys::bell::Bell;
use crate::sys::guarded;
use crate::sys::watch::Alarm;

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
pub struct Cancel(Arc<Line>);

#[derive(Debug)]
struct Line {
    cancelled: AtomicBool,
    bell: Bell,
    /// Those that are cancelled with it, as long as somebody waits for them.
    followers: Mutex<Vec<Weak<Line>>>,
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
        Ok(Self(Arc::new(Line { cancelled, bell, followers: Mutex::default() })))
    }

    /// Another, which is cancelled with this one, and alone as well.
    #[cfg(feature = "async")]
    pub(crate) fn follower(&self) -> Result<Self, Error> {
        let follower = Self::new()?;
        let mut followers = guarded(&self.0.followers);
        followers.retain(|other| other.strong_count() > 0);
        followers.push(Arc::downgrade(&follower.0));
        drop(followers);
        // Or else it is told.
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
        followers.iter().filter_map(Weak::upgrade).for_each(|other| Self(other).cancel());
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
