//! A held lease, and the task that renews it.
//!
//! The task owns the connection, renews well before the end, and tells the holder when the lease is lost. It
//! never says that a lease is held after its end: the end is counted from before the request was sent, so the
//! lease ends later on the server.

use super::backoff::{Backoff, Patience};
use super::connection::Connection;
use super::dialogue::Grant;
use super::error::{ClientError, Refusal};
use super::route::Route;
use super::terms::{Key, Kind, Token};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

/// Renewals in one lease: two may fail before the end is near.
pub(super) const RENEWALS_PER_LEASE: u32 = 3;

/// Why a lease is over although its holder did not release it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The server says the token holds nothing: the lease ran out there, somebody released it, the
    /// connection broke under auto-release, or the server was started anew.
    NotHeld,
    /// The server could not be asked in time. Others may hold the key from now on.
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
    Held { until: Instant },
    Lost(Loss),
}

/// A lock or a semaphore slot that is held, and renewed in the background until it is released.
///
/// Dropping it releases it too, as far as the runtime still runs; [`Self::release`] says whether
/// the server agreed. The renewing task needs the runtime to turn: code that blocks its thread for
/// longer than the lease loses it.
#[must_use = "a lease that is dropped is released"]
pub struct Lease {
    key: Key,
    grant: Grant,
    renewal_interval: Duration,
    orders: mpsc::Sender<Order>,
    state: watch::Receiver<State>,
}

type Order = oneshot::Sender<Result<(), ClientError>>;

/// Everything a lease needs to begin.
pub(super) struct Beginning {
    pub(super) route: Arc<Route>,
    pub(super) connection: Connection,
    pub(super) key: Key,
    pub(super) kind: Kind,
    pub(super) grant: Grant,
    /// A moment at which the request that was granted, or the renewal of that grant, had not been
    /// sent yet: the lease lasts from then at least.
    pub(super) asked_at: Instant,
}

impl Lease {
    /// Starts the keeper.
    pub(super) fn begin(beginning: Beginning) -> Self {
        let Beginning { route, connection, key, kind, grant, asked_at } = beginning;
        let claim = Claimed { route, key: key.clone(), kind, grant: grant.clone() };
        let until = asked_at + claim.lasts(grant.ttl_s);
        let (orders, inbox) = mpsc::channel(1);
        let (sender, state) = watch::channel(State::Held { until });
        let renewal_interval = claim.renewal_interval();
        let ttl_s = grant.ttl_s;
        let keeper = Keeper { claim, connection, state: sender, asked_at, ttl_s, until };
        tokio::spawn(keeper.keep(inbox));
        Self { key, grant, renewal_interval, orders, state }
    }

    /// The key that is held.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The proof of holding.
    #[must_use]
    pub fn token(&self) -> &Token {
        &self.grant.token
    }

    /// See [`Token::fence`].
    #[must_use]
    pub fn fence(&self) -> Option<u64> {
        self.grant.token.fence()
    }

    /// The length of the lease in seconds; every renewal starts it over.
    #[must_use]
    pub fn ttl_s(&self) -> u32 {
        self.grant.ttl_s
    }

    /// The pause between two renewals: a third of the time for which a renewal is sure to hold.
    #[must_use]
    pub fn renewal_interval(&self) -> Duration {
        self.renewal_interval
    }

    /// Until when the lease is trusted if no further renewal succeeds; nothing once it is lost.
    #[must_use]
    pub fn held_until(&self) -> Option<std::time::Instant> {
        match *self.state.borrow() {
            State::Held { until } => Some(until.into_std()),
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

    /// Waits until the lease is lost; for ever, while all is well. May be given up and called
    /// again.
    pub async fn lost(&mut self) -> Loss {
        let lost = self.state.wait_for(|state| matches!(state, State::Lost(_))).await;
        match lost.as_deref() {
            Ok(State::Lost(loss)) => *loss,
            Ok(State::Held { .. }) | Err(_) => Loss::Unreachable,
        }
    }

    /// Releases, and closes the connection; where that has broken, over another one, for at most
    /// [`Settings::answer_limit`](crate::Settings::answer_limit).
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the lease was over already, or a server that cannot be
    /// reached; it releases the key at the latest at the end of the lease.
    pub async fn release(self) -> Result<(), ClientError> {
        let (order, outcome) = oneshot::channel();
        if self.orders.send(order).await.is_err() {
            return Err(ClientError::Refused(Refusal::Error));
        }
        outcome.await.unwrap_or_else(|_| Err(ClientError::closed()))
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("key", &self.key).field("grant", &self.grant).finish()
    }
}

/// What is claimed, and where: the part of a keeper that does not change.
struct Claimed {
    route: Arc<Route>,
    key: Key,
    kind: Kind,
    grant: Grant,
}

impl Claimed {
    /// How long a lease of so many seconds is sure: a server that hears nothing may give it away
    /// before its end.
    fn lasts(&self, ttl_s: u32) -> Duration {
        Duration::from_secs(ttl_s.into()).min(self.route.settings.read_timeout)
    }

    fn renewal_interval(&self) -> Duration {
        self.lasts(self.grant.ttl_s) / RENEWALS_PER_LEASE
    }

    /// Opens connections until one of them renews the lease or is told that there is none. Until the
    /// end there is time for every server.
    async fn look_for_it(&self, end: Instant) -> Result<Anew, Loss> {
        let mut backoff = Backoff::new();
        loop {
            match self.ask_anew(end).await {
                Ok(anew) => return Ok(anew),
                Err(ClientError::Refused(Refusal::Error | Refusal::LeaseExpired)) => {
                    return Err(Loss::NotHeld);
                }
                Err(_) => self.route.turn(),
            }
            backoff.pause().await;
        }
    }

    /// The same, after a pause, and of the next server first.
    async fn look_elsewhere(&self, pause: Duration, end: Instant) -> Result<Anew, Loss> {
        sleep(pause).await;
        self.route.turn();
        self.look_for_it(end).await
    }

    async fn ask_anew(&self, end: Instant) -> Result<Anew, ClientError> {
        let Self { route, key, kind, grant } = self;
        let mut connection = route.open().await?;
        let asked_at = Instant::now();
        let share = end.saturating_duration_since(asked_at) / route.width();
        connection.set_answer_limit(share.min(route.settings.answer_limit));
        let ttl_s = connection.renew(key, *kind, &grant.token, Some(grant.ttl_s)).await?;
        Ok(Anew { connection, asked_at, ttl_s })
    }
}

/// A renewal on another connection.
struct Anew {
    connection: Connection,
    asked_at: Instant,
    ttl_s: u32,
}

struct Keeper {
    claim: Claimed,
    connection: Connection,
    state: watch::Sender<State>,
    /// When the grant, or its latest renewal that was answered, had not been sent yet.
    asked_at: Instant,
    /// How long the lease lasts from then.
    ttl_s: u32,
    until: Instant,
}

impl Keeper {
    /// Until the holder lets go. His order does not wait for a server that is being looked for.
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

    /// Waits until the lease must be renewed or the connection breaks, and keeps it through that.
    async fn stay(&mut self) -> Result<(), Loss> {
        let renew_at = self.asked_at + self.claim.renewal_interval();
        tokio::select! {
            // First: what a server says unasked, before it hangs up, is no answer to a renewal.
            biased;
            () = self.connection.closed() => self.reclaim().await,
            () = sleep_until(renew_at) => self.renew().await,
        }
    }

    /// When the holder must be told that the lease ends.
    fn last_moment(&self) -> Instant {
        let margin = self.claim.route.settings.margin.min(self.claim.renewal_interval());
        self.until.checked_sub(margin).unwrap_or(self.until)
    }

    /// Asks on the connection that holds the lease. As long as the server may still hear of us
    /// there, it has no reason to give the lease away, so the answer is awaited until then; and
    /// after a while asked for on another one, in case only this one swallows what is sent.
    async fn renew(&mut self) -> Result<(), Loss> {
        let asked_at = Instant::now();
        let end = self.last_moment();
        let left = end.saturating_duration_since(asked_at);
        self.connection.set_answer_limit(left);
        let Claimed { key, kind, grant, .. } = &self.claim;
        let answer = tokio::select! {
            biased;
            answer = self.connection.renew(key, *kind, &grant.token, Some(grant.ttl_s)) => answer,
            anew = self.claim.look_elsewhere(left / RENEWALS_PER_LEASE, end) => {
                return self.moved(anew);
            }
            () = sleep_until(end) => return Err(Loss::Unreachable),
        };
        match answer {
            Ok(ttl_s) => {
                self.renewed(asked_at, ttl_s);
                Ok(())
            }
            Err(ClientError::Refused(Refusal::Error | Refusal::LeaseExpired)) => Err(Loss::NotHeld),
            Err(ClientError::Silent) => Err(Loss::Unreachable),
            Err(_) => self.reclaim().await,
        }
    }

    /// The connection is gone. Reaches the server anew and asks there whether the token still
    /// holds, for as long as the lease may last.
    async fn reclaim(&mut self) -> Result<(), Loss> {
        self.until = self.asked_at + Duration::from_secs(self.ttl_s.into());
        self.state.send_replace(State::Held { until: self.until });
        let last = self.last_moment();
        let end = match self.claim.route.settings.reclaim {
            Some(reclaim) => last.min(Instant::now() + reclaim),
            None => last,
        };
        match timeout_at(end, self.claim.look_for_it(end)).await {
            Ok(anew) => self.moved(anew),
            Err(_) => Err(Loss::Unreachable),
        }
    }

    fn moved(&mut self, anew: Result<Anew, Loss>) -> Result<(), Loss> {
        let Anew { connection, asked_at, ttl_s } = anew?;
        self.connection = connection;
        self.renewed(asked_at, ttl_s);
        Ok(())
    }

    fn renewed(&mut self, asked_at: Instant, ttl_s: u32) {
        (self.asked_at, self.ttl_s) = (asked_at, ttl_s);
        self.until = asked_at + self.claim.lasts(ttl_s);
        self.state.send_replace(State::Held { until: self.until });
    }

    /// Releases on the holder's order, or because the holder dropped the lease.
    async fn let_go(self, order: Option<Order>) {
        let Self { claim: Claimed { route, key, kind, grant }, mut connection, .. } = self;
        let limit = route.settings.answer_limit;
        let end = Instant::now() + limit;
        connection.set_answer_limit(limit / RENEWALS_PER_LEASE);
        let mut outcome = connection.release(&key, kind, &grant.token).await;
        if outcome.as_ref().is_err_and(ClientError::is_passing) {
            drop(connection);
            let again = route.release(&key, kind, &grant.token, Patience::until(end));
            outcome = match timeout_at(end, again).await {
                // It may have been carried all the same.
                Ok(Err(error)) if error.is_not_held() => Ok(()),
                Ok(second) => second,
                Err(_) => outcome,
            };
        }
        if let Some(order) = order {
            // The holder may have given up waiting; then nobody wants to know.
            let _ = order.send(outcome);
        }
    }

    /// Tells the holder, and refuses a release that comes later. The connection stays open until
    /// the holder has let go: a server that wakes up would give the lock away when it closes, and
    /// until the end of the lease the holder may still be busy with stopping.
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
