//! A lock of our own behind all others in the kernel's list, for a long-lived process: a reading that contains it
//! contains all locks in front of it.
//!
//! The kernel keeps its list by processors, and puts a new lock in front of those of the processor that takes it. So
//! behind a lock that the last processor took, there are only older locks. These are known from the time when it was
//! taken, and only become fewer. (Source: `locks_start` in the kernel's fs/locks.c, and what it calls to add a lock
//! to its list.)

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::thread;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use rustix::fs::{FlockOperation, MemfdFlags, flock, memfd_create};

use super::kernel_list::{Completeness, Listing, place_of};
use crate::device::node::Node;

/// The processors that the machine has or may get. Source: cputopology.rst of the kernel.
const PROCESSORS: &str = "/sys/devices/system/cpu/possible";

/// How often the earlier locks are read. One reading might miss a lock if another user provokes that.
const READINGS: usize = 8;

/// A lock that is held as long as this value exists.
#[derive(Debug)]
pub(super) struct LastLock {
    _held: File,
    /// Its line in the list, without the number at the start.
    line: String,
    /// The nodes that may have locks behind it.
    older: HashSet<String>,
}

impl LastLock {
    /// Takes the lock; `read` reads the list of all locks. `None` if this process may not run on the last processor,
    /// or the list is not whole.
    pub(super) fn take(mut read: impl FnMut() -> io::Result<Listing>) -> Option<Self> {
        let processor = last_processor(&fs::read_to_string(PROCESSORS).ok()?)?;
        let held = thread::spawn(move || taken_on(processor)).join().ok()??;
        let own = place_of(&Node::of(&held.metadata().ok()?));
        let (mut line, mut older) = (None, HashSet::new());
        for _ in 0..READINGS {
            let listing = read().ok().filter(|it| it.completeness == Completeness::Whole)?;
            let locks = listing.text.lines().filter_map(|line| Some(line.split_once(": ")?.1));
            for lock in locks {
                match lock.split_ascii_whitespace().nth(4) {
                    Some(place) if place == own => line = Some(lock.to_owned()),
                    Some(place) => drop(older.insert(place.to_owned())),
                    None => {}
                }
            }
        }
        Some(Self { _held: held, line: line?, older })
    }

    /// Its line, if it is behind all locks of these nodes.
    pub(super) fn behind_all(&self, places: &HashSet<String>) -> Option<&str> {
        self.older.is_disjoint(places).then_some(&self.line)
    }
}

fn taken_on(processor: usize) -> Option<File> {
    let mut only = CpuSet::new();
    only.set(processor).ok()?;
    sched_setaffinity(Pid::from_raw(0), &only).ok()?;
    let file = File::from(memfd_create("lfpd-last", MemfdFlags::CLOEXEC).ok()?);
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(file)
}

/// The highest number of a list such as `0-3,8`.
fn last_processor(list: &str) -> Option<usize> {
    list.trim_end().rsplit([',', '-']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::one("0\n", Some(0))]
    #[case::some("0-3\n", Some(3))]
    #[case::gaps("0-3,8\n", Some(8))]
    #[case::nothing("\n", None)]
    fn processors_are_listed(#[case] list: &str, #[case] last: Option<usize>) {
        assert_eq!(last_processor(list), last);
    }

    fn listing(completeness: Completeness) -> Listing {
        let text = fs::read_to_string("/proc/locks").unwrap();
        let lines = text.lines().filter(|line| line.contains(": FLOCK "));
        Listing { text: lines.map(|line| format!("{line}\n")).collect(), completeness }
    }

    /// A later lock stands in front of it, whichever processor takes it.
    #[test]
    fn locks_taken_after_the_last_lock_are_listed_before_it() {
        let Some(last) = LastLock::take(|| Ok(listing(Completeness::Whole))) else {
            // If /sys is not mounted, as during the build of a package, the last processor is unknown.
            let processor = fs::read_to_string(PROCESSORS).ok().and_then(|it| last_processor(&it));
            assert!(processor.and_then(taken_on).is_none(), "it could have been taken");
            return;
        };
        let processors = 0..=last_processor(&fs::read_to_string(PROCESSORS).unwrap()).unwrap();
        let later: Vec<File> = processors
            .filter_map(|processor| thread::spawn(move || taken_on(processor)).join().unwrap())
            .collect();
        assert!(!later.is_empty());
        let places: HashSet<String> =
            later.iter().map(|file| place_of(&Node::of(&file.metadata().unwrap()))).collect();
        let line = last.behind_all(&places).expect("it was there before");
        let text = fs::read_to_string("/proc/locks").unwrap();
        let (before, _) = text.split_once(line).expect("it is held");
        assert!(places.iter().all(|place| before.contains(place.as_str())), "{text}");
        assert_eq!(
            last.behind_all(&last.older.iter().take(1).cloned().collect()).is_none(),
            !last.older.is_empty()
        );
    }

    #[test]
    fn without_a_whole_list_there_is_no_last_lock() {
        assert!(LastLock::take(|| Ok(listing(Completeness::Partial(None)))).is_none());
        assert!(
            LastLock::take(|| Ok(Listing {
                completeness: Completeness::Whole,
                ..Listing::default()
            }))
            .is_none()
        );
    }
}
