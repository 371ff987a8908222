//! A guard that holds a semaphore. It removes only the very file that it published, and only in the process
//! that took it: a forked child that drops its copy releases nothing.

use std::path::PathBuf;
use std::sync::Arc;

use pidlockfile::{Name, Pid, Published};

use crate::error::Error;
use crate::record::LockInfo;
use crate::semaphore::files::Files;
use crate::semaphore::readers::Readers;

/// A semaphore that is held, until this is released or dropped.
///
/// Dropping releases too, but cannot report a failure.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let scratch = tempfile::tempdir()?;
/// # let path = scratch.path().join("index");
/// let held = file_semaphore::Semaphore::open(&path)?.acquire(Some("rebuild"))?;
/// for _piece in 0..3 {
///     // ... work
///     if !held.still_held()? {
///         return Err("somebody has removed the lock".into());
///     }
/// }
/// held.release()?;
/// # Ok(()) }
/// ```
#[must_use = "the semaphore is released when the guard is dropped"]
#[derive(Debug)]
pub struct Guard {
    files: Arc<Files>,
    slot: usize,
    name: Name,
    published: Option<Published>,
    info: LockInfo,
    taker: Pid,
    /// The semaphore that is shared, if this is a reader's.
    shared: Option<Arc<Files>>,
}

impl Guard {
    /// Of the slot with this number, from 0, and this lock file.
    pub(crate) fn new(
        files: Arc<Files>,
        (slot, name): (usize, Name),
        published: Published,
        info: LockInfo,
    ) -> Self {
        let (published, taker) = (Some(published), Pid::this());
        Self { files, slot, name, published, info, taker, shared: None }
    }

    /// Makes it a reader's.
    pub(crate) fn sharing(mut self, semaphore: Arc<Files>) -> Self {
        self.shared = Some(semaphore);
        self
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
        let Some(published) = &self.published else { return Ok(false) };
        self.files.located(self.files.leads_to(&self.name, published.identity))
    }

    /// Renews the lock: by `StaleRule::Age` it is as young as if it were taken now.
    ///
    /// # Errors
    /// [`Error::NotLocked`] or [`Error::NotHolder`] when somebody took it away;
    /// [`Error::System`].
    pub fn renew(&self) -> Result<(), Error> {
        let Some(published) = &self.published else {
            return Err(Error::NotLocked { path: self.path() });
        };
        self.files.located(self.files.renew_file(&self.name, &published.file, published.identity))
    }

    /// Where the lock file is.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.files.path_of(&self.name)
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
            let _ = crate::sys::flock::flock_exclusively(&published.file);
        }
    }

    fn let_go(&mut self) -> Result<(), Error> {
        let Some(published) = self.published.take() else { return Ok(()) };
        let released = self.files.located(self.files.withdraw(&self.name, &published));
        if let Some(semaphore) = &self.shared {
            Readers::of(semaphore).remove_if_empty();
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
