//! The end of a connection, and holds that are taken away. Pure.

use super::holding;
use super::keys::KeyEntry;
use super::queue;
use super::request::{AutoRelease, Effect};
use super::state::{Conn, Enqueued, Holder, Phase, State};
use super::table::Id;
use super::terms::Token;

/// Withdraws a blocked wait: its place becomes free, and no answer will come.
pub(super) fn cancel(state: &mut State, conn: Id<Conn>) {
    if let Some(waiter) = state.conns[conn].blocked {
        queue::leave(state, waiter);
    }
}

/// Removes the entries of a connection that has ended: its waits and requests of `e` in any case, its holds according
/// to `auto`.
pub(super) fn disconnect(state: &mut State, conn: Id<Conn>, auto: AutoRelease) {
    cancel(state, conn);
    while let Some((&key, &request)) = state.conns[conn].enqueued.first_key_value() {
        abandon(state, conn, key, request);
    }
    while let Some(id) = state.conns[conn].renewed.last().or(state.conns[conn].owned.last()) {
        let standing = state.holders[id].standing;
        match standing.parted(conn, auto, state.caps.disconnect_grace) {
            Some(standing) => holding::stand(state, id, standing),
            None => give_back(state, id),
        }
    }
    state.conns.remove(conn);
}

fn abandon(state: &mut State, conn: Id<Conn>, key: Id<KeyEntry>, request: Enqueued) {
    state.dequeue(conn, key);
    match request.phase {
        Phase::Queued(waiter) => drop(queue::leave(state, waiter)),
        // No client has seen this token, so no client could ever release the hold.
        Phase::Granted(id) => give_back(state, id),
        Phase::Acquired(_) | Phase::Lost => {}
    }
}

/// Frees a hold that was granted to a connection but never announced to it.
pub(super) fn take_back(state: &mut State, conn: Id<Conn>, token: Token) {
    let found = state.conns[conn].owned.find(token.fence());
    if let Some(id) = found.filter(|id| state.holders[*id].token == token) {
        holding::dequeue(state, id);
        give_back(state, id);
    }
}

fn give_back(state: &mut State, id: Id<Holder>) {
    state.counters.disconnect_releases += 1;
    queue::free(state, id);
}

/// Takes away all holds of a key, of every owner; returns how many.
pub(super) fn force_release(state: &mut State, key: Id<KeyEntry>) -> usize {
    let holds: Vec<Id<Holder>> = state.keys[key].holders.iter().rev().collect();
    for &id in &holds {
        state.counters.releases += 1;
        let Holder { standing, token, .. } = state.holders[id];
        for conn in [standing.owner, standing.renewer].into_iter().flatten() {
            let conn = state.conn_id(conn);
            state.effects.push_back(Effect::Taken(conn, token));
        }
        holding::mark_lost(state, id);
        queue::free(state, id);
    }
    holds.len()
}
