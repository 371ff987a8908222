//! A place in the line that was joined without waiting: the first of two phases.

use super::error::ClientError;
use super::lease::{Lease, Taken, answer, one_of};
use super::terms::Seconds;
use std::time::Duration;
use tokio::sync::oneshot;

/// The result of joining the line.
#[must_use = "dropping it gives the place or the lease up"]
pub enum Entry {
    /// It was granted at once.
    Acquired(Lease),
    /// A place in the line.
    Queued(Ticket),
}

/// A place in the line. Its turn may come before [`Self::wait`] is called; the lease runs from that moment, so call
/// it within the lease.
#[must_use = "dropping a ticket leaves the line"]
pub struct Ticket(pub(super) oneshot::Sender<Turn>);

/// The request of the second phase.
pub(super) struct Turn {
    pub(super) timeout: Duration,
    pub(super) outcome: oneshot::Sender<Taken>,
}

impl Ticket {
    /// Second phase: waits for the turn, at most `timeout`; `None` if the time is over first, and then the place is
    /// lost.
    ///
    /// Dropping the future leaves the line, as for [`Claim::acquire`](super::Claim::acquire).
    ///
    /// # Errors
    /// A time that does not fit; a refusal, including a lease that was granted and ended before this call; or a
    /// connection that broke.
    pub async fn wait(self, timeout: Duration) -> Result<Option<Lease>, ClientError> {
        Seconds::to_wait(timeout)?;
        let (outcome, taken) = oneshot::channel();
        // If the session has ended, there is no answer.
        let _ = self.0.send(Turn { timeout, outcome });
        answer(taken).await.map(one_of)
    }
}
