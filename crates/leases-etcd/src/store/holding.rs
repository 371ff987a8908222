//! Changes of holds: release, renewal, and the end of a lease.

use super::Inner;
use super::calls::{BUDGET_MICROS, PAUSE};
use super::keys::{Party, Stage, Ticket};
use super::mine::{Ends, Known, Mine, Place};
use super::orphans::ANSWER_MICROS;
use super::rpc::{KeyValue, RangeRequest};
use super::seats::Phase;
use super::state::State;
use super::txn::{self, Changed, Guard};
use leases::{Answer, ConnId, Effect, Grant, Moment, Refusal, Token, Ttl};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// How often others may write the same ticket between our read and our write.
pub(super) const MOST_TRIES: usize = 16;
/// Why a hold is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Lease,
    /// The grace after its owner has gone.
    Grace,
}

/// The pause after an end that could not be recorded.
const RETRY_MICROS: u64 = 1_000_000;

impl Inner {
    pub(super) async fn release(self: Arc<Self>, id: ConnId, key: Arc<[u8]>, token: Token) {
        let answer = self.try_release(&key, token).await.unwrap_or_else(Answer::Refused);
        self.answer(id, answer);
    }

    async fn try_release(
        self: &Arc<Self>,
        key: &Arc<[u8]>,
        token: Token,
    ) -> Result<Answer, Refusal> {
        let until = self.now().after_micros(BUDGET_MICROS);
        let (nonce, create) = (token.salt(), revision_of(token).ok_or(Refusal::NotHeld)?);
        let is_known = self.look_up(key, token, until).await?;
        let changed = self.end(key, nonce, Guard::Create(create), until).await?;
        self.let_go(nonce);
        match changed {
            Changed::Done(_) => Ok(Answer::Released),
            // It was a hold a moment ago.
            Changed::Vanished if is_known => Ok(Answer::Released),
            // It may have been one, ended by an earlier attempt with a lost answer.
            Changed::Vanished => Err(Refusal::Unavailable),
            Changed::Gone | Changed::Other(_) => Err(Refusal::NotHeld),
        }
    }

    /// Whether the token's hold is in our tables. Their data may be old: a hold that is over by them is ended
    /// first, unless etcd has newer data.
    async fn look_up(
        self: &Arc<Self>,
        key: &[u8],
        token: Token,
        until: Moment,
    ) -> Result<bool, Refusal> {
        let nonce = token.salt();
        let is_due = {
            let state = self.state();
            let Some(mine) = state.tickets.get(nonce) else { return Ok(false) };
            // No client was told such a token.
            if *mine.key != *key || mine.grant().token != token || mine.place != Place::Held {
                return Err(Refusal::NotHeld);
            }
            mine.ends.first() <= self.now()
        };
        if is_due {
            self.end_due(nonce, until).await?;
        }
        Ok(self.state().tickets.contains_key(nonce))
    }

    /// Removes a ticket, and gives its slot to the next ticket if that one is ours.
    pub(super) async fn end(
        self: &Arc<Self>,
        key: &Arc<[u8]>,
        nonce: u64,
        guard: Guard,
        until: Moment,
    ) -> Result<Changed, Refusal> {
        let name = self.names.ticket(key, nonce);
        let next = self.next_in_line(&mut self.state(), key, nonce);
        let Some((next_nonce, next)) = next else {
            return self.change(txn::remove(&name, guard), until).await;
        };
        let sent = self.now();
        let result = self.again(txn::hand_over(&name, guard, next), until).await;
        match &result {
            Ok(answered) if txn::is_handed_over(&answered.answer) => {
                let revision = answered.answer.header.map_or(0, |header| header.revision);
                self.promoted(next_nonce, revision, sent);
            }
            Ok(_) | Err(_) => self.not_yet(next_nonce),
        }
        result?.changed()
    }

    /// A ticket is gone: removes it from our tables, and serves the tickets behind it.
    pub(super) fn let_go(self: &Arc<Self>, nonce: u64) -> Option<Mine> {
        let mut state = self.state();
        let mine = state.drop_ticket(nonce)?;
        state.note_left(&mine.key, self.now());
        state.forget_record(mine.conn, &mine.key, nonce);
        self.take_turns(&mut state, &mine.key);
        Some(mine)
    }

    pub(super) async fn renew(
        self: Arc<Self>,
        id: ConnId,
        serial: u64,
        key: Arc<[u8]>,
        token: Token,
        ttl: Ttl,
    ) {
        let answer = match self.try_renew(id, serial, &key, token, ttl).await {
            Ok(grant) => Answer::Renewed(grant.ttl),
            Err(refusal) => Answer::Refused(refusal),
        };
        self.answer(id, answer);
    }

    async fn try_renew(
        self: &Arc<Self>,
        id: ConnId,
        serial: u64,
        key: &Arc<[u8]>,
        token: Token,
        ttl: Ttl,
    ) -> Result<Grant, Refusal> {
        let (nonce, until) = (token.salt(), self.now().after_micros(BUDGET_MICROS));
        self.look_up(key, token, until).await?;
        // Before the write, because the end may come while the write is under way.
        if let Some(conn) = self.state().seats.conn(id) {
            conn.holds.insert(nonce);
        }
        let who = Party { front: self.front, serial };
        let result = self.write_lease(id, key, token, who, ttl, until).await;
        if result == Err(Refusal::NotHeld) {
            if let Some(conn) = self.state().seats.conn(id) {
                conn.holds.remove(&nonce);
            }
        }
        result
    }

    /// Adds a hold of another front-end to our tables, without its lease.
    async fn adopt(
        self: &Arc<Self>,
        id: ConnId,
        key: &Arc<[u8]>,
        token: Token,
        until: Moment,
    ) -> Result<(), Refusal> {
        let create = revision_of(token).ok_or(Refusal::NotHeld)?;
        let name = self.names.ticket(key, token.salt());
        let found =
            self.range(RangeRequest { key: name, ..RangeRequest::default() }, until).await?;
        let found = found.kvs.first().filter(|found| found.create_revision == create);
        let found = found.ok_or(Refusal::NotHeld)?;
        let ticket = Ticket::read(&found.value).filter(|it| it.stage == Stage::Held);
        let ticket = ticket.ok_or(Refusal::NotHeld)?;
        let mut state = self.state();
        let mine = Mine {
            key: Arc::clone(key),
            nonce: token.salt(),
            create,
            revision: found.mod_revision,
            ticket,
            place: Place::Held,
            conn: id,
            since: self.now(),
            ends: Ends::NEVER,
            wake: None,
            unwanted: false,
        };
        if !state.tickets.contains_key(mine.nonce) {
            state.tickets.insert(mine);
        }
        Ok(())
    }

    /// Restarts the lease of a hold in our tables, for `who`.
    pub(super) async fn extend(
        self: &Arc<Self>,
        nonce: u64,
        who: Party,
        ttl: Ttl,
    ) -> Result<Grant, Refusal> {
        let until = self.now().after_micros(BUDGET_MICROS);
        let found = {
            let state = self.state();
            let mine = state.tickets.get(nonce);
            mine.map(|mine| (mine.conn, Arc::clone(&mine.key), mine.grant().token))
        };
        let (id, key, token) = found.ok_or(Refusal::NotHeld)?;
        self.look_up(&key, token, until).await?;
        self.write_lease(id, &key, token, who, ttl, until).await
    }

    /// Writes a new lease. Etcd's answer says whether the ticket is a hold.
    async fn write_lease(
        self: &Arc<Self>,
        id: ConnId,
        key: &Arc<[u8]>,
        token: Token,
        who: Party,
        ttl: Ttl,
        until: Moment,
    ) -> Result<Grant, Refusal> {
        let nonce = token.salt();
        for _ in 0..MOST_TRIES {
            let Some((Known { revision, create, .. }, wanted)) = self.to_renew(nonce, who, ttl)
            else {
                self.adopt(id, key, token, until).await?;
                continue;
            };
            let name = self.names.ticket(key, nonce);
            let sent = self.now();
            match self.rewrite(&name, Guard::Mod(revision), wanted.write(), 0, until).await? {
                Changed::Done(revision) => {
                    let now = self.now();
                    self.renewed(nonce, revision, wanted, now);
                    if now.micros_since(sent) <= ANSWER_MICROS {
                        return Ok(Grant { token, ttl, expires: now.after(ttl.span()) });
                    }
                }
                Changed::Other(found) if found.create_revision == create => {
                    self.learn(nonce, &found);
                }
                Changed::Other(_) | Changed::Gone | Changed::Vanished => {
                    drop(self.let_go(nonce));
                    return Err(Refusal::NotHeld);
                }
            }
        }
        Err(Refusal::Unavailable)
    }

    /// The new lease may begin in etcd long before that is known here. The timer of the old lease would then find
    /// the changed ticket and end it, so it is postponed first.
    fn to_renew(&self, nonce: u64, who: Party, ttl: Ttl) -> Option<(Known, Ticket)> {
        let mut state = self.state();
        state.tickets.put_off(nonce, self.now().after(ttl.span()));
        let mine = state.tickets.get(nonce)?;
        let standing = mine.ticket.standing.renewed(who, |party| state.lives(party));
        let ticket = Ticket { keeper: self.front, ttl, ..mine.ticket.clone() };
        Some((mine.known(), ticket.with(standing)))
    }

    fn renewed(&self, nonce: u64, revision: i64, ticket: Ticket, now: Moment) {
        let mut state = self.state();
        state.changes += 1;
        // If it was forgotten meanwhile, the sweep finds it.
        let Some(mine) = state.tickets.get_mut(nonce) else { return };
        // If the revision is the same, another task has read it meanwhile.
        if revision >= mine.revision {
            (mine.revision, mine.ticket) = (revision, ticket.clone());
            state.tickets.set_lease(nonce, now.after(ticket.ttl.span()));
        }
    }

    pub(super) fn learn(&self, nonce: u64, found: &KeyValue) {
        if let Some(ticket) = Ticket::read(&found.value) {
            self.state().learn(nonce, found.mod_revision, ticket);
        }
    }

    /// The time of a hold is over, by our tables.
    pub(super) async fn expire(self: Arc<Self>, nonce: u64) {
        let until = self.now().after_micros(BUDGET_MICROS);
        if self.end_due(nonce, until).await.is_err() {
            let again = self.now().after_micros(RETRY_MICROS);
            let mut state = self.state();
            let first = state.tickets.get(nonce).map(|mine| mine.ends.first());
            state.tickets.ring_at(nonce, first.map_or(again, |first| first.max(again)));
        }
        self.stir();
    }

    /// Ends a hold whose time is over by our tables, unless it was renewed at another front-end.
    async fn end_due(self: &Arc<Self>, nonce: u64, until: Moment) -> Result<(), Refusal> {
        for _ in 0..MOST_TRIES {
            let Some((Known { key, revision, create }, over)) = self.to_end(nonce) else {
                self.state().forget_strange(nonce);
                return Ok(());
            };
            match self.end(&key, nonce, Guard::Mod(revision), until).await? {
                Changed::Other(found) if found.create_revision == create => {
                    self.learn(nonce, &found);
                }
                Changed::Done(_) | Changed::Vanished | Changed::Gone if over == Over::Lease => {
                    self.expired(nonce, &key);
                    return Ok(());
                }
                Changed::Done(_) | Changed::Vanished => {
                    self.state().counters.disconnect_releases += 1;
                    self.let_go(nonce);
                    return Ok(());
                }
                Changed::Gone | Changed::Other(_) => {
                    self.let_go(nonce);
                    return Ok(());
                }
            }
        }
        Err(Refusal::Unavailable)
    }

    fn to_end(&self, nonce: u64) -> Option<(Known, Over)> {
        let state = self.state();
        let mine = state.tickets.get(nonce).filter(|mine| mine.place == Place::Held)?;
        let now = self.now();
        let over = if mine.ends.lease <= now { Over::Lease } else { Over::Grace };
        (mine.ends.first() <= now).then(|| (mine.known(), over))
    }

    fn expired(self: &Arc<Self>, nonce: u64, key: &[u8]) {
        let mut state = self.state();
        let Some(mine) = state.drop_ticket(nonce) else { return };
        state.note_left(&mine.key, self.now());
        state.counters.expiries += 1;
        let serial = mine.ticket.last_owner.serial;
        state.effects.push_back(Effect::Expired { serial, key: key.into() });
        state.lose_record(mine.conn, key, nonce, Phase::Lost);
        self.take_turns(&mut state, key);
    }

    /// Ends a hold that has no front-end any more and is over.
    pub(super) async fn reap(self: Arc<Self>, name: Vec<u8>, revision: i64) {
        let Some((key, nonce)) = self.names.read_ticket(&name) else { return };
        let until = self.now().after_micros(BUDGET_MICROS);
        let remove = txn::remove(&name, Guard::Mod(revision));
        if let Ok(Changed::Done(_)) = self.change(remove, until).await {
            self.let_go(nonce);
            {
                let mut state = self.state();
                state.counters.expiries += 1;
                state.changes += 1;
                state.effects.push_back(Effect::Expired { serial: 0, key: key.into() });
            }
            self.stir();
        }
    }

    /// Releases a hold that no client was told of.
    pub(super) fn abandon(self: &Arc<Self>, nonce: u64) {
        tokio::spawn(Arc::clone(self).give_back(nonce));
    }

    pub(super) async fn give_back(self: Arc<Self>, nonce: u64) {
        let found = {
            let state = self.state();
            state.tickets.get(nonce).map(|mine| (Arc::clone(&mine.key), mine.create))
        };
        let Some((key, create)) = found else { return };
        let until = self.now().after_micros(BUDGET_MICROS);
        // If etcd cannot be reached, the hold ends with its lease.
        if self.end(&key, nonce, Guard::Create(create), until).await.is_ok() {
            self.state().counters.disconnect_releases += 1;
            self.let_go(nonce);
            self.stir();
        }
    }

    /// Removes a waiting ticket that is no longer in our tables.
    pub(super) async fn remove_ticket(self: &Arc<Self>, mine: &Mine) -> Result<(), Refusal> {
        let limit = Duration::from_micros(BUDGET_MICROS);
        let task = self.remove_later(&self.state(), mine);
        tokio::time::timeout(limit, task).await.map(drop).map_err(|_| Refusal::Unavailable)
    }

    /// The same in the background, until it succeeds or the session ends.
    pub(super) fn remove_later(self: &Arc<Self>, state: &State, mine: &Mine) -> JoinHandle<()> {
        let (inner, key) = (Arc::clone(self), Arc::clone(&mine.key));
        let (nonce, create, session) = (mine.nonce, mine.create, state.session);
        tokio::spawn(async move {
            loop {
                let until = inner.now().after_micros(BUDGET_MICROS);
                if inner.end(&key, nonce, Guard::Create(create), until).await.is_ok() {
                    let mut state = inner.state();
                    state.changes += 1;
                    return inner.take_turns(&mut state, &key);
                }
                if inner.state().session != session || inner.is_closed() {
                    return;
                }
                tokio::time::sleep(PAUSE).await;
            }
        })
    }
}

fn revision_of(token: Token) -> Option<i64> {
    i64::try_from(token.fence()).ok().filter(|revision| *revision > 0)
}

#[cfg(test)]
#[path = "holding_tests.rs"]
mod tests;
