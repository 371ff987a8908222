//! The tickets that this front-end made or keeps, and the time at which it must try to end each hold.

use super::mine::{Ends, Mine};
use leases::Moment;
use std::collections::hash_map::Values;
use std::collections::{BTreeSet, HashMap};

/// By nonce.
#[derive(Default)]
pub(super) struct Tickets {
    all: HashMap<u64, Mine>,
    deadlines: BTreeSet<(Moment, u64)>,
}

impl Tickets {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn contains_key(&self, nonce: u64) -> bool {
        self.all.contains_key(&nonce)
    }

    pub(super) fn get(&self, nonce: u64) -> Option<&Mine> {
        self.all.get(&nonce)
    }

    pub(super) fn get_mut(&mut self, nonce: u64) -> Option<&mut Mine> {
        self.all.get_mut(&nonce)
    }

    pub(super) fn values(&self) -> Values<'_, u64, Mine> {
        self.all.values()
    }

    pub(super) fn insert(&mut self, mine: Mine) {
        let (nonce, rings) = (mine.nonce, mine.ends.rings);
        self.all.insert(nonce, mine);
        self.ring_at(nonce, rings);
    }

    pub(super) fn remove(&mut self, nonce: u64) -> Option<Mine> {
        let mine = self.all.remove(&nonce)?;
        self.deadlines.remove(&(mine.ends.rings, nonce));
        Some(mine)
    }

    /// This front-end has written the lease of a hold, which ends then.
    pub(super) fn set_lease(&mut self, nonce: u64, lease: Moment) {
        self.set_ends(nonce, Ends::with_lease(lease));
    }

    /// The lease of a hold does not end before `until`.
    pub(super) fn put_off(&mut self, nonce: u64, until: Moment) {
        let Some(ends) = self.get(nonce).map(|mine| mine.ends) else { return };
        self.set_ends(nonce, Ends { lease: ends.lease.max(until), ..ends });
    }

    pub(super) fn set_ends(&mut self, nonce: u64, ends: Ends) {
        let Some(mine) = self.all.get_mut(&nonce) else { return };
        (mine.ends.lease, mine.ends.grace) = (ends.lease, ends.grace);
        self.ring_at(nonce, ends.first());
    }

    /// Sets the time at which the end of a hold is tried.
    pub(super) fn ring_at(&mut self, nonce: u64, rings: Moment) {
        let Some(mine) = self.all.get_mut(&nonce) else { return };
        let before = std::mem::replace(&mut mine.ends.rings, rings);
        self.deadlines.remove(&(before, nonce));
        if rings < Moment::NEVER {
            self.deadlines.insert((rings, nonce));
        }
    }

    /// When the next end is tried.
    pub(super) fn next(&self) -> Moment {
        self.deadlines.first().map_or(Moment::NEVER, |(due, _)| *due)
    }

    /// Takes a hold that is due to be ended; the hold itself records that its time is over.
    pub(super) fn take_due(&mut self, now: Moment) -> Option<u64> {
        let (due, nonce) = *self.deadlines.first()?;
        (due <= now).then(|| self.deadlines.pop_first())?;
        Some(nonce)
    }

    /// Whether this front-end will end this hold on time.
    pub(super) fn will_end(&self, nonce: u64) -> bool {
        self.get(nonce).is_some_and(|mine| mine.ends.lease < Moment::NEVER)
    }
}
