//! Two state files → the holds there are, and what may be missing. Pure.

use super::codec::{BootId, Entry, HEADER_BYTES, Header, Read, Saved, read_entry, read_header};
use crate::engine::{Key, Limit, Token, Ttl};
use std::collections::HashMap;

/// The clocks at one moment, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clocks {
    /// Since the boot, sleep included.
    pub(super) boot_micros: u64,
    /// Since 1970.
    pub(super) wall_micros: u64,
}

/// A hold that goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// Of which key.
    pub(super) key: Box<[u8]>,
    /// How many may hold it.
    pub(super) limit: Limit,
    /// What proves it.
    pub(super) token: Token,
    /// The lease as last asked for.
    pub(super) ttl: Ttl,
    /// What is left of the lease.
    pub(super) left_micros: u64,
}

/// Why grants must wait until leases nobody remembers are surely over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The machine was started anew, and the last grants may not have reached the disk.
    OtherBoot,
    /// So many bytes, or a whole file, could not be read.
    Damaged {
        /// Behind the last good entry; zero when not even the file's head is good.
        bytes: usize,
    },
}

/// What two files say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Loaded {
    /// The holds whose lease is not over.
    pub(super) holds: Vec<Kept>,
    /// No fence above this was given out.
    pub(super) fence: u64,
    /// The longest lease there was, in seconds.
    pub(super) longest: u64,
    /// Whether something may be missing.
    pub(super) doubt: Option<Doubt>,
    /// Of the file that counted.
    pub(super) generation: u64,
    /// Where the next generation goes: never over the file that counted.
    pub(super) next_slot: usize,
}

/// One file, read as far as it can be.
struct Story {
    header: Header,
    held: HashMap<Token, Kept>,
    ends: HashMap<Token, (u64, u64)>,
    fence: u64,
    longest: u64,
    whole: bool,
    closed: bool,
    torn_bytes: Option<usize>,
}

impl Story {
    fn read(bytes: &[u8]) -> Option<Self> {
        let header = read_header(bytes)?;
        let mut story = Self {
            header,
            held: HashMap::new(),
            ends: HashMap::new(),
            fence: header.fence,
            longest: 0,
            whole: false,
            closed: false,
            torn_bytes: None,
        };
        let mut rest = bytes.get(HEADER_BYTES..).unwrap_or_default();
        loop {
            match read_entry(rest, header.generation) {
                Read::End => return Some(story),
                Read::Torn => {
                    story.torn_bytes = Some(rest.len());
                    return Some(story);
                }
                Read::Entry(entry, used) => {
                    story.take(&entry);
                    rest = rest.get(used..).unwrap_or_default();
                }
            }
        }
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
        let Saved { key, limit, token, ttl, .. } = *saved;
        self.fence = self.fence.max(token.fence());
        self.longest = self.longest.max(ttl.span().count());
        self.ends.insert(token, (saved.boot_micros, saved.wall_micros));
        let key: Box<[u8]> = key.bytes().into();
        self.held.insert(token, Kept { key, limit, token, ttl, left_micros: 0 });
    }

    fn doubt(&self, boot: &BootId) -> Option<Doubt> {
        if let Some(bytes) = self.torn_bytes {
            return Some(Doubt::Damaged { bytes });
        }
        let is_safe = self.header.synced || self.closed || self.header.boot == *boot;
        (!is_safe).then_some(Doubt::OtherBoot)
    }

    fn holds(&self, boot: &BootId, clocks: Clocks) -> Vec<Kept> {
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

/// Reads both files. One that is empty was never written.
pub(super) fn load(files: [&[u8]; 2], boot: &BootId, clocks: Clocks) -> Loaded {
    let stories = files.map(Story::read);
    let unreadable = files
        .iter()
        .zip(&stories)
        .any(|(bytes, story)| story.is_none() && bytes.iter().any(|&byte| byte != 0));
    let generation = stories.iter().flatten().map(|story| story.header.generation).max();
    let fence = stories.iter().flatten().map(|story| story.fence).max().unwrap_or(0);
    let longest = stories.iter().flatten().map(|story| story.longest).max().unwrap_or(0);
    let whole = |story: &&Story| story.whole;
    let counts = stories.iter().flatten().filter(whole).max_by_key(|s| s.header.generation);
    let mut loaded = Loaded {
        holds: counts.map(|story| story.holds(boot, clocks)).unwrap_or_default(),
        fence,
        longest,
        doubt: counts.and_then(|story| story.doubt(boot)),
        generation: generation.unwrap_or(0),
        next_slot: 0,
    };
    if let Some(story) = counts {
        let is_it = |other: &Option<Story>| {
            other.as_ref().is_some_and(|o| o.header.generation == story.header.generation)
        };
        loaded.next_slot = usize::from(stories.first().is_some_and(is_it));
    }
    // The newer file may be the one that cannot be read, or the only one was never finished.
    if unreadable || (counts.is_none() && generation.is_some()) {
        loaded.doubt = loaded.doubt.or(Some(Doubt::Damaged { bytes: 0 }));
    }
    loaded
}

impl Kept {
    /// Its key.
    #[must_use]
    pub(super) fn key(&self) -> Option<Key<'_>> {
        Key::new(&self.key)
    }
}
