//! How often the service checks what no event reports. Pure.

use std::time::Duration;

/// Interval of checks that no event causes: for the waiters of a device (the end of a `flock(2)` is no event), for ended
/// holders that the kernel does not report, for lock directories that came during a session of one client, and for new
/// connections after the system had no descriptor or memory left.
pub(super) const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The shortest time between two attempts for the waiters of a device. Events within it cause one attempt.
pub(super) const CHECK_GAP: Duration = Duration::from_millis(10);
