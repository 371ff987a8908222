//! Holds that outlive the process: reports changes so that another module can record them, and restores holds from a
//! record. The engine itself writes nothing.
//!
//! Pure.

use super::request::Progress;
use super::sharing::Claim;
use super::slab::{Id, Link};
use super::state::{Alarm, Engine, Holder};
use super::terms::{Key, Mint, Moment, Token, Ttl};
use super::watching::Label;
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
    /// When it ends.
    pub expires: Moment,
    /// The label of its holder.
    pub label: Option<&'a Label>,
}

/// A change of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// A client is told of it for the first time.
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

/// A change that was not taken yet.
#[derive(Debug)]
pub(super) enum Noted {
    Granted(Id<Holder>, Token),
    Renewed(Id<Holder>, Token),
    Ended(Box<[u8]>, Token, Option<Arc<Label>>),
}

impl<M: Mint> Engine<M> {
    /// From now on, changes are kept until [`Engine::take_changes`].
    pub fn record(&mut self) {
        self.changes.get_or_insert_default();
    }

    /// Whether holds have changed.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        self.changes.as_ref().is_some_and(|changes| !changes.is_empty())
    }

    /// Passes the changes of holds since the last call to `note`, in order. For a hold that has ended meanwhile, only
    /// the end is passed.
    pub fn take_changes(&mut self, mut note: impl FnMut(Change<'_>)) {
        let Some(mut changes) = self.changes.take() else { return };
        for change in changes.drain(..) {
            match change {
                Noted::Granted(id, token) => {
                    if let Some(hold) = self.hold(id, token) {
                        note(Change::Granted(hold));
                    }
                }
                Noted::Renewed(id, token) => {
                    if let Some(hold) = self.hold(id, token) {
                        note(Change::Renewed(hold));
                    }
                }
                Noted::Ended(name, token, label) => {
                    if let Some(key) = Key::new(&name) {
                        note(Change::Ended { key, token, label: label.as_deref() });
                    }
                }
            }
        }
        self.changes = Some(changes);
    }

    /// Reads the next `budget` places of the table of holds, and passes those holds to `note` of which a client was
    /// told. Begin with a cursor of 0.
    pub fn look_over_holds(
        &self,
        cursor: &mut u32,
        budget: u32,
        mut note: impl FnMut(Hold<'_>),
    ) -> Progress {
        let end = cursor.saturating_add(budget).min(self.holders.places());
        for place in *cursor..end {
            let id = Id::new(place);
            let told = self.holders.get(id).filter(|holder| holder.told);
            if let Some(hold) = told.and_then(|holder| self.hold(id, holder.token)) {
                note(hold);
            }
        }
        *cursor = end;
        if end == self.holders.places() { Progress::Done } else { Progress::More }
    }

    fn hold(&self, id: Id<Holder>, token: Token) -> Option<Hold<'_>> {
        let holder = self.holders.get(id).filter(|holder| holder.token == token)?;
        let entry = self.keys.get(holder.key)?;
        let (key, claim) = (Key::new(&entry.name)?, entry.claim()?);
        let Holder { ttl, expires, ref label, .. } = *holder;
        Some(Hold { key, claim, token, ttl, expires, label: label.as_deref() })
    }

    /// Restores a recorded hold, without a connection. To be called before the first connection.
    pub fn restore(&mut self, now: Moment, hold: &Hold<'_>) {
        let key = match self.keys.find(hold.key) {
            Some(key) => key,
            None => self.keys.create(now, hold.key, hold.claim.limit()),
        };
        let id = self.holders.insert(Holder {
            key,
            owner: Id::NIL,
            renewer: Id::NIL,
            serial: 0,
            label: hold.label.map(|label| Arc::new(label.clone())),
            token: hold.token,
            ttl: hold.ttl,
            told: true,
            expires: hold.expires,
            lapses: Moment::NEVER,
            since: now,
            timer_at: Moment::NEVER,
            record: Id::NIL,
            owned: Link::new(),
            renewed: Link::new(),
            of_key: Link::new(),
        });
        self.rearm(id);
        self.keys[key].holders.push_front(&mut self.holders, id);
        self.keys.add_holder(key, hold.claim);
        if self.keys[key].has_many_holders() {
            self.list_fence(id);
        }
        self.keys.settle(now, key);
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

    /// Serves queues that filled up while nothing was granted.
    pub(super) fn reopen(&mut self, now: Moment) {
        for key in self.keys.with_waiters() {
            self.serve_queue(now, key);
        }
    }

    /// Notes that a client is told the token of a hold, or told it again with a new lease.
    pub(super) fn tell(&mut self, id: Id<Holder>) {
        let Some(holder) = self.holders.get_mut(id) else { return };
        let was_told = std::mem::replace(&mut holder.told, true);
        let token = holder.token;
        if let Some(changes) = &mut self.changes {
            let noted = if was_told { Noted::Renewed } else { Noted::Granted };
            changes.push_back(noted(id, token));
        }
    }

    /// Notes the end of a hold. A hold that no client was told of was never recorded.
    pub(super) fn note_end(&mut self, id: Id<Holder>) {
        let Some(changes) = &mut self.changes else { return };
        let holder = &self.holders[id];
        if !holder.told {
            return;
        }
        let name = self.keys[holder.key].name.clone();
        changes.push_back(Noted::Ended(name, holder.token, holder.label.clone()));
    }
}
