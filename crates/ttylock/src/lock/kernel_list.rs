//! Puts the kernel's list of locks together from the pieces in which it can be read. Readers in, text out.
//! Pure.
//!
//! `/proc/locks` cannot be read in one piece: each `read(2)` gives one page at most, and the next one
//! continues at a *position*. If locks before that position have vanished in between, other locks move below
//! it and are never seen: a port that picocom holds would look free. (Source: `seq_read_iter` in the kernel's
//! fs/seq_file.c, `locks_start` in fs/locks.c; new locks are put in front.)
//!
//! So a list of more than one page is read by two readers half a page apart, in turns. Two consecutive pieces
//! then share lines. A line that is in both of them, and in each only once, is the same lock; what stood
//! behind it in the first piece stands behind it in the second, so both have missed nothing. If all lines
//! look alike (one program holds shared locks on one file), pieces that agree line by line have *probably*
//! missed nothing. Any other pair is *torn*: it may have missed something. [`passes`](super::passes) says
//! which other reading of the same place fills the gap, and when a list is believed. A lock that is found in
//! any piece counts, torn or not.
//!
//! A lock for which many processes wait is printed together with them, in one piece that may be longer than a
//! page. Then both readers stop before it. But the kernel's buffer grows with it and stays as long as the
//! file is open, so the readers are rewound and not reopened. A daemon even makes it grow on purpose
//! ([`room`](super::room)): with fewer pieces, less can be missed between them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Read, Seek};

use super::passes::{Line, Passes, Run};

/// A page, the size of the kernel's buffer at first.
pub(super) const PAGE_BYTES: usize = 4096;

/// The size of the kernel's buffer after it was made to grow.
pub(super) const WIDE_BYTES: usize = 256 << 10;

/// One read asks for this many times the kernel's buffer: the kernel returns more than one buffer if the previous
/// read did not ask for everything.
pub(super) const ASKED_ROOMS: usize = 4;

/// The approximate length of a line.
const LINE_BYTES: usize = 50;

/// Printing a lock takes the kernel as long as counting through this many locks.
const TELLING_ONE: usize = 64;

/// How often an incomplete list is read again.
const PASSES: usize = 16;

/// One opening of the list.
pub(super) trait Source: Read + Seek {
    /// The number of bytes that the kernel returns at once, or more.
    fn room(&self) -> usize;

    /// The number of bytes that are asked for at once.
    fn asked(&self) -> usize;
}

/// How much of the list was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Extent {
    /// Every lock that was held throughout was read.
    Whole,
    /// It was read to its end, but changed so fast that locks may have been missed.
    Changing,
    /// It was too long to be read to its end.
    #[default]
    Cut,
}

/// The result of reading the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    /// The wanted lines, in no order.
    pub(super) text: String,
    /// How much of the list was read.
    pub(super) extent: Extent,
    /// The number of lines of each process, to find the one with most locks.
    pub(super) takers: BTreeMap<i64, usize>,
}

/// Collects the lines that are read, and keeps the wanted ones.
struct Told<'l, W> {
    wants: W,
    /// A line that is known to be behind all wanted locks, if there is one.
    last: Option<&'l str>,
    /// Whether that line was read.
    is_at_end: bool,
    known: HashSet<String>,
    listing: Listing,
}

impl<W: Fn(&str) -> bool> Told<'_, W> {
    /// Forgets that the last line was read.
    fn rewind(&mut self) {
        self.is_at_end = self.last.is_none();
    }

    /// The locks of a piece, in their order.
    fn take(&mut self, piece: &[u8]) -> Piece {
        let piece = String::from_utf8_lossy(piece);
        let mut locks = Piece::default();
        for line in piece.lines() {
            let Some((number, lock)) = line.split_once(": ") else { continue };
            let taker = lock.split_ascii_whitespace().nth(3).and_then(|pid| pid.parse().ok());
            let times = self.listing.takers.entry(taker.unwrap_or_default()).or_default();
            *times = times.saturating_add(1);
            self.is_at_end |= self.last == Some(lock);
            if (self.wants)(lock) && self.known.insert(lock.to_owned()) {
                self.listing.text.push_str(line);
                self.listing.text.push('\n');
            }
            locks.0.push((number.parse().unwrap_or_default(), Line::of(lock)));
        }
        locks
    }
}

/// The locks of one piece, each with its number, which counts positions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Piece(Vec<(usize, Line)>);

impl Piece {
    fn lines(&self) -> impl DoubleEndedIterator<Item = Line> + ExactSizeIterator {
        self.0.iter().map(|(_, line)| *line)
    }
}

/// Reads the list until it is whole, or until `may_read` permits no further read. `may_read` is called before each
/// read, with the most locks that the kernel may count through for it. Lines that `wants` rejects are not kept. If
/// `last` is a lock that is known to be behind all wanted locks, the list is whole only if `last` was read; if it is
/// in the first piece, no lock can have been skipped.
///
/// # Errors
/// When the list cannot be opened or read.
pub(super) fn read<R: Source>(
    mut open: impl FnMut() -> io::Result<R>,
    mut may_read: impl FnMut(usize) -> bool,
    wants: impl Fn(&str) -> bool,
    last: Option<&str>,
) -> io::Result<Listing> {
    let (known, listing) = (HashSet::new(), Listing::default());
    let mut told = Told { wants, last, is_at_end: false, known, listing };
    let mut first = Reader::new(open()?);
    let Some(piece) = first.piece(first.source.asked(), &mut may_read)? else {
        return Ok(told.listing);
    };
    told.take(&piece);
    if told.is_at_end {
        told.listing.extent = Extent::Whole;
        return Ok(told.listing);
    }
    // A further lock would have fitted, unless a dozen processes wait for it.
    if last.is_none() && piece.len() < first.source.room() / 4 * 3 {
        // The list came in one piece, if nothing follows it.
        let Some(rest) = first.piece(first.source.asked(), &mut may_read)? else {
            return Ok(told.listing);
        };
        told.take(&rest);
        if rest.is_empty() {
            told.listing.extent = Extent::Whole;
            return Ok(told.listing);
        }
    }
    let mut readers = [first, Reader::new(open()?)];
    let mut passes = Passes::default();
    for _ in 0..PASSES {
        let Some(pieces) = pass(&mut readers, &mut may_read)? else { break };
        told.listing.extent = Extent::Changing;
        let (runs, trust) = runs(&pieces, &mut told);
        passes.add(runs);
        if trust == Trust::AtRest || passes.are_believed() {
            told.listing.extent = Extent::Whole;
            break;
        }
    }
    Ok(told.listing)
}

/// The result of reading the list once.
#[derive(Debug, Default)]
struct Pieces {
    /// The pieces, in their order.
    told: Vec<Vec<u8>>,
    /// The first piece of the second reader, which sets it half a page apart from the first.
    start: Vec<u8>,
    /// The piece that one reader got when the other was at the end.
    rest: Vec<u8>,
}

/// Reads the list once; `None` if it may not be read to its end. The pieces are examined later: the less time there
/// is between two reads, the fewer locks can be skipped.
fn pass<R: Source>(
    [ahead, behind]: &mut [Reader<R>; 2],
    may_read: &mut impl FnMut(usize) -> bool,
) -> io::Result<Option<Pieces>> {
    ahead.rewind()?;
    behind.rewind()?;
    let mut pieces = Pieces::default();
    let room = ahead.source.room().max(behind.source.room());
    let half = room.min(ahead.source.asked()) / 2;
    let Some(start) = ahead.piece(half, may_read)? else { return Ok(None) };
    pieces.start = start;
    let Some(first) = behind.piece(behind.source.asked(), may_read)? else { return Ok(None) };
    pieces.told.push(first);
    loop {
        let Some(piece) = ahead.piece(ahead.source.asked(), may_read)? else { return Ok(None) };
        if piece.is_empty() {
            let Some(rest) = behind.piece(behind.source.asked(), may_read)? else {
                return Ok(None);
            };
            pieces.rest = rest;
            return Ok(Some(pieces));
        }
        pieces.told.push(piece);
        std::mem::swap(ahead, behind);
    }
}

/// Divides the pieces into runs: between two runs, locks may have been missed. Also returns the lowest trust of all
/// joints.
fn runs<W: Fn(&str) -> bool>(pieces: &Pieces, told: &mut Told<'_, W>) -> (Vec<Run>, Trust) {
    told.rewind();
    let start = told.take(&pieces.start);
    let rest = told.take(&pieces.rest);
    let mut runs = Vec::new();
    let mut run = Run::default();
    let mut last: Option<Piece> = None;
    let mut least = Trust::AtRest;
    // Because the readers are half a page apart, two pieces have the same end only at the end of the list.
    let mut ends = [None, start.lines().next_back()];
    for piece in &pieces.told {
        let piece = told.take(piece);
        match &last {
            None => run.extend(piece.lines()),
            Some(last) => {
                let trust = joint(last, &piece);
                least = least.min(trust);
                if trust == Trust::Torn {
                    runs.push(std::mem::take(&mut run));
                }
                run.extend(news(last, &piece));
            }
        }
        ends.rotate_left(1);
        ends[1] = piece.lines().next_back();
        last = Some(piece);
    }
    if !rest.0.is_empty() || ends[0] != ends[1] || !told.is_at_end {
        runs.push(std::mem::take(&mut run));
        least = Trust::Torn;
    }
    run.end();
    runs.push(run);
    (runs, least)
}

/// One opening of the list.
struct Reader<R> {
    source: R,
    /// The buffer for reads; only the bytes that were read are kept.
    buffer: Vec<u8>,
    /// The beginning of a line whose end comes with the next piece.
    begun: Vec<u8>,
    /// The approximate number of locks that were read before.
    position: usize,
}

impl<R: Source> Reader<R> {
    fn new(source: R) -> Self {
        Self { source, buffer: Vec::new(), begun: Vec::new(), position: 0 }
    }

    fn rewind(&mut self) -> io::Result<()> {
        self.begun.clear();
        self.position = 0;
        self.source.rewind()
    }

    /// The next piece, in whole lines; empty at the end. `None` if no further read is permitted.
    fn piece(
        &mut self,
        room: usize,
        may_read: &mut impl FnMut(usize) -> bool,
    ) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = std::mem::take(&mut self.begun);
        loop {
            let told = self.source.room() / LINE_BYTES;
            if !may_read(self.position.saturating_add(told.saturating_mul(TELLING_ONE))) {
                return Ok(None);
            }
            if self.buffer.len() < room {
                // The kernel zeroes this memory, and only the part that is written.
                self.buffer = vec![0; room];
            }
            let length = match self.source.read(self.buffer.get_mut(..room).unwrap_or_default()) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            bytes.extend_from_slice(self.buffer.get(..length).unwrap_or_default());
            // If only a part of a line was read, its rest is read too.
            let end = bytes.iter().rposition(|byte| *byte == b'\n');
            if let Some(end) = end {
                self.begun = bytes.split_off(end.saturating_add(1));
            } else if length > 0 {
                continue;
            }
            self.position = self.position.saturating_add(bytes.len() / LINE_BYTES);
            return Ok(Some(bytes));
        }
    }
}

/// The lines of the second piece behind the last one that is also in the first piece.
fn news(one: &Piece, other: &Piece) -> impl Iterator<Item = Line> {
    let known: HashSet<Line> = one.lines().collect();
    let from = other.lines().rposition(|line| known.contains(&line));
    let from = from.map_or(0, |last| last.saturating_add(1));
    other.lines().skip(from).collect::<Vec<_>>().into_iter()
}

/// Whether nothing was missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Trust {
    Torn,
    Joined,
    /// Nothing was missed, and nothing has changed: a list with this trust at each joint is believed after one
    /// reading.
    AtRest,
}

/// This many lines must be in both pieces, each in its place, to show that nothing changes.
const AT_REST: usize = 8;

/// Whether a lock can have been skipped between two consecutive pieces.
fn joint(one: &Piece, other: &Piece) -> Trust {
    let mut times: HashMap<Line, (usize, usize)> = HashMap::new();
    one.lines().for_each(|line| times.entry(line).or_default().0 += 1);
    other.lines().for_each(|line| times.entry(line).or_default().1 += 1);
    let numbered: HashMap<usize, Line> = one.0.iter().copied().collect();
    let in_both = other.0.iter().filter_map(|(number, line)| {
        let known = numbered.get(number)?;
        Some((known == line, times.get(line) == Some(&(1, 1))))
    });
    let in_both: Vec<(bool, bool)> = in_both.collect();
    let all_stand = !in_both.is_empty() && in_both.iter().all(|(stands, _)| *stands);
    let unique = in_both.iter().filter(|(_, is_unique)| *is_unique).count();
    if all_stand && unique >= AT_REST {
        Trust::AtRest
    } else if all_stand || times.values().any(|found| *found == (1, 1)) {
        Trust::Joined
    } else {
        Trust::Torn
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    /// A list that is read as from the kernel: a page at a time, by position.
    #[derive(Clone, Default)]
    struct Kernel(Rc<RefCell<Vec<String>>>);

    type Meanwhile = Rc<RefCell<dyn FnMut(&mut Vec<String>)>>;

    struct Opening {
        kernel: Kernel,
        next: usize,
        left: Vec<u8>,
        /// The size of the kernel's buffer; it grows with the longest line.
        page: usize,
        /// The number of bytes to ask for, instead of the usual one.
        asked: usize,
        /// What happens to the list before each read.
        meanwhile: Meanwhile,
    }

    impl Read for Opening {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            (self.meanwhile.borrow_mut())(&mut self.kernel.0.borrow_mut());
            let mut told = std::mem::take(&mut self.left);
            let start = told.len();
            while let Some(lock) = self.kernel.0.borrow().get(self.next) {
                let line = format!("{}: {lock}\n", self.next + 1);
                let full = told.len() - start + line.len() > self.page;
                if (full && told.len() > start) || told.len() >= buffer.len() {
                    break;
                }
                while line.len() > self.page {
                    self.page *= 2;
                }
                told.extend(line.bytes());
                self.next += 1;
            }
            let length = told.len().min(buffer.len());
            self.left = told.split_off(length);
            buffer[..length].copy_from_slice(&told);
            Ok(length)
        }
    }

    impl Source for Opening {
        fn room(&self) -> usize {
            self.page
        }

        fn asked(&self) -> usize {
            self.asked
        }
    }

    impl Seek for Opening {
        fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
            assert_eq!(to, io::SeekFrom::Start(0));
            self.next = 0;
            self.left.clear();
            Ok(0)
        }
    }

    impl Listing {
        fn is_whole(&self) -> bool {
            self.extent == Extent::Whole
        }
    }

    fn lock(number: usize) -> String {
        format!("POSIX  ADVISORY  WRITE {number:05} 00:1a:{number:07} 0 EOF")
    }

    const HELD: &str = "FLOCK  ADVISORY  WRITE 4711 00:05:88 0 EOF";

    fn list(before: usize, behind: usize) -> Vec<String> {
        let mut list: Vec<String> = (0..before + behind).map(lock).collect();
        list.insert(before, HELD.to_owned());
        list
    }

    fn read_while(
        list: Vec<String>,
        meanwhile: impl FnMut(&mut Vec<String>) + 'static,
        reads: usize,
    ) -> Listing {
        read_by_pages_of(PAGE_BYTES, list, meanwhile, reads)
    }

    fn read_by_pages_of(
        page: usize,
        list: Vec<String>,
        meanwhile: impl FnMut(&mut Vec<String>) + 'static,
        reads: usize,
    ) -> Listing {
        read_with(page, list, meanwhile, reads, None)
    }

    fn read_with(
        page: usize,
        list: Vec<String>,
        meanwhile: impl FnMut(&mut Vec<String>) + 'static,
        mut reads: usize,
        last: Option<&str>,
    ) -> Listing {
        let kernel = Kernel(Rc::new(RefCell::new(list)));
        let meanwhile: Meanwhile = Rc::new(RefCell::new(meanwhile));
        let open = || {
            let (kernel, meanwhile) = (kernel.clone(), Rc::clone(&meanwhile));
            let asked = ASKED_ROOMS * page;
            Ok(Opening { kernel, next: 0, left: Vec::new(), page, asked, meanwhile })
        };
        let may_read = |_| {
            reads = reads.saturating_sub(1);
            reads > 0
        };
        read(open, may_read, |_| true, last).unwrap()
    }

    #[rstest]
    #[case::alone(0, 0)]
    #[case::one_page(20, 20)]
    #[case::just_a_page(35, 36)]
    #[case::three_pages(100, 80)]
    #[case::many_pages(1000, 1000)]
    fn a_list_at_rest_is_whole(#[case] before: usize, #[case] behind: usize) {
        let listing = read_while(list(before, behind), |_| (), usize::MAX);
        assert!(listing.is_whole());
        let all: std::collections::BTreeSet<&str> =
            listing.text.lines().filter_map(|line| Some(line.split_once(": ")?.1)).collect();
        assert_eq!(all.len(), before + behind + 1);
    }

    /// Twice the pages of the list and a few more: as little as two readers can do.
    #[test]
    fn a_long_list_at_rest_is_read_once() {
        let list = list(10_000, 15_000);
        let bytes: usize = list.iter().map(|lock| lock.len() + "12345: \n".len()).sum();
        assert!(read_while(list, |_| (), 2 * bytes.div_ceil(PAGE_BYTES - 70) + 10).is_whole());
    }

    /// Another user has 20,000 locks, and takes and drops 5,000 more: whenever the reader has to wait for the
    /// processor, most of these come or go. The limit is a number of reads.
    #[rstest]
    #[case::a_page_at_a_time(PAGE_BYTES, 20_000, 50, 10_000)]
    #[case::with_more_room(WIDE_BYTES, 20_000, 50, 100)]
    #[case::with_more_room_and_late_each_time(WIDE_BYTES, 20_000, 1, 400)]
    #[case::all_in_one_piece(WIDE_BYTES, 2000, 1, 4)]
    fn a_long_list_is_whole_though_thousands_come_and_go(
        #[case] page: usize,
        #[case] standing: usize,
        #[case] late_one_in: usize,
        #[case] reads: usize,
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
        let list = list(standing * 3 / 4, standing / 2);
        let listing = read_by_pages_of(page, list, churn, reads);
        assert!(listing.is_whole() && listing.text.contains(HELD), "{:?}", listing.extent);
    }

    /// Shared locks of one process on one file.
    #[test]
    fn a_list_of_equal_lines_is_whole_when_it_is_so_twice() {
        let mut list = vec![lock(1); 500];
        list.insert(250, HELD.to_owned());
        let listing = read_while(list.clone(), |_| (), usize::MAX);
        assert!(listing.is_whole() && listing.text.contains(HELD));
        // The locks in front of it vanish while it is read.
        let mut time = 0;
        let vanish = move |list: &mut Vec<String>| {
            time += 1;
            if time == 5 {
                list.drain(..200);
            }
        };
        assert!(read_while(list, vanish, usize::MAX).text.contains(HELD));
    }

    #[test]
    fn an_empty_list_is_whole() {
        assert_eq!(
            read_while(vec![], |_| (), 9),
            Listing { extent: Extent::Whole, ..Listing::default() }
        );
    }

    /// Lists of up to three quarters of a page: the usual work of a LOCK on most machines.
    #[rstest]
    #[case::few(3)]
    #[case::half_a_page(20)]
    fn a_short_list_takes_two_readings(#[case] before: usize) {
        assert!(read_while(list(before, before), |_| (), 3).is_whole());
        assert!(!read_while(list(before, before), |_| (), 2).is_whole());
    }

    /// A lock with so many waiters does not fit behind a short piece. If a user then drops as many locks as are left,
    /// before the next read, that piece looks like the whole list. This remains possible if no lock is known to be
    /// the last.
    #[rstest]
    #[case::it_has_room(16, 2, None, true)]
    #[case::nothing_slides(25, 0, None, true)]
    #[case::too_little_slides(25, 2, None, true)]
    #[case::all_the_rest_slides(25, 3, None, false)]
    #[case::it_has_room_before_the_last(16, 2, Some(LAST), true)]
    #[case::nothing_slides_before_the_last(25, 0, Some(LAST), true)]
    #[case::too_little_slides_before_the_last(25, 2, Some(LAST), true)]
    #[case::the_last_is_missed(25, 3, Some(LAST), true)]
    fn a_lock_with_many_waiters_can_hide_the_end(
        #[case] waiters: usize,
        #[case] dropped: usize,
        #[case] last: Option<&str>,
        #[case] is_seen: bool,
    ) {
        let mut list = list(58, 0);
        let waiter = |number| format!("\n59: -> {}", lock(number));
        list.insert(58, [lock(100)].into_iter().chain((0..waiters).map(waiter)).collect());
        list.push(LAST.to_owned());
        let mut readings = 0;
        let drop = move |list: &mut Vec<String>| {
            readings += 1;
            if readings == 2 {
                list.drain(..dropped);
            }
        };
        let listing = read_with(PAGE_BYTES, list, drop, usize::MAX, last);
        assert!(listing.is_whole());
        assert_eq!(listing.text.contains(HELD), is_seen, "{}", listing.text);
    }

    const LAST: &str = "FLOCK  ADVISORY  WRITE 12 00:01:99 0 EOF";

    /// One piece with the last lock is the whole list, and a reading without it is not whole.
    #[rstest]
    #[case::told_at_once(20, 2, true)]
    #[case::told_later(1000, usize::MAX, true)]
    #[case::gone(20, usize::MAX, false)]
    fn a_list_with_a_last_lock_is_whole_when_that_is_told(
        #[case] before: usize,
        #[case] reads: usize,
        #[case] is_there: bool,
    ) {
        let mut list = list(before, before);
        list.extend(is_there.then(|| LAST.to_owned()));
        // Locks that existed before it.
        list.push(lock(99));
        let listing = read_with(PAGE_BYTES, list, |_| (), reads, Some(LAST));
        assert_eq!(listing.is_whole(), is_there);
        assert!(listing.text.contains(HELD));
    }

    #[test]
    fn a_list_that_is_cut_off_is_not_whole() {
        let listing = read_while(list(1000, 1000), |_| (), 20);
        assert!(!listing.is_whole() && !listing.text.contains(HELD));
    }

    /// A list that is read to its end may be whole the next time; one that is cut off will not be.
    #[rstest]
    #[case::read_through(usize::MAX, Extent::Changing)]
    #[case::too_long(10, Extent::Cut)]
    fn a_list_that_is_never_the_same_is_not_whole(#[case] reads: usize, #[case] extent: Extent) {
        let mut fresh = 10_000;
        let change = move |list: &mut Vec<String>| {
            fresh += 1000;
            *list = (0..200).map(|number| lock(fresh + number)).collect();
        };
        assert_eq!(read_while(list(100, 100), change, reads).extent, extent);
    }

    /// A line is never returned in parts, however long it is. A line that leaves no room for its neighbours never
    /// shares two pieces with them, so such a list is not believed.
    #[rstest]
    #[case::longer_than_a_page(3 * PAGE_BYTES, Extent::Whole)]
    #[case::longer_than_the_room((ASKED_ROOMS + 1) * PAGE_BYTES, Extent::Changing)]
    fn a_line_longer_than_a_page_is_read_to_its_end(#[case] length: usize, #[case] extent: Extent) {
        let mut list = list(30, 40);
        list.insert(10, format!("FLOCK {}", "x".repeat(length)));
        let listing = read_while(list.clone(), |_| (), usize::MAX);
        assert_eq!(listing.extent, extent);
        for line in listing.text.lines() {
            let (number, lock) = line.split_once(": ").unwrap();
            assert_eq!(list[number.parse::<usize>().unwrap() - 1], lock);
        }
        assert!(listing.text.contains(HELD));
    }

    /// A lock for which others wait is printed with them, a line for each.
    #[rstest]
    #[case::more_than_a_page(100)]
    #[case::more_than_the_room(500)]
    fn a_lock_is_read_with_all_its_waiters(#[case] waiters: usize) {
        let mut list = list(30, 40);
        let told: Vec<String> = (0..=waiters).map(lock).collect();
        list.insert(10, told.join("\n11: -> "));
        let listing = read_while(list, |_| (), usize::MAX);
        assert!(listing.is_whole() && listing.text.contains(HELD));
        let last = format!("11: -> {}\n", lock(waiters));
        assert!(listing.text.contains(&last));
    }

    /// A source that fails once, and has one lock.
    struct Failing(Option<io::ErrorKind>, &'static [u8]);

    impl Read for Failing {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.take().map_or_else(|| self.1.read(buffer), |kind| Err(kind.into()))
        }
    }

    impl Source for Failing {
        fn room(&self) -> usize {
            PAGE_BYTES
        }

        fn asked(&self) -> usize {
            ASKED_ROOMS * PAGE_BYTES
        }
    }

    impl Seek for Failing {
        fn seek(&mut self, _: io::SeekFrom) -> io::Result<u64> {
            Ok(0)
        }
    }

    /// A read that a signal interrupts is repeated.
    #[rstest]
    #[case::a_signal(io::ErrorKind::Interrupted, None)]
    #[case::no_memory(io::ErrorKind::OutOfMemory, Some(io::ErrorKind::OutOfMemory))]
    fn a_list_that_cannot_be_read_is_an_error(
        #[case] kind: io::ErrorKind,
        #[case] error: Option<io::ErrorKind>,
    ) {
        let outcome = || read(|| Ok(Failing(Some(kind), b"1: x\n")), |_| true, |_| true, None);
        match outcome() {
            Ok(listing) => assert!(listing.is_whole() && listing.text == "1: x\n"),
            Err(failure) => assert_eq!(Some(failure.kind()), error),
        }
        assert_eq!(outcome().is_err(), error.is_some());
    }

    /// The list shrinks below the position of both readers in the middle of each pass, and is as long as before when
    /// the next pass begins: both readers are at its end, and neither has read the last lock.
    #[test]
    fn a_list_that_ends_before_both_readers_is_not_whole() {
        let mut time = 0;
        let shrink = move |now: &mut Vec<String>| {
            // One read at first, then five in each pass.
            let is_long = time == 0 || matches!(time % 5, 1 | 2);
            *now = if is_long { list(200, 0) } else { vec![HELD.to_owned()] };
            time += 1;
        };
        let listing = read_while(list(200, 0), shrink, usize::MAX);
        assert!(!listing.text.contains(HELD), "it is not hidden, so nothing is tested");
        assert_eq!(listing.extent, Extent::Changing);
    }

    fn numbered(numbers: std::ops::Range<usize>) -> String {
        numbers.map(|number| format!("{number}: lock{number}\n")).collect()
    }

    /// Two consecutive pieces.
    #[rstest]
    #[case::one_line_in_both("1: a\n2: b\n", "2: b\n3: c\n", Trust::Joined)]
    #[case::it_has_moved("1: a\n2: b\n", "7: b\n8: c\n", Trust::Joined)]
    #[case::it_is_enough("1: a\n2: b\n3: d\n", "2: x\n3: b\n4: y\n", Trust::Joined)]
    #[case::nothing_in_both("1: a\n2: b\n", "3: c\n4: d\n", Trust::Torn)]
    #[case::other_locks_in_their_places("1: a\n2: b\n", "2: c\n3: d\n", Trust::Torn)]
    #[case::which_of_two("1: a\n2: a\n3: b\n", "3: a\n4: c\n", Trust::Torn)]
    #[case::which_of_two_later("1: a\n2: b\n", "2: a\n3: c\n4: a\n", Trust::Torn)]
    #[case::all_alike("1: a\n2: a\n3: a\n", "2: a\n3: a\n4: a\n", Trust::Joined)]
    #[case::alike_and_moved("1: a\n2: a\n3: b\n", "2: a\n3: a\n4: c\n", Trust::Torn)]
    #[case::too_few_to_be_at_rest(&numbered(0..17), &numbered(10..27), Trust::Joined)]
    #[case::at_rest(&numbered(0..18), &numbered(10..27), Trust::AtRest)]
    #[case::one_has_gone(&numbered(0..18), &numbered(10..27).replace("14: lock14", "14: x"), Trust::Joined)]
    #[case::alike_without_a_common_place("1: a\n2: a\n", "3: a\n4: a\n", Trust::Torn)]
    fn pieces_are_joined_where_nothing_slid_past(
        #[case] one: &str,
        #[case] other: &str,
        #[case] trust: Trust,
    ) {
        let mut told = Told {
            wants: |_: &str| true,
            last: None,
            is_at_end: false,
            known: HashSet::new(),
            listing: Listing::default(),
        };
        let [one, other] = [one, other].map(|piece| told.take(piece.as_bytes()));
        assert_eq!(joint(&one, &other), trust);
    }

    /// At one moment, all locks in front of the held one vanish, so that it moves below the position of the next
    /// read.
    #[test]
    fn a_lock_that_slides_is_seen_or_the_list_is_not_whole() {
        let mut torn = 0;
        for at in 0..20 {
            let mut time = 0;
            let vanish = move |list: &mut Vec<String>| {
                if time == at {
                    list.retain(|lock| {
                        lock == HELD || lock.as_str() > "POSIX  ADVISORY  WRITE 00149 ~"
                    });
                }
                time += 1;
            };
            // At most one read after that, because a later one could find it at the front.
            let listing = read_while(list(150, 20), vanish, at + 3);
            assert!(!listing.is_whole() || listing.text.contains(HELD), "{at}");
            torn += usize::from(!listing.text.contains(HELD));
        }
        assert!(torn > 0, "no moment hides it, so nothing is tested");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Locks of other users come and go between any two reads.
        #[test]
        fn a_lock_held_throughout_is_in_every_whole_list(
            before in 0..300_usize,
            behind in 0..300_usize,
            changes in proptest::collection::vec((any::<bool>(), 0..64_usize, 0..300_usize), 0..40),
            page in prop::sample::select(vec![PAGE_BYTES, 2 * PAGE_BYTES, 4 * PAGE_BYTES]),
        ) {
            let mut changes = changes.into_iter();
            let mut fresh = 10_000;
            let listing = read_by_pages_of(page, list(before, behind), move |list| {
                let Some((come, count, at)) = changes.next() else { return };
                for _ in 0..count {
                    if come {
                        fresh += 1;
                        list.insert(0, lock(fresh));
                    } else if list.get(at).is_some_and(|lock| lock != HELD) {
                        list.remove(at);
                    }
                }
            }, usize::MAX);
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
            page in prop::sample::select(vec![PAGE_BYTES, 2 * PAGE_BYTES, 4 * PAGE_BYTES]),
        ) {
            let mut whole: Vec<String> = (0..standing + coming).map(lock).collect();
            whole.insert(held % whole.len(), HELD.to_owned());
            let mut border = whole.len() / 2;
            let mut gone = Vec::new();
            let mut changes = changes.into_iter();
            let listing = read_by_pages_of(page, whole, move |list| {
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
            }, usize::MAX);
            prop_assert!(!listing.is_whole() || listing.text.contains(HELD));
        }
    }
}
