//! flock(2) on open files, without waiting. The kernel lets go of it when the last descriptor of
//! the opening is closed, however its process ends.

use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::fcntl::FlockArg;

/// Keeps all others from `flock(2)` on this file while this opening of it lasts. Whether that
/// succeeded: not if another has it, nor where the file system knows no such locks.
pub(crate) fn exclude(file: &impl AsRawFd) -> bool {
    lock(file, FlockArg::LockExclusiveNonblock) == Ok(())
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
