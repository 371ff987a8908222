//! Reads `/proc/locks`, the kernel's list of locks.
//!
//! One `read(2)` returns about a page of locks, and the next one continues at a *position*: if locks before that
//! position have vanished in between, others move below it and are not seen. A port that picocom holds would look free.
//! (Source: `seq_read_iter` in the kernel's fs/seq_file.c, `locks_start` in fs/locks.c.) So the list is read two
//! or three times, and a lock that any reading shows counts. A list of some pieces is read by two openings, whose pieces
//! overlap: if each of them shows the last lock of the one before it, nothing was skipped. If it is long, or changes too
//! fast for that, it is read in larger pieces (`kernel_buffer.rs`), and most lists are then one piece. Services keep the
//! opening with the large pieces.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use pidlockfile::{Pid, process};
use rustix::fs::{Mode, OFlags};

use crate::device::node::{Node, Numbers};
use crate::limits::LOCK_SEARCH;
use crate::subordinate::owner_of;

/// The kernel's list.
const LIST: &str = "/proc/locks";

/// The most bytes of one read: the size of the kernel's buffer when it has grown.
const PIECE_BYTES: usize = 256 << 10;

/// The kernel's buffer has at least this size. A list that leaves a quarter of it unused is complete.
const PAGE_BYTES: usize = 4096;

/// A list with more bytes than this, about 2,000 locks, is long: for each piece, the kernel goes through the list from
/// its beginning.
const LONG_BYTES: usize = 128 << 10;

/// The most bytes of a list that are read: about 130,000 locks.
const LIST_BYTES: usize = 8 << 20;

/// So many equal readings in a row are enough. Two may miss the same lock, if others come and go in step with them.
const AGREEING: usize = 3;

/// The number of readings in one piece, or in pieces that overlap. One alone may be wrong: a lock with many waiters does not
/// fit behind the others, and if these vanish before the next read, the first piece looks like all of the list.
const WHOLE_READINGS: usize = 2;

/// The number of readings in several large pieces. Locks are skipped at few places.
const WIDE_READINGS: usize = 3;

/// The number of readings in small pieces of a list that changes, if the pieces do not overlap. Then they are made larger,
/// which takes 40 ms of processor time and hundreds of threads. Where they cannot be made larger, so many readings are an
/// answer. Beside five hundred locks that come and go all the time, on a busy machine, one of them missed a standing lock
/// once in ten times.
const NARROW_READINGS: usize = 10;

/// The number of readings that are made however long they take. Where 5,000 of 25,000 locks came and went on a busy
/// machine, one reading missed a standing lock in 22 of 311 tries.
const LEAST_READINGS: usize = 2;

/// After this time, a list is not read more often than it must be: a stranger's locks must not delay an answer much.
const AGAIN_WITHIN: Duration = Duration::from_secs(2);

/// The most processes whose users are looked up, those with most locks first.
const OWNERS_LOOKED_UP: usize = 256;

/// Whether the list was read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completeness {
    /// It was, once at least.
    Whole,
    /// It was not, for this reason.
    Partial(Shortage),
}

/// Why the list was not read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// It has too many locks, most of them of this user, if that is known.
    TooLong(Option<u32>),
    /// There was too little time for it.
    TooLate,
    /// It could not be read.
    Unread,
}

/// For people.
impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(None) => f.write_str("too many kernel locks to see all"),
            Self::TooLong(Some(uid)) => {
                write!(f, "too many kernel locks to see all, most of them of uid {uid}")
            }
            Self::TooLate => f.write_str("the kernel's list of locks could not be read in time"),
            Self::Unread => f.write_str("the kernel's list of locks could not be read"),
        }
    }
}

/// The process that took a `flock(2)`, or a lock by `fcntl(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FlockHolder {
    /// The process that took it. It may be gone: one that inherited the descriptor holds it now
    /// (`exec 3<>/dev/ttyS0; flock 3` in a shell).
    Process(Pid),
    /// Processes that have an open file description, by which one of them has locked the file (`F_OFD_SETLK`): the kernel
    /// does not say which. Who may read the file may have a shared lock; another one needs the right to write.
    Unnamed {
        /// Whether the lock is a shared one.
        shared: bool,
    },
    /// A process without a number in this pid namespace.
    Unseen,
}

impl FlockHolder {
    /// Whether it is a process of our pid namespace, in which the number of a lock file that it has made means something.
    pub(super) fn is_here(self) -> bool {
        matches!(self, Self::Process(pid) if process::is_in_our_namespace(pid))
    }
}

impl fmt::Display for FlockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(pid) => write!(f, "pid {pid}"),
            Self::Unnamed { .. } => f.write_str("a process that is not named"),
            Self::Unseen => f.write_str("a process that cannot be seen"),
        }
    }
}

/// The file of a lock: its file system's major and minor number, and its inode.
type FileNumbers = (u64, u64, u64);

/// The locks of the list by `flock(2)` and `fcntl(2)`, each once, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listing {
    pub(super) locks: Vec<(FileNumbers, FlockHolder)>,
    pub(super) completeness: Completeness,
}

/// A list of which nothing was read.
impl Default for Listing {
    fn default() -> Self {
        Self { locks: Vec::new(), completeness: Completeness::Partial(Shortage::Unread) }
    }
}

impl Listing {
    /// Adds what one reading has shown: the locks in whose lines this stands ([`of_inode`]).
    pub(super) fn add(&mut self, list: &str, of: &str) {
        let wanted = list.lines().filter(|line| line.contains(of));
        self.locks.extend(wanted.filter_map(lock_in));
        self.locks.sort_unstable();
        self.locks.dedup();
    }

    /// The holders of locks on a node.
    pub(super) fn holders(&self, node: &Node) -> Vec<FlockHolder> {
        let Numbers { major, minor } = node.file_system;
        let wanted = (major, minor, node.inode);
        let first = self.locks.partition_point(|(place, _)| *place < wanted);
        let behind = self.locks.iter().skip(first);
        behind.take_while(|(place, _)| *place == wanted).map(|(_, holder)| *holder).collect()
    }
}

/// What stands in the lines of all locks of files with this inode number, so that others need not be taken apart.
pub(super) fn of_inode(inode: u64) -> String {
    format!(":{inode} ")
}

/// The place of a lock by `flock(2)` or `fcntl(2)`, and its holder. Source: proc(5), `/proc/locks`:
/// `1: FLOCK  ADVISORY  WRITE 1234 00:05:1234 0 EOF`. After the pid come major and minor number in hexadecimal and the
/// inode in decimal. `POSIX` is a lock by `fcntl(2)`; `OFDLCK` is one of an open file description, and has no pid. A line
/// with `->` is a process that waits for a lock. Leases are none.
fn lock_in(line: &str) -> Option<(FileNumbers, FlockHolder)> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let kind = words.next().filter(|kind| ["FLOCK", "POSIX", "OFDLCK"].contains(kind))?;
    let (way, pid) = (words.nth(1)?, words.next()?);
    let mut place = words.next()?.split(':');
    let mut number = |radix| u64::from_str_radix(place.next()?, radix).ok();
    let place = (number(16)?, number(16)?, number(10)?);
    let holder = match (Pid::parse(pid.as_bytes()), kind) {
        (Ok(pid), _) => FlockHolder::Process(pid),
        (Err(_), "OFDLCK") => FlockHolder::Unnamed { shared: way == "READ" },
        (Err(_), _) => FlockHolder::Unseen,
    };
    Some((place, holder))
}

/// An opening of the list, and the size that its buffer in the kernel has at least. The second opening is made when it is
/// needed.
#[derive(Debug)]
pub(super) struct Opening {
    lists: Lists,
    room: usize,
}

#[derive(Debug)]
struct Lists {
    first: File,
    second: Option<File>,
}

/// By the kernel's call: musl's `open` makes another one for the flag.
fn open_list() -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(LIST, flags, Mode::empty())?.into())
}

impl Opening {
    fn new() -> io::Result<Self> {
        Ok(Self { lists: Lists { first: open_list()?, second: None }, room: PAGE_BYTES })
    }
}

/// The kernel's list, as far as it can be read until the moment `by`, or in [`LOCK_SEARCH`]. An opening with large pieces,
/// or of a short list, is kept for the next time.
///
/// # Errors
/// This machine has no such list, or does not show it to this process.
pub(super) fn read_list(
    kept: &mut Option<Opening>,
    by: Option<Instant>,
    of: &str,
) -> io::Result<Listing> {
    let opening = kept.take().map_or_else(Opening::new, Ok);
    let mut listing = match opening.and_then(|mut opening| {
        let limit = by.or_else(|| Instant::now().checked_add(LOCK_SEARCH));
        let Opening { lists, room } = &mut opening;
        let (listing, was_short) = read(lists, room, limit, by.is_none(), of)?;
        // Otherwise one lock with many waiters may have made the kernel's buffer larger than any list that is read.
        if (was_short || *room == PIECE_BYTES) && listing.completeness == Completeness::Whole {
            *kept = Some(opening);
        }
        Ok(listing)
    }) {
        Err(error) if !is_hidden(&error) => Listing::default(),
        listing => listing?,
    };
    // A stranger's locks are many for a while, and the list is kept.
    listing.locks.shrink_to_fit();
    Ok(listing)
}

/// Whether there is no list, or none for this process. With any other error, the list may show a lock the next time.
fn is_hidden(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}

/// Which of two openings reads.
#[derive(Clone, Copy, Debug)]
enum By {
    First,
    Second,
}

/// The list, by two openings. Each has a buffer of its own in the kernel.
trait Source {
    fn read_at(&mut self, by: By, buffer: &mut [u8], place: u64) -> io::Result<usize>;

    /// Makes the buffer of the first opening grow to [`PIECE_BYTES`], if that is possible, and returns its size.
    fn widen(&mut self) -> usize;
}

impl Source for Lists {
    fn read_at(&mut self, by: By, buffer: &mut [u8], place: u64) -> io::Result<usize> {
        let list = match by {
            By::First => &self.first,
            By::Second => match &mut self.second {
                Some(second) => second,
                none @ None => none.insert(open_list()?),
            },
        };
        list.read_at(buffer, place)
    }

    fn widen(&mut self) -> usize {
        // Without the means for it, the list is read as it is.
        #[cfg(target_os = "linux")]
        if super::kernel_buffer::widen(&self.first).is_ok() {
            return PIECE_BYTES;
        }
        PAGE_BYTES
    }
}

/// How far one opening has read.
#[derive(Debug)]
struct Reader {
    by: By,
    place: u64,
    /// The beginning of a line that the next piece completes.
    rest: String,
}

impl Reader {
    fn of(by: By) -> Self {
        Self { by, place: 0, rest: String::new() }
    }

    /// The bytes of the next piece; none at the end of the list.
    fn piece<'b>(
        &mut self,
        source: &mut impl Source,
        buffer: &'b mut [u8],
    ) -> io::Result<&'b [u8]> {
        let length = loop {
            match source.read_at(self.by, buffer, self.place) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => break outcome?,
            }
        };
        self.place = self.place.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
        Ok(buffer.get(..length).unwrap_or_default())
    }

    /// The lines that the next piece completes.
    fn lines(&mut self, source: &mut impl Source, buffer: &mut [u8]) -> io::Result<String> {
        let piece = self.piece(source, buffer)?;
        let mut lines = std::mem::take(&mut self.rest);
        add_text(&mut lines, piece);
        self.rest = lines.split_off(whole_lines(&lines));
        Ok(lines)
    }
}

/// The list is ASCII. Anything else is no text, and each of its bytes is one character.
fn add_text(list: &mut String, piece: &[u8]) {
    match std::str::from_utf8(piece) {
        Ok(text) => list.push_str(text),
        Err(_) => list.extend(piece.iter().map(|byte| char::from(*byte))),
    }
}

/// The length of a text without the last line, if that is not complete.
fn whole_lines(text: &str) -> usize {
    text.rfind('\n').map_or(0, |end| end.saturating_add(1))
}

/// Reads the list several times. A reading that takes too long is the last one, and counts only as an addition to an
/// earlier one that came to its end. `room` is the size of the kernel's buffer. A patient caller waits for larger pieces.
/// Also returns whether each reading was one piece of a short list.
fn read(
    source: &mut impl Source,
    room: &mut usize,
    mut limit: Option<Instant>,
    is_patient: bool,
    of: &str,
) -> io::Result<(Listing, bool)> {
    let (mut listing, mut before, mut began) = (Listing::default(), String::new(), Instant::now());
    let (mut number, mut agreeing, mut was_short, mut has_pieces) = (0, 0, true, false);
    let mut most = if *room == PIECE_BYTES { LIST_BYTES } else { LONG_BYTES };
    loop {
        let linked = match has_pieces && *room == PAGE_BYTES {
            true => read_linked(source, most, limit)?.map(|list| (list, Extent::Linked)),
            false => None,
        };
        let (list, extent) = linked.map_or_else(|| read_once(source, *room, most, limit), Ok)?;
        has_pieces = matches!(extent, Extent::Pieces | Extent::Linked);
        let is_new = number == 0 || list != before;
        if is_new {
            listing.add(&list, of);
        }
        was_short &= extent == Extent::OnePiece && *room == PAGE_BYTES;
        let differs = number > 0 && is_new;
        let needs_room = match extent {
            Extent::OnePiece | Extent::Linked | Extent::TooLate => false,
            Extent::Pieces if differs && is_patient => {
                number + 1 == NARROW_READINGS || began.elapsed() >= AGAIN_WITHIN
            }
            Extent::Pieces => false,
            Extent::TooLong => limit.is_none_or(|limit| Instant::now() < limit),
        };
        if needs_room && most < LIST_BYTES {
            (*room, most) = (source.widen(), LIST_BYTES);
            (number, agreeing, began) = (0, 0, Instant::now());
            // On a busy machine, that may have taken nearly all the time.
            if is_patient {
                let least = began.checked_add(AGAIN_WITHIN);
                limit = limit.zip(least).map(|(limit, least)| limit.max(least));
            }
            continue;
        }
        let (least, enough) = match extent {
            // No lock was there at one moment.
            Extent::OnePiece if list.is_empty() => (1, 1),
            Extent::OnePiece | Extent::Linked => (WHOLE_READINGS, WHOLE_READINGS),
            Extent::Pieces if *room == PIECE_BYTES => (LEAST_READINGS, WIDE_READINGS),
            Extent::Pieces => (AGREEING, NARROW_READINGS),
            Extent::TooLong | Extent::TooLate if number == 0 => {
                // A list that is longer than small pieces show may have been read, if there had been time.
                let is_too_long = extent == Extent::TooLong && most == LIST_BYTES;
                let owner = is_too_long.then(|| owner_of_most(&list));
                let shortage = owner.map_or(Shortage::TooLate, Shortage::TooLong);
                let completeness = Completeness::Partial(shortage);
                return Ok((Listing { completeness, ..listing }, false));
            }
            Extent::TooLong | Extent::TooLate => {
                // The kernel's buffer may be too large to be kept.
                *room = PAGE_BYTES;
                (number, number)
            }
        };
        number += 1;
        agreeing = if differs { 1 } else { agreeing + 1 };
        let is_late = number >= least && began.elapsed() >= AGAIN_WITHIN;
        if number >= enough || agreeing >= AGREEING || is_late {
            return Ok((Listing { completeness: Completeness::Whole, ..listing }, was_short));
        }
        before = list;
    }
}

/// How much of the list one reading has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// All of it, as it was at one moment.
    OnePiece,
    /// It came to the end of the list, and skipped nothing that stood there all the time.
    Linked,
    /// It came to the end of the list, and may have skipped locks between two pieces.
    Pieces,
    /// The list has more bytes than are read.
    TooLong,
    /// There was no time for the rest.
    TooLate,
}

/// The lines that one reading shows.
fn read_once(
    source: &mut impl Source,
    room: usize,
    most: usize,
    by: Option<Instant>,
) -> io::Result<(String, Extent)> {
    let (mut list, mut pieces) = (String::new(), 0_usize);
    let (mut reader, mut buffer) = (Reader::of(By::First), vec![0; room]);
    let extent = loop {
        let piece = reader.piece(source, &mut buffer)?;
        if piece.is_empty() {
            let is_complete = pieces <= 1 && leaves_room(&list, room);
            break if is_complete { Extent::OnePiece } else { Extent::Pieces };
        }
        pieces = pieces.saturating_add(1);
        add_text(&mut list, piece);
        if list.len() >= most {
            break Extent::TooLong;
        }
        if by.is_some_and(|by| Instant::now() >= by) {
            break Extent::TooLate;
        }
    };
    // A part of a line may look like a lock of another node.
    list.truncate(whole_lines(&list));
    Ok((list, extent))
}

/// Whether another lock would have fitted into a piece of these lines, unless a dozen processes wait for it.
fn leaves_room(piece: &str, room: usize) -> bool {
    piece.len() <= room / 4 * 3
}

/// One reading by two openings, of which one is half a piece behind. Each piece must show the last lock of the one before it:
/// what stands behind that lock does so all the time, and nothing that stands there is skipped. `None` if a piece does not:
/// more locks vanished between two reads than half a piece has, or one has many waiters.
fn read_linked(
    source: &mut impl Source,
    most: usize,
    by: Option<Instant>,
) -> io::Result<Option<String>> {
    let mut buffer = vec![0; PAGE_BYTES];
    let (mut ahead, mut behind) = (Reader::of(By::First), Reader::of(By::Second));
    let mut list = ahead.lines(source, &mut buffer)?;
    let (half, _) = buffer.split_at_mut(PAGE_BYTES / 2);
    behind.lines(source, half)?;
    while list.len() < most && by.is_none_or(|by| Instant::now() < by) {
        let piece = behind.lines(source, &mut buffer)?;
        let last = list.lines().rev().find_map(lock_alone);
        if last.is_none() || !piece.lines().any(|line| lock_alone(line) == last) {
            return Ok(None);
        }
        list.push_str(&piece);
        if leaves_room(&piece, PAGE_BYTES) {
            let is_end = behind.lines(source, &mut buffer)?.is_empty();
            return Ok(is_end.then_some(list));
        }
        std::mem::swap(&mut ahead, &mut behind);
    }
    Ok(None)
}

/// A line without its number, which changes. Not a line of a process that waits.
fn lock_alone(line: &str) -> Option<&str> {
    let (_, lock) = line.split_once(": ")?;
    (!lock.trim_start().starts_with("->")).then_some(lock)
}

/// The user whose processes have most of the locks of a list: nobody, if this process itself has more.
fn owner_of_most(list: &str) -> Option<u32> {
    let mut takers: BTreeMap<i64, usize> = BTreeMap::new();
    for pid in list.lines().filter_map(|line| line.split_ascii_whitespace().nth(4)?.parse().ok()) {
        let times = takers.entry(pid).or_default();
        *times = times.saturating_add(1);
    }
    let own = takers.remove(&Pid::this().as_raw().into()).unwrap_or_default();
    let mut takers: Vec<(i64, usize)> = takers.into_iter().collect();
    takers.sort_unstable_by_key(|(_, times)| std::cmp::Reverse(*times));
    let mut owners: BTreeMap<u32, usize> = BTreeMap::new();
    for (pid, times) in takers.into_iter().take(OWNERS_LOOKED_UP) {
        if let Some(uid) = Pid::new(pid).and_then(process::real_user) {
            let all = owners.entry(owner_of(uid)).or_default();
            *all = all.saturating_add(times);
        }
    }
    let (uid, times) = owners.into_iter().max_by_key(|(_, times)| *times)?;
    (times > own).then_some(uid)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// A list that is read as from the kernel: a buffer at a time, by position.
    struct Kernel<F> {
        list: Vec<String>,
        reads: usize,
        /// What happens to the list before each read.
        meanwhile: F,
        next: [usize; 2],
        left: [Vec<u8>; 2],
        /// The size of the kernel's buffer.
        room: usize,
        most_room: usize,
        widened: usize,
    }

    impl<F: FnMut(&mut Vec<String>)> Kernel<F> {
        fn of(list: Vec<String>, meanwhile: F) -> Self {
            let (reads, next, left, widened) = (0, [0; 2], [Vec::new(), Vec::new()], 0);
            let (room, most_room) = (PAGE_BYTES, PIECE_BYTES);
            Self { list, reads, meanwhile, next, left, room, most_room, widened }
        }
    }

    impl<F: FnMut(&mut Vec<String>)> Source for Kernel<F> {
        fn read_at(&mut self, by: By, buffer: &mut [u8], place: u64) -> io::Result<usize> {
            self.reads += 1;
            (self.meanwhile)(&mut self.list);
            let (next, left) = (&mut self.next[by as usize], &mut self.left[by as usize]);
            let room = match by {
                By::First => self.room,
                By::Second => PAGE_BYTES,
            };
            if place == 0 {
                (*next, *left) = (0, Vec::new());
            }
            let mut piece = std::mem::take(left);
            while let Some(lock) = self.list.get(*next) {
                let line = format!("{}: {lock}\n", *next + 1);
                if !piece.is_empty() && piece.len() + line.len() > room
                    || piece.len() >= buffer.len()
                {
                    break;
                }
                piece.extend(line.bytes());
                *next += 1;
            }
            let length = piece.len().min(buffer.len());
            *left = piece.split_off(length);
            buffer[..length].copy_from_slice(&piece);
            Ok(length)
        }

        fn widen(&mut self) -> usize {
            self.widened += 1;
            self.room = self.most_room;
            self.room
        }
    }

    const HELD: &str = "FLOCK  ADVISORY  WRITE 4711 00:16:88 0 EOF";

    fn held() -> (FileNumbers, FlockHolder) {
        ((0, 0x16, 88), FlockHolder::Process(Pid::new(4711).unwrap()))
    }

    /// A line that is no lock of a port.
    fn lock(number: usize) -> String {
        format!("LEASE  ACTIVE    WRITE {number:05} 00:1a:{number:07} 0 EOF")
    }

    fn list(before: usize, behind: usize) -> Vec<String> {
        let mut list: Vec<String> = (0..before + behind).map(lock).collect();
        list.insert(before, HELD.to_owned());
        list
    }

    /// The listing, and the number of reads.
    fn read_while(
        list: Vec<String>,
        by: Option<Instant>,
        meanwhile: impl FnMut(&mut Vec<String>),
    ) -> (Listing, usize) {
        let mut kernel = Kernel::of(list, meanwhile);
        (read(&mut kernel, &mut PAGE_BYTES.clone(), by, by.is_none(), "").unwrap().0, kernel.reads)
    }

    #[rstest]
    #[case::alone(0, 0)]
    #[case::one_page(20, 20)]
    #[case::just_a_page(35, 36)]
    #[case::many_pages(500, 500)]
    #[case::long(2000, 2000)]
    fn a_lock_of_the_list_is_seen(
        #[case] before: usize,
        #[case] behind: usize,
        #[values(1, 3 * PAGE_BYTES)] longest: usize,
    ) {
        let mut list = list(before, behind);
        list.insert(before, format!("FLOCK {}", "x".repeat(longest)));
        let (Listing { locks, completeness }, _) = read_while(list, None, |_| ());
        assert_eq!(completeness, Completeness::Whole);
        assert_eq!(locks, [held()]);
    }

    /// A long list is read in few pieces, once it is known to be long.
    #[rstest]
    #[case::nothing(0, 3)]
    #[case::a_page(40, 9)]
    #[case::two_pages(100, 12)]
    #[case::long(20_000, 60)]
    fn a_list_takes_few_reads(#[case] locks: usize, #[case] most: usize) {
        let (listing, reads) = read_while((0..locks).map(lock).collect(), None, |_| ());
        assert_eq!(listing.completeness, Completeness::Whole);
        assert!(reads <= most, "{reads}");
    }

    /// At one moment of each of the first readings, all locks in front of the held one vanish, so that it moves below the
    /// position of the next read; afterwards all are there again. What else happens before a piece is told by its reading.
    fn read_while_it_slides(
        hiding: usize,
        mut also: impl FnMut(&mut Vec<String>, usize),
    ) -> Listing {
        let whole = list(150, 20);
        let without: Vec<String> = whole.iter().skip(140).cloned().collect();
        let (mut reading, mut piece) = (0, 0);
        let change = |list: &mut Vec<String>| {
            let hides = piece == 1 && reading < hiding;
            list.clone_from(if hides { &without } else { &whole });
            also(list, reading);
            piece += 1;
            if hides || piece == 4 {
                (reading, piece) = (reading + 1, 0);
            }
        };
        read_while(whole.clone(), None, change).0
    }

    /// It is missing in all readings only if it slides in each.
    #[rstest]
    #[case::never(0)]
    #[case::once(1)]
    #[case::often(5)]
    #[case::in_all_but_one(NARROW_READINGS - 1)]
    fn a_lock_that_slides_is_seen_in_another_reading(#[case] hiding: usize) {
        let listing = read_while_it_slides(hiding, |list, reading| list[0] = lock(1000 + reading));
        assert_eq!(listing.locks, [held()]);
    }

    /// Before each piece, four hundred locks come or go, so that readings in small pieces skip many of the others, however
    /// often they are repeated.
    #[rstest]
    fn a_lock_beside_hundreds_that_come_and_go_is_seen(
        #[values(400, 700, 980)] before: usize,
        #[values(1000, 3000)] standing: usize,
    ) {
        let (mut more, less) = (list(before + 400, standing), list(before, standing));
        let mut number = 1_000_000;
        let flap = |list: &mut Vec<String>| {
            std::mem::swap(list, &mut more);
            number += 1;
            list[0] = lock(number);
        };
        let (listing, reads) = read_while(less, None, flap);
        assert_eq!(listing.locks, [held()]);
        // Ten readings of some fifty pages, and few of large pieces.
        assert!(reads < 700, "{reads}");
    }

    /// Hundreds of threads make the pieces larger, so some other locks that come and go are no reason for that.
    #[rstest]
    #[case::at_rest(0)]
    #[case::that_changes_once(1)]
    #[case::that_never_rests(usize::MAX)]
    fn a_list_of_some_pages_keeps_small_pieces(#[case] changes: usize) {
        let mut number = 0;
        let change = |list: &mut Vec<String>| {
            if number < changes {
                number += 1;
                list[0] = lock(1_000_000 + number);
                list.rotate_left(number % 3);
            }
        };
        let mut kernel = Kernel::of(list(150, 20), change);
        let (listing, _) = read(&mut kernel, &mut PAGE_BYTES.clone(), None, true, "").unwrap();
        assert_eq!((listing.locks, kernel.widened), (vec![held()], 0));
    }

    /// Before one of its reads, some locks in front of the held one vanish. A reading by two openings sees it, or says that it
    /// may have missed it.
    #[rstest]
    fn what_two_openings_skip_is_noticed(
        #[values(1, 5, 20, 60, 90, 140)] vanishing: usize,
        #[values(140, 150, 210)] before: usize,
    ) {
        let mut missed = 0;
        for at in 1..20 {
            let mut number = 0;
            let vanish = |list: &mut Vec<String>| {
                number += 1;
                if number == at {
                    list.drain(..vanishing);
                }
            };
            let mut kernel = Kernel::of(list(before, 100), vanish);
            match read_linked(&mut kernel, LONG_BYTES, None).unwrap() {
                Some(seen) => assert!(seen.contains(HELD), "before read {at}"),
                None => missed += 1,
            }
        }
        assert!(vanishing > 20 || missed == 0, "{missed}");
    }

    /// An opening with large pieces is used again as it is. One whose pieces stayed small is not taken for such a one.
    #[rstest]
    #[case::large(PIECE_BYTES)]
    #[case::small(PAGE_BYTES)]
    fn an_opening_is_widened_once(#[case] most_room: usize) {
        let mut kernel = Kernel { most_room, ..Kernel::of(list(2000, 2000), |_| ()) };
        let mut room = PAGE_BYTES;
        let mut reads = [0; 2];
        for reads in &mut reads {
            assert_eq!(read(&mut kernel, &mut room, None, true, "").unwrap().0.locks, [held()]);
            *reads = std::mem::take(&mut kernel.reads);
        }
        let is_wide = most_room == PIECE_BYTES;
        assert_eq!((room, kernel.widened), (most_room, if is_wide { 1 } else { 2 }));
        assert_eq!(reads[1] < 10, is_wide, "{reads:?}");
    }

    /// Only such an opening has surely the kernel's first buffer.
    #[rstest]
    #[case::nothing(Vec::new(), true)]
    #[case::short(list(10, 5), true)]
    #[case::more_than_fits(list(300, 20), false)]
    #[case::long(list(3000, 20), false)]
    fn an_opening_of_a_short_list_is_known(#[case] list: Vec<String>, #[case] was_short: bool) {
        let mut kernel = Kernel::of(list, |_| ());
        let known = read(&mut kernel, &mut PAGE_BYTES.clone(), None, true, "").unwrap().1;
        assert_eq!(known, was_short);
    }

    /// Where the pieces stay small, a page is not the list, however the locks behind it move.
    #[test]
    fn a_page_is_not_the_list() {
        let (whole, mut piece) = (list(300, 20), 0);
        let hide = |list: &mut Vec<String>| {
            list.clone_from(&whole);
            if piece < 20 && piece % 2 == 1 {
                list.drain(..280);
            }
            list[0] = lock(1000 + piece);
            piece += 1;
        };
        let mut kernel = Kernel { most_room: PAGE_BYTES, ..Kernel::of(whole.clone(), hide) };
        let (listing, _) = read(&mut kernel, &mut PAGE_BYTES.clone(), None, true, "").unwrap();
        assert_eq!(listing.locks, [held()]);
    }

    /// Locks that come and go in step with the readings, and a machine on which each piece takes long.
    #[rstest]
    #[case::quickly(Duration::ZERO)]
    #[case::slowly(AGAIN_WITHIN / 12)]
    fn two_readings_that_miss_a_lock_are_not_enough(#[case] pause: Duration) {
        let listing = read_while_it_slides(2, |_, _| {
            let end = Instant::now() + pause;
            while Instant::now() < end {
                std::thread::yield_now();
            }
        });
        assert!(listing.locks.contains(&held()), "{listing:?}");
    }

    /// A reading that is cut is no answer; after one that came to its end, it is not needed.
    #[rstest]
    #[case::too_many_locks(200_000, None, Completeness::Partial(Shortage::TooLong(None)))]
    #[case::too_slow(100, Some(1), Completeness::Partial(Shortage::TooLate))]
    #[case::too_slow_for_a_long_one(3000, Some(1), Completeness::Partial(Shortage::TooLate))]
    #[case::too_slow_later(100, Some(4), Completeness::Whole)]
    fn a_list_that_cannot_be_read_is_not_whole(
        #[case] locks: usize,
        #[case] reads_in_time: Option<usize>,
        #[case] expected: Completeness,
    ) {
        let by = reads_in_time.map(|_| Instant::now() + Duration::from_secs(1));
        let mut reads = 0;
        let slow_down = |_: &mut Vec<String>| {
            reads += 1;
            while Some(reads) > reads_in_time && by.is_some_and(|by| Instant::now() < by) {
                std::thread::yield_now();
            }
        };
        let (listing, _) = read_while((0..locks).map(lock).collect(), by, slow_down);
        let seen = match listing.completeness {
            // The numbers of the list are those of any processes here.
            Completeness::Partial(Shortage::TooLong(_)) => {
                Completeness::Partial(Shortage::TooLong(None))
            }
            seen @ (Completeness::Partial(_) | Completeness::Whole) => seen,
        };
        assert_eq!(seen, expected);
    }

    /// A service keeps locks as well, and is not who fills the list.
    #[rstest]
    #[case::others(1, 2, true)]
    #[case::as_many(2, 2, false)]
    #[case::own(2, 1, false)]
    #[case::only_own(1, 0, false)]
    fn the_user_of_most_locks_is_not_this_process(
        #[case] own: usize,
        #[case] others: usize,
        #[case] is_named: bool,
    ) {
        let parent = std::os::unix::process::parent_id();
        let line = |pid: u32| format!("1: FLOCK  ADVISORY  WRITE {pid} 00:05:1234 0 EOF\n");
        let list = line(std::process::id()).repeat(own) + &line(parent).repeat(others);
        let owner = Pid::new(parent.into()).and_then(process::real_user);
        assert_eq!(owner_of_most(&list), owner.filter(|_| is_named));
    }

    /// A source that fails once, and has one lock.
    struct Failing(Option<io::ErrorKind>);

    const LINE: &str = "1: FLOCK  ADVISORY  WRITE 4711 00:16:88 0 EOF\n";

    impl Source for Failing {
        fn read_at(&mut self, _: By, buffer: &mut [u8], place: u64) -> io::Result<usize> {
            if let Some(kind) = self.0.take() {
                return Err(kind.into());
            }
            let rest = &LINE.as_bytes()[usize::try_from(place).unwrap()..];
            buffer[..rest.len()].copy_from_slice(rest);
            Ok(rest.len())
        }

        fn widen(&mut self) -> usize {
            PAGE_BYTES
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
        match read(&mut Failing(Some(kind)), &mut PAGE_BYTES.clone(), None, true, "") {
            Ok((listing, _)) => {
                assert_eq!((error, listing.locks), (None, vec![held()]));
            }
            Err(failure) => assert_eq!(Some(failure.kind()), error),
        }
    }
}
