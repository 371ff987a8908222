//! Reads one file of holds as far as it is intact. Pure.

use super::codec::{
    BootId, Doubt, Entry, HEADER_BYTES, Header, Index, Read, Saved, read_entry, read_header,
};
use super::load::Clocks;
use leases::journal::Kept;
use leases::{Label, Token};
use std::collections::HashMap;

/// See the module.
pub(super) struct Story {
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
    held: HashMap<Token, Kept>,
    ends: HashMap<Token, (u64, u64)>,
    closed: bool,
}

impl Story {
    /// Reads a file; `None` if its header is invalid.
    pub(super) fn read(bytes: &[u8], slot: usize) -> Option<Self> {
        let (header, mut chain) = read_header(bytes)?;
        let mut story = Self {
            header,
            slot,
            fence: header.fence,
            longest: 0,
            whole: false,
            is_torn: false,
            held: HashMap::new(),
            ends: HashMap::new(),
            closed: false,
        };
        let mut rest = bytes.get(HEADER_BYTES..).unwrap_or_default();
        loop {
            match read_entry(rest, chain) {
                Read::End => return Some(story),
                Read::Torn => {
                    story.is_torn = true;
                    return Some(story);
                }
                Read::Entry(entry, used, next) => {
                    story.take(&entry);
                    rest = rest.get(used..).unwrap_or_default();
                    chain = next;
                }
            }
        }
    }

    /// Whether it belongs to this index.
    pub(super) fn is_its(&self, index: &Index) -> bool {
        self.header.dir == index.counts.dir
    }

    /// Whether it is in the place for which it was written.
    pub(super) const fn is_at_home(&self) -> bool {
        self.header.slot == self.slot
    }

    fn take(&mut self, entry: &Entry<'_>) {
        self.closed = false;
        match entry {
            Entry::Held(saved) => self.hold(saved),
            Entry::Ended(token) => {
                self.held.remove(token);
                self.ends.remove(token);
            }
            Entry::Fence(fence) => self.fence = self.fence.max(*fence),
            Entry::Whole => self.whole = true,
            Entry::Closed => self.closed = true,
        }
    }

    fn hold(&mut self, saved: &Saved<'_>) {
        let Saved { key, claim, token, ttl, .. } = *saved;
        self.fence = self.fence.max(token.fence());
        self.longest = self.longest.max(ttl.span().count());
        self.ends.insert(token, (saved.boot_micros, saved.wall_micros));
        let (key, label) = (key.bytes().into(), Label::read(saved.label));
        self.held.insert(token, Kept { key, claim, token, ttl, left_micros: 0, label });
    }

    /// Why the file may not contain all that was promised, if so.
    pub(super) fn doubt(&self, boot: &BootId) -> Option<Doubt> {
        let is_safe = self.header.synced || self.closed || self.header.boot == *boot;
        (!is_safe).then_some(Doubt::OtherBoot)
    }

    /// The holds whose lease is not over.
    pub(super) fn holds(&self, boot: &BootId, clocks: Clocks) -> Vec<Kept> {
        let same_boot = self.header.boot == *boot;
        let left = |hold: &Kept| {
            let &(boot_end, wall_end) = self.ends.get(&hold.token)?;
            let left = if same_boot {
                boot_end.checked_sub(clocks.boot_micros)?
            } else {
                wall_end.checked_sub(clocks.wall_micros)?
            };
            // A clock that went back must not make a lease longer than it was.
            let most = hold.ttl.span().count().saturating_mul(1_000_000);
            Some(left.min(most)).filter(|&left| left > 0)
        };
        let live = self.held.values();
        let live = live.filter_map(|hold| Some(Kept { left_micros: left(hold)?, ..hold.clone() }));
        let mut holds: Vec<Kept> = live.collect();
        // In the order in which they were granted.
        holds.sort_unstable_by_key(|hold| hold.token.fence());
        holds
    }
}
