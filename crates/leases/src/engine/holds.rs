//! Holds: their beginning, their leases, their connections, and their records; and the queues of the keys: who waits, and who
//! gets a slot that becomes free. Pure.

use super::messages::{Answer, Effect, Grant, LeaseStart, Record, RecordedHold};
use super::rules::{Claim, Ownership};
use super::scalars::{Key, Moment, Seconds, Token, Ttl};
use super::state::{Hold, Noted, Phase, State, TwoPhase, Waiter, Want};
use super::table::{Alarm, ConnAt, HolderId, KeyId, WaiterId};
use std::sync::Arc;

/// Makes a connection a holder of the key, for which it has waited from `since` on. The caller has checked that there
/// is a slot, and announces the hold if its client is to know the token now.
pub(super) fn grant(
    state: &mut State,
    key: KeyId,
    conn: ConnAt,
    want: Want,
    since: Moment,
) -> HolderId {
    let token = state.mint.token();
    let owner = &mut state.conns[conn];
    owner.entries += 1;
    let hold = Hold {
        ownership: Ownership::of(conn),
        serial: owner.serial,
        label: owner.label.clone(),
        ..Hold::new(key, token, want.ttl, state.now)
    };
    let id = add(state, hold, want.claim, None);
    state.conns[conn].owned.add(token.fence(), id);
    state.note_move(key);
    state.record_room = state.record_room.saturating_sub(1);
    state.counters.grants += 1;
    state.counters.waits.record(state.now.micros_since(since));
    id
}

/// Adds a hold to those of its key, in the slot that it had before, if it had one.
fn add(state: &mut State, hold: Hold, claim: Claim, slot: Option<u32>) -> HolderId {
    let (key, fence, due) = (hold.key, hold.token.fence(), hold.due());
    let id = state.holders.insert(hold);
    state.holders[id].slot = state.keys.add_holder(key, claim, fence, id, slot);
    state.keys.settle(state.now, key);
    state.timers.arm(Alarm::Hold(id), due);
    id
}

/// Makes the grant by which a client learns the token of a hold, or its new lease, and notes it for the record.
pub(super) fn announce(state: &mut State, id: HolderId) -> Grant {
    let holder = &mut state.holders[id];
    let was_announced = std::mem::replace(&mut holder.announced, true);
    let length = holder.ttl.span().micros();
    note(state, id, if was_announced { Record::Extended } else { Record::Granted }, length);
    let holder = &state.holders[id];
    let slot = state.keys[holder.key].slot_of(holder.slot);
    Grant { token: holder.token, ttl: holder.ttl, expires: holder.expires, slot }
}

/// Begins a new lease of this length.
pub(super) fn restart_lease(state: &mut State, id: HolderId, ttl: Ttl) -> Grant {
    let holder = &mut state.holders[id];
    holder.expires = state.now.after(ttl.span());
    holder.ttl = ttl;
    holder.note_at = Moment::NEVER;
    state.keys[holder.key].touched = state.now;
    let grant = announce(state, id);
    rearm(state, id);
    grant
}

/// The hold of this key and token.
pub(super) fn find(state: &State, key: KeyId, token: Token) -> Option<HolderId> {
    let id = state.keys[key].holders.find(token.fence())?;
    (state.holders[id].token == token).then_some(id)
}

/// Gives the hold this ownership.
pub(super) fn set_ownership(state: &mut State, id: HolderId, ownership: Ownership<ConnAt>) {
    let holder = &mut state.holders[id];
    let before = std::mem::replace(&mut holder.ownership, ownership);
    let fence = holder.token.fence();
    if before.owner != ownership.owner {
        if let Some(owner) = before.owner {
            state.conns[owner].owned.remove(fence, id);
            state.conns[owner].entries -= 1;
        }
        if let Some(owner) = ownership.owner {
            state.conns[owner].owned.add(fence, id);
            state.conns[owner].entries += 1;
            holder.serial = state.conns[owner].serial;
        }
    }
    if before.renewer != ownership.renewer {
        if let Some(renewer) = before.renewer {
            state.conns[renewer].renewed.remove(fence, id);
        }
        if let Some(renewer) = ownership.renewer {
            state.conns[renewer].renewed.add(fence, id);
        }
    }
    if before.grace != ownership.grace {
        holder.lapses = ownership.lapses(state.now);
        rearm(state, id);
    }
}

/// Takes a hold out of all tables; the queue of its key is to be served then.
pub(super) fn remove(state: &mut State, id: HolderId) -> KeyId {
    set_ownership(state, id, Ownership::UNOWNED);
    let Hold { key, token, announced, slot, .. } = state.holders.remove(id);
    // A hold that was not announced was never recorded.
    if let Some(changes) = state.changes.as_mut().filter(|_| announced) {
        changes.push(Noted::Ended(token));
    }
    state.keys.remove_holder(key, token.fence(), id, slot);
    state.note_move(key);
    key
}

/// The hold ends against the will of its owner: if it came by `e`, `w` must report that, and the key must not be
/// forgotten before.
#[expect(clippy::expect_used, reason = "a request of `e` ends with its connection")]
pub(super) fn mark_lost(state: &mut State, id: HolderId) {
    let Hold { key, ownership, two_phase, ttl, .. } = state.holders[id];
    if two_phase {
        let owner = ownership.owner.expect("a request of `e` ends with its connection");
        state.begin_two_phase(owner, key, TwoPhase { ttl, phase: Phase::Lost });
        state.keys[key].pins += 1;
    }
}

/// Forgets that a hold came by `e`, if it did.
pub(super) fn end_two_phase(state: &mut State, id: HolderId) {
    let Hold { key, ownership, two_phase, .. } = state.holders[id];
    if let Some(owner) = ownership.owner.filter(|_| two_phase) {
        state.end_two_phase(owner, key);
    }
}

/// Makes sure that the timer of a hold fires in time for what is to be done next.
pub(super) fn rearm(state: &mut State, id: HolderId) {
    state.timers.arm(Alarm::Hold(id), state.holders[id].due());
}

/// Notes a change for the record.
fn note(state: &mut State, id: HolderId, change: fn(RecordedHold) -> Record, length_micros: u64) {
    let Some(changes) = &mut state.changes else { return };
    let holder = &mut state.holders[id];
    changes.push(Noted::Present(change, id, holder.token));
    if state.lease_start == LeaseStart::Record {
        holder.unrecorded += 1;
        holder.length_micros = length_micros;
        holder.expires = Moment::NEVER;
    }
}

/// Notes the time that is left of a hold.
pub(super) fn note_left(state: &mut State, id: HolderId) {
    state.holders[id].note_at = Moment::NEVER;
    let left = state.holders[id].left_micros(state.now);
    note(state, id, Record::Extended, left);
    rearm(state, id);
}

/// When the time left of a restored hold is to be recorded next, until somebody renews the hold. Each server that takes
/// the lead restores the time that was recorded last. So without these records, changes of the leader would keep the
/// hold of a dead client for ever. The lease stands still while a record is under way, so a quarter of it passes
/// between two records.
fn next_note(state: &State, ttl: Ttl) -> Moment {
    match state.lease_start {
        LeaseStart::Grant => Moment::NEVER,
        LeaseStart::Record => state.now.after_micros(ttl.span().micros() / 4),
    }
}

/// The present state of a hold, for its record; `None` if it has ended.
pub(super) fn recorded(state: &State, id: HolderId, token: Token) -> Option<RecordedHold> {
    let holder = state.holders.get(id).filter(|holder| holder.token == token)?;
    let entry = &state.keys[holder.key];
    Some(RecordedHold {
        key: entry.name.clone(),
        claim: entry.claim(),
        token,
        ttl: holder.ttl,
        left_micros: holder.left_micros(state.now),
        label: holder.label.as_deref().cloned(),
        slot: entry.slot_of(holder.slot),
    })
}

/// Restores a recorded hold, without a connection.
pub(super) fn restore(state: &mut State, recorded: &RecordedHold) {
    let Some(key) = Key::new(&recorded.key) else { return };
    let key = match state.keys.find(key) {
        Some(key) => key,
        None => state.keys.create(state.now, key, recorded.claim.limit()),
    };
    let hold = Hold {
        label: recorded.label.clone().map(Arc::new),
        announced: true,
        expires: state.now.after_micros(recorded.left_micros),
        note_at: next_note(state, recorded.ttl),
        ..Hold::new(key, recorded.token, recorded.ttl, state.now)
    };
    add(state, hold, recorded.claim, recorded.slot);
}

/// A grant or renewal of a hold has been recorded. With the last of them its lease begins.
pub(super) fn start_lease(state: &mut State, id: HolderId) {
    let Hold { ttl, unrecorded, length_micros, .. } = state.holders[id];
    // It may have ended meanwhile.
    let Some(unrecorded) = unrecorded.checked_sub(1) else { return };
    let note_at = next_note(state, ttl);
    let holder = &mut state.holders[id];
    holder.unrecorded = unrecorded;
    if unrecorded == 0 {
        holder.expires = state.now.after_micros(length_micros);
        // A lease that somebody began has its whole length.
        if length_micros < ttl.span().micros() {
            holder.note_at = note_at;
        }
        rearm(state, id);
    }
}

/// Adds a request to the end of the queue.
pub(super) fn join(
    state: &mut State,
    key: KeyId,
    conn: ConnAt,
    want: Want,
    two_phase: bool,
) -> WaiterId {
    state.arrivals += 1;
    let (arrival, since) = (state.arrivals, state.now);
    let until = Moment::NEVER;
    let waiter = Waiter { key, conn, want, arrival, since, until, blocked: false, two_phase };
    let id = state.waiters.insert(waiter);
    state.conns[conn].entries += 1;
    state.keys.add_waiter(key, arrival, id);
    state.keys.settle(state.now, key);
    id
}

/// From now on, the connection waits for this place.
pub(super) fn block(state: &mut State, id: WaiterId, timeout: Seconds) {
    let waiter = &mut state.waiters[id];
    waiter.blocked = true;
    waiter.until = state.now.after(timeout);
    state.timers.arm(Alarm::Wait(id), waiter.until);
    state.conns[waiter.conn].blocked = Some(id);
}

/// Takes a request out of its queue, forgets it, also as one of `e`, and serves the queue: the waiters behind a writer
/// that has gone may be readers, which can join the holders.
pub(super) fn leave(state: &mut State, id: WaiterId) -> Waiter {
    let waiter = take(state, id);
    if waiter.two_phase {
        state.end_two_phase(waiter.conn, waiter.key);
    }
    if !state.draining {
        serve(state, waiter.key);
    }
    waiter
}

/// Takes a request out of its queue.
fn take(state: &mut State, id: WaiterId) -> Waiter {
    let waiter = state.waiters.remove(id);
    let conn = &mut state.conns[waiter.conn];
    conn.entries -= 1;
    if waiter.blocked {
        conn.blocked = None;
    }
    state.keys.remove_waiter(waiter.key, waiter.arrival, id);
    state.keys.settle(state.now, waiter.key);
    waiter
}

/// Ends a blocked wait without a grant.
pub(super) fn end_wait(state: &mut State, id: WaiterId, answer: Answer) {
    let waiter = leave(state, id);
    state.count(&answer);
    state.answer(waiter.conn, answer);
}

/// The most grants of one queue in one step, which take some 30 microseconds. A thousand readers may wait for one release.
const GRANTS_PER_STEP: usize = 128;

/// Makes the head of the queue a holder, and then the next one, as long as the holders leave room. What is too much for
/// one step is left for [`serve_more`]. Who comes meanwhile is behind those that are left.
pub(super) fn serve(state: &mut State, key: KeyId) {
    let mut granted = 0;
    while let Some(head) = state.keys[key].queue.first() {
        if !state.may_follow(key, state.waiters[head].want.claim) {
            return;
        }
        if granted == GRANTS_PER_STEP {
            return state.unserved.push_back(key);
        }
        granted += 1;
        let Waiter { conn, want, since, blocked, two_phase, .. } = take(state, head);
        let id = grant(state, key, conn, want, since);
        if blocked {
            if two_phase {
                state.end_two_phase(conn, key);
            }
            let grant = announce(state, id);
            state.answer(conn, Answer::Granted(grant));
        } else {
            state.holders[id].two_phase = true;
            state.begin_two_phase(conn, key, TwoPhase { ttl: want.ttl, phase: Phase::Granted(id) });
        }
    }
}

/// Continues with a queue that was too long for one step.
pub(super) fn serve_more(state: &mut State) {
    let key = state.unserved.pop_front();
    if let Some(key) = key.filter(|key| state.keys.entries.get(*key).is_some()) {
        serve(state, key);
    }
}

/// Serves all queues that filled up while nothing was granted.
pub(super) fn serve_all(state: &mut State) {
    let keys = state.keys.entries.iter().filter(|(_, entry)| !entry.queue.is_empty());
    for key in keys.map(|(key, _)| key).collect::<Vec<_>>() {
        serve(state, key);
    }
}

/// Frees a slot and hands it to the head of the queue. If the record has no more room, each hold that ends makes room
/// for one, so readers get the lock one after the other.
pub(super) fn free(state: &mut State, id: HolderId) {
    let room = state.record_room;
    state.record_room = room.saturating_add(1);
    let key = remove(state, id);
    serve(state, key);
    state.record_room = room.min(state.record_room);
    state.keys.settle(state.now, key);
}

/// Releases a hold because its connection has ended, or does not know of it.
pub(super) fn release_of_conn(state: &mut State, id: HolderId) {
    state.counters.disconnect_releases += 1;
    free(state, id);
}

/// Ends a hold because its lease is over.
fn expire(state: &mut State, id: HolderId) {
    state.counters.expiries += 1;
    let Hold { serial, key, .. } = state.holders[id];
    let key = state.keys[key].name[..].into();
    state.effects.push_back(Effect::Expired { serial, key });
    mark_lost(state, id);
    free(state, id);
}

/// Ends a hold if its lease is over. That may be the case a moment before its timer fires.
pub(super) fn expire_due(state: &mut State, id: HolderId) -> bool {
    let is_due = state.holders[id].expires <= state.now;
    if is_due {
        expire(state, id);
    }
    is_due
}

/// Serves due timers. A timer that was set for an earlier entry in its place fires too early, and is set anew. So
/// everything happens in the order of its time.
pub(super) fn serve_timers(state: &mut State) {
    while let Some((at, alarm)) = state.timers.pop(state.now) {
        let due = match alarm {
            Alarm::Hold(id) => state.holders.get(id).map_or(Moment::NEVER, Hold::due),
            Alarm::Open => state.closed_until,
            Alarm::Wait(id) => state.waiters.get(id).map_or(Moment::NEVER, |waiter| waiter.until),
        };
        match alarm {
            _ if at < due => state.timers.arm(alarm, due),
            Alarm::Hold(id) if state.holders[id].expires <= state.now => expire(state, id),
            Alarm::Hold(id) if state.holders[id].lapses <= state.now => release_of_conn(state, id),
            Alarm::Hold(id) => note_left(state, id),
            Alarm::Open => serve_all(state),
            Alarm::Wait(id) => end_wait(state, id, Answer::TimedOut),
        }
    }
}
