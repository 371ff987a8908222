//! Makes the kernel return more of its locks at a time.
//!
//! The kernel prints a lock and all its waiters in one piece, and if they do not fit, its buffer grows. The buffer
//! stays large as long as the list is open. (Source: `seq_read_iter` in the kernel's fs/seq_file.c, fs/locks.c.) So
//! hundreds of threads wait for a lock of our own, on a file that no other process can open, while the list is read
//! once. They also wait for one another, and each is printed one column further to the right: n of them take more than
//! n²/2 bytes. (Linux before 5.13 prints only the first waiter. Then the buffer does not grow, and nothing else
//! changes.)

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use rustix::fs::{FlockOperation, MemfdFlags, flock, memfd_create};
use rustix::process::{Resource, getrlimit};

use super::kernel_list::place_of;
use crate::device::node::Node;

/// A page, the size of the kernel's buffer at first.
pub(crate) const PAGE_BYTES: usize = 4096;

/// The size of the kernel's buffer after it was made to grow once, twice and three times: enough for about 3,000, 28,000
/// and 110,000 locks.
pub const ROOMS: [usize; 3] = [256 << 10, 2 << 20, 8 << 20];

/// The numbers of waiting threads for that: they take more than half of the room, with some of them to spare.
const WAITERS: [usize; 3] = [512, 1448, 2896];

/// Fewer waiters than this fit into a page.
const WAITERS_LEAST: usize = 64;

/// Each thread needs a descriptor for that moment: at most one part in this many of those allowed.
const DESCRIPTOR_SHARE: usize = 2;

/// The size of a thread's stack in bytes: the thread makes one system call.
const STACK: usize = 16 << 10;

/// A position beyond the end of any list.
const FAR: u64 = 1 << 40;

/// How often the list is read for threads that come late.
const TRIES: usize = 8;

/// Makes the buffer of this opening grow from that size, as far as threads and descriptors allow. Returns its size
/// then.
///
/// # Errors
/// An error of the system, for the list or the lock that is waited for.
pub fn widen(list: &File, before: usize) -> io::Result<usize> {
    let next = ROOMS.into_iter().zip(WAITERS).find(|(room, _)| *room > before);
    let Some((room, waiters)) = next else { return Ok(before) };
    let file = File::from(memfd_create("lfpd-locks", MemfdFlags::CLOEXEC)?);
    let held = again(&file)?;
    flock(&held, FlockOperation::NonBlockingLockExclusive)?;
    let threads = wait_for(&file, waiters.min(descriptors() / DESCRIPTOR_SHARE));
    let place = format!(" {} ", place_of(&Node::of(&file.metadata()?)));
    let mut seen = Ok(before);
    if threads.len() >= WAITERS_LEAST {
        for _ in 0..TRIES {
            seen = room_for(list, &place, room).map(|seen| seen.max(before));
            if !seen.as_ref().is_ok_and(|seen| *seen < room) {
                break;
            }
            thread::yield_now();
        }
    }
    // The threads take the lock one after the other, and end.
    drop(held);
    threads.into_iter().for_each(|thread| drop(thread.join()));
    seen
}

/// Makes the kernel's buffer grow for the longest lock of the list, and reads up to the lock at this place, to see that
/// there is room for all lines that are about it.
fn room_for(list: &File, place: &str, most: usize) -> io::Result<usize> {
    // On the way to that position, the kernel prints every lock.
    list.read_at(&mut [0], FAR)?;
    let (mut buffer, mut position) = (vec![0; most], 0_u64);
    loop {
        let length = list.read_at(&mut buffer, position)?;
        let piece = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default());
        let own = piece.lines().filter(|line| line.contains(place));
        let own: usize = own.map(|line| line.len().saturating_add(1)).sum();
        if own > 0 || length == 0 {
            // Source: `seq_has_overflowed`: a piece is shorter than the kernel's buffer.
            return Ok(own.saturating_add(1).next_power_of_two());
        }
        position = position.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
    }
}

/// Starts threads that wait for the lock on this file, or will in a moment: as many as can be started.
fn wait_for(file: &File, most: usize) -> Vec<JoinHandle<()>> {
    let (comes, came) = mpsc::channel();
    let start = || {
        let (own, comes) = (again(file).ok()?, comes.clone());
        let wait = move || {
            let _ = comes.send(());
            drop(comes);
            let _ = flock(&own, FlockOperation::LockExclusive);
        };
        let name = "lfpd-waits".to_owned();
        thread::Builder::new().name(name).stack_size(STACK).spawn(wait).ok()
    };
    let threads: Vec<_> = (0..most).map_while(|_| start()).collect();
    drop(comes);
    came.iter().for_each(drop);
    threads
}

/// Opens the file once more, because a lock belongs to an opening.
fn again(file: &File) -> io::Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn descriptors() -> usize {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(most).unwrap_or(usize::MAX)
}
