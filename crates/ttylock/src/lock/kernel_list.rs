//! Putting together what the kernel tells of its locks in pieces. Readers in, text out.
//!
//! `/proc/locks` is not read in one piece: each `read(2)` gives one page at most, and the next one
//! goes on at a *position*. Where locks before that position have vanished in between, others slide
//! below it and are never told: a port that picocom holds would look free. (Source: `seq_read_iter`
//! in the kernel's fs/seq_file.c, `locks_start` in fs/locks.c; new locks are put in front.)
//!
//! So a list of more than one page is read by two readers half a page apart, in turns. Two pieces
//! that follow one another share lines then. A line that is in both of them, and in each only once,
//! is the same lock; whatever stood behind it in the first piece stands behind it in the second, so
//! nothing slid past both. Where all lines look alike (one program holds shared locks on one file),
//! pieces that agree line by line have *likely* missed nothing. A list is believed when it has been read
//! twice without a gap.
//! Any other pair is *torn*: it may have hidden something, and the list is read again. What is found
//! in any piece counts, torn or not.
//!
//! A lock for which many others wait is told with them, in one piece that may be longer than a page.
//! Then both readers stop before it. But the kernel's room grows with it and stays as long as the
//! file is open, so the readers are rewound and not opened anew.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek};

/// A page, as much as the kernel tells at once.
const PAGE_BYTES: usize = 4096;

/// A piece shorter than this ended because there was no more: what follows would have fitted,
/// unless it was a lock for which a dozen others wait.
const SHORT_BYTES: usize = 3 * PAGE_BYTES / 4;

/// Room for a piece; the kernel gives more than a page where one line is longer.
const ROOM_BYTES: usize = 4 * PAGE_BYTES;

/// How often a torn list is read again.
const PASSES: usize = 16;

/// How much of the list was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// Every lock that was held all the while.
    Whole,
    /// It was read to its end, and changed so fast that some may have been missed.
    Changing,
    /// It was too long to be read to its end.
    #[default]
    Cut,
}

/// What the kernel told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    /// Lines in no order, many of them several times.
    pub(super) text: String,
    /// How much of the list that is.
    pub(super) extent: Extent,
}

impl Listing {
    /// Whether it came in one piece, with room for more.
    pub(super) fn is_of_one_piece(&self) -> bool {
        self.extent == Extent::Whole && self.text.len() < SHORT_BYTES
    }
}

/// Reads the list until it is whole, or `may_read` allows no more reading.
///
/// # Errors
/// When the list cannot be opened or read.
pub(super) fn read<R: Read + Seek>(
    mut open: impl FnMut() -> io::Result<R>,
    mut may_read: impl FnMut() -> bool,
) -> io::Result<Listing> {
    let mut first = Reader::new(open()?);
    let Some(text) = first.piece(ROOM_BYTES, &mut may_read)? else { return Ok(Listing::default()) };
    let mut listing = Listing { text, extent: Extent::Cut };
    if listing.text.len() < SHORT_BYTES {
        // In one piece, if nothing comes behind it.
        let Some(rest) = first.piece(ROOM_BYTES, &mut may_read)? else { return Ok(listing) };
        listing.text.push_str(&rest);
        if rest.is_empty() {
            listing.extent = Extent::Whole;
            return Ok(listing);
        }
    }
    let mut readers = [first, Reader::new(open()?)];
    let mut good = 0_usize;
    for _ in 0..PASSES {
        match pass(&mut readers, &mut may_read, &mut listing.text)? {
            None => break,
            Some(Trust::Joined) => good = good.saturating_add(1),
            Some(Trust::Torn) => {}
        }
        listing.extent = Extent::Changing;
        if good >= GOOD_PASSES {
            listing.extent = Extent::Whole;
            break;
        }
    }
    Ok(listing)
}

/// So often a list must have been read without a gap to be believed: random changes between the
/// readings have hidden a lock from one such pass, some once in ten thousand lists.
const GOOD_PASSES: usize = 2;

/// Whether nothing was missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Trust {
    Torn,
    Joined,
}

/// Reads the list once; `None` where it may not be read to its end.
fn pass<R: Read + Seek>(
    [ahead, behind]: &mut [Reader<R>; 2],
    may_read: &mut impl FnMut() -> bool,
    told: &mut String,
) -> io::Result<Option<Trust>> {
    ahead.rewind()?;
    behind.rewind()?;
    // This piece only brings the second reader out of step with the first.
    let Some(start) = ahead.piece(PAGE_BYTES / 2, may_read)? else { return Ok(None) };
    let Some(mut last) = behind.piece(ROOM_BYTES, may_read)? else { return Ok(None) };
    told.push_str(&start);
    told.push_str(&last);
    let mut ends = [start, last.clone()];
    let mut trust = Trust::Joined;
    loop {
        let Some(piece) = ahead.piece(ROOM_BYTES, may_read)? else { return Ok(None) };
        if piece.is_empty() {
            let Some(rest) = behind.piece(ROOM_BYTES, may_read)? else { return Ok(None) };
            told.push_str(&rest);
            // Out of step, two pieces end alike only at the end of the list.
            let [one, other] = &ends;
            let ended = rest.is_empty() && last_line(one) == last_line(other);
            return Ok(Some(if ended { trust } else { Trust::Torn }));
        }
        trust = trust.min(joint(&last, &piece));
        told.push_str(&piece);
        let [older, newer] = &mut ends;
        std::mem::swap(older, newer);
        newer.clone_from(&piece);
        last = piece;
        std::mem::swap(ahead, behind);
    }
}

/// One opening of the list.
struct Reader<R> {
    source: R,
    /// The start of a line whose end comes with the next piece.
    begun: Vec<u8>,
}

impl<R: Read + Seek> Reader<R> {
    fn new(source: R) -> Self {
        Self { source, begun: Vec::new() }
    }

    fn rewind(&mut self) -> io::Result<()> {
        self.begun.clear();
        self.source.rewind()
    }

    /// What the kernel tells next, in whole lines; empty at the end. `None` when it may not be
    /// asked any more.
    fn piece(
        &mut self,
        room: usize,
        may_read: &mut impl FnMut() -> bool,
    ) -> io::Result<Option<String>> {
        let mut bytes = std::mem::take(&mut self.begun);
        loop {
            if !may_read() {
                return Ok(None);
            }
            let begun = bytes.len();
            bytes.resize(begun.saturating_add(room), 0);
            let length = match self.source.read(bytes.get_mut(begun..).unwrap_or_default()) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    bytes.truncate(begun);
                    continue;
                }
                Err(error) => return Err(error),
            };
            bytes.truncate(begun.saturating_add(length));
            // A line of which only a part is there is asked for to its end.
            let end = bytes.iter().rposition(|byte| *byte == b'\n');
            if let Some(end) = end {
                self.begun = bytes.split_off(end.saturating_add(1));
            } else if length > 0 {
                continue;
            }
            return Ok(Some(String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
}

/// The lines, as their numbers, which count positions, and the locks.
fn locks(piece: &str) -> impl Iterator<Item = (&str, &str)> {
    piece.lines().filter_map(|line| line.split_once(": "))
}

fn last_line(piece: &str) -> Option<&str> {
    locks(piece).map(|(_, lock)| lock).last()
}

/// Whether something can have slid past two pieces that were told one after the other.
fn joint(one: &str, other: &str) -> Trust {
    let mut times: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    locks(one).for_each(|(_, lock)| times.entry(lock).or_default().0 += 1);
    locks(other).for_each(|(_, lock)| times.entry(lock).or_default().1 += 1);
    if times.values().any(|found| *found == (1, 1)) {
        return Trust::Joined;
    }
    let numbered: BTreeMap<&str, &str> = locks(one).collect();
    let mut same = locks(other)
        .filter_map(|(number, lock)| numbered.get(number).map(|known| *known == lock))
        .peekable();
    if same.peek().is_some() && same.all(|same| same) { Trust::Joined } else { Trust::Torn }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    /// The kernel's list, told as the kernel tells it: a page at a time, by position.
    #[derive(Clone, Default)]
    struct Kernel(Rc<RefCell<Vec<String>>>);

    type Meanwhile = Rc<RefCell<dyn FnMut(&mut Vec<String>)>>;

    struct Opening {
        kernel: Kernel,
        next: usize,
        left: Vec<u8>,
        /// As much as is told at once; it grows with the longest line.
        page: usize,
        /// What happens to the list before each reading.
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
        mut reads: usize,
    ) -> Listing {
        let kernel = Kernel(Rc::new(RefCell::new(list)));
        let meanwhile: Meanwhile = Rc::new(RefCell::new(meanwhile));
        let open = || {
            let (kernel, meanwhile) = (kernel.clone(), Rc::clone(&meanwhile));
            Ok(Opening { kernel, next: 0, left: Vec::new(), page: PAGE_BYTES, meanwhile })
        };
        let may_read = || {
            reads = reads.saturating_sub(1);
            reads > 0
        };
        read(open, may_read).unwrap()
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
            locks(&listing.text).map(|(_, lock)| lock).collect();
        assert_eq!(all.len(), before + behind + 1);
    }

    /// Shared locks of one process on one file.
    #[test]
    fn a_list_of_equal_lines_is_whole_when_it_is_so_twice() {
        let mut list = vec![lock(1); 500];
        list.insert(250, HELD.to_owned());
        let listing = read_while(list.clone(), |_| (), usize::MAX);
        assert!(listing.is_whole() && listing.text.contains(HELD));
        // The locks before it go while it is read.
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
            Listing { text: String::new(), extent: Extent::Whole }
        );
    }

    /// Up to three quarters of a page: this is the work of every LOCK on most machines.
    #[rstest]
    #[case::few(3)]
    #[case::half_a_page(20)]
    fn a_short_list_takes_two_readings(#[case] before: usize) {
        assert!(read_while(list(before, before), |_| (), 3).is_whole());
        assert!(!read_while(list(before, before), |_| (), 2).is_whole());
    }

    #[test]
    fn a_list_that_is_cut_off_is_not_whole() {
        let listing = read_while(list(1000, 1000), |_| (), 20);
        assert!(!listing.is_whole() && !listing.text.contains(HELD));
    }

    /// One that is read to its end may be whole the next time; one that is cut off will not be.
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

    /// However long a line is, it is never told in parts. One that leaves no room for its neighbours
    /// is in no two pieces with them, so such a list is not believed.
    #[rstest]
    #[case::longer_than_a_page(3 * PAGE_BYTES, Extent::Whole)]
    #[case::longer_than_the_room(ROOM_BYTES + PAGE_BYTES, Extent::Changing)]
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

    /// A lock for which others wait is told with them, a line for each.
    #[rstest]
    #[case::more_than_a_page(100)]
    #[case::more_than_the_room(500)]
    fn a_lock_is_read_with_all_who_wait_for_it(#[case] waiters: usize) {
        let mut list = list(30, 40);
        let told: Vec<String> = (0..=waiters).map(lock).collect();
        list.insert(10, told.join("\n11: -> "));
        let listing = read_while(list, |_| (), usize::MAX);
        assert!(listing.is_whole() && listing.text.contains(HELD));
        let last = format!("11: -> {}\n", lock(waiters));
        assert!(listing.text.contains(&last));
    }

    /// Fails once, and has one lock to tell.
    struct Failing(Option<io::ErrorKind>, &'static [u8]);

    impl Read for Failing {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.take().map_or_else(|| self.1.read(buffer), |kind| Err(kind.into()))
        }
    }

    impl Seek for Failing {
        fn seek(&mut self, _: io::SeekFrom) -> io::Result<u64> {
            Ok(0)
        }
    }

    /// A signal is no reason to know less.
    #[rstest]
    #[case::a_signal(io::ErrorKind::Interrupted, None)]
    #[case::no_memory(io::ErrorKind::OutOfMemory, Some(io::ErrorKind::OutOfMemory))]
    fn a_list_that_cannot_be_read_is_an_error(
        #[case] kind: io::ErrorKind,
        #[case] error: Option<io::ErrorKind>,
    ) {
        match read(|| Ok(Failing(Some(kind), b"1: x\n")), || true) {
            Ok(listing) => assert!(listing.is_whole() && listing.text == "1: x\n"),
            Err(failure) => assert_eq!(Some(failure.kind()), error),
        }
        assert_eq!(read(|| Ok(Failing(Some(kind), b"1: x\n")), || true).is_err(), error.is_some());
    }

    /// The list shrinks below both readers in the middle of each pass, and is as long as before
    /// when the next one begins: both are at its end, and neither was told the last lock.
    #[test]
    fn a_list_that_ends_before_both_readers_is_not_whole() {
        let mut time = 0;
        let shrink = move |now: &mut Vec<String>| {
            // One reading at first, then five a pass.
            let is_long = time == 0 || matches!(time % 5, 1 | 2);
            *now = if is_long { list(200, 0) } else { vec![HELD.to_owned()] };
            time += 1;
        };
        let listing = read_while(list(200, 0), shrink, usize::MAX);
        assert!(!listing.text.contains(HELD), "it is not hidden, so nothing is tested");
        assert_eq!(listing.extent, Extent::Changing);
    }

    /// Two pieces that were told one after the other.
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
    #[case::alike_without_a_common_place("1: a\n2: a\n", "3: a\n4: a\n", Trust::Torn)]
    fn pieces_are_joined_where_nothing_slid_past(
        #[case] one: &str,
        #[case] other: &str,
        #[case] trust: Trust,
    ) {
        assert_eq!(joint(one, other), trust);
    }

    /// All the locks before the one that is held go, at any one moment: it slides below where the
    /// next reading starts.
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
            // No more than one reading after it, which could find it again at the front.
            let listing = read_while(list(150, 20), vanish, at + 3);
            assert!(!listing.is_whole() || listing.text.contains(HELD), "{at}");
            torn += usize::from(!listing.text.contains(HELD));
        }
        assert!(torn > 0, "no moment hides it, so nothing is tested");
    }

    proptest! {
        /// Locks of others come and go between any two readings.
        #[test]
        fn what_is_held_all_the_while_is_in_every_whole_list(
            before in 0..300_usize,
            behind in 0..300_usize,
            changes in proptest::collection::vec((any::<bool>(), 0..64_usize, 0..300_usize), 0..40),
        ) {
            let mut changes = changes.into_iter();
            let mut fresh = 10_000;
            let listing = read_while(list(before, behind), move |list| {
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
    }
}
