//! Where a lock is taken: at the service, or else in the lock files. One rule for the command and the library.
//!
//! A service that is there is never passed by, even if it is busy, or if its listener cannot be trusted.

use std::path::Path;

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat};
use ttylock::Layout;

/// What to do when surely no service is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WithoutService {
    /// This user may write the lock directory, as all users may on Debian: the lock files are enough.
    LockFiles,
    NoLock,
}

pub(crate) fn without_service(layout: &Layout) -> WithoutService {
    match faccessat(AT_FDCWD, &layout.lock_dir, AccessFlags::W_OK, AtFlags::AT_EACCESS) {
        Ok(()) => WithoutService::LockFiles,
        Err(_) => WithoutService::NoLock,
    }
}

/// The command that starts the service (sd_booted(3) tells whether systemd is there).
pub(crate) fn how_to_start() -> String {
    let command = if Path::new("/run/systemd/system").is_dir() {
        "sudo systemctl enable --now lfpd-unix.socket"
    } else {
        "see EXAMPLES in lfpd(8)"
    };
    format!("to start the service: {command}")
}
