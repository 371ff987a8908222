//! Holds by their tokens, and what happens to them when connections renew them, close, or stay away.
//!
//! Pure.

use super::ownership::{Parting, Standing};
use super::request::{Answer, AutoRelease, ConnId, Effect, Refusal};
use super::slab::Id;
use super::state::{Conn, Engine, Holder};
use super::terms::{Key, Mint, Moment, Token, Ttl};

impl<M: Mint> Engine<M> {
    /// The hold that a token proves at `now`. A hold whose lease is over is ended instead.
    fn live_holder(
        &mut self,
        now: Moment,
        key: Key<'_>,
        token: Option<Token>,
    ) -> Option<Id<Holder>> {
        let key = self.keys.find(key)?;
        let holder = self.find_holder(key, token?)?;
        if self.holders[holder].expires <= now {
            self.expire(now, holder);
            return None;
        }
        Some(holder)
    }

    pub(super) fn release(&mut self, now: Moment, key: Key<'_>, token: Option<Token>) -> Answer {
        let Some(holder) = self.live_holder(now, key, token) else {
            return Answer::Refused(Refusal::NotHeld);
        };
        self.forget_record(now, self.holders[holder].record);
        self.free(now, holder);
        Answer::Released
    }

    pub(super) fn renew(
        &mut self,
        now: Moment,
        conn: Id<Conn>,
        key: Key<'_>,
        token: Option<Token>,
        ttl: Option<Ttl>,
    ) -> Answer {
        let ttl = ttl.unwrap_or(self.caps.default_ttl);
        let Some(holder) = self.live_holder(now, key, token) else {
            return Answer::Refused(Refusal::NotHeld);
        };
        let standing = self.standing(holder).renewed(conn, |_| true);
        self.restand(now, holder, standing);
        self.restart_lease(now, holder, ttl);
        Answer::Renewed(ttl)
    }

    /// Frees a hold that was granted to a connection but never announced to it.
    pub fn take_back(&mut self, now: Moment, conn: ConnId, token: Token) {
        let Some(conn) = self.conn(conn) else { return };
        let is_it = |&id: &Id<Holder>| self.holders[id].token == token;
        let found = self.conns[conn].owned.iter(&self.holders).find(is_it);
        if let Some(id) = found {
            self.counters.disconnect_releases += 1;
            self.free(now, id);
        }
    }

    /// Which connection owns a hold.
    fn standing(&self, id: Id<Holder>) -> Standing<Id<Conn>> {
        let holder = &self.holders[id];
        let grace = (holder.lapses < Moment::NEVER).then_some(self.caps.disconnect_grace);
        Standing { owner: holder.owner.some(), renewer: holder.renewer.some(), grace }
    }

    /// Gives the hold this standing.
    fn restand(&mut self, now: Moment, id: Id<Holder>, standing: Standing<Id<Conn>>) {
        let before = self.standing(id);
        if before.owner != standing.owner {
            self.disown(id);
            if let Some(owner) = standing.owner {
                self.own(id, owner);
            }
        }
        if before.renewer != standing.renewer {
            self.forget_renewer(id);
            if let Some(renewer) = standing.renewer {
                self.holders[id].renewer = renewer;
                self.conns[renewer].renewed.push_front(&mut self.holders, id);
            }
        }
        if before.grace != standing.grace {
            self.holders[id].lapses = standing.lapses(now);
            self.rearm(id);
        }
    }

    /// Makes the connection the owner of the hold.
    fn own(&mut self, id: Id<Holder>, conn: Id<Conn>) {
        self.disown(id);
        self.holders[id].owner = conn;
        self.holders[id].serial = self.conns[conn].serial;
        self.conns[conn].owned.push_front(&mut self.holders, id);
        self.conns[conn].entries += 1;
    }

    /// Takes the hold from its owner, so that no connection owns it.
    pub(super) fn disown(&mut self, id: Id<Holder>) {
        let owner = std::mem::replace(&mut self.holders[id].owner, Id::NIL);
        if let Some(owner) = owner.some() {
            self.conns[owner].owned.remove(&mut self.holders, id);
            self.conns[owner].entries -= 1;
        }
    }

    pub(super) fn forget_renewer(&mut self, id: Id<Holder>) {
        let renewer = std::mem::replace(&mut self.holders[id].renewer, Id::NIL);
        if let Some(renewer) = renewer.some() {
            self.conns[renewer].renewed.remove(&mut self.holders, id);
        }
    }

    /// Applies the end of a connection to a hold that it owns or renewed.
    pub(super) fn part(&mut self, now: Moment, id: Id<Holder>, who: Id<Conn>, auto: AutoRelease) {
        // A connection that has gone is in no list any more.
        let lives = |_| true;
        match self.standing(id).parted(who, auto, self.caps.disconnect_grace, lives) {
            Parting::Keep => {}
            Parting::Stand(standing) => self.restand(now, id, standing),
            Parting::End => {
                self.counters.disconnect_releases += 1;
                self.free(now, id);
            }
        }
    }

    /// Takes away all holds of a key, of every owner; returns how many.
    pub fn force_release(&mut self, now: Moment, key: Key<'_>) -> usize {
        let Some(key) = self.keys.find(key) else { return 0 };
        let holds: Vec<Id<Holder>> = self.keys[key].holders.iter(&self.holders).collect();
        for &id in &holds {
            self.counters.releases += 1;
            let holder = &self.holders[id];
            let token = holder.token;
            let conns = [holder.owner, holder.renewer].into_iter().filter_map(Id::some);
            let taken: Vec<_> = conns.filter_map(|conn| self.conn_id(conn)).collect();
            self.effects.extend(taken.into_iter().map(|conn| Effect::Taken(conn, token)));
            self.lose_record(self.holders[id].record);
            self.free(now, id);
        }
        holds.len()
    }

    /// The timer of a hold has fired: its lease is over, or the grace after the end of its owner, or the time that is
    /// left is to be recorded.
    pub(super) fn end_hold(&mut self, now: Moment, id: Id<Holder>) {
        if self.holders[id].expires <= now {
            self.expire(now, id);
        } else if self.holders[id].lapses <= now {
            self.counters.disconnect_releases += 1;
            self.free(now, id);
        } else {
            self.note_left(now, id);
        }
    }
}
