//! Windows: what `pidlockfile` sees of processes.

use std::ffi::OsString;
use std::time::{Duration, SystemTime};

use pidlockfile::Pid;
use pidlockfile::process::{Liveness, liveness, start_time};
use winapi_util::sysinfo::{ComputerNameKind, get_computer_name};

use crate::stale::ClockShift;
use crate::sys::{Abroad, Foreigner, Seen};

/// Looks at a process. "Access denied" means that it lives.
pub(crate) fn look(pid: Pid) -> Seen {
    match liveness(pid) {
        Liveness::Gone => Seen::Gone,
        Liveness::Alive => Seen::Alive { start_ticks: start_time(pid) },
    }
}

/// No other system's processes are seen.
pub(crate) fn look_abroad(_who: Foreigner, _shift: ClockShift, _pidns: Option<u64>) -> Abroad {
    Abroad::Unseen
}

/// The machine's name.
pub(crate) fn host_name() -> Option<OsString> {
    get_computer_name(ComputerNameKind::PhysicalDnsHostname).ok()
}

/// All processes have one clock.
pub(crate) fn clock_shift() -> ClockShift {
    ClockShift::default()
}

/// Start times are tenths of microseconds.
#[expect(clippy::unnecessary_wraps, reason = "other systems may not tell")]
pub(crate) fn ticks_per_second() -> Option<u64> {
    Some(10_000_000)
}

/// The time since 1601, from which start times are counted.
pub(crate) fn since_clock_began() -> Option<Duration> {
    const TO_1970: Duration = Duration::from_secs(11_644_473_600);
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?.checked_add(TO_1970)
}
