//! Sharing a semaphore: many readers, or one holder alone.
//!
//! A reader takes the lock for the moment in which it puts a lock file of its own into the directory
//! `LOCK.shared`. A process that wants the lock alone takes it and waits until the directory has no more
//! readers. No new reader can enter while it waits, so it does not wait for ever. A directory without readers
//! is removed. The directory has the same permissions as the one around it, so every user who can take the
//! lock can share it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use pidlockfile::{Directory, Pid};

use crate::cleaning::{self, Listed};
use crate::error::{Error, InTheWay};
use crate::judge::HeldStatus;
use crate::semaphore::{Claimant, Guard, Patience, Semaphore};
use crate::sys::watch::Watch;
use crate::sys::{Woken, alike};

/// How often the directory is looked at or entered again, when others remove it in that moment.
const TRIES: usize = 64;

/// What a reader that left in that moment took away: its file, and the directory with it.
fn is_gone(error: &Error) -> bool {
    error.io_kind() == io::ErrorKind::NotFound
}

impl Semaphore {
    /// The readers that share the semaphore, dead ones among them until a process wants it alone.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn readers(&self) -> Result<Vec<HeldStatus>, Error> {
        Ok(self.reader_locks()?.into_iter().map(|listed| listed.status).collect())
    }

    fn readers_directory(&self) -> PathBuf {
        let mut path = self.path().into_os_string();
        path.push(".shared");
        path.into()
    }

    fn reader_locks(&self) -> Result<Vec<Listed>, Error> {
        let directory = self.readers_directory();
        let mut last = None;
        for _ in 0..TRIES {
            match directory.symlink_metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                Ok(there) if !there.is_dir() => return Err(Error::Obstacle { path: directory }),
                _ => {}
            }
            match cleaning::list(&directory, self.inner.config) {
                // It may be there again by now.
                Err(error) if is_gone(&error) => last = Some(error),
                other => return other,
            }
        }
        last.map_or(Ok(Vec::new()), Err)
    }

    /// Does it to the first reader's lock for which it can be done. `None`: to none.
    pub(crate) fn first_reader<T>(
        &self,
        deed: impl Fn(&Self) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        if self.inner.config.slots.count() > 1 {
            return Ok(None);
        }
        let directory = self.readers_directory();
        for Listed { name, .. } in self.reader_locks()? {
            let reader = Self::with_config(directory.join(name), self.inner.config);
            match reader.and_then(|reader| deed(&reader)) {
                Ok(done) => {
                    self.remove_if_empty();
                    return Ok(Some(done));
                }
                Err(Error::NotLocked { .. } | Error::NotHolder { .. } | Error::Parse { .. }) => {}
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// A living reader, if there is one: in the way of a process that has the lock and wants it alone.
    /// Removes what dead readers left.
    pub(crate) fn reader_in_the_way(&self) -> Result<Option<InTheWay>, Error> {
        if self.inner.config.slots.count() > 1 {
            return Ok(None);
        }
        let directory = self.readers_directory();
        for Listed { name, status } in self.reader_locks()? {
            if !status.stale {
                return Ok(Some(InTheWay::of(status.lock_info())));
            }
            let swept = Self::with_config(directory.join(name), self.inner.config)
                .and_then(|reader| reader.clean());
            match swept {
                // What a dead reader left hinders nothing but cleaning up.
                Err(Error::System { error, .. }) if error.is_not_permitted() => {}
                Err(error) if !is_gone(&error) => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        self.remove_if_empty();
        Ok(None)
    }

    /// Waits, holding the lock, until nobody shares it any more.
    pub(crate) fn await_readers(
        &self,
        begin: Instant,
        patience: &Patience<'_>,
    ) -> Result<(), Error> {
        let mut watch: Option<Watch> = None;
        loop {
            let Some(reader) = self.reader_in_the_way()? else { return Ok(()) };
            let waited = begin.elapsed();
            let left = patience.left(waited);
            if left == Some(Duration::ZERO) {
                return Err(reader.timeout(self.path(), waited));
            }
            // What happened before the watch began is found by one more look.
            let Some(watch) = &watch else {
                patience.say(self.path(), &reader);
                let directory = Directory::open(&self.readers_directory()).ok();
                watch = directory.map(|directory| Watch::on(&directory));
                continue;
            };
            let interval = self.inner.config.retry_interval;
            let time = left.map_or(interval, |left| left.min(interval));
            match watch.wait_for_any(time, patience.alarm) {
                Woken::Alarm => {
                    if let Some(error) = patience.alarm.and_then(|alarm| alarm.ring()) {
                        return Err(error);
                    }
                }
                Woken::Change | Woken::Time => {}
            }
        }
    }

    /// Puts a reader's lock beside the lock, which must be held meanwhile.
    pub(crate) fn join_readers(
        &self,
        tag: Option<&str>,
        claimant: Claimant<'_>,
    ) -> Result<Guard, Error> {
        let directory = self.readers_directory();
        let random = RandomState::new().build_hasher().finish();
        let path = directory.join(format!("{}-{random:016x}", Pid::this()));
        let mut last = None;
        for _ in 0..TRIES {
            if let Err(error) = alike::make(&directory, &self.inner.directory) {
                if error.kind() == io::ErrorKind::NotFound {
                    continue;
                }
                if error.kind() == io::ErrorKind::NotADirectory {
                    return Err(Error::Obstacle { path: directory });
                }
                let message = "the directory of readers cannot be created";
                return Err(Error::Process { message });
            }
            let reader = Self::with_config(&path, self.inner.config)
                .and_then(|reader| reader.attempt_alone(tag, claimant));
            match reader {
                Ok(guard) => return Ok(guard.sharing(self.clone())),
                Err(error) if is_gone(&error) => last = Some(error),
                Err(Error::System { error, .. }) if error.is_not_permitted() => {
                    return Err(Error::Process {
                        message: "the directory of readers belongs to another user and is closed",
                    });
                }
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| Error::NotLocked { path: self.path() }))
    }

    /// A directory in which somebody is cannot be removed.
    pub(crate) fn remove_if_empty(&self) {
        let _ = std::fs::remove_dir(self.readers_directory());
    }
}
