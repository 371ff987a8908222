//! Reads one file of holds as far as it is intact. Pure.

use super::codec::{
    BootId, Doubt, END_BYTES, Entry, HEADER_BYTES, Header, Held, Index, Read, read_entry,
    read_header,
};
use leases::Token;
use leases::journal::Kept;
use std::collections::HashMap;

/// See the module.
pub(super) struct LogFile {
    /// The header of the file.
    pub(super) header: Header,
    /// Where it was found.
    pub(super) slot: usize,
    /// No fence above this was given out.
    pub(super) fence: u64,
    /// The longest lease in it, in seconds.
    pub(super) longest: u64,
    /// Whether it contains all holds that existed when it was begun.
    pub(super) whole: bool,
    /// Whether it cannot be read to its end.
    pub(super) is_torn: bool,
    held: HashMap<Token, Held>,
    closed: bool,
}

impl LogFile {
    /// Reads a file; `None` if its header is invalid.
    pub(super) fn read(bytes: &[u8], slot: usize) -> Option<Self> {
        let (header, mut chain) = read_header(bytes)?;
        let mut file = Self {
            header,
            slot,
            fence: header.fence,
            longest: 0,
            whole: false,
            is_torn: false,
            held: HashMap::new(),
            closed: false,
        };
        let mut rest = bytes.get(HEADER_BYTES..).unwrap_or_default();
        loop {
            match read_entry(rest, chain) {
                Read::End => return Some(file),
                Read::Torn => {
                    file.is_torn = true;
                    return Some(file);
                }
                Read::More(next) => {
                    rest = rest.get(END_BYTES..).unwrap_or_default();
                    chain = next;
                }
                Read::Entry(entry, used, next) => {
                    file.take(entry);
                    rest = rest.get(used..).unwrap_or_default();
                    chain = next;
                }
            }
        }
    }

    /// Whether it belongs to the directory of this index.
    pub(super) fn same_directory(&self, index: &Index) -> bool {
        self.header.dir == index.counts.dir
    }

    /// Whether it is in the place for which it was written.
    pub(super) const fn slot_matches(&self) -> bool {
        self.header.slot == self.slot
    }

    fn take(&mut self, entry: Entry) {
        self.closed = matches!(entry, Entry::Closed);
        match entry {
            Entry::Held(held) => {
                self.fence = self.fence.max(held.kept.token.fence());
                self.longest = self.longest.max(held.kept.ttl.span().count());
                self.held.insert(held.kept.token, held);
            }
            Entry::Ended(token) => drop(self.held.remove(&token)),
            Entry::Fence(fence) => self.fence = self.fence.max(fence),
            Entry::Whole => self.whole = true,
            Entry::Closed => {}
        }
    }

    /// Why the file may not contain all that was promised, if so.
    pub(super) fn doubt(&self, boot: &BootId) -> Option<Doubt> {
        let is_safe = self.header.synced || self.closed || self.header.boot == *boot;
        (!is_safe).then_some(Doubt::OtherBoot)
    }

    /// The holds whose lease may not be over.
    pub(super) fn holds(&self, boot: &BootId, now_micros: u64) -> Vec<Kept> {
        let same_boot = self.header.boot == *boot;
        let live = |held: &Held| {
            // It is unknown how long the machine was off. A clock that went back must not make a lease longer than it
            // was, either.
            let most = held.kept.ttl.span().count().saturating_mul(1_000_000);
            let left = if same_boot { held.boot_micros.saturating_sub(now_micros) } else { most };
            let left_micros = left.min(most);
            (left_micros > 0).then(|| Kept { left_micros, ..held.kept.clone() })
        };
        let mut holds: Vec<Kept> = self.held.values().filter_map(live).collect();
        // In the order in which they were granted.
        holds.sort_unstable_by_key(|hold| hold.token.fence());
        holds
    }
}
