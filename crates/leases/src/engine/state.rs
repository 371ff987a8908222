//! The engine's tables, and how each request changes them. Pure.

use super::acquiring::Want;
use super::counters::{Census, Counters};
use super::keys::{KeyEntry, Keys};
use super::recorded::{Noted, Space};
use super::request::{Answer, ConnId, Effect, Grant, Progress, Refusal, Request, Verdict};
use super::slab::{Id, Link, Linked, List, Slab, linked};
use super::terms::{Mint, Moment, Seconds, Token, Ttl};
use super::waiting::{Began, Record, Records, Waiter};
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
    /// A hold whose owner has gone is given back only after this.
    pub disconnect_grace: Seconds,
    /// Slots held, places in queues and records of `e`, all together.
    pub max_entries: usize,
    /// The same of one connection.
    pub max_entries_per_connection: usize,
}

/// One slot given out. Whose it is, see [`super::ownership`].
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) key: Id<KeyEntry>,
    /// NIL when the connection is gone and the hold stayed.
    pub(super) owner: Id<Conn>,
    pub(super) renewer: Id<Conn>,
    /// Of the owner, also after it went.
    pub(super) serial: u64,
    pub(super) token: Token,
    pub(super) ttl: Ttl,
    /// Somebody was told the token.
    pub(super) told: bool,
    pub(super) expires: Moment,
    /// When the grace after the owner's going ends, [`Moment::NEVER`] while there is none.
    pub(super) lapses: Moment,
    pub(super) since: Moment,
    pub(super) timer: TimerId<Alarm>,
    pub(super) record: Id<Record>,
    pub(super) owned: Link<Self>,
    pub(super) renewed: Link<Self>,
    pub(super) of_key: Link<Self>,
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

/// What a connection has here. Lists, so that leaving costs what it has and nothing else.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) generation: u32,
    /// Slots, places in queues and records it has.
    pub(super) entries: u32,
    pub(super) serial: u64,
    pub(super) owned: List<Holder, ByOwner>,
    pub(super) renewed: List<Holder, ByRenewer>,
    pub(super) records: List<Record, Began>,
    pub(super) blocked: Id<Waiter>,
}

/// What a timer is for.
#[derive(Clone, Copy, Debug)]
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
    /// Of the connection that came last.
    generation: u32,
    /// Holders of keys with more than one slot, by fence: a scan would be as long as the limit.
    pub(super) fences: HashTable<Id<Holder>>,
    pub(super) timers: Wheel<Alarm>,
    pub(super) effects: VecDeque<Effect>,
    pub(super) counters: Counters,
    pub(super) draining: bool,
    /// What is to be recorded, if anybody wants to.
    pub(super) changes: Option<VecDeque<Noted>>,
    /// Nothing is granted before this.
    pub(super) closed_until: Moment,
    /// Where serving the queues that filled up meanwhile goes on.
    pub(super) reopening: Option<u32>,
    /// Nothing new is granted: it could not be recorded.
    pub(super) space: Space,
    /// Tables are being made smaller: what they had memory for before.
    pub(super) shrinking: Option<usize>,
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
            changes: None,
            closed_until: Moment::default(),
            reopening: None,
            space: Space::Free,
            shrinking: None,
        }
    }

    /// A new connection. `serial` is the number by which `stats` and the log name it.
    pub fn connect(&mut self, serial: u64) -> ConnId {
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let conn = Conn {
            generation,
            entries: 0,
            serial,
            owned: List::new(),
            renewed: List::new(),
            records: List::new(),
            blocked: Id::NIL,
        };
        ConnId { place: self.conns.insert(conn).place(), generation }
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
                self.acquire(now, conn, Want { key, limit, timeout, ttl })
            }
            Request::Enqueue { key, limit, ttl } => self.enqueue(now, conn, key, limit, ttl),
            Request::Wait { key, timeout } => self.wait(now, conn, key, timeout),
            Request::Release { key, token } => Verdict::Now(self.release(now, key, token)),
            Request::Renew { key, token, ttl } => {
                Verdict::Now(self.renew(now, conn, key, token, ttl))
            }
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

    /// Serves what is due, at most about `budget` of it, forgets long idle keys, and gives back what
    /// tables do not need any more.
    pub fn advance(&mut self, now: Moment, budget: usize) -> Progress {
        match self.ring(now, budget) {
            Progress::Done if self.reopening.is_some() => self.reopen(now, budget),
            Progress::Done => self.tidy(now, budget),
            unfinished @ (Progress::More | Progress::Later) => unfinished,
        }
    }

    /// When [`Engine::advance`] wants to be called; [`Moment::NEVER`] if nothing is pending.
    pub fn next_deadline(&self) -> Moment {
        if self.reopening.is_some() || self.shrinking.is_some() {
            return Moment::default();
        }
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
        let id = self.holders.insert(Holder {
            key,
            owner: conn,
            renewer: Id::NIL,
            serial: self.conns[conn].serial,
            token,
            ttl,
            told: false,
            expires,
            lapses: Moment::NEVER,
            since: now,
            timer: Id::NIL,
            record,
            owned: Link::new(),
            renewed: Link::new(),
            of_key: Link::new(),
        });
        self.holders[id].timer = self.timers.insert(expires, Alarm::Hold(id));
        self.conns[conn].owned.push_front(&mut self.holders, id);
        self.conns[conn].entries += 1;
        self.keys[key].holders.push_front(&mut self.holders, id);
        self.keys.add_holder(key);
        if self.keys[key].limit > 1 {
            self.list_fence(id);
        }
        self.keys.settle(now, key);
        self.counters.grants += 1;
        Grant { token, ttl, expires }
    }

    /// Lists a hold among those of keys with more than one slot.
    pub(super) fn list_fence(&mut self, id: Id<Holder>) {
        let holders = &self.holders;
        let hash = |id: Id<Holder>| spread(holders[id].token.fence());
        self.fences.insert_unique(hash(id), id, |&other| hash(other));
    }

    pub(super) fn find_holder(&self, key: Id<KeyEntry>, token: Token) -> Option<Id<Holder>> {
        let found = if self.keys[key].limit > 1 {
            let fence = token.fence();
            self.fences.find(spread(fence), |&id| self.holders[id].token.fence() == fence).copied()
        } else {
            self.keys[key].holders.first()
        };
        found.filter(|&id| self.holders[id].token == token && self.holders[id].key == key)
    }

    pub(super) fn restart_lease(&mut self, now: Moment, id: Id<Holder>, ttl: Ttl) -> Grant {
        let expires = now.after(ttl.span());
        self.holders[id].expires = expires;
        self.holders[id].ttl = ttl;
        self.tell(id);
        self.rearm(id);
        let holder = &self.holders[id];
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

    /// Sets the timer of a hold to what ends it first.
    pub(super) fn rearm(&mut self, id: Id<Holder>) {
        let holder = &self.holders[id];
        let (timer, ends) = (holder.timer, holder.expires.min(holder.lapses));
        self.timers.remove(timer);
        self.holders[id].timer = self.timers.insert(ends, Alarm::Hold(id));
    }

    /// Frees a slot and hands it to the head of the queue.
    pub(super) fn free(&mut self, now: Moment, id: Id<Holder>) {
        if self.holders.get(id).is_none() {
            return;
        }
        self.note_end(id);
        self.disown(id);
        self.forget_renewer(id);
        let (key, fence) = (self.holders[id].key, self.holders[id].token.fence());
        self.keys[key].holders.remove(&mut self.holders, id);
        self.keys.remove_holder(key);
        self.timers.remove(self.holders[id].timer);
        self.holders.remove(id);
        if self.keys[key].limit > 1 {
            let found = self.fences.find_entry(spread(fence), |&other| other == id);
            if let Ok(entry) = found {
                entry.remove();
            }
        }
        self.serve_queue(now, key);
        self.keys.settle(now, key);
    }

    /// Serves due timers.
    fn ring(&mut self, now: Moment, budget: usize) -> Progress {
        for _ in 0..budget {
            match self.timers.pop(now) {
                None => break,
                Some(Alarm::Hold(holder)) => {
                    self.holders[holder].timer = Id::NIL;
                    self.end_hold(now, holder);
                }
                Some(Alarm::Open) => self.reopening = Some(0),
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
pub(super) const fn spread(fence: u64) -> u64 {
    fence.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
