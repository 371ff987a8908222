//! The table of keys, and which of them are idle since when. Pure.

use super::messages::Census;
use super::rules::Claim;
use super::scalars::{Caps, Key, Keys, Limit, Moment};
use super::table::{Chain, HolderId, KeyId, Slots, Sorted, Table, WaiterId};
use std::collections::{HashMap, HashSet};
use std::hash::RandomState;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

/// One lock or semaphore.
pub(super) struct KeyEntry {
    pub(super) name: Arc<[u8]>,
    pub(super) limit: Limit,
    /// The time of its last use. If it can be forgotten, since when.
    pub(super) touched: Moment,
    /// By fence: the last one granted is the last one.
    pub(super) holders: Sorted<'h'>,
    /// In the order of arrival.
    pub(super) queue: Sorted<'w'>,
    /// The number of lost holds that `w` is to report.
    pub(super) pins: u32,
    /// Whether it is among the keys that can be forgotten.
    listed: bool,
    /// Whether a client watches its holders.
    pub(super) watched: bool,
    /// Whether its holders share it. Without holders: whether the last ones did.
    pub(super) shared: bool,
    /// Whether the census counts it as idle.
    counted_idle: bool,
}

impl KeyEntry {
    /// Whether a request with this claim may become a hold beside the present holders.
    pub(super) fn admits(&self, claim: Claim) -> bool {
        claim.joins(self.holders.len().into(), self.shared)
    }

    /// The claim of its holders.
    pub(super) const fn claim(&self) -> Claim {
        if self.shared { Claim::Shared } else { Claim::Slot(self.limit) }
    }

    /// This slot of one of its holders, if it is a semaphore.
    pub(super) fn slot_of(&self, slot: u32) -> Option<u32> {
        (self.limit != Limit::ONE).then_some(slot)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty()
    }

    /// Whether it can be forgotten: nothing depends on it.
    pub(super) fn is_forgettable(&self) -> bool {
        self.is_idle() && self.pins == 0
    }
}

/// See the module.
pub(super) struct KeyTable {
    /// Only this file adds and removes entries.
    pub(super) entries: Table<KeyEntry, 'k'>,
    by_name: HashMap<Arc<[u8]>, KeyId>,
    /// Keys that can be forgotten, in the order of their last use.
    idle: Chain<'k'>,
    next_collection: Moment,
    census: Census,
    /// The slots that are taken of semaphores.
    slots: Slots,
    /// The names of watched keys. Some of these keys may not exist.
    watched: HashSet<Box<[u8]>>,
}

impl KeyTable {
    pub(super) fn new(hasher: RandomState) -> Self {
        Self {
            entries: Table::new(),
            by_name: HashMap::with_hasher(hasher),
            idle: Chain::new(),
            next_collection: Moment::default(),
            census: Census::default(),
            slots: Slots::default(),
            watched: HashSet::new(),
        }
    }

    pub(super) fn hasher(&self) -> &RandomState {
        self.by_name.hasher()
    }

    pub(super) fn find(&self, key: Key<'_>) -> Option<KeyId> {
        self.by_name.get(key.bytes()).copied()
    }

    pub(super) fn is_named(&self, id: KeyId, key: Key<'_>) -> bool {
        self.entries.get(id).is_some_and(|entry| *entry.name == *key.bytes())
    }

    /// Whether all these keys can be in use at the same time within the limit of keys. Idle keys are forgotten to
    /// make room.
    pub(super) fn have_room_for(&self, names: Keys<'_>, most: usize) -> bool {
        let is_new = |id: &Option<KeyId>| id.is_none_or(|id| self.entries[id].is_forgettable());
        let new = names.iter().map(|key| self.find(key)).filter(is_new).count();
        self.entries.len() - self.idle.len() + new <= most
    }

    /// Adds a key that [`KeyTable::find`] did not find. It is idle until it has a holder or waiter: the request that names
    /// it may yet be refused.
    pub(super) fn create(&mut self, now: Moment, key: Key<'_>, limit: Limit) -> KeyId {
        let name: Arc<[u8]> = key.bytes().into();
        let id = self.entries.insert(KeyEntry {
            name: Arc::clone(&name),
            limit,
            touched: now,
            holders: Sorted::default(),
            queue: Sorted::default(),
            pins: 0,
            listed: false,
            watched: !self.watched.is_empty() && self.watched.contains(key.bytes()),
            shared: false,
            counted_idle: true,
        });
        self.census.of(limit).idle += 1;
        self.by_name.insert(name, id);
        self.settle(now, id);
        id
    }

    /// Sets whether a key is watched from now on. The key need not exist.
    pub(super) fn watch(&mut self, key: Key<'_>, is_watched: bool) {
        if is_watched {
            self.watched.insert(key.bytes().into());
        } else {
            self.watched.remove(key.bytes());
        }
        if let Some(id) = self.find(key) {
            self.entries[id].watched = is_watched;
        }
    }

    /// To be called after every use of a key: notes the time, and whether the key is idle.
    pub(super) fn settle(&mut self, now: Moment, id: KeyId) {
        let entry = &mut self.entries[id];
        entry.touched = now;
        let is_idle = entry.is_idle();
        let was_idle = std::mem::replace(&mut entry.counted_idle, is_idle);
        let population = self.census.of(entry.limit);
        population.in_use = population.in_use + usize::from(was_idle) - usize::from(is_idle);
        population.idle = population.idle + usize::from(is_idle) - usize::from(was_idle);
        let is_forgettable = entry.is_forgettable();
        if std::mem::replace(&mut entry.listed, is_forgettable) {
            self.idle.remove(id);
        }
        if is_forgettable {
            self.idle.add(id);
        }
    }

    pub(super) const fn census(&self) -> &Census {
        &self.census
    }

    /// Adds a holder whose token has this fence. Returns its slot: the one that it had before, if it had one and nobody
    /// else has it now, or else the lowest that is free. A lock has only one.
    pub(super) fn add_holder(
        &mut self,
        id: KeyId,
        claim: Claim,
        fence: u64,
        holder: HolderId,
        before: Option<u32>,
    ) -> u32 {
        let entry = &mut self.entries[id];
        entry.holders.add(fence, holder);
        entry.shared = claim.is_shared();
        self.census.lock_readers += usize::from(entry.shared);
        self.census.of(entry.limit).holders += 1;
        if entry.limit == Limit::ONE {
            return 0;
        }
        let kept = before.filter(|slot| self.slots.take(id, *slot));
        kept.unwrap_or_else(|| self.slots.take_lowest(id))
    }

    pub(super) fn remove_holder(&mut self, id: KeyId, fence: u64, holder: HolderId, slot: u32) {
        let entry = &mut self.entries[id];
        if entry.limit != Limit::ONE {
            self.slots.free(id, slot);
        }
        entry.holders.remove(fence, holder);
        self.census.lock_readers -= usize::from(entry.shared);
        self.census.of(entry.limit).holders -= 1;
    }

    pub(super) fn add_waiter(&mut self, id: KeyId, arrival: u64, waiter: WaiterId) {
        let entry = &mut self.entries[id];
        entry.queue.add(arrival, waiter);
        self.census.of(entry.limit).waiters += 1;
    }

    pub(super) fn remove_waiter(&mut self, id: KeyId, arrival: u64, waiter: WaiterId) {
        let entry = &mut self.entries[id];
        entry.queue.remove(arrival, waiter);
        self.census.of(entry.limit).waiters -= 1;
    }

    /// Gives an idle key another limit.
    pub(super) fn change_limit(&mut self, id: KeyId, limit: Limit) {
        let entry = &mut self.entries[id];
        self.census.of(entry.limit).idle -= 1;
        entry.limit = limit;
        self.census.of(limit).idle += 1;
    }

    /// Forgets the key that was idle for longest; false if none is idle.
    pub(super) fn forget_one(&mut self) -> bool {
        let Some(id) = self.idle.first() else { return false };
        self.idle.remove(id);
        let entry = self.entries.remove(id);
        self.census.of(entry.limit).idle -= 1;
        self.by_name.remove(&entry.name);
        true
    }

    /// Forgets keys that were idle for longer than `gc_max_idle`, once per `gc_interval`.
    pub(super) fn collect(&mut self, now: Moment, caps: &Caps) {
        if now < self.next_collection() {
            return;
        }
        let is_over = |entry: &KeyEntry| entry.touched.after(caps.gc_max_idle) < now;
        while self.idle.first().is_some_and(|id| is_over(&self.entries[id])) {
            self.forget_one();
        }
        self.next_collection = now.after(caps.gc_interval);
    }

    /// When [`KeyTable::collect`] must be called next.
    pub(super) fn next_collection(&self) -> Moment {
        if self.idle.len() == 0 { Moment::NEVER } else { self.next_collection }
    }
}

impl Index<KeyId> for KeyTable {
    type Output = KeyEntry;
    fn index(&self, id: KeyId) -> &KeyEntry {
        &self.entries[id]
    }
}

impl IndexMut<KeyId> for KeyTable {
    fn index_mut(&mut self, id: KeyId) -> &mut KeyEntry {
        &mut self.entries[id]
    }
}
