//! Reads the kernel's list of locks, `/proc/locks`, as far as it is about some nodes. How long that may
//! take is a count of work: a clock would say more of the machine's other work than of the list.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use super::kernel_list::{self, Listing};
use crate::device::node::Node;

/// The kernel's list.
const LIST: &str = "/proc/locks";

/// So many locks the kernel counts through at most, for all that is read at one time. For each piece it
/// counts through all that were told before, so two readings of 100,000 locks, ten for each of 10,000
/// users, take some 300 million; and that takes it a second or two.
const LOCKS_COUNTED_THROUGH: usize = 1 << 29;

/// Telling a lock takes as long as counting through so many.
const TELLING_ONE: usize = 64;

/// As many locks are in a piece.
const LOCKS_IN_A_PIECE: usize = 80;

/// The nodes that are asked about.
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

    /// Of a line without its number. Source: proc(5).
    fn wants(&self, lock: &str) -> bool {
        let place = || lock.split_ascii_whitespace().nth(4);
        lock.starts_with("FLOCK ") && place().is_some_and(|place| self.places.contains(place))
    }
}

/// As the kernel's list has it: device and inode.
pub(super) fn place_of(node: &Node) -> String {
    let (major, minor) = (node.file_system.major, node.file_system.minor);
    format!("{major:02x}:{minor:02x}:{}", node.inode)
}

/// The list, and what is kept of it from one reading to the next.
#[derive(Debug, Default)]
pub(super) struct ListReader {
    /// The list, open since it was read last: it fitted into one piece. The kernel's room for a longer one
    /// would stay as long.
    kept: Option<Rc<File>>,
}

impl ListReader {
    /// The list as far as it is about these nodes.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn read(&mut self, wanted: &Wanted) -> io::Result<Listing> {
        let open = || File::open(LIST).map(Rc::new);
        let first = self.kept.take().map_or_else(open, Ok)?;
        let mut kept = Some(Rc::clone(&first));
        let again = || kept.take().map_or_else(open, Ok).map(Reading::of);
        let mut allowance = Allowance::new(LOCKS_COUNTED_THROUGH);
        let may_read = |position| allowance.spend(position);
        let listing = kernel_list::read(again, may_read, |lock| wanted.wants(lock))?;
        self.kept = listing.is_of_one_piece.then_some(first);
        Ok(listing)
    }
}

/// What the kernel may still be asked to do.
#[derive(Debug)]
struct Allowance {
    left: usize,
}

impl Allowance {
    fn new(left: usize) -> Self {
        Self { left }
    }

    /// For a piece behind so many locks.
    fn spend(&mut self, position: usize) -> bool {
        let work = position.saturating_add(LOCKS_IN_A_PIECE * TELLING_ONE);
        let left = self.left.checked_sub(work);
        self.left = left.unwrap_or_default();
        left.is_some()
    }
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

    /// How often a list of so many locks may be read through, by two readers.
    #[rstest]
    #[case::a_stranger_who_tries(25_000, 16)]
    #[case::ten_for_each_of_ten_thousand_users(100_000, 2)]
    fn a_list_of_a_large_machine_is_read(#[case] locks: usize, #[case] times: usize) {
        let mut allowance = Allowance::new(LOCKS_COUNTED_THROUGH);
        for _ in 0..2 * times {
            let mut positions = (0..locks).step_by(70);
            assert!(positions.all(|position| allowance.spend(position)));
        }
    }

    /// However long the list is, reading it comes to an end.
    #[test]
    fn there_is_an_end() {
        let mut allowance = Allowance::new(LOCKS_COUNTED_THROUGH);
        let told = (0..).step_by(70).take_while(|position| allowance.spend(*position)).count();
        assert!((1000..1_000_000).contains(&told), "{told}");
        assert!(!allowance.spend(0));
    }
}
