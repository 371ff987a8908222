//! The requests of clients. The protocol fixes the order of the checks. Pure.

use super::holds;
use super::messages::{Answer, Grant, Refusal};
use super::rules::Claim;
use super::scalars::{Key, Keys, Seconds, Token, Ttl};
use super::state::{Phase, State, TwoPhase, Want};
use super::table::{ConnAt, HolderId, KeyId};

/// The answer to a request; `None` if it comes later.
pub(super) type Decision = Result<Option<Answer>, Refusal>;

/// `l`, `sl`, `rl`: takes a slot, or waits for it.
pub(super) fn acquire(
    state: &mut State,
    conn: ConnAt,
    key: Key<'_>,
    want: Want,
    timeout: Seconds,
) -> Decision {
    let key = enter(state, conn, key, want.claim)?;
    if state.has_room(key, want.claim) {
        state.may_grant(conn, 1, 1)?;
        return Ok(Some(Answer::Granted(give(state, conn, key, want))));
    }
    if timeout == Seconds::ZERO {
        state.may_wait(conn, key, 0)?;
        return Ok(Some(Answer::TimedOut));
    }
    state.may_wait(conn, key, 1)?;
    let waiter = holds::join(state, key, conn, want, false);
    holds::block(state, waiter, timeout);
    Ok(None)
}

/// `al`: takes all these locks, or none. If it takes none, nothing has changed.
pub(super) fn acquire_all(state: &mut State, conn: ConnAt, keys: Keys<'_>, ttl: Ttl) -> Decision {
    if state.draining {
        return Err(Refusal::Draining);
    }
    if state.now < state.closed_until || !keys.iter().all(|key| is_free(state, key)) {
        return Ok(Some(Answer::TimedOut));
    }
    state.may_grant(conn, keys.count(), keys.count())?;
    if !state.keys.have_room_for(keys, state.caps.max_locks) {
        return Err(Refusal::MaxLocks);
    }
    let want = Want { claim: Claim::LOCK, ttl };
    let all = keys.iter().map(|key| {
        let key = enter(state, conn, key, Claim::LOCK)?;
        Ok(give(state, conn, key, want))
    });
    Ok(Some(Answer::All(all.collect::<Result<_, _>>()?)))
}

/// `e`, `se`, `re`: takes a slot or a place in the queue, without waiting.
pub(super) fn enqueue(state: &mut State, conn: ConnAt, key: Key<'_>, want: Want) -> Decision {
    if state.draining {
        return Err(Refusal::Draining);
    }
    if let Some(key) = state.find(conn, key) {
        match two_phase(state, conn, key) {
            None => {}
            // It must not prevent its connection from beginning again.
            Some(TwoPhase { phase: Phase::Lost, .. }) => state.end_two_phase(conn, key),
            Some(_) => return Err(Refusal::AlreadyEnqueued),
        }
    }
    let key = enter(state, conn, key, want.claim)?;
    if state.has_room(key, want.claim) {
        state.may_grant(conn, 1, 2)?;
        let id = holds::grant(state, key, conn, want, state.now);
        state.holders[id].two_phase = true;
        state.begin_two_phase(conn, key, TwoPhase { ttl: want.ttl, phase: Phase::Acquired(id) });
        return Ok(Some(Answer::Acquired(holds::announce(state, id))));
    }
    state.may_wait(conn, key, 2)?;
    let waiter = holds::join(state, key, conn, want, true);
    state.begin_two_phase(conn, key, TwoPhase { ttl: want.ttl, phase: Phase::Queued(waiter) });
    Ok(Some(Answer::Queued))
}

/// `w`, `sw`: fetches the result of `e`, or waits for it.
pub(super) fn wait(state: &mut State, conn: ConnAt, key: Key<'_>, timeout: Seconds) -> Decision {
    let key = state.find(conn, key).ok_or(Refusal::NotEnqueued)?;
    let TwoPhase { ttl, phase } = two_phase(state, conn, key).ok_or(Refusal::NotEnqueued)?;
    match phase {
        Phase::Acquired(id) | Phase::Granted(id) => {
            state.end_two_phase(conn, key);
            Ok(Some(Answer::Granted(holds::restart_lease(state, id, ttl))))
        }
        Phase::Lost => {
            state.end_two_phase(conn, key);
            Err(Refusal::LeaseExpired)
        }
        Phase::Queued(waiter) if state.draining || timeout == Seconds::ZERO => {
            holds::leave(state, waiter);
            if state.draining { Err(Refusal::Draining) } else { Ok(Some(Answer::TimedOut)) }
        }
        Phase::Queued(waiter) => {
            state.waiters[waiter].since = state.now;
            holds::block(state, waiter, timeout);
            Ok(None)
        }
    }
}

/// `r`, `sr`: releases a slot.
pub(super) fn release(
    state: &mut State,
    conn: ConnAt,
    key: Key<'_>,
    token: Option<Token>,
) -> Decision {
    let id = held(state, conn, key, token)?;
    holds::end_two_phase(state, id);
    holds::free(state, id);
    Ok(Some(Answer::Released))
}

/// `n`, `sn`: renews a lease.
pub(super) fn renew(
    state: &mut State,
    conn: ConnAt,
    key: Key<'_>,
    token: Option<Token>,
    ttl: Ttl,
) -> Decision {
    let id = held(state, conn, key, token)?;
    let ownership = state.holders[id].ownership.renewed(conn);
    holds::set_ownership(state, id, ownership);
    holds::restart_lease(state, id, ttl);
    Ok(Some(Answer::Renewed(ttl)))
}

/// Finds or creates the key.
fn enter(state: &mut State, conn: ConnAt, key: Key<'_>, claim: Claim) -> Result<KeyId, Refusal> {
    if state.draining {
        return Err(Refusal::Draining);
    }
    let limit = claim.limit();
    if let Some(id) = state.find(conn, key) {
        if state.keys[id].limit != limit {
            if !state.keys[id].is_forgettable() {
                return Err(Refusal::LimitMismatch);
            }
            state.keys.change_limit(id, limit);
        }
        expire_newest(state, id);
        return Ok(id);
    }
    if state.keys.entries.len() >= state.caps.max_locks && !state.keys.forget_one() {
        return Err(Refusal::MaxLocks);
    }
    Ok(state.keys.create(state.now, key, limit))
}

/// Grants a slot at once.
fn give(state: &mut State, conn: ConnAt, key: KeyId, want: Want) -> Grant {
    let id = holds::grant(state, key, conn, want, state.now);
    holds::announce(state, id)
}

/// Whether the key has neither holders nor waiters, and can be a lock.
fn is_free(state: &mut State, key: Key<'_>) -> bool {
    let Some(id) = state.keys.find(key) else { return true };
    expire_newest(state, id);
    let entry = &state.keys[id];
    entry.is_idle() && (entry.limit.count() == 1 || entry.is_forgettable())
}

fn expire_newest(state: &mut State, key: KeyId) {
    if let Some(newest) = state.keys[key].holders.last() {
        holds::expire_due(state, newest);
    }
}

/// The request of `e` of a connection, lost if its lease is over.
fn two_phase(state: &mut State, conn: ConnAt, key: KeyId) -> Option<TwoPhase> {
    let TwoPhase { phase, .. } = state.conns[conn].two_phase.get(&key)?;
    if let Phase::Acquired(id) | Phase::Granted(id) = *phase {
        holds::expire_due(state, id);
    }
    state.conns[conn].two_phase.get(&key).copied()
}

/// The hold that a token proves now. A hold whose lease is over is ended instead.
fn held(
    state: &mut State,
    conn: ConnAt,
    key: Key<'_>,
    token: Option<Token>,
) -> Result<HolderId, Refusal> {
    let token = token.ok_or(Refusal::NotHeld)?;
    let key = state.find(conn, key).ok_or(Refusal::NotHeld)?;
    let id = holds::find(state, key, token).ok_or(Refusal::NotHeld)?;
    if holds::expire_due(state, id) { Err(Refusal::NotHeld) } else { Ok(id) }
}
