//! The lock manager: [`Engine`] gets a request, a rule decides, and the effects follow. [The crate](crate) says which
//! calls to make, and in which order. `requests.rs` has the requests, `queue.rs` and `holding.rs` what they change,
//! `rules.rs` the rules, and `state.rs` the tables. Pure.

#![expect(clippy::indexing_slicing, reason = "ids are made by the engine, not by clients")]

mod holding;
mod keys;
mod queue;
mod requests;
mod rules;
mod state;
mod table;
mod terms;
mod values;
mod view;

pub use rules::Claim;
pub use terms::{
    Caps, Key, Keys, Limit, MAX_KEY_BYTES, MAX_KEYS, MAX_SECONDS, Mint, Moment, Seconds,
    TOKEN_DIGITS, Token, Ttl, read_hex,
};
pub use values::{
    Answer, AutoRelease, Census, ConnId, Counters, Effect, Forced, Grant, Histogram, Kept, Label,
    LeaseStart, Population, Progress, Record, Refusal, Request, Verdict, WAIT_BOUNDS_MICROS,
};
pub use view::{Cursor, KeyLine, KeyView, Party, Sight};

use state::{Conn, Enqueued, Hold, Noted, Phase, State, Want};
use std::hash::RandomState;
use std::sync::Arc;
use table::{Alarm, HolderId};

/// The lock manager. [The crate](crate) says what to call, and in which order.
pub struct Engine(State);

impl Engine {
    /// An empty engine. `hasher` only spreads keys over a table: no answer depends on it.
    pub fn new(caps: Caps, mint: impl Mint + 'static, hasher: RandomState) -> Self {
        Self(State::new(caps, Box::new(mint), hasher))
    }

    /// The state, at the time of this call.
    const fn at(&mut self, now: Moment) -> &mut State {
        self.0.now = now;
        &mut self.0
    }

    /// A new connection. `serial` is the number by which `stats` and the log name it.
    pub fn connect(&mut self, serial: u64) -> ConnId {
        let state = &mut self.0;
        state.generation = state.generation.wrapping_add(1);
        let generation = state.generation;
        let id = state.conns.insert(Conn { generation, serial, ..Conn::default() });
        state.conn_id(id)
    }

    /// Whether a connection has no hold, no place in a queue and no request of `e`, and renews no hold of another one: its
    /// end changes nothing.
    #[must_use]
    pub fn is_idle(&self, conn: ConnId) -> bool {
        self.0.conn(conn).is_none_or(|conn| {
            let Conn { entries, renewed, .. } = &self.0.conns[conn];
            *entries == 0 && renewed.last().is_none()
        })
    }

    /// The label of a connection, if it has one.
    #[must_use]
    pub fn label(&self, conn: ConnId) -> Option<&Label> {
        self.0.conns[self.0.conn(conn)?].label.as_deref()
    }

    /// Sets the label of a connection from now on; holds that it gets carry the label.
    pub fn introduce(&mut self, conn: ConnId, label: &Arc<Label>) {
        if let Some(conn) = self.0.conn(conn) {
            self.0.conns[conn].label = Some(Arc::clone(label));
        }
    }

    /// Serves a request of a connection. An unknown connection is refused as one that holds nothing.
    pub fn ask(&mut self, now: Moment, conn: ConnId, request: Request<'_>) -> Verdict {
        let state = self.at(now);
        let Some(conn) = state.conn(conn) else {
            return Verdict::Now(Answer::Refused(Refusal::NotHeld));
        };
        queue::ring(state);
        let default_ttl = state.caps.default_ttl;
        let ttl = |ttl: Option<Ttl>| ttl.unwrap_or(default_ttl);
        let decision = match request {
            Request::Acquire { key, claim, timeout, ttl: wanted } => {
                let want = Want { claim, ttl: ttl(wanted) };
                requests::acquire(state, conn, key, want, timeout)
            }
            Request::AcquireAll { keys, ttl: wanted } => {
                requests::acquire_all(state, conn, keys, ttl(wanted))
            }
            Request::Enqueue { key, claim, ttl: wanted } => {
                requests::enqueue(state, conn, key, Want { claim, ttl: ttl(wanted) })
            }
            Request::Wait { key, timeout } => requests::wait(state, conn, key, timeout),
            Request::Release { key, token } => requests::release(state, conn, key, token),
            Request::Renew { key, token, ttl: wanted } => {
                requests::renew(state, conn, key, token, ttl(wanted))
            }
        };
        let answer = match decision {
            Ok(None) => return Verdict::Later,
            Ok(Some(answer)) => answer,
            Err(refusal) => Answer::Refused(refusal),
        };
        state.count(&answer);
        Verdict::Now(answer)
    }

    /// Withdraws a blocked wait: its place becomes free, and no answer will come.
    pub fn cancel(&mut self, now: Moment, conn: ConnId) {
        let state = self.at(now);
        if let Some(waiter) = state.conn(conn).and_then(|conn| state.conns[conn].blocked) {
            queue::leave(state, waiter);
        }
    }

    /// Removes the entries of a connection that has ended: its waits and requests of `e` in any case, its holds
    /// according to `auto`. Its id is free then.
    pub fn disconnect(&mut self, now: Moment, conn: ConnId, auto: AutoRelease) {
        self.cancel(now, conn);
        let state = self.at(now);
        let Some(conn) = state.conn(conn) else { return };
        while let Some((&key, &Enqueued { phase, .. })) =
            state.conns[conn].enqueued.first_key_value()
        {
            state.dequeue(conn, key);
            match phase {
                Phase::Queued(waiter) => drop(queue::leave(state, waiter)),
                // No client has seen this token, so no client could ever release the hold.
                Phase::Granted(id) => queue::give_back(state, id),
                Phase::Acquired(_) | Phase::Lost => {}
            }
        }
        while let Some(id) = state.conns[conn].renewed.last().or(state.conns[conn].owned.last()) {
            let standing = state.holders[id].standing;
            match standing.parted(conn, auto, state.caps.disconnect_grace) {
                Some(standing) => holding::stand(state, id, standing),
                None => queue::give_back(state, id),
            }
        }
        state.conns.remove(conn);
    }

    /// Frees a hold that was granted to a connection but never announced to it.
    pub fn take_back(&mut self, now: Moment, conn: ConnId, token: Token) {
        let state = self.at(now);
        let owned = |conn| state.conns[conn].owned.find(token.fence());
        let found = state.conn(conn).and_then(owned);
        if let Some(id) = found.filter(|id| state.holders[*id].token == token) {
            holding::dequeue(state, id);
            queue::give_back(state, id);
        }
    }

    /// Takes away at most `most` of the holds that a key has, of every owner. Holds that begin after the first step are
    /// not taken away.
    pub fn force_release(
        &mut self,
        now: Moment,
        key: Key<'_>,
        forced: &mut Forced,
        most: usize,
    ) -> Progress {
        let state = self.at(now);
        let Some(key) = state.keys.find(key) else { return Progress::Done };
        let fence = |id: HolderId| state.holders[id].token.fence();
        let held = &state.keys[key].holders;
        let last = *forced.last.get_or_insert_with(|| held.last().map_or(0, fence));
        let holds: Vec<HolderId> =
            held.iter().take_while(|id| fence(*id) <= last).take(most).collect();
        for &id in &holds {
            state.counters.releases += 1;
            let Hold { standing, token, .. } = state.holders[id];
            for conn in [standing.owner, standing.renewer].into_iter().flatten() {
                let conn = state.conn_id(conn);
                state.effects.push_back(Effect::Taken(conn, token));
            }
            holding::mark_lost(state, id);
            queue::free(state, id);
        }
        forced.released += holds.len();
        if holds.len() < most { Progress::Done } else { Progress::More }
    }

    /// The oldest effect not yet taken.
    pub fn take_effect(&mut self) -> Option<Effect> {
        self.0.effects.pop_front()
    }

    /// Serves the timers that are due, and forgets keys that were idle for long.
    pub fn advance(&mut self, now: Moment) {
        let state = self.at(now);
        queue::ring(state);
        if std::mem::take(&mut state.reopening) {
            queue::serve_all(state);
        }
        queue::serve_more(state);
        state.keys.collect(now, &state.caps);
    }

    /// When [`Engine::advance`] must be called next; [`Moment::NEVER`] if nothing is pending. It may find nothing to do
    /// then.
    pub fn next_deadline(&self) -> Moment {
        if self.0.reopening || !self.0.unserved.is_empty() {
            return Moment::default();
        }
        self.0.timers.next().min(self.0.keys.next_collection())
    }

    /// Ends every wait with [`Refusal::Draining`] and refuses new holds from now on.
    pub fn drain(&mut self, now: Moment) {
        let state = self.at(now);
        state.draining = true;
        let blocked = state.waiters.iter().filter(|(_, waiter)| waiter.blocked);
        for id in blocked.map(|(id, _)| id).collect::<Vec<_>>() {
            queue::end_wait(state, id, Answer::Refused(Refusal::Draining));
        }
    }

    /// The counters of events so far.
    pub const fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// The numbers of entries in the tables, by kind.
    pub const fn census(&self) -> &Census {
        self.0.keys.census()
    }

    /// From now on, [`Effect::Moved`] reports each change of this key's holders, or no longer does.
    pub fn watch(&mut self, key: Key<'_>, is_watched: bool) {
        self.0.keys.watch(key, is_watched);
    }

    /// From now on, changes are kept until [`Engine::take_changes`].
    pub fn record(&mut self, leases: LeaseStart) {
        self.0.changes.get_or_insert_default();
        self.0.lease_start = leases;
    }

    /// Whether holds have changed.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        self.0.changes.as_ref().is_some_and(|changes| !changes.is_empty())
    }

    /// Adds the changes of holds since the last call to `records`, in order. Of a hold that has ended meanwhile, only
    /// the end is added.
    pub fn take_changes(&mut self, now: Moment, records: &mut Vec<Record>) {
        let state = self.at(now);
        let Some(mut changes) = state.changes.take() else { return };
        records.extend(changes.drain(..).filter_map(|change| match change {
            Noted::Present(record, id, token) => holding::kept(state, id, token).map(record),
            Noted::Ended(token) => Some(Record::Ended(token)),
        }));
        state.changes = Some(changes);
    }

    /// Restores a recorded hold, without a connection. A name that is no key is no hold.
    pub fn restore(&mut self, now: Moment, kept: &Kept) {
        holding::restore(self.at(now), kept);
    }

    /// A grant or renewal of a hold has been recorded. With the last of them its lease begins.
    pub fn start_lease(&mut self, now: Moment, key: Key<'_>, token: Token) {
        let state = self.at(now);
        if let Some(id) = holding::find(state, key, token) {
            holding::start_lease(state, id);
        }
    }

    /// Grants nothing before `until`. Present holds can be renewed and released, and queues fill.
    pub fn close(&mut self, until: Moment) {
        self.0.closed_until = until;
        self.0.timers.arm(Alarm::Open, until);
    }

    /// The end of the time of [`Engine::close`].
    pub const fn closed_until(&self) -> Moment {
        self.0.closed_until
    }

    /// Sets how many holds can be recorded beside the present ones, until the next call. If there is no room, nothing
    /// new is granted; present holds can be renewed and handed on.
    pub const fn set_room(&mut self, holds: usize) {
        // Waiters may be waiting for this change only.
        self.0.reopening |= self.0.room == 0 && holds > 0;
        self.0.room = holds;
    }

    /// Forgets everything but the connections, the counters, and whether it is draining: the holds are to be restored
    /// from their record. Nothing is released, and waits end without an answer.
    pub fn restart(&mut self, mint: impl Mint + 'static) {
        let State { caps, .. } = self.0;
        let new = State::new(caps, Box::new(mint), self.0.keys.hasher().clone());
        let old = std::mem::replace(&mut self.0, new);
        let state = &mut self.0;
        state.conns = old.conns;
        state.generation = old.generation;
        state.counters = old.counters;
        state.draining = old.draining;
        state.changes = old.changes.map(|_| Vec::new());
        state.lease_start = old.lease_start;
        state.closed_until = old.closed_until;
        for conn in state.conns.iter_mut() {
            let Conn { generation, serial, label, .. } = std::mem::take(conn);
            *conn = Conn { generation, serial, label, ..Conn::default() };
        }
    }
}
