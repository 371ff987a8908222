//! What a connection leaves behind: its places go, its holds are given back or become its renewer's.

use super::Inner;
use super::calls::BUDGET_MICROS;
use super::holding::MOST_TRIES;
use super::keys::Party;
use super::ownership::Parting;
use super::state::{Conn, Departure, Known, Phase, Place, Remains};
use super::txn::{self, Changed, Guard};
use crate::engine::{AutoRelease, ConnId, Effect, Seconds};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Holds of one connection given back at once.
const AT_ONCE: usize = 200;

/// Whether a hold that nobody owns any more stays for a while yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grace {
    Given,
    Over,
}

impl Inner {
    /// A connection is leaving: what it has is settled when its last request is.
    pub(super) async fn leave(self: Arc<Self>, id: ConnId, auto: AutoRelease) {
        let idle = self.state().conn(id).map(|conn| Arc::clone(&conn.idle));
        let Some(idle) = idle else { return };
        while self.state().conn(id).is_some_and(|conn| conn.busy) {
            idle.notified().await;
        }
        let remains = self.state().conn(id).map(Conn::take_remains);
        if let Some(remains) = remains {
            self.settle(remains, auto).await;
        }
        {
            let mut state = self.state();
            if let Some(conn) = state.conn(id) {
                conn.departure = Departure::Left;
            }
            state.effects.push_back(Effect::Wake(id));
        }
        self.stir();
    }

    /// Gives back, or hands to the renewer, what a connection had.
    pub(super) async fn settle(self: &Arc<Self>, remains: Remains, auto: AutoRelease) {
        let who = Party { front: self.front, serial: remains.serial };
        let mut tasks = JoinSet::new();
        let mut unseen: Vec<u64> = remains.untold;
        for record in remains.records.into_values() {
            match record.phase {
                Phase::Queued | Phase::Granted => unseen.push(record.nonce),
                Phase::Asked | Phase::Acquired | Phase::Lost | Phase::Forgotten => {}
            }
        }
        for nonce in unseen.iter().copied() {
            self.room(&mut tasks).await;
            tasks.spawn(Arc::clone(self).discard(nonce));
        }
        for nonce in remains.holds {
            if !unseen.contains(&nonce) {
                self.room(&mut tasks).await;
                tasks.spawn(Arc::clone(self).part(nonce, who, auto, Grace::Given));
            }
        }
        while tasks.join_next().await.is_some() {}
    }

    async fn room(&self, tasks: &mut JoinSet<()>) {
        while tasks.len() >= AT_ONCE && tasks.join_next().await.is_some() {}
    }

    /// Ends a ticket nobody has seen: a place in the queue, or a grant.
    async fn discard(self: Arc<Self>, nonce: u64) {
        let withdrawn = {
            let mut state = self.state();
            let withdrawn = state.withdraw(nonce);
            if withdrawn.is_none() {
                if let Some(mine) = state.tickets.get_mut(&nonce) {
                    mine.unwanted = true;
                    if mine.place == Place::Promoting {
                        return;
                    }
                }
            }
            withdrawn
        };
        match withdrawn {
            Some(mine) => {
                let _the_session_ends_it_otherwise = self.remove_ticket(&mine).await;
            }
            None => self.give_back(nonce).await,
        }
    }

    /// After the grace, if nobody has renewed the hold, it is given back.
    fn part_later(self: &Arc<Self>, nonce: u64, who: Party, auto: AutoRelease) {
        let grace = Duration::from_secs(self.caps.disconnect_grace.count());
        let inner = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(grace).await;
            // In a task of its own type: this one began in `part`.
            let end: Pin<Box<dyn Future<Output = ()> + Send>> =
                Box::pin(inner.part(nonce, who, auto, Grace::Over));
            end.await;
        });
    }

    /// What the end of a connection means for one hold.
    async fn part(self: Arc<Self>, nonce: u64, who: Party, auto: AutoRelease, grace: Grace) {
        for _ in 0..MOST_TRIES {
            let found = {
                let state = self.state();
                let Some(mine) = state.tickets.get(&nonce) else { return };
                let parting = mine.ticket.parted(who, auto, |party| state.lives(party));
                (mine.known(), parting)
            };
            let (Known { key, revision, create }, parting) = found;
            let until = self.now().after_micros(BUDGET_MICROS);
            let result = match parting {
                Parting::Keep => return,
                Parting::End
                    if grace == Grace::Given && self.caps.disconnect_grace > Seconds::ZERO =>
                {
                    return self.part_later(nonce, who, auto);
                }
                Parting::End => self.end(&key, nonce, Guard::Mod(revision), until).await,
                Parting::Write(ticket) => {
                    let name = self.names.ticket(&key, nonce);
                    let rewrite = txn::rewrite(&name, Guard::Mod(revision), ticket.write(), 0);
                    let result = self.change(rewrite, until).await;
                    if let Ok(Changed::Done(revision)) = result {
                        return self.state().learn(nonce, revision, ticket);
                    }
                    result
                }
            };
            match result {
                Ok(Changed::Done(_) | Changed::Vanished) => {
                    self.state().counters.disconnect_releases += 1;
                    self.let_go(nonce);
                    return self.stir();
                }
                Ok(Changed::Other(found)) if found.create_revision == create => {
                    self.learn(nonce, &found);
                }
                Ok(Changed::Other(_) | Changed::Gone) => return drop(self.let_go(nonce)),
                // The end of its lease sees to it.
                Err(_) => return,
            }
        }
    }
}
