//! Holds that outlive the process: reports changes so that another module can write them down, and takes back
//! what was written before. The engine itself writes nothing.
//!
//! Pure.

use super::keys::KeyEntry;
use super::request::Progress;
use super::slab::{Id, Link};
use super::state::{Alarm, Engine, Holder};
use super::terms::{Key, Limit, Mint, Moment, Token, Ttl};

/// A hold, as it is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold<'a> {
    /// Of which key.
    pub key: Key<'a>,
    /// How many may hold that key.
    pub limit: Limit,
    /// Proves it.
    pub token: Token,
    /// The lease as last asked for.
    pub ttl: Ttl,
    /// When it ends.
    pub expires: Moment,
}

/// What happened to a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Somebody is told of it for the first time.
    Granted(Hold<'a>),
    /// Its lease starts anew.
    Renewed(Hold<'a>),
    /// It was given back or ran out.
    Ended {
        /// Of which key.
        key: Key<'a>,
        /// What proved it.
        token: Token,
    },
}

/// Whether a further hold could be written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// It could.
    Free,
    /// It could not: nothing new is granted. What is held may be renewed and handed on.
    Full,
}

/// A change that nobody has taken yet.
#[derive(Debug)]
pub(super) enum Noted {
    Granted(Id<Holder>, Token),
    Renewed(Id<Holder>, Token),
    Ended(Box<[u8]>, Token),
}

impl<M: Mint> Engine<M> {
    /// From here on changes are kept until [`Engine::take_changes`].
    pub fn record(&mut self) {
        self.changes.get_or_insert_default();
    }

    /// Something happened to holds.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        self.changes.as_ref().is_some_and(|changes| !changes.is_empty())
    }

    /// Tells `note` what happened to holds since the last time, in order. A hold that ended
    /// meanwhile is only told as ended.
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
                Noted::Ended(name, token) => {
                    if let Some(key) = Key::new(&name) {
                        note(Change::Ended { key, token });
                    }
                }
            }
        }
        self.changes = Some(changes);
    }

    /// Looks at the next `budget` places of the table of holds and tells `note` of those that
    /// somebody was told of. Begin with a cursor of 0.
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
        let (key, limit) = (Key::new(&entry.name)?, Limit::new(entry.limit)?);
        Some(Hold { key, limit, token, ttl: holder.ttl, expires: holder.expires })
    }

    /// A hold that was written down goes on, without a connection. Before the first connection.
    pub fn restore(&mut self, now: Moment, hold: &Hold<'_>) {
        let key = match self.keys.find(hold.key) {
            Some(key) => key,
            None => self.keys.create(now, hold.key, hold.limit),
        };
        let id = self.holders.insert(Holder {
            key,
            owner: Id::NIL,
            renewer: Id::NIL,
            serial: 0,
            token: hold.token,
            ttl: hold.ttl,
            told: true,
            expires: hold.expires,
            lapses: Moment::NEVER,
            since: now,
            timer: Id::NIL,
            record: Id::NIL,
            owned: Link::new(),
            renewed: Link::new(),
            of_key: Link::new(),
        });
        self.rearm(id);
        self.keys[key].holders.push_front(&mut self.holders, id);
        self.keys.add_holder(key);
        if self.keys[key].limit > 1 {
            self.list_fence(id);
        }
        self.keys.settle(now, key);
    }

    /// Grants nothing before `until`; what is held may be renewed and given back, and queues fill.
    pub fn close(&mut self, until: Moment) {
        self.closed_until = until;
        self.timers.insert(until, Alarm::Open);
    }

    /// When the time of [`Engine::close`] is over.
    pub const fn closed_until(&self) -> Moment {
        self.closed_until
    }

    /// Says whether new holds can be written down.
    pub const fn set_space(&mut self, space: Space) {
        self.space = space;
    }

    /// Serves queues that filled up while nothing was granted, some at a time.
    pub(super) fn reopen(&mut self, now: Moment, budget: usize) -> Progress {
        let Some(start) = self.reopening else { return Progress::Done };
        let budget = u32::try_from(budget).unwrap_or(u32::MAX);
        let end = start.saturating_add(budget).min(self.keys.places());
        for place in start..end {
            let id: Id<KeyEntry> = Id::new(place);
            if self.keys.get(id).is_some_and(|entry| entry.waiters > 0) {
                self.serve_queue(now, id);
            }
        }
        self.reopening = (end < self.keys.places()).then_some(end);
        if self.reopening.is_some() { Progress::More } else { Progress::Done }
    }

    /// The token of a hold is told, or told again with a new lease.
    pub(super) fn tell(&mut self, id: Id<Holder>) {
        let Some(holder) = self.holders.get_mut(id) else { return };
        let was_told = std::mem::replace(&mut holder.told, true);
        let token = holder.token;
        if let Some(changes) = &mut self.changes {
            let noted = if was_told { Noted::Renewed } else { Noted::Granted };
            changes.push_back(noted(id, token));
        }
    }

    /// A hold ends. What nobody was told of was never written down.
    pub(super) fn note_end(&mut self, id: Id<Holder>) {
        let Some(changes) = &mut self.changes else { return };
        let holder = &self.holders[id];
        if !holder.told {
            return;
        }
        let name = self.keys[holder.key].name.clone();
        changes.push_back(Noted::Ended(name, holder.token));
    }
}
