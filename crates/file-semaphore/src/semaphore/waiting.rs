//! Waits for a semaphore: stands in line, and then watches the lock. Decides when to try; whether the lock is
//! free, and for which process, is decided elsewhere. Another thread ends a wait by a [`Cancel`].

#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use pidlockfile::Name;

use crate::error::{Error, InTheWay};
use crate::limits::{
    BESIDE_INTERVAL, LEFT_INTERVAL, LINE_INTERVAL, MOST_TURNS_MISSED, UNREPORTED_INTERVAL,
    WRITING_TIME,
};
use crate::semaphore::files::{Claimant, Files, Free, Tried};
use crate::semaphore::guard::Guard;
use crate::semaphore::readers::Readers;
use crate::sys::{Alarm, Bell, Ticket, Watch, Woken, guarded};

/// How to wait for a semaphore.
#[derive(Clone, Copy, Default)]
pub(crate) struct Patience<'a> {
    pub(crate) timeout: Option<Duration>,
    pub(crate) alarm: Option<&'a dyn Alarm>,
    /// Hears of the holder before a wait begins ([`Error::AlreadyLocked`]).
    pub(crate) hears: Option<&'a dyn Fn(&Error)>,
    /// The caller does not want to wait. The error then says that the lock is held, not that the time is over.
    pub(crate) only_tries: bool,
}

impl Patience<'_> {
    /// For a caller that does not want to wait.
    pub(crate) const TRY: Self =
        Self { timeout: Some(Duration::ZERO), alarm: None, hears: None, only_tries: true };
}

/// Whether a semaphore is taken alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    Alone,
    Shared,
}

/// A wait that has begun.
pub(crate) struct Waiting<'a> {
    files: &'a Arc<Files>,
    patience: Patience<'a>,
    begin: Instant,
}

/// Takes the first slot that is free or stale.
fn attempt(files: &Arc<Files>, claimant: &mut Claimant<'_>) -> Result<Tried<Guard>, Error> {
    Ok(files.attempt(claimant)?.map(|taken| Guard::of(files, taken)))
}

/// Takes a lock without standing in line, and without overtaking waiters: while one of them may be about to
/// take what is free, they have time for it. A process that is writing its lock has time, too.
fn attempt_beside(files: &Arc<Files>, claimant: &mut Claimant<'_>) -> Result<Tried<Guard>, Error> {
    let begin = Instant::now();
    while begin.elapsed() < LINE_INTERVAL && files.queue().has_waiters() {
        if let Err(in_the_way) = files.check_free(Free::One)? {
            return Ok(Err(in_the_way));
        }
        std::thread::sleep(BESIDE_INTERVAL);
    }
    loop {
        match attempt(files, claimant)? {
            Err(InTheWay { is_being_written: true, .. }) if begin.elapsed() < WRITING_TIME => {
                std::thread::sleep(BESIDE_INTERVAL);
            }
            tried => return Ok(tried),
        }
    }
}

impl<'a> Waiting<'a> {
    pub(crate) fn begin(files: &'a Arc<Files>, patience: Patience<'a>) -> Self {
        Self { files, patience, begin: Instant::now() }
    }

    /// Takes the semaphore when its turn has come.
    pub(crate) fn acquire(
        &self,
        claimant: &mut Claimant<'_>,
        sharing: Sharing,
    ) -> Result<Guard, Error> {
        let guard = self.turn(claimant)?;
        let readers = Readers::of(self.files);
        match sharing {
            Sharing::Shared => readers.join(guard, claimant),
            Sharing::Alone => {
                // If that fails, the guard is dropped, which releases the lock.
                let interval = self.files.config.retry_interval;
                self.until(&[], interval, || Ok(readers.in_the_way()?.map_or(Ok(()), Err)))?;
                Ok(guard)
            }
        }
    }

    /// Waits until so much of the semaphore could be taken.
    pub(crate) fn until_free(&self, wanted: Free) -> Result<(), Error> {
        let interval = self.files.config.retry_interval;
        self.until(&self.files.names, interval, || {
            let readers = Readers::of(self.files).status()?;
            match readers.into_iter().find(|reader| !reader.stale) {
                None => self.files.check_free(wanted),
                Some(reader) => Ok(Err(InTheWay::of(reader.lock_info()))),
            }
        })
    }

    /// Takes the lock itself when its turn has come.
    fn turn(&self, claimant: &mut Claimant<'_>) -> Result<Guard, Error> {
        let files = self.files;
        let queue = files.queue();
        if self.patience.timeout == Some(Duration::ZERO) {
            return attempt_beside(files, claimant)?.map_err(|in_the_way| self.timeout(in_the_way));
        }
        if !queue.exists() {
            if let Ok(guard) = attempt(files, claimant)? {
                return Ok(guard);
            }
        }
        if let (Some(_), Err(in_the_way)) = (self.patience.hears, files.check_free(Free::One)?) {
            self.say(&in_the_way);
        }
        let mut ticket = queue.join();
        if let Some(ticket) = &mut ticket {
            self.stand_in_line(ticket)?;
            // The next in line prepares its record now, not only when the lock is free.
            (claimant.holder)()?;
        }
        // Only one in each line checks.
        let interval = files.config.retry_interval;
        let unreported =
            if ticket.is_some() { interval.min(UNREPORTED_INTERVAL) } else { interval };
        // The place in the line is kept until the lock is taken.
        self.until(&files.names, unreported, || attempt(files, claimant))
    }

    /// Waits until all earlier waiters have had their turn, or the first of them has missed it ([`MOST_TURNS_MISSED`]).
    fn stand_in_line(&self, ticket: &mut Ticket<'_>) -> Result<(), Error> {
        let interval = self.files.config.retry_interval.max(LINE_INTERVAL);
        let mut missed = 0;
        loop {
            let time = self.left().map_or(interval, |left| left.min(interval));
            let Some(woken) = ticket.wait(time, self.patience.alarm) else { return Ok(()) };
            if self.woken(woken)? != Woken::Time {
                continue;
            }
            self.files.check_place()?;
            let seen = self.files.check_free(Free::One)?;
            missed = if seen.is_ok() { missed + 1 } else { 0 };
            let is_over = self.left() == Some(Duration::ZERO);
            match seen {
                Ok(()) if missed >= MOST_TURNS_MISSED => return Ok(()),
                Err(in_the_way) if is_over => return Err(self.timeout(in_the_way)),
                // Free, and no time left to find out whether the first takes it.
                Ok(()) if is_over => return Ok(()),
                Ok(()) | Err(_) => {}
            }
        }
    }

    /// Checks, and checks again as long as somebody holds the lock. In between it waits until the system reports a
    /// change of one of the names; without names, until a reader leaves. It also checks after each `retry_interval`, which
    /// finds a dead holder; where nothing is reported, as often as `unreported` says.
    fn until<T>(
        &self,
        names: &[Name],
        unreported: Duration,
        mut check: impl FnMut() -> Result<Tried<T>, Error>,
    ) -> Result<T, Error> {
        let mut watch = None;
        loop {
            let in_the_way = match check()? {
                Ok(result) => return Ok(result),
                Err(in_the_way) => in_the_way,
            };
            let left = self.left();
            if left == Some(Duration::ZERO) {
                return Err(self.timeout(in_the_way));
            }
            // What happened before the watch began is found by one more check.
            let Some(watch) = &watch else {
                self.say(&in_the_way);
                watch = match names {
                    [] => Readers::of(self.files).watch(),
                    _ => Some(Watch::on(&self.files.directory)),
                };
                continue;
            };
            let usual = self.files.config.retry_interval;
            let mut interval = if watch.reports() { usual } else { unreported };
            if in_the_way.left_by.is_some() {
                // Each attempt writes a file, so attempts are rare. The removal of the lock is reported in any case.
                interval = interval.max(LEFT_INTERVAL);
            }
            if in_the_way.is_being_written {
                // That it was written is not reported.
                interval = interval.min(UNREPORTED_INTERVAL);
            }
            let time = left.map_or(interval, |left| left.min(interval));
            let woken = watch.wait(names, time, self.patience.alarm);
            if self.woken(woken)? == Woken::Time && !names.is_empty() {
                self.files.check_place()?;
            }
        }
    }

    /// An alarm may end the wait.
    fn woken(&self, woken: Woken) -> Result<Woken, Error> {
        let alarm = self.patience.alarm.filter(|_| woken == Woken::Alarm);
        alarm.and_then(|alarm| alarm.ring()).map_or(Ok(woken), Err)
    }

    /// How much of the time is left; `None` when there is no end.
    fn left(&self) -> Option<Duration> {
        self.patience.timeout.map(|timeout| timeout.saturating_sub(self.begin.elapsed()))
    }

    fn timeout(&self, in_the_way: InTheWay) -> Error {
        let path = self.files.path();
        match self.patience.only_tries {
            true => in_the_way.refused(path),
            // Without a time to wait, the time that passed is no wait.
            false if self.patience.timeout == Some(Duration::ZERO) => {
                in_the_way.timeout(path, Duration::ZERO)
            }
            false => in_the_way.timeout(path, self.begin.elapsed()),
        }
    }

    /// Names the holder in the way of a wait that begins.
    fn say(&self, in_the_way: &InTheWay) {
        if let Some(hears) = self.patience.hears {
            hears(&in_the_way.clone().refused(self.files.path()));
        }
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
pub struct Cancel(Arc<CancelState>);

#[derive(Debug)]
struct CancelState {
    cancelled: AtomicBool,
    bell: Bell,
    /// Those that are cancelled with it, as long as somebody waits for them.
    followers: Mutex<Vec<Weak<CancelState>>>,
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
        Ok(Self(Arc::new(CancelState { cancelled, bell, followers: Mutex::default() })))
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
