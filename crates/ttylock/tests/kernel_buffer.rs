//! The kernel's buffer for its list of locks grows. Alone in its program: the locks for it make the list of other tests
//! longer.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, MemfdFlags, flock, memfd_create};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use ttylock::for_tests::widen;

/// More locks than fit into [`WIDE_BYTES`].
const LOCKS: usize = 3000;

/// The kernel tells less at once before [`widen`]: a page, or more if many wait for a lock of another program.
const WIDE_BYTES: usize = 128 << 10;

#[test]
fn the_kernel_tells_more_at_once_and_nobody_waits_afterwards() {
    // Each of the locks takes a descriptor, and each waiting thread two.
    let all = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: all.maximum, ..all }).unwrap();
    let file = File::from(memfd_create("locks", MemfdFlags::CLOEXEC).unwrap());
    let again = || File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    let locks: Vec<File> = (0..LOCKS).map(|_| again()).collect();
    for lock in &locks {
        flock(lock, FlockOperation::NonBlockingLockShared).unwrap();
    }
    let list = File::open("/proc/locks").unwrap();
    let mut buffer = vec![0; 1 << 20];
    let mut told = || list.read_at(&mut buffer, 0).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    // Another run of this test may have made it wide for a moment.
    while told() >= WIDE_BYTES {
        assert!(Instant::now() < end, "it stays wide");
        std::thread::yield_now();
    }
    widen(&list).unwrap();
    let length = told();
    assert!(length > WIDE_BYTES, "{length}");
    while waiting() > 0 {
        assert!(Instant::now() < end, "{} wait", waiting());
        std::thread::yield_now();
    }
}

/// The number of threads of this process that wait.
fn waiting() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = threads.filter_map(|it| std::fs::read_to_string(it.path().join("comm")).ok());
    names.filter(|name| name == "lfpd-waits\n").count()
}
