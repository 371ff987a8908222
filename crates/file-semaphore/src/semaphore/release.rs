//! Releases and renews lock files. Deletes only a file that is the releaser's, or the very file that was published.

use std::fs::File;
use std::time::{Duration, SystemTime};

use pidlockfile::{Attempt, Found, Identity, Judged, Name, Published};

use super::files::Files;
use crate::error::Error;
use crate::limits::LONGEST_FILE;
use crate::record::{Holder, LockInfo};

/// How often letting go is tried while another process is at the file, and the pause between.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(2);

/// The right by which a semaphore that another process or guard took is released.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Releaser<'a> {
    /// Only the recorded holder: the same number, and nothing known that tells the two apart. A
    /// lock without an owner ([`Holder::nobody`]) is everybody's.
    Holder(&'a Holder),
    /// Anyone.
    Anyone,
}

impl Files {
    /// Releases the first slot that is the releaser's.
    pub(crate) fn release(&self, releaser: Releaser<'_>) -> Result<(), Error> {
        self.first_slot(|name| self.release_slot(name, releaser))
    }

    /// Renews the first slot that is the releaser's.
    pub(crate) fn renew(&self, releaser: Releaser<'_>) -> Result<LockInfo, Error> {
        self.first_slot(|name| self.renew_slot(name, releaser))
    }

    /// Does it to the first slot that is the releaser's; where none is, the error tells most of why.
    fn first_slot<T>(&self, deed: impl Fn(&Name) -> Result<T, Error>) -> Result<T, Error> {
        let mut worst = Error::NotLocked { path: self.path() };
        for name in &self.names {
            match self.located(deed(name)) {
                Err(Error::NotLocked { .. }) => {}
                Err(error @ (Error::NotHolder { .. } | Error::Parse { .. })) => worst = error,
                other => return other,
            }
        }
        Err(worst)
    }

    /// The slot's file, when the releaser may have it released.
    fn releasable(&self, name: &Name, releaser: Releaser<'_>) -> Result<Judged, Error> {
        let judged = match self.directory.read(name, LONGEST_FILE + 1)? {
            Found::Nothing => return Err(Error::NotLocked { path: self.path_of(name) }),
            Found::Obstacle(pidlockfile::Obstacle::Unreadable) => {
                return Err(Error::NotHolder { path: self.path_of(name), holder: None });
            }
            Found::Obstacle(_) => return Err(self.obstacle()),
            Found::File(judged) => judged,
        };
        let Releaser::Holder(holder) = releaser else { return Ok(judged) };
        let problem = |problem| Error::Parse { path: self.path_of(name), problem };
        let info = LockInfo::parse(judged.content()).map_err(problem)?;
        if info.holder().is_nobody() || info.holder().is_same_process(holder) {
            return Ok(judged);
        }
        Err(Error::NotHolder { path: self.path_of(name), holder: Some(Box::new(info)) })
    }

    fn renew_slot(&self, name: &Name, releaser: Releaser<'_>) -> Result<LockInfo, Error> {
        let judged = self.releasable(name, releaser)?;
        let problem = |problem| Error::Parse { path: self.path_of(name), problem };
        let info = LockInfo::parse(judged.content()).map_err(problem)?;
        let file = judged.try_clone().map_err(|_| Error::Process { message: "no descriptor" })?;
        self.renew_file(name, &file, judged.identity()).map(|()| info)
    }

    /// Sets the time a lock was written to now, if its name still leads to it.
    pub(crate) fn renew_file(
        &self,
        name: &Name,
        file: &File,
        identity: Identity,
    ) -> Result<(), Error> {
        file.set_modified(SystemTime::now())
            .map_err(|_| Error::Process { message: "the lock file's time cannot be set" })?;
        if self.leads_to(name, identity)? { Ok(()) } else { Err(self.lost(name)) }
    }

    fn release_slot(&self, name: &Name, releaser: Releaser<'_>) -> Result<(), Error> {
        for _ in 0..TRIES {
            let judged = self.releasable(name, releaser)?;
            match self.directory.try_release(name, judged)? {
                Attempt::Done(()) => return Ok(()),
                Attempt::Changed => {}
                Attempt::Contended => std::thread::sleep(PAUSE),
            }
        }
        // A breaker is at a file for milliseconds. A process that holds flock(2) on it for longer is not
        // breaking it, and must not keep its owner from letting go.
        match self.directory.release(name, self.releasable(name, releaser)?, name)? {
            Attempt::Done(()) => Ok(()),
            Attempt::Changed | Attempt::Contended => {
                Err(Error::NotLocked { path: self.path_of(name) })
            }
        }
    }

    /// Releases what was published.
    pub(crate) fn withdraw(&self, name: &Name, published: &Published) -> Result<(), Error> {
        match self.directory.withdraw_patiently(name, published, name)? {
            Attempt::Done(()) => Ok(()),
            Attempt::Changed | Attempt::Contended => Err(self.lost(name)),
        }
    }

    /// Whether a lock's name leads to that very file.
    pub(crate) fn leads_to(&self, name: &Name, identity: Identity) -> Result<bool, Error> {
        match self.directory.read(name, 0)? {
            Found::File(judged) => Ok(judged.identity() == identity),
            Found::Nothing | Found::Obstacle(_) => Ok(false),
        }
    }

    /// Somebody removed or replaced the lock while it was held.
    fn lost(&self, name: &Name) -> Error {
        let path = self.path_of(name);
        match self.directory.read(name, LONGEST_FILE + 1) {
            Ok(Found::File(judged)) => {
                let holder = LockInfo::parse(judged.content()).ok().map(Box::new);
                Error::NotHolder { path, holder }
            }
            Ok(Found::Nothing | Found::Obstacle(_)) | Err(_) => Error::NotLocked { path },
        }
    }
}
