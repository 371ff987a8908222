//! Waiting for a semaphore: standing in line, and then watching the lock. Decides when to try; whether
//! it is free, and for whom, is decided elsewhere.

use std::time::{Duration, Instant};

use pidlockfile::Status;

use crate::error::{Error, InTheWay, PathProblem};
use crate::limits::{LEFT_INTERVAL, LINE_INTERVAL, MOST_TURNS_MISSED};
use crate::semaphore::{Attempt, Claimant, Guard, Inner, Semaphore, SlotStatus, guarded};
use crate::sys::Woken;
use crate::sys::line::Ticket;
use crate::sys::watch::{Alarm, Instance, Watch};

/// How to wait for a semaphore.
pub(crate) struct Patience<'a> {
    pub(crate) timeout: Option<Duration>,
    pub(crate) alarm: Option<&'a dyn Alarm>,
}

impl Patience<'_> {
    /// How much of the time is left; `None` when there is no end.
    pub(crate) fn left(&self, waited: Duration) -> Option<Duration> {
        self.timeout.map(|timeout| timeout.saturating_sub(waited))
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
        // Past those who wait already goes only who does not want to wait.
        if once || !line.exists() {
            match self.attempt(tag, claimant)? {
                Attempt::Taken(guard) => return Ok(guard),
                Attempt::Held(in_the_way) if once => {
                    return Err(in_the_way.timeout(self.path(), begin.elapsed()));
                }
                Attempt::Held(_) => {}
            }
        }
        let mut ticket = line.join();
        if let Some(ticket) = &mut ticket {
            self.wait_in_line(ticket, begin, patience)?;
        }
        // The place in the line is kept until the lock is taken.
        self.until(begin, patience, || {
            Ok(match self.attempt(tag, claimant)? {
                Attempt::Taken(guard) => Ok(guard),
                Attempt::Held(in_the_way) => Err(in_the_way),
            })
        })
    }

    /// Waits until all who came before have had their turn, or whoever is first lets it pass.
    fn wait_in_line(
        &self,
        ticket: &mut Ticket<'_>,
        begin: Instant,
        patience: &Patience<'_>,
    ) -> Result<(), Error> {
        let inner = &self.inner;
        let interval = inner.config.retry_interval.max(LINE_INTERVAL);
        let mut instance = guarded(&inner.instance).take().or_else(Instance::new);
        let mut missed = 0;
        let result = loop {
            if ticket.is_first() {
                break Ok(());
            }
            let Some((name, before)) = ticket.before() else { break Ok(()) };
            let watch = Watch::on_ticket(&inner.directory, name, instance.take());
            // It may have gone before the watch began.
            let turn = ticket.is_first() || ticket.before().map(|(_, now)| now) != Some(before);
            let left = patience.left(begin.elapsed());
            let mut woken = Ok(Woken::Change);
            if !turn {
                let time = left.map_or(interval, |left| left.min(interval));
                woken = self.sleep(&watch, time, patience.alarm);
            }
            instance = watch.stop();
            match woken {
                Err(error) => break Err(error),
                Ok(Woken::Change | Woken::Alarm) => continue,
                Ok(Woken::Time) => {}
            }
            let seen = match self.look() {
                Ok(seen) => seen,
                Err(error) => break Err(error),
            };
            missed = if seen.is_ok() { missed + 1 } else { 0 };
            let waited = begin.elapsed();
            match seen {
                Ok(()) if missed >= MOST_TURNS_MISSED => break Ok(()),
                Err(in_the_way) if patience.left(waited) == Some(Duration::ZERO) => {
                    break Err(in_the_way.timeout(self.path(), waited));
                }
                // Free, and no time left to find out whether the first takes it.
                Ok(()) if patience.left(waited) == Some(Duration::ZERO) => break Ok(()),
                Ok(()) | Err(_) => {}
            }
        };
        *guarded(&inner.instance) = instance;
        result
    }

    pub(crate) fn wait_with(&self, patience: &Patience<'_>) -> Result<(), Error> {
        self.until(Instant::now(), patience, || self.look_for_readers())
    }

    /// Whether it could be taken, or else by whom it is held.
    fn look(&self) -> Result<Look<()>, Error> {
        let mut first = InTheWay::default();
        for status in self.status()? {
            match status {
                SlotStatus::Free => return Ok(Ok(())),
                SlotStatus::Held(held) if held.stale => return Ok(Ok(())),
                SlotStatus::Held(held) => {
                    first = first.or(InTheWay::of(held.lock_info()));
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

    /// Looks, and while somebody holds on, waits and looks again.
    fn until<T>(
        &self,
        begin: Instant,
        patience: &Patience<'_>,
        mut look: impl FnMut() -> Result<Look<T>, Error>,
    ) -> Result<T, Error> {
        let mut watch = None;
        let result = loop {
            let in_the_way = match look() {
                Ok(Ok(result)) => break Ok(result),
                Ok(Err(in_the_way)) => in_the_way,
                Err(error) => break Err(error),
            };
            let waited = begin.elapsed();
            let left = patience.left(waited);
            if left == Some(Duration::ZERO) {
                break Err(in_the_way.timeout(self.path(), waited));
            }
            // What happened before the watch began is found by one more look.
            let Some(watch) = &watch else {
                watch = Some(self.inner.start_watching());
                continue;
            };
            let mut interval = self.inner.config.retry_interval;
            if in_the_way.left_by.is_some() {
                // Each try writes a file, and who removes the lock is heard of.
                interval = interval.max(LEFT_INTERVAL);
            }
            let time = left.map_or(interval, |left| left.min(interval));
            if let Err(error) = self.sleep(watch, time, patience.alarm) {
                break Err(error);
            }
        };
        if let Some(watch) = watch {
            *guarded(&self.inner.instance) = watch.stop();
        }
        result
    }

    /// Until the next look, at most so long.
    fn sleep(
        &self,
        watch: &Watch,
        time: Duration,
        alarm: Option<&dyn Alarm>,
    ) -> Result<Woken, Error> {
        let woken = watch.wait(&self.inner.names, time, alarm);
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
    fn start_watching(&self) -> Watch {
        let kept = guarded(&self.instance).take();
        Watch::on(&self.directory, kept.or_else(Instance::new))
    }

    /// Whether the path still leads to the open directory: who waits in one that was moved away
    /// would wait for a lock that nobody else means.
    fn check_place(&self) -> Result<(), Error> {
        let directory = &self.place.directory;
        let ours = self.directory.identity();
        let same = Status::of_path(directory).is_ok_and(|status| status.identity == ours);
        let path = || directory.join(self.place.name.as_str());
        let moved = || Error::InvalidPath { path: path(), problem: PathProblem::Moved };
        if same { Ok(()) } else { Err(moved()) }
    }
}
