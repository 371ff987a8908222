//! Queues, two-phase records, and the removal of a connection's entries when it ends. Pure.

use super::keys::KeyEntry;
use super::request::{Answer, AutoRelease, ConnId, Refusal, Verdict};
use super::sharing::Claim;
use super::slab::{Id, Link, Linked, List, Slab, linked};
use super::state::{Alarm, Conn, Engine, Holder};
use super::terms::{Key, Mint, Moment, Seconds, Ttl};
use hashbrown::HashTable;
use std::ops::{Index, IndexMut};

/// One place in the queue of a key.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) key: Id<KeyEntry>,
    pub(super) conn: Id<Conn>,
    pub(super) ttl: Ttl,
    pub(super) since: Moment,
    /// The deadline of its timer.
    pub(super) timer_at: Moment,
    pub(super) record: Id<Record>,
    queue: Link<Self>,
    /// Whether its connection waits for the answer now (`l`, `w`); false between `e` and `w`.
    pub(super) blocked: bool,
    pub(super) claim: Claim,
}

/// A request that `e` began and whose result `w` has not fetched; one per connection and key.
#[derive(Debug)]
pub(super) struct Record {
    conn: Id<Conn>,
    key: Id<KeyEntry>,
    ttl: Ttl,
    phase: Phase,
    of_conn: Link<Self>,
}

/// The waiters of one key, the next one first.
#[derive(Debug)]
pub(super) struct Queue;
/// The records of one connection.
#[derive(Debug)]
pub(super) struct Began;

linked!(Waiter, Queue, queue);
linked!(Record, Began, of_conn);

#[derive(Clone, Copy, Debug)]
enum Phase {
    Queued(Id<Waiter>),
    /// The client has the token from the answer to `e`.
    Acquired(Id<Holder>),
    /// Granted when its turn came; no client has seen the token.
    Granted(Id<Holder>),
    /// Granted, but the lease ended before `w`.
    Lost,
}

/// All records, which can be found by connection and key.
#[derive(Debug)]
pub(super) struct Records {
    entries: Slab<Record>,
    table: HashTable<Id<Record>>,
}

impl Records {
    pub(super) const fn new() -> Self {
        Self { entries: Slab::new(), table: HashTable::new() }
    }

    fn find(&self, conn: Id<Conn>, key: Id<KeyEntry>) -> Option<Id<Record>> {
        let same = |&id: &Id<Record>| self.entries[id].conn == conn && self.entries[id].key == key;
        self.table.find(spread(conn, key), same).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds a record to those of its connection.
    fn insert(&mut self, record: Record, of_conn: &mut List<Record, Began>) -> Id<Record> {
        let hash = spread(record.conn, record.key);
        let id = self.entries.insert(record);
        of_conn.push_front(&mut self.entries, id);
        let entries = &self.entries;
        self.table.insert_unique(hash, id, |&o| spread(entries[o].conn, entries[o].key));
        id
    }

    /// Removes a record; `of_conn` is the list of its connection.
    fn remove(&mut self, id: Id<Record>, of_conn: &mut List<Record, Began>) -> Record {
        of_conn.remove(&mut self.entries, id);
        let record = self.entries.remove(id);
        let hash = spread(record.conn, record.key);
        if let Ok(found) = self.table.find_entry(hash, |&other| other == id) {
            found.remove();
        }
        record
    }
}

impl Index<Id<Record>> for Records {
    type Output = Record;
    fn index(&self, id: Id<Record>) -> &Record {
        &self.entries[id]
    }
}

impl IndexMut<Id<Record>> for Records {
    fn index_mut(&mut self, id: Id<Record>) -> &mut Record {
        &mut self.entries[id]
    }
}

/// Both are small numbers that the engine chooses, so no client can make them collide.
fn spread(conn: Id<Conn>, key: Id<KeyEntry>) -> u64 {
    let both = (u64::from(conn.place()) << 32) | u64::from(key.place());
    (both ^ (both >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl<M: Mint> Engine<M> {
    pub(super) fn enqueue(
        &mut self,
        now: Moment,
        conn: Id<Conn>,
        key: Key<'_>,
        claim: Claim,
        ttl: Option<Ttl>,
    ) -> Verdict {
        let ttl = ttl.unwrap_or(self.caps.default_ttl);
        Verdict::Now(match self.try_enqueue(now, conn, key, claim, ttl) {
            Ok(answer) => answer,
            Err(refusal) => Answer::Refused(refusal),
        })
    }

    fn try_enqueue(
        &mut self,
        now: Moment,
        conn: Id<Conn>,
        key: Key<'_>,
        claim: Claim,
        ttl: Ttl,
    ) -> Result<Answer, Refusal> {
        if self.draining {
            return Err(Refusal::Draining);
        }
        if let Some(id) = self.keys.find(key) {
            self.clear_lost_record(now, conn, id)?;
        }
        let id = self.enter(now, key, claim)?;
        let room = self.has_room(now, id, claim);
        if !room && self.queue_is_full(id) {
            return Err(Refusal::MaxWaiters);
        }
        if room {
            self.may_grant(conn, 2)?;
        } else if !self.may_have(conn, 2) {
            return Err(Refusal::MaxWaiters);
        }
        let phase = Phase::Lost;
        let record = Record { conn, key: id, ttl, phase, of_conn: Link::new() };
        let began = &mut self.conns[conn];
        began.entries += 1;
        let record = self.records.insert(record, &mut began.records);
        if room {
            self.counters.waits.record(0);
            let grant = self.grant(now, id, conn, (claim, ttl), (record, true));
            self.records[record].phase = Phase::Acquired(self.newest(id));
            return Ok(Answer::Acquired(grant));
        }
        let waiter = self.append_waiter(now, id, conn, claim, ttl, record);
        self.records[record].phase = Phase::Queued(waiter);
        Ok(Answer::Queued)
    }

    /// Removes a record whose lease is over, which must not prevent its connection from beginning again.
    fn clear_lost_record(
        &mut self,
        now: Moment,
        conn: Id<Conn>,
        key: Id<KeyEntry>,
    ) -> Result<(), Refusal> {
        let Some(record) = self.records.find(conn, key) else { return Ok(()) };
        self.expire_record(now, record);
        match self.records[record].phase {
            Phase::Lost => {
                self.forget_record(now, record);
                Ok(())
            }
            Phase::Queued(_) | Phase::Acquired(_) | Phase::Granted(_) => {
                Err(Refusal::AlreadyEnqueued)
            }
        }
    }

    /// Ends the hold of a record if its time is over.
    fn expire_record(&mut self, now: Moment, record: Id<Record>) {
        match self.records[record].phase {
            Phase::Acquired(holder) | Phase::Granted(holder)
                if self.holders[holder].expires <= now =>
            {
                self.expire(now, holder);
            }
            Phase::Acquired(_) | Phase::Granted(_) | Phase::Queued(_) | Phase::Lost => {}
        }
    }

    pub(super) fn wait(
        &mut self,
        now: Moment,
        conn: Id<Conn>,
        key: Key<'_>,
        timeout: Seconds,
    ) -> Verdict {
        let found = self.keys.find(key).and_then(|key| self.records.find(conn, key));
        let Some(record) = found else {
            return Verdict::Now(Answer::Refused(Refusal::NotEnqueued));
        };
        self.expire_record(now, record);
        let answer = match self.records[record].phase {
            Phase::Acquired(holder) | Phase::Granted(holder) => {
                let ttl = self.records[record].ttl;
                self.forget_record(now, record);
                Answer::Granted(self.restart_lease(now, holder, ttl))
            }
            Phase::Lost => {
                self.forget_record(now, record);
                Answer::Refused(Refusal::LeaseExpired)
            }
            Phase::Queued(waiter) => {
                if !self.draining && timeout != Seconds::ZERO {
                    self.waiters[waiter].since = now;
                    self.block(now, conn, waiter, timeout);
                    return Verdict::Later;
                }
                self.remove_waiter(now, waiter);
                self.forget_record(now, record);
                if self.draining { Answer::Refused(Refusal::Draining) } else { Answer::TimedOut }
            }
        };
        Verdict::Now(answer)
    }

    pub(super) fn append_waiter(
        &mut self,
        now: Moment,
        key: Id<KeyEntry>,
        conn: Id<Conn>,
        claim: Claim,
        ttl: Ttl,
        record: Id<Record>,
    ) -> Id<Waiter> {
        let id = self.waiters.insert(Waiter {
            key,
            conn,
            ttl,
            since: now,
            timer_at: Moment::NEVER,
            record,
            queue: Link::new(),
            blocked: false,
            claim,
        });
        self.keys[key].queue.push_back(&mut self.waiters, id);
        self.conns[conn].entries += 1;
        self.keys.add_waiter(key);
        self.keys.settle(now, key);
        id
    }

    /// From now on, the connection waits for this place.
    pub(super) fn block(
        &mut self,
        now: Moment,
        conn: Id<Conn>,
        waiter: Id<Waiter>,
        timeout: Seconds,
    ) {
        let until = now.after(timeout);
        self.timers.reset(Alarm::Wait(waiter), Moment::NEVER, until);
        self.waiters[waiter].timer_at = until;
        self.waiters[waiter].blocked = true;
        self.conns[conn].blocked = waiter;
    }

    /// Removes a place from its queue; the caller settles its record. The waiters behind a writer that has gone may
    /// be readers, which can share with the holders.
    fn remove_waiter(&mut self, now: Moment, id: Id<Waiter>) -> Waiter {
        let waiter = self.take_waiter(now, id);
        if !self.draining {
            self.serve_queue(now, waiter.key);
        }
        waiter
    }

    /// Takes a place out of its queue.
    fn take_waiter(&mut self, now: Moment, id: Id<Waiter>) -> Waiter {
        let key = self.waiters[id].key;
        self.keys[key].queue.remove(&mut self.waiters, id);
        let waiter = self.waiters.remove(id);
        self.timers.reset(Alarm::Wait(id), waiter.timer_at, Moment::NEVER);
        self.conns[waiter.conn].entries -= 1;
        if waiter.blocked {
            self.conns[waiter.conn].blocked = Id::NIL;
        }
        self.keys.remove_waiter(waiter.key);
        self.keys.settle(now, waiter.key);
        waiter
    }

    /// Ends a blocked wait without a grant.
    pub(super) fn end_wait(&mut self, now: Moment, id: Id<Waiter>, answer: Answer) {
        let waiter = self.remove_waiter(now, id);
        self.forget_record(now, waiter.record);
        self.count(&answer);
        self.answer(waiter.conn, answer);
    }

    /// Makes the head of the queue a holder, and then the next one, as long as the holders leave room.
    pub(super) fn serve_queue(&mut self, now: Moment, key: Id<KeyEntry>) {
        loop {
            let Some(head) = self.keys[key].queue.first() else { return };
            if !self.may_follow(now, key, self.waiters[head].claim) {
                return;
            }
            let waiter = self.take_waiter(now, head);
            self.counters.waits.record(now.micros_since(waiter.since));
            let what = (waiter.claim, waiter.ttl);
            if waiter.blocked {
                self.forget_record(now, waiter.record);
                let grant = self.grant(now, key, waiter.conn, what, (Id::NIL, true));
                self.answer(waiter.conn, Answer::Granted(grant));
            } else {
                self.grant(now, key, waiter.conn, what, (waiter.record, false));
                self.records[waiter.record].phase = Phase::Granted(self.newest(key));
            }
        }
    }

    /// The hold of a record has ended: `w` must report that, so the key must not be forgotten.
    pub(super) fn lose_record(&mut self, id: Id<Record>) {
        if let Some(id) = id.some() {
            self.records[id].phase = Phase::Lost;
            let key = self.records[id].key;
            self.keys[key].pins += 1;
        }
    }

    /// Deletes a record and the link of its hold to it; does nothing for NIL.
    pub(super) fn forget_record(&mut self, now: Moment, id: Id<Record>) {
        if id.is_nil() {
            return;
        }
        let conn = &mut self.conns[self.records[id].conn];
        let record = self.records.remove(id, &mut conn.records);
        conn.entries -= 1;
        match record.phase {
            Phase::Acquired(holder) | Phase::Granted(holder) => {
                if let Some(holder) = self.holders.get_mut(holder) {
                    holder.record = Id::NIL;
                }
            }
            Phase::Lost => {
                self.keys[record.key].pins -= 1;
                self.keys.settle(now, record.key);
            }
            Phase::Queued(_) => {}
        }
    }

    /// Cancels a blocked wait: its place becomes free, and no answer will come.
    pub fn cancel(&mut self, now: Moment, conn: ConnId) {
        let Some(conn) = self.conn(conn) else { return };
        if let Some(waiter) = self.conns[conn].blocked.some() {
            let waiter = self.remove_waiter(now, waiter);
            self.forget_record(now, waiter.record);
        }
    }

    /// Removes the entries of a connection that has ended: its waits and records in any case, its holds according to
    /// `auto`. Its id is free then.
    pub fn disconnect(&mut self, now: Moment, conn: ConnId, auto: AutoRelease) {
        self.cancel(now, conn);
        let Some(id) = self.conn(conn) else { return };
        while let Some(record) = self.conns[id].records.first() {
            self.abandon(now, record);
        }
        while let Some(holder) =
            self.conns[id].renewed.first().or_else(|| self.conns[id].owned.first())
        {
            self.part(now, holder, id, auto);
        }
        self.conns.remove(id);
    }

    fn abandon(&mut self, now: Moment, record: Id<Record>) {
        let phase = self.records[record].phase;
        self.forget_record(now, record);
        match phase {
            Phase::Queued(waiter) => {
                self.remove_waiter(now, waiter);
            }
            // No client has seen this token, so no client could ever release the hold.
            Phase::Granted(holder) => {
                self.counters.disconnect_releases += 1;
                self.free(now, holder);
            }
            Phase::Acquired(_) | Phase::Lost => {}
        }
    }
}
