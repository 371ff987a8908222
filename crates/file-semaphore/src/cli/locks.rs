//! The locks of `sema run`: which, and how often they are renewed.

use std::path::PathBuf;
use std::time::Duration;

use super::arguments::Run;
use crate::error::Error;
use crate::limits::STALE_TIMEOUT;
use crate::semaphore::Semaphore;

/// Why the command was not run, and at which of several locks.
pub(super) struct Failure {
    pub(super) path: Option<PathBuf>,
    pub(super) error: Error,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { path: None, error }
    }
}

pub(super) fn open(words: &Run) -> Result<Vec<Semaphore>, Failure> {
    let config = words.taking.config(words.lock.config());
    // For now: see DISK_DELAY in `run`.
    #[cfg(unix)]
    let config = crate::Config { durability: crate::Durability::Memory, ..config };
    let first = Semaphore::with_config(&words.lock.path, config)?;
    let more = words.with.iter().map(|path| {
        let failed = |error| Failure { path: Some(path.clone()), error };
        let config = crate::Config { slots: crate::Slots::ONE, ..config };
        Semaphore::with_config(path, config).map_err(failed)
    });
    std::iter::once(Ok(first)).chain(more).collect()
}

/// How often a lock is renewed, so that it never counts as old for who has the same idea of that.
pub(super) fn renewal(stale_timeout: Option<Duration>) -> Duration {
    let old = stale_timeout.unwrap_or(STALE_TIMEOUT).min(STALE_TIMEOUT);
    (old / 4).max(Duration::from_millis(100))
}
