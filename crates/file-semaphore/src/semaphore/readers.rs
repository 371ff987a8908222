//! Sharing a semaphore: many readers, or one holder alone.
//!
//! A reader takes the lock for the moment in which it puts a lock file of its own into the directory
//! `LOCK.shared`. A process that wants the lock alone takes it and waits until the directory has no more
//! readers. No new reader can enter while it waits, so it does not wait for ever. A directory without readers
//! is removed. The directory has the same permissions as the one around it, so every user who can take the
//! lock can share it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use pidlockfile::{Directory, Pid};

use crate::error::{Error, InTheWay};
use crate::record::READERS;
use crate::semaphore::cleaning::{self, Listed, sweep};
use crate::semaphore::files::{Claimant, Files};
use crate::semaphore::guard::Guard;
use crate::stale::HeldStatus;
use crate::sys::{Watch, make_directory_alike, random, remove_if_empty};

/// How often the directory is read or entered again, when others remove it in that moment.
const TRIES: usize = 64;

/// What a reader that left in that moment took away: its file, and the directory with it.
fn is_gone(error: &Error) -> bool {
    error.io_kind() == io::ErrorKind::NotFound
}

/// The readers of a semaphore.
pub(crate) struct Readers<'a> {
    files: &'a Arc<Files>,
    directory: PathBuf,
}

impl<'a> Readers<'a> {
    pub(crate) fn of(files: &'a Arc<Files>) -> Self {
        let mut directory = files.path().into_os_string();
        directory.push(READERS);
        Self { files, directory: directory.into() }
    }

    /// All of them, dead ones among them until a process wants the semaphore alone.
    pub(crate) fn status(&self) -> Result<Vec<HeldStatus>, Error> {
        Ok(self.locks()?.into_iter().map(|listed| listed.status).collect())
    }

    /// Reports readers that leave. `None`: the directory cannot be opened, perhaps because there are none any more.
    pub(crate) fn watch(&self) -> Option<Watch> {
        Directory::open(&self.directory).ok().map(|directory| Watch::on(&directory))
    }

    fn locks(&self) -> Result<Vec<Listed>, Error> {
        let mut last = None;
        for _ in 0..TRIES {
            match self.directory.symlink_metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                Ok(there) if !there.is_dir() => {
                    return Err(Error::Obstacle { path: self.directory.clone() });
                }
                _ => {}
            }
            match cleaning::list_all(&self.directory, self.files.config) {
                // It may be there again by now.
                Err(error) if is_gone(&error) => last = Some(error),
                Ok(mut listed) => {
                    listed.retain(Listed::may_be_held);
                    return Ok(listed);
                }
                Err(error) => return Err(error),
            }
        }
        last.map_or(Ok(Vec::new()), Err)
    }

    fn is_never_shared(&self) -> bool {
        self.files.config.slots.count() > 1
    }

    fn reader(&self, listed: &Listed) -> Result<Arc<Files>, Error> {
        Files::open(&self.directory.join(&listed.name), self.files.config)
    }

    /// Does it to the first reader's lock for which it can be done. `None`: to none.
    pub(crate) fn first<T>(
        &self,
        action: impl Fn(&Files) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        if self.is_never_shared() {
            return Ok(None);
        }
        for listed in self.locks()? {
            match self.reader(&listed).and_then(|reader| action(&reader)) {
                Ok(done) => {
                    remove_if_empty(&self.directory);
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
    pub(crate) fn in_the_way(&self) -> Result<Option<InTheWay>, Error> {
        if self.is_never_shared() {
            return Ok(None);
        }
        for listed in self.locks()? {
            if !listed.status.stale {
                return Ok(Some(InTheWay::of(listed.status.lock_info())));
            }
            match self.reader(&listed).and_then(|reader| sweep(&reader)) {
                // What a dead reader left hinders nothing but cleaning up.
                Err(Error::System { error, .. }) if error.is_not_permitted() => {}
                Err(error) if !is_gone(&error) => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        remove_if_empty(&self.directory);
        Ok(None)
    }

    /// Puts a reader's lock beside the lock, and releases the lock.
    pub(crate) fn join(&self, held: Guard, claimant: &mut Claimant<'_>) -> Result<Guard, Error> {
        let reader = self.join_beside(claimant)?;
        held.release()?;
        Ok(reader)
    }

    fn join_beside(&self, claimant: &mut Claimant<'_>) -> Result<Guard, Error> {
        let path = self.directory.join(format!("{}-{:016x}", Pid::this(), random()));
        let mut last = None;
        for _ in 0..TRIES {
            if let Err(error) = make_directory_alike(&self.directory, &self.files.directory) {
                if error.kind() == io::ErrorKind::NotFound {
                    continue;
                }
                if error.kind() == io::ErrorKind::NotADirectory {
                    return Err(Error::Obstacle { path: self.directory.clone() });
                }
                let message = "the directory of readers cannot be created";
                return Err(Error::Process { message });
            }
            let reader = Files::open(&path, self.files.config).and_then(|reader| {
                let taken = reader.attempt(claimant)?.map_err(|it| it.refused(reader.path()))?;
                Ok(Guard::of(&reader, taken).of_reader(self.directory.clone()))
            });
            match reader {
                Ok(guard) => return Ok(guard),
                Err(error) if is_gone(&error) => last = Some(error),
                Err(Error::System { error, .. }) if error.is_not_permitted() => {
                    return Err(Error::Process {
                        message: "the directory of readers belongs to another user and is closed",
                    });
                }
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| Error::NotLocked { path: self.files.path() }))
    }
}
