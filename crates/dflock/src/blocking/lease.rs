//! Leases that are held.

use super::runtime::wait;
use crate::error::ClientError;
use crate::lease::{self, Loss};
use crate::terms::Key;
use std::fmt;
use std::ops::Deref;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// How long [`Lease`] waits for the answer to its release when it is dropped.
const DROP_LIMIT: Duration = Duration::from_secs(1);

/// A lock or a semaphore slot that is held, and renewed in the background until it is released. What can be asked of it
/// without waiting is asked of the [`crate::Lease`] inside.
///
/// Dropping it releases it, and waits for the answer for a moment; [`Self::release`] reports whether the server
/// agreed. Other threads can use it by reference.
///
/// ```no_run
/// # fn main() -> Result<(), dflock::ClientError> {
/// # let client = dflock::blocking::Client::new(dflock::Settings::default())?;
/// use std::time::Duration;
///
/// if let Some(lease) = client.lock("nightly-report")?.try_acquire()? {
///     for _part in 0..10 {
///         // ... a part of the work ...
///         if let Some(loss) = lease.lost_within(Duration::ZERO) {
///             println!("stopped: {loss}");
///             return Ok(());
///         }
///     }
///     lease.release()?;
/// }
/// # Ok(()) }
/// ```
#[must_use = "a lease that is dropped is released"]
pub struct Lease {
    held: lease::Lease,
}

impl Lease {
    pub(super) fn of(held: lease::Lease) -> Self {
        Self { held }
    }

    /// Waits at most so long until the lease is lost; `None` if it is not lost by then.
    #[must_use]
    pub fn lost_within(&self, time: Duration) -> Option<Loss> {
        wait(async { Ok(timeout(time, self.held.lost()).await.ok()) }).ok()?
    }

    /// Releases the hold, and closes the connection; if that has broken, releases over another one, for about
    /// [`Settings::answer_limit`](crate::Settings::answer_limit).
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the lease was already over, or a server that cannot be reached; it releases the
    /// key at the end of the lease at the latest.
    pub fn release(self) -> Result<(), ClientError> {
        wait(self.held.give_back())
    }
}

impl Deref for Lease {
    type Target = lease::Lease;

    fn deref(&self) -> &lease::Lease {
        &self.held
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The program may end now. If the answer takes longer, the release continues in the background. A lease that
        // has been released is known to be, at once.
        let _ = wait(async { Ok(timeout(DROP_LIMIT, self.held.give_back()).await) });
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held.fmt(f)
    }
}

/// Leases of several keys, each renewed in the background; see [`Lease`].
///
/// Dropping them releases them.
#[must_use = "leases that are dropped are released"]
#[derive(Debug)]
pub struct Leases {
    leases: Vec<Lease>,
}

impl Leases {
    pub(super) fn of(leases: crate::Leases) -> Self {
        Self { leases: leases.into_vec().into_iter().map(Lease::of).collect() }
    }

    /// Each of them, in the order of the keys.
    pub fn as_slice(&self) -> &[Lease] {
        &self.leases
    }

    /// Each by itself, in the order of the keys.
    #[must_use]
    pub fn into_vec(self) -> Vec<Lease> {
        self.leases
    }

    /// Until when all leases are trusted if no further renewal succeeds; `None` after one is lost.
    #[must_use]
    pub fn held_until(&self) -> Option<Instant> {
        let times: Option<Vec<_>> = self.leases.iter().map(|lease| lease.held_until()).collect();
        times?.into_iter().min()
    }

    /// The first key in their order with a lost lease, and why it is lost.
    #[must_use]
    pub fn loss(&self) -> Option<(&Key, Loss)> {
        self.leases.iter().find_map(|lease| lease.loss().map(|loss| (lease.key(), loss)))
    }

    /// Releases one after another; see [`Lease::release`].
    ///
    /// # Errors
    /// The first failure in the order of the keys. The other leases are released even so.
    pub fn release(self) -> Result<(), ClientError> {
        let mut outcome = Ok(());
        for lease in self.leases {
            outcome = outcome.and(lease.release());
        }
        outcome
    }
}
