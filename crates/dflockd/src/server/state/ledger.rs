//! The running record of holds: changes are collected, written together, and folded into a fresh
//! file when the old one fills up. Decides what is written where; [`Disk`] does it.
//!
//! There are two files of the same reserved size. Changes are appended to one of them. When it is half full, the
//! present holds are copied into the other one, which counts from then on. One byte decides whether what was written
//! counts, and it is written last: a kill can end a longer write between two pages. So there is one complete file, at
//! whichever byte a write ends. On a full disk, these files still have their blocks: renewals and hand-overs continue,
//! and only a hold that needs more room than is reserved is refused.
//!
//! The index says which files must exist. It is written before a file is begun and after it is complete. It is on the
//! disk before a client is promised a longer lease or a greater fence than it records. So whatever is lost, the time
//! to wait for it is known. It records a shorter length when the long leases have ended: a hold that is missing then
//! is present, or came later.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use leases::journal::{Failed, Record, RecordedHold, Recovered};
use leases::{Moment, Seconds};

use super::codec::{
    CHOICE_AT, CHOICES, Checksum, END_BYTES, Entry, HEADER_BYTES, Held, INDEX_BYTES, Index,
    MAX_ENTRY_BYTES, MAX_LABEL_BYTES, MORE, held_bytes, label_bytes, push_end, push_entry,
    push_header, push_held, push_index,
};
use super::load::Loaded;
use super::promises::{Origin, Promises, Synced, Times};

/// The bytes that are reserved for each file at first.
const FIRST_BYTES: u64 = if cfg!(test) { 1 << 13 } else { 1 << 20 };
/// Holds may take one part in this many of the reserved bytes; the rest is for changes.
const SHARE: u64 = 4;
/// The pause after a failure, before the next try.
pub(super) const RETRY: Duration = Duration::from_micros(RETRY_MICROS);
const RETRY_MICROS: u64 = 1_000_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Ledger<D> {
    disk: D,
    promises: Promises,
    /// The generation of the file that counts.
    generation: u64,
    /// The greatest generation that was used, also for a file that was given up.
    last_generation: u64,
    slot: usize,
    /// Where the mark is that ends the file.
    at: u64,
    /// The place of the next index in its file.
    next_index: usize,
    /// The checksum that the entry after `pending` continues.
    sum: Checksum,
    /// Whether the file that counts can be read to its end.
    intact: bool,
    /// The generation of the other file in the index.
    other: u64,
    /// The bytes that are reserved for each file.
    capacity: u64,
    /// The present holds, by fence.
    holds: BTreeMap<u64, Held>,
    /// Changes that are not written yet.
    pending: Vec<u8>,
    /// The bytes that all holds take.
    live: u64,
    /// The bytes that their labels would take in addition.
    labels: u64,
    health: Health,
    /// The time of the next try after a failure.
    retry: Moment,
    /// The last failure, for the log.
    failure: Option<io::Error>,
}

impl<D: Disk> Ledger<D> {
    /// Continues the record that was found with a new file. Leases that are no longer than `usual` are always waited
    /// for if holds may be missing.
    pub(super) fn resume(
        disk: D,
        origin: Origin,
        found: Loaded,
        usual: Seconds,
        times: Times,
    ) -> Self {
        let mut ledger = Self {
            disk,
            promises: Promises::new(origin, &found, usual, times),
            generation: found.generation,
            last_generation: found.last_generation,
            // The next file takes the other place.
            slot: 1 - found.next_slot % 2,
            at: 0,
            next_index: found.next_index,
            sum: Checksum::NONE,
            intact: found.generation > 0 && found.damage.is_none(),
            other: 0,
            capacity: 0,
            holds: BTreeMap::new(),
            pending: Vec::new(),
            live: 0,
            labels: 0,
            health: Health::Good,
            retry: Moment::default(),
            failure: None,
        };
        for hold in found.holds {
            ledger.hold(held(hold, times));
        }
        ledger.rewrite(times);
        ledger
    }

    /// The content of the record.
    pub(super) fn recovered(&self, times: Times) -> Recovered {
        let left = |held: &Held| held.boot_micros.saturating_sub(times.boot_micros);
        let hold = |held: &Held| RecordedHold { left_micros: left(held), ..held.hold.clone() };
        let mut recovered = Recovered::default();
        recovered.holds = self.holds.values().map(hold).collect();
        recovered.next_fence = self.promises.next_fence();
        recovered.closed_micros =
            self.promises.closing(times).map_or(0, |closing| closing.left_micros);
        recovered
    }

    /// The state of the record.
    pub(super) const fn health(&self) -> Health {
        self.health
    }

    /// The file that counts.
    pub(super) const fn slot(&self) -> usize {
        self.slot
    }

    /// Returns the last failure, once.
    pub(super) const fn take_failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    /// Where the files are.
    pub(super) const fn disk(&self) -> &D {
        &self.disk
    }

    /// Notes a change, to be written by the next [`Ledger::flush`].
    pub(super) fn note(&mut self, record: &Record, times: Times) {
        match record {
            Record::Granted(hold) | Record::Extended(hold) => {
                if let Some(entry) = self.promises.promise(hold) {
                    self.sum = push_entry(&mut self.pending, self.sum, &entry);
                }
                let held = held(hold.clone(), times);
                self.forget(hold.token.fence());
                self.hold(held.clone());
                let fits = self.labels_fit();
                self.sum = push_held(&mut self.pending, self.sum, &held, fits);
            }
            Record::Ended(token) => {
                self.forget(token.fence());
                self.sum = push_entry(&mut self.pending, self.sum, &Entry::Ended(*token));
            }
        }
    }

    /// Forgets grants that could not be written: no client knows of them.
    pub(super) fn take_back(&mut self, records: &[Record]) {
        for record in records {
            if let Record::Granted(hold) = record {
                self.forget(hold.token.fence());
            }
        }
    }

    fn hold(&mut self, held: Held) {
        self.live += held_bytes(&held.hold.key);
        self.labels += label_bytes(held.hold.label.as_ref());
        self.holds.insert(held.hold.token.fence(), held);
    }

    fn forget(&mut self, fence: u64) {
        if let Some(held) = self.holds.remove(&fence) {
            self.live -= held_bytes(&held.hold.key);
            self.labels -= label_bytes(held.hold.label.as_ref());
        }
    }

    /// How many more holds can be written down; reserves room for `wanted` of them, and says [`usize::MAX`] if the disk
    /// has it.
    pub(super) fn room(&mut self, now: Moment, wanted: usize) -> usize {
        if self.health == Health::Broken {
            return 0;
        }
        let live = self.live + (wanted * MAX_ENTRY_BYTES) as u64;
        let labels = if self.labels == 0 { 0 } else { self.labels + MAX_LABEL_BYTES };
        if !self.is_room_for(live + labels) && now >= self.retry {
            if let Err(err) = self.reserve((live * SHARE).max(self.capacity * 2)) {
                self.retry = now.after_micros(RETRY_MICROS);
                if self.left() == 0 && self.health != Health::Full {
                    self.failure = Some(err);
                }
            }
        }
        let left = self.left();
        self.health = if left == 0 { Health::Full } else { Health::Good };
        if self.is_room_for(live) { usize::MAX } else { left }
    }

    /// The number of further holds for which there is room, whatever their size.
    fn left(&self) -> usize {
        let bytes = (self.capacity / SHARE).saturating_sub(self.live);
        usize::try_from(bytes).unwrap_or(usize::MAX) / MAX_ENTRY_BYTES
    }

    /// Whether holds of this many bytes leave room for changes.
    const fn is_room_for(&self, holds: u64) -> bool {
        holds * SHARE <= self.capacity
    }

    /// Whether there is room for the labels that no hold needs.
    const fn labels_fit(&self) -> bool {
        self.is_room_for(self.live + self.labels + MAX_ENTRY_BYTES as u64)
    }

    fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        self.disk.reserve(0, bytes)?;
        self.disk.reserve(1, bytes)?;
        self.capacity = bytes;
        Ok(())
    }

    /// Writes the noted changes: one write for all of them, and one for the byte that makes them count. Continues the
    /// next file if one is begun. After a failure, which is kept for [`Ledger::take_failure`], everything is written anew
    /// when it is time to try again.
    pub(super) fn flush(&mut self, times: Times) -> Result<(), Failed> {
        if self.health == Health::Broken {
            if times.now >= self.retry {
                self.rewrite(times);
            }
        } else if let Err(err) = self.try_flush(times) {
            self.fail(err, times.now);
        }
        if self.health == Health::Broken { Err(Failed) } else { Ok(()) }
    }

    /// Something outside the record could not be written.
    pub(super) fn fail(&mut self, err: io::Error, now: Moment) {
        self.failure = Some(err);
        self.health = Health::Broken;
        self.retry = now.after_micros(RETRY_MICROS);
        // The file may contain half of a write.
        self.intact = false;
    }

    fn try_flush(&mut self, times: Times) -> io::Result<()> {
        let lengths = self.holds.values().map(|held| held.hold.ttl.span().count());
        self.promises.lower(lengths, times.now);
        if self.at + (self.pending.len() + 2 * END_BYTES) as u64 > self.capacity {
            return self.try_rewrite(times);
        }
        if self.promises.are_due() {
            self.write_index(times, Synced::Yes)?;
        }
        if !self.pending.is_empty() {
            self.append()?;
        }
        if self.at > self.capacity / 2 && times.now >= self.retry {
            if let Err(err) = self.copy(times, self.promises.synced()) {
                // The old file still counts.
                self.failure = Some(err);
                self.retry = times.now.after_micros(RETRY_MICROS);
            }
        }
        Ok(())
    }

    /// Writes the pending changes.
    fn append(&mut self) -> io::Result<()> {
        let behind = self.at + END_BYTES as u64;
        let end = behind + self.pending.len() as u64;
        self.sum = push_end(&mut self.pending, self.sum);
        self.disk.write(self.slot, behind, &self.pending)?;
        self.disk.write(self.slot, self.at, &[MORE])?;
        self.at = end;
        self.pending.clear();
        Ok(())
    }

    fn write_index(&mut self, times: Times, synced: Synced) -> io::Result<()> {
        let counts = self.promises.header(self.generation, self.slot, times);
        let mut bytes = Vec::with_capacity(INDEX_BYTES);
        push_index(&mut bytes, &Index { counts, other: self.other });
        let place = self.next_index;
        self.disk.write_index(place * INDEX_BYTES, &bytes, Synced::No)?;
        let choice = CHOICES.get(place).copied().unwrap_or_default();
        self.disk.write_index(CHOICE_AT, &[choice], synced)?;
        self.next_index = 1 - place;
        if synced == Synced::Yes {
            self.promises.are_noted();
        }
        Ok(())
    }

    /// Writes all holds into the next file, which counts from then on.
    fn copy(&mut self, times: Times, synced: Synced) -> io::Result<()> {
        self.last_generation += 1;
        let (generation, slot) = (self.last_generation, 1 - self.slot);
        self.other = generation;
        self.write_index(times, synced)?;
        let mut bytes = Vec::new();
        let header = push_header(&mut bytes, &self.promises.header(generation, slot, times));
        let mut sum = push_end(&mut bytes, header);
        let fits = self.labels_fit();
        for held in self.holds.values() {
            sum = push_held(&mut bytes, sum, held, fits);
        }
        for entry in [self.promises.fence(), Entry::Whole] {
            sum = push_entry(&mut bytes, sum, &entry);
        }
        let at = bytes.len() as u64;
        let sum = push_end(&mut bytes, sum);
        self.disk.write(slot, 0, &bytes)?;
        self.disk.write(slot, HEADER_BYTES as u64, &[MORE])?;
        self.other = if self.intact { self.generation } else { 0 };
        (self.generation, self.slot, self.at, self.sum) = (generation, slot, at, sum);
        self.intact = true;
        // The earlier index also permits this file to count.
        if let Err(err) = self.write_index(times, Synced::No) {
            self.failure = Some(err);
        }
        Ok(())
    }

    /// Writes all holds at once into the next file, which counts from then on. For the start, and for a time in which
    /// nothing could be written: the memory is right, whatever the files say.
    pub(super) fn rewrite(&mut self, times: Times) {
        if let Err(err) = self.try_rewrite(times) {
            self.fail(err, times.now);
        }
    }

    fn try_rewrite(&mut self, times: Times) -> io::Result<()> {
        self.reserve_for_all()?;
        self.copy(times, Synced::Yes)?;
        self.disk.sync(self.slot)?;
        self.write_index(times, Synced::Yes)?;
        self.pending.clear();
        self.health = Health::Good;
        self.retry = Moment::default();
        Ok(())
    }

    /// Reserves the wanted capacity, or at least what the present holds need.
    fn reserve_for_all(&mut self) -> io::Result<()> {
        let mut wanted = self.capacity.max(FIRST_BYTES);
        while wanted < (self.live + self.labels + MAX_ENTRY_BYTES as u64) * SHARE {
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

    /// Ends the record in order: writes everything and an entry that says so, and has it on the disk.
    ///
    /// # Errors
    /// An error of the system.
    pub(super) fn close(&mut self, times: Times) -> io::Result<()> {
        if self.flush(times).is_ok() {
            self.sum = push_entry(&mut self.pending, self.sum, &Entry::Closed);
            self.append()?;
        }
        self.disk.sync(self.slot)?;
        self.write_index(times, Synced::Yes)
    }
}

/// The hold, with its end.
fn held(hold: RecordedHold, times: Times) -> Held {
    let boot_micros = times.boot_micros.saturating_add(hold.left_micros);
    Held { hold, boot_micros }
}

/// Has the index and the two files of holds, 0 and 1.
pub(super) trait Disk {
    /// Writes all of it.
    ///
    /// # Errors
    /// An error of the system; part of it may be written.
    fn write(&mut self, slot: usize, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes sure that this many bytes of a file can be written.
    ///
    /// # Errors
    /// An error of the system.
    fn reserve(&mut self, slot: usize, bytes: u64) -> io::Result<()>;

    /// Makes sure that a power cut loses nothing of a file.
    ///
    /// # Errors
    /// An error of the system.
    fn sync(&mut self, slot: usize) -> io::Result<()>;

    /// Writes into the file of the index, which is small.
    ///
    /// # Errors
    /// An error of the system.
    fn write_index(&mut self, at: usize, bytes: &[u8], synced: Synced) -> io::Result<()>;
}

/// The state of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// Everything can be written.
    Good,
    /// There is no room for further holds.
    Full,
    /// Nothing can be written.
    Broken,
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
