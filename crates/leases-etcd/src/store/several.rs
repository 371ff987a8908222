//! The request `al`: tickets of several keys, made together, all of them holds at once.

use super::Inner;
use super::asking::{Made, Want};
use super::batch::Haste;
use super::calls::BUDGET_MICROS;
use super::holding::MOST_TRIES;
use super::keys::Stage;
use super::rpc::TxnResponse;
use super::together::{Together, create_all, read_created_all};
use super::txn::{self, Session};
use leases::{Answer, ConnId, Grant, Moment, Refusal};
use std::sync::Arc;

impl Inner {
    pub(super) async fn acquire_all(self: Arc<Self>, id: ConnId, wants: Vec<Want>) {
        let answer = match self.try_acquire_all(&wants).await {
            Ok(Some(grants)) => Answer::All(grants),
            Ok(None) => Answer::TimedOut,
            Err(refusal) => Answer::Refused(refusal),
        };
        self.answer(id, answer);
    }

    /// A grant for each key, or `None` if one of the keys is in use.
    async fn try_acquire_all(
        self: &Arc<Self>,
        wants: &[Want],
    ) -> Result<Option<Box<[Grant]>>, Refusal> {
        let until = self.now().after_micros(BUDGET_MICROS);
        for _ in 0..MOST_TRIES {
            let session = self.session(until).await?;
            let Some((made, together)) = self.create_all(wants, session, until).await? else {
                continue;
            };
            match together {
                Together::NoSession => self.session_is_gone(session, until).await?,
                Together::InUse => return Ok(None),
                Together::Held { new, keys } => {
                    let new: Vec<Arc<[u8]>> = new
                        .iter()
                        .filter_map(|at| Some(Arc::clone(&wants.get(*at)?.key)))
                        .collect();
                    let revision = made.first().map_or(0, |made| made.create);
                    let has_room = if new.is_empty() || self.has_room(revision, keys, until).await {
                        Ok(true)
                    } else {
                        self.make_room(&new).await
                    };
                    if has_room == Ok(true) {
                        return self.hold_all(wants, &made).await.map(Some);
                    }
                    self.take_back_keys(wants, &made, &new, until).await?;
                    return Err(has_room.err().unwrap_or(Refusal::MaxLocks));
                }
            }
        }
        Err(Refusal::Unavailable)
    }

    async fn create_all(
        self: &Arc<Self>,
        wants: &[Want],
        session: Session,
        until: Moment,
    ) -> Result<Option<(Vec<Made>, Together)>, Refusal> {
        // They are all the same except for the key.
        let Some(held) = wants.first().map(|want| want.ticket(self, Stage::Held).write()) else {
            return Ok(None);
        };
        let tickets: Vec<(Arc<[u8]>, u64)> =
            wants.iter().map(|want| (Arc::clone(&want.key), super::random())).collect();
        let counts = !self.state().crowd.will_have_room(self.caps.max_locks);
        let front = self.names.front(self.front);
        let request = create_all(&self.names, &front, session, &tickets, &held, counts);
        let many = tickets.len();
        let read = move |answer: &TxnResponse| read_created_all(many, answer);
        self.make(request, Haste::Now, session, tickets, until, read).await
    }

    /// All tickets are holds. If the client cannot be told of one of them any more, it is told of none.
    async fn hold_all(
        self: &Arc<Self>,
        wants: &[Want],
        made: &[Made],
    ) -> Result<Box<[Grant]>, Refusal> {
        for (want, made) in wants.iter().zip(made) {
            self.keep_hold(want, made);
        }
        let mut grants = Vec::with_capacity(made.len());
        for one in made {
            match self.tell(one.nonce, one.sent).await {
                Ok(grant) => grants.push(grant),
                Err(refusal) => {
                    made.iter().for_each(|made| self.abandon(made.nonce));
                    return Err(refusal);
                }
            }
        }
        Ok(grants.into())
    }

    /// There are too many keys: removes all the tickets, and the new keys that no other client uses.
    async fn take_back_keys(
        self: &Arc<Self>,
        wants: &[Want],
        made: &[Made],
        new: &[Arc<[u8]>],
        until: Moment,
    ) -> Result<(), Refusal> {
        let tickets = wants.iter().zip(made);
        let tickets = tickets.map(|(want, made)| (Arc::clone(&want.key), made.nonce)).collect();
        Arc::clone(self).bury(tickets, until).await?;
        let revision = made.first().map_or(0, |made| made.create);
        for key in new {
            self.again(txn::forget(&self.names, key, revision), until).await?;
        }
        Ok(())
    }
}
