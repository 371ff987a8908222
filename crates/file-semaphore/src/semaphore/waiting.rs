//! Waits for a semaphore: stands in line, and then watches the lock. Decides when to try; whether the lock is
//! free, and for which process, is decided elsewhere.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use pidlockfile::Status;

use crate::error::{Error, InTheWay, PathProblem};
#[cfg(feature = "cli")]
use crate::judge::HeldStatus;
use crate::limits::{
    BESIDE_INTERVAL, LEFT_INTERVAL, LINE_INTERVAL, MOST_TURNS_MISSED, UNTOLD_INTERVAL,
};
use crate::semaphore::{Attempt, Claimant, Guard, Inner, Semaphore, SlotStatus};
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

impl Patience<'_> {
    /// How much of the time is left; `None` when there is no end.
    pub(crate) fn left(&self, waited: Duration) -> Option<Duration> {
        self.timeout.map(|timeout| timeout.saturating_sub(waited))
    }
}

impl Patience<'_> {
    /// Names the holder in the way of a wait that begins.
    pub(crate) fn say(&self, path: PathBuf, in_the_way: &InTheWay) {
        if let Some(hears) = self.hears {
            hears(&in_the_way.clone().refused(path));
        }
    }
}

/// What a look found.
type Look<T> = Result<T, InTheWay>;

impl Semaphore {
    /// Takes the lock itself when its turn has come.
    pub(crate) fn acquire_turn(
        &self,
        begin: Instant,
        tag: Option<&str>,
        claimant: Claimant<'_>,
        patience: &Patience<'_>,
    ) -> Result<Guard, Error> {
        let line = self.inner.line();
        let once = patience.timeout == Some(Duration::ZERO);
        if once {
            return match self.attempt_beside(tag, claimant)? {
                Attempt::Taken(guard) => Ok(guard),
                Attempt::Held(in_the_way) => Err(in_the_way.timeout(self.path(), begin.elapsed())),
            };
        }
        if !line.exists() {
            if let Attempt::Taken(guard) = self.attempt(tag, claimant)? {
                return Ok(guard);
            }
        }
        if let (Some(_), Err(in_the_way)) = (patience.hears, self.look()?) {
            patience.say(self.path(), &in_the_way);
        }
        let mut ticket = line.join();
        if let Some(ticket) = &mut ticket {
            self.wait_in_line(ticket, begin, patience)?;
            // The next in line prepares its record now, not only when the lock is free.
            claimant()?;
        }
        // Only one in each line looks.
        let interval = self.inner.config.retry_interval;
        let untold = if ticket.is_some() { interval.min(UNTOLD_INTERVAL) } else { interval };
        // The place in the line is kept until the lock is taken.
        self.until(begin, patience, untold, || {
            Ok(match self.attempt(tag, claimant)? {
                Attempt::Taken(guard) => Ok(guard),
                Attempt::Held(in_the_way) => Err(in_the_way),
            })
        })
    }

    /// Takes it without standing in line, and without overtaking waiters: while one of them may be about to
    /// take what is free, they have time for it.
    pub(crate) fn attempt_beside(
        &self,
        tag: Option<&str>,
        claimant: Claimant<'_>,
    ) -> Result<Attempt, Error> {
        let begin = Instant::now();
        while begin.elapsed() < LINE_INTERVAL && self.inner.line().stands() {
            if let Err(in_the_way) = self.look()? {
                return Ok(Attempt::Held(in_the_way));
            }
            std::thread::sleep(BESIDE_INTERVAL);
        }
        self.attempt(tag, claimant)
    }

    /// Waits until all earlier waiters have had their turn, or the first one lets it pass.
    fn wait_in_line(
        &self,
        ticket: &mut Ticket<'_>,
        begin: Instant,
        patience: &Patience<'_>,
    ) -> Result<(), Error> {
        let interval = self.inner.config.retry_interval.max(LINE_INTERVAL);
        let mut missed = 0;
        while !ticket.is_first() {
            let Some(turn) = ticket.turn() else { return Ok(()) };
            let left = patience.left(begin.elapsed());
            let time = left.map_or(interval, |left| left.min(interval));
            match self.woken(turn.wait(time, patience.alarm), patience.alarm)? {
                Woken::Change | Woken::Alarm => continue,
                Woken::Time => {}
            }
            let seen = self.look()?;
            missed = if seen.is_ok() { missed + 1 } else { 0 };
            let waited = begin.elapsed();
            match seen {
                Ok(()) if missed >= MOST_TURNS_MISSED => return Ok(()),
                Err(in_the_way) if patience.left(waited) == Some(Duration::ZERO) => {
                    return Err(in_the_way.timeout(self.path(), waited));
                }
                // Free, and no time left to find out whether the first takes it.
                Ok(()) if patience.left(waited) == Some(Duration::ZERO) => return Ok(()),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    pub(crate) fn wait_with(&self, patience: &Patience<'_>) -> Result<(), Error> {
        let interval = self.inner.config.retry_interval;
        self.until(Instant::now(), patience, interval, || self.look_for_readers())
    }

    /// Waits until nobody holds a slot or a share. For the program `sema`.
    #[cfg(feature = "cli")]
    pub(crate) fn wait_for_all(&self, patience: &Patience<'_>) -> Result<(), Error> {
        let interval = self.inner.config.retry_interval;
        self.until(Instant::now(), patience, interval, || {
            let slots = self.status()?.into_iter().filter_map(|slot| match slot {
                SlotStatus::Held(held) => Some(Ok(held)),
                SlotStatus::Free => None,
                SlotStatus::Obstacle => Some(Err(self.obstacle())),
            });
            let held = slots.chain(self.readers()?.into_iter().map(Ok));
            let held: Vec<HeldStatus> = held.collect::<Result<_, Error>>()?;
            let living = held.iter().find(|held| !held.stale);
            match living {
                None => Ok(Ok(())),
                Some(living) => Ok(Err(living.in_the_way(|| self.path())?)),
            }
        })
    }

    /// Whether it could be taken, or else its holder.
    fn look(&self) -> Result<Look<()>, Error> {
        let mut first = InTheWay::default();
        for status in self.status()? {
            match status {
                SlotStatus::Free => return Ok(Ok(())),
                SlotStatus::Held(held) if held.stale => return Ok(Ok(())),
                SlotStatus::Held(held) => {
                    first = first.or(held.in_the_way(|| self.path())?);
                }
                SlotStatus::Obstacle => return Err(self.obstacle()),
            }
        }
        Ok(Err(first))
    }

    /// Whether it could be taken alone.
    fn look_for_readers(&self) -> Result<Look<()>, Error> {
        let readers = self.readers()?;
        let living = readers.into_iter().find(|reader| !reader.stale);
        match living {
            None => self.look(),
            Some(reader) => Ok(Err(InTheWay::of(reader.lock_info()))),
        }
    }

    /// Looks, and while somebody holds on, waits and looks again: as often as `untold` says where nobody
    /// reports what happens.
    fn until<T>(
        &self,
        begin: Instant,
        patience: &Patience<'_>,
        untold: Duration,
        mut look: impl FnMut() -> Result<Look<T>, Error>,
    ) -> Result<T, Error> {
        let mut watch = None;
        loop {
            let in_the_way = match look() {
                Ok(Ok(result)) => return Ok(result),
                Ok(Err(in_the_way)) => in_the_way,
                Err(error) => return Err(error),
            };
            let waited = begin.elapsed();
            let left = patience.left(waited);
            if left == Some(Duration::ZERO) {
                return Err(in_the_way.timeout(self.path(), waited));
            }
            // What happened before the watch began is found by one more look.
            let Some(watch) = &watch else {
                patience.say(self.path(), &in_the_way);
                watch = Some(Watch::on(&self.inner.directory));
                continue;
            };
            let usual = self.inner.config.retry_interval;
            let mut interval = if watch.is_told() { usual } else { untold };
            if in_the_way.left_by.is_some() {
                // Each try writes a file, and the removal of the lock is heard of.
                interval = interval.max(LEFT_INTERVAL);
            }
            let time = left.map_or(interval, |left| left.min(interval));
            let woken = watch.wait(&self.inner.names, time, patience.alarm);
            self.woken(woken, patience.alarm)?;
        }
    }

    /// What follows from why a wait ended: an alarm may end the whole, and so may a directory that is
    /// another one by now.
    fn woken(&self, woken: Woken, alarm: Option<&dyn Alarm>) -> Result<Woken, Error> {
        let rung = match woken {
            Woken::Alarm => alarm.and_then(|alarm| alarm.ring()),
            Woken::Change => None,
            Woken::Time => {
                self.inner.check_place()?;
                None
            }
        };
        rung.map_or(Ok(woken), Err)
    }
}

impl Inner {
    /// Whether the path still leads to the open directory: a waiter in one that was moved away would
    /// wait for a lock that no other process means.
    fn check_place(&self) -> Result<(), Error> {
        let directory = &self.place.directory;
        let ours = self.directory.identity();
        let same = Status::of_path(directory).is_ok_and(|status| status.identity == ours);
        let path = || directory.join(&self.place.name);
        let moved = || Error::InvalidPath { path: path(), problem: PathProblem::Moved };
        if same { Ok(()) } else { Err(moved()) }
    }
}
