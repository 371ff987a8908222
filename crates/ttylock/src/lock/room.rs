//! Makes the kernel tell more of its locks at a time.
//!
//! The kernel tells a lock and all who wait for it in one piece, and what it has no room for makes
//! its room grow. That stays grown as long as the list is open. (Source: `seq_read_iter` and
//! `traverse` in the kernel's fs/seq_file.c, fs/locks.c.) So a lock of our own, on a
//! file that nobody else can open, is waited for by five hundred threads for as long as it takes to
//! have the list told once. They wait for one another as well, and each is told one column
//! further to the right, so all of them take tens of thousands of bytes. (Linux before 5.13 tells
//! only of the first one. Then nothing grows, and nothing else changes.)
//!
//! It pays where the list is long: for each piece the kernel counts through all locks that were told
//! before, and between two pieces locks slide. 27,000 locks, of which 5,000 come and go, take 180 to
//! 270 ms in pages and 15 to 50 ms in pieces of 256 KiB, each of them told in about 3 ms.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::mpsc;
use std::thread;

use rustix::fs::{FlockOperation, MemfdFlags, flock, memfd_create};
use rustix::process::{Resource, getrlimit};

/// So many wait: they are told in more than half of [`WIDE_BYTES`](super::kernel_list::WIDE_BYTES), with a
/// tenth of them to spare.
const WAITERS: usize = 512;

/// Fewer than these are told in a page.
const WAITERS_LEAST: usize = 64;

/// Each of them has a descriptor for that moment; the rest of those allowed are for others.
const DESCRIPTOR_SHARE: usize = 4;

/// Bytes of a waiter's stack: it makes one system call.
const STACK: usize = 16 << 10;

/// Beyond the end of any list.
const FAR: u64 = 1 << 40;

/// Has the room of these openings grow, as far as threads and descriptors allow. Whether it did is seen
/// by what is told then.
///
/// # Errors
/// The system's, for the lists or the lock that is waited for.
pub(super) fn widen<'f>(lists: impl IntoIterator<Item = &'f File>) -> io::Result<()> {
    let file = File::from(memfd_create("lfpd-locks", MemfdFlags::CLOEXEC)?);
    let held = again(&file)?;
    flock(&held, FlockOperation::NonBlockingLockExclusive)?;
    if wait_for(&file, waiters_allowed()) < WAITERS_LEAST {
        return Ok(());
    }
    lists.into_iter().try_for_each(|list| list.read_at(&mut [0], FAR).map(drop))
    // Here the lock goes. The threads take it one after the other, and end.
}

/// Threads that wait for the lock on this file, or will in a moment: how many could be had.
fn wait_for(file: &File, most: usize) -> usize {
    let (comes, came) = mpsc::channel();
    for _ in 0..most {
        let Ok(own) = again(file) else { break };
        let comes = comes.clone();
        let wait = move || {
            let _ = comes.send(());
            drop(comes);
            let _ = flock(&own, FlockOperation::LockExclusive);
        };
        let name = "lfpd-waits".to_owned();
        if thread::Builder::new().name(name).stack_size(STACK).spawn(wait).is_err() {
            break;
        }
    }
    drop(comes);
    came.iter().count()
}

/// The file opened once more: a lock belongs to an opening.
fn again(file: &File) -> io::Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn waiters_allowed() -> usize {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (usize::try_from(most).unwrap_or(usize::MAX) / DESCRIPTOR_SHARE).min(WAITERS)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::lock::kernel_list::WIDE_BYTES;

    /// More locks than the kernel tells in a page.
    const LOCKS: usize = 300;

    /// As they may come a moment late who are to wait, it may take more than one try.
    #[test]
    fn the_kernel_tells_more_at_once_and_nobody_waits_for_long() {
        let file = File::from(memfd_create("locks", MemfdFlags::CLOEXEC).unwrap());
        let locks: Vec<File> = (0..LOCKS).map(|_| again(&file).unwrap()).collect();
        for lock in &locks {
            flock(lock, FlockOperation::NonBlockingLockShared).unwrap();
        }
        let lists = [(); 2].map(|()| File::open("/proc/locks").unwrap());
        let mut room = vec![0; WIDE_BYTES];
        let mut told = |list: &File| list.read_at(&mut room, 0).unwrap();
        assert!(lists.iter().all(|list| told(list) <= 4096));
        let begin = Instant::now();
        while !lists.iter().all(|list| told(list) > 8192) {
            widen(&lists).unwrap();
            assert!(begin.elapsed() < Duration::from_secs(60), "{}", told(&lists[0]));
        }
        while waiting() > 0 {
            assert!(begin.elapsed() < Duration::from_secs(60), "{} wait", waiting());
            thread::yield_now();
        }
    }

    /// Threads of this process that have been told to wait.
    fn waiting() -> usize {
        let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let names = threads.filter_map(|it| std::fs::read_to_string(it.path().join("comm")).ok());
        names.filter(|name| name == "lfpd-waits\n").count()
    }
}
