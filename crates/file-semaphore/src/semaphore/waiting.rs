//! Waits for a semaphore: stands in line, and then watches the lock. Decides when to try; whether the lock is
//! free, and for which process, is decided elsewhere.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, InTheWay};
#[cfg(feature = "cli")]
use crate::judge::HeldStatus;
use crate::limits::{
    BESIDE_INTERVAL, LEFT_INTERVAL, LINE_INTERVAL, MOST_TURNS_MISSED, UNTOLD_INTERVAL,
};
#[cfg(feature = "cli")]
use crate::semaphore::SlotStatus;
use crate::semaphore::files::{Claimant, Files, Tried};
use crate::semaphore::readers::Readers;
use crate::semaphore::{Guard, Sharing};
use crate::sys::Woken;
use crate::sys::line::Ticket;
use crate::sys::watch::{Alarm, Watch};

/// How to wait for a semaphore.
#[derive(Clone, Copy, Default)]
pub(crate) struct Patience<'a> {
    pub(crate) timeout: Option<Duration>,
    pub(crate) alarm: Option<&'a dyn Alarm>,
    /// Hears of the holder before a wait begins ([`Error::AlreadyLocked`]).
    pub(crate) hears: Option<&'a dyn Fn(&Error)>,
}

/// A wait that has begun.
pub(crate) struct Waiting<'a> {
    files: &'a Arc<Files>,
    patience: Patience<'a>,
    begin: Instant,
}

/// The directory that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watched {
    Locks,
    Readers,
}

/// Takes a lock without standing in line, and without overtaking waiters: while one of them may be about to
/// take what is free, they have time for it.
pub(crate) fn attempt_beside(
    files: &Arc<Files>,
    claimant: &mut Claimant<'_>,
) -> Result<Tried<Guard>, Error> {
    let begin = Instant::now();
    while begin.elapsed() < LINE_INTERVAL && files.line().stands() {
        if let Err(in_the_way) = files.look()? {
            return Ok(Err(in_the_way));
        }
        std::thread::sleep(BESIDE_INTERVAL);
    }
    files.attempt(claimant)
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
                // Should that fail, the guard lets go.
                let interval = self.files.config.retry_interval;
                self.until(Watched::Readers, interval, || {
                    Ok(readers.in_the_way()?.map_or(Ok(()), Err))
                })?;
                Ok(guard)
            }
        }
    }

    /// Waits until the semaphore could be taken.
    pub(crate) fn until_free(&self) -> Result<(), Error> {
        let interval = self.files.config.retry_interval;
        self.until(Watched::Locks, interval, || {
            let readers = Readers::of(self.files).status()?;
            match readers.into_iter().find(|reader| !reader.stale) {
                None => self.files.look(),
                Some(reader) => Ok(Err(InTheWay::of(reader.lock_info()))),
            }
        })
    }

    /// Waits until nobody holds a slot or a share. For the program `sema`.
    #[cfg(feature = "cli")]
    pub(crate) fn until_all_free(&self) -> Result<(), Error> {
        let files = self.files;
        let interval = files.config.retry_interval;
        self.until(Watched::Locks, interval, || {
            let slots = files.status()?.into_iter().filter_map(|slot| match slot {
                SlotStatus::Held(held) => Some(Ok(held)),
                SlotStatus::Free => None,
                SlotStatus::Obstacle => Some(Err(files.obstacle())),
            });
            let held = slots.chain(Readers::of(files).status()?.into_iter().map(Ok));
            let held: Vec<HeldStatus> = held.collect::<Result<_, Error>>()?;
            let living = held.iter().find(|held| !held.stale);
            match living {
                None => Ok(Ok(())),
                Some(living) => Ok(Err(living.in_the_way(|| files.path())?)),
            }
        })
    }

    /// Takes the lock itself when its turn has come.
    fn turn(&self, claimant: &mut Claimant<'_>) -> Result<Guard, Error> {
        let files = self.files;
        let line = files.line();
        if self.patience.timeout == Some(Duration::ZERO) {
            return attempt_beside(files, claimant)?.map_err(|in_the_way| self.timeout(in_the_way));
        }
        if !line.exists() {
            if let Ok(guard) = files.attempt(claimant)? {
                return Ok(guard);
            }
        }
        if let (Some(_), Err(in_the_way)) = (self.patience.hears, files.look()?) {
            self.say(&in_the_way);
        }
        let mut ticket = line.join();
        if let Some(ticket) = &mut ticket {
            self.stand_in_line(ticket)?;
            // The next in line prepares its record now, not only when the lock is free.
            (claimant.holder)()?;
        }
        // Only one in each line looks.
        let interval = files.config.retry_interval;
        let unreported = if ticket.is_some() { interval.min(UNTOLD_INTERVAL) } else { interval };
        // The place in the line is kept until the lock is taken.
        self.until(Watched::Locks, unreported, || files.attempt(claimant))
    }

    /// Waits until all earlier waiters have had their turn, or the first one lets it pass.
    fn stand_in_line(&self, ticket: &mut Ticket<'_>) -> Result<(), Error> {
        let interval = self.files.config.retry_interval.max(LINE_INTERVAL);
        let mut missed = 0;
        while !ticket.is_first() {
            let Some(turn) = ticket.turn() else { return Ok(()) };
            let time = self.left().map_or(interval, |left| left.min(interval));
            if self.woken(turn.wait(time, self.patience.alarm))? != Woken::Time {
                continue;
            }
            self.files.check_place()?;
            let seen = self.files.look()?;
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
        Ok(())
    }

    /// Looks, and while somebody holds on, waits and looks again: as often as `unreported` says where nobody
    /// reports what happens.
    fn until<T>(
        &self,
        watched: Watched,
        unreported: Duration,
        mut look: impl FnMut() -> Result<Tried<T>, Error>,
    ) -> Result<T, Error> {
        let mut watch = None;
        loop {
            let in_the_way = match look()? {
                Ok(result) => return Ok(result),
                Err(in_the_way) => in_the_way,
            };
            let left = self.left();
            if left == Some(Duration::ZERO) {
                return Err(self.timeout(in_the_way));
            }
            // What happened before the watch began is found by one more look.
            let Some(watch) = &watch else {
                self.say(&in_the_way);
                watch = match watched {
                    Watched::Locks => Some(Watch::on(&self.files.directory)),
                    Watched::Readers => Readers::of(self.files).watch(),
                };
                continue;
            };
            let usual = self.files.config.retry_interval;
            let mut interval = if watch.is_told() { usual } else { unreported };
            if in_the_way.left_by.is_some() {
                // Each try writes a file, and the removal of the lock is heard of.
                interval = interval.max(LEFT_INTERVAL);
            }
            let time = left.map_or(interval, |left| left.min(interval));
            let alarm = self.patience.alarm;
            let woken = match watched {
                Watched::Locks => watch.wait(&self.files.names, time, alarm),
                Watched::Readers => watch.wait_for_any(time, alarm),
            };
            if self.woken(woken)? == Woken::Time && watched == Watched::Locks {
                self.files.check_place()?;
            }
        }
    }

    /// An alarm may end the whole.
    fn woken(&self, woken: Woken) -> Result<Woken, Error> {
        let alarm = self.patience.alarm.filter(|_| woken == Woken::Alarm);
        alarm.and_then(|alarm| alarm.ring()).map_or(Ok(woken), Err)
    }

    /// How much of the time is left; `None` when there is no end.
    fn left(&self) -> Option<Duration> {
        self.patience.timeout.map(|timeout| timeout.saturating_sub(self.begin.elapsed()))
    }

    fn timeout(&self, in_the_way: InTheWay) -> Error {
        in_the_way.timeout(self.files.path(), self.begin.elapsed())
    }

    /// Names the holder in the way of a wait that begins.
    fn say(&self, in_the_way: &InTheWay) {
        if let Some(hears) = self.patience.hears {
            hears(&in_the_way.clone().refused(self.files.path()));
        }
    }
}
