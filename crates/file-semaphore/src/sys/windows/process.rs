//! Windows: what `pidlockfile` sees of processes.

use std::ffi::OsString;
use std::time::{Duration, SystemTime};

use pidlockfile::Pid;
use pidlockfile::process::{Liveness, liveness, start_time};
use winapi_util::sysinfo::{ComputerNameKind, get_computer_name};

use crate::stale::ClockShift;

/// What is seen of a process number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// There is no such process, or it has ended.
    Gone,
    /// It lives, as far as Windows tells.
    Alive {
        /// When it began, where that may be seen.
        start_ticks: Option<u64>,
    },
}

/// Looks at a process. "Access denied" means that it lives.
pub(crate) fn look(pid: Pid) -> Seen {
    match liveness(pid) {
        Liveness::Gone => Seen::Gone,
        Liveness::Alive => Seen::Alive { start_ticks: start_time(pid) },
    }
}

/// What is seen of a holder of a pid namespace of another system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(dead_code, reason = "other systems see more")]
pub(crate) enum Abroad {
    Alive,
    Gone,
    /// Nothing.
    Unseen,
}

/// A process as another system knows it.
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "other systems look for it")]
pub(crate) struct Foreigner {
    pub(crate) number: u64,
    pub(crate) pidns: u64,
    pub(crate) start: u64,
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
