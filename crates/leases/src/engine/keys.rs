//! The table of keys, and the list of idle keys in the order in which they became idle. Pure.

use super::counters::{Census, Use};
use super::sharing::{Ahead, Claim};
use super::slab::{Id, Link, Linked, List, Slab, linked};
use super::state::{ByKey, Caps, Holder};
use super::terms::{Key, Keys as Names, Limit, Moment};
use super::waiting::{Queue, Waiter};
use hashbrown::HashTable;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::ops::{Index, IndexMut};

/// One lock or semaphore.
#[derive(Debug)]
pub(super) struct KeyEntry {
    pub(super) name: Box<[u8]>,
    pub(super) limit: u64,
    /// The time of its last use, from which its idle time counts.
    pub(super) touched: Moment,
    pub(super) holders: List<Holder, ByKey>,
    pub(super) held: u32,
    pub(super) queue: List<Waiter, Queue>,
    pub(super) waiters: u32,
    /// The number of records of lost leases that still name it.
    pub(super) pins: u32,
    hash: u32,
    idle: Link<Self>,
    listed: bool,
    /// Whether a client watches its holders.
    pub(super) watched: bool,
    /// Whether its holders share it. Without holders: whether the last ones did.
    pub(super) shared: bool,
    /// The use as which the census counts it.
    counted: Use,
}

/// The list of keys without holders and waiters.
#[derive(Debug)]
struct Idle;

linked!(KeyEntry, Idle, idle);

impl KeyEntry {
    /// Whether there is room beside the holders, and no request is ahead.
    pub(super) fn has_room(&self, claim: Claim) -> bool {
        self.waiters == 0 && self.admits(claim)
    }

    /// Whether the next request in the order may be a hold, too.
    pub(super) fn admits(&self, claim: Claim) -> bool {
        Ahead::holders(self.held.into(), self.shared).leaves_room_for(claim)
    }

    /// Whether it may have several holders.
    pub(super) const fn has_many_holders(&self) -> bool {
        self.limit > 1 || self.shared
    }

    /// The number of its holders, if they share it.
    pub(super) const fn readers(&self) -> u32 {
        if self.shared { self.held } else { 0 }
    }

    /// The claim of its holders.
    pub(super) fn claim(&self) -> Claim {
        if self.shared {
            return Claim::Shared;
        }
        let Some(limit) = Limit::new(self.limit) else { unreachable!("it came from a limit") };
        Claim::Slot(limit)
    }

    pub(super) const fn is_idle(&self) -> bool {
        self.held == 0 && self.waiters == 0
    }

    /// Whether it can be forgotten: nothing depends on it.
    pub(super) const fn is_forgettable(&self) -> bool {
        self.is_idle() && self.pins == 0
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Keys {
    entries: Slab<KeyEntry>,
    table: HashTable<Id<KeyEntry>>,
    hasher: RandomState,
    idle: List<KeyEntry, Idle>,
    /// The length of that list.
    listed: usize,
    next_collection: Moment,
    census: Census,
    /// The names of watched keys. Some of these keys may not exist.
    watched: HashSet<Box<[u8]>>,
}

impl Keys {
    pub(super) fn new(hasher: RandomState) -> Self {
        Self {
            entries: Slab::new(),
            table: HashTable::new(),
            hasher,
            idle: List::new(),
            listed: 0,
            next_collection: Moment::default(),
            census: Census::default(),
            watched: HashSet::new(),
        }
    }

    pub(super) const fn hasher(&self) -> &RandomState {
        &self.hasher
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn places(&self) -> u32 {
        self.entries.places()
    }

    pub(super) fn get(&self, id: Id<KeyEntry>) -> Option<&KeyEntry> {
        self.entries.get(id)
    }

    /// Half of the hash is kept with the entry, so growing the table reads no names.
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is what is wanted")]
    fn hash(&self, key: Key<'_>) -> u32 {
        self.hasher.hash_one(key.bytes()) as u32
    }

    pub(super) fn find(&self, key: Key<'_>) -> Option<Id<KeyEntry>> {
        let (entries, hash) = (&self.entries, self.hash(key));
        self.table
            .find(widen(hash), |&id| {
                let entry = &entries[id];
                entry.hash == hash && *entry.name == *key.bytes()
            })
            .copied()
    }

    /// Whether all these keys can be in use at the same time within the limit of keys. Idle keys are forgotten to
    /// make room.
    pub(super) fn have_room_for(&self, names: Names<'_>, most: usize) -> bool {
        let is_new = |id: &Option<Id<KeyEntry>>| id.is_none_or(|id| self.entries[id].listed);
        let new = names.iter().map(|key| self.find(key)).filter(is_new).count();
        self.entries.len() - self.listed + new <= most
    }

    /// Adds a key that [`Keys::find`] did not find.
    pub(super) fn create(&mut self, now: Moment, key: Key<'_>, limit: Limit) -> Id<KeyEntry> {
        let hash = self.hash(key);
        let watched = !self.watched.is_empty() && self.watched.contains(key.bytes());
        let id = self.entries.insert(KeyEntry {
            name: key.bytes().into(),
            limit: limit.count(),
            touched: now,
            holders: List::new(),
            held: 0,
            queue: List::new(),
            waiters: 0,
            pins: 0,
            hash,
            idle: Link::new(),
            listed: false,
            watched,
            shared: false,
            counted: Use::Idle,
        });
        *self.census.keys(limit.count(), Use::Idle) += 1;
        let entries = &self.entries;
        self.table.insert_unique(widen(hash), id, |&other| widen(entries[other].hash));
        id
    }

    /// Sets whether a key is watched from now on. The key need not exist.
    pub(super) fn watch(&mut self, key: Key<'_>, is_watched: bool) {
        if is_watched {
            self.watched.insert(key.bytes().into());
        } else {
            self.watched.remove(key.bytes());
        }
        if let Some(entry) = self.find(key).and_then(|id| self.entries.get_mut(id)) {
            entry.watched = is_watched;
        }
    }

    /// To be called after every use of a key: notes the time and updates the idle list.
    pub(super) fn settle(&mut self, now: Moment, id: Id<KeyEntry>) {
        let entry = &mut self.entries[id];
        entry.touched = now;
        let usage = if entry.is_idle() { Use::Idle } else { Use::Busy };
        if entry.counted != usage {
            *self.census.keys(entry.limit, entry.counted) -= 1;
            *self.census.keys(entry.limit, usage) += 1;
            entry.counted = usage;
        }
        match (entry.listed, entry.is_forgettable()) {
            (false, true) => self.list(id),
            (true, false) => self.unlist(id),
            (true, true) => {
                self.unlist(id);
                self.list(id);
            }
            (false, false) => {}
        }
    }

    pub(super) const fn census(&self) -> &Census {
        &self.census
    }

    pub(super) fn add_holder(&mut self, id: Id<KeyEntry>, claim: Claim) {
        let entry = &mut self.entries[id];
        entry.held += 1;
        entry.shared = claim.is_shared();
        self.census.lock_readers += usize::from(entry.shared);
        *self.census.holders(entry.limit) += 1;
    }

    pub(super) fn remove_holder(&mut self, id: Id<KeyEntry>) {
        let entry = &mut self.entries[id];
        entry.held -= 1;
        self.census.lock_readers -= usize::from(entry.shared);
        *self.census.holders(entry.limit) -= 1;
    }

    pub(super) fn add_waiter(&mut self, id: Id<KeyEntry>) {
        let entry = &mut self.entries[id];
        entry.waiters += 1;
        *self.census.waiters(entry.limit) += 1;
    }

    pub(super) fn remove_waiter(&mut self, id: Id<KeyEntry>) {
        let entry = &mut self.entries[id];
        entry.waiters -= 1;
        *self.census.waiters(entry.limit) -= 1;
    }

    fn list(&mut self, id: Id<KeyEntry>) {
        self.entries[id].listed = true;
        self.listed += 1;
        self.idle.push_back(&mut self.entries, id);
    }

    fn unlist(&mut self, id: Id<KeyEntry>) {
        self.entries[id].listed = false;
        self.listed -= 1;
        self.idle.remove(&mut self.entries, id);
    }

    /// Gives an idle key another limit.
    pub(super) fn change_limit(&mut self, id: Id<KeyEntry>, limit: Limit) {
        let entry = &mut self.entries[id];
        *self.census.keys(entry.limit, entry.counted) -= 1;
        entry.limit = limit.count();
        *self.census.keys(entry.limit, entry.counted) += 1;
    }

    /// Forgets the key that was idle for longest; false if none is idle.
    pub(super) fn forget_one(&mut self) -> bool {
        let longest = self.idle.first();
        if let Some(id) = longest {
            self.forget(id);
        }
        longest.is_some()
    }

    /// Forgets keys that were idle for longer than `gc_max_idle`, once per `gc_interval`.
    pub(super) fn collect(&mut self, now: Moment, caps: &Caps) {
        if self.idle.is_empty() || now < self.next_collection {
            return;
        }
        let is_old = |entry: &KeyEntry| now > entry.touched.after(caps.gc_max_idle);
        while let Some(id) = self.idle.first().filter(|&id| is_old(&self.entries[id])) {
            self.forget(id);
        }
        self.next_collection = now.after(caps.gc_interval);
    }

    /// The keys with waiters.
    pub(super) fn with_waiters(&self) -> Vec<Id<KeyEntry>> {
        self.entries.ids().filter(|&id| self.entries[id].waiters > 0).collect()
    }

    /// When [`Keys::collect`] must be called next.
    pub(super) const fn next_collection(&self) -> Moment {
        if self.idle.is_empty() { Moment::NEVER } else { self.next_collection }
    }

    fn forget(&mut self, id: Id<KeyEntry>) {
        self.unlist(id);
        let entry = &self.entries[id];
        let hash = entry.hash;
        *self.census.keys(entry.limit, entry.counted) -= 1;
        if let Ok(found) = self.table.find_entry(widen(hash), |&other| other == id) {
            found.remove();
        }
        self.entries.remove(id);
    }
}

impl Index<Id<KeyEntry>> for Keys {
    type Output = KeyEntry;
    fn index(&self, id: Id<KeyEntry>) -> &KeyEntry {
        &self.entries[id]
    }
}

impl IndexMut<Id<KeyEntry>> for Keys {
    fn index_mut(&mut self, id: Id<KeyEntry>) -> &mut KeyEntry {
        &mut self.entries[id]
    }
}

/// The table takes its tags from the upper bits.
fn widen(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
