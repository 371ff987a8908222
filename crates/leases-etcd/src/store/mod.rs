//! The store.
//!
//! An ordered log of tickets. The create revision of a ticket is its place in the order, and its fence. A ticket is
//! a holder while the earlier tickets of its key leave room for it: they are fewer than `limit`, or both it and
//! they are readers. No other record says which tickets hold, so no grant can be forgotten: when a ticket goes, the
//! next one in order is a holder, and all front-ends conclude the same from the same events. The write of a grant
//! takes the ticket off its front-end's lease, so a hold outlives its front-end.
//!
//! A hold is on no lease of etcd, because a leader that was suspended for a while revokes leases that were kept
//! alive meanwhile. A hold is ended by the front-end that wrote its lease. If that front-end is gone, any other one
//! may end the hold after it has seen it unchanged for the whole lease and a second.
//!
//! Seven files do no I/O: `keys` has names and texts, `txn` the transactions (`together` the one of several keys),
//! `mirror` decides which ticket is next, `orphans` which holds are over, `batch` which transactions go together,
//! and `crowd` how many keys there are. The engine's `ownership` decides which connection owns a hold, as for the
//! store in memory. `client`, `calls`, `watch` and `session` talk to etcd. `requests`, `asking`, `several`,
//! `waiting`, `turns`, `holding`, `forced`, `leaving`, `picture`, `sweep` and `telling` do the store's work. They
//! share `state`: `seats`, `tickets` of `mine`, and `lines`, each with its own rules.

mod asking;
mod batch;
#[cfg(test)]
#[path = "both_stores_tests.rs"]
mod both_stores;
mod calls;
mod crowd;
mod forced;
mod holding;
mod keys;
mod leaving;
mod lines;
mod mine;
mod mirror;
mod orphans;
mod picture;
mod requests;
mod seats;
mod session;
mod several;
#[cfg(test)]
#[path = "stand_in_tests.rs"]
mod stand_in;
mod state;
mod sweep;
mod telling;
mod tickets;
mod together;
mod turns;
mod txn;
mod waiting;
mod watch;

#[cfg(test)]
pub(crate) use stand_in::Etcd as StandIn;

use crate::client::{self, Client};
use crate::{EtcdNumbers, Settings, random, rpc};
use keys::{Front, Names};
use leases::{
    Answer, AutoRelease, Caps, Census, ConnId, Counters, Cursor, Effect, Inlet, Key, KeyLine,
    KeyView, Moment, Progress, Refusal, Request, Token, Unreachable, Verdict,
};
use seats::Departure;
use state::State;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::{Notify, watch as changing};

/// The data that the store's tasks share.
struct Inner {
    front: Front,
    names: Names,
    caps: Caps,
    client: Client,
    outbox: calls::Outbox,
    inlet: OnceLock<Inlet>,
    closed: AtomicBool,
    state: Mutex<State>,
    /// Notified when front-ends come or go.
    fronts_changed: Notify,
    sweep_now: Notify,
    session_changed: changing::Sender<u64>,
    sessions_lost: AtomicU64,
    picturing: AtomicBool,
}

/// The store as the server sees it, with the calls of [`leases::Engine`].
pub struct Engine {
    inner: Arc<Inner>,
    counters: Counters,
    census: Census,
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server's clock.
    fn now(&self) -> Moment {
        self.inlet.get().and_then(Inlet::now).unwrap_or_default()
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Tells the server that there are effects to take, or that the deadline has changed. Must not be called while
    /// the state is locked, or inside a call of the server.
    fn stir(&self) {
        if let Some(inlet) = self.inlet.get() {
            inlet.stir();
        }
    }

    /// The end of a request.
    fn answer(self: &Arc<Self>, id: ConnId, answer: Answer) {
        let unheard = self.state().answer(id, answer);
        for grant in unheard.iter().flat_map(Answer::grants) {
            self.abandon(grant.token.salt());
        }
        self.stir();
    }
}

impl Engine {
    /// A store that has not sent anything to etcd yet.
    pub fn new(settings: Settings, caps: Caps) -> Self {
        let front = Front(random());
        let inner = Inner {
            front,
            names: Names::new(&settings.prefix),
            caps,
            client: Client::new(settings),
            outbox: calls::Outbox::new(),
            inlet: OnceLock::new(),
            closed: AtomicBool::new(false),
            state: Mutex::new(State::new(front)),
            fronts_changed: Notify::new(),
            sweep_now: Notify::new(),
            session_changed: changing::channel(0).0,
            sessions_lost: AtomicU64::new(0),
            picturing: AtomicBool::new(false),
        };
        let inner = Arc::new(inner);
        Self { inner, counters: Counters::default(), census: Census::default() }
    }

    /// Starts the tasks of the store. To be called once, on the runtime, before the first connection.
    pub fn start(&mut self, inlet: Inlet) {
        let inner = || Arc::clone(&self.inner);
        if self.inner.inlet.set(inlet).is_ok() {
            tokio::spawn(inner().keep_session());
            tokio::spawn(inner().keep_to_leader());
            tokio::spawn(inner().watch());
            tokio::spawn(inner().sweep());
        }
    }

    /// A new connection with its number in the server. See [`leases::Engine::connect`].
    pub fn connect(&mut self, serial: u64) -> ConnId {
        self.inner.state().seats.connect(serial)
    }

    /// A request. [`Verdict::Later`] is followed by [`Effect::Answer`], unless [`Engine::cancel`] comes first.
    pub fn ask(&mut self, now: Moment, id: ConnId, request: Request<'_>) -> Verdict {
        let mut state = self.inner.state();
        if state.seats.conn(id).is_none_or(|conn| conn.busy) {
            return Verdict::Now(Answer::Refused(Refusal::NotHeld));
        }
        let verdict = if state.away {
            Err(Answer::Refused(Refusal::Unavailable))
        } else {
            self.begin(&mut state, now, id, request)
        };
        match verdict {
            Ok(()) => {
                if let Some(conn) = state.seats.conn(id) {
                    conn.busy = true;
                }
                Verdict::Later
            }
            Err(answer) => {
                state.count(&answer);
                Verdict::Now(answer)
            }
        }
    }

    /// The peer is gone: its wait ends.
    pub fn cancel(&mut self, _now: Moment, id: ConnId) {
        let mut state = self.inner.state();
        let Some(conn) = state.seats.conn(id) else { return };
        let Some(nonce) = conn.blocked.take() else { return };
        if let Some(mine) = state.withdraw(nonce) {
            self.inner.remove_later(&state, &mine);
            turns::end_wait(&mut state, mine, Refusal::Draining);
        }
    }

    /// Ends a grant of which no client was told.
    pub fn take_back(&mut self, _now: Moment, id: ConnId, token: Token) {
        let mut state = self.inner.state();
        match state.seats.conn(id) {
            Some(conn) => conn.untold.push(token.salt()),
            None => self.inner.abandon(token.salt()),
        }
    }

    /// To be repeated until it is [`Progress::Done`], after [`Progress::Later`] when an [`Effect::Wake`] comes.
    pub fn disconnect(&mut self, _now: Moment, id: ConnId, auto: AutoRelease) -> Progress {
        let mut state = self.inner.state();
        let Some(conn) = state.seats.conn(id) else { return Progress::Done };
        match conn.departure {
            Departure::Leaving => return Progress::Later,
            Departure::Left => {}
            Departure::Here if conn.is_bare() => {}
            Departure::Here => {
                conn.departure = Departure::Leaving;
                let serial = conn.serial;
                if auto == AutoRelease::On {
                    state.seats.retire(serial);
                    tokio::spawn(Arc::clone(&self.inner).leave(id, auto));
                    return Progress::Later;
                }
                // Its holds stay. The rest is removed, and nobody waits for that.
                let (inner, remains) = (Arc::clone(&self.inner), conn.take_remains());
                tokio::spawn(async move { inner.settle(remains, auto).await });
            }
        }
        state.seats.vacate(id);
        Progress::Done
    }

    /// Does all work that is due. To be called when [`Engine::next_deadline`] has come.
    pub fn advance(&mut self, now: Moment) {
        let mut state = self.inner.state();
        let state = &mut *state;
        while let Some(nonce) = state.tickets.take_due(now) {
            tokio::spawn(Arc::clone(&self.inner).expire(nonce));
        }
        if state.orphans_due <= now {
            for (name, revision) in state.orphans.take_due(now) {
                tokio::spawn(Arc::clone(&self.inner).reap(name, revision));
            }
            state.orphans_due = state.orphans.next();
        }
    }

    /// When [`Engine::advance`] must be called next.
    pub fn next_deadline(&self) -> Moment {
        let state = self.inner.state();
        state.tickets.next().min(state.orphans_due)
    }

    /// The oldest effect not yet taken. To be called after every other call until there is none.
    pub fn take_effect(&mut self) -> Option<Effect> {
        let mut state = self.inner.state();
        let effect = state.effects.pop_front();
        if effect.is_none() {
            self.counters = state.counters;
            self.census = state.census;
        }
        effect
    }

    /// Ends every wait and refuses new holds from now on.
    pub fn drain(&mut self, _now: Moment) {
        let mut state = self.inner.state();
        state.draining = true;
        let waits: Vec<u64> = state.seats.conns().filter_map(|conn| conn.blocked).collect();
        for nonce in waits {
            if let Some(mine) = state.withdraw(nonce) {
                self.inner.remove_later(&state, &mine);
                turns::end_wait(&mut state, mine, Refusal::Draining);
            }
        }
    }

    /// Takes away all holds of a key, and returns how many there were. It continues even if nobody waits for its
    /// answer, because the next client in line may get the lock by it.
    pub fn force_release(
        &self,
        key: Key<'_>,
    ) -> Pin<Box<dyn Future<Output = Result<usize, Unreachable>> + Send>> {
        let task = tokio::spawn(Arc::clone(&self.inner).take_away(key.bytes().into()));
        Box::pin(async move { task.await.unwrap_or(Err(Unreachable)) })
    }

    /// Whether etcd can be reached, as far as this front-end knows.
    pub fn is_available(&self) -> bool {
        let state = self.inner.state();
        state.session.is_some() || (state.begun && !state.away)
    }

    /// The counters at the time of the last effect taken.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The numbers of keys, holds and waits at the time of the last effect taken.
    pub const fn census(&self) -> &Census {
        &self.census
    }

    /// Reads keys in steps, from a snapshot that is made on demand. See [`leases::Engine::look_over`].
    pub fn look_over(
        &self,
        now: Moment,
        cursor: &mut Cursor,
        budget: u32,
        note: impl FnMut(&KeyLine<'_>) -> ControlFlow<()>,
    ) -> Progress {
        self.inner.look_over(now, cursor, budget, note)
    }

    /// The holders and waiters of one key, `most` of each. See [`leases::Engine::view`].
    pub fn view(&self, now: Moment, key: Key<'_>, most: usize) -> Option<KeyView> {
        self.inner.view(now, key, most)
    }

    /// The counters of this store, in addition to [`Engine::counters`].
    pub fn numbers(&self) -> EtcdNumbers {
        let state = self.inner.state();
        EtcdNumbers {
            leads: false,
            session: state.session.is_some(),
            sessions_lost: self.inner.sessions_lost.load(Ordering::Relaxed),
            front_ends: state.fronts.len(),
            calls: self.inner.client.calls(),
            transactions: self.inner.outbox.transactions(),
            unclear: self.inner.client.unclear(),
            full: self.inner.client.is_full(),
            tombstones: state.tombstones,
            mirrors: state.lines.len(),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.inner.closed.store(true, Ordering::Relaxed);
        self.inner.session_changed.send_modify(|count| *count += 1);
    }
}
