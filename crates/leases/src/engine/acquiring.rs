//! Takes a slot, or a place in the queue for it. The protocol fixes the order of the checks.
//!
//! Pure.

use super::keys::KeyEntry;
use super::recorded::Space;
use super::request::{Answer, Grant, Refusal, Verdict};
use super::sharing::Claim;
use super::slab::Id;
use super::state::{Conn, Engine, Holder};
use super::terms::{Key, Keys, Mint, Moment, Seconds, Ttl};

/// The slot that a request asks for; see [`Request::Acquire`].
///
/// [`Request::Acquire`]: super::request::Request::Acquire
#[derive(Clone, Copy, Debug)]
pub(super) struct Want<'k> {
    pub(super) key: Key<'k>,
    pub(super) claim: Claim,
    pub(super) timeout: Seconds,
    pub(super) ttl: Option<Ttl>,
}

impl<M: Mint> Engine<M> {
    pub(super) fn acquire(&mut self, now: Moment, conn: Id<Conn>, want: Want<'_>) -> Verdict {
        let Want { key, claim, timeout, ttl } = want;
        let ttl = ttl.unwrap_or(self.caps.default_ttl);
        let id = match self.enter(now, key, claim) {
            Ok(id) => id,
            Err(refusal) => return Verdict::Now(Answer::Refused(refusal)),
        };
        if self.has_room(now, id, claim) {
            if let Err(refusal) = self.may_grant(conn, 1) {
                return Verdict::Now(Answer::Refused(refusal));
            }
            return Verdict::Now(Answer::Granted(self.give(now, conn, id, claim, ttl)));
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
        let waiter = self.append_waiter(now, id, conn, claim, ttl, Id::NIL);
        self.block(now, conn, waiter, timeout);
        Verdict::Later
    }

    /// Takes all these locks, or none. If it takes none, nothing has changed.
    pub(super) fn acquire_all(
        &mut self,
        now: Moment,
        conn: Id<Conn>,
        keys: Keys<'_>,
        ttl: Option<Ttl>,
    ) -> Answer {
        if self.draining {
            return Answer::Refused(Refusal::Draining);
        }
        if now < self.closed_until || !keys.iter().all(|key| self.is_free(now, key)) {
            return Answer::TimedOut;
        }
        let ttl = ttl.unwrap_or(self.caps.default_ttl);
        let all = self.may_grant(conn, keys.count()).and_then(|()| {
            if self.keys.have_room_for(keys, self.caps.max_locks) {
                keys.iter().map(|key| self.take(now, conn, key, ttl)).collect()
            } else {
                Err(Refusal::MaxLocks)
            }
        });
        all.map_or_else(Answer::Refused, Answer::All)
    }

    /// Grants a free lock to a connection that may have it.
    fn take(
        &mut self,
        now: Moment,
        conn: Id<Conn>,
        key: Key<'_>,
        ttl: Ttl,
    ) -> Result<Grant, Refusal> {
        let id = self.enter(now, key, Claim::LOCK)?;
        Ok(self.give(now, conn, id, Claim::LOCK, ttl))
    }

    /// Grants a slot at once.
    fn give(
        &mut self,
        now: Moment,
        conn: Id<Conn>,
        key: Id<KeyEntry>,
        claim: Claim,
        ttl: Ttl,
    ) -> Grant {
        self.counters.waits.record(0);
        self.grant(now, key, conn, (claim, ttl), (Id::NIL, true))
    }

    /// Whether the key has neither holders nor waiters, and can be a lock.
    fn is_free(&mut self, now: Moment, key: Key<'_>) -> bool {
        let Some(id) = self.keys.find(key) else { return true };
        self.evict_due(now, id);
        let entry = &self.keys[id];
        entry.is_idle() && (entry.limit == 1 || entry.is_forgettable())
    }

    /// Finds or creates the key. The protocol fixes the order of the checks: draining, limit, cap.
    pub(super) fn enter(
        &mut self,
        now: Moment,
        key: Key<'_>,
        claim: Claim,
    ) -> Result<Id<KeyEntry>, Refusal> {
        let limit = claim.limit();
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

    /// Whether the key has room beside its holders, no request is ahead, and grants are possible now.
    pub(super) fn has_room(&self, now: Moment, id: Id<KeyEntry>, claim: Claim) -> bool {
        self.keys[id].has_room(claim) && now >= self.closed_until
    }

    /// Whether the head of a queue may be a holder now. While nothing more can be recorded, a hold is only handed on
    /// from one holder to the next, so readers get the lock one after the other.
    pub(super) fn may_follow(&self, now: Moment, key: Id<KeyEntry>, claim: Claim) -> bool {
        let entry = &self.keys[key];
        let is_one_more = claim.is_shared() && entry.held > 0;
        let is_written = !is_one_more || self.space == Space::Free;
        now >= self.closed_until && entry.admits(claim) && is_written
    }

    /// Whether a connection may get a free slot and its record.
    pub(super) fn may_grant(&self, conn: Id<Conn>, entries: usize) -> Result<(), Refusal> {
        match self.space {
            Space::Full => Err(Refusal::NoSpace),
            Space::Free if !self.may_have(conn, entries) => Err(Refusal::MaxLocks),
            Space::Free => Ok(()),
        }
    }

    /// The hold of the key that was granted last.
    pub(super) fn newest(&self, key: Id<KeyEntry>) -> Id<Holder> {
        let Some(id) = self.keys[key].holders.first() else { unreachable!("it has a holder") };
        id
    }

    /// Whether the caps leave room for this many more slots, places or records of a connection.
    pub(super) fn may_have(&self, conn: Id<Conn>, more: usize) -> bool {
        let all = self.holders.len() + self.waiters.len() + self.records.len();
        let own = self.conns[conn].entries as usize;
        all + more <= self.caps.max_entries && own + more <= self.caps.max_entries_per_connection
    }

    pub(super) fn queue_is_full(&self, id: Id<KeyEntry>) -> bool {
        self.caps.max_waiters > 0 && self.keys[id].waiters as usize >= self.caps.max_waiters
    }

    /// Ends a lease that is over. That may be the case a moment before its timer fires.
    fn evict_due(&mut self, now: Moment, id: Id<KeyEntry>) {
        if let Some(first) = self.keys[id].holders.first() {
            if self.holders[first].expires <= now {
                self.expire(now, first);
            }
        }
    }
}
