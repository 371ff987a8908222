//! Windows: asks about processes by handle. A process number is used again once the last handle of its
//! process is closed.

use winsafe::guard::CloseHandleGuard;
use winsafe::prelude::*;
use winsafe::{HPROCESS, HPROCESSLIST, co};

use super::{ClockShift, Here, Ids, NoCaller, Pid, ProcessIdentity, Start};

/// What stands for Windows where lock files of Unix name a pid namespace: no such number on Linux, where
/// namespaces are counted from 0xF0000000, so that a reader of a lock from there (a Linux beside it on the same
/// machine) knows that its numbers are not his.
pub const WINDOWS_NAMESPACE: u64 = 0x0057_494E;

/// A handle that shows whether the process has ended, and when it began. Without one, what is seen all the
/// same.
fn open(pid: Pid) -> Result<CloseHandleGuard<HPROCESS>, Start> {
    let access = co::PROCESS::QUERY_LIMITED_INFORMATION | co::PROCESS::SYNCHRONIZE;
    let number = pid.as_raw().unsigned_abs();
    match HPROCESS::OpenProcess(access, false, number) {
        // Numbers are multiples of four, and the last two bits are not looked at.
        Ok(process) if process.GetProcessId().is_ok_and(|seen| seen != number) => {
            Err(Start::Nobody)
        }
        Ok(process) => Ok(process),
        Err(co::ERROR::INVALID_PARAMETER) => Err(Start::Nobody),
        Err(_) => Err(Start::Unknown),
    }
}

/// A process still exists after its end while another process has a handle of it.
fn has_ended(process: &HPROCESS) -> bool {
    process.WaitForSingleObject(Some(0)) == Ok(co::WAIT::OBJECT_0)
}

/// What is seen of a process number. "Access denied" means that it is there. Start times are in tenths of
/// microseconds since 1601.
pub(super) fn look(pid: Pid) -> Start {
    match open(pid) {
        Ok(process) if has_ended(&process) => Start::Nobody,
        Ok(process) => began(&process).map_or(Start::Unknown, Start::At),
        Err(seen) => seen,
    }
}

/// Whether there is a process of this number that has not ended.
#[must_use]
pub fn lives(pid: Pid) -> bool {
    look(pid) != Start::Nobody
}

/// No other system's processes are seen.
pub(super) fn look_abroad(_who: &ProcessIdentity, _here: &Here) -> Option<Start> {
    None
}

/// The same for all processes, and start times go on over a boot.
pub(super) fn here() -> Here {
    Here { boot: None, namespace: Some(WINDOWS_NAMESPACE), shift: ClockShift::default() }
}

/// Start times are tenths of microseconds.
#[expect(clippy::unnecessary_wraps, reason = "other systems may not show it")]
#[must_use]
pub fn ticks_per_second() -> Option<u64> {
    Some(10_000_000)
}

fn began(process: &HPROCESS) -> Option<u64> {
    let (began, ..) = process.GetProcessTimes().ok()?;
    Some(u64::from(began.dwHighDateTime) << 32 | u64::from(began.dwLowDateTime))
}

/// Users have no uid.
#[must_use]
pub fn users(_pid: Pid) -> Option<Ids> {
    None
}

/// Looks at the process that started this one.
///
/// # Errors
/// [`NoCaller::Ended`].
pub fn of_caller<T>(look: impl FnOnce(Pid) -> T) -> Result<T, NoCaller> {
    parent().map(look).ok_or(NoCaller::Ended)
}

/// The process that started this one, if it lives: Windows keeps the number of one that has ended, which may
/// be another's by now. That began after this one.
fn parent() -> Option<Pid> {
    let own = std::process::id();
    let mut list = HPROCESSLIST::CreateToolhelp32Snapshot(co::TH32CS::SNAPPROCESS, None).ok()?;
    let mut parent = None;
    for process in list.iter_processes() {
        let process = process.ok()?;
        if process.th32ProcessID == own {
            parent = Pid::new(i64::from(process.th32ParentProcessID));
        }
    }
    parent.filter(|parent| match (look(*parent), look(Pid::this())) {
        (Start::At(theirs), Start::At(ours)) => theirs <= ours,
        _ => false,
    })
}
