//! A held lease, which is a handle of one hold; and the orders of its holder to the session, which keeps the hold
//! (`session.rs`).

use super::dialogue::Grant;
use super::error::{ClientError, Refusal};
use super::terms::{Key, Token, Wanted};
use super::timing::Schedule;
use std::fmt;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

/// Why a lease is over although its holder has not released it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// The server says that the token holds nothing: the lease ended there, another client released it, the
    /// connection broke under auto-release, or the server was restarted.
    NotHeld,
    /// The server could not be reached in time. Other clients may hold the key from now on.
    Unreachable,
}

impl Loss {
    /// For those who wanted the lease and did not get it yet.
    pub(super) fn into_error(self) -> ClientError {
        match self {
            Self::NotHeld => ClientError::Refused(Refusal::LeaseExpired),
            Self::Unreachable => ClientError::TimedOut,
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotHeld => "the server says the lease is over",
            Self::Unreachable => "the server could not be reached to renew the lease",
        })
    }
}

/// What the session reports about a hold, until that is released.
#[derive(Clone, Copy)]
pub(super) enum State {
    /// Granted after a wait, and not renewed yet. It may be over.
    Unconfirmed,
    /// The server has confirmed it, in the answer to a request that was sent at `asked_at` or later.
    Held {
        until: Instant,
        asked_at: Instant,
    },
    Lost(Loss),
}

impl State {
    pub(super) fn of(schedule: &Schedule) -> Self {
        Self::Held { until: schedule.until, asked_at: schedule.asked_at }
    }

    pub(super) fn loss(self) -> Option<Loss> {
        match self {
            Self::Unconfirmed | Self::Held { .. } => None,
            Self::Lost(loss) => Some(loss),
        }
    }
}

/// What a session is asked for.
pub(super) enum Order {
    /// To take these, all or none, if they are free; or to go on with what another session was granted, which ends then.
    /// A session that cannot do that drops the order.
    Take {
        wanted: Vec<Wanted>,
        granted: Option<Vec<Grant>>,
        outcome: oneshot::Sender<Taken>,
    },
    /// To renew a hold soon, unless it was renewed since then.
    Renew {
        token: Token,
        since: Instant,
    },
    Release {
        token: Token,
        outcome: Released,
    },
    /// To end, and to leave all its holds at the server.
    Leave,
}

/// The second phase of a request for a place in the line.
pub(super) struct Turn {
    pub(super) timeout: Duration,
    pub(super) outcome: oneshot::Sender<Taken>,
}

pub(super) type Orders = mpsc::UnboundedSender<Order>;
/// `None`: in use, or the time was over first.
pub(super) type Taken = Result<Option<Vec<Lease>>, ClientError>;
pub(super) type Released = oneshot::Sender<Result<(), ClientError>>;

/// A lock or a semaphore slot that is held, and renewed in the background until it is released.
///
/// Dropping it also releases it, as long as the runtime runs; [`Self::release`] reports whether the server agreed.
/// The renewing task needs the runtime: code that blocks its thread for longer than the lease loses it.
///
/// ```no_run
/// # async fn work() {}
/// # async fn example(lease: dflock::Lease) -> Result<(), dflock::ClientError> {
/// tokio::select! {
///     () = work() => lease.release().await?,
///     loss = lease.lost() => eprintln!("stopped half-way: {loss}"),
/// }
/// # Ok(()) }
/// ```
#[must_use = "a lease that is dropped is released"]
pub struct Lease {
    pub(super) key: Key,
    pub(super) grant: Grant,
    pub(super) renewal_interval: Duration,
    pub(super) orders: Orders,
    pub(super) state: watch::Receiver<State>,
}

impl Lease {
    /// The key that is held.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The token of the hold.
    #[must_use]
    pub fn token(&self) -> &Token {
        &self.grant.token
    }

    /// See [`Grant::fence`].
    #[must_use]
    pub fn fence(&self) -> Option<u64> {
        self.grant.fence
    }

    /// See [`Grant::slot`].
    #[must_use]
    pub fn slot(&self) -> Option<u32> {
        self.grant.slot
    }

    /// The length of the lease, in whole seconds; every renewal starts it over.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.grant.ttl
    }

    /// The pause between two renewals: a third of the time for which a renewal is sure to hold.
    #[must_use]
    pub fn renewal_interval(&self) -> Duration {
        self.renewal_interval
    }

    /// Until when the lease is trusted if no further renewal succeeds; `None` once it is lost.
    #[must_use]
    pub fn held_until(&self) -> Option<std::time::Instant> {
        match *self.state.borrow() {
            State::Held { until, .. } => Some(until.into_std()),
            State::Unconfirmed | State::Lost(_) => None,
        }
    }

    /// Why the lease is lost, if it is.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        self.state.borrow().loss()
    }

    /// Waits until the lease is lost; for ever, as long as it is not. May be dropped and called again.
    pub async fn lost(&self) -> Loss {
        let mut state = self.state.clone();
        let lost = state.wait_for(|state| matches!(state, State::Lost(_))).await;
        lost.ok().and_then(|state| state.loss()).unwrap_or(Loss::Unreachable)
    }

    /// Asks the session to renew soon, unless it has renewed since `time`.
    pub(super) fn renew_if_older(&self, time: Instant) {
        // If the session has ended, the lease is lost.
        let _ = self.orders.send(Order::Renew { token: self.grant.token.clone(), since: time });
    }

    /// Waits for a renewal that was sent at `time` or later, or the loss.
    pub(super) async fn known_since(&mut self, time: Instant) {
        let is_known = |state: &State| match state {
            State::Unconfirmed => false,
            State::Held { asked_at, .. } => *asked_at >= time,
            State::Lost(_) => true,
        };
        // If the session has ended, the lease is lost.
        let _ = self.state.wait_for(is_known).await;
    }

    /// Waits until the server has confirmed a grant that came after a wait.
    async fn confirmed(&mut self) -> Result<(), ClientError> {
        let state = self.state.wait_for(|state| !matches!(state, State::Unconfirmed)).await;
        let state = state.map_err(|_| ClientError::closed())?;
        state.loss().map_or(Ok(()), |loss| Err(loss.into_error()))
    }

    /// Releases the hold, and closes the connection after the last hold on it. If the connection has broken, releases
    /// over another one, for at most [`Settings::answer_limit`](crate::Settings::answer_limit). Dropping the future
    /// also releases the hold, but does not report the result.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the lease was already over, or a server that cannot be reached; it releases the
    /// key at the end of the lease at the latest.
    pub async fn release(self) -> Result<(), ClientError> {
        self.release_for_all().await
    }

    /// The same for a holder that shares the lease with others.
    pub(super) async fn release_for_all(&self) -> Result<(), ClientError> {
        if self.state.has_changed().is_err() {
            // It has been released before.
            return Err(ClientError::not_held());
        }
        self.order_release().await.unwrap_or_else(|_| Err(ClientError::closed()))
    }

    /// Has the session leave all its holds at the server.
    pub(super) fn order_leave(&self) {
        // If the session has ended, it was ordered before.
        let _ = self.orders.send(Order::Leave);
    }

    /// Waits until the session has left all its holds, and has closed its connection.
    ///
    /// # Errors
    /// The lease is lost, or over by then.
    pub(super) async fn left(&mut self) -> Result<(), ClientError> {
        let _ = self.state.wait_for(|_| false).await;
        match *self.state.borrow() {
            State::Held { asked_at, .. } if asked_at.elapsed() < self.grant.ttl => Ok(()),
            State::Unconfirmed | State::Held { .. } => Err(ClientError::TimedOut),
            State::Lost(loss) => Err(loss.into_error()),
        }
    }

    /// The session releases the hold, also if nobody waits for the outcome. It ignores this if the hold was released or
    /// left before.
    fn order_release(&self) -> oneshot::Receiver<Result<(), ClientError>> {
        let (outcome, released) = oneshot::channel();
        let _ = self.orders.send(Order::Release { token: self.grant.token.clone(), outcome });
        released
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        drop(self.order_release());
    }
}

pub(super) fn one_of(leases: Option<Vec<Lease>>) -> Option<Lease> {
    leases?.pop()
}

/// What a session of its own answers.
pub(super) async fn answer(taken: oneshot::Receiver<Taken>) -> Taken {
    confirmed(taken.await.unwrap_or_else(|_| Err(ClientError::closed()))).await
}

/// Waits until the server has confirmed leases that were granted after a wait.
pub(super) async fn confirmed(taken: Taken) -> Taken {
    let Some(mut leases) = taken? else { return Ok(None) };
    for lease in &mut leases {
        lease.confirmed().await?;
    }
    Ok(Some(leases))
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("key", &self.key).field("grant", &self.grant).finish()
    }
}
