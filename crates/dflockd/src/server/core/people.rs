//! State for people rather than for locks: names of connections, actions of administrators, and delays for
//! clients that guess secrets.

use super::Core;
use crate::server::access::AuthToken;
use crate::server::store::Forced;
use leases::journal::Mark;
use leases::{ConnId, Key, Label, Moment, Token, Unreachable};
use std::sync::Arc;

/// The time between two answers to wrong secrets: a hundred answers a second, for all clients together.
const PENALTY_STEP_MICROS: u64 = 10_000;
/// The longest delay of such an answer.
const PENALTY_MOST_MICROS: u64 = 20_000_000;

impl Core {
    pub(in crate::server) fn is_kicked(&mut self, id: ConnId) -> bool {
        self.seat(id).is_some_and(|seat| seat.kicked)
    }

    /// Ends a connection when it is idle next.
    pub(in crate::server) fn kick(&mut self, serial: u64) -> bool {
        let seat = self.seats.iter_mut().flatten().find(|seat| seat.serial == serial);
        let Some(seat) = seat else { return false };
        seat.kicked = true;
        if let Some(waker) = &seat.waker {
            waker.wake_by_ref();
        }
        true
    }

    pub(in crate::server) fn hear_lost(&mut self, id: ConnId, hears_lost: bool) {
        if let Some(seat) = self.seat(id) {
            seat.hears_lost = hears_lost;
        }
    }

    /// A hold was taken from a connection: its deadline is now, so that it says so.
    pub(in crate::server) fn note_lost(&mut self, id: ConnId, token: Token) {
        let Some(seat) = self.seat(id).filter(|seat| seat.hears_lost) else { return };
        seat.lost.push(token);
        self.set_deadline(id, Moment::from_micros(0));
        self.wake(id);
    }

    /// The holds of which its client is to be told, once.
    pub(in crate::server) fn take_lost(&mut self, id: ConnId) -> Vec<Token> {
        self.seat(id).map(|seat| std::mem::take(&mut seat.lost)).unwrap_or_default()
    }

    /// Takes away all holds of a key; returns when their number may be reported, too.
    pub(in crate::server) fn force_release(
        &mut self,
        now: Moment,
        key: Key<'_>,
    ) -> Result<(Forced, Option<Mark>), Unreachable> {
        if !self.recording.commits.has_term() {
            return Err(Unreachable);
        }
        let forced = self.store.force_release(now, key);
        self.deliver(now);
        self.rearm();
        Ok((forced, self.mark()))
    }

    /// The time of the answer to a client that shows a wrong secret now. Such answers are delayed and given one after
    /// another, however many clients try at the same time.
    pub(in crate::server) fn penalty(&mut self, now: Moment) -> Moment {
        let after_last = self.last_penalty.after_micros(PENALTY_STEP_MICROS);
        let most = now.after_micros(PENALTY_MOST_MICROS);
        let due = now.after_micros(AuthToken::COOL_DOWN_MICROS).max(after_last).min(most);
        self.last_penalty = due;
        due
    }

    /// The description that a connection gives of itself.
    pub(in crate::server) fn label(&self, id: ConnId) -> Option<&Arc<Label>> {
        let seat = self.seats.get(id.place())?.as_ref().filter(|seat| seat.id == id)?;
        seat.label.as_ref()
    }
}
