//! Places in queues: a waiting ticket stands in the queue of its key until its turn comes or its time is up.

use super::Inner;
use super::asking::{Made, Patience, Want};
use super::calls::PAUSE;
use super::keys::Party;
use super::mine::{End, Place};
use super::seats::{Departure, Phase};
use super::state::State;
use leases::{Answer, ConnId, Grant, Moment, Refusal, Ttl};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

impl Inner {
    /// Registers a waiting ticket here; the mirror of its key shows when its turn comes.
    pub(super) fn stand_in_line(
        self: &Arc<Self>,
        want: &Want,
        made: &Made,
    ) -> Result<Option<oneshot::Receiver<End>>, Refusal> {
        let mut state = self.state();
        let here = state.seats.conn(want.id).is_some_and(|c| c.departure == Departure::Here);
        let mut mine = self.mine(want, made, Place::Waiting);
        if state.draining || !here {
            self.remove_later(&state, &mine);
            return Err(Refusal::Draining);
        }
        let waiter = match want.patience {
            Patience::Enqueue => {
                self.note_record(&mut state, want, made.nonce, Phase::Queued);
                None
            }
            Patience::Try | Patience::Until(_) => {
                let (wake, waiter) = oneshot::channel();
                mine.wake = Some(wake);
                mine.since = want.asked;
                if let Some(conn) = state.seats.conn(want.id) {
                    conn.blocked = Some(made.nonce);
                }
                Some(waiter)
            }
        };
        let line = state.lines.open(&self.names, &want.key, want.claim.limit());
        line.own.insert(made.create, made.nonce);
        state.keep(mine);
        self.take_turns(&mut state, &want.key);
        Ok(waiter)
    }

    /// Waits for the turn of a ticket.
    pub(super) async fn wait_turn(
        self: &Arc<Self>,
        nonce: u64,
        mut waiter: oneshot::Receiver<End>,
        end: Moment,
    ) -> Result<Option<Grant>, Refusal> {
        let mut left = Duration::from_micros(end.micros_since(self.now()));
        let ended = loop {
            if let Ok(ended) = tokio::time::timeout(left, &mut waiter).await {
                break ended;
            }
            let withdrawn = self.state().withdraw(nonce);
            if let Some(mine) = withdrawn {
                self.remove_ticket(&mine).await?;
                return Ok(None);
            }
            // It has its turn. A grant wins over the end of the wait, but the turn may still fail.
            left = PAUSE;
        };
        match ended {
            Ok(End::Granted(sent)) => self.tell(nonce, sent).await.map(Some),
            Ok(End::Refused(refusal)) => Err(refusal),
            Err(_) => Err(Refusal::Unavailable),
        }
    }

    /// From now on, a request waits for the end of this ticket's wait.
    fn block(&self, state: &mut State, nonce: u64) -> Option<(Arc<[u8]>, oneshot::Receiver<End>)> {
        let mine = state.tickets.get_mut(nonce)?;
        let (wake, waiter) = oneshot::channel();
        mine.since = self.now();
        let key = Arc::clone(&mine.key);
        mine.wake = Some(wake);
        Some((key, waiter))
    }

    /// `w` for a place in the queue.
    pub(super) async fn wait(self: Arc<Self>, id: ConnId, nonce: u64, end: Moment) {
        let waiter = {
            let mut state = self.state();
            if let Some(conn) = state.seats.conn(id) {
                conn.blocked = Some(nonce);
            }
            self.block(&mut state, nonce)
        };
        let answer = match waiter {
            None => Answer::Refused(Refusal::Unavailable),
            Some((key, waiter)) => {
                let result = self.wait_turn(nonce, waiter, end).await;
                self.state().forget_record(id, &key, nonce);
                match result {
                    Ok(Some(grant)) => Answer::Granted(grant),
                    Ok(None) if self.state().draining => Answer::Refused(Refusal::Draining),
                    Ok(None) => Answer::TimedOut,
                    Err(refusal) => Answer::Refused(refusal),
                }
            }
        };
        self.answer(id, answer);
    }

    /// `w` for a hold that `e` got: its lease starts again.
    pub(super) async fn fetch(self: Arc<Self>, id: ConnId, serial: u64, nonce: u64, ttl: Ttl) {
        let who = Party { front: self.front, serial };
        let lease = self.state().tickets.get(nonce).map(|mine| mine.ends.lease);
        let answer = match self.extend(nonce, who, ttl).await {
            Ok(grant) => Answer::Granted(grant),
            // It was released by its token at another front-end.
            Err(Refusal::NotHeld) if lease.is_some_and(|end| self.now() < end) => {
                Answer::Refused(Refusal::NotEnqueued)
            }
            Err(Refusal::NotHeld) => Answer::Refused(Refusal::LeaseExpired),
            Err(refusal) => Answer::Refused(refusal),
        };
        self.answer(id, answer);
    }
}
