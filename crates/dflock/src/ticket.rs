//! A place in the line that was joined without waiting: the first of two phases.

use super::error::ClientError;
use super::lease::{Lease, begun, confirmed};
use super::schedule::RENEWALS_PER_LEASE;
use super::terms::Seconds;
use super::unclaimed::Unclaimed;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep};

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
pub struct Ticket {
    orders: mpsc::Sender<oneshot::Sender<Unclaimed>>,
}

impl Ticket {
    pub(super) fn begin(place: Unclaimed) -> Self {
        let (orders, inbox) = mpsc::channel(1);
        tokio::spawn(stay_in_line(place, inbox));
        Self { orders }
    }

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
        let (order, hand_over) = oneshot::channel();
        self.orders.send(order).await.map_err(|_| ClientError::closed())?;
        let mut place = hand_over.await.map_err(|_| ClientError::closed())?;
        let (key, kind, asked_at) = (place.key.clone(), place.kind, Instant::now());
        match place.ask()?.wait(&key, kind, timeout).await? {
            Some(grant) => begun(confirmed(place, grant, asked_at).await).map(Some),
            None => Ok(None),
        }
    }
}

/// Keeps the connection from being closed as idle, and returns the place on request; drops it when it is no longer
/// wanted.
async fn stay_in_line(mut place: Unclaimed, mut inbox: mpsc::Receiver<oneshot::Sender<Unclaimed>>) {
    let pause = place.route.settings.read_timeout / RENEWALS_PER_LEASE;
    loop {
        tokio::select! {
            order = inbox.recv() => {
                if let Some(order) = order {
                    let _ = order.send(place);
                }
                return;
            }
            () = sleep(pause) => {}
        }
        let Ok(connection) = place.connection() else { return };
        if connection.ping().await.is_err() {
            return;
        }
    }
}
