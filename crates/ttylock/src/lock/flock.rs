//! Holders without lock files: `flock(2)` on the device node, as the kernel lists it.
//!
//! picocom, tio, pyserial, new microcom and others lock the open port itself. `/proc/locks` shows
//! them by device and inode, so the port need not be opened, which would disturb it.

use std::io;
use std::time::Instant;

use pidlockfile::{Identity, Pid, process};

pub(crate) use super::kernel_list::Completeness;
use super::kernel_list::{Listing, Wanted, place_of, read_list};
use super::list_thread::{GOOD_FOR, ListThread};
use crate::device::node::Node;
use crate::sys;

/// The process that took a `flock(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlockHolder {
    /// The process that took it. It may be gone: one that inherited the descriptor holds it now
    /// (`exec 3<>/dev/ttyS0; flock 3` in a shell).
    Process(Pid),
    /// A process without a number in this pid namespace.
    Unseen,
}

impl FlockHolder {
    /// Whether it is a process of our pid namespace, in which the number of a lock file that it has made means something.
    pub(super) fn is_here(self) -> bool {
        matches!(self, Self::Process(pid) if process::is_in_our_namespace(pid))
    }
}

impl std::fmt::Display for FlockHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Process(pid) => write!(f, "pid {pid}"),
            Self::Unseen => f.write_str("a process that cannot be seen"),
        }
    }
}

/// The holders of `flock(2)` on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sight {
    /// The holders that were seen.
    pub holders: Vec<FlockHolder>,
    /// Whether there may be further holders.
    pub completeness: Completeness,
}

/// Whether flocks of other pid namespaces may be held unseen: the kernel lists only those of the
/// asker's namespace and below, so only the first one sees all.
#[must_use]
pub(crate) fn sees_all() -> bool {
    process::is_in_first_namespace()
}

/// The kernel's list of locks, for one process.
#[derive(Debug, Default)]
pub(crate) struct Flocks {
    /// The moment at which a reading by this process itself ends.
    by: Option<Instant>,
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

    /// The holders of `flock(2)` on a node, for a caller that first asked at that moment. A lock that was held
    /// [`GOOD_FOR`] before that, and is still held, is seen. `None` while the list is being read: the caller must come back for the answer.
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
            None => Ok(Some(sight_in(&read_list(&Wanted::of([node]), self.by)?, node))),
            Some(thread) => {
                let listing = thread.listing(node, asked)?;
                Ok(listing.map(|listing| sight_in(&listing, node)))
            }
        }
    }

    /// The same of a lock file, but by a reading that began after the caller asked: an earlier one may have neither the
    /// file nor its maker.
    ///
    /// # Errors
    /// As [`Flocks::holders`].
    pub(super) fn on_file(&mut self, file: Identity, asked: Instant) -> io::Result<Option<Sight>> {
        let file_system = sys::numbers(file.device);
        let node = Node { file_system, inode: file.inode, device: None };
        self.holders(&node, asked.checked_add(GOOD_FOR).unwrap_or(asked))
    }

    /// A reading by this process itself ends at that moment at the latest, complete or not.
    pub(super) fn end_by(&mut self, by: Option<Instant>) {
        self.by = by;
    }
}

fn sight_in(listing: &Listing, node: &Node) -> Sight {
    Sight { holders: holders_in(&listing.text, node), completeness: listing.completeness }
}

/// The message for people if not all locks were seen.
pub(super) fn too_many(most_of: Option<u32>) -> String {
    let whose = most_of.map(|uid| format!(", most of them of uid {uid}")).unwrap_or_default();
    format!("too many kernel locks to see all{whose}")
}

/// The holders of a node in a list.
pub(super) fn holders_in(list: &str, node: &Node) -> Vec<FlockHolder> {
    let wanted = place_of(node);
    let mut holders: Vec<FlockHolder> = Vec::new();
    for (place, holder) in list.lines().filter_map(flock_in) {
        // The same line may have been read more than once.
        if place == wanted && !holders.contains(&holder) {
            holders.push(holder);
        }
    }
    holders
}

/// The place of a `flock(2)`, and its holder. Source: proc(5), `/proc/locks`: `1: FLOCK  ADVISORY  WRITE 1234 00:05:1234 0
/// EOF`, where the numbers before the range are major and minor number in hexadecimal and the inode in decimal. A line
/// with `->` is a process that waits for a lock.
pub(super) fn flock_in(line: &str) -> Option<(&str, FlockHolder)> {
    let mut words = line.split_ascii_whitespace().skip(1);
    if words.next()? != "FLOCK" {
        return None;
    }
    let (pid, place) = (words.nth(2)?, words.next()?);
    Some((place, Pid::parse(pid.as_bytes()).map_or(FlockHolder::Unseen, FlockHolder::Process)))
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
    #[case::posix("1: POSIX  ADVISORY  WRITE 1234 00:16:88 0 EOF\n", &[])]
    #[case::other_inode("1: FLOCK  ADVISORY  WRITE 1234 00:16:880 0 EOF\n", &[])]
    #[case::other_file_system("1: FLOCK  ADVISORY  WRITE 1234 00:17:88 0 EOF\n", &[])]
    #[case::pid_outside_our_namespace("1: FLOCK  ADVISORY  WRITE 0 00:16:88 0 EOF\n", &[0])]
    #[case::no_pid("1: FLOCK  ADVISORY  WRITE -1 00:16:88 0 EOF\n", &[0])]
    #[case::cut_short("1: FLOCK  ADVISORY\n", &[])]
    #[case::empty("", &[])]
    fn reads_the_list(#[case] list: &str, #[case] pids: &[i64]) {
        let holder = |pid: &i64| Pid::new(*pid).map_or(FlockHolder::Unseen, FlockHolder::Process);
        let holders: Vec<_> = pids.iter().map(holder).collect();
        assert_eq!(holders_in(list, &NODE), holders);
    }
}
