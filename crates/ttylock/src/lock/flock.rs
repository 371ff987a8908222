//! Holders without lock files: `flock(2)` on the device node, as the kernel lists it.
//!
//! picocom, tio, pyserial, new microcom and others lock the open port itself. `/proc/locks` shows
//! them by device and inode, so the port need not be opened, which would disturb it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use pidlockfile::{Identity, Pid};

use super::kernel_list::{self, Extent, Listing};
use crate::device::node::{Node, Numbers};

/// The kernel's list.
const LIST: &str = "/proc/locks";

/// So many pieces of the list are read however long that takes: some two thousand locks. The
/// kernel may let the first reading wait for milliseconds.
const READS_ALWAYS: usize = 64;

/// As many are read at all, and only within this time: anybody may hold a hundred thousand locks,
/// and each reading counts through all that were told before.
const READS_MOST: usize = 1024;
const TIME_MOST: Duration = Duration::from_millis(20);

/// For how long a list is good, for those who live long.
const GOOD_FOR: Duration = Duration::from_millis(5);

/// For how long a list that was too long to be read once is not read again. One that was read, and was
/// changing all the while, rests as long as that took.
const REST: Duration = Duration::from_secs(1);

/// Who took a `flock(2)` that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The process that took it. It may be gone: whoever inherited the descriptor holds it now
    /// (`exec 3<>/dev/ttyS0; flock 3` in a shell).
    Process(Pid),
    /// One that has no number here.
    Unseen,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Process(pid) => write!(f, "pid {pid}"),
            Self::Unseen => f.write_str("a process that cannot be seen"),
        }
    }
}

/// Who holds `flock(2)` on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Those who were seen.
    pub holders: Vec<Holder>,
    /// Whether there may be others: the kernel's list may be too long to be read, or be changing too
    /// fast.
    pub extent: Extent,
}

/// Whether flocks of other pid namespaces may be held unseen: the kernel lists only those of the
/// asker's namespace and below, so only the first one sees all.
#[must_use]
pub fn sees_all() -> bool {
    pidlockfile::process::is_in_first_namespace()
}

/// The kernel's list of locks, for one process.
#[derive(Debug, Default)]
pub struct Flocks {
    /// Until then the list is not read: it was too long, or changing too fast.
    rests_until: Option<(Instant, Extent)>,
    /// For how long what was read last is good.
    good_for: Duration,
    last: Option<(Instant, Listing)>,
    /// The list, open since it was read last: it fitted into one piece. The kernel's room for a longer one
    /// would stay as long.
    kept: Option<Rc<File>>,
}

/// The list, read from a place of its own: so one that stays open need not be rewound.
#[derive(Debug)]
struct Reading {
    file: Rc<File>,
    place: u64,
}

impl Reading {
    fn of(file: Rc<File>) -> Self {
        Self { file, place: 0 }
    }
}

impl Read for Reading {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read_at(buffer, self.place)?;
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

impl Flocks {
    /// For a process that does request after request: reading costs as much as all the rest of a
    /// LOCK. Whoever takes a flock within the moment would also have come after the lock.
    #[must_use]
    pub fn of_one_who_lives_long() -> Self {
        Self { good_for: GOOD_FOR, ..Self::default() }
    }

    /// For a process to which the kernel tells this and nothing else, for tests.
    #[cfg(test)]
    pub(super) fn told(listing: Listing) -> Self {
        let last = Some((Instant::now(), listing));
        Self { good_for: Duration::MAX, last, ..Self::default() }
    }

    /// Who holds `flock(2)` on a node.
    ///
    /// # Errors
    /// When the list cannot be read; then nothing is known, and nothing is guessed.
    pub fn holders(&mut self, node: &Node) -> io::Result<Sight> {
        let Listing { text, extent } = self.list()?;
        Ok(Sight { holders: holders_in(&text, node), extent })
    }

    /// The same of a lock file, as it is now: one that was read before may know neither the file nor its
    /// maker.
    ///
    /// # Errors
    /// As [`Flocks::holders`].
    pub(super) fn on_file(&mut self, file: Identity) -> io::Result<Sight> {
        self.last = None;
        let file_system = Numbers {
            major: rustix::fs::major(file.device).into(),
            minor: rustix::fs::minor(file.device).into(),
        };
        self.holders(&Node { file_system, inode: file.inode, device: None })
    }

    /// The list, for asking about many nodes at once.
    pub(super) fn list(&mut self) -> io::Result<Listing> {
        let start = Instant::now();
        if let Some((_, extent)) = self.rests_until.filter(|(until, _)| start < *until) {
            return Ok(Listing { text: String::new(), extent });
        }
        if let Some((read, last)) = &self.last {
            if start.duration_since(*read) < self.good_for {
                return Ok(last.clone());
            }
        }
        let mut reads = 0_usize;
        let may_read = || {
            reads = reads.saturating_add(1);
            reads <= READS_ALWAYS || (reads <= READS_MOST && start.elapsed() < TIME_MOST)
        };
        let open = || File::open(LIST).map(Rc::new);
        let first = self.kept.take().map_or_else(open, Ok)?;
        let mut kept = Some(Rc::clone(&first));
        let again = || kept.take().map_or_else(open, Ok).map(Reading::of);
        let listing = kernel_list::read(again, may_read)?;
        self.kept = listing.is_of_one_piece().then_some(first);
        let (end, extent) = (Instant::now(), listing.extent);
        let rest = rest(extent, end.duration_since(start)).filter(|_| reads > READS_ALWAYS);
        self.rests_until = rest.map(|rest| (end + rest, extent));
        if self.good_for > Duration::ZERO {
            // By the time before the reading, so that nothing is older than it seems.
            self.last = Some((start, listing.clone()));
        }
        Ok(listing)
    }
}

/// What is merely changing may be whole the next time.
fn rest(extent: Extent, spent: Duration) -> Option<Duration> {
    match extent {
        Extent::Whole => None,
        Extent::Changing => Some(spent.min(REST)),
        Extent::Cut => Some(REST),
    }
}

/// Source: proc(5), `/proc/locks`: `1: FLOCK  ADVISORY  WRITE 1234 00:05:1234 0 EOF`, where the
/// numbers before the range are major and minor number in hexadecimal and the inode in decimal. A
/// line with `->` is a process that waits.
pub(super) fn holders_in(list: &str, node: &Node) -> Vec<Holder> {
    let (major, minor) = (node.file_system.major, node.file_system.minor);
    let place = format!("{major:02x}:{minor:02x}:{}", node.inode);
    let mut holders: Vec<Holder> = Vec::new();
    for holder in list.lines().filter_map(|line| holder_in(line, &place)) {
        // The same line may have been told more than once.
        if !holders.contains(&holder) {
            holders.push(holder);
        }
    }
    holders
}

fn holder_in(line: &str, place: &str) -> Option<Holder> {
    let mut words = line.split_ascii_whitespace().skip(1);
    if words.next()? != "FLOCK" {
        return None;
    }
    let pid = words.nth(2)?;
    (words.next()? == place)
        .then(|| Pid::parse(pid.as_bytes()).map_or(Holder::Unseen, Holder::Process))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const NODE: Node =
        Node { file_system: Numbers { major: 0, minor: 0x16 }, inode: 88, device: None };

    #[rstest]
    #[case::whole(Extent::Whole, None)]
    #[case::changing(Extent::Changing, Some(Duration::from_millis(20)))]
    #[case::too_long(Extent::Cut, Some(REST))]
    fn what_may_be_whole_the_next_time_is_read_soon(
        #[case] extent: Extent,
        #[case] pause: Option<Duration>,
    ) {
        assert_eq!(rest(extent, Duration::from_millis(20)), pause);
    }

    #[rstest]
    #[case::held("1: FLOCK  ADVISORY  WRITE 1234 00:16:88 0 EOF\n", &[1234])]
    #[case::shared("1: FLOCK  ADVISORY  READ 7 00:16:88 0 EOF\n", &[7])]
    #[case::two("1: FLOCK  ADVISORY  READ 7 00:16:88 0 EOF\n2: FLOCK ADVISORY READ 8 00:16:88 0 EOF\n", &[7, 8])]
    #[case::waiting("1: -> FLOCK  ADVISORY  WRITE 1234 00:16:88 0 EOF\n", &[])]
    #[case::posix("1: POSIX  ADVISORY  WRITE 1234 00:16:88 0 EOF\n", &[])]
    #[case::other_inode("1: FLOCK  ADVISORY  WRITE 1234 00:16:880 0 EOF\n", &[])]
    #[case::other_file_system("1: FLOCK  ADVISORY  WRITE 1234 00:17:88 0 EOF\n", &[])]
    #[case::pid_outside_our_namespace("1: FLOCK  ADVISORY  WRITE 0 00:16:88 0 EOF\n", &[0])]
    #[case::no_pid("1: FLOCK  ADVISORY  WRITE -1 00:16:88 0 EOF\n", &[0])]
    #[case::cut_short("1: FLOCK  ADVISORY\n", &[])]
    #[case::empty("", &[])]
    fn reads_the_list(#[case] list: &str, #[case] pids: &[i64]) {
        let holder = |pid: &i64| Pid::new(*pid).map_or(Holder::Unseen, Holder::Process);
        let holders: Vec<_> = pids.iter().map(holder).collect();
        assert_eq!(holders_in(list, &NODE), holders);
    }
}
