//! What the engine knows: its tables, and what an entry of each is. Pure.

use super::keys::KeyTable;
use super::messages::{
    Answer, ConnId, Counters, Effect, Label, LeaseStart, Record, RecordedHold, Refusal,
};
use super::rules::{Claim, Ownership};
use super::scalars::{Caps, Key, Mint, Moment, Token, Ttl};
use super::table::{ConnAt, HolderId, Id, KeyId, Sorted, Table, Timers, WaiterId};
use std::collections::{BTreeMap, VecDeque};
use std::hash::RandomState;
use std::sync::Arc;

/// What is asked of a key, and for how long.
#[derive(Clone, Copy)]
pub(super) struct Want {
    pub(super) claim: Claim,
    pub(super) ttl: Ttl,
}

/// A granted slot. For its owner, see [`super::rules`].
pub(super) struct Hold {
    pub(super) key: KeyId,
    pub(super) ownership: Ownership<ConnAt>,
    /// The number of the owner, also after it has ended.
    pub(super) serial: u64,
    pub(super) label: Option<Arc<Label>>,
    pub(super) token: Token,
    pub(super) ttl: Ttl,
    /// Whether a grant with the token was made. From then on the hold is recorded.
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
    /// Whether its owner asked for it by `e`, and has not fetched the result by `w`.
    pub(super) two_phase: bool,
    /// Which slot of a semaphore it has; see [`KeyEntry::slot_of`](super::keys::KeyEntry::slot_of).
    pub(super) slot: u32,
}

impl Hold {
    /// A hold that no connection owns.
    pub(super) fn new(key: KeyId, token: Token, ttl: Ttl, since: Moment) -> Self {
        Self {
            key,
            ownership: Ownership::UNOWNED,
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
            two_phase: false,
            slot: 0,
        }
    }

    /// When something is to be done about it.
    pub(super) fn due(&self) -> Moment {
        self.expires.min(self.lapses).min(self.note_at)
    }

    /// The time that is left of the lease.
    pub(super) const fn left_micros(&self, now: Moment) -> u64 {
        if self.unrecorded > 0 { self.length_micros } else { self.expires.micros_since(now) }
    }
}

/// One place in the queue of a key.
pub(super) struct Waiter {
    pub(super) key: KeyId,
    pub(super) conn: ConnAt,
    pub(super) want: Want,
    /// Its number in the order of arrival.
    pub(super) arrival: u64,
    pub(super) since: Moment,
    /// The end of the wait; [`Moment::NEVER`] while nobody waits for the answer.
    pub(super) until: Moment,
    /// Whether its connection waits for the answer now (`l`, `w`); false between `e` and `w`.
    pub(super) blocked: bool,
    /// Whether the request came by `e`.
    pub(super) two_phase: bool,
}

/// A request in two phases: `e` began it, and `w` has not fetched its result yet. One per connection and key.
#[derive(Clone, Copy)]
pub(super) struct TwoPhase {
    pub(super) ttl: Ttl,
    pub(super) phase: Phase,
}

#[derive(Clone, Copy)]
pub(super) enum Phase {
    Queued(WaiterId),
    /// The client has the token from the answer to `e`.
    Acquired(HolderId),
    /// Granted when its turn came; no client has seen the token.
    Granted(HolderId),
    /// Granted, but the lease ended before `w`.
    Lost,
}

/// A connection and its entries, so that the cost of leaving depends on their number only.
#[derive(Default)]
pub(super) struct Conn {
    pub(super) generation: u32,
    /// The number of its slots, places in queues and requests of `e`.
    pub(super) entries: u32,
    pub(super) serial: u64,
    pub(super) label: Option<Arc<Label>>,
    /// By fence, as `renewed`.
    pub(super) owned: Sorted<'h'>,
    pub(super) renewed: Sorted<'h'>,
    pub(super) two_phase: BTreeMap<KeyId, TwoPhase>,
    pub(super) blocked: Option<WaiterId>,
    /// The key of its last request. It may be gone, and another in its place.
    pub(super) last: Option<KeyId>,
}

/// A change that was not taken yet.
pub(super) enum Noted {
    Present(fn(RecordedHold) -> Record, HolderId, Token),
    Ended(Token),
}

/// See the module.
pub(super) struct State {
    /// The time of the present call.
    pub(super) now: Moment,
    pub(super) caps: Caps,
    pub(super) mint: Box<dyn Mint>,
    pub(super) keys: KeyTable,
    pub(super) holders: Table<Hold, 'h'>,
    pub(super) waiters: Table<Waiter, 'w'>,
    pub(super) conns: Table<Conn, 'c'>,
    /// The number of requests of `e` whose result was not fetched.
    pub(super) two_phase: usize,
    /// The number of the latest connection.
    pub(super) generation: u32,
    /// The number of the latest waiter.
    pub(super) arrivals: u64,
    pub(super) timers: Timers,
    pub(super) effects: VecDeque<Effect>,
    pub(super) counters: Counters,
    /// The changes to be recorded, if they are recorded.
    pub(super) changes: Option<Vec<Noted>>,
    pub(super) lease_start: LeaseStart,
    pub(super) draining: bool,
    /// Nothing is granted before this.
    pub(super) closed_until: Moment,
    /// Whether queues that filled up while nothing was granted are still to be served.
    pub(super) reopening: bool,
    /// Keys whose queues have more to be served in a later step. An entry may be of a key that is gone.
    pub(super) unserved: VecDeque<KeyId>,
    /// The number of holds that can be recorded beside the present ones.
    pub(super) record_room: usize,
}

impl State {
    pub(super) fn new(caps: Caps, mint: Box<dyn Mint>, hasher: RandomState) -> Self {
        Self {
            now: Moment::default(),
            caps,
            mint,
            keys: KeyTable::new(hasher),
            holders: Table::new(),
            waiters: Table::new(),
            conns: Table::new(),
            two_phase: 0,
            generation: 0,
            arrivals: 0,
            timers: Timers::new(),
            effects: VecDeque::new(),
            counters: Counters::default(),
            changes: None,
            lease_start: LeaseStart::Grant,
            draining: false,
            closed_until: Moment::default(),
            reopening: false,
            unserved: VecDeque::new(),
            record_room: usize::MAX,
        }
    }

    /// The connection, if it is still the one that got this id.
    pub(super) fn conn(&self, conn: ConnId) -> Option<ConnAt> {
        let id = Id::new(conn.place);
        self.conns.get(id).filter(|found| found.generation == conn.generation).map(|_| id)
    }

    /// The id of a connection for callers.
    pub(super) fn conn_id(&self, id: ConnAt) -> ConnId {
        ConnId { place: id.place(), generation: self.conns[id].generation }
    }

    /// Finds the key of a request. Most requests of a connection are about the same key as the one before.
    pub(super) fn find(&mut self, conn: ConnAt, name: Key<'_>) -> Option<KeyId> {
        let Conn { last, .. } = &mut self.conns[conn];
        if !last.is_some_and(|key| self.keys.is_named(key, name)) {
            *last = self.keys.find(name);
        }
        *last
    }

    /// Answers a connection that waits, which therefore has not ended.
    pub(super) fn answer(&mut self, conn: ConnAt, answer: Answer) {
        let id = self.conn_id(conn);
        self.effects.push_back(Effect::Answer(id, answer));
    }

    /// Notes that the holders of a key have changed. A key that is not watched costs one comparison.
    pub(super) fn note_move(&mut self, key: KeyId) {
        let entry = &self.keys[key];
        if entry.watched {
            self.effects.push_back(Effect::Moved(entry.name[..].into()));
        }
    }

    /// Whether the limits leave room for this many more slots, places or requests of a connection. There is always room
    /// for none, even if a limit is exceeded, as by an inherited hold or after a restart with smaller limits.
    pub(super) fn may_have(&self, conn: ConnAt, more: usize) -> bool {
        let all = self.holders.len() + self.waiters.len() + self.two_phase;
        let own = self.conns[conn].entries as usize;
        let Caps { max_entries, max_entries_per_connection, .. } = self.caps;
        more == 0 || (all + more <= max_entries && own + more <= max_entries_per_connection)
    }

    /// Whether a connection may get this many free slots, and this many entries with them.
    pub(super) fn may_grant(
        &self,
        conn: ConnAt,
        slots: usize,
        entries: usize,
    ) -> Result<(), Refusal> {
        if self.record_room < slots {
            return Err(Refusal::NoSpace);
        }
        if self.may_have(conn, entries) { Ok(()) } else { Err(Refusal::MaxLocks) }
    }

    /// Whether a connection may wait for the key, and have this many entries with that.
    pub(super) fn may_wait(&self, conn: ConnAt, key: KeyId, entries: usize) -> Result<(), Refusal> {
        let most = self.caps.max_waiters;
        let is_full = most > 0 && self.keys[key].queue.len() as usize >= most;
        if is_full || !self.may_have(conn, entries) { Err(Refusal::MaxWaiters) } else { Ok(()) }
    }

    /// Whether the key has room beside its holders, no request is ahead, and grants are possible now.
    pub(super) fn has_room(&self, key: KeyId, claim: Claim) -> bool {
        let entry = &self.keys[key];
        entry.queue.is_empty() && entry.admits(claim) && self.now >= self.closed_until
    }

    /// Whether the head of a queue may be a holder now.
    pub(super) fn may_follow(&self, key: KeyId, claim: Claim) -> bool {
        self.now >= self.closed_until && self.keys[key].admits(claim) && self.record_room > 0
    }

    pub(super) fn count(&mut self, answer: &Answer) {
        match answer {
            Answer::Released => self.counters.releases += 1,
            Answer::Renewed(_) => self.counters.renewals += 1,
            Answer::TimedOut => self.counters.timeouts += 1,
            Answer::Refused(refusal) => self.counters.refusals[*refusal as usize] += 1,
            Answer::Granted(_) | Answer::All(_) | Answer::Acquired(_) | Answer::Queued => {}
        }
    }

    /// Notes a request of `e`. That is no place in the queue of the key: see `holds::join`.
    pub(super) fn begin_two_phase(&mut self, conn: ConnAt, key: KeyId, request: TwoPhase) {
        let conn = &mut self.conns[conn];
        if conn.two_phase.insert(key, request).is_none() {
            conn.entries += 1;
            self.two_phase += 1;
        }
    }

    /// Forgets a request of `e`, and that its hold came by it. It gives up no place in a queue: see `holds::leave`. The
    /// key of a lost hold can be forgotten then.
    pub(super) fn end_two_phase(&mut self, conn: ConnAt, key: KeyId) {
        let conn = &mut self.conns[conn];
        let Some(TwoPhase { phase, .. }) = conn.two_phase.remove(&key) else { return };
        conn.entries -= 1;
        self.two_phase -= 1;
        match phase {
            Phase::Acquired(holder) | Phase::Granted(holder) => {
                self.holders[holder].two_phase = false;
            }
            Phase::Lost => {
                self.keys[key].pins -= 1;
                self.keys.settle(self.now, key);
            }
            Phase::Queued(_) => {}
        }
    }
}
