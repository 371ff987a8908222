//! The holds of one session: when they are renewed, when they are given up, and the orders of those who hold them. The
//! times are those of [`Schedule`].

use super::connection::Connection;
use super::dialogue::Grant;
use super::error::ClientError;
use super::lease::{Lease, Loss, Order, Orders, Released, State};
use super::route::Route;
use super::terms::{Proof, Token, Wanted};
use super::timing::{RENEWALS_PER_LEASE, Schedule};
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

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
    /// All holds are to be left at the server. Whoever waits for that is woken when this session drops its holds.
    pub(super) is_leaving: bool,
    /// Of everything that works for the client; see [`super::session::Sessions`].
    alive: watch::Receiver<()>,
}

impl Holds {
    pub(super) fn new(route: Arc<Route>, alive: watch::Receiver<()>) -> Self {
        let (orders, inbox) = mpsc::unbounded_channel();
        Self { route, list: Vec::new(), orders, inbox, is_leaving: false, alive }
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
    /// for, or else the one that is due longest. With another order, a slow server would renew some holds again before
    /// others.
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
            end.saturating_duration_since(Instant::now()).min(limit) / RENEWALS_PER_LEASE
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
            Order::Leave => self.is_leaving = true,
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

    /// Leaves a connection: gives back what was requested there and is granted late, and closes it then. A server that
    /// has not answered for its read timeout has closed the connection, or hangs.
    ///
    /// As long as a lost lease is neither over nor released, its holder may still be stopping its work. A server that
    /// resumes would free the lease when the connection closes, so that stays open.
    pub(super) fn leave(&self, mut connection: Connection, unanswered: Vec<Wanted>) {
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
