//! A semaphore: its settings, what its users may ask of it, and a request for it, which has settings for one call: the tag,
//! the timeout, what ends the wait, and whether the semaphore is shared. Several are taken all or none, always in the same
//! order, so that two callers never wait for each other. The files, the guard, the wait and the readers are elsewhere.

pub(crate) mod cleaning;
pub(crate) mod files;
mod guard;
mod readers;
mod waiting;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pidlockfile::Durability;

use crate::error::{Error, PathProblem};
use crate::limits::{LONGEST_TAG, MODE, MOST_SLOTS, RETRY_INTERVAL, STALE_TIMEOUT};
use crate::record::{Holder, LockInfo};
use crate::semaphore::cleaning::{Swept, sweep};
use crate::semaphore::files::{Claimant, Files};
use crate::semaphore::readers::Readers;
use crate::stale::{HeldStatus, StalePolicy, StaleRule};
use crate::sys::Alarm;

pub(crate) use files::Free;
pub use files::{Releaser, SlotStatus};
pub use guard::Guard;
pub use waiting::Cancel;
pub(crate) use waiting::{Patience, Sharing, Waiting};

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
    pub(crate) files: Arc<Files>,
}

/// How a semaphore behaves. Begin with [`Config::default`], and change some of it.
///
/// ```
/// use std::time::Duration;
/// use file_semaphore::{Config, StaleRule};
///
/// let mut config = Config::default();
/// config.acquire_timeout = Some(Duration::from_secs(10));
/// config.stale_rule = StaleRule::Age;
/// assert_eq!(config.stale_timeout, Some(Duration::from_secs(3600)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// What counts as old; `None` means that no lock is ever stale. One hour.
    pub stale_timeout: Option<Duration>,
    /// When a lock is stale. [`StaleRule::Dead`].
    pub stale_rule: StaleRule,
    /// How long [`Semaphore::acquire`] waits; `None` is for ever.
    pub acquire_timeout: Option<Duration>,
    /// The pause between two checks of a waiter to which nothing was reported. 100 ms.
    pub retry_interval: Duration,
    /// The longest tag, in characters; longer ones are cut. At most 10,000, which is also the default.
    pub longest_tag: usize,
    /// The permission bits of the lock file, whatever the umask; of 0666 ([`MODE_BITS`](crate::limits::MODE_BITS)).
    /// 0644.
    pub mode: u32,
    /// How many may hold it at once. One.
    pub slots: Slots,
    /// Whether a lock is written to the disk before it counts. [`Durability::Disk`].
    pub durability: Durability,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            stale_timeout: Some(STALE_TIMEOUT),
            stale_rule: StaleRule::Dead,
            acquire_timeout: None,
            retry_interval: RETRY_INTERVAL,
            longest_tag: LONGEST_TAG,
            mode: MODE,
            slots: Slots::ONE,
            durability: Durability::Disk,
        }
    }
}

impl Config {
    pub(crate) fn stale_policy(&self) -> StalePolicy {
        StalePolicy { rule: self.stale_rule, timeout: self.stale_timeout }
    }
}

/// How many may hold a semaphore at once: 1 to [`MOST_SLOTS`].
///
/// All users of a semaphore must agree on it: with one, the lock is the file itself; with more,
/// the files `PATH.1`, `PATH.2` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slots(u32);

impl Slots {
    /// A plain lock.
    pub const ONE: Self = Self(1);

    /// Checks a number of slots.
    #[must_use]
    pub fn new(count: u32) -> Option<Self> {
        (1..=MOST_SLOTS).contains(&count).then_some(Self(count))
    }

    /// The number.
    #[must_use]
    pub fn count(self) -> u32 {
        self.0
    }
}

/// What a semaphore is taken for, and how.
#[derive(Clone, Copy)]
pub(crate) struct Claim<'a> {
    pub(crate) tag: Option<&'a str>,
    pub(crate) sharing: Sharing,
    pub(crate) patience: Patience<'a>,
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
        Files::open(path.as_ref(), config).map(|files| Self { files })
    }

    /// Takes the semaphore for this process if it is free or stale.
    ///
    /// It does not overtake waiters: if it is free while some wait, one of them is about to take it. This call
    /// gives them a quarter of a second; if none does, they are stopped, and the semaphore is taken. If a lock
    /// file is half written, this call waits for the rest for up to two seconds.
    ///
    /// # Errors
    /// [`Error::AlreadyLocked`] with the holder, also when a stale lock is somebody else's file in a
    /// directory where only its owner may remove it; [`Error::Obstacle`]; [`Error::System`].
    pub fn try_acquire(&self, tag: Option<&str>) -> Result<Guard, Error> {
        Request { tag, ..self.request() }.try_acquire()
    }

    /// Waits until the semaphore can be taken for this process, at most the configured
    /// [`acquire_timeout`](Config::acquire_timeout).
    ///
    /// A release wakes the next waiter at once (inotify(7)). Waiters take turns, first come, first
    /// served; a waiter that is killed or stopped keeps nobody waiting.
    ///
    /// Behind another waiter, this starts a thread that blocks in flock(2), because nothing else shows when that waiter
    /// ends. If this wait is over first, the thread stays for the next wait. So there are at most one thread and four
    /// descriptors for each such waiter.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; otherwise as [`try_acquire`](Self::try_acquire).
    pub fn acquire(&self, tag: Option<&str>) -> Result<Guard, Error> {
        Request { tag, ..self.request() }.acquire()
    }

    /// Waits until the semaphore could be taken (free, or stale), without taking it.
    ///
    /// # Errors
    /// [`Error::TimedOut`] after the configured [`acquire_timeout`](Config::acquire_timeout).
    pub fn wait(&self) -> Result<(), Error> {
        let timeout = self.files.config.acquire_timeout;
        Waiting::begin(&self.files, Patience { timeout, ..Patience::default() })
            .until_free(Free::One)
    }

    /// Every slot as it is now, slot 1 first.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn status(&self) -> Result<Vec<SlotStatus>, Error> {
        self.files.status()
    }

    /// The readers that share the semaphore, dead ones among them until a process wants it alone.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn readers(&self) -> Result<Vec<HeldStatus>, Error> {
        self.shared().status()
    }

    fn shared(&self) -> Readers<'_> {
        Readers::of(&self.files)
    }

    /// Begins to take the semaphore, with what the [`Config`] says of waiting.
    pub fn request(&self) -> Request<'_> {
        let timeout = self.files.config.acquire_timeout;
        let sharing = Sharing::Alone;
        Request { semaphore: self, tag: None, timeout, cancel: None, sharing }
    }

    /// Takes it in the name that `holder` gives, which is asked when the lock is about to be taken, or its caller is the
    /// next in the queue.
    pub(crate) fn take(
        &self,
        Claim { tag, sharing, patience }: Claim<'_>,
        holder: &mut dyn FnMut() -> Result<Holder, Error>,
    ) -> Result<Guard, Error> {
        Waiting::begin(&self.files, patience).acquire(&mut Claimant { tag, holder }, sharing)
    }

    /// Takes all of these semaphores for this process if all are free or stale, or none. The
    /// guards are in the order of the semaphores.
    ///
    /// ```
    /// use file_semaphore::Semaphore;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let scratch = tempfile::tempdir()?;
    /// let [a, b] = ["a", "b"].map(|name| Semaphore::open(scratch.path().join(name)));
    /// let (a, b) = (a?, b?);
    /// let both = Semaphore::try_acquire_many(&[&a, &b], Some("move"))?;
    /// assert!(a.try_acquire(None).is_err() && b.try_acquire(None).is_err());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire), for the first that cannot be taken;
    /// [`Error::InvalidPath`] when two are the same.
    pub fn try_acquire_many(semaphores: &[&Self], tag: Option<&str>) -> Result<Vec<Guard>, Error> {
        Self::take_many(semaphores, tag, Patience::TRY)
    }

    /// Waits until it has taken all of these semaphores for this process. If it gives up, it releases those that it has
    /// taken.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire); [`Error::InvalidPath`] when two are the same.
    pub fn acquire_many(
        semaphores: &[&Self],
        tag: Option<&str>,
        timeout: Option<Duration>,
    ) -> Result<Vec<Guard>, Error> {
        Self::take_many(semaphores, tag, Patience { timeout, ..Patience::default() })
    }

    fn take_many(
        semaphores: &[&Self],
        tag: Option<&str>,
        patience: Patience<'_>,
    ) -> Result<Vec<Guard>, Error> {
        let claim = Claim { tag, sharing: Sharing::Alone, patience };
        acquire_many(semaphores, claim, &mut |semaphore| semaphore.files.own_holder())
    }

    /// Releases the first slot that is recorded for the releaser, even if another process took it in the releaser's name.
    /// If there is no such slot, and the releaser shares the semaphore, this releases its share;
    /// [`Releaser::Anyone`] releases the shares of all.
    ///
    /// # Errors
    /// [`Error::NotLocked`]; [`Error::NotHolder`] with a holder; [`Error::Parse`] when a file
    /// does not name its owner ([`Releaser::Anyone`] removes it all the same); [`Error::Obstacle`];
    /// [`Error::System`].
    pub fn release_for(&self, releaser: Releaser<'_>) -> Result<(), Error> {
        let alone = self.files.release(releaser);
        let release = |files: &Files| files.release(releaser);
        let everybody = matches!((releaser, &alone), (Releaser::Anyone, Err(_)));
        self.or_shared(alone, release)?;
        while everybody && self.shared().first(release)?.is_some() {}
        Ok(())
    }

    /// Renews a slot that is recorded for the releaser, even if another process took it: by
    /// [`StaleRule::Age`] it is as young as if it were taken now. The
    /// original tools do not see that.
    ///
    /// # Errors
    /// As [`release_for`](Self::release_for).
    pub fn renew_for(&self, releaser: Releaser<'_>) -> Result<LockInfo, Error> {
        self.or_shared(self.files.renew(releaser), |files| files.renew(releaser))
    }

    /// If the releaser does not hold it alone, it may share it: then the action is for its share.
    fn or_shared<T>(
        &self,
        alone: Result<T, Error>,
        action: impl Fn(&Files) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match alone {
            Err(error @ (Error::NotLocked { .. } | Error::NotHolder { .. })) => {
                self.shared().first(action)?.ok_or(error)
            }
            other => other,
        }
    }

    /// Removes the semaphore's stale locks, and the temporary files beside them whose maker is
    /// dead. Files of living processes stay, however old they are.
    ///
    /// # Errors
    /// [`Error::System`]; a temporary file that cannot be removed is passed over.
    pub fn clean(&self) -> Result<Swept, Error> {
        sweep(&self.files)
    }

    /// Where the lock file is, links followed; with several slots the name they begin with.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.files.path()
    }
}

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
        semaphore.take(Claim { tag, sharing, patience }, &mut || semaphore.files.own_holder())
    }
}

/// Takes one after the other, in the order of directory and name, each in the name that `holder` gives for it. If one
/// cannot be taken, all are released.
pub(crate) fn acquire_many(
    semaphores: &[&Semaphore],
    claim: Claim<'_>,
    holder: &mut dyn FnMut(&Semaphore) -> Result<Holder, Error>,
) -> Result<Vec<Guard>, Error> {
    let begin = Instant::now();
    let key = |semaphore: &Semaphore| {
        let place = semaphore.files.directory.identity();
        (place, semaphore.files.place.name.as_os_str().to_owned())
    };
    let mut sorted: Vec<(usize, &Semaphore)> = semaphores.iter().copied().enumerate().collect();
    sorted.sort_by_key(|(_, semaphore)| key(semaphore));
    let twice = sorted.windows(2).find_map(|pair| match pair {
        [(_, one), (_, other)] if key(one) == key(other) => Some(other.path()),
        _ => None,
    });
    if let Some(path) = twice {
        return Err(Error::InvalidPath { path, problem: PathProblem::Twice });
    }
    let mut guards = Vec::with_capacity(sorted.len());
    for (index, semaphore) in sorted {
        let timeout = claim.patience.timeout.map(|timeout| timeout.saturating_sub(begin.elapsed()));
        let claim = Claim { patience: Patience { timeout, ..claim.patience }, ..claim };
        guards.push((index, semaphore.take(claim, &mut || holder(semaphore))?));
    }
    guards.sort_by_key(|(index, _)| *index);
    Ok(guards.into_iter().map(|(_, guard)| guard).collect())
}

#[cfg(test)]
#[path = "semaphore_tests.rs"]
mod tests;
