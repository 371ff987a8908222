//! Reads `/proc/locks`, the kernel's list of locks, and says whether every lock was seen.
//!
//! One `read(2)` returns as many locks as fit into the kernel's buffer for this opening, which has one page at first.
//! Nobody can take or release a lock during that call. The next call continues at a *position*: if locks before that
//! position have vanished in between, others move below it and are never seen, and a port that picocom holds would
//! look free. (Source: `seq_read_iter` in the kernel's fs/seq_file.c, `locks_start` in fs/locks.c.)
//!
//! So a list is whole if it came in one piece, two or three times one after the other. In several pieces, it is whole
//! only if three consecutive readings, whose pieces end at different places, are equal. If the list is long, or changes
//! between two readings, a daemon makes the kernel's buffer grow ([`room`]) until the list comes in one piece. A lock
//! that any reading shows counts.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use pidlockfile::{Pid, process};

use super::last_lock::LastLock;
use super::room::{self, PAGE_BYTES};
use crate::device::node::Node;
use crate::limits::LOCK_SEARCH;

/// The kernel's list.
const LIST: &str = "/proc/locks";

/// A list of more pages is long: before it is read to its end, the kernel's buffer is made to grow, until it comes in
/// one piece.
const SHORT_PAGES: usize = 8;

/// The most bytes of a list that are read: about 130,000 locks.
const LIST_BYTES: usize = 8 << 20;

/// The size of all pieces but the first, which alone can be the whole list. Nobody can take a lock while the kernel
/// prints a piece, and two megabytes take it tens of milliseconds.
const LATER_PIECE_BYTES: usize = 256 << 10;

/// After a piece that took longer than this comes a pause of the same length, for those who wait for a lock.
const QUICK_PIECE: Duration = Duration::from_millis(1);

/// The number of readings in several pieces that must be equal, and the number of readings of a short list before the
/// kernel's buffer is made to grow.
const NARROW_READINGS: usize = 3;

/// A list that leaves so much of the kernel's buffer unused, or a quarter of it, is complete: a further lock would have
/// fitted, unless hundreds of processes wait for it, or in a page a dozen.
const SPARE_BYTES: usize = 192 << 10;

/// The most readings of one list.
const READINGS: usize = 40;

/// So many readings in one piece, one after the other, are whole although they differ. One alone may not be: a lock with
/// many waiters, as another reader of the list has for a moment, does not fit behind a short piece; if locks in front
/// of it vanish before the next read, that piece looks like all of the list.
const PIECES_IN_A_ROW: usize = 3;

/// The first pause between two readings of a list that changes; each later one is twice as long. Other programs do
/// their work meanwhile, and the list may then be at rest.
const PAUSE: Duration = Duration::from_millis(1);

/// The longest such pause, unless a reading takes longer.
const PAUSE_MOST: Duration = Duration::from_millis(32);

/// The most processes whose users are looked up, those with most locks first.
const OWNERS_LOOKED_UP: usize = 256;

/// A line of flock(2) without its number. Source: proc(5).
const FLOCK: &str = "FLOCK ";

/// Whether all locks were seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completeness {
    /// Every lock that was held throughout was seen.
    Whole,
    /// The list is too long, or changes too fast. Most of its locks belong to this user.
    Partial(Option<u32>),
}

/// The wanted part of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listing {
    /// The wanted lines, in no order. A line that was read twice is there twice.
    pub(super) text: String,
    pub(super) completeness: Completeness,
}

/// A list of which nothing was read.
impl Default for Listing {
    fn default() -> Self {
        Self { text: String::new(), completeness: Completeness::Partial(None) }
    }
}

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
    kept: Option<Opening>,
    /// Whether the kernel's buffer is made to grow for it. That pays only in a long-lived process. The lock for it is
    /// so long in the list that it may not fit into the buffers of other readers. If the short sessions of a
    /// super-server did that too, they would mislead one another about the end of the list.
    may_grow: bool,
    /// The last lock of the list, if this process could take it.
    last: Option<LastLock>,
    /// The moment at which a reading ends, complete or not.
    by: Option<Instant>,
}

impl ListReader {
    /// For a process that reads the list often.
    pub(super) fn of_one_who_lives_long() -> Self {
        let mut reader = Self { may_grow: true, ..Self::default() };
        // One limit for all the readings that it takes.
        reader.end_by(Instant::now().checked_add(LOCK_SEARCH));
        let wants = |lock: &str| lock.starts_with(FLOCK);
        let all = Question { wants: &wants, is_one: false, last: None };
        reader.last = LastLock::take(|| reader.read_to(&all));
        reader.end_by(None);
        reader
    }

    /// Each reading ends at that moment at the latest.
    pub(super) fn end_by(&mut self, by: Option<Instant>) {
        self.by = by;
    }

    /// The part of the list that is about these nodes.
    ///
    /// # Errors
    /// This machine has no such list, or does not show it to this process.
    pub(super) fn read(&mut self, wanted: &Wanted) -> io::Result<Listing> {
        let last = self.last.take();
        let line = last.as_ref().and_then(|last| last.behind_all(&wanted.places));
        let wants = |lock: &str| wanted.wants(lock);
        let listing =
            self.read_to(&Question { wants: &wants, is_one: wanted.len() == 1, last: line });
        self.last = last;
        listing
    }

    fn read_to(&mut self, question: &Question) -> io::Result<Listing> {
        let by = self.by.or_else(|| Instant::now().checked_add(LOCK_SEARCH));
        let opening = self.kept.take().map_or_else(Opening::new, Ok);
        let listing = opening.and_then(|mut opening| {
            let listing = read(&mut opening, self.may_grow, by, question)?;
            self.kept = Some(opening).filter(|it| !it.is_grown_by_others);
            Ok(listing)
        });
        match listing {
            Err(error) if !is_hidden(&error) => Ok(Listing::default()),
            listing => listing,
        }
    }
}

/// Whether there is no list, or none for this process. With any other error, the list may show a lock the next time.
fn is_hidden(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}

/// One opening of the list, with a buffer of its own in the kernel.
trait Source {
    fn read_at(&mut self, buffer: &mut [u8], place: u64) -> io::Result<usize>;

    /// The size of the kernel's buffer, as far as it is known.
    fn room(&self) -> usize;

    /// Makes the kernel's buffer grow. Returns whether it did.
    fn grow(&mut self) -> io::Result<bool>;

    fn pause(&mut self, pause: Duration) {
        thread::sleep(pause);
    }
}

#[derive(Debug)]
struct Opening {
    file: File,
    room: usize,
    tries_to_grow: usize,
    /// Other users' locks have made the kernel's buffer grow. It would stay large, so the opening is not kept.
    is_grown_by_others: bool,
}

impl Opening {
    fn new() -> io::Result<Self> {
        let file = File::open(LIST)?;
        Ok(Self { file, room: PAGE_BYTES, tries_to_grow: 0, is_grown_by_others: false })
    }
}

impl Source for Opening {
    fn read_at(&mut self, buffer: &mut [u8], place: u64) -> io::Result<usize> {
        let length = self.file.read_at(buffer, place)?;
        // Source: `seq_has_overflowed`: a piece is shorter than the kernel's buffer.
        self.is_grown_by_others |= place == 0 && length >= self.room;
        Ok(length)
    }

    fn room(&self) -> usize {
        self.room
    }

    fn grow(&mut self) -> io::Result<bool> {
        let before = self.room;
        self.tries_to_grow = self.tries_to_grow.saturating_add(1);
        // If the buffer cannot grow, trying it costs less and less.
        if self.tries_to_grow.is_power_of_two() {
            self.room = room::widen(&self.file, before)?;
        }
        let has_grown = self.room > before;
        if has_grown {
            self.tries_to_grow = 0;
        }
        Ok(has_grown)
    }
}

/// What is looked for in the list.
struct Question<'q> {
    /// Lines that it rejects are not kept.
    wants: &'q dyn Fn(&str) -> bool,
    /// Whether it is about one node, so that one lock is an answer.
    is_one: bool,
    /// A lock that is known to be behind all wanted locks: a list without it is not whole.
    last: Option<&'q str>,
}

/// Reads the list until it is whole, or until the time is over.
///
/// # Errors
/// When the list cannot be read.
fn read(
    source: &mut impl Source,
    mut may_grow: bool,
    by: Option<Instant>,
    question: &Question,
) -> io::Result<Listing> {
    let (hashes, last) = (RandomState::new(), question.last.map(|last| format!(": {last}\n")));
    let (mut text, mut before) = (String::new(), None);
    let (mut latest, mut in_a_row, mut equal) = (String::new(), 0_usize, 1_usize);
    let mut pause = PAUSE;
    for number in 1..=READINGS {
        let (began, room) = (Instant::now(), source.room());
        let (first, most) = match may_grow {
            true => (room, room.max(SHORT_PAGES * PAGE_BYTES)),
            false => (room.min(LATER_PIECE_BYTES), LIST_BYTES),
        };
        let extent;
        let eighths = number % NARROW_READINGS;
        (latest, extent) = read_once(source, first, eighths, most, by, last.as_deref())?;
        let is_wanted =
            |line: &&str| line.split_once(": ").is_some_and(|(_, lock)| (question.wants)(lock));
        latest.lines().filter(is_wanted).for_each(|line| text.extend([line, "\n"]));
        let list = hashes.hash_one(&latest);
        let is_equal = extent != Extent::Cut && before.replace(list) == Some(list);
        equal = if is_equal { equal.saturating_add(1) } else { 1 };
        in_a_row = if extent == Extent::OnePiece { in_a_row.saturating_add(1) } else { 0 };
        let is_at_rest = equal >= if extent == Extent::OnePiece { 2 } else { NARROW_READINGS };
        if extent == Extent::Complete || is_at_rest || in_a_row >= PIECES_IN_A_ROW {
            return Ok(Listing { text, completeness: Completeness::Whole });
        }
        if by.is_some_and(|by| Instant::now() >= by) || (extent == Extent::Cut && !may_grow) {
            break;
        }
        if extent == Extent::OnePiece || (extent == Extent::Pieces && number < NARROW_READINGS) {
            continue;
        }
        // Without the means for it, the list is read as it is: it is there all the same.
        may_grow = may_grow && source.grow().unwrap_or(false);
        if question.is_one && !text.is_empty() {
            break;
        }
        if !may_grow && extent == Extent::Pieces {
            source.pause(pause.max(began.elapsed()));
            pause = pause.saturating_mul(2).min(PAUSE_MOST);
        }
    }
    Ok(Listing { text, completeness: Completeness::Partial(owner_of_most(&latest)) })
}

/// How much of the list one reading has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// All of it, as it was at one moment: up to the lock that is known to be the last.
    Complete,
    /// The same, as far as it can be known without such a lock.
    OnePiece,
    /// It was read to its end, and locks may have been missed between the pieces.
    Pieces,
    /// Only its beginning.
    Cut,
}

/// Reads the list once, up to this many bytes, with a first piece of that size, or some eighths less: then the pieces end
/// at other places than those of another reading. The text is examined later: the less time
/// there is between two pieces, the fewer locks are skipped.
fn read_once(
    source: &mut impl Source,
    first: usize,
    eighths: usize,
    most: usize,
    by: Option<Instant>,
    last: Option<&str>,
) -> io::Result<(String, Extent)> {
    let mut buffer = vec![0; first];
    let eighth = (first / 8).min(SPARE_BYTES / 2);
    let short = first.saturating_sub(2 * eighth);
    let mut text = String::new();
    let (mut is_second, mut asked) = (false, first.saturating_sub(eighths * eighth));
    let extent = loop {
        let place = text.len();
        let offset = u64::try_from(place).unwrap_or(u64::MAX);
        let began = Instant::now();
        let length = match source.read_at(buffer.get_mut(..asked).unwrap_or_default(), offset) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let took = began.elapsed();
        // The kernel prints ASCII, so the text is as long as what was read.
        let piece = buffer.get(..length).unwrap_or_default();
        text.extend(piece.iter().map(|byte| char::from(*byte)));
        let (before, rest) = text.split_at(place);
        match last {
            Some(last) if before.is_empty() && rest.contains(last) => break Extent::Complete,
            Some(last) if length == 0 && !before.contains(last) => break Extent::Cut,
            None if is_second && place < short && shows_nothing_new(before, rest) => {
                break Extent::OnePiece;
            }
            _ if length == 0 => break Extent::Pieces,
            _ => is_second = before.is_empty(),
        }
        if text.len() >= most || by.is_some_and(|by| Instant::now() >= by) {
            break Extent::Cut;
        }
        if length >= short && took > QUICK_PIECE {
            source.pause(took);
        }
        asked = first.min(LATER_PIECE_BYTES);
    };
    // A part of a line may look like a lock of another node.
    text.truncate(text.rfind('\n').map_or(0, |end| end.saturating_add(1)));
    Ok((text, extent))
}

/// Whether the second piece has no lock that the first one lacks. Those that it has were moved behind the position of
/// the second piece by new ones in front.
fn shows_nothing_new(first: &str, second: &str) -> bool {
    second.is_empty() || {
        let known: HashSet<&str> = locks(first).collect();
        locks(second).all(|lock| known.contains(lock))
    }
}

/// The locks of a piece, each without its number.
fn locks(piece: &str) -> impl Iterator<Item = &str> {
    piece.lines().filter_map(|line| Some(line.split_once(": ")?.1))
}

/// The user whose processes have most of the locks of a list.
fn owner_of_most(list: &str) -> Option<u32> {
    let mut takers: BTreeMap<i64, usize> = BTreeMap::new();
    for pid in list.lines().filter_map(|line| line.split_ascii_whitespace().nth(4)?.parse().ok()) {
        let times = takers.entry(pid).or_default();
        *times = times.saturating_add(1);
    }
    let mut takers: Vec<(i64, usize)> = takers.into_iter().collect();
    takers.sort_unstable_by_key(|(_, times)| std::cmp::Reverse(*times));
    let mut owners: BTreeMap<u32, usize> = BTreeMap::new();
    for (pid, times) in takers.into_iter().take(OWNERS_LOOKED_UP) {
        if let Some(uid) = Pid::new(pid).and_then(process::owner) {
            let all = owners.entry(uid).or_default();
            *all = all.saturating_add(times);
        }
    }
    owners.into_iter().max_by_key(|(_, times)| *times).map(|(uid, _)| uid)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::device::node::Numbers;

    /// A list that is read as from the kernel: a buffer at a time, by position.
    struct Kernel<F> {
        list: Vec<String>,
        next: usize,
        left: Vec<u8>,
        /// The size of the kernel's buffer; it grows with the longest line.
        page: usize,
        /// What it can grow to.
        rooms: Vec<usize>,
        reads: Rc<RefCell<usize>>,
        /// What happens to the list before each read.
        meanwhile: F,
    }

    impl<F: FnMut(&mut Vec<String>)> Source for Kernel<F> {
        fn read_at(&mut self, buffer: &mut [u8], place: u64) -> io::Result<usize> {
            *self.reads.borrow_mut() += 1;
            assert!(place == 0 || buffer.len() <= LATER_PIECE_BYTES, "all others wait");
            (self.meanwhile)(&mut self.list);
            if place == 0 {
                (self.next, self.left) = (0, Vec::new());
            }
            let mut piece = std::mem::take(&mut self.left);
            let start = piece.len();
            while let Some(lock) = self.list.get(self.next) {
                let line = format!("{}: {lock}\n", self.next + 1);
                let full = piece.len() - start + line.len() > self.page;
                if (full && piece.len() > start) || piece.len() >= buffer.len() {
                    break;
                }
                while line.len() > self.page {
                    self.page *= 2;
                }
                piece.extend(line.bytes());
                self.next += 1;
            }
            let length = piece.len().min(buffer.len());
            self.left = piece.split_off(length);
            buffer[..length].copy_from_slice(&piece);
            Ok(length)
        }

        fn room(&self) -> usize {
            self.page
        }

        fn grow(&mut self) -> io::Result<bool> {
            let room = self.rooms.iter().copied().find(|room| *room > self.page);
            self.page = room.unwrap_or(self.page);
            Ok(room.is_some())
        }

        fn pause(&mut self, _: Duration) {}
    }

    const ROOMS: [usize; 2] = [64 << 10, 256 << 10];

    impl Listing {
        fn is_whole(&self) -> bool {
            self.completeness == Completeness::Whole
        }

        fn locks(&self) -> HashSet<&str> {
            self.text.lines().filter_map(|line| Some(line.split_once(": ")?.1)).collect()
        }
    }

    fn lock(number: usize) -> String {
        format!("POSIX  ADVISORY  WRITE {number:05} 00:1a:{number:07} 0 EOF")
    }

    const ALL: Question = Question { wants: &|_| true, is_one: false, last: None };
    const HELD: &str = "FLOCK  ADVISORY  WRITE 4711 00:05:88 0 EOF";
    const LAST: &str = "FLOCK  ADVISORY  WRITE 12 00:01:99 0 EOF";

    fn list(before: usize, behind: usize) -> Vec<String> {
        let mut list: Vec<String> = (0..before + behind).map(lock).collect();
        list.insert(before, HELD.to_owned());
        list
    }

    /// The listing, and the number of reads.
    fn read_with(
        list: Vec<String>,
        rooms: &[usize],
        last: Option<&str>,
        meanwhile: impl FnMut(&mut Vec<String>),
    ) -> (Listing, usize) {
        let reads = Rc::new(RefCell::new(0));
        let (next, left, page, rooms) = (0, Vec::new(), PAGE_BYTES, rooms.to_vec());
        let mut kernel =
            Kernel { list, next, left, page, rooms, reads: Rc::clone(&reads), meanwhile };
        let listing = read(&mut kernel, true, None, &Question { last, ..ALL }).unwrap();
        let reads = *reads.borrow();
        (listing, reads)
    }

    fn read_while(list: Vec<String>, meanwhile: impl FnMut(&mut Vec<String>)) -> Listing {
        read_with(list, &ROOMS, None, meanwhile).0
    }

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

    #[rstest]
    #[case::alone(0, 0)]
    #[case::one_page(20, 20)]
    #[case::just_a_page(35, 36)]
    #[case::three_pages(100, 80)]
    #[case::many_pages(1000, 1000)]
    fn a_list_at_rest_is_whole(
        #[case] before: usize,
        #[case] behind: usize,
        #[values(&ROOMS, &[])] rooms: &[usize],
    ) {
        let (listing, _) = read_with(list(before, behind), rooms, None, |_| ());
        assert!(listing.is_whole());
        assert_eq!(listing.locks().len(), before + behind + 1);
    }

    #[test]
    fn an_empty_list_is_whole() {
        assert!(read_while(vec![], |_| ()).is_whole());
    }

    /// Lists of up to three quarters of a page, the usual work of a LOCK on most machines; and lists that come in one
    /// piece, once the kernel's buffer has grown.
    #[rstest]
    #[case::few(3, 4)]
    #[case::half_a_page(20, 4)]
    #[case::two_pages(60, 12)]
    #[case::long(1000, 2 * SHORT_PAGES + 3)]
    fn a_list_takes_few_reads(#[case] before: usize, #[case] most: usize) {
        let (listing, reads) = read_with(list(before, before), &ROOMS, None, |_| ());
        assert!(listing.is_whole() && reads <= most, "{reads}");
    }

    /// Another user has standing locks, and takes and drops a quarter as many: whenever the reader has to wait for the
    /// processor, most of these come or go.
    #[rstest]
    #[case::now_and_then(2000, 50)]
    #[case::each_time(2000, 1)]
    #[case::few_each_time(200, 1)]
    fn a_long_list_is_whole_though_thousands_come_and_go(
        #[case] standing: usize,
        #[case] late_one_in: usize,
    ) {
        let coming = standing / 4;
        let mut random = 1_u64;
        let mut dice = move |most: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(random >> 33).unwrap() % most
        };
        let (mut there, mut is_coming) = (coming, false);
        let churn = move |list: &mut Vec<String>| {
            let count = if dice(late_one_in) == 0 { dice(coming) } else { dice(4) };
            for _ in 0..count {
                is_coming = if is_coming { there < coming } else { there == 0 };
                if is_coming {
                    list.insert(0, lock(coming - 1 - there));
                    there += 1;
                } else {
                    there -= 1;
                    list.remove(there);
                }
            }
        };
        let listing = read_while(list(standing * 3 / 4, standing / 2), churn);
        assert!(listing.is_whole() && listing.text.contains(HELD));
    }

    /// A lock with so many waiters does not fit behind a short piece. If a user then drops as many locks as are left,
    /// before the next read, that piece looks like the whole list. If the user has them again before each reading and
    /// drops them in each, this remains possible, unless a lock is known to be the last.
    #[rstest]
    #[case::it_has_room(16, 2, 3, None, true)]
    #[case::nothing_slides(25, 0, 3, None, true)]
    #[case::too_little_slides(25, 2, 3, None, true)]
    #[case::all_the_rest_slides_once(25, 3, 1, None, true)]
    #[case::all_the_rest_slides_each_time(25, 3, 3, None, false)]
    #[case::it_has_room_before_the_last(16, 2, 3, Some(LAST), true)]
    #[case::nothing_slides_before_the_last(25, 0, 3, Some(LAST), true)]
    #[case::too_little_slides_before_the_last(25, 2, 3, Some(LAST), true)]
    #[case::the_last_is_missed(25, 3, 3, Some(LAST), true)]
    fn a_lock_with_many_waiters_can_hide_the_end(
        #[case] waiters: usize,
        #[case] dropped: usize,
        #[case] times: usize,
        #[case] last: Option<&str>,
        #[case] is_seen: bool,
    ) {
        let mut whole = list(55, 0);
        let waiter = |number| format!("\n56: -> {}", lock(number));
        whole.insert(55, [lock(100)].into_iter().chain((0..waiters).map(waiter)).collect());
        whole.push(LAST.to_owned());
        let (before, mut reads) = (whole.clone(), 0);
        let drop = move |list: &mut Vec<String>| {
            reads += 1;
            list.clone_from(&before);
            if reads % 2 == 0 && reads <= 2 * times {
                list.drain(..dropped);
            }
        };
        let (listing, _) = read_with(whole, &ROOMS, last, drop);
        assert!(listing.is_whole());
        assert_eq!(listing.text.contains(HELD), is_seen, "{}", listing.text);
    }

    /// One piece with the last lock is the whole list, and a reading without it is not whole.
    #[rstest]
    #[case::in_the_first_piece(20, true)]
    #[case::later(1000, true)]
    #[case::gone(20, false)]
    fn a_list_with_a_last_lock_is_whole_when_that_is_read(
        #[case] before: usize,
        #[case] is_there: bool,
    ) {
        let mut list = list(before, before);
        list.extend(is_there.then(|| LAST.to_owned()));
        // Locks that existed before it.
        list.push(lock(99));
        let (listing, reads) = read_with(list, &ROOMS, Some(LAST), |_| ());
        assert_eq!(listing.is_whole(), is_there);
        assert!(listing.text.contains(HELD));
        assert!(!is_there || before > 20 || reads == 1, "{reads}");
    }

    /// A list of some pages that changes for a while, as when other programs begin: the reader, whose buffer does not
    /// grow, waits until they have begun.
    #[rstest]
    #[case::some_changes(20)]
    #[case::many_changes(100)]
    fn a_list_that_changes_for_a_while_is_read_once_it_is_at_rest(#[case] changes: usize) {
        let mut changes_left = changes;
        let change = move |list: &mut Vec<String>| {
            if changes_left > 0 {
                changes_left -= 1;
                list[0] = lock(10_000 + changes_left);
            }
        };
        let (listing, _) = read_with(list(60, 60), &[], None, change);
        assert!(listing.is_whole() && listing.text.contains(HELD));
    }

    /// Whether the port is held is known, though not by whom else.
    #[test]
    fn one_lock_of_the_node_in_question_ends_the_reading() {
        let (whole, reads) = (list(60, 60), Rc::new(RefCell::new(0)));
        let counted = Rc::clone(&reads);
        let mut kernel = Kernel {
            list: whole,
            next: 0,
            left: Vec::new(),
            page: PAGE_BYTES,
            rooms: Vec::new(),
            reads,
            meanwhile: |list: &mut Vec<String>| {
                list.rotate_left(1);
                let held = list.iter().position(|lock| lock == HELD).unwrap();
                list.swap(held, 60);
            },
        };
        let question = Question { wants: &|lock| lock == HELD, is_one: true, last: None };
        let listing = read(&mut kernel, false, None, &question).unwrap();
        assert!(!listing.is_whole() && listing.text.contains(HELD));
        assert!(*counted.borrow() <= NARROW_READINGS * 5, "{}", counted.borrow());
    }

    /// A list is read up to a limit, and however fast it changes, reading ends.
    #[rstest]
    #[case::too_long(200_000, false)]
    #[case::too_fast(5000, true)]
    fn a_list_that_cannot_be_read_is_not_whole(#[case] locks: usize, #[case] changes: bool) {
        let mut fresh = 10_000;
        let change = |now: &mut Vec<String>| {
            if changes {
                fresh += 10_000;
                *now = (0..locks).map(|number| lock(fresh + number)).collect();
            }
        };
        let (listing, reads) = read_with(list(locks, 0), &ROOMS, None, change);
        assert!(!listing.is_whole() && reads < 1000, "{reads}");
    }

    /// A line is never returned in parts, however long it is.
    #[rstest]
    #[case::longer_than_a_page(3 * PAGE_BYTES)]
    #[case::longer_than_the_rooms(2 * ROOMS[1])]
    fn a_line_longer_than_a_page_is_read_to_its_end(#[case] length: usize) {
        let mut list = list(30, 40);
        list.insert(10, format!("FLOCK {}", "x".repeat(length)));
        let listing = read_while(list.clone(), |_| ());
        assert!(listing.is_whole() && listing.text.contains(HELD));
        for line in listing.text.lines() {
            let (number, lock) = line.split_once(": ").unwrap();
            assert_eq!(list[number.parse::<usize>().unwrap() - 1], lock);
        }
    }

    /// A source that fails once, and has one lock.
    struct Failing(Option<io::ErrorKind>, &'static [u8]);

    impl Source for Failing {
        fn read_at(&mut self, buffer: &mut [u8], _: u64) -> io::Result<usize> {
            let mut read = || io::Read::read(&mut self.1, buffer);
            self.0.take().map_or_else(&mut read, |kind| Err(kind.into()))
        }

        fn room(&self) -> usize {
            PAGE_BYTES
        }

        fn grow(&mut self) -> io::Result<bool> {
            Ok(false)
        }
    }

    /// A read that a signal interrupts is repeated.
    #[rstest]
    #[case::a_signal(io::ErrorKind::Interrupted, None)]
    #[case::no_memory(io::ErrorKind::OutOfMemory, Some(io::ErrorKind::OutOfMemory))]
    fn a_list_that_fails_is_an_error(
        #[case] kind: io::ErrorKind,
        #[case] error: Option<io::ErrorKind>,
    ) {
        let listing = read(&mut Failing(Some(kind), b"1: x\n"), true, None, &ALL);
        match &listing {
            Ok(listing) => assert!(listing.is_whole() && listing.text == "1: x\n"),
            Err(failure) => assert_eq!(Some(failure.kind()), error),
        }
        assert_eq!(listing.is_err(), error.is_some());
    }

    /// A list of which only the beginning is read, and whose buffer cannot grow for a reason of the system's.
    struct Forbidden(io::ErrorKind);

    impl Source for Forbidden {
        fn read_at(&mut self, buffer: &mut [u8], place: u64) -> io::Result<usize> {
            let place = usize::try_from(place).unwrap();
            let lock = if place == 0 { HELD.to_owned() } else { lock(place) };
            let line = format!("1: {lock}\n");
            buffer[..line.len()].copy_from_slice(line.as_bytes());
            Ok(line.len())
        }

        fn room(&self) -> usize {
            PAGE_BYTES
        }

        fn grow(&mut self) -> io::Result<bool> {
            Err(self.0.into())
        }
    }

    /// That threads, descriptors or memory for a larger buffer are refused does not mean that there is no list.
    #[rstest]
    fn a_list_whose_buffer_may_not_grow_is_a_list(
        #[values(
            io::ErrorKind::PermissionDenied,
            io::ErrorKind::NotFound,
            io::ErrorKind::OutOfMemory
        )]
        kind: io::ErrorKind,
    ) {
        let listing = read(&mut Forbidden(kind), true, None, &ALL).unwrap();
        assert!(!listing.is_whole() && listing.locks().contains(HELD));
    }

    /// At one moment, all locks in front of the held one vanish, so that it moves below the position of the next
    /// read.
    #[test]
    fn a_lock_that_slides_is_seen_or_the_list_is_not_whole() {
        let mut hidden = 0;
        for at in 0..20 {
            let mut time = 0;
            let vanish = move |list: &mut Vec<String>| {
                if time == at {
                    list.retain(|lock| {
                        lock == HELD || lock.as_str() > "POSIX  ADVISORY  WRITE 00149 ~"
                    });
                }
                time += 1;
                // From then on, nothing is found any more.
                if time > at + 1 {
                    *list = (0..200).map(|number| lock(time * 1000 + number)).collect();
                }
            };
            let (listing, _) = read_with(list(150, 20), &[], None, vanish);
            assert!(!listing.is_whole() || listing.text.contains(HELD), "{at}");
            hidden += usize::from(!listing.text.contains(HELD));
        }
        assert!(hidden > 0, "no moment hides it, so nothing is tested");
    }

    /// The first locks vanish before one read, and are there again before the next one, in step with the reader, as if
    /// both shared a processor.
    fn read_in_step(
        standing: usize,
        coming: usize,
        behind: usize,
        [period, away]: [usize; 2],
        rooms: &[usize],
    ) -> Listing {
        let mut all: Vec<String> = (0..coming + standing).map(lock).collect();
        all.push(HELD.to_owned());
        all.extend((0..behind).map(|number| lock(5000 + number)));
        let (with, without) = (all.clone(), all.split_off(coming));
        let mut time = 0;
        let change = |list: &mut Vec<String>| {
            *list = if time % period < away { without.clone() } else { with.clone() };
            time += 1;
        };
        read_with(with.clone(), rooms, None, change).0
    }

    /// Two readings can be equal and lack the same lock.
    #[rstest]
    #[case(225, 384, 83, [5, 1])]
    #[case(231, 378, 77, [5, 1])]
    fn two_equal_readings_in_pieces_do_not_make_a_list_whole(
        #[case] standing: usize,
        #[case] coming: usize,
        #[case] behind: usize,
        #[case] rhythm: [usize; 2],
    ) {
        let listing = read_in_step(standing, coming, behind, rhythm, &[]);
        assert!(!listing.is_whole() || listing.text.contains(HELD));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Locks of other users come and go between any two reads.
        #[test]
        fn a_lock_held_throughout_is_in_every_whole_list(
            before in 0..300_usize,
            behind in 0..300_usize,
            changes in proptest::collection::vec((any::<bool>(), 0..64_usize, 0..300_usize), 0..40),
            rooms in prop::sample::select(vec![vec![], vec![2 * PAGE_BYTES], ROOMS.to_vec()]),
        ) {
            let mut changes = changes.into_iter();
            let mut fresh = 10_000;
            let (listing, _) = read_with(list(before, behind), &rooms, None, move |list| {
                let Some((come, count, at)) = changes.next() else { return };
                for _ in 0..count {
                    if come {
                        fresh += 1;
                        list.insert(0, lock(fresh));
                    } else if list.get(at).is_some_and(|lock| lock != HELD) {
                        list.remove(at);
                    }
                }
            });
            prop_assert!(!listing.is_whole() || listing.text.contains(HELD));
        }

        /// The same locks vanish and come back, all at once and in any order, in front of the list of either of two
        /// processors, which the kernel prints one after the other.
        #[test]
        fn a_lock_held_throughout_is_listed_while_the_same_others_come_and_go(
            standing in 0..400_usize,
            coming in 1..600_usize,
            held in 0..1000_usize,
            changes in proptest::collection::vec((0..600_usize, any::<[bool; 2]>(), 0..9_usize), 1..60),
            rooms in prop::sample::select(vec![vec![], vec![2 * PAGE_BYTES], ROOMS.to_vec()]),
        ) {
            let mut whole: Vec<String> = (0..standing + coming).map(lock).collect();
            whole.insert(held % whole.len(), HELD.to_owned());
            let mut border = whole.len() / 2;
            let mut gone = Vec::new();
            let mut changes = changes.into_iter();
            let (listing, _) = read_with(whole, &rooms, None, move |list| {
                let Some((count, [go, to_first], pause)) = changes.next() else { return };
                if pause < 3 {
                    return;
                }
                for _ in 0..count {
                    let next = list.iter().position(|it| *it != HELD && *it < lock(coming));
                    if let (true, Some(at)) = (go, next) {
                        gone.push(list.remove(at));
                        border -= usize::from(at < border);
                    } else if let Some(lock) = gone.pop() {
                        list.insert(if to_first { 0 } else { border }, lock);
                        border += usize::from(to_first);
                    }
                }
            });
            prop_assert!(!listing.is_whole() || listing.text.contains(HELD));
        }

        #[test]
        fn a_lock_is_listed_though_all_others_come_and_go_in_step_with_the_reader(
            standing in 0..400_usize,
            coming in 1..600_usize,
            behind in 0..100_usize,
            period in 2..12_usize,
            away in 1..6_usize,
            rooms in prop::sample::select(vec![vec![], ROOMS.to_vec()]),
        ) {
            let listing = read_in_step(standing, coming, behind, [period, away], &rooms);
            prop_assert!(!listing.is_whole() || listing.text.contains(HELD));
        }
    }
}
