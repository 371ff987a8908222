//! The engine's tables, and how each request changes them. Pure.

use super::acquiring::Want;
use super::counters::{Census, Counters};
use super::keys::{KeyEntry, Keys};
use super::recorded::{LeaseStart, Noted, Space};
use super::request::{Answer, ConnId, Effect, Grant, Refusal, Request, Verdict};
use super::sharing::Claim;
use super::slab::{Id, Link, Linked, List, Slab, linked};
use super::terms::{Mint, Moment, Seconds, Token, Ttl};
use super::timers::Timers;
use super::waiting::{Began, Record, Records, Waiter};
use super::watching::Label;
use hashbrown::HashTable;
use std::collections::VecDeque;
use std::hash::RandomState;
use std::sync::Arc;

/// The limits and times of the engine.
#[derive(Clone, Copy, Debug)]
pub struct Caps {
    /// The length of a lease if a request names none.
    pub default_ttl: Ttl,
    /// The most keys, including idle ones.
    pub max_locks: usize,
    /// The most waiters per key; 0 for no cap.
    pub max_waiters: usize,
    /// How often idle keys are searched.
    pub gc_interval: Seconds,
    /// A key that was idle for longer is forgotten.
    pub gc_max_idle: Seconds,
    /// A hold whose owner has gone is released only after this time.
    pub disconnect_grace: Seconds,
    /// The most held slots, places in queues and records of `e`, all together.
    pub max_entries: usize,
    /// The same for one connection.
    pub max_entries_per_connection: usize,
}

/// A granted slot. For its owner, see [`super::ownership`].
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) key: Id<KeyEntry>,
    /// NIL if the connection has ended and the hold has stayed.
    pub(super) owner: Id<Conn>,
    pub(super) renewer: Id<Conn>,
    /// The number of the owner, also after it has ended.
    pub(super) serial: u64,
    pub(super) label: Option<Arc<Label>>,
    pub(super) token: Token,
    pub(super) ttl: Ttl,
    /// Whether a client was given the token.
    pub(super) announced: bool,
    /// The end of the lease; [`Moment::NEVER`] while the lease waits for its record.
    pub(super) expires: Moment,
    /// The number of records that the lease waits for.
    pub(super) unrecorded: u32,
    /// The length of the lease that waits.
    pub(super) length_micros: u64,
    /// When the time that is left is to be recorded; [`Moment::NEVER`] if somebody renews the hold.
    pub(super) note_at: Moment,
    /// The end of the grace after the owner has gone; [`Moment::NEVER`] without a grace.
    pub(super) lapses: Moment,
    pub(super) since: Moment,
    /// The deadline of its timer.
    pub(super) timer_at: Moment,
    pub(super) record: Id<Record>,
    pub(super) owned: Link<Self>,
    pub(super) renewed: Link<Self>,
    pub(super) of_key: Link<Self>,
}

impl Holder {
    /// A hold that no connection owns.
    pub(super) fn new(key: Id<KeyEntry>, token: Token, ttl: Ttl, since: Moment) -> Self {
        Self {
            key,
            owner: Id::NIL,
            renewer: Id::NIL,
            serial: 0,
            label: None,
            token,
            ttl,
            announced: false,
            expires: since.after(ttl.span()),
            unrecorded: 0,
            length_micros: 0,
            note_at: Moment::NEVER,
            lapses: Moment::NEVER,
            since,
            timer_at: Moment::NEVER,
            record: Id::NIL,
            owned: Link::new(),
            renewed: Link::new(),
            of_key: Link::new(),
        }
    }

    /// The time that is left of the lease.
    pub(super) const fn left_micros(&self, now: Moment) -> u64 {
        if self.unrecorded > 0 { self.length_micros } else { self.expires.micros_since(now) }
    }
}

/// The holds of one key, the last one granted first.
#[derive(Debug)]
pub(super) struct ByKey;
/// The holds of one owner.
#[derive(Debug)]
pub(super) struct ByOwner;
/// The holds of one renewer.
#[derive(Debug)]
pub(super) struct ByRenewer;

linked!(Holder, ByKey, of_key);
linked!(Holder, ByOwner, owned);
linked!(Holder, ByRenewer, renewed);

/// The entries of a connection. They are lists, so that the cost of leaving depends on their number only.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) generation: u32,
    /// The number of its slots, places in queues and records.
    pub(super) entries: u32,
    pub(super) serial: u64,
    pub(super) label: Option<Arc<Label>>,
    pub(super) owned: List<Holder, ByOwner>,
    pub(super) renewed: List<Holder, ByRenewer>,
    pub(super) records: List<Record, Began>,
    pub(super) blocked: Id<Waiter>,
}

impl Conn {
    pub(super) const fn new(generation: u32, serial: u64, label: Option<Arc<Label>>) -> Self {
        Self {
            generation,
            entries: 0,
            serial,
            label,
            owned: List::new(),
            renewed: List::new(),
            records: List::new(),
            blocked: Id::NIL,
        }
    }
}

/// What a timer is for. At the same moment leases end before waits, so the next waiter gets the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Alarm {
    Hold(Id<Holder>),
    Open,
    Wait(Id<Waiter>),
}

/// The lock manager. [The crate](crate) says what to call, and in which order.
#[derive(Debug)]
pub struct Engine<M> {
    pub(super) caps: Caps,
    pub(super) mint: M,
    pub(super) keys: Keys,
    pub(super) holders: Slab<Holder>,
    pub(super) waiters: Slab<Waiter>,
    pub(super) records: Records,
    pub(super) conns: Slab<Conn>,
    /// The generation of the latest connection.
    pub(super) generation: u32,
    /// Holders of keys that may have several, by fence, because a search among many would take long.
    pub(super) fences: HashTable<Id<Holder>>,
    pub(super) timers: Timers<Alarm>,
    pub(super) effects: VecDeque<Effect>,
    pub(super) counters: Counters,
    pub(super) draining: bool,
    /// The changes to be recorded, if they are recorded.
    pub(super) changes: Option<VecDeque<Noted>>,
    pub(super) lease_start: LeaseStart,
    /// Nothing is granted before this.
    pub(super) closed_until: Moment,
    /// Whether queues that filled up meanwhile are still to be served.
    pub(super) reopening: bool,
    /// Whether new holds can be recorded; otherwise nothing new is granted.
    pub(super) space: Space,
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
            timers: Timers::default(),
            effects: VecDeque::new(),
            counters: Counters::default(),
            draining: false,
            changes: None,
            lease_start: LeaseStart::Grant,
            closed_until: Moment::default(),
            reopening: false,
            space: Space::Free,
        }
    }

    /// A new connection. `serial` is the number by which `stats` and the log name it.
    pub fn connect(&mut self, serial: u64) -> ConnId {
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let conn = Conn::new(generation, serial, None);
        ConnId { place: self.conns.insert(conn).place(), generation }
    }

    /// The connection, if it is still the one that got this id.
    pub(super) fn conn(&self, conn: ConnId) -> Option<Id<Conn>> {
        let id = Id::new(conn.place);
        self.conns.get(id).filter(|found| found.generation == conn.generation).map(|_| id)
    }

    /// The id of a connection for callers.
    pub(super) fn conn_id(&self, id: Id<Conn>) -> Option<ConnId> {
        let generation = self.conns.get(id)?.generation;
        Some(ConnId { place: id.place(), generation })
    }

    /// Answers a connection that waits, which therefore has not ended.
    pub(super) fn answer(&mut self, conn: Id<Conn>, answer: Answer) {
        let generation = self.conns[conn].generation;
        self.effects.push_back(Effect::Answer(ConnId { place: conn.place(), generation }, answer));
    }

    /// Serves a request of a connection. An unknown connection is refused as one that holds nothing.
    pub fn ask(&mut self, now: Moment, conn: ConnId, request: Request<'_>) -> Verdict {
        let Some(conn) = self.conn(conn) else {
            return Verdict::Now(Answer::Refused(Refusal::NotHeld));
        };
        self.ring(now);
        let verdict = match request {
            Request::Acquire { key, claim, timeout, ttl } => {
                self.acquire(now, conn, Want { key, claim, timeout, ttl })
            }
            Request::AcquireAll { keys, ttl } => {
                Verdict::Now(self.acquire_all(now, conn, keys, ttl))
            }
            Request::Enqueue { key, claim, ttl } => self.enqueue(now, conn, key, claim, ttl),
            Request::Wait { key, timeout } => self.wait(now, conn, key, timeout),
            Request::Release { key, token } => Verdict::Now(self.release(now, key, token)),
            Request::Renew { key, token, ttl } => {
                Verdict::Now(self.renew(now, conn, key, token, ttl))
            }
        };
        if let Verdict::Now(answer) = &verdict {
            self.count(answer);
        }
        verdict
    }

    /// The oldest effect not yet taken.
    pub fn take_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Serves the timers that are due, and forgets keys that were idle for long.
    pub fn advance(&mut self, now: Moment) {
        self.ring(now);
        if std::mem::take(&mut self.reopening) {
            self.reopen(now);
        }
        self.keys.collect(now, &self.caps);
    }

    /// When [`Engine::advance`] must be called next; [`Moment::NEVER`] if nothing is pending.
    pub fn next_deadline(&self) -> Moment {
        if self.reopening {
            return Moment::default();
        }
        self.timers.next().min(self.keys.next_collection())
    }

    /// Ends every wait with [`Refusal::Draining`] and refuses new holds from now on.
    pub fn drain(&mut self, now: Moment) {
        self.draining = true;
        let blocked = self.waiters.ids().filter(|&id| self.waiters[id].blocked);
        for id in blocked.collect::<Vec<_>>() {
            self.end_wait(now, id, Answer::Refused(Refusal::Draining));
        }
    }

    /// The counters of events so far.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The number of keys in the table, including idle ones.
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// The number of granted slots.
    pub fn held(&self) -> usize {
        self.holders.len()
    }

    /// The number of places in queues.
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// The numbers of entries in the tables, by kind.
    pub const fn census(&self) -> &Census {
        self.keys.census()
    }

    /// Grants a slot of `key`, whose token is announced to the client now or later. The caller has checked that there
    /// is a slot.
    pub(super) fn grant(
        &mut self,
        now: Moment,
        key: Id<KeyEntry>,
        conn: Id<Conn>,
        (claim, ttl): (Claim, Ttl),
        (record, is_announced): (Id<Record>, bool),
    ) -> Grant {
        let token = self.mint.token();
        let id = self.holders.insert(Holder {
            owner: conn,
            serial: self.conns[conn].serial,
            label: self.conns[conn].label.clone(),
            record,
            ..Holder::new(key, token, ttl, now)
        });
        self.conns[conn].owned.push_front(&mut self.holders, id);
        self.conns[conn].entries += 1;
        self.add_holder(now, id, claim);
        if is_announced {
            self.announce(id);
        }
        self.rearm(id);
        self.note_move(key);
        self.counters.grants += 1;
        Grant { token, ttl, expires: self.holders[id].expires }
    }

    /// Adds a hold to those of its key.
    pub(super) fn add_holder(&mut self, now: Moment, id: Id<Holder>, claim: Claim) {
        let key = self.holders[id].key;
        self.keys[key].holders.push_front(&mut self.holders, id);
        self.keys.add_holder(key, claim);
        if self.keys[key].has_many_holders() {
            self.list_fence(id);
        }
        self.keys.settle(now, key);
    }

    /// Adds a hold to the table of fences, if its key may have several holders.
    fn list_fence(&mut self, id: Id<Holder>) {
        let holders = &self.holders;
        let hash = |id: Id<Holder>| spread(holders[id].token.fence());
        self.fences.insert_unique(hash(id), id, |&other| hash(other));
    }

    pub(super) fn find_holder(&self, key: Id<KeyEntry>, token: Token) -> Option<Id<Holder>> {
        let found = if self.keys[key].has_many_holders() {
            let fence = token.fence();
            self.fences.find(spread(fence), |&id| self.holders[id].token.fence() == fence).copied()
        } else {
            self.keys[key].holders.first()
        };
        found.filter(|&id| self.holders[id].token == token && self.holders[id].key == key)
    }

    pub(super) fn restart_lease(&mut self, now: Moment, id: Id<Holder>, ttl: Ttl) -> Grant {
        let holder = &mut self.holders[id];
        holder.expires = now.after(ttl.span());
        holder.ttl = ttl;
        holder.note_at = Moment::NEVER;
        self.announce(id);
        self.rearm(id);
        let Holder { key, token, expires, .. } = self.holders[id];
        self.keys[key].touched = now;
        Grant { token, ttl, expires }
    }

    /// Ends a hold because its time is over. Its record stays, so that `w` can report that.
    pub(super) fn expire(&mut self, now: Moment, id: Id<Holder>) {
        self.counters.expiries += 1;
        let holder = &self.holders[id];
        let name = self.keys[holder.key].name.clone();
        self.effects.push_back(Effect::Expired { serial: holder.serial, key: name });
        self.lose_record(holder.record);
        self.free(now, id);
    }

    /// Sets the timer of a hold to what is to be done next.
    pub(super) fn rearm(&mut self, id: Id<Holder>) {
        let holder = &mut self.holders[id];
        let end = holder.expires.min(holder.lapses).min(holder.note_at);
        let before = std::mem::replace(&mut holder.timer_at, end);
        self.timers.reset(Alarm::Hold(id), before, end);
    }

    /// Frees a slot and hands it to the head of the queue.
    pub(super) fn free(&mut self, now: Moment, id: Id<Holder>) {
        self.note_end(id);
        self.disown(id);
        self.forget_renewer(id);
        let (key, fence) = (self.holders[id].key, self.holders[id].token.fence());
        self.keys[key].holders.remove(&mut self.holders, id);
        self.keys.remove_holder(key);
        let holder = self.holders.remove(id);
        self.timers.reset(Alarm::Hold(id), holder.timer_at, Moment::NEVER);
        if self.keys[key].has_many_holders() {
            let found = self.fences.find_entry(spread(fence), |&other| other == id);
            if let Ok(entry) = found {
                entry.remove();
            }
        }
        self.note_move(key);
        self.serve_queue(now, key);
        self.keys.settle(now, key);
    }

    /// Serves due timers.
    fn ring(&mut self, now: Moment) {
        while let Some(alarm) = self.timers.pop(now) {
            match alarm {
                Alarm::Hold(holder) => {
                    self.holders[holder].timer_at = Moment::NEVER;
                    self.end_hold(now, holder);
                }
                Alarm::Open => self.reopen(now),
                Alarm::Wait(waiter) => {
                    self.waiters[waiter].timer_at = Moment::NEVER;
                    self.end_wait(now, waiter, Answer::TimedOut);
                }
            }
        }
    }

    pub(super) fn count(&mut self, answer: &Answer) {
        match answer {
            Answer::Released => self.counters.releases += 1,
            Answer::Renewed(_) => self.counters.renewals += 1,
            Answer::TimedOut => self.counters.timeouts += 1,
            Answer::Refused(refusal) => self.counters.refuse(*refusal),
            Answer::Granted(_) | Answer::All(_) | Answer::Acquired(_) | Answer::Queued => {}
        }
    }
}

/// Fences are consecutive numbers; a table wants the upper bits to differ too.
pub(super) const fn spread(fence: u64) -> u64 {
    fence.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
