//! A held lease: the handle of its holder ([`Lease`]), the orders of the holder to the session, and the holds that the
//! session keeps ([`Holds`]): when they are renewed, and when they are given up. The times are those of [`Schedule`].

use super::connection::Connection;
use super::dialogue::Grant;
use super::error::{ClientError, Refusal};
use super::route::Route;
use super::terms::{Key, Proof, Token, Wanted};
use super::timing::{Schedule, TRIES_IN_TIME};
use std::fmt;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

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
enum State {
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
    fn of(schedule: &Schedule) -> Self {
        Self::Held { until: schedule.until, asked_at: schedule.asked_at }
    }

    fn loss(self) -> Option<Loss> {
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
    Detach,
}

/// The second phase of a request for a place in the queue.
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
    key: Key,
    pub(super) grant: Grant,
    renewal_interval: Duration,
    pub(super) orders: Orders,
    state: watch::Receiver<State>,
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
    pub(super) fn order_detach(&self) {
        // If the session has ended, it was ordered before.
        let _ = self.orders.send(Order::Detach);
    }

    /// Waits until the session has left all its holds, and has closed its connection.
    ///
    /// # Errors
    /// The lease is lost, or over by then.
    pub(super) async fn detached(&mut self) -> Result<(), ClientError> {
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

/// Holds of one session. They are renewed one after the other: beside a slow server, the renewals of more might take
/// longer than they have.
const MOST_HOLDS: usize = 16;

/// One hold. A lost one stays until its lease is released or dropped.
struct Hold {
    proof: Proof,
    schedule: Schedule,
    /// To be renewed now.
    is_urgent: bool,
    /// What its holder knows.
    state: watch::Sender<State>,
}

impl Hold {
    fn loss(&self) -> Option<Loss> {
        self.state.borrow().loss()
    }

    fn lose(&self, loss: Loss) {
        self.state.send_replace(State::Lost(loss));
    }

    /// Whether the server has confirmed it since its grant, or the grant came at once.
    fn is_confirmed(&self) -> bool {
        !matches!(*self.state.borrow(), State::Unconfirmed)
    }

    fn due_at(&self) -> Instant {
        if self.is_urgent { self.schedule.asked_at } else { self.schedule.renew_at() }
    }

    /// When nothing else may delay its renewal any more.
    fn late_at(&self) -> Instant {
        let interval = self.schedule.renewal_interval();
        self.schedule.renew_at() + interval / 4
    }

    /// Whether the server may still hold it: a lease that could not be renewed stands until its end.
    fn may_stand(&self) -> bool {
        match self.loss() {
            None => true,
            Some(Loss::NotHeld) => false,
            Some(Loss::Unreachable) => Instant::now() < self.schedule.ends_at(),
        }
    }

    fn report(&self) {
        self.state.send_replace(State::of(&self.schedule));
    }
}

/// The answer to a renewal: when it was asked for, and how long the lease lasts from then. `None`: it is over.
pub(super) type Renewal = Option<(Instant, Duration)>;

pub(super) struct Holds {
    route: Arc<Route>,
    list: Vec<Hold>,
    /// For orders to this session.
    pub(super) orders: Orders,
    inbox: mpsc::UnboundedReceiver<Order>,
    /// All holds are to be left at the server. A task that waits for that is woken when this session drops its holds.
    pub(super) is_detaching: bool,
    /// Shows that this session still works for the client; see [`super::session::Sessions`].
    alive: watch::Receiver<()>,
}

impl Holds {
    pub(super) fn new(route: Arc<Route>, alive: watch::Receiver<()>) -> Self {
        let (orders, inbox) = mpsc::unbounded_channel();
        Self { route, list: Vec::new(), orders, inbox, is_detaching: false, alive }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether more can be taken over the same connection.
    pub(super) fn have_room(&self) -> bool {
        self.list.len() < MOST_HOLDS && self.live().next().is_some()
    }

    fn live(&self) -> impl Iterator<Item = &Hold> {
        self.list.iter().filter(|hold| hold.loss().is_none())
    }

    fn live_mut(&mut self) -> impl Iterator<Item = &mut Hold> {
        self.list.iter_mut().filter(|hold| hold.loss().is_none())
    }

    /// A new hold, which was not granted before `asked_at`. If that is unknown, it is renewed now, and must not be used
    /// before.
    pub(super) fn add(
        &mut self,
        wanted: &Wanted,
        grant: Grant,
        asked_at: Option<Instant>,
    ) -> Lease {
        let Wanted { key, kind, .. } = wanted.clone();
        let is_urgent = asked_at.is_none();
        let asked_at = asked_at.unwrap_or_else(Instant::now);
        let schedule = Schedule::new(Arc::clone(&self.route.settings), grant.ttl, asked_at);
        let renewal_interval = schedule.renewal_interval();
        let known = if is_urgent { State::Unconfirmed } else { State::of(&schedule) };
        let (state, receiver) = watch::channel(known);
        let proof = Proof { key: key.clone(), kind, token: grant.token.clone() };
        self.list.push(Hold { proof, schedule, is_urgent, state });
        Lease { key, grant, renewal_interval, orders: self.orders.clone(), state: receiver }
    }

    /// It is no longer held here, and is to be released at the server, if that may still hold it.
    pub(super) fn remove(&mut self, token: &Token) -> Result<Proof, ClientError> {
        let at = self.list.iter().position(|hold| hold.proof.token == *token);
        let hold = at.map(|at| self.list.swap_remove(at)).filter(Hold::may_stand);
        hold.map(|hold| hold.proof).ok_or_else(ClientError::not_held)
    }

    /// When the next hold must be renewed. `None`: nothing is held.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.live().map(Hold::due_at).min()
    }

    /// The hold that must be renewed first, if its time has come, and the length of its lease: one that somebody waits
    /// for, or else the one that has been due for longest. In any other order, a slow server would renew some holds twice
    /// before others.
    pub(super) fn due(&self) -> Option<(Proof, Duration)> {
        let now = Instant::now();
        let first = self.live().min_by_key(|hold| (hold.is_confirmed(), hold.due_at()));
        let due = first.filter(|hold| hold.due_at() <= now);
        due.map(|hold| (hold.proof.clone(), hold.schedule.granted))
    }

    /// Whether the renewals have fallen so far behind that the connection must do nothing else.
    pub(super) fn are_late(&self) -> bool {
        let now = Instant::now();
        self.live().any(|hold| hold.late_at() <= now)
    }

    /// It must be renewed now, unless it was renewed since then.
    pub(super) fn urge(&mut self, token: &Token, since: Instant) {
        let older = |hold: &&mut Hold| hold.proof.token == *token && hold.schedule.asked_at < since;
        if let Some(hold) = self.live_mut().find(older) {
            hold.is_urgent = true;
        }
    }

    /// All that are held, for their renewal over another connection.
    pub(super) fn all_live(&self) -> Vec<(Proof, Schedule)> {
        self.live().map(|hold| (hold.proof.clone(), hold.schedule.clone())).collect()
    }

    /// When the next hold is given up if it is not renewed. `None`: nothing is held.
    fn given_up_at(&self) -> Option<Instant> {
        self.live().map(|hold| hold.schedule.given_up_at()).min()
    }

    /// How long to wait for an answer on one connection alone.
    pub(super) fn patience(&self) -> Duration {
        let limit = self.route.settings.answer_limit;
        self.given_up_at().map_or(limit, |end| {
            end.saturating_duration_since(Instant::now()).min(limit) / TRIES_IN_TIME
        })
    }

    /// The answer to a renewal. A hold that was given up stays so.
    pub(super) fn heard(&mut self, token: &Token, renewal: Renewal) {
        let Some(hold) = self.live_mut().find(|hold| hold.proof.token == *token) else { return };
        match renewal {
            Some((asked_at, ttl)) => {
                hold.schedule.renewed(asked_at, ttl);
                hold.is_urgent = false;
                hold.report();
            }
            None => hold.lose(Loss::NotHeld),
        }
    }

    /// The connection is gone.
    pub(super) fn broken(&mut self) {
        let now = Instant::now();
        for hold in self.live_mut() {
            hold.schedule.broken(now);
            if hold.is_confirmed() {
                hold.report();
            }
        }
    }

    fn give_up(&mut self) {
        let now = Instant::now();
        let late = self.live().filter(|hold| hold.schedule.given_up_at() <= now);
        for hold in late {
            hold.lose(Loss::Unreachable);
        }
    }

    pub(super) async fn order(&mut self) -> Order {
        match self.inbox.recv().await {
            Some(order) => order,
            // It holds a sender itself.
            None => pending().await,
        }
    }

    /// Waits for `work` as long as something is held, gives up each hold at its time, and does what is ordered meanwhile.
    /// `None`: nothing is held any more.
    pub(super) async fn attend<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        loop {
            let end = self.given_up_at()?;
            tokio::select! {
                biased;
                outcome = &mut work => return Some(outcome),
                // The work goes on in both cases: a connection that was dropped after half of the renewals might take
                // the renewed holds along.
                () = sleep_until(end) => self.give_up(),
                order = self.order() => self.do_elsewhere(order),
            }
        }
    }

    /// Does what is ordered without the connection of the session. Who wants to take something does it over another one.
    pub(super) fn do_elsewhere(&mut self, order: Order) {
        match order {
            Order::Release { token, outcome } => match self.remove(&token) {
                Ok(proof) => self.release_elsewhere(proof, outcome),
                Err(error) => drop(outcome.send(Err(error))),
            },
            Order::Renew { token, since } => self.urge(&token, since),
            Order::Detach => self.is_detaching = true,
            Order::Take { .. } => {}
        }
    }

    /// Releases a hold over another connection, in the background.
    pub(super) fn release_elsewhere(&self, proof: Proof, outcome: Released) {
        let (route, alive) = (Arc::clone(&self.route), self.alive.clone());
        tokio::spawn(async move {
            // If the holder has stopped waiting, nobody needs the result.
            let _ = outcome.send(route.release_anew(&proof).await);
            drop(alive);
        });
    }

    /// Closes a connection in the background: first gives back what was requested there and is granted late. A server that
    /// has not answered for its read timeout has closed the connection, or hangs.
    ///
    /// As long as a lost lease is neither over nor released, its holder may still be stopping its work. A server that
    /// resumes would free the lease when the connection closes, so that stays open.
    pub(super) fn close_later(&self, mut connection: Connection, unanswered: Vec<Wanted>) {
        let (route, alive) = (Arc::clone(&self.route), self.alive.clone());
        let lost = self.list.iter().filter(|hold| hold.loss() == Some(Loss::Unreachable));
        let lost: Vec<_> = lost.map(|hold| (hold.schedule.until, hold.state.clone())).collect();
        tokio::spawn(async move {
            if !unanswered.is_empty() {
                let limit = route.settings.read_timeout.max(route.settings.answer_limit);
                let grants = connection.late_grants(unanswered.len(), limit).await;
                for (wanted, grant) in unanswered.into_iter().zip(grants) {
                    let proof = Proof { key: wanted.key, kind: wanted.kind, token: grant.token };
                    // A hold that cannot be released ends with its lease.
                    let _ = route.release_anew(&proof).await;
                }
            }
            drop(alive);
            for (end, lease) in lost {
                let _ = timeout_at(end, lease.closed()).await;
            }
            drop(connection);
        });
    }
}
