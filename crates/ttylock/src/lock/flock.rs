//! Holders without lock files: `flock(2)` on the device node, as the kernel lists it.
//!
//! picocom, tio, pyserial, new microcom and others lock the open port itself. `/proc/locks` shows
//! them by device and inode, so the port need not be opened, which would disturb it.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::time::{Duration, Instant};

use pidlockfile::{Identity, Pid, process};

use super::kernel_list::{Extent, Listing};
use super::list_reader::{ListReader, Wanted, place_of};
use super::lookout::{GOOD_FOR, Lookout};
use crate::device::node::{Node, Numbers};

/// Who took a `flock(2)` that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
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
pub(crate) struct Sight {
    /// Those who were seen.
    pub holders: Vec<Holder>,
    /// Whether there may be others.
    pub completeness: Completeness,
}

/// Whether all was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completeness {
    /// Every lock that was held all the while.
    Whole,
    /// The kernel's list was changing too fast: it may be told whole the next time. Most of it is this
    /// user's.
    Changing(Option<u32>),
    /// The kernel's list is too long to be read. Most of it is this user's.
    Cut(Option<u32>),
}

/// For so long a question about a file is the same one, for those who come back for its answer.
const SAME_QUESTION: Duration = Duration::from_secs(1);

/// As many questions about files are kept in mind.
const QUESTIONS: usize = 64;

/// When the holders of files were asked for, the first time and the last. A reading that began after the first
/// time is good for those who come back: if each of them wanted one that begins after he came, and readings
/// take long, none ever would be.
#[derive(Debug, Default)]
struct Questions {
    of_files: HashMap<Identity, (Instant, Instant)>,
}

impl Questions {
    /// Notes the question. When it was asked for the first time.
    fn asked(&mut self, file: Identity, now: Instant) -> Instant {
        let is_the_same = |last: Instant| now.saturating_duration_since(last) < SAME_QUESTION;
        self.of_files.retain(|_, (_, last)| is_the_same(*last));
        let first = self.of_files.get(&file).map_or(now, |(first, _)| *first);
        if self.of_files.contains_key(&file) || self.of_files.len() < QUESTIONS {
            self.of_files.insert(file, (first, now));
        }
        first
    }
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
    reader: ListReader,
    /// Where somebody else reads it.
    lookout: Option<Lookout>,
    /// About files, while the answers are being read.
    questions: Questions,
    #[cfg(test)]
    told: Option<Option<Listing>>,
}

impl Flocks {
    /// For a process that does request after request: a thread reads, for that may take long and
    /// nobody is to wait for it but those who ask.
    ///
    /// # Errors
    /// The system's, when it gives no thread.
    pub(crate) fn of_one_who_lives_long() -> io::Result<Self> {
        Ok(Self { lookout: Some(Lookout::begin()?), ..Self::default() })
    }

    /// For a process to which the kernel tells this and nothing else, or is telling it still, for tests.
    #[cfg(test)]
    pub(super) fn told(listing: impl Into<Option<Listing>>) -> Self {
        Self { told: Some(listing.into()), ..Self::default() }
    }

    /// Who holds `flock(2)` on a node, for one who has asked at that moment for the first time: what
    /// was held then and is held still is seen. `None` while that is being read: then nothing is known, and
    /// whoever asks comes back for it.
    ///
    /// # Errors
    /// When the list cannot be read; then nothing is known, and nothing is guessed.
    pub(crate) fn holders(&mut self, node: &Node, asked: Instant) -> io::Result<Option<Sight>> {
        #[cfg(test)]
        if let Some(listing) = &self.told {
            return Ok(listing.as_ref().map(|listing| sight_in(listing, node)));
        }
        match &self.lookout {
            None => Ok(Some(sight_in(&self.reader.read(&Wanted::of([node]))?, node))),
            Some(lookout) => {
                let listing = lookout.listing(node, asked)?;
                Ok(listing.map(|listing| sight_in(&listing, node)))
            }
        }
    }

    /// The same of a lock file, as it is now: one that was read before may know neither the file nor its
    /// maker.
    ///
    /// # Errors
    /// As [`Flocks::holders`].
    pub(super) fn on_file(&mut self, file: Identity) -> io::Result<Option<Sight>> {
        let file_system = Numbers {
            major: rustix::fs::major(file.device).into(),
            minor: rustix::fs::minor(file.device).into(),
        };
        let node = Node { file_system, inode: file.inode, device: None };
        let first = self.questions.asked(file, Instant::now());
        // None that has begun before is good enough.
        let sight = self.holders(&node, first.checked_add(GOOD_FOR).unwrap_or(first));
        if !matches!(sight, Ok(None)) {
            self.questions.of_files.remove(&file);
        }
        sight
    }

    /// The list as far as it is about these nodes, read now.
    pub(super) fn list<'n>(
        &mut self,
        nodes: impl IntoIterator<Item = &'n Node>,
    ) -> io::Result<Listing> {
        self.reader.read(&Wanted::of(nodes))
    }
}

fn sight_in(listing: &Listing, node: &Node) -> Sight {
    let completeness = completeness(listing);
    Sight { holders: holders_in(&listing.text, node), completeness }
}

pub(super) fn completeness(listing: &Listing) -> Completeness {
    match listing.extent {
        Extent::Whole => Completeness::Whole,
        Extent::Changing => Completeness::Changing(owner_of_most(&listing.takers)),
        Extent::Cut => Completeness::Cut(owner_of_most(&listing.takers)),
    }
}

/// As many processes are asked for their users, those first that have most locks.
const TAKERS_ASKED: usize = 256;

/// The user whose processes have most of the locks.
fn owner_of_most(takers: &BTreeMap<i64, usize>) -> Option<u32> {
    let mut takers: Vec<(usize, i64)> = takers.iter().map(|(pid, times)| (*times, *pid)).collect();
    takers.sort_unstable_by(|a, b| b.cmp(a));
    let mut owners: BTreeMap<u32, usize> = BTreeMap::new();
    for (times, pid) in takers.into_iter().take(TAKERS_ASKED) {
        if let Some(uid) = Pid::new(pid).and_then(process::owner) {
            let all = owners.entry(uid).or_default();
            *all = all.saturating_add(times);
        }
    }
    owners.into_iter().max_by_key(|(_, times)| *times).map(|(uid, _)| uid)
}

/// What people are told where not all was seen.
pub(super) fn too_many(most_of: Option<u32>) -> String {
    let whose = most_of.map(|uid| format!(", most of them of uid {uid}")).unwrap_or_default();
    format!("too many kernel locks to see all{whose}")
}

/// Source: proc(5), `/proc/locks`: `1: FLOCK  ADVISORY  WRITE 1234 00:05:1234 0 EOF`, where the
/// numbers before the range are major and minor number in hexadecimal and the inode in decimal. A
/// line with `->` is a process that waits.
pub(super) fn holders_in(list: &str, node: &Node) -> Vec<Holder> {
    let place = place_of(node);
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

    #[test]
    fn a_question_about_a_file_is_the_same_one_for_a_while() {
        let (mut questions, now) = (Questions::default(), Instant::now());
        let file = |inode| Identity { device: 1, inode };
        let after = |parts: u32| now + SAME_QUESTION / 4 * parts;
        assert_eq!(questions.asked(file(1), now), now);
        assert_eq!(questions.asked(file(2), after(1)), after(1));
        assert_eq!(questions.asked(file(1), after(3)), now);
        assert_eq!(questions.asked(file(1), after(6)), now, "it was asked meanwhile");
        assert_eq!(questions.asked(file(2), after(6)), after(6), "nobody had come back for it");
        assert_eq!(questions.asked(file(1), after(10)), after(10));
        for inode in 0..2 * QUESTIONS as u64 {
            assert_eq!(questions.asked(file(inode), after(20)), after(20));
        }
        assert_eq!(questions.of_files.len(), QUESTIONS);
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
