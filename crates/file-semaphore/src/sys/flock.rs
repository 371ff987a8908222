//! flock(2) on open files. The kernel releases it when the last descriptor of the open file is closed,
//! however the process ends.

use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::fcntl::FlockArg;

/// Keeps all others from `flock(2)` on this file while this opening of it lasts. Whether that
/// succeeded: not if another has it, nor where the file system knows no such locks.
pub(crate) fn exclude(file: &impl AsRawFd) -> bool {
    lock(file, FlockArg::LockExclusiveNonblock) == Ok(())
}

/// Whether nobody has excluded others from this file. Does not exclude others that ask the same.
pub(crate) fn is_free(file: &impl AsRawFd) -> bool {
    let free = lock(file, FlockArg::LockSharedNonblock);
    if free == Ok(()) {
        let _ = lock(file, FlockArg::Unlock);
    }
    free != Err(Errno::EWOULDBLOCK)
}

/// Waits until nobody excludes others from this file. Whether that could be found out: only the
/// end of the process that excludes others, or of this one, ends the wait.
pub(crate) fn wait_until_free(file: &impl AsRawFd) -> bool {
    let free = lock(file, FlockArg::LockShared) == Ok(());
    release(file);
    free
}

/// Lets go early.
pub(crate) fn release(file: &impl AsRawFd) {
    let _ = lock(file, FlockArg::Unlock);
}

#[expect(
    deprecated,
    reason = "the guard that replaces it takes the file over, and panics when unlocking fails"
)]
fn lock(file: &impl AsRawFd, how: FlockArg) -> Result<(), Errno> {
    loop {
        match nix::fcntl::flock(file.as_raw_fd(), how) {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}
