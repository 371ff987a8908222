//! Takes a slot, or a place in the queue for it. The protocol fixes the order of the checks.
//!
//! Pure.

use super::keys::KeyEntry;
use super::recorded::Space;
use super::request::{Answer, Refusal, Verdict};
use super::slab::Id;
use super::state::{Conn, Engine, Holder};
use super::terms::{Key, Limit, Mint, Moment, Seconds, Ttl};

/// A slot that is asked for, as [`Request::Acquire`] says it.
///
/// [`Request::Acquire`]: super::request::Request::Acquire
#[derive(Clone, Copy, Debug)]
pub(super) struct Want<'k> {
    pub(super) key: Key<'k>,
    pub(super) limit: Limit,
    pub(super) timeout: Seconds,
    pub(super) ttl: Option<Ttl>,
}

impl<M: Mint> Engine<M> {
    pub(super) fn acquire(&mut self, now: Moment, conn: Id<Conn>, want: Want<'_>) -> Verdict {
        let Want { key, limit, timeout, ttl } = want;
        let ttl = ttl.unwrap_or(self.caps.default_ttl);
        let id = match self.enter(now, key, limit) {
            Ok(id) => id,
            Err(refusal) => return Verdict::Now(Answer::Refused(refusal)),
        };
        if self.has_room(now, id) {
            if let Err(refusal) = self.may_grant(conn, 1) {
                return Verdict::Now(Answer::Refused(refusal));
            }
            self.counters.waits.record(0);
            let grant = self.grant(now, id, conn, ttl, Id::NIL);
            self.tell(self.newest(id));
            return Verdict::Now(Answer::Granted(grant));
        }
        if self.queue_is_full(id) {
            return Verdict::Now(Answer::Refused(Refusal::MaxWaiters));
        }
        if timeout == Seconds::ZERO {
            return Verdict::Now(Answer::TimedOut);
        }
        if !self.may_have(conn, 1) {
            return Verdict::Now(Answer::Refused(Refusal::MaxWaiters));
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
                if !self.keys[id].is_forgettable() {
                    return Err(Refusal::LimitMismatch);
                }
                self.keys.change_limit(id, limit);
            }
            self.evict_due(now, id);
            return Ok(id);
        }
        if self.keys.len() >= self.caps.max_locks && !self.keys.forget_one() {
            return Err(Refusal::MaxLocks);
        }
        Ok(self.keys.create(now, key, limit))
    }

    /// A free slot, nobody ahead, and nothing against granting it now.
    pub(super) fn has_room(&self, now: Moment, id: Id<KeyEntry>) -> bool {
        self.keys[id].has_room() && now >= self.closed_until
    }

    /// Whether a connection may get a slot that is free, and its record besides.
    pub(super) fn may_grant(&self, conn: Id<Conn>, entries: usize) -> Result<(), Refusal> {
        match self.space {
            Space::Full => Err(Refusal::NoSpace),
            Space::Free if !self.may_have(conn, entries) => Err(Refusal::MaxLocks),
            Space::Free => Ok(()),
        }
    }

    /// The hold of a key that was granted last.
    pub(super) fn newest(&self, key: Id<KeyEntry>) -> Id<Holder> {
        self.keys[key].holders.first().unwrap_or(Id::NIL)
    }

    /// Whether the caps leave room for so many more slots, places or records of a connection.
    pub(super) fn may_have(&self, conn: Id<Conn>, more: usize) -> bool {
        let all = self.holders.len() + self.waiters.len() + self.records.len();
        let own = self.conns[conn].entries as usize;
        all + more <= self.caps.max_entries && own + more <= self.caps.max_entries_per_connection
    }

    pub(super) fn queue_is_full(&self, id: Id<KeyEntry>) -> bool {
        self.caps.max_waiters > 0 && self.keys[id].waiters as usize >= self.caps.max_waiters
    }

    /// A lock's lease may be over a moment before its timer rings.
    fn evict_due(&mut self, now: Moment, id: Id<KeyEntry>) {
        if let Some(first) = self.keys[id].holders.first() {
            if self.holders[first].expires <= now {
                self.expire(now, first);
            }
        }
    }
}
