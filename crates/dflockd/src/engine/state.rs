//! The engine's tables and what each request does to them.

use super::counters::{Census, Counters};
use super::keys::{KeyEntry, Keys};
use super::request::{Answer, ConnId, Effect, Grant, Progress, Refusal, Request, Verdict};
use super::slab::{Id, Slab};
use super::terms::{Key, Limit, Mint, Moment, Seconds, Token, Ttl};
use super::waiting::{Record, Records, Waiter};
use super::wheel::{TimerId, Wheel};
use hashbrown::HashTable;
use std::collections::VecDeque;
use std::hash::RandomState;

/// Due timers one request may have to serve before its own work.
const DUE_PER_REQUEST: usize = 64;

/// The limits the engine keeps, and its times.
#[derive(Clone, Copy, Debug)]
pub struct Caps {
    /// Lease when a request names none.
    pub default_ttl: Ttl,
    /// Keys kept at once, idle ones included.
    pub max_locks: usize,
    /// Waiters per key; 0 for no cap.
    pub max_waiters: usize,
    /// How often idle keys are looked for.
    pub gc_interval: Seconds,
    /// A key idle for longer is forgotten.
    pub gc_max_idle: Seconds,
}

/// One slot given out.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) key: Id<KeyEntry>,
    /// NIL when the connection is gone and the hold stayed.
    pub(super) conn: Id<Conn>,
    pub(super) serial: u64,
    pub(super) token: Token,
    pub(super) expires: Moment,
    pub(super) since: Moment,
    pub(super) timer: TimerId<Alarm>,
    pub(super) record: Id<Record>,
    pub(super) conn_prev: Id<Self>,
    pub(super) conn_next: Id<Self>,
    pub(super) key_prev: Id<Self>,
    pub(super) key_next: Id<Self>,
}

/// What a connection has here. Lists, so that leaving costs what it has and nothing else.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) generation: u32,
    pub(super) serial: u64,
    pub(super) holders: Id<Holder>,
    pub(super) records: Id<Record>,
    pub(super) blocked: Id<Waiter>,
}

/// What a timer is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Alarm {
    Lease(Id<Holder>),
    Wait(Id<Waiter>),
}

/// See the [module](super): what to call, and in which order.
#[derive(Debug)]
pub struct Engine<M> {
    pub(super) caps: Caps,
    pub(super) mint: M,
    pub(super) keys: Keys,
    pub(super) holders: Slab<Holder>,
    pub(super) waiters: Slab<Waiter>,
    pub(super) records: Records,
    pub(super) conns: Slab<Conn>,
    /// Of the connection that came last.
    generation: u32,
    /// Holders of keys with more than one slot, by fence: a scan would be as long as the limit.
    fences: HashTable<Id<Holder>>,
    pub(super) timers: Wheel<Alarm>,
    pub(super) effects: VecDeque<Effect>,
    pub(super) counters: Counters,
    pub(super) draining: bool,
}

impl<M: Mint> Engine<M> {
    /// An empty engine. `hasher` only spreads keys over a table: no answer depends on it.
    pub fn new(caps: Caps, mint: M, hasher: RandomState) -> Self {
        Self {
            caps,
            mint,
            keys: Keys::new(hasher),
            holders: Slab::new(),
            waiters: Slab::new(),
            records: Records::new(),
            conns: Slab::new(),
            generation: 0,
            fences: HashTable::new(),
            timers: Wheel::new(),
            effects: VecDeque::new(),
            counters: Counters::default(),
            draining: false,
        }
    }

    /// A new connection. `serial` is the number by which `stats` and the log name it.
    pub fn connect(&mut self, serial: u64) -> ConnId {
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let (holders, records, blocked) = (Id::NIL, Id::NIL, Id::NIL);
        let place =
            self.conns.insert(Conn { generation, serial, holders, records, blocked }).place();
        ConnId { place, generation }
    }

    /// The connection, if it is still the one that got this id.
    pub(super) fn conn(&self, conn: ConnId) -> Option<Id<Conn>> {
        let id = Id::new(conn.place);
        self.conns.get(id).filter(|found| found.generation == conn.generation).map(|_| id)
    }

    /// The id a connection is known by outside.
    pub(super) fn conn_id(&self, id: Id<Conn>) -> Option<ConnId> {
        let generation = self.conns.get(id)?.generation;
        Some(ConnId { place: id.place(), generation })
    }

    pub(super) fn answer(&mut self, conn: Id<Conn>, answer: Answer) {
        if let Some(conn) = self.conn_id(conn) {
            self.effects.push_back(Effect::Answer(conn, answer));
        }
    }

    /// Does what a connection asks. Unknown connections are refused as not holding anything.
    pub fn ask(&mut self, now: Moment, conn: ConnId, request: Request<'_>) -> Verdict {
        let Some(conn) = self.conn(conn) else {
            return Verdict::Now(Answer::Refused(Refusal::NotHeld));
        };
        if self.timers.next() <= now {
            let _more_is_for_advance = self.ring(now, DUE_PER_REQUEST);
        }
        let verdict = match request {
            Request::Acquire { key, limit, timeout, ttl } => {
                self.acquire(now, conn, key, limit, timeout, ttl)
            }
            Request::Enqueue { key, limit, ttl } => self.enqueue(now, conn, key, limit, ttl),
            Request::Wait { key, timeout } => self.wait(now, conn, key, timeout),
            Request::Release { key, token } => Verdict::Now(self.release(now, key, token)),
            Request::Renew { key, token, ttl } => Verdict::Now(self.renew(now, key, token, ttl)),
        };
        if let Verdict::Now(answer) = verdict {
            self.count(answer);
        }
        verdict
    }

    /// The oldest effect not yet taken.
    pub fn take_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Serves what is due, at most about `budget` of it, and forgets long idle keys.
    pub fn advance(&mut self, now: Moment, budget: usize) -> Progress {
        match self.ring(now, budget) {
            Progress::Done => self.keys.collect(now, &self.caps, budget),
            unfinished @ (Progress::More | Progress::Later) => unfinished,
        }
    }

    /// When [`Engine::advance`] wants to be called; [`Moment::NEVER`] if nothing is pending.
    pub fn next_deadline(&self) -> Moment {
        self.timers.next().min(self.keys.next_collection())
    }

    /// Ends every wait with [`Refusal::Draining`] and refuses new holds from now on.
    pub fn drain(&mut self, now: Moment) {
        self.draining = true;
        for place in 0..self.waiters.places() {
            let id = Id::new(place);
            if self.waiters.get(id).is_some_and(|waiter| waiter.blocked) {
                self.end_wait(now, id, Answer::Refused(Refusal::Draining));
            }
        }
    }

    /// Events so far.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Keys in the table, idle ones included.
    pub const fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Slots given out now.
    pub const fn held(&self) -> usize {
        self.holders.len()
    }

    /// Places in queues now.
    pub const fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// What is in the tables now, by kind.
    pub const fn census(&self) -> &Census {
        self.keys.census()
    }

    fn acquire(
        &mut self,
        now: Moment,
        conn: Id<Conn>,
        key: Key<'_>,
        limit: Limit,
        timeout: Seconds,
        ttl: Option<Ttl>,
    ) -> Verdict {
        let ttl = ttl.unwrap_or(self.caps.default_ttl);
        let id = match self.enter(now, key, limit) {
            Ok(id) => id,
            Err(refusal) => return Verdict::Now(Answer::Refused(refusal)),
        };
        if self.keys[id].has_room() {
            self.counters.waits.record(0);
            return Verdict::Now(Answer::Granted(self.grant(now, id, conn, ttl, Id::NIL)));
        }
        if self.queue_is_full(id) {
            return Verdict::Now(Answer::Refused(Refusal::MaxWaiters));
        }
        if timeout == Seconds::ZERO {
            return Verdict::Now(Answer::TimedOut);
        }
        let waiter = self.append_waiter(now, id, conn, ttl, Id::NIL);
        self.block(now, conn, waiter, timeout);
        Verdict::Later
    }

    /// Finds or makes the key, in the order of checks the protocol fixes: draining, limit, cap.
    pub(super) fn enter(
        &mut self,
        now: Moment,
        key: Key<'_>,
        limit: Limit,
    ) -> Result<Id<KeyEntry>, Refusal> {
        if self.draining {
            return Err(Refusal::Draining);
        }
        if let Some(id) = self.keys.find(key) {
            if self.keys[id].limit != limit.count() {
                return Err(Refusal::LimitMismatch);
            }
            self.evict_due(now, id);
            return Ok(id);
        }
        if self.keys.len() >= self.caps.max_locks {
            return Err(Refusal::MaxLocks);
        }
        Ok(self.keys.create(now, key, limit))
    }

    pub(super) fn queue_is_full(&self, id: Id<KeyEntry>) -> bool {
        self.caps.max_waiters > 0 && self.keys[id].waiters as usize >= self.caps.max_waiters
    }

    /// A lock's lease may be over a moment before its timer rings.
    fn evict_due(&mut self, now: Moment, id: Id<KeyEntry>) {
        let first = self.keys[id].holders;
        if let Some(first) = first.some() {
            if self.holders[first].expires <= now {
                self.expire(now, first);
            }
        }
    }

    /// Gives a slot of `key` out. The caller has seen that there is one.
    pub(super) fn grant(
        &mut self,
        now: Moment,
        key: Id<KeyEntry>,
        conn: Id<Conn>,
        ttl: Ttl,
        record: Id<Record>,
    ) -> Grant {
        let token = self.mint.token();
        let expires = now.after(ttl.span());
        let conn_next = self.conns[conn].holders;
        let key_next = self.keys[key].holders;
        let id = self.holders.insert(Holder {
            key,
            conn,
            serial: self.conns[conn].serial,
            token,
            expires,
            since: now,
            timer: Id::NIL,
            record,
            conn_prev: Id::NIL,
            conn_next,
            key_prev: Id::NIL,
            key_next,
        });
        self.holders[id].timer = self.timers.insert(expires, Alarm::Lease(id));
        self.conns[conn].holders = id;
        if !conn_next.is_nil() {
            self.holders[conn_next].conn_prev = id;
        }
        if !key_next.is_nil() {
            self.holders[key_next].key_prev = id;
        }
        self.keys[key].holders = id;
        self.keys.add_holder(key);
        if self.keys[key].limit > 1 {
            let holders = &self.holders;
            self.fences.insert_unique(spread(token.fence()), id, |&other| {
                spread(holders[other].token.fence())
            });
        }
        self.keys.settle(now, key);
        self.counters.grants += 1;
        Grant { token, ttl, expires }
    }

    fn find_holder(&self, key: Id<KeyEntry>, token: Token) -> Option<Id<Holder>> {
        let found = if self.keys[key].limit > 1 {
            let fence = token.fence();
            self.fences.find(spread(fence), |&id| self.holders[id].token.fence() == fence).copied()
        } else {
            self.keys[key].holders.some()
        };
        found.filter(|&id| self.holders[id].token == token && self.holders[id].key == key)
    }

    /// The hold a token proves at `now`; one whose lease is over is evicted instead.
    fn live_holder(
        &mut self,
        now: Moment,
        key: Key<'_>,
        token: Option<Token>,
    ) -> Option<Id<Holder>> {
        let key = self.keys.find(key)?;
        let holder = self.find_holder(key, token?)?;
        if self.holders[holder].expires <= now {
            self.expire(now, holder);
            return None;
        }
        Some(holder)
    }

    fn release(&mut self, now: Moment, key: Key<'_>, token: Option<Token>) -> Answer {
        let Some(holder) = self.live_holder(now, key, token) else {
            return Answer::Refused(Refusal::NotHeld);
        };
        self.forget_record(now, self.holders[holder].record);
        self.free(now, holder);
        Answer::Released
    }

    fn renew(
        &mut self,
        now: Moment,
        key: Key<'_>,
        token: Option<Token>,
        ttl: Option<Ttl>,
    ) -> Answer {
        let ttl = ttl.unwrap_or(self.caps.default_ttl);
        let Some(holder) = self.live_holder(now, key, token) else {
            return Answer::Refused(Refusal::NotHeld);
        };
        self.restart_lease(now, holder, ttl);
        Answer::Renewed(ttl)
    }

    pub(super) fn restart_lease(&mut self, now: Moment, id: Id<Holder>, ttl: Ttl) -> Grant {
        let expires = now.after(ttl.span());
        self.timers.remove(self.holders[id].timer);
        let timer = self.timers.insert(expires, Alarm::Lease(id));
        let holder = &mut self.holders[id];
        holder.timer = timer;
        holder.expires = expires;
        let (key, token) = (holder.key, holder.token);
        self.keys[key].touched = now;
        Grant { token, ttl, expires }
    }

    /// Takes a hold away because its time is over. Its record stays, to tell `w` so.
    pub(super) fn expire(&mut self, now: Moment, id: Id<Holder>) {
        self.counters.expiries += 1;
        let holder = &self.holders[id];
        let name = self.keys[holder.key].name.clone();
        self.effects.push_back(Effect::Expired { serial: holder.serial, key: name });
        self.lose_record(holder.record);
        self.free(now, id);
    }

    /// Frees a slot and hands it to the head of the queue.
    pub(super) fn free(&mut self, now: Moment, id: Id<Holder>) {
        let Some(holder) = self.holders.remove(id) else { return };
        self.timers.remove(holder.timer);
        self.unlink_from_conn(&holder);
        self.unlink_from_key(&holder);
        if self.keys[holder.key].limit > 1 {
            let found = self.fences.find_entry(spread(holder.token.fence()), |&other| other == id);
            if let Ok(entry) = found {
                entry.remove();
            }
        }
        self.serve_queue(now, holder.key);
        self.keys.settle(now, holder.key);
    }

    pub(super) fn unlink_from_conn(&mut self, holder: &Holder) {
        if let Some(prev) = holder.conn_prev.some() {
            self.holders[prev].conn_next = holder.conn_next;
        } else if let Some(conn) = holder.conn.some() {
            self.conns[conn].holders = holder.conn_next;
        }
        if let Some(next) = holder.conn_next.some() {
            self.holders[next].conn_prev = holder.conn_prev;
        }
    }

    fn unlink_from_key(&mut self, holder: &Holder) {
        if let Some(prev) = holder.key_prev.some() {
            self.holders[prev].key_next = holder.key_next;
        } else {
            self.keys[holder.key].holders = holder.key_next;
        }
        if let Some(next) = holder.key_next.some() {
            self.holders[next].key_prev = holder.key_prev;
        }
        self.keys.remove_holder(holder.key);
    }

    /// Serves due timers.
    fn ring(&mut self, now: Moment, budget: usize) -> Progress {
        for _ in 0..budget {
            match self.timers.pop(now) {
                None => break,
                Some(Alarm::Lease(holder)) => {
                    self.holders[holder].timer = Id::NIL;
                    self.expire(now, holder);
                }
                Some(Alarm::Wait(waiter)) => {
                    self.waiters[waiter].timer = Id::NIL;
                    self.end_wait(now, waiter, Answer::TimedOut);
                }
            }
        }
        if self.timers.next() <= now { Progress::More } else { Progress::Done }
    }

    pub(super) fn count(&mut self, answer: Answer) {
        match answer {
            Answer::Released => self.counters.releases += 1,
            Answer::Renewed(_) => self.counters.renewals += 1,
            Answer::TimedOut => self.counters.timeouts += 1,
            Answer::Refused(refusal) => self.counters.refuse(refusal),
            Answer::Granted(_) | Answer::Acquired(_) | Answer::Queued => {}
        }
    }
}

/// Fences are consecutive numbers; a table wants the upper bits to differ too.
const fn spread(fence: u64) -> u64 {
    fence.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
