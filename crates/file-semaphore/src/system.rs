//! What the running system says of processes and of itself. Decides nothing.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use nix::unistd::SysconfVar;
use pidlockfile::Pid;
use pidlockfile::process::{Liveness, boot_id, liveness, pid_namespace, start_time};

use crate::limits::LONGEST_WORD;
use crate::record::{Holder, one_line};
use crate::stale::{Here, Process, Standing};

impl Here {
    /// Looks where this process runs: `/proc/sys/kernel/random/boot_id`, `/proc/self/ns/pid` and
    /// uname(2). Without `/proc` locks can still be taken, only less can be told of them.
    #[must_use]
    pub fn look() -> Self {
        let host = nix::unistd::gethostname().ok();
        let host = host.and_then(|name| one_line(&name.to_string_lossy(), LONGEST_WORD));
        Self { boot: boot_id(), pidns: pid_namespace(), host }
    }
}

impl Holder {
    /// Describes a process of this pid namespace, as exactly as the system allows. `None` when
    /// there is no such process.
    #[must_use]
    pub fn of(pid: Pid, here: &Here) -> Option<Self> {
        if liveness(pid) == Liveness::Gone {
            return None;
        }
        let start = start_time(pid);
        let Here { boot, pidns, host } = here.clone();
        Some(Self { pid: number(pid), start, boot, pidns, host })
    }

    /// What is known of this holder now.
    #[must_use]
    pub fn standing(&self, here: &Here) -> Standing {
        Standing::of(self, here, self.process())
    }

    /// What the kernel says of the holder's number. A number no process can have is gone.
    fn process(&self) -> Process {
        let pid = i64::try_from(self.pid()).ok().and_then(Pid::new);
        let Some(pid) = pid else { return Process::Gone };
        match liveness(pid) {
            Liveness::Gone => Process::Gone,
            Liveness::Alive => Process::Alive { start: start_time(pid) },
        }
    }
}

/// A process number as lock files write it.
pub(crate) fn number(pid: Pid) -> u64 {
    u64::from(pid.as_raw().unsigned_abs())
}

/// How long ago a process started, from its start time in clock ticks since boot.
pub(crate) fn time_since(start_ticks: u64) -> Option<Duration> {
    let per_second = nix::unistd::sysconf(SysconfVar::CLK_TCK).ok()??;
    let per_second = u64::try_from(per_second).ok().filter(|ticks| *ticks > 0)?;
    let start = Duration::from_millis(start_ticks.checked_mul(1000)? / per_second);
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).ok()?;
    Duration::from(now).checked_sub(start)
}

/// Seconds since 1970; a clock before that stands at zero.
pub(crate) fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn this_process_is_known_exactly_and_lives() {
        let here = Here::look();
        let holder = Holder::of(Pid::this(), &here).unwrap();
        assert_eq!(holder.pid(), u64::from(std::process::id()));
        assert!(holder.start().is_some() && holder.boot().is_some() && holder.pidns().is_some());
        assert_eq!(holder.standing(&here), Standing::Alive);
    }

    #[test]
    fn a_process_that_is_gone_cannot_be_described() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::new(i64::from(child.id())).unwrap();
        child.wait().unwrap();
        assert_eq!(Holder::of(pid, &Here::look()), None);
    }

    #[test]
    fn a_process_has_an_age() {
        let start = start_time(Pid::this()).unwrap();
        let age = time_since(start).unwrap();
        assert!(age < Duration::from_secs(3600), "this test just began: {age:?}");
        assert_eq!(time_since(u64::MAX), None);
    }

    #[rstest]
    #[case::zero(0)]
    #[case::beyond_any_pid(5_000_000_000)]
    #[case::largest(u64::MAX)]
    fn a_number_no_process_can_have_is_free(#[case] pid: u64) {
        assert_eq!(Holder::bare(pid).standing(&Here::look()), Standing::NumberFree);
    }
}
