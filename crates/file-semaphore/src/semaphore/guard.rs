//! The guard of a semaphore that is held. It removes only the very file that it published. Dropped in a forked child, it
//! releases nothing.

use std::path::PathBuf;
use std::sync::Arc;

use pidlockfile::{Name, Pid, Published};

use crate::error::Error;
use crate::record::LockInfo;
use crate::semaphore::files::{Files, Taken};
use crate::sys::remove_if_empty;

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
    /// The directory of the readers, if this is the guard of one.
    readers: Option<PathBuf>,
}

impl Guard {
    /// The guard of a slot that was taken.
    pub(crate) fn of(files: &Arc<Files>, taken: Taken) -> Self {
        let Taken { slot, name, published, info } = taken;
        let (files, published, taker) = (Arc::clone(files), Some(published), Pid::this());
        Self { files, slot, name, published, info, taker, readers: None }
    }

    /// Makes it the guard of a reader, whose lock is in this directory.
    pub(crate) fn of_reader(mut self, directory: PathBuf) -> Self {
        self.readers = Some(directory);
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

    /// Releases the semaphore.
    ///
    /// # Errors
    /// [`Error::NotLocked`] or [`Error::NotHolder`] when somebody took it away in the meantime;
    /// nothing was removed then. [`Error::System`].
    pub fn release(mut self) -> Result<(), Error> {
        self.release_if_held()
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
    /// [`Error::System`] when that cannot be read.
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
    /// that waits for the holder and then releases, and must be able to distinguish an orderly end
    /// from a lock that was taken away.
    #[cfg(all(feature = "cli", unix))]
    pub(crate) fn shield(&self) {
        if let Some(published) = &self.published {
            // Where that fails a release may find the lock broken a moment before.
            let _ = crate::sys::flock_exclusively(&published.file);
        }
    }

    fn release_if_held(&mut self) -> Result<(), Error> {
        let Some(published) = self.published.take() else { return Ok(()) };
        let released = self.files.located(self.files.withdraw(&self.name, &published));
        if let Some(directory) = &self.readers {
            remove_if_empty(directory);
        }
        released
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.taker == Pid::this() {
            let _ = self.release_if_held();
        }
    }
}
