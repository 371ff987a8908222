//! A pseudo-terminal for one test alone.

use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;

use nix::fcntl::OFlag;
use nix::pty::{OpenptyResult, grantpt, posix_openpt, ptsname_r, unlockpt};

/// Like `openpty(3)`, but both ends are closed at exec: otherwise a program that another test starts at this
/// moment inherits them.
///
/// # Panics
/// There is none to be had.
#[must_use]
pub fn pseudo_terminal() -> OpenptyResult {
    let how = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let master = posix_openpt(how).expect("a pseudo-terminal");
    grantpt(&master).expect("the right to its other end");
    unlockpt(&master).expect("its other end");
    let name = ptsname_r(&master).expect("its name");
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(OFlag::O_NOCTTY.bits());
    let slave = options.open(name).expect("its other end").into();
    OpenptyResult { master: OwnedFd::from(master), slave }
}
