//! The end of a connection: its places in queues are removed, and its holds are released or pass to their renewers.

use super::Inner;
use super::calls::BUDGET_MICROS;
use super::holding::MOST_TRIES;
use super::keys::{Party, Ticket};
use super::mine::{Known, Place};
use super::seats::{Conn, Departure, Phase, Remains};
use super::txn::{Changed, Guard};
use leases::ownership::Parting;
use leases::{AutoRelease, ConnId, Effect};
use std::sync::Arc;
use tokio::task::JoinSet;

/// The most holds of one connection that are released at the same time.
const AT_ONCE: usize = 200;

impl Inner {
    /// A connection is leaving. Its entries are settled when its last request is.
    pub(super) async fn leave(self: Arc<Self>, id: ConnId, auto: AutoRelease) {
        let idle = self.state().seats.conn(id).map(|conn| Arc::clone(&conn.idle));
        let Some(idle) = idle else { return };
        while self.state().seats.conn(id).is_some_and(|conn| conn.busy) {
            idle.notified().await;
        }
        let remains = self.state().seats.conn(id).map(Conn::take_remains);
        if let Some(remains) = remains {
            self.settle(remains, auto).await;
        }
        {
            let mut state = self.state();
            if let Some(conn) = state.seats.conn(id) {
                conn.departure = Departure::Left;
            }
            state.effects.push_back(Effect::Wake(id));
        }
        self.stir();
    }

    /// Releases the holds of a connection, or passes them to their renewers.
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
        // Its holds stay without this, and while etcd cannot be reached nobody can be told.
        let is_moot = auto == AutoRelease::Off && self.state().away;
        for nonce in remains.holds {
            if !is_moot && !unseen.contains(&nonce) {
                self.room(&mut tasks).await;
                tasks.spawn(Arc::clone(self).part(nonce, who, auto));
            }
        }
        while tasks.join_next().await.is_some() {}
    }

    async fn room(&self, tasks: &mut JoinSet<()>) {
        while tasks.len() >= AT_ONCE && tasks.join_next().await.is_some() {}
    }

    /// Ends a ticket that no client has seen: a place in the queue, or a grant.
    async fn discard(self: Arc<Self>, nonce: u64) {
        let withdrawn = {
            let mut state = self.state();
            let withdrawn = state.withdraw(nonce);
            if withdrawn.is_none() {
                if let Some(mine) = state.tickets.get_mut(nonce) {
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

    /// Applies the end of a connection to one hold.
    async fn part(self: Arc<Self>, nonce: u64, who: Party, auto: AutoRelease) {
        for _ in 0..MOST_TRIES {
            let Some((Known { key, revision, create }, ticket, parting)) =
                self.to_part(nonce, who, auto)
            else {
                return;
            };
            let (guard, until) = (Guard::Mod(revision), self.now().after_micros(BUDGET_MICROS));
            let result = match parting {
                Parting::Keep => return self.state().forget_strange(nonce),
                Parting::End => self.end(&key, nonce, guard, until).await,
                Parting::Stand(standing) => {
                    let (name, ticket) = (self.names.ticket(&key, nonce), ticket.with(standing));
                    let result = self.rewrite(&name, guard, ticket.write(), 0, until).await;
                    if let Ok(Changed::Done(revision)) = result {
                        return self.restood(nonce, revision, ticket);
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
                // It ends with its lease.
                Err(_) => return,
            }
        }
    }

    fn to_part(
        &self,
        nonce: u64,
        who: Party,
        auto: AutoRelease,
    ) -> Option<(Known, Ticket, Parting<Party>)> {
        let state = self.state();
        let mine = state.tickets.get(nonce)?;
        let grace = self.caps.disconnect_grace;
        let lives = |party| state.lives(party);
        let parting = mine.ticket.standing.parted(who, auto, grace, lives);
        Some((mine.known(), mine.ticket.clone(), parting))
    }

    /// The standing of a hold was written to etcd.
    fn restood(&self, nonce: u64, revision: i64, ticket: Ticket) {
        let now = self.now();
        {
            let mut state = self.state();
            state.restood(now, nonce, revision, ticket);
            state.forget_strange(nonce);
        }
        self.stir();
    }
}
