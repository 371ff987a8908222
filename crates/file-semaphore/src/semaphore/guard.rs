//! A guard that holds a semaphore. It removes only the very file that it published, and only in the process
//! that took it: a forked child that drops its copy releases nothing.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pidlockfile::{Found, Identity, Judged, Name, Pid, Published, Removal};

use crate::error::Error;
use crate::limits::LONGEST_FILE;
use crate::record::{Holder, LockInfo};
use crate::semaphore::{Inner, Semaphore};

/// How often letting go is tried while another process is at the file, and the pause between.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(2);

/// A semaphore that is held, until this is released or dropped.
///
/// Dropping releases too, but cannot report a failure.
#[must_use = "the semaphore is released when the guard is dropped"]
#[derive(Debug)]
pub struct Guard {
    inner: Arc<Inner>,
    slot: usize,
    published: Option<Published>,
    info: LockInfo,
    taker: Pid,
    /// The semaphore that is shared, if this is a reader's.
    shared: Option<Semaphore>,
}

impl Guard {
    pub(crate) fn new(
        inner: Arc<Inner>,
        slot: usize,
        published: Published,
        info: LockInfo,
    ) -> Self {
        Self { inner, slot, published: Some(published), info, taker: Pid::this(), shared: None }
    }

    /// Makes it a reader's.
    pub(crate) fn sharing(self, semaphore: Semaphore) -> Self {
        let mut guard = self;
        guard.shared = Some(semaphore);
        guard
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
        self.let_go()
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
        let Some((published, name)) = self.published.as_ref().zip(self.name()) else {
            return Ok(false);
        };
        self.inner.located(self.inner.leads_to(name, published.identity))
    }

    /// Renews the lock: by `StaleRule::Age` it is as young as if it were taken now.
    ///
    /// # Errors
    /// [`Error::NotLocked`] or [`Error::NotHolder`] when somebody took it away;
    /// [`Error::System`].
    pub fn renew(&self) -> Result<(), Error> {
        let Some((published, name)) = self.published.as_ref().zip(self.name()) else {
            return Err(Error::NotLocked { path: self.path() });
        };
        touch(&published.file)?;
        if self.inner.located(self.inner.leads_to(name, published.identity))? {
            return Ok(());
        }
        Err(self.inner.lost(name))
    }

    /// Where the lock file is.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        let inner = &self.inner;
        inner.path_of(self.name().unwrap_or(&inner.place.name))
    }

    fn name(&self) -> Option<&Name> {
        self.inner.names.get(self.slot)
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
            let _ = crate::sys::flock::exclude(&published.file);
        }
    }

    fn let_go(&mut self) -> Result<(), Error> {
        let Some(published) = self.published.take() else { return Ok(()) };
        let Some(name) = self.inner.names.get(self.slot) else { return Ok(()) };
        let released = self.inner.located(self.inner.withdraw(name, &published));
        if let Some(semaphore) = &self.shared {
            semaphore.remove_if_empty();
        }
        released
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.taker == Pid::this() {
            let _ = self.let_go();
        }
    }
}

/// The right by which a semaphore that another process or guard took is released.
#[derive(Clone, Copy, Debug)]
pub enum Releaser<'a> {
    /// Only the recorded holder: the same number, and nothing known that tells the two apart. A
    /// lock without an owner ([`Holder::nobody`]) is everybody's.
    Holder(&'a Holder),
    /// Anyone.
    Anyone,
}

impl Semaphore {
    /// Releases a slot that is recorded for the releaser (the first such slot), even if another
    /// process took it in its name; where there is none, its share of a semaphore that it shares. For
    /// [`Releaser::Anyone`] everybody's share, where nobody has it alone.
    ///
    /// # Errors
    /// [`Error::NotLocked`]; [`Error::NotHolder`] with a holder; [`Error::Parse`] when a file
    /// does not name its owner ([`Releaser::Anyone`] removes it all the same); [`Error::Obstacle`];
    /// [`Error::System`].
    pub fn release_for(&self, releaser: Releaser<'_>) -> Result<(), Error> {
        let alone = self.first_slot(|name| self.release_slot(name, releaser));
        let release = |reader: &Self| reader.first_slot(|name| reader.release_slot(name, releaser));
        let everybody = matches!((releaser, &alone), (Releaser::Anyone, Err(_)));
        self.or_shared(alone, release)?;
        while everybody && self.first_reader(release)?.is_some() {}
        Ok(())
    }

    /// Renews a slot that is recorded for the releaser, even if another process took it: by
    /// [`StaleRule::Age`](crate::StaleRule::Age) it is as young as if it were taken now. The
    /// original tools do not see that.
    ///
    /// # Errors
    /// As [`release_for`](Self::release_for).
    pub fn renew_for(&self, releaser: Releaser<'_>) -> Result<LockInfo, Error> {
        let alone = self.first_slot(|name| self.renew_slot(name, releaser));
        self.or_shared(alone, |reader| reader.first_slot(|name| reader.renew_slot(name, releaser)))
    }

    /// What is not the releaser's alone may be shared by it.
    fn or_shared<T>(
        &self,
        alone: Result<T, Error>,
        deed: impl Fn(&Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match alone {
            Err(error @ (Error::NotLocked { .. } | Error::NotHolder { .. })) => {
                self.first_reader(deed)?.ok_or(error)
            }
            other => other,
        }
    }

    /// Does it to the first slot that is the releaser's; where none is, the error tells most of why.
    fn first_slot<T>(&self, deed: impl Fn(&Name) -> Result<T, Error>) -> Result<T, Error> {
        let mut worst = Error::NotLocked { path: self.path() };
        for name in &self.inner.names {
            match self.inner.located(deed(name)) {
                Err(Error::NotLocked { .. }) => {}
                Err(error @ (Error::NotHolder { .. } | Error::Parse { .. })) => worst = error,
                other => return other,
            }
        }
        Err(worst)
    }

    /// The slot's file, when the releaser may have it released.
    fn releasable(&self, name: &Name, releaser: Releaser<'_>) -> Result<Judged, Error> {
        let judged = match self.inner.directory.read(name, LONGEST_FILE + 1)? {
            Found::Nothing => return Err(Error::NotLocked { path: self.path() }),
            Found::Obstacle(pidlockfile::Obstacle::Unreadable) => {
                return Err(Error::NotHolder { path: self.path(), holder: None });
            }
            Found::Obstacle(_) => return Err(self.obstacle()),
            Found::File(judged) => judged,
        };
        self.inner.check_releaser(name, judged.content(), releaser)?;
        Ok(judged)
    }

    fn renew_slot(&self, name: &Name, releaser: Releaser<'_>) -> Result<LockInfo, Error> {
        let inner = &self.inner;
        let judged = self.releasable(name, releaser)?;
        let problem = |problem| Error::Parse { path: self.path(), problem };
        let info = LockInfo::parse(judged.content()).map_err(problem)?;
        let file = judged.try_clone().map_err(|_| Error::Process { message: "no descriptor" })?;
        touch(&file)?;
        if inner.leads_to(name, judged.identity())? {
            return Ok(info);
        }
        Err(inner.lost(name))
    }

    fn release_slot(&self, name: &Name, releaser: Releaser<'_>) -> Result<(), Error> {
        let inner = &self.inner;
        for _ in 0..TRIES {
            let judged = self.releasable(name, releaser)?;
            match inner.directory.try_release(name, judged)? {
                Removal::Removed => return Ok(()),
                Removal::Changed => {}
                Removal::Contended => std::thread::sleep(PAUSE),
            }
        }
        inner.release_past_a_flock(name, releaser)
    }
}

impl Inner {
    fn check_releaser(
        &self,
        name: &Name,
        content: &[u8],
        releaser: Releaser<'_>,
    ) -> Result<(), Error> {
        let Releaser::Holder(holder) = releaser else { return Ok(()) };
        let info = LockInfo::parse(content).map_err(|problem| {
            let path = self.place.directory.join(name);
            Error::Parse { path, problem }
        })?;
        if info.holder().is_nobody() || info.holder().is_same_process(holder) {
            return Ok(());
        }
        Err(Error::NotHolder { path: self.path_of(name), holder: Some(Box::new(info)) })
    }

    /// A breaker is at a file for milliseconds. A process that holds flock(2) on it for longer is not
    /// breaking it, and must not keep its owner from letting go.
    fn release_past_a_flock(&self, name: &Name, releaser: Releaser<'_>) -> Result<(), Error> {
        let Found::File(judged) = self.directory.read(name, LONGEST_FILE + 1)? else {
            return Err(Error::NotLocked { path: self.path_of(name) });
        };
        self.check_releaser(name, judged.content(), releaser)?;
        match self.directory.release(name, judged, name)? {
            Removal::Removed => Ok(()),
            Removal::Changed | Removal::Contended => {
                Err(Error::NotLocked { path: self.path_of(name) })
            }
        }
    }

    fn withdraw(&self, name: &Name, published: &Published) -> Result<(), Error> {
        for _ in 0..TRIES {
            match self.directory.withdraw(name, published)? {
                Removal::Removed => return Ok(()),
                Removal::Changed => return Err(self.lost(name)),
                Removal::Contended => std::thread::sleep(PAUSE),
            }
        }
        match self.directory.read(name, LONGEST_FILE + 1)? {
            Found::File(judged) if judged.identity() == published.identity => {
                match self.directory.release(name, judged, name)? {
                    Removal::Removed => Ok(()),
                    Removal::Changed | Removal::Contended => Err(self.lost(name)),
                }
            }
            Found::File(_) | Found::Nothing | Found::Obstacle(_) => Err(self.lost(name)),
        }
    }

    /// Whether a lock's name leads to that very file.
    fn leads_to(&self, name: &Name, identity: Identity) -> Result<bool, Error> {
        match self.directory.read(name, 0)? {
            Found::File(judged) => Ok(judged.identity() == identity),
            Found::Nothing | Found::Obstacle(_) => Ok(false),
        }
    }

    /// Somebody removed or replaced the lock while it was held.
    fn lost(&self, name: &Name) -> Error {
        match self.directory.read(name, LONGEST_FILE + 1) {
            Ok(Found::File(judged)) => {
                let holder = LockInfo::parse(judged.content()).ok().map(Box::new);
                Error::NotHolder { path: self.path_of(name), holder }
            }
            Ok(Found::Nothing | Found::Obstacle(_)) | Err(_) => {
                Error::NotLocked { path: self.path_of(name) }
            }
        }
    }
}

/// Sets the time a file was written to now.
fn touch(file: &File) -> Result<(), Error> {
    let set = file.set_modified(SystemTime::now());
    set.map_err(|_| Error::Process { message: "the lock file's time cannot be set" })
}
