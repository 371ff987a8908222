//! The queues of the keys: who waits, and who gets a slot that becomes free. Pure.

use super::holding;
use super::state::{Enqueued, Hold, Phase, State, Waiter, Want};
use super::table::{Alarm, ConnAt, HolderId, KeyId, WaiterId};
use super::terms::{Moment, Seconds};
use super::values::{Answer, Effect};

/// Adds a request to the end of the queue.
pub(super) fn join(
    state: &mut State,
    key: KeyId,
    conn: ConnAt,
    want: Want,
    enqueued: bool,
) -> WaiterId {
    state.arrivals += 1;
    let (arrival, since) = (state.arrivals, state.now);
    let until = Moment::NEVER;
    let waiter = Waiter { key, conn, want, arrival, since, until, blocked: false, enqueued };
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

/// Takes a request out of its queue and forgets it, also as one of `e`. The waiters behind a writer that has gone may
/// be readers, which can share with the holders.
pub(super) fn leave(state: &mut State, id: WaiterId) -> Waiter {
    let waiter = take(state, id);
    if waiter.enqueued {
        state.dequeue(waiter.conn, waiter.key);
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
        let Waiter { conn, want, since, blocked, enqueued, .. } = take(state, head);
        let id = holding::grant(state, key, conn, want, since);
        if blocked {
            if enqueued {
                state.dequeue(conn, key);
            }
            let grant = holding::announce(state, id);
            state.answer(conn, Answer::Granted(grant));
        } else {
            state.holders[id].enqueued = true;
            state.enqueue(conn, key, Enqueued { ttl: want.ttl, phase: Phase::Granted(id) });
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

/// Frees a slot and hands it to the head of the queue. If nothing more can be recorded, one hold follows one, so readers
/// get the lock one after the other.
pub(super) fn free(state: &mut State, id: HolderId) {
    let room = state.room;
    state.room = room.saturating_add(1);
    let key = holding::remove(state, id);
    serve(state, key);
    state.room = room.min(state.room);
    state.keys.settle(state.now, key);
}

/// Ends a hold because its connection has ended, or was not told of it.
pub(super) fn give_back(state: &mut State, id: HolderId) {
    state.counters.disconnect_releases += 1;
    free(state, id);
}

/// Ends a hold because its lease is over.
fn expire(state: &mut State, id: HolderId) {
    state.counters.expiries += 1;
    let Hold { serial, key, .. } = state.holders[id];
    let key = state.keys[key].name[..].into();
    state.effects.push_back(Effect::Expired { serial, key });
    holding::mark_lost(state, id);
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

/// Serves due timers. One that fires for an earlier entry of its place is set anew, so all comes in the order of its time.
pub(super) fn ring(state: &mut State) {
    while let Some((at, alarm)) = state.timers.pop(state.now) {
        let due = match alarm {
            Alarm::Hold(id) => state.holders.get(id).map_or(Moment::NEVER, Hold::due),
            Alarm::Open => state.closed_until,
            Alarm::Wait(id) => state.waiters.get(id).map_or(Moment::NEVER, |waiter| waiter.until),
        };
        match alarm {
            _ if at < due => state.timers.arm(alarm, due),
            Alarm::Hold(id) if state.holders[id].expires <= state.now => expire(state, id),
            Alarm::Hold(id) if state.holders[id].lapses <= state.now => give_back(state, id),
            Alarm::Hold(id) => holding::note_left(state, id),
            Alarm::Open => serve_all(state),
            Alarm::Wait(id) => end_wait(state, id, Answer::TimedOut),
        }
    }
}
