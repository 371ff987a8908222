//! Windows: the name and the clock of the machine.

use std::ffi::OsString;
use std::time::{Duration, SystemTime};

use winapi_util::sysinfo::{ComputerNameKind, get_computer_name};

/// The machine's name.
pub(crate) fn host_name() -> Option<OsString> {
    get_computer_name(ComputerNameKind::PhysicalDnsHostname).ok()
}

/// The time since 1601, from which start times are counted.
pub(crate) fn since_clock_began() -> Option<Duration> {
    const TO_1970: Duration = Duration::from_secs(11_644_473_600);
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?.checked_add(TO_1970)
}
