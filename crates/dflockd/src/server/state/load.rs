//! Reads the files of the state directory, each as far as it is intact: the holds, whether holds may be missing, and for how
//! long nothing may be granted because of that. Pure.

use std::collections::HashMap;

use leases::journal::RecordedHold;
use leases::{Seconds, Token};

use super::codec::{
    BootId, DirId, Doubt, END_BYTES, Entry, HEADER_BYTES, Header, Held, INDEX_BYTES, Index, Read,
    read_entry, read_header, read_index,
};

/// The bytes of the files; a missing file has none.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileBytes<'a> {
    /// The index.
    pub(super) index: &'a [u8],
    /// The two files of holds.
    pub(super) holds: [&'a [u8]; 2],
}

/// The file that is damaged, missing or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Damage {
    /// The index is missing, or cannot be read.
    Index,
    /// The file that counts is missing, cannot be read, or another one is in its place.
    Newest,
    /// The file that counts cannot be read to its end.
    End,
    /// The other file is damaged: its content is not needed.
    Other,
}

impl Damage {
    /// The damage in words.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Index => "the index is missing or damaged",
            Self::Newest => "the newest file of holds is missing, damaged or not the newest",
            Self::End => "the newest file of holds is damaged or cut short at its end",
            Self::Other => "the older file of holds, which is not needed, is missing or damaged",
        }
    }
}

/// The content of the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Loaded {
    /// The holds whose lease is not over.
    pub(super) holds: Vec<RecordedHold>,
    /// No fence above this was given out.
    pub(super) fence: u64,
    /// The longest lease that may be missing, in seconds.
    pub(super) longest: u64,
    /// The damage that was found, if any.
    pub(super) damage: Option<Damage>,
    /// Whether holds may be missing, by the files as they are now.
    pub(super) doubt: Option<Doubt>,
    /// Whether holds may be missing since an earlier start, and the time that is left to wait for them.
    pub(super) closing: Option<(Doubt, u64)>,
    /// The directory of these files, if that is known.
    pub(super) dir: Option<DirId>,
    /// The generation of the file that counted; 0 for none.
    pub(super) generation: u64,
    /// The greatest generation that was used.
    pub(super) last_generation: u64,
    /// The place of the next generation: never that of the file that counted.
    pub(super) next_slot: usize,
    /// The place of the next index: never that of the index that counted.
    pub(super) next_index: usize,
}

impl Loaded {
    /// How long nothing may be granted, and why.
    pub(super) fn wait(&self, default_lease: Seconds) -> Option<(Doubt, u64)> {
        let seconds = self.longest.max(default_lease.count());
        let anew = self.doubt.map(|doubt| (doubt, seconds.saturating_mul(1_000_000)));
        anew.into_iter().chain(self.closing).max_by_key(|&(_, micros)| micros)
    }

    /// The longest lease of the present holds, in seconds.
    pub(super) fn longest_held(&self) -> u64 {
        self.holds.iter().map(|hold| hold.ttl.span().count()).max().unwrap_or(0)
    }
}

/// A blank file was never written.
fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

/// The files of a directory, read as far as they can be.
struct StateFiles<'a> {
    found: FileBytes<'a>,
    index: Option<Index>,
    /// An index that was found in the place of a file of holds.
    misplaced: [Option<Index>; 2],
    /// The files of holds, by their place.
    logs: [Option<LogFile>; 2],
}

impl StateFiles<'_> {
    fn logs(&self) -> impl Iterator<Item = &LogFile> {
        self.logs.iter().flatten()
    }

    /// The complete file with the greatest generation.
    fn newest(&self) -> Option<&LogFile> {
        let is_ours = |log: &&LogFile| self.index.is_none_or(|index| log.same_directory(&index));
        let whole = self.logs().filter(|log| log.whole).filter(is_ours);
        whole.max_by_key(|log| log.header.generation)
    }

    fn damage(&self, boot: &BootId) -> Option<Damage> {
        let newest = self.newest();
        let Some(index) = &self.index else {
            let FileBytes { index, holds } = self.found;
            // The first index may have been begun.
            let is_unused = is_blank(index.get(INDEX_BYTES..).unwrap_or_default());
            let is_new = is_unused && holds.into_iter().all(is_blank);
            return (!is_new).then_some(Damage::Index);
        };
        let generation = index.counts.generation;
        let Some(newest) = newest else {
            // The first file is not complete before the index has been written once more.
            return (generation > 0).then_some(Damage::Newest);
        };
        let at = newest.header.generation;
        if at != generation && !(index.other > generation && at == index.other) {
            return Some(Damage::Newest);
        }
        if !newest.slot_matches() {
            return Some(Damage::Newest);
        }
        if newest.is_torn {
            return Some(Damage::End);
        }
        // After a power cut the end of a file that is not needed any more may be missing.
        let is_old = (1..generation).contains(&index.other) && at == generation;
        let is_known = |log: &&LogFile| log.header.generation == index.other && log.whole;
        let is_good =
            |log: &LogFile| log.slot_matches() && log.same_directory(index) && !log.is_torn;
        let other = self.logs().find(is_known);
        let is_other_boot = newest.header.boot != *boot;
        let is_missing = is_old && !is_other_boot && !other.is_some_and(is_good);
        is_missing.then_some(Damage::Other)
    }

    /// The header of the file that counts if nothing is damaged, otherwise all headers that can be read.
    fn headers(&self, damage: Option<Damage>) -> impl Iterator<Item = &Header> {
        let newest = self.newest().map(|log| log.header.generation);
        let counts =
            move |log: &&LogFile| damage.is_some() || Some(log.header.generation) == newest;
        let logs = self.logs().filter(counts).map(|log| &log.header);
        let misplaced = self.misplaced.iter().flatten().filter(move |_| damage.is_some());
        logs.chain(self.index.iter().chain(misplaced).map(|index| &index.counts))
    }

    /// The rest of the longest wait that an earlier start began.
    fn closing(
        &self,
        damage: Option<Damage>,
        boot: &BootId,
        now_micros: u64,
    ) -> Option<(Doubt, u64)> {
        let left = |header: &Header| {
            let closing = header.closing?;
            let at_most = closing.left_micros;
            let left = if header.boot == *boot {
                closing.boot_micros.saturating_sub(now_micros).min(at_most)
            } else {
                // It is unknown how long the machine was off.
                at_most
            };
            Some((closing.doubt, left)).filter(|&(_, left)| left > 0)
        };
        self.headers(damage).filter_map(left).max_by_key(|&(_, left)| left)
    }
}

/// Reads the files, in microseconds since this start of the machine.
pub(super) fn load(found: FileBytes<'_>, boot: &BootId, now_micros: u64) -> Loaded {
    let [first, second] = found.holds;
    let logs = [LogFile::read(first, 0), LogFile::read(second, 1)];
    let misplaced = [first, second].map(|file| read_index(file).map(|(index, _)| index));
    let (index, index_at) = read_index(found.index).unzip();
    let files = StateFiles { found, index, misplaced, logs };
    let damage = files.damage(boot);
    let newest = files.newest();
    let generation = newest.map_or(0, |log| log.header.generation);
    let anywhere = |of: fn(&LogFile) -> u64| files.logs().map(of).max().unwrap_or(0);
    let (index, other) = files.index.map_or((0, 0), |i| (i.counts.generation, i.other));
    // The index is the last word, if it is right.
    let longest = files.index.map_or(0, |index| index.counts.longest);
    let headers = || files.headers(damage).map(|header| header.longest).max().unwrap_or(0);
    let anything = || headers().max(anywhere(|log| log.longest));
    let fence = anywhere(|log| log.fence);
    let doubt = newest.and_then(|log| log.doubt(boot));
    Loaded {
        holds: newest.map(|log| log.holds(boot, now_micros)).unwrap_or_default(),
        fence: files.headers(damage).map(|header| header.fence).max().unwrap_or(0).max(fence),
        longest: damage.map_or(longest, |_| anything()),
        damage,
        doubt: damage.map(|_| Doubt::Damaged).or(doubt),
        closing: files.closing(damage, boot, now_micros),
        dir: files.index.map(|index| index.counts.dir).or_else(|| newest.map(|log| log.header.dir)),
        generation,
        last_generation: anywhere(|log| log.header.generation).max(index).max(other),
        next_slot: newest.map_or(0, |log| 1 - log.slot),
        next_index: index_at.map_or(0, |place| 1 - place),
    }
}

/// One file of holds, read as far as it is intact.
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
        let (header, mut sum) = read_header(bytes)?;
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
            match read_entry(rest, sum) {
                Read::End => return Some(file),
                Read::Torn => {
                    file.is_torn = true;
                    return Some(file);
                }
                Read::More(next) => {
                    rest = rest.get(END_BYTES..).unwrap_or_default();
                    sum = next;
                }
                Read::Entry(entry, used, next) => {
                    file.take(entry);
                    rest = rest.get(used..).unwrap_or_default();
                    sum = next;
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
                self.fence = self.fence.max(held.hold.token.fence());
                self.longest = self.longest.max(held.hold.ttl.span().count());
                self.held.insert(held.hold.token, held);
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
    pub(super) fn holds(&self, boot: &BootId, now_micros: u64) -> Vec<RecordedHold> {
        let same_boot = self.header.boot == *boot;
        let live = |held: &Held| {
            // It is unknown how long the machine was off. A clock that went back must not make a lease longer than it
            // was, either.
            let most = held.hold.ttl.span().micros();
            let left = if same_boot { held.boot_micros.saturating_sub(now_micros) } else { most };
            let left_micros = left.min(most);
            (left_micros > 0).then(|| RecordedHold { left_micros, ..held.hold.clone() })
        };
        let mut holds: Vec<RecordedHold> = self.held.values().filter_map(live).collect();
        // In the order in which they were granted.
        holds.sort_unstable_by_key(|hold| hold.token.fence());
        holds
    }
}
