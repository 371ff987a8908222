//! Unix: the name and the clock of the machine. `pidlockfile` knows about processes.

use std::ffi::OsString;
use std::time::Duration;

/// The machine's name.
pub(crate) fn host_name() -> Option<OsString> {
    nix::unistd::gethostname().ok()
}

/// The clock (since boot) by which start times are told.
#[cfg(target_os = "linux")]
pub(crate) fn since_clock_began() -> Option<Duration> {
    use nix::time::{ClockId, clock_gettime};

    clock_gettime(ClockId::CLOCK_BOOTTIME).ok().map(Duration::from)
}

/// No start times are told.
#[cfg(not(target_os = "linux"))]
pub(crate) fn since_clock_began() -> Option<Duration> {
    None
}
