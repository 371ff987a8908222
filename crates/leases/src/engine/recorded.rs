//! Holds that outlive the process: reports changes so that another module can record them, and restores holds from a
//! record. The engine itself writes nothing.
//!
//! Pure.

use super::sharing::Claim;
use super::slab::Id;
use super::state::{Alarm, Conn, Engine, Holder};
use super::terms::{Key, Mint, Moment, Token, Ttl};
use super::watching::Label;
use std::collections::VecDeque;
use std::sync::Arc;

/// A hold in the form in which it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold<'a> {
    /// The key.
    pub key: Key<'a>,
    /// What is held of the key.
    pub claim: Claim,
    /// The token of the hold.
    pub token: Token,
    /// The length of the lease in the last request.
    pub ttl: Ttl,
    /// The time that is left of the lease.
    pub left_micros: u64,
    /// The label of its holder.
    pub label: Option<&'a Label>,
}

/// A change of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Its token is announced to a client.
    Granted(Hold<'a>),
    /// Its lease was renewed.
    Renewed(Hold<'a>),
    /// It was released, or its lease ended.
    Ended {
        /// The key.
        key: Key<'a>,
        /// Its token.
        token: Token,
        /// The label of its holder.
        label: Option<&'a Label>,
    },
}

/// Whether there is room in the record for a further hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// There is room.
    Free,
    /// There is no room: nothing new is granted. Present holds can be renewed and handed on.
    Full,
}

/// When the lease of a hold that is recorded begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseStart {
    /// With the grant or the renewal.
    Grant,
    /// When that is recorded, as [`Engine::start_lease`] reports. Until then the hold does not end by itself.
    Record,
}

/// A change that was not taken yet.
#[derive(Debug)]
pub(super) enum Noted {
    Granted(Id<Holder>, Token),
    Renewed(Id<Holder>, Token),
    Ended(Box<[u8]>, Token, Option<Arc<Label>>),
}

impl<M: Mint> Engine<M> {
    /// From now on, changes are kept until [`Engine::take_changes`].
    pub fn record(&mut self, leases: LeaseStart) {
        self.changes.get_or_insert_default();
        self.lease_start = leases;
    }

    /// Whether holds have changed.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        self.changes.as_ref().is_some_and(|changes| !changes.is_empty())
    }

    /// Passes the changes of holds since the last call to `note`, in order. For a hold that has ended meanwhile, only
    /// the end is passed.
    pub fn take_changes(&mut self, now: Moment, mut note: impl FnMut(Change<'_>)) {
        let Some(mut changes) = self.changes.take() else { return };
        for change in changes.drain(..) {
            match change {
                Noted::Granted(id, token) => {
                    if let Some(hold) = self.hold(now, id, token) {
                        note(Change::Granted(hold));
                    }
                }
                Noted::Renewed(id, token) => {
                    if let Some(hold) = self.hold(now, id, token) {
                        note(Change::Renewed(hold));
                    }
                }
                Noted::Ended(name, token, label) => {
                    let key = named(&name);
                    note(Change::Ended { key, token, label: label.as_deref() });
                }
            }
        }
        self.changes = Some(changes);
    }

    /// The hold, if it has not ended.
    fn hold(&self, now: Moment, id: Id<Holder>, token: Token) -> Option<Hold<'_>> {
        let holder = self.holders.get(id).filter(|holder| holder.token == token)?;
        let entry = &self.keys[holder.key];
        let (key, claim) = (named(&entry.name), entry.claim());
        let (ttl, label, left_micros) =
            (holder.ttl, holder.label.as_deref(), holder.left_micros(now));
        Some(Hold { key, claim, token, ttl, left_micros, label })
    }

    /// Restores a recorded hold, without a connection. To be called before the first connection.
    pub fn restore(&mut self, now: Moment, hold: &Hold<'_>) {
        let key = match self.keys.find(hold.key) {
            Some(key) => key,
            None => self.keys.create(now, hold.key, hold.claim.limit()),
        };
        let id = self.holders.insert(Holder {
            label: hold.label.map(|label| Arc::new(label.clone())),
            announced: true,
            expires: now.after_micros(hold.left_micros),
            note_at: self.next_note(now, hold.ttl),
            ..Holder::new(key, hold.token, hold.ttl, now)
        });
        self.add_holder(now, id, hold.claim);
        self.rearm(id);
    }

    /// When the time left of a restored hold is to be recorded. Each server that takes the lead restores the time that
    /// was recorded last, so without this, changes of the leader would keep the hold of a dead client for ever.
    fn next_note(&self, now: Moment, ttl: Ttl) -> Moment {
        match self.lease_start {
            LeaseStart::Grant => Moment::NEVER,
            LeaseStart::Record => now.after_micros(ttl.span().count() * 250_000),
        }
    }

    /// Notes the time that is left of a hold, until somebody renews it.
    pub(super) fn note_left(&mut self, now: Moment, id: Id<Holder>) {
        let Holder { ttl, unrecorded, .. } = self.holders[id];
        self.holders[id].note_at = self.next_note(now, ttl);
        if unrecorded == 0 {
            let left = self.holders[id].left_micros(now);
            self.note(id, Noted::Renewed, left);
        }
        self.rearm(id);
    }

    /// A grant or renewal of a hold has been recorded. With the last of them its lease begins.
    pub fn start_lease(&mut self, now: Moment, key: Key<'_>, token: Token) {
        let found = self.keys.find(key).and_then(|key| self.find_holder(key, token));
        // It may have ended meanwhile.
        let Some(id) = found.filter(|id| self.holders[*id].unrecorded > 0) else { return };
        let holder = &mut self.holders[id];
        holder.unrecorded -= 1;
        if holder.unrecorded == 0 {
            holder.expires = now.after_micros(holder.length_micros);
            self.rearm(id);
        }
    }

    /// Grants nothing before `until`. Present holds can be renewed and released, and queues fill.
    pub fn close(&mut self, until: Moment) {
        self.closed_until = until;
        self.timers.reset(Alarm::Open, Moment::NEVER, until);
    }

    /// The end of the time of [`Engine::close`].
    pub const fn closed_until(&self) -> Moment {
        self.closed_until
    }

    /// Sets whether new holds can be recorded.
    pub const fn set_space(&mut self, space: Space) {
        // Readers may be waiting for this change only.
        if matches!((self.space, space), (Space::Full, Space::Free)) {
            self.reopening = true;
        }
        self.space = space;
    }

    /// Whether new holds can be recorded.
    pub const fn space(&self) -> Space {
        self.space
    }

    /// Forgets everything but the connections, the counters, and whether it is draining: the holds are to be restored
    /// from their record. Nothing is released, and waits end without an answer.
    pub fn restart(&mut self, mint: M) {
        let hasher = self.keys.hasher().clone();
        let old = std::mem::replace(self, Self::new(self.caps, mint, hasher));
        self.conns = old.conns;
        self.generation = old.generation;
        self.counters = old.counters;
        self.draining = old.draining;
        self.changes = old.changes.map(|_| VecDeque::new());
        self.lease_start = old.lease_start;
        self.closed_until = old.closed_until;
        for id in self.conns.ids().collect::<Vec<_>>() {
            let Conn { generation, serial, ref label, .. } = self.conns[id];
            self.conns[id] = Conn::new(generation, serial, label.clone());
        }
    }

    /// Serves queues that filled up while nothing was granted.
    pub(super) fn reopen(&mut self, now: Moment) {
        for key in self.keys.with_waiters() {
            self.serve_queue(now, key);
        }
    }

    /// Notes that the token of a hold is announced to a client, or a new lease of it.
    pub(super) fn announce(&mut self, id: Id<Holder>) {
        let holder = &mut self.holders[id];
        let was_announced = std::mem::replace(&mut holder.announced, true);
        let length = holder.ttl.span().count().saturating_mul(1_000_000);
        self.note(id, if was_announced { Noted::Renewed } else { Noted::Granted }, length);
    }

    fn note(&mut self, id: Id<Holder>, noted: fn(Id<Holder>, Token) -> Noted, length_micros: u64) {
        let Some(changes) = &mut self.changes else { return };
        let holder = &mut self.holders[id];
        changes.push_back(noted(id, holder.token));
        if self.lease_start == LeaseStart::Record {
            holder.unrecorded += 1;
            holder.length_micros = length_micros;
            holder.expires = Moment::NEVER;
        }
    }

    /// Notes the end of a hold. A hold that was not announced was never recorded.
    pub(super) fn note_end(&mut self, id: Id<Holder>) {
        let Some(changes) = &mut self.changes else { return };
        let holder = &self.holders[id];
        if holder.announced {
            let name = self.keys[holder.key].name.clone();
            changes.push_back(Noted::Ended(name, holder.token, holder.label.clone()));
        }
    }
}

/// The key with this name. To lose a record of a hold because of its name would be to lose the hold.
fn named(name: &[u8]) -> Key<'_> {
    let Some(key) = Key::new(name) else { unreachable!("requests name keys only") };
    key
}
