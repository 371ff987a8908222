//! The table of keys, and the list of idle ones in the order in which they became so.

use super::counters::{Census, Use};
use super::request::Progress;
use super::slab::{Id, Slab};
use super::state::{Caps, Holder};
use super::terms::{Key, Limit, Moment};
use super::waiting::Waiter;
use hashbrown::HashTable;
use std::hash::{BuildHasher, RandomState};
use std::ops::{Index, IndexMut};

/// One lock or semaphore.
#[derive(Debug)]
pub(super) struct KeyEntry {
    pub(super) name: Box<[u8]>,
    pub(super) limit: u64,
    /// Last time it was used for good: idleness counts from here.
    pub(super) touched: Moment,
    pub(super) holders: Id<Holder>,
    pub(super) held: u32,
    pub(super) head: Id<Waiter>,
    pub(super) tail: Id<Waiter>,
    pub(super) waiters: u32,
    /// Records of lost leases that still name it.
    pub(super) pins: u32,
    hash: u32,
    idle_prev: Id<Self>,
    idle_next: Id<Self>,
    listed: bool,
    /// As what the census has it.
    counted: Use,
}

impl KeyEntry {
    /// A free slot and nobody ahead.
    pub(super) fn has_room(&self) -> bool {
        u64::from(self.held) < self.limit && self.waiters == 0
    }

    pub(super) const fn is_idle(&self) -> bool {
        self.held == 0 && self.waiters == 0
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Keys {
    entries: Slab<KeyEntry>,
    table: HashTable<Id<KeyEntry>>,
    hasher: RandomState,
    idle_head: Id<KeyEntry>,
    idle_tail: Id<KeyEntry>,
    next_collection: Moment,
    census: Census,
}

impl Keys {
    pub(super) fn new(hasher: RandomState) -> Self {
        Self {
            entries: Slab::new(),
            table: HashTable::new(),
            hasher,
            idle_head: Id::NIL,
            idle_tail: Id::NIL,
            next_collection: Moment::default(),
            census: Census::default(),
        }
    }

    pub(super) const fn len(&self) -> usize {
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

    /// Adds a key that [`Keys::find`] did not find.
    pub(super) fn create(&mut self, now: Moment, key: Key<'_>, limit: Limit) -> Id<KeyEntry> {
        let hash = self.hash(key);
        let id = self.entries.insert(KeyEntry {
            name: key.bytes().into(),
            limit: limit.count(),
            touched: now,
            holders: Id::NIL,
            held: 0,
            head: Id::NIL,
            tail: Id::NIL,
            waiters: 0,
            pins: 0,
            hash,
            idle_prev: Id::NIL,
            idle_next: Id::NIL,
            listed: false,
            counted: Use::Idle,
        });
        *self.census.keys(limit.count(), Use::Idle) += 1;
        let entries = &self.entries;
        self.table.insert_unique(widen(hash), id, |&other| widen(entries[other].hash));
        id
    }

    /// To be called after every use of a key: notes the time and keeps the idle list true.
    pub(super) fn settle(&mut self, now: Moment, id: Id<KeyEntry>) {
        let entry = &mut self.entries[id];
        entry.touched = now;
        let usage = if entry.is_idle() { Use::Idle } else { Use::Busy };
        if entry.counted != usage {
            *self.census.keys(entry.limit, entry.counted) -= 1;
            *self.census.keys(entry.limit, usage) += 1;
            entry.counted = usage;
        }
        let idle = entry.is_idle() && entry.pins == 0;
        match (entry.listed, idle) {
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

    pub(super) fn add_holder(&mut self, id: Id<KeyEntry>) {
        let entry = &mut self.entries[id];
        entry.held += 1;
        *self.census.holders(entry.limit) += 1;
    }

    pub(super) fn remove_holder(&mut self, id: Id<KeyEntry>) {
        let entry = &mut self.entries[id];
        entry.held -= 1;
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
        let tail = std::mem::replace(&mut self.idle_tail, id);
        let entry = &mut self.entries[id];
        entry.listed = true;
        entry.idle_prev = tail;
        entry.idle_next = Id::NIL;
        if tail.is_nil() {
            self.idle_head = id;
        } else {
            self.entries[tail].idle_next = id;
        }
    }

    fn unlist(&mut self, id: Id<KeyEntry>) {
        let entry = &mut self.entries[id];
        entry.listed = false;
        let (prev, next) = (entry.idle_prev, entry.idle_next);
        if prev.is_nil() {
            self.idle_head = next;
        } else {
            self.entries[prev].idle_next = next;
        }
        if next.is_nil() {
            self.idle_tail = prev;
        } else {
            self.entries[next].idle_prev = prev;
        }
    }

    /// Forgets keys that were idle for longer than `gc_max_idle`, once per `gc_interval`.
    pub(super) fn collect(&mut self, now: Moment, caps: &Caps, budget: usize) -> Progress {
        if self.idle_head.is_nil() || now < self.next_collection {
            return Progress::Done;
        }
        for _ in 0..budget {
            let Some(id) = self.idle_head.some() else { break };
            if now <= self.entries[id].touched.after(caps.gc_max_idle) {
                break;
            }
            self.forget(id);
        }
        let more = self
            .idle_head
            .some()
            .is_some_and(|id| now > self.entries[id].touched.after(caps.gc_max_idle));
        if more {
            return Progress::More;
        }
        self.next_collection = now.after(caps.gc_interval);
        Progress::Done
    }

    /// When [`Keys::collect`] wants to be called.
    pub(super) const fn next_collection(&self) -> Moment {
        if self.idle_head.is_nil() { Moment::NEVER } else { self.next_collection }
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
