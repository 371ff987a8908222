//! The lock manager: [`Engine`] gets a request, a rule decides, and the effects follow. [The crate](crate) says which
//! calls to make, and in which order. `requests.rs` has the requests, `holds.rs` what they change in the holds and in the
//! queues, and `rules.rs` the rules. `holds::serve_timers` ends leases, graces and waits. `state.rs` is the state, with the
//! table of keys from `keys.rs`, and the other tables and the timers from `table.rs`. Pure.
//!
//! The views are for people, and for clients that watch a key. Each step is bounded: a caller reads some places of the
//! table at a time, and then views the keys that it has picked.

#![expect(clippy::indexing_slicing, reason = "ids are made by the engine, not by clients")]

mod holds;
mod keys;
mod messages;
mod requests;
mod rules;
mod scalars;
mod state;
mod table;

use keys::KeyEntry;
pub use messages::{
    Answer, Census, ConnId, Counters, Effect, Forced, Grant, Histogram, Label, LeaseStart,
    Population, Progress, Record, RecordedHold, Refusal, Request, Verdict, WAIT_BOUNDS_MICROS,
};
pub use rules::{AutoRelease, Claim};
pub use scalars::{
    Caps, Key, Keys, Limit, MAX_KEY_BYTES, MAX_KEYS, MAX_SECONDS, Mint, Moment, Seconds,
    TOKEN_DIGITS, Token, Ttl, read_hex,
};
use state::{Conn, Hold, Noted, Phase, State, TwoPhase, Waiter, Want};
use std::hash::RandomState;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use table::{Alarm, HolderId, Id};

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

    /// Whether the end of a connection would change nothing: it has no hold, no place in a queue and no request of `e`,
    /// and it renews no hold of another connection.
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
        holds::serve_timers(state);
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
            holds::leave(state, waiter);
        }
    }

    /// Removes the entries of a connection that has ended: its waits and requests of `e` in any case, its holds
    /// according to `auto`. Its id is free then.
    pub fn disconnect(&mut self, now: Moment, conn: ConnId, auto: AutoRelease) {
        self.cancel(now, conn);
        let state = self.at(now);
        let Some(conn) = state.conn(conn) else { return };
        while let Some((&key, &TwoPhase { phase, .. })) =
            state.conns[conn].two_phase.first_key_value()
        {
            state.end_two_phase(conn, key);
            match phase {
                Phase::Queued(waiter) => drop(holds::leave(state, waiter)),
                // No client has seen this token, so no client could ever release the hold.
                Phase::Granted(id) => holds::release_of_conn(state, id),
                Phase::Acquired(_) | Phase::Lost => {}
            }
        }
        while let Some(id) = state.conns[conn].renewed.last().or(state.conns[conn].owned.last()) {
            let ownership = state.holders[id].ownership;
            match ownership.after_end_of(conn, auto, state.caps.disconnect_grace) {
                Some(ownership) => holds::set_ownership(state, id, ownership),
                None => holds::release_of_conn(state, id),
            }
        }
        state.conns.remove(conn);
    }

    /// Frees a hold whose grant did not reach the client of its connection.
    pub fn take_back(&mut self, now: Moment, conn: ConnId, token: Token) {
        let state = self.at(now);
        let owned = |conn| state.conns[conn].owned.find(token.fence());
        let found = state.conn(conn).and_then(owned);
        if let Some(id) = found.filter(|id| state.holders[*id].token == token) {
            holds::end_two_phase(state, id);
            holds::release_of_conn(state, id);
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
            let Hold { ownership, token, .. } = state.holders[id];
            for conn in [ownership.owner, ownership.renewer].into_iter().flatten() {
                let conn = state.conn_id(conn);
                state.effects.push_back(Effect::Taken(conn, token));
            }
            holds::mark_lost(state, id);
            holds::free(state, id);
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
        holds::serve_timers(state);
        if std::mem::take(&mut state.reopening) {
            holds::serve_all(state);
        }
        holds::serve_more(state);
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
            holds::end_wait(state, id, Answer::Refused(Refusal::Draining));
        }
    }

    /// Whether [`Engine::drain`] was called.
    pub const fn is_draining(&self) -> bool {
        self.0.draining
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
            Noted::Present(record, id, token) => holds::recorded(state, id, token).map(record),
            Noted::Ended(token) => Some(Record::Ended(token)),
        }));
        state.changes = Some(changes);
    }

    /// Restores a recorded hold, without a connection. A name that is no key is no hold.
    pub fn restore(&mut self, now: Moment, hold: &RecordedHold) {
        holds::restore(self.at(now), hold);
    }

    /// A grant or renewal of a hold has been recorded. With the last of them its lease begins.
    pub fn start_lease(&mut self, now: Moment, key: Key<'_>, token: Token) {
        let state = self.at(now);
        let key = state.keys.find(key);
        if let Some(id) = key.and_then(|key| holds::find(state, key, token)) {
            holds::start_lease(state, id);
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
        self.0.reopening |= self.0.record_room == 0 && holds > 0;
        self.0.record_room = holds;
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

/// One key in use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a server shows every field")]
pub struct KeyView {
    /// Its bytes.
    pub name: Vec<u8>,
    /// Holders it may have.
    pub limit: u64,
    /// Holders it has.
    pub held: u32,
    /// Places taken in its queue.
    pub waiters: u32,
    /// Some of the holders, the latest first.
    pub holders: Vec<Party>,
    /// Some of the waiters, the next to be served first.
    pub waiting: Vec<Party>,
}

/// The facts about a key in one line of `stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyLine<'a> {
    /// Its bytes.
    pub name: &'a [u8],
    /// Holders it may have.
    pub limit: u64,
    /// Holders it has.
    pub held: u32,
    /// The number of holders that share it: all or none.
    pub readers: u32,
    /// Places taken in its queue.
    pub waiters: u32,
    /// The number of the owner of the latest hold, also after the owner has ended; 0 without a holder, and for a restored
    /// hold that nobody has owned yet.
    pub owner: u64,
    /// The present name of that connection; after its end, the name at the grant. `None` without a name.
    pub owner_name: Option<&'a str>,
    /// Microseconds left of that hold's lease.
    pub left_micros: u64,
    /// Microseconds since it was last used.
    pub idle_micros: u64,
}

impl KeyLine<'_> {
    /// Whether it has neither holders nor waiters.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.held == 0 && self.waiters == 0
    }
}

/// The position of a caller that reads all keys, some at a time. The default is before the first key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor(u32);

/// A holder or a waiter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Party {
    /// The number by which `stats` and the log name its connection.
    pub serial: u64,
    /// The connection; `None` if it has ended and its hold has stayed.
    pub conn: Option<ConnId>,
    /// The present label of that connection; after its end, the label at the grant.
    pub label: Option<Arc<Label>>,
    /// Microseconds since it began to hold or wait.
    pub since_micros: u64,
    /// Microseconds left of the lease; `None` for a waiter.
    pub left_micros: Option<u64>,
    /// Whether it shares the lock, or wants to.
    pub is_reader: bool,
    /// Which slot of a semaphore it has; `None` for a waiter, and for a lock.
    pub slot: Option<u32>,
}

/// The holders of a key for clients that watch it: all facts are about the holder that got it last.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sight {
    /// The number of holders, at least one.
    pub holders: u32,
    /// The fence of the latest holder.
    pub fence: u64,
    /// Microseconds since it got the key, as far as the server knows.
    pub since_micros: u64,
    /// The label that its connection had at the grant.
    pub label: Option<Arc<Label>>,
}

impl Engine {
    /// Reads the next `budget` places of the table of keys, and passes the line of every key to `note`, also of idle
    /// keys. `note` may stop before the next one. Begin with the default cursor; [`Progress::Done`] means that all
    /// keys were read. A key that exists throughout is passed once.
    pub fn look_over(
        &self,
        now: Moment,
        Cursor(place): &mut Cursor,
        budget: u32,
        mut note: impl FnMut(&KeyLine<'_>) -> ControlFlow<()>,
    ) -> Progress {
        let keys = &self.0.keys.entries;
        let end = place.saturating_add(budget).min(keys.places());
        while *place < end {
            let entry = keys.get(Id::new(*place));
            *place += 1;
            if entry.is_some_and(|entry| note(&line(&self.0, now, entry)).is_break()) {
                break;
            }
        }
        if *place >= keys.places() { Progress::Done } else { Progress::More }
    }

    /// A key with these of its holders, counted from the latest, and of its waiters, counted from the next to be served;
    /// `None` if it is no longer in use. Takes time for every place up to the end of a range.
    #[must_use]
    pub fn view(
        &self,
        now: Moment,
        key: Key<'_>,
        holders: Range<usize>,
        waiting: Range<usize>,
    ) -> Option<KeyView> {
        let Self(state) = self;
        let entry = &state.keys[state.keys.find(key)?];
        let holder = |id| {
            let holder: &Hold = &state.holders[id];
            Party {
                serial: holder.serial,
                conn: holder.ownership.owner.map(|conn| state.conn_id(conn)),
                label: label_of(state, holder).cloned(),
                since_micros: now.micros_since(holder.since),
                left_micros: Some(holder.left_micros(now)),
                is_reader: entry.shared,
                slot: entry.slot_of(holder.slot),
            }
        };
        let waiter = |id| {
            let waiter: &Waiter = &state.waiters[id];
            Party {
                serial: state.conns[waiter.conn].serial,
                conn: Some(state.conn_id(waiter.conn)),
                label: state.conns[waiter.conn].label.clone(),
                since_micros: now.micros_since(waiter.since),
                left_micros: None,
                is_reader: waiter.want.claim.is_shared(),
                slot: None,
            }
        };
        (!entry.is_idle()).then(|| KeyView {
            name: entry.name.to_vec(),
            limit: entry.limit.count(),
            held: entry.holders.len(),
            waiters: entry.queue.len(),
            holders: entry
                .holders
                .iter()
                .rev()
                .take(holders.end)
                .skip(holders.start)
                .map(holder)
                .collect(),
            waiting: entry.queue.iter().take(waiting.end).skip(waiting.start).map(waiter).collect(),
        })
    }

    /// The holders of a key; `None` if it is free.
    #[must_use]
    pub fn sight(&self, now: Moment, key: Key<'_>) -> Option<Sight> {
        let holders = &self.0.keys[self.0.keys.find(key)?].holders;
        let latest = &self.0.holders[holders.last()?];
        Some(Sight {
            holders: holders.len(),
            fence: latest.token.fence(),
            since_micros: now.micros_since(latest.since),
            label: latest.label.clone(),
        })
    }
}

/// What a holder is called: the label of its connection, or, if no connection owns the hold, the label that its
/// connection had at the grant.
fn label_of<'a>(state: &'a State, holder: &'a Hold) -> Option<&'a Arc<Label>> {
    let owner = holder.ownership.owner;
    owner.map_or(holder.label.as_ref(), |conn| state.conns[conn].label.as_ref())
}

fn line<'a>(state: &'a State, now: Moment, entry: &'a KeyEntry) -> KeyLine<'a> {
    let latest = entry.holders.last().map(|id| &state.holders[id]);
    let label = latest.and_then(|holder| label_of(state, holder));
    KeyLine {
        name: &entry.name,
        limit: entry.limit.count(),
        held: entry.holders.len(),
        readers: if entry.shared { entry.holders.len() } else { 0 },
        waiters: entry.queue.len(),
        owner: latest.map_or(0, |holder| holder.serial),
        owner_name: label.map(|label| &*label.name).filter(|name| !name.is_empty()),
        left_micros: latest.map_or(0, |holder| holder.left_micros(now)),
        idle_micros: now.micros_since(entry.touched),
    }
}
