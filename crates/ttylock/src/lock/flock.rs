//! Holders of `flock(2)` and of locks by `fcntl(2)`, as the kernel lists them: on a device node, and on a lock file. Both
//! count in the same way.
//!
//! picocom, tio, pyserial, new microcom and others lock the open port itself. `/proc/locks` shows
//! them by device and inode, so the port need not be opened, which would disturb it.
//!
//! On a lock file, only the `flock(2)` of root, of the service and of the owner of the file counts, where there is a
//! gate. Every user who may read the file can hold it, and such a user must not be able to block the port.

use std::io;
use std::time::Instant;

use pidlockfile::{Identity, Pid};

pub(crate) use super::kernel_list::{Completeness, FlockHolder, Shortage};
use super::kernel_list::{Listing, Opening, of_inode, read_list};
use super::list_thread::{GOOD_FOR, ListThread};
use crate::device::node::Node;
use crate::sys;

/// The holders of locks on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sight {
    /// The holders that were seen.
    pub holders: Vec<FlockHolder>,
    /// Whether there may be further holders.
    pub completeness: Completeness,
}

/// The kernel's list of locks, for one process.
#[derive(Debug, Default)]
pub(crate) struct Flocks {
    /// The moment at which a reading by this process itself ends.
    by: Option<Instant>,
    /// What it keeps between two readings.
    kept: Option<Opening>,
    /// The thread that reads it, if there is one.
    thread: Option<ListThread>,
    /// The answers of a test, each once and then from the first again.
    #[cfg(test)]
    answers: std::collections::VecDeque<Option<Listing>>,
}

impl Flocks {
    /// For a process that serves many requests: a thread reads the list, because that may take long and only the
    /// callers that ask should wait for it.
    ///
    /// # Errors
    /// An error of the system, if no thread can be started.
    pub(crate) fn read_by_a_thread() -> io::Result<Self> {
        Ok(Self { thread: Some(ListThread::begin()?), ..Self::default() })
    }

    /// For tests: each question gets the next of these lists, or none because the list is still being read.
    #[cfg(test)]
    pub(super) fn answering(answers: impl IntoIterator<Item = Option<Listing>>) -> Self {
        Self { answers: answers.into_iter().collect(), ..Self::default() }
    }

    /// The holders of locks on a node, for a caller that first asked at `asked`. A lock that was held [`GOOD_FOR`]
    /// before that, and is still held, is seen. `None` while the list is being read: the caller must come back for the
    /// answer.
    ///
    /// # Errors
    /// If the list cannot be read; then nothing is known.
    pub(crate) fn holders(&mut self, node: &Node, asked: Instant) -> io::Result<Option<Sight>> {
        #[cfg(test)]
        if let Some(listing) = self.answers.pop_front() {
            let sight = listing.as_ref().map(|listing| sight_in(listing, node));
            self.answers.push_back(listing);
            return Ok(sight);
        }
        match &self.thread {
            None => {
                let listing = read_list(&mut self.kept, self.by, &of_inode(node.inode))?;
                Ok(Some(sight_in(&listing, node)))
            }
            Some(thread) => {
                let listing = thread.listing(asked)?;
                Ok(listing.map(|listing| sight_in(&listing, node)))
            }
        }
    }

    /// The same of a lock file, but by a reading that began after that moment: an earlier one may have neither the file
    /// nor its maker.
    ///
    /// # Errors
    /// As [`Flocks::holders`].
    pub(super) fn on_file(&mut self, file: Identity, since: Instant) -> io::Result<Option<Sight>> {
        let file_system = sys::numbers(file.device);
        let node = Node { file_system, inode: file.inode, device: None };
        self.holders(&node, since.checked_add(GOOD_FOR).unwrap_or(since))
    }

    /// The list, read by this process itself until that moment at the latest; an empty one if it cannot be read.
    pub(super) fn listing(&mut self, by: Instant) -> Listing {
        read_list(&mut self.kept, Some(by), "").unwrap_or_default()
    }

    /// A reading by this process itself ends at that moment at the latest, complete or not.
    pub(super) fn end_by(&mut self, by: Option<Instant>) {
        self.by = by;
    }
}

fn sight_in(listing: &Listing, node: &Node) -> Sight {
    Sight { holders: listing.holders(node), completeness: listing.completeness }
}

/// The holder of `flock(2)` on a lock file, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flocker {
    /// A holder whose lock counts, or may count if its user is unknown: the file may not be broken.
    Counts(FlockHolder),
    /// A holder whose lock does not count.
    Ignored(FlockHolder),
    /// No holder, or a process that has ended since.
    Nobody,
}

impl Flocker {
    /// The holder that prevents the breaking of a stale lock file.
    pub(super) fn that_counts(self) -> Option<FlockHolder> {
        match self {
            Self::Counts(holder) => Some(holder),
            Self::Ignored(_) | Self::Nobody => None,
        }
    }
}

/// The users whose `flock(2)` on a lock file counts, as uids; root's always does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entitled {
    pub(super) own: u32,
    pub(super) owner: u32,
    /// Without a gate, every user's does.
    pub(super) everybody: bool,
}

/// `of` gives the user of a process, and whether the process exists. `all_seen` says whether the kernel shows
/// the processes of all pid namespaces. If not, a service in another one can be noticed in no other way.
///
/// A service releases its `flock(2)` on the file of a process that has ended, and a maker does so when its
/// lock is recorded. So a holder that has ended is neither of them.
pub(super) fn flocker(
    sight: &Sight,
    all_seen: bool,
    entitled: Entitled,
    of: impl Fn(Pid) -> (Option<u32>, bool),
) -> Flocker {
    let counts = |holder: &FlockHolder| match holder {
        FlockHolder::Unseen => true,
        FlockHolder::Process(_) | FlockHolder::Unnamed { .. } if entitled.everybody => true,
        // Every user who may read the file can have it.
        FlockHolder::Unnamed { shared } => !shared,
        FlockHolder::Process(pid) => match of(*pid) {
            (Some(uid), _) => [0, entitled.own, entitled.owner].contains(&uid),
            (None, lives) => lives,
        },
    };
    let is_incomplete =
        sight.completeness != Completeness::Whole || (sight.holders.is_empty() && !all_seen);
    if let Some(holder) = sight.holders.iter().copied().find(counts) {
        return Flocker::Counts(holder);
    }
    if is_incomplete {
        return Flocker::Counts(FlockHolder::Unseen);
    }
    sight.holders.first().copied().map_or(Flocker::Nobody, Flocker::Ignored)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::device::node::Numbers;

    const NODE: Node =
        Node { file_system: Numbers { major: 0, minor: 0x16 }, inode: 88, device: None };

    #[rstest]
    #[case::held("1: FLOCK  ADVISORY  WRITE 1234 00:16:88 0 EOF\n", &[1234])]
    #[case::shared("1: FLOCK  ADVISORY  READ 7 00:16:88 0 EOF\n", &[7])]
    #[case::two("1: FLOCK  ADVISORY  READ 7 00:16:88 0 EOF\n2: FLOCK ADVISORY READ 8 00:16:88 0 EOF\n", &[7, 8])]
    #[case::waiting("1: -> FLOCK  ADVISORY  WRITE 1234 00:16:88 0 EOF\n", &[])]
    #[case::posix("1: POSIX  ADVISORY  WRITE 1234 00:16:88 0 EOF\n", &[1234])]
    #[case::posix_of_a_part("1: POSIX  ADVISORY  READ  7 00:16:88 128 255\n", &[7])]
    #[case::flock_and_posix("1: FLOCK  ADVISORY  WRITE 7 00:16:88 0 EOF\n2: POSIX  ADVISORY  WRITE 7 00:16:88 0 EOF\n", &[7])]
    #[case::posix_waiting("1: -> POSIX  ADVISORY  WRITE 1234 00:16:88 0 EOF\n", &[])]
    #[case::open_file_description("1: OFDLCK ADVISORY  WRITE -1 00:16:88 0 EOF\n", &[OFD_WRITE])]
    #[case::shared_open_file_description("1: OFDLCK ADVISORY  READ  -1 00:16:88 0 EOF\n", &[OFD_READ])]
    #[case::lease("1: LEASE  ACTIVE    WRITE 1234 00:16:88 0 EOF\n", &[])]
    #[case::other_inode("1: FLOCK  ADVISORY  WRITE 1234 00:16:880 0 EOF\n", &[])]
    #[case::other_file_system("1: FLOCK  ADVISORY  WRITE 1234 00:17:88 0 EOF\n", &[])]
    #[case::pid_outside_our_namespace("1: FLOCK  ADVISORY  WRITE 0 00:16:88 0 EOF\n", &[0])]
    #[case::no_pid("1: FLOCK  ADVISORY  WRITE -1 00:16:88 0 EOF\n", &[0])]
    #[case::cut_short("1: FLOCK  ADVISORY\n", &[])]
    #[case::empty("", &[])]
    fn reads_the_list(#[case] list: &str, #[case] pids: &[i64]) {
        let holders: Vec<_> = pids.iter().copied().map(process).collect();
        let mut listing = Listing::default();
        listing.add(list, "");
        assert_eq!(listing.holders(&NODE), holders);
        let mut of_file = Listing::default();
        of_file.add(list, &of_inode(NODE.inode));
        assert_eq!(of_file.holders(&NODE), holders);
    }

    const ROOT: i64 = 1;
    const SERVICE: i64 = 2;
    const OWNER: i64 = 3;
    const OUTSIDER: i64 = 4;
    const HIDDEN: i64 = 5;
    const ENDED: i64 = 6;
    const OFD_WRITE: i64 = -1;
    const OFD_READ: i64 = -2;

    fn of(pid: Pid) -> (Option<u32>, bool) {
        match pid.to_string().parse().unwrap() {
            ROOT => (Some(0), true),
            SERVICE => (Some(10), true),
            OWNER => (Some(1000), true),
            OUTSIDER => (Some(1001), true),
            HIDDEN => (None, true),
            _ => (None, false),
        }
    }

    fn process(pid: i64) -> FlockHolder {
        match pid {
            OFD_WRITE => FlockHolder::Unnamed { shared: false },
            OFD_READ => FlockHolder::Unnamed { shared: true },
            pid => Pid::new(pid).map_or(FlockHolder::Unseen, FlockHolder::Process),
        }
    }

    #[rstest]
    #[case::root(&[ROOT], Completeness::Whole, true, Flocker::Counts(process(ROOT)))]
    #[case::a_service(&[SERVICE], Completeness::Whole, true, Flocker::Counts(process(SERVICE)))]
    #[case::the_files_owner(&[OWNER], Completeness::Whole, true, Flocker::Counts(process(OWNER)))]
    #[case::an_outsider(&[OUTSIDER], Completeness::Whole, true, Flocker::Ignored(process(OUTSIDER)))]
    #[case::both(&[OUTSIDER, OWNER], Completeness::Whole, true, Flocker::Counts(process(OWNER)))]
    #[case::an_unknown_owner(&[HIDDEN], Completeness::Whole, true, Flocker::Counts(process(HIDDEN)))]
    #[case::an_inherited_descriptor(&[ENDED], Completeness::Whole, true, Flocker::Ignored(process(ENDED)))]
    #[case::one_without_a_number(&[0], Completeness::Whole, true, Flocker::Counts(FlockHolder::Unseen))]
    #[case::a_writer_without_a_name(&[OFD_WRITE], Completeness::Whole, true, Flocker::Counts(process(OFD_WRITE)))]
    #[case::a_reader_without_a_name(&[OFD_READ], Completeness::Whole, true, Flocker::Ignored(process(OFD_READ)))]
    #[case::nobody(&[], Completeness::Whole, true, Flocker::Nobody)]
    #[case::of_another_pid_namespace(&[], Completeness::Whole, false, Flocker::Counts(FlockHolder::Unseen))]
    #[case::an_outsider_in_a_container(&[OUTSIDER], Completeness::Whole, false, Flocker::Ignored(process(OUTSIDER)))]
    #[case::not_all_is_told(&[OUTSIDER], Completeness::Partial(Shortage::TooLong(None)), true, Flocker::Counts(FlockHolder::Unseen))]
    fn the_flock_of_which_users_counts(
        #[case] pids: &[i64],
        #[case] completeness: Completeness,
        #[case] all_seen: bool,
        #[case] expected: Flocker,
    ) {
        let holders = pids.iter().copied().map(process).collect();
        let sight = Sight { holders, completeness };
        let gated = Entitled { own: 10, owner: 1000, everybody: false };
        assert_eq!(flocker(&sight, all_seen, gated, of), expected);
        // Without a gate, an outsider counts as well.
        let ungated = flocker(&sight, all_seen, Entitled { everybody: true, ..gated }, of);
        assert_eq!(ungated.that_counts().is_some(), expected != Flocker::Nobody);
    }
}
