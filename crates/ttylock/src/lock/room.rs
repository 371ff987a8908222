//! Makes the kernel return more of its locks at a time.
//!
//! The kernel prints a lock and all its waiters in one piece, and if they do not fit, its buffer grows. The buffer
//! stays large as long as the list is open. (Source: `seq_read_iter` and `traverse` in the kernel's fs/seq_file.c,
//! fs/locks.c.) So five hundred threads wait for a lock of our own, on a file that no other process can open, while
//! the list is read once. They also wait for one another, and each is printed one column further to the right, so
//! together they take tens of thousands of bytes. (Linux before 5.13 prints only the first waiter. Then the buffer
//! does not grow, and nothing else changes.)
//!
//! It pays if the list is long: for each piece, the kernel counts through all locks before it, and between two pieces
//! locks change their positions. 27,000 locks, of which 5,000 come and go, take 180 to 270 ms in pages, and 15 to 50
//! ms in pieces of 256 KiB, of which each takes about 3 ms.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::mpsc;
use std::thread;

use rustix::fs::{FlockOperation, MemfdFlags, flock, memfd_create};
use rustix::process::{Resource, getrlimit};

/// The number of waiting threads: they take more than half of [`WIDE_BYTES`](super::kernel_list::WIDE_BYTES), with a
/// tenth of them to spare.
const WAITERS: usize = 512;

/// Fewer waiters than this fit into a page.
const WAITERS_LEAST: usize = 64;

/// Each thread needs a descriptor for that moment: at most one part in this many of those allowed.
const DESCRIPTOR_SHARE: usize = 4;

/// The size of a thread's stack in bytes: the thread makes one system call.
const STACK: usize = 16 << 10;

/// A position beyond the end of any list.
const FAR: u64 = 1 << 40;

/// Makes the buffers of these openings grow, as far as threads and descriptors allow. The next reads show whether
/// they did.
///
/// # Errors
/// An error of the system, for the lists or the lock that is waited for.
pub(super) fn widen<'f>(lists: impl IntoIterator<Item = &'f File>) -> io::Result<()> {
    let file = File::from(memfd_create("lfpd-locks", MemfdFlags::CLOEXEC)?);
    let held = again(&file)?;
    flock(&held, FlockOperation::NonBlockingLockExclusive)?;
    if wait_for(&file, waiters_allowed()) < WAITERS_LEAST {
        return Ok(());
    }
    lists.into_iter().try_for_each(|list| list.read_at(&mut [0], FAR).map(drop))
    // The lock is released here. The threads take it one after the other, and end.
}

/// Starts threads that wait for the lock on this file, or will in a moment. Returns how many could be started.
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

/// Opens the file once more, because a lock belongs to an opening.
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

    /// More locks than fit into a page.
    const LOCKS: usize = 300;

    /// The waiting threads may come a moment late, so it may take more than one try.
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

    /// The number of threads of this process that wait.
    fn waiting() -> usize {
        let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let names = threads.filter_map(|it| std::fs::read_to_string(it.path().join("comm")).ok());
        names.filter(|name| name == "lfpd-waits\n").count()
    }
}
