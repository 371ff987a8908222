//! flock(2) on open files. The kernel releases it when the last descriptor of the open file is closed,
//! however the process ends.

use std::os::fd::AsFd;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// Keeps all others from `flock(2)` on this file while this opening of it lasts. Whether that
/// succeeded: not if another has it, nor where the file system knows no such locks.
pub(crate) fn flock_exclusively(file: &impl AsFd) -> bool {
    lock(file, FlockOperation::NonBlockingLockExclusive) == Ok(())
}

/// Whether nobody has excluded others from this file. Does not exclude others that ask the same.
pub(crate) fn is_flock_free(file: &impl AsFd) -> bool {
    let free = lock(file, FlockOperation::NonBlockingLockShared);
    if free == Ok(()) {
        release_flock(file);
    }
    free != Err(Errno::WOULDBLOCK)
}

/// Waits until nobody excludes others from this file. Whether that could be found out: only the
/// end of the process that excludes others, or of this one, ends the wait.
pub(crate) fn wait_until_flock_free(file: &impl AsFd) -> bool {
    let free = lock(file, FlockOperation::LockShared) == Ok(());
    release_flock(file);
    free
}

/// Lets go early.
pub(crate) fn release_flock(file: &impl AsFd) {
    let _ = lock(file, FlockOperation::Unlock);
}

fn lock(file: &impl AsFd, how: FlockOperation) -> Result<(), Errno> {
    rustix::io::retry_on_intr(|| rustix::fs::flock(file, how))
}
