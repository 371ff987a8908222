//! The running record of holds: changes are collected, written together, and folded into a fresh
//! file when the old one fills up. Decides what is written where; [`Disk`] does it.
//!
//! There are two files of the same reserved size. One is written behind its last entry. When it is
//! half full, the holds there are go into the other one, a few in each turn, and changes go into
//! both until that one is whole and counts. So whatever instruction the process dies at, one whole
//! file is there; and on a full disk, whose blocks these files have already, renewals and hand-overs
//! go on for ever, and only what needs more room than is reserved is refused.
//!
//! The index says which files there have to be. It is written before a file is begun and after it is
//! whole, and on the disk before anybody is promised a longer lease, or a greater fence, than it
//! knows: whatever is lost, how long to wait for it is not.

use super::codec::{
    Chain, END_BYTES, Entry, HEADER_BYTES, INDEX_BYTES, Index, MAX_ENTRY_BYTES, Saved, held_bytes,
    push_end, push_entry, push_header, push_index, seal,
};
use super::disk::{Disk, Health, Holds, Synced, Times};
use super::load::Loaded;
use super::promises::Promises;
use leases::{Change, Hold, Moment, Progress};
use std::io;

/// Reserved for each file at first.
const FIRST_BYTES: u64 = if cfg!(test) { 1 << 13 } else { 1 << 20 };
/// Of the reserved bytes, holds may take one in so many: the rest is for changes.
const SHARE: u64 = 4;
/// Holds written into the next file in one turn.
const COPIED: u32 = 256;
/// After a failure, before the next try.
const RETRY_MICROS: u64 = 1_000_000;

/// The next file, not whole yet.
#[derive(Debug)]
struct Copying {
    generation: u64,
    at: u64,
    chain: Chain,
    cursor: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Ledger<D> {
    disk: D,
    promises: Promises,
    /// Of the file that counts.
    generation: u64,
    /// The greatest one used, for a file that was given up too.
    last_generation: u64,
    slot: usize,
    at: u64,
    chain: Chain,
    /// The file that counts can be read to its end.
    intact: bool,
    /// What the index says of the other file.
    other: u64,
    /// Reserved for each file.
    capacity: u64,
    /// Changes not written yet, without checksums.
    pending: Vec<u8>,
    buffer: Vec<u8>,
    copying: Option<Copying>,
    /// Bytes that all holds take.
    live: u64,
    /// Changes noted, and changes in the file.
    noted: u64,
    written: u64,
    health: Health,
    /// No further try before this, after a failure.
    retry: Moment,
    /// The last failure, for the log.
    failure: Option<io::Error>,
}

impl<D: Disk> Ledger<D> {
    /// A record that goes on after what was found. Before anything else [`Ledger::rewrite`] is to be
    /// called.
    pub(super) fn new(disk: D, found: &Loaded, promises: Promises) -> Self {
        Self {
            disk,
            promises,
            generation: found.generation,
            last_generation: found.last_generation,
            // The next one is written into the other.
            slot: 1 - found.next_slot % 2,
            at: 0,
            chain: Chain::NONE,
            intact: found.generation > 0 && found.damage.is_none(),
            other: 0,
            capacity: 0,
            pending: Vec::new(),
            buffer: Vec::new(),
            copying: None,
            live: found.holds.iter().map(|hold| held_bytes(&hold.key)).sum(),
            noted: 0,
            written: 0,
            health: Health::Good,
            retry: Moment::default(),
            failure: None,
        }
    }

    /// Changes noted so far: what an answer rests on.
    pub(super) const fn noted(&self) -> u64 {
        self.noted
    }

    /// Changes that are in the file.
    pub(super) const fn written(&self) -> u64 {
        self.written
    }

    /// How well it goes.
    pub(super) const fn health(&self) -> Health {
        self.health
    }

    /// Something is to be written or tried again.
    pub(super) fn has_work(&self) -> bool {
        !self.pending.is_empty() || self.copying.is_some()
    }

    /// When a further try is due, if one failed.
    pub(super) const fn retry(&self) -> Moment {
        match self.health {
            Health::Broken => self.retry,
            Health::Good | Health::Full => Moment::NEVER,
        }
    }

    /// The file that counts.
    pub(super) const fn slot(&self) -> usize {
        self.slot
    }

    /// The last failure, once.
    pub(super) const fn take_failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    /// Where the files are.
    pub(super) const fn disk(&self) -> &D {
        &self.disk
    }

    /// Takes a change down, to be written by the next [`Ledger::flush`].
    pub(super) fn note(&mut self, change: &Change<'_>, times: Times) {
        self.noted += 1;
        match change {
            Change::Granted(hold) => {
                self.live += held_bytes(hold.key.bytes());
                if let Some(entry) = self.promises.grant(hold) {
                    push_entry(&mut self.pending, &entry);
                }
                push_hold(&mut self.pending, hold, times);
            }
            Change::Renewed(hold) => {
                self.promises.lease(hold);
                push_hold(&mut self.pending, hold, times);
            }
            Change::Ended { key, token } => {
                self.live = self.live.saturating_sub(held_bytes(key.bytes()));
                push_entry(&mut self.pending, &Entry::Ended(*token));
            }
        }
    }

    /// Whether one more hold could be written down; reserves room for it.
    pub(super) fn has_room(&mut self, now: Moment) -> bool {
        if self.health == Health::Broken {
            return false;
        }
        let needed = (self.live + MAX_ENTRY_BYTES as u64) * SHARE;
        if needed <= self.capacity {
            self.health = Health::Good;
            return true;
        }
        if now < self.retry {
            return false;
        }
        match self.reserve(self.capacity * 2) {
            Ok(()) => {
                self.health = Health::Good;
                true
            }
            Err(err) => {
                self.retry = now.after_micros(RETRY_MICROS);
                if self.health != Health::Full {
                    self.failure = Some(err);
                }
                self.health = Health::Full;
                false
            }
        }
    }

    fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        self.disk.reserve(0, bytes)?;
        self.disk.reserve(1, bytes)?;
        self.capacity = bytes;
        Ok(())
    }

    /// Writes what was noted, with one write, and goes on with the next file if one is begun.
    pub(super) fn flush(&mut self, holds: &impl Holds, times: Times) {
        if self.health == Health::Broken {
            if times.now >= self.retry {
                self.rewrite(holds, times);
            }
            return;
        }
        if let Err(err) = self.try_flush(holds, times) {
            self.fail(err, times.now);
        }
    }

    /// Something outside could not be written either.
    pub(super) fn fail(&mut self, err: io::Error, now: Moment) {
        self.failure = Some(err);
        self.health = Health::Broken;
        self.retry = now.after_micros(RETRY_MICROS);
        self.copying = None;
        // Half of a write may be in it.
        self.intact = false;
    }

    fn try_flush(&mut self, holds: &impl Holds, times: Times) -> io::Result<()> {
        // With its checksum the shortest entry is not three times as long.
        let most = self.pending.len() as u64 * 3 + END_BYTES as u64;
        if self.at + most > self.capacity {
            return self.try_rewrite(holds, times);
        }
        if self.promises.are_due() {
            self.write_index(times, Synced::Yes)?;
        }
        if !self.pending.is_empty() {
            (self.at, self.chain) = self.append(self.slot, self.chain, self.at)?;
            self.copy_pending();
            self.pending.clear();
            self.written = self.noted;
        }
        if self.copying.is_some() {
            self.copy_some(holds, times);
        } else if self.at > self.capacity / 2 && times.now >= self.retry {
            self.begin_copy(times, self.promises.synced());
        }
        Ok(())
    }

    /// Writes what is pending behind `at`; says where the end is now, and what goes on from.
    fn append(&mut self, slot: usize, chain: Chain, at: u64) -> io::Result<(u64, Chain)> {
        self.buffer.clear();
        let chain = seal(&mut self.buffer, chain, &self.pending);
        let end = at + self.buffer.len() as u64;
        push_end(&mut self.buffer, chain);
        self.disk.write(slot, at, &self.buffer)?;
        Ok((end, chain))
    }

    fn write_index(&mut self, times: Times, synced: Synced) -> io::Result<()> {
        let counts = self.promises.header(self.generation, self.slot, times);
        let mut bytes = Vec::with_capacity(INDEX_BYTES);
        push_index(&mut bytes, &Index { counts, other: self.other });
        self.disk.write_index(&bytes, synced)?;
        if synced == Synced::Yes {
            self.promises.are_noted();
        }
        Ok(())
    }

    /// A next file that cannot be written is given up; the old one still counts.
    fn give_up_copy(&mut self, err: io::Error, now: Moment) {
        self.copying = None;
        self.failure = Some(err);
        self.retry = now.after_micros(RETRY_MICROS);
    }

    fn begin_copy(&mut self, times: Times, synced: Synced) {
        match self.try_begin_copy(times, synced) {
            Ok(copying) => self.copying = Some(copying),
            Err(err) => self.give_up_copy(err, times.now),
        }
    }

    fn try_begin_copy(&mut self, times: Times, synced: Synced) -> io::Result<Copying> {
        self.last_generation += 1;
        let (generation, slot) = (self.last_generation, 1 - self.slot);
        self.other = generation;
        self.write_index(times, synced)?;
        let mut head = Vec::with_capacity(HEADER_BYTES + END_BYTES);
        let chain = push_header(&mut head, &self.promises.header(generation, slot, times));
        push_end(&mut head, chain);
        self.disk.write(slot, 0, &head)?;
        Ok(Copying { generation, at: HEADER_BYTES as u64, chain, cursor: 0 })
    }

    fn copy_pending(&mut self) {
        let Some(copying) = &self.copying else { return };
        let (chain, at) = (copying.chain, copying.at);
        match self.append(1 - self.slot, chain, at) {
            Ok((at, chain)) => {
                self.copying = self.copying.take().map(|c| Copying { at, chain, ..c });
            }
            Err(err) => self.give_up_copy(err, Moment::default()),
        }
    }

    /// Writes some more holds into the next file; the last of them makes it count.
    fn copy_some(&mut self, holds: &impl Holds, times: Times) {
        let Some(mut copying) = self.copying.take() else { return };
        let mut entries = Vec::new();
        let mut note = |hold: Hold<'_>| push_hold(&mut entries, &hold, times);
        let progress = holds.look_over(&mut copying.cursor, COPIED, &mut note);
        if progress == Progress::Done {
            push_entry(&mut entries, &self.promises.fence());
            push_entry(&mut entries, &Entry::Whole);
        }
        let mut bytes = Vec::new();
        let chain = seal(&mut bytes, copying.chain, &entries);
        let at = copying.at + bytes.len() as u64;
        push_end(&mut bytes, chain);
        let written = self.disk.write(1 - self.slot, copying.at, &bytes);
        copying = Copying { at, chain, ..copying };
        match written {
            Err(err) => self.give_up_copy(err, times.now),
            Ok(()) if progress == Progress::Done => self.turn_over(&copying, times),
            Ok(()) => self.copying = Some(copying),
        }
    }

    /// The next file is whole and counts from now on.
    fn turn_over(&mut self, next: &Copying, times: Times) {
        self.other = if self.intact { self.generation } else { 0 };
        self.slot = 1 - self.slot;
        self.generation = next.generation;
        self.at = next.at;
        self.chain = next.chain;
        self.intact = true;
        // The one before says that this one may count, too.
        if let Err(err) = self.write_index(times, Synced::No) {
            self.failure = Some(err);
        }
    }

    /// Writes all holds into the next file at once, which counts from then on. For the start, and
    /// when nothing could be written for a while: memory is right, whatever the files say.
    pub(super) fn rewrite(&mut self, holds: &impl Holds, times: Times) {
        if let Err(err) = self.try_rewrite(holds, times) {
            self.fail(err, times.now);
        }
    }

    fn try_rewrite(&mut self, holds: &impl Holds, times: Times) -> io::Result<()> {
        self.reserve_for_all()?;
        self.begin_copy(times, Synced::Yes);
        let generation = self.generation;
        while self.copying.is_some() {
            self.copy_some(holds, times);
        }
        if self.generation == generation {
            let unknown = || io::Error::other("the next state file cannot be written");
            return Err(self.failure.take().unwrap_or_else(unknown));
        }
        self.disk.sync(self.slot)?;
        self.write_index(times, Synced::Yes)?;
        self.pending.clear();
        self.written = self.noted;
        self.health = Health::Good;
        self.retry = Moment::default();
        Ok(())
    }

    /// Reserves as much as is wished for, or at least what the holds there are need.
    fn reserve_for_all(&mut self) -> io::Result<()> {
        let mut wanted = self.capacity.max(FIRST_BYTES);
        while wanted < (self.live + MAX_ENTRY_BYTES as u64) * SHARE {
            wanted *= 2;
        }
        if wanted <= self.capacity {
            return Ok(());
        }
        let needed = self.live + (HEADER_BYTES + MAX_ENTRY_BYTES) as u64;
        match self.reserve(wanted) {
            Err(_) if needed <= self.capacity => Ok(()),
            Err(_) => self.reserve(needed),
            Ok(()) => Ok(()),
        }
    }

    /// The end in order: everything is written, and so is that, and it is on the disk.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn close(&mut self, holds: &impl Holds, times: Times) -> io::Result<()> {
        // Nothing may come behind it.
        self.copying = None;
        push_entry(&mut self.pending, &Entry::Closed);
        self.flush(holds, times);
        self.disk.sync(self.slot)?;
        self.write_index(times, Synced::Yes)
    }
}

fn push_hold(out: &mut Vec<u8>, hold: &Hold<'_>, times: Times) {
    let left = hold.expires.micros_since(times.now);
    let Hold { key, limit, token, ttl, .. } = *hold;
    let saved = Saved {
        key,
        limit,
        token,
        ttl,
        boot_micros: times.clocks.boot_micros.saturating_add(left),
        wall_micros: times.clocks.wall_micros.saturating_add(left),
    };
    push_entry(out, &Entry::Held(saved));
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
