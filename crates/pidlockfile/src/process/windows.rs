//! Windows: by handle. A process number is used again once the last handle of its process is closed.

use std::fmt;

use winsafe::guard::CloseHandleGuard;
use winsafe::prelude::*;
use winsafe::{HPROCESS, HPROCESSLIST, co};

use super::{Liveness, Pid};

/// What stands for Windows where lock files of Unix name a pid namespace: no such number on Linux, whose
/// namespaces are counted from 0xF0000000, so that who reads a lock from there (a Linux beside it on the same
/// machine) knows that its numbers are not his.
pub const WINDOWS_NAMESPACE: u64 = 0x0057_494E;

/// A handle that shows whether the process has ended, and when it began. `Err(Gone)`: there is none;
/// `Err(Alive)`: there is one, and it may not be seen.
fn open(pid: Pid) -> Result<CloseHandleGuard<HPROCESS>, Liveness> {
    let access = co::PROCESS::QUERY_LIMITED_INFORMATION | co::PROCESS::SYNCHRONIZE;
    let number = pid.0.unsigned_abs();
    match HPROCESS::OpenProcess(access, false, number) {
        // Numbers are multiples of four, and the last two bits are not looked at.
        Ok(process) if process.GetProcessId().is_ok_and(|seen| seen != number) => {
            Err(Liveness::Gone)
        }
        Ok(process) => Ok(process),
        Err(co::ERROR::INVALID_PARAMETER) => Err(Liveness::Gone),
        Err(_) => Err(Liveness::Alive),
    }
}

/// A process whose handle somebody has is there still when it has ended.
fn has_ended(process: &HPROCESS) -> bool {
    process.WaitForSingleObject(Some(0)) == Ok(co::WAIT::OBJECT_0)
}

/// Asks Windows whether a process exists and has not ended. "Access denied" means that it does.
#[must_use]
pub fn liveness(pid: Pid) -> Liveness {
    match open(pid) {
        Ok(process) if has_ended(&process) => Liveness::Gone,
        Ok(_) => Liveness::Alive,
        Err(seen) => seen,
    }
}

/// When a process began, in tenths of microseconds since 1601: with the pid it names one process for ever.
/// `None` when there is no such process, or it may not be seen.
#[must_use]
pub fn start_time(pid: Pid) -> Option<u64> {
    open(pid).ok().and_then(|process| began(&process))
}

fn began(process: &HPROCESS) -> Option<u64> {
    let (began, ..) = process.GetProcessTimes().ok()?;
    Some(u64::from(began.dwHighDateTime) << 32 | u64::from(began.dwLowDateTime))
}

/// A handle: while it is kept, nobody else has the process's number.
pub(super) struct Shown(CloseHandleGuard<HPROCESS>);

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shown")
    }
}

impl Shown {
    /// With when it began.
    pub(super) fn of(pid: Pid) -> Option<(Self, u64)> {
        let process = open(pid).ok().filter(|process| !has_ended(process))?;
        let start = began(&process)?;
        Some((Self(process), start))
    }

    pub(super) fn exists(&self) -> bool {
        !has_ended(&self.0)
    }
}

/// None: [`start_time`] is told by a clock that goes on over a boot.
#[must_use]
pub fn boot_id() -> Option<String> {
    None
}

/// [`WINDOWS_NAMESPACE`].
#[must_use]
pub fn pid_namespace() -> Option<u64> {
    Some(WINDOWS_NAMESPACE)
}

/// Users have no uid.
#[must_use]
pub fn owner(_pid: Pid) -> Option<u32> {
    None
}

/// The process that started this one, if it lives: Windows keeps the number of one that has ended, which may
/// be another's by now. That began after this one.
#[must_use]
pub fn parent() -> Option<Pid> {
    let own = std::process::id();
    let mut list = HPROCESSLIST::CreateToolhelp32Snapshot(co::TH32CS::SNAPPROCESS, None).ok()?;
    let mut parent = None;
    for process in list.iter_processes() {
        let process = process.ok()?;
        if process.th32ProcessID == own {
            parent = Pid::new(i64::from(process.th32ParentProcessID));
        }
    }
    let began = |pid| start_time(pid);
    parent.filter(|parent| match (began(*parent), began(Pid::this())) {
        (Some(theirs), Some(ours)) => theirs <= ours && liveness(*parent) == Liveness::Alive,
        _ => false,
    })
}

/// The largest number that a process of this crate can have.
#[must_use]
pub fn largest() -> i32 {
    i32::MAX
}
