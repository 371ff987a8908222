//! A held lease, and the task that renews it.
//!
//! The task owns the connection, renews well before the end, and tells the holder if the lease is lost. `schedule.rs`
//! decides when.

use super::backoff::Backoff;
use super::connection::Connection;
use super::dialogue::Grant;
use super::error::{ClientError, Refusal};
use super::line::was_waited_for;
use super::route::Route;
use super::schedule::{RENEWALS_PER_LEASE, Schedule, share};
use super::terms::{Key, Kind, Token};
use super::unclaimed::Unclaimed;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

/// Why a lease is over although its holder has not released it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The server says that the token holds nothing: the lease ended there, another client released it, the
    /// connection broke under auto-release, or the server was restarted.
    NotHeld,
    /// The server could not be reached in time. Other clients may hold the key from now on.
    Unreachable,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotHeld => "the server says the lease is over",
            Self::Unreachable => "the server could not be reached to renew the lease",
        })
    }
}

#[derive(Clone, Copy)]
enum State {
    /// The server was asked not before `asked_at`, and said so.
    Held {
        until: std::time::Instant,
        asked_at: std::time::Instant,
    },
    Lost(Loss),
}

impl State {
    fn of(schedule: &Schedule) -> Self {
        Self::Held { until: schedule.until(), asked_at: schedule.asked_at() }
    }
}

/// A lock or a semaphore slot that is held, and renewed in the background until it is released.
///
/// Dropping it also releases it, as long as the runtime runs; [`Self::release`] reports whether the server agreed.
/// The renewing task needs the runtime: code that blocks its thread for longer than the lease loses it.
#[must_use = "a lease that is dropped is released"]
pub struct Lease {
    key: Key,
    grant: Grant,
    renewal_interval: Duration,
    orders: mpsc::Sender<Order>,
    /// To renew now.
    urge: Arc<Notify>,
    state: watch::Receiver<State>,
}

type Order = oneshot::Sender<Result<(), ClientError>>;

/// A grant, and a moment before its request or renewal was sent: the lease lasts at least from then.
pub(super) struct Beginning {
    pub(super) unclaimed: Unclaimed,
    pub(super) grant: Grant,
    pub(super) asked_at: Instant,
}

/// A grant after a wait is renewed before it is used, because the exact moment of the grant, and so the end of the
/// lease, is unknown until then. It may already be over, if this machine was suspended while the answer was in the
/// socket.
pub(super) async fn confirmed(
    mut place: Unclaimed,
    grant: Grant,
    mut asked_at: Instant,
) -> Result<Beginning, (ClientError, Unclaimed)> {
    place.granted(&grant);
    if was_waited_for(asked_at.into_std(), Instant::now().into_std()) {
        asked_at = Instant::now();
        if let Err(error) = renewed(&mut place, &grant).await {
            return Err((error, place));
        }
    }
    Ok(Beginning { unclaimed: place, grant, asked_at })
}

/// Renews a grant on the connection of its own.
pub(super) async fn renewed(place: &mut Unclaimed, grant: &Grant) -> Result<(), ClientError> {
    let (key, kind) = (place.key.clone(), place.kind);
    let limit = place.route.settings.answer_limit.min(grant.ttl / 2);
    let connection = place.connection()?;
    connection.set_answer_limit(limit);
    let renewed = connection.renew(&key, kind, &grant.token, Some(grant.ttl)).await;
    renewed.map(drop).map_err(ClientError::of_late_grant)
}

/// A grant that is not confirmed is released.
pub(super) fn begun(
    outcome: Result<Beginning, (ClientError, Unclaimed)>,
) -> Result<Lease, ClientError> {
    outcome.map_err(|(error, _)| error).and_then(Lease::begin)
}

impl Lease {
    /// Starts the keeper.
    pub(super) fn begin(beginning: Beginning) -> Result<Self, ClientError> {
        let Beginning { unclaimed, grant, asked_at } = beginning;
        let (route, key, kind) =
            (Arc::clone(&unclaimed.route), unclaimed.key.clone(), unclaimed.kind);
        let connection = unclaimed.claimed().ok_or_else(ClientError::closed)?;
        let schedule = Schedule::new(route.settings.limits(), grant.ttl, asked_at.into_std());
        let (orders, inbox) = mpsc::channel(1);
        let (sender, state) = watch::channel(State::of(&schedule));
        let renewal_interval = schedule.renewal_interval();
        let claim = Claimed { route, key: key.clone(), kind, grant: grant.clone() };
        let urge = Arc::new(Notify::new());
        let urged = Arc::clone(&urge);
        let keeper = Keeper { claim, connection, state: sender, schedule, urged };
        tokio::spawn(keeper.keep(inbox));
        Ok(Self { key, grant, renewal_interval, orders, urge, state })
    }

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
            State::Held { until, .. } => Some(until),
            State::Lost(_) => None,
        }
    }

    /// Why the lease is lost, if it is.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        match *self.state.borrow() {
            State::Held { .. } => None,
            State::Lost(loss) => Some(loss),
        }
    }

    /// Waits until the lease is lost; for ever, as long as it is not. May be dropped and called again.
    pub async fn lost(&mut self) -> Loss {
        loss_of(&mut self.state).await
    }

    /// The same for a holder that shares the lease with others.
    pub(super) async fn loss_to_come(&self) -> Loss {
        loss_of(&mut self.state.clone()).await
    }

    /// Asks the keeper to renew soon.
    pub(super) fn urge(&self) {
        self.urge.notify_one();
    }

    /// Waits for a renewal that was sent at `time` or later, or the loss.
    pub(super) async fn known_since(&mut self, time: std::time::Instant) {
        let is_known = |state: &State| match state {
            State::Held { asked_at, .. } => *asked_at >= time,
            State::Lost(_) => true,
        };
        // If the keeper has ended, the lease is lost.
        let _ = self.state.wait_for(is_known).await;
    }

    /// Releases the hold, and closes the connection; if that has broken, releases over another one, for at most
    /// [`Settings::answer_limit`](crate::Settings::answer_limit). Dropping the future also releases the hold, but
    /// does not report the result.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the lease was already over, or a server that cannot be reached; it releases the
    /// key at the end of the lease at the latest.
    pub async fn release(self) -> Result<(), ClientError> {
        self.give_back().await
    }

    /// The same for a holder that shares the lease with others.
    pub(super) async fn give_back(&self) -> Result<(), ClientError> {
        let (order, outcome) = oneshot::channel();
        if self.orders.send(order).await.is_err() {
            return Err(ClientError::Refused(Refusal::Error));
        }
        outcome.await.unwrap_or_else(|_| Err(ClientError::closed()))
    }
}

async fn loss_of(state: &mut watch::Receiver<State>) -> Loss {
    let lost = state.wait_for(|state| matches!(state, State::Lost(_))).await;
    match lost.as_deref() {
        Ok(State::Lost(loss)) => *loss,
        Ok(State::Held { .. }) | Err(_) => Loss::Unreachable,
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("key", &self.key).field("grant", &self.grant).finish()
    }
}

/// The key, the token and the servers: the part of a keeper that does not change.
struct Claimed {
    route: Arc<Route>,
    key: Key,
    kind: Kind,
    grant: Grant,
}

impl Claimed {
    /// Opens connections until one of them renews the lease or is told that there is none. The time is divided so
    /// that every server can be tried.
    async fn look_for_it(&self, end: Instant) -> Result<Anew, Loss> {
        let mut backoff = Backoff::new();
        loop {
            match self.ask_anew(end).await {
                Ok(anew) => return Ok(anew),
                Err(error) if error.is_end_of_lease() => return Err(Loss::NotHeld),
                Err(_) => self.route.turn(),
            }
            sleep(backoff.next()).await;
        }
    }

    /// The same, after a pause, and with the next server first.
    async fn look_elsewhere(&self, pause: Duration, end: Instant) -> Result<Anew, Loss> {
        sleep(pause).await;
        self.route.turn();
        self.look_for_it(end).await
    }

    async fn ask_anew(&self, end: Instant) -> Result<Anew, ClientError> {
        let Self { route, key, kind, grant } = self;
        let mut connection = route.open().await?;
        let asked_at = Instant::now();
        let (end, now) = (end.into_std(), asked_at.into_std());
        connection.set_answer_limit(share(end, now, route.width(), route.settings.answer_limit));
        let ttl = connection.renew(key, *kind, &grant.token, Some(grant.ttl)).await?;
        Ok(Anew { connection, asked_at, ttl })
    }
}

/// A renewal on another connection.
struct Anew {
    connection: Connection,
    asked_at: Instant,
    ttl: Duration,
}

struct Keeper {
    claim: Claimed,
    connection: Connection,
    state: watch::Sender<State>,
    schedule: Schedule,
    urged: Arc<Notify>,
}

impl Keeper {
    /// Until the holder releases. Its request does not wait for a server that cannot be reached.
    async fn keep(mut self, mut inbox: mpsc::Receiver<Order>) {
        loop {
            let outcome = tokio::select! {
                biased;
                order = inbox.recv() => return self.let_go(order).await,
                outcome = self.stay() => outcome,
            };
            if let Err(loss) = outcome {
                return self.lose(loss, inbox).await;
            }
        }
    }

    /// Waits until the lease must be renewed or the connection breaks, and handles that.
    async fn stay(&mut self) -> Result<(), Loss> {
        let renew_at = Instant::from_std(self.schedule.renew_at());
        tokio::select! {
            // First: a message that the server sends unasked before it closes is not the answer to a renewal.
            biased;
            () = self.connection.closed() => self.reclaim().await,
            () = sleep_until(renew_at) => self.renew().await,
            () = self.urged.notified() => self.renew().await,
        }
    }

    /// Asks on the connection that holds the lease. As long as the server may still receive our requests there, it
    /// has no reason to release the lease, so the answer is awaited until then. After a while another connection is
    /// tried as well, in case only this one loses data.
    async fn renew(&mut self) -> Result<(), Loss> {
        let asked_at = Instant::now();
        let end = Instant::from_std(self.schedule.last_moment());
        let left = end.saturating_duration_since(asked_at);
        self.connection.set_answer_limit(left);
        let Claimed { key, kind, grant, .. } = &self.claim;
        let answer = tokio::select! {
            biased;
            answer = self.connection.renew(key, *kind, &grant.token, Some(grant.ttl)) => answer,
            anew = self.claim.look_elsewhere(left / RENEWALS_PER_LEASE, end) => {
                return self.moved(anew);
            }
            () = sleep_until(end) => return Err(Loss::Unreachable),
        };
        match answer {
            Ok(ttl) => {
                self.renewed(asked_at, ttl);
                Ok(())
            }
            Err(error) if error.is_end_of_lease() => Err(Loss::NotHeld),
            Err(ClientError::Silent) => Err(Loss::Unreachable),
            Err(_) => self.reclaim().await,
        }
    }

    /// The connection is gone. Reconnects and asks whether the token still holds, for as long as the lease may last.
    async fn reclaim(&mut self) -> Result<(), Loss> {
        let end = Instant::from_std(self.schedule.broken(Instant::now().into_std()));
        self.state.send_replace(State::of(&self.schedule));
        match timeout_at(end, self.claim.look_for_it(end)).await {
            Ok(anew) => self.moved(anew),
            Err(_) => Err(Loss::Unreachable),
        }
    }

    fn moved(&mut self, anew: Result<Anew, Loss>) -> Result<(), Loss> {
        let Anew { connection, asked_at, ttl } = anew?;
        self.connection = connection;
        self.renewed(asked_at, ttl);
        Ok(())
    }

    fn renewed(&mut self, asked_at: Instant, ttl: Duration) {
        self.schedule.renewed(asked_at.into_std(), ttl);
        self.state.send_replace(State::of(&self.schedule));
    }

    /// Releases when the holder asks, or has dropped the lease.
    async fn let_go(self, order: Option<Order>) {
        let Self { claim: Claimed { route, key, kind, grant }, connection, .. } = self;
        let outcome = route.let_go(Some(connection), &key, kind, &grant.token).await;
        if let Some(order) = order {
            // If the holder has stopped waiting, nobody needs the result.
            let _ = order.send(outcome);
        }
    }

    /// Tells the holder, and refuses a later release. The connection stays open until the holder has released: a
    /// server that resumes would free the lock when it closes, and until the end of the lease the holder may still be
    /// stopping its work.
    async fn lose(self, loss: Loss, mut inbox: mpsc::Receiver<Order>) {
        let Self { connection, state, .. } = self;
        state.send_replace(State::Lost(loss));
        let order = inbox.recv().await;
        drop(connection);
        if let Some(order) = order {
            let _ = order.send(Err(ClientError::Refused(Refusal::Error)));
        }
    }
}
