//! Reads the lines of `/proc/locks`, the kernel's list of locks, that are about some nodes. The limit is an
//! amount of work, because a clock would measure the other work of the machine rather than the list. A limit of time
//! stands behind it: the kernel serves one reader at a time, and others may keep it busy.

use std::cell::Cell;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::kernel_list::{self, ASKED_ROOMS, Extent, Listing, PAGE_BYTES, Source, WIDE_BYTES};
use super::last_lock::LastLock;
use super::room;
use crate::device::node::Node;

/// The kernel's list.
const LIST: &str = "/proc/locks";

/// The most locks that the kernel counts through for all reads of one question. For each piece, it counts through all
/// locks before it. So two readings of 100,000 locks, ten for each of 10,000 users, count through some 300 million
/// locks, which takes the kernel a second or two.
const LOCKS_COUNTED_THROUGH: usize = 1 << 29;

/// Time for one reading where the caller names no end. A client waits ten seconds for a lock.
const READING_TIME: Duration = Duration::from_secs(4);

/// A line of flock(2) without its number. Source: proc(5).
const FLOCK: &str = "FLOCK ";

/// The number of readers that read a list at the same time.
const READERS: usize = 2;

/// This many reads of a page are enough for a list of three hundred locks.
const SHORT_READINGS: usize = 16;

/// The nodes in question.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    places: HashSet<String>,
}

impl Wanted {
    pub(super) fn of<'n>(nodes: impl IntoIterator<Item = &'n Node>) -> Self {
        Self { places: nodes.into_iter().map(place_of).collect() }
    }

    pub(super) fn add(&mut self, node: &Node) {
        self.places.insert(place_of(node));
    }

    pub(super) fn remove(&mut self, node: &Node) {
        self.places.remove(&place_of(node));
    }

    pub(super) fn has(&self, node: &Node) -> bool {
        self.places.contains(&place_of(node))
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether it wants a line, given without its number. Source: proc(5).
    fn wants(&self, lock: &str) -> bool {
        let place = || lock.split_ascii_whitespace().nth(4);
        lock.starts_with(FLOCK) && place().is_some_and(|place| self.places.contains(place))
    }
}

/// A node in the form of the kernel's list: device and inode.
pub(super) fn place_of(node: &Node) -> String {
    let (major, minor) = (node.file_system.major, node.file_system.minor);
    format!("{major:02x}:{minor:02x}:{}", node.inode)
}

/// Reads the list, and keeps it open from one reading to the next.
#[derive(Debug, Default)]
pub(super) struct ListReader {
    /// The openings of the last reading. They are not kept if another user has made the kernel's buffer grow, because
    /// it would stay large.
    kept: Vec<Rc<Opening>>,
    /// When to make the kernel's buffer grow; only in a long-lived process.
    widening: Option<Widening>,
    /// The last lock of the list, if this process could take it.
    last: Option<LastLock>,
    /// The moment at which a reading ends, complete or not.
    by: Option<Instant>,
}

/// When the kernel's buffer is made to grow.
#[derive(Debug, Default)]
struct Widening {
    /// The number of lists that were too long for the present buffer.
    long_lists: usize,
}

impl Widening {
    /// True for the first list that is too long, the second, the fourth and so on: if the buffer cannot grow, trying
    /// it costs less and less.
    fn is_due(&mut self) -> bool {
        self.long_lists = self.long_lists.saturating_add(1);
        self.long_lists.is_power_of_two()
    }
}

impl ListReader {
    /// For a process that reads the list often: it uses some threads for a moment, and then reads long lists in a few
    /// pieces.
    pub(super) fn of_one_who_lives_long() -> Self {
        let mut reader = Self { widening: Some(Widening::default()), ..Self::default() };
        let mut allowance = Allowance::new(LOCKS_COUNTED_THROUGH);
        reader.last = LastLock::take(|| {
            let flocks = |lock: &str| lock.starts_with(FLOCK);
            reader.read_while(flocks, None, |work| allowance.spend(work))
        });
        reader
    }

    /// Each reading ends at that moment at the latest.
    pub(super) fn end_by(&mut self, by: Option<Instant>) {
        self.by = by;
    }

    /// The part of the list that is about these nodes.
    ///
    /// # Errors
    /// An error of the system.
    pub(super) fn read(&mut self, wanted: &Wanted) -> io::Result<Listing> {
        let last = self.last.take();
        let line = last.as_ref().and_then(|last| last.behind_all(&wanted.places));
        let listing = self.read_to(line, wanted);
        self.last = last;
        listing
    }

    fn read_to(&mut self, last: Option<&str>, wanted: &Wanted) -> io::Result<Listing> {
        let wants = |lock: &str| wanted.wants(lock);
        if self.widening.is_some() && !self.is_wide() {
            let mut readings = 0..SHORT_READINGS;
            let listing = self.read_while(wants, last, |_| readings.next().is_some())?;
            if listing.extent == Extent::Whole {
                return Ok(listing);
            }
            if self.widening.as_mut().is_some_and(Widening::is_due) {
                self.widen()?;
            }
        }
        let by = self.by.or_else(|| Instant::now().checked_add(READING_TIME));
        let mut allowance = Allowance { by, ..Allowance::new(LOCKS_COUNTED_THROUGH) };
        self.read_while(wants, last, |work| allowance.spend(work))
    }

    fn is_wide(&self) -> bool {
        self.kept.len() == READERS && self.kept.iter().all(|it| it.room() >= WIDE_BYTES / 2)
    }

    /// Opens the list with a larger buffer than a page, if possible.
    fn widen(&mut self) -> io::Result<()> {
        let opened: io::Result<Vec<_>> =
            (0..READERS).map(|_| Opening::of_room(WIDE_BYTES)).collect();
        self.kept = opened?;
        room::widen(self.kept.iter().map(|it| &it.file))
    }

    fn read_while(
        &mut self,
        wants: impl Fn(&str) -> bool,
        last: Option<&str>,
        may_read: impl FnMut(usize) -> bool,
    ) -> io::Result<Listing> {
        let mut known = std::mem::take(&mut self.kept).into_iter();
        let mut opened = Vec::new();
        let open = || {
            let opening = known.next().map_or_else(|| Opening::of_room(PAGE_BYTES), Ok)?;
            opened.push(Rc::clone(&opening));
            Ok(Reading::of(opening))
        };
        let listing = kernel_list::read(open, may_read, wants, last)?;
        self.kept = opened;
        self.kept.extend(known);
        self.kept.retain(|it| it.room() <= WIDE_BYTES);
        Ok(listing)
    }
}

/// The work that the kernel may still be asked to do.
#[derive(Debug)]
struct Allowance {
    left: usize,
    by: Option<Instant>,
}

impl Allowance {
    fn new(left: usize) -> Self {
        Self { left, by: None }
    }

    fn spend(&mut self, work: usize) -> bool {
        let left = self.left.checked_sub(work);
        self.left = left.unwrap_or_default();
        left.is_some() && self.by.is_none_or(|by| Instant::now() < by)
    }
}

/// The list, open.
#[derive(Debug)]
struct Opening {
    file: File,
    /// The size of the kernel's buffer: the most bytes it has returned at once, rounded up to a power of two.
    room: Cell<usize>,
    /// The number of bytes that are asked for at once.
    asked: usize,
    /// The last read asked for less than the kernel had, so the next one returns the rest and more than one buffer.
    has_rest: Cell<bool>,
}

impl Opening {
    /// Opens the list. The kernel's buffer has at most this size, as far as this process made it grow.
    fn of_room(most: usize) -> io::Result<Rc<Self>> {
        let asked = ASKED_ROOMS.saturating_mul(most);
        let (room, has_rest) = (PAGE_BYTES.into(), false.into());
        Ok(Rc::new(Self { file: File::open(LIST)?, room, asked, has_rest }))
    }

    fn room(&self) -> usize {
        self.room.get()
    }

    fn read_at(&self, buffer: &mut [u8], place: u64) -> io::Result<usize> {
        let length = self.file.read_at(buffer, place)?;
        if place == 0 || !self.has_rest.get() {
            // Source: `seq_has_overflowed`: a piece is shorter than the room.
            let least = length.saturating_add(1).next_power_of_two();
            self.room.set(self.room().max(least));
        }
        self.has_rest.set(length == buffer.len());
        Ok(length)
    }
}

/// A reading of the list with a position of its own, so that a list that stays open need not be rewound.
#[derive(Debug)]
struct Reading {
    opening: Rc<Opening>,
    place: u64,
}

impl Reading {
    fn of(opening: Rc<Opening>) -> Self {
        Self { opening, place: 0 }
    }
}

impl Source for Reading {
    fn room(&self) -> usize {
        self.opening.room()
    }

    fn asked(&self) -> usize {
        self.opening.asked
    }
}

impl Read for Reading {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.opening.read_at(buffer, self.place)?;
        self.place = self.place.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
        Ok(length)
    }
}

impl Seek for Reading {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match to {
            SeekFrom::Start(place) => self.place = place,
            SeekFrom::Current(_) | SeekFrom::End(_) => {
                return Err(io::ErrorKind::Unsupported.into());
            }
        }
        Ok(self.place)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::device::node::Numbers;

    const NODE: Node =
        Node { file_system: Numbers { major: 0, minor: 0x16 }, inode: 88, device: None };

    #[rstest]
    #[case::of_it("FLOCK  ADVISORY  WRITE 1234 00:16:88 0 EOF", true)]
    #[case::posix("POSIX  ADVISORY  WRITE 1234 00:16:88 0 EOF", false)]
    #[case::another("FLOCK  ADVISORY  WRITE 1234 00:16:880 0 EOF", false)]
    #[case::waiting("-> FLOCK  ADVISORY  WRITE 1234 00:16:88 0 EOF", false)]
    #[case::cut("FLOCK  ADVISORY", false)]
    fn only_flocks_of_the_nodes_are_wanted(#[case] lock: &str, #[case] is_wanted: bool) {
        assert_eq!(Wanted::of([&NODE]).wants(lock), is_wanted);
    }

    /// In a file, which is returned as far as the buffer has room.
    #[rstest]
    #[case::less_than_a_page(&[(9999, 3000)], 4096)]
    #[case::as_much_as_a_page_holds(&[(9999, 4095)], 4096)]
    #[case::a_page_would_not_have_held_it(&[(9999, 4096)], 8192)]
    #[case::as_much_as_was_asked_for(&[(5000, 9000)], 8192)]
    #[case::the_rest_of_one_piece_with_all_of_the_next(&[(2048, 9000), (9999, 9000)], 4096)]
    #[case::the_piece_after_that(&[(2048, 29_000), (9999, 8000), (20_000, 29_000)], 32_768)]
    fn the_room_is_what_was_told_at_once(#[case] reads: &[(usize, u64)], #[case] room: usize) {
        let file = tempfile::tempfile().unwrap();
        let asked = ASKED_ROOMS * PAGE_BYTES;
        let opening = Opening { file, room: PAGE_BYTES.into(), asked, has_rest: false.into() };
        let mut place = 0;
        for (asked, end) in reads {
            opening.file.set_len(*end).unwrap();
            place += opening.read_at(&mut vec![0; *asked], place).unwrap() as u64;
        }
        assert_eq!(opening.room(), room);
        // A reader that begins again does not get the rest of an earlier list.
        opening.file.set_len(60_000).unwrap();
        opening.read_at(&mut [0; 99_999], 0).unwrap();
        assert_eq!(opening.room(), 65_536);
    }

    #[test]
    fn room_is_asked_for_ever_less_often() {
        let mut widening = Widening::default();
        let due: Vec<usize> = (1..20).filter(|_| widening.is_due()).collect();
        assert_eq!(due, [1, 2, 4, 8, 16]);
    }

    /// How often two readers may read a list of this many locks.
    #[rstest]
    #[case::a_stranger_who_tries(25_000, 16)]
    #[case::ten_for_each_of_ten_thousand_users(100_000, 2)]
    fn a_list_of_a_large_machine_is_read(#[case] locks: usize, #[case] times: usize) {
        let mut allowance = Allowance::new(LOCKS_COUNTED_THROUGH);
        for _ in 0..2 * times {
            let mut positions = (0..locks).step_by(70);
            assert!(positions.all(|position| allowance.spend(position + 80 * 64)));
        }
    }

    /// Reading the list ends, however long it is.
    #[test]
    fn reading_the_list_ends_however_long_it_is() {
        let mut allowance = Allowance::new(LOCKS_COUNTED_THROUGH);
        let told = (0..).step_by(70).take_while(|position| allowance.spend(*position)).count();
        assert!((1000..1_000_000).contains(&told), "{told}");
        assert!(!allowance.spend(1));
    }
}
