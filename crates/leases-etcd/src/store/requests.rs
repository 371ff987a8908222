//! Begins each request, and gives the answers that need no etcd.

use super::Engine;
use super::asking::{self, Patience, Want};
use super::seats::{Phase, Record};
use super::state::State;
use leases::{Answer, Claim, ConnId, Key, Moment, Refusal, Request, Seconds, Ttl};
use std::sync::Arc;

impl Engine {
    /// Begins a request, or answers it at once.
    pub(super) fn begin(
        &self,
        state: &mut State,
        now: Moment,
        id: ConnId,
        request: Request<'_>,
    ) -> Result<(), Answer> {
        let inner = Arc::clone(&self.inner);
        match request {
            Request::Acquire { .. } | Request::AcquireAll { .. } | Request::Enqueue { .. } => {
                self.may_have(state, id, request.keys().count()).map_err(Answer::Refused)?;
            }
            Request::Wait { .. } | Request::Release { .. } | Request::Renew { .. } => {}
        }
        let conn = state.seats.conn(id).ok_or(Answer::Refused(Refusal::NotHeld))?;
        let (serial, label) = (conn.serial, conn.label.clone());
        let default_ttl = self.inner.caps.default_ttl;
        let want = |key: Key<'_>, claim, patience, ttl: Option<Ttl>| {
            let (key, label) = (key.bytes().into(), label.clone());
            let ttl = ttl.unwrap_or(default_ttl);
            Want { id, serial, label, key, claim, ttl, patience, asked: now }
        };
        match request {
            Request::Acquire { key, claim, timeout, ttl } => {
                let patience = if timeout == Seconds::ZERO {
                    Patience::Try
                } else {
                    Patience::Until(now.after(timeout))
                };
                tokio::spawn(inner.acquire(want(key, claim, patience, ttl)));
            }
            Request::AcquireAll { keys, ttl } => {
                let want = |key| want(key, Claim::LOCK, Patience::Try, ttl);
                tokio::spawn(inner.acquire_all(id, keys.iter().map(want).collect()));
            }
            Request::Enqueue { key, claim, ttl } => {
                let want = want(key, claim, Patience::Enqueue, ttl);
                let before = asking::enqueue(conn, &want.key, want.ttl)?;
                tokio::spawn(async move {
                    match before {
                        None => inner.acquire(want).await,
                        Some(nonce) => inner.enqueue_again(want, nonce).await,
                    }
                });
            }
            Request::Wait { key, timeout } => {
                return self.wait(state, now, id, key.bytes(), timeout);
            }
            Request::Release { key, token } => {
                let token = token.ok_or(Answer::Refused(Refusal::NotHeld))?;
                tokio::spawn(inner.release(id, key.bytes().into(), token));
            }
            Request::Renew { key, token, ttl } => {
                let token = token.ok_or(Answer::Refused(Refusal::NotHeld))?;
                let ttl = ttl.unwrap_or(default_ttl);
                tokio::spawn(inner.renew(id, serial, key.bytes().into(), token, ttl));
            }
        }
        Ok(())
    }

    /// Whether a connection may ask for this many more holds.
    fn may_have(&self, state: &mut State, id: ConnId, more: usize) -> Result<(), Refusal> {
        let caps = &self.inner.caps;
        let all = state.tickets.len();
        let conn = state.seats.conn(id).ok_or(Refusal::NotHeld)?;
        let own = conn.holds.len() + conn.records.len();
        if state.draining {
            Err(Refusal::Draining)
        } else if self.inner.client.is_full() {
            Err(Refusal::NoSpace)
        } else if all + more > caps.max_entries || own + more > caps.max_entries_per_connection {
            Err(Refusal::MaxLocks)
        } else {
            Ok(())
        }
    }

    fn wait(
        &self,
        state: &mut State,
        now: Moment,
        id: ConnId,
        key: &[u8],
        timeout: Seconds,
    ) -> Result<(), Answer> {
        let refused = |refusal| Err(Answer::Refused(refusal));
        let draining = state.draining;
        let Some(conn) = state.seats.conn(id) else { return refused(Refusal::NotEnqueued) };
        let serial = conn.serial;
        let Some(Record { nonce, ttl, phase }) = conn.records.get(key).copied() else {
            return refused(Refusal::NotEnqueued);
        };
        match phase {
            Phase::Asked | Phase::Queued => {
                let end = if draining { now } else { now.after(timeout) };
                tokio::spawn(Arc::clone(&self.inner).wait(id, nonce, end));
                Ok(())
            }
            Phase::Acquired | Phase::Granted => {
                conn.records.remove(key);
                tokio::spawn(Arc::clone(&self.inner).fetch(id, serial, nonce, ttl));
                Ok(())
            }
            Phase::Lost => {
                conn.records.remove(key);
                refused(Refusal::LeaseExpired)
            }
            Phase::Forgotten => {
                conn.records.remove(key);
                refused(Refusal::Unavailable)
            }
        }
    }
}
