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
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use rustix::fs::{FlockOperation, MemfdFlags, flock, memfd_create};
use rustix::process::{Resource, getrlimit};

/// The number of waiting threads. Two thirds of them make the buffer grow to 256 KiB, so that some may come late.
const WAITERS: usize = 700;

/// The size of a thread's stack in bytes: the thread makes one system call.
const STACK: usize = 16 << 10;

/// With fewer, the buffer stays smaller.
const LEAST_WAITERS: usize = 480;

/// A read of more than so many bytes shows that the buffer has grown enough: it doubles.
const GROWN_BYTES: usize = 128 << 10;

/// Two calls at a time may need more threads than the service may have.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A position beyond the end of any list.
const FAR: u64 = 1 << 40;

/// Makes the buffer of this opening grow to 256 KiB.
///
/// # Errors
/// The buffer stayed smaller: threads or descriptors are too few, or Linux is too old. Or an error of the system, for the
/// list or the lock that is waited for.
pub fn widen(list: &File) -> io::Result<()> {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let waiters = WAITERS.min(spare()? / 2);
    if waiters < LEAST_WAITERS {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    let file = File::from(memfd_create("lfpd-locks", MemfdFlags::CLOEXEC)?);
    // A lock belongs to an opening.
    let again = || File::open(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let held = again()?;
    flock(&held, FlockOperation::NonBlockingLockExclusive)?;
    let (comes, came) = mpsc::channel();
    let start = || {
        let (own, comes) = (again().ok()?, comes.clone());
        let wait = move || {
            drop(comes);
            let _ = flock(&own, FlockOperation::LockExclusive);
        };
        let name = "lfpd-waits".to_owned();
        thread::Builder::new().name(name).stack_size(STACK).spawn(wait).ok()
    };
    let threads: Vec<_> = (0..waiters).map_while(|_| start()).collect();
    drop(comes);
    // Until each thread is about to wait.
    let _: Result<(), _> = came.recv();
    // On the way to that position, the kernel prints every lock.
    let grown = list.read_at(&mut [0], FAR).and_then(|_| has_grown(list));
    // The threads take the lock one after the other, and end.
    drop(held);
    threads.into_iter().for_each(|thread| drop(thread.join()));
    if grown? { Ok(()) } else { Err(io::ErrorKind::ResourceBusy.into()) }
}

/// Whether one read gives so much, while the list has at least the lock that threads wait for.
fn has_grown(list: &File) -> io::Result<bool> {
    let mut buffer = vec![0; 2 * GROWN_BYTES];
    let mut place = 0;
    loop {
        match list.read_at(&mut buffer, place)? {
            0 => return Ok(false),
            length if length > GROWN_BYTES => return Ok(true),
            length => place = place.saturating_add(u64::try_from(length).unwrap_or(u64::MAX)),
        }
    }
}

/// The number of descriptors that this process may still open. Its other threads need some meanwhile.
fn spare() -> io::Result<usize> {
    let open = std::fs::read_dir("/proc/self/fd")?.count();
    let most = getrlimit(Resource::Nofile).current.and_then(|it| usize::try_from(it).ok());
    Ok(most.map_or(WAITERS * 2, |most| most.saturating_sub(open)))
}
