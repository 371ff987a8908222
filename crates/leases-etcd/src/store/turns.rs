//! Turns waiting tickets of this front-end into holds when the copy of their key shows that it is their turn.

use super::Inner;
use super::calls::BUDGET_MICROS;
use super::mine::{End, Known, Mine, Place};
use super::seats::Phase;
use super::state::State;
use super::txn::{Changed, Guard, Next};
use leases::{Moment, Refusal};
use std::sync::Arc;

impl Inner {
    /// Finds the next holder of a key after it has changed.
    pub(super) fn take_turns(self: &Arc<Self>, state: &mut State, key: &[u8]) {
        let Some(line) = state.lines.get(key) else { return };
        if !line.mirror.is_complete() {
            return;
        }
        let boundary = line.mirror.boundary(line.limit).unwrap_or(i64::MAX);
        let mut turns = Vec::new();
        let mut lost = Vec::new();
        for (create, nonce) in &line.own {
            if !line.mirror.has(*nonce) {
                // Etcd has reported all changes up to `as_of`, so it removed this ticket with an old session.
                if *create <= line.as_of {
                    lost.push(*nonce);
                }
            } else if *create < boundary {
                turns.push(*nonce);
            } else {
                break;
            }
        }
        for nonce in lost {
            if let Some(mine) = state.withdraw(nonce) {
                end_wait(state, mine, Refusal::Unavailable);
            }
        }
        for nonce in turns {
            let Some(mine) = state.tickets.get_mut(nonce) else { continue };
            if mine.place == Place::Waiting {
                mine.place = Place::Promoting;
                tokio::spawn(Arc::clone(self).promote(nonce));
            }
        }
        let now = self.now();
        if let Some(line) = state.lines.get_mut(key) {
            if !line.own.is_empty() {
                line.idle_since = Moment::NEVER;
            } else if line.idle_since == Moment::NEVER {
                line.idle_since = now;
            }
        }
    }

    /// Records in etcd that a ticket of ours has its turn.
    async fn promote(self: Arc<Self>, nonce: u64) {
        let until = self.now().after_micros(BUDGET_MICROS);
        loop {
            let Some((known, value)) = self.to_promote(nonce) else { return };
            let Known { key, revision, create } = known;
            let name = self.names.ticket(&key, nonce);
            let sent = self.now();
            match self.rewrite(&name, Guard::Mod(revision), value, 0, until).await {
                Ok(Changed::Done(revision)) => {
                    self.promoted(nonce, revision, sent);
                    break;
                }
                Ok(Changed::Other(now)) if now.create_revision == create => {
                    if let Some(mine) = self.state().tickets.get_mut(nonce) {
                        mine.revision = now.mod_revision;
                    }
                }
                Ok(Changed::Other(_) | Changed::Gone | Changed::Vanished) => {
                    let mut state = self.state();
                    if let Some(mine) = state.drop_ticket(nonce) {
                        end_wait(&mut state, mine, Refusal::Unavailable);
                    }
                    break;
                }
                Err(refusal) => {
                    self.give_up_turn(nonce, refusal);
                    break;
                }
            }
        }
        self.stir();
    }

    fn to_promote(&self, nonce: u64) -> Option<(Known, Vec<u8>)> {
        let state = self.state();
        let mine = state.tickets.get(nonce).filter(|mine| mine.place == Place::Promoting)?;
        let value = mine.ticket.held().write();
        Some((mine.known(), value))
    }

    /// A ticket of ours has become a hold by a write sent at `sent`.
    pub(super) fn promoted(self: &Arc<Self>, nonce: u64, revision: i64, sent: Moment) {
        let now = self.now();
        let mut state = self.state();
        let state = &mut *state;
        let Some(mine) = state.tickets.get_mut(nonce) else { return };
        mine.place = Place::Held;
        mine.revision = revision;
        mine.ticket = mine.ticket.held();
        let (key, create, id) = (Arc::clone(&mine.key), mine.create, mine.conn);
        let (waited, ttl) = (now.micros_since(mine.since), mine.ticket.ttl);
        let wake = mine.wake.take();
        let unwanted = mine.unwanted;
        if let Some(line) = state.lines.get_mut(&key) {
            line.own.remove(&create);
        }
        state.tickets.set_lease(nonce, now.after(ttl.span()));
        state.changes += 1;
        state.counters.grants += 1;
        state.counters.waits.record(waited);
        let is_here = match state.seats.conn(id) {
            Some(conn) => {
                conn.holds.insert(nonce);
                true
            }
            None => false,
        };
        match wake {
            Some(wake) => {
                let _the_asker_lives_as_long = wake.send(End::Granted(sent));
            }
            None if unwanted || !is_here => self.abandon(nonce),
            None => state.lose_record(id, &key, nonce, Phase::Granted),
        }
        self.take_turns(state, &key);
    }

    /// Etcd cannot be reached while a turn is recorded. The ticket may be a hold now, and no client will be told.
    fn give_up_turn(self: &Arc<Self>, nonce: u64, refusal: Refusal) {
        let now = self.now();
        let mut state = self.state();
        let Some(mine) = state.tickets.get_mut(nonce) else { return };
        mine.place = Place::Held;
        let (key, create, id, ttl) =
            (Arc::clone(&mine.key), mine.create, mine.conn, mine.ticket.ttl);
        if let Some(wake) = mine.wake.take() {
            let _the_asker_lives_as_long = wake.send(End::Refused(refusal));
        }
        if let Some(line) = state.lines.get_mut(&key) {
            line.own.remove(&create);
        }
        state.lose_record(id, &key, nonce, Phase::Forgotten);
        state.tickets.set_lease(nonce, now.after(ttl.span()));
        self.abandon(nonce);
    }

    /// The ticket of ours that becomes a holder when this one goes; it has its turn from now on.
    pub(super) fn next_in_line(
        &self,
        state: &mut State,
        key: &[u8],
        leaving: u64,
    ) -> Option<(u64, Next)> {
        let line = state.lines.get(key).filter(|line| line.mirror.is_complete())?;
        let nonce = line.mirror.next_after(leaving, line.limit)?;
        let mine = state.tickets.get_mut(nonce).filter(|mine| mine.place == Place::Waiting)?;
        mine.place = Place::Promoting;
        let held = mine.ticket.held().write();
        Some((nonce, Next { name: self.names.ticket(key, nonce), revision: mine.revision, held }))
    }

    /// The turn was not recorded together with the end of the hold before it; the mirror will show it. While the
    /// ticket had its turn, nothing could end its wait, so that is done now.
    pub(super) fn not_yet(self: &Arc<Self>, nonce: u64) {
        let mut state = self.state();
        let Some(mine) = state.tickets.get_mut(nonce) else { return };
        if mine.place == Place::Promoting {
            mine.place = Place::Waiting;
        }
        let key = Arc::clone(&mine.key);
        match state.why_not_wait(nonce) {
            None => self.take_turns(&mut state, &key),
            Some(refusal) => {
                if let Some(mine) = state.withdraw(nonce) {
                    self.remove_later(&state, &mine);
                    end_wait(&mut state, mine, refusal);
                }
            }
        }
    }
}

/// Tells the request that waits for this ticket that its place is lost.
pub(super) fn end_wait(state: &mut State, mine: Mine, refusal: Refusal) {
    match mine.wake {
        Some(wake) => {
            let _the_asker_lives_as_long = wake.send(End::Refused(refusal));
        }
        None => state.lose_record(mine.conn, &mine.key, mine.nonce, Phase::Forgotten),
    }
}

#[cfg(test)]
#[path = "turns_tests.rs"]
mod tests;
