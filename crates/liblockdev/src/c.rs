//! The interface that C programs link: `lockdev.h` and `ttylock.h`.
//!
//! Names and results are those of the old library: 0, or the process that has the device, or -1
//! with errno. All of them may be called by several threads at once.

#![expect(unsafe_code, reason = "the C interface")]

use std::ffi::{CStr, c_char, c_int};
use std::io::Write;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

use lfp::Pid;
use libc::pid_t;

use crate::{CallResult, Failure};

/// The process to lock for, if it is not the caller.
static OTHER: AtomicI32 = AtomicI32::new(0);

/// How much is said on standard error.
static DEBUG: AtomicI32 = AtomicI32::new(0);

/// How often ttywait looks.
const PAUSE: Duration = Duration::from_secs(1);

/// Says more on standard error.
#[unsafe(no_mangle)]
pub extern "C" fn liblockdev_incr_debug() {
    let more = |level: i32| Some(level.saturating_add(1));
    let _ = DEBUG.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
}

/// Says nothing on standard error.
#[unsafe(no_mangle)]
pub extern "C" fn liblockdev_reset_debug() {
    DEBUG.store(0, Ordering::Relaxed);
}

/// The process to lock for: what `dev_setpid` said, or the caller.
#[unsafe(no_mangle)]
pub extern "C" fn dev_getpid() -> pid_t {
    locker().as_raw()
}

/// Locks for another process from now on; 0: for the caller. Gives what was said before.
#[unsafe(no_mangle)]
pub extern "C" fn dev_setpid(pid: pid_t) -> pid_t {
    OTHER.swap(pid, Ordering::Relaxed)
}

/// The process that has the device: 0 for none.
///
/// # Safety
/// `device` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dev_testlock(device: *const c_char) -> pid_t {
    // SAFETY: the caller's promise.
    unsafe { called("dev_testlock", device, crate::test) }
}

/// Takes the device for this process.
///
/// # Safety
/// `device` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dev_lock(device: *const c_char) -> pid_t {
    // SAFETY: the caller's promise.
    unsafe { called("dev_lock", device, |name| crate::lock(name, locker())) }
}

/// Hands the lock of `old`, or with 0 of any process, to this process.
///
/// # Safety
/// `device` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dev_relock(device: *const c_char, old: pid_t) -> pid_t {
    // SAFETY: the caller's promise.
    unsafe { called("dev_relock", device, |name| crate::relock(name, named(old)?, locker())) }
}

/// Releases the device for `pid`, or with 0 for any process.
///
/// # Safety
/// `device` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dev_unlock(device: *const c_char, pid: pid_t) -> pid_t {
    // SAFETY: the caller's promise.
    unsafe { called("dev_unlock", device, |name| crate::unlock(name, named(pid)?)) }
}

/// AIX's name for taking a device: 0 or -1.
///
/// # Safety
/// `device` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttylock(device: *mut c_char) -> c_int {
    // SAFETY: the caller's promise.
    if unsafe { dev_lock(device) } == 0 { 0 } else { -1 }
}

/// AIX's name for releasing a device for any process: 0 or -1.
///
/// # Safety
/// `device` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttyunlock(device: *mut c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { dev_unlock(device, 0) }
}

/// AIX's question whether a device is free: 0, or -1 when it is not.
///
/// # Safety
/// `device` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttylocked(device: *mut c_char) -> c_int {
    // SAFETY: the caller's promise.
    if unsafe { dev_testlock(device) } == 0 { 0 } else { -1 }
}

/// Waits until a device is free: 0, or -1 when that cannot be learned. Somebody else may have it
/// again by then.
///
/// # Safety
/// `device` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttywait(device: *mut c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { called("ttywait", device, wait) }
}

/// What lockdev(8) does for the process that starts it, for programs that were compiled to start it: 0,
/// 1 when another process has the device, or a negative number of errno(3).
///
/// # Safety
/// `device` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttylock_helper(device: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { helped(device, |name| crate::lock(name, Pid::this())) }
}

/// What `lockdev -u` does for the process that starts it: the same results.
///
/// # Safety
/// `device` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttyunlock_helper(device: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { helped(device, |name| crate::unlock(name, Some(Pid::this()))) }
}

/// What `lockdev` does without an option: the same results; 0 means that nobody has the device.
///
/// # Safety
/// `device` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttylocked_helper(device: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { helped(device, crate::test) }
}

/// Waits until nobody has the device.
///
/// # Safety
/// `device` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttywait_helper(device: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { helped(device, wait) }
}

/// Waits until nobody has the device, or until that cannot be learned.
fn wait(device: &[u8]) -> CallResult {
    loop {
        match crate::test(device) {
            Ok(Some(_)) | Err(Failure::Busy) => thread::sleep(PAUSE),
            free_or_unknown => return free_or_unknown,
        }
    }
}

/// # Safety
/// `device` is null or a C string.
unsafe fn helped(device: *const c_char, call: impl FnOnce(&[u8]) -> CallResult) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { text(device) }.ok_or(NO_TEXT).and_then(call) {
        Ok(None) => 0,
        Ok(Some(_)) | Err(Failure::Busy) => 1,
        Err(failure) => failure.errno().checked_neg().unwrap_or(-1),
    }
}

/// The failure of a call with a null pointer.
const NO_TEXT: Failure = Failure::Number(libc::EFAULT);

/// `None` for a null pointer.
///
/// # Safety
/// `device` is null or a C string that lives as long as the call.
unsafe fn text<'a>(device: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: not null, and the caller's promise.
    (!device.is_null()).then(|| unsafe { CStr::from_ptr(device) }.to_bytes())
}

fn locker() -> Pid {
    Pid::new(OTHER.load(Ordering::Relaxed).into()).unwrap_or_else(Pid::this)
}

/// A process that a caller names; 0 is none.
fn named(pid: pid_t) -> Result<Option<Pid>, Failure> {
    if pid == 0 {
        return Ok(None);
    }
    Pid::new(pid.into()).map(Some).ok_or(Failure::Number(libc::EINVAL))
}

/// # Safety
/// `device` is null or a C string.
unsafe fn called(
    name: &str,
    device: *const c_char,
    call: impl FnOnce(&[u8]) -> CallResult,
) -> pid_t {
    // SAFETY: the caller's promise.
    let device = unsafe { text(device) };
    let answer = device.ok_or(NO_TEXT).and_then(call);
    if DEBUG.load(Ordering::Relaxed) > 0 {
        let device = device.unwrap_or_default().escape_ascii();
        let _ = writeln!(std::io::stderr(), "liblockdev: {name}({device}): {answer:?}");
    }
    match answer {
        Ok(holder) => holder.map_or(0, Pid::as_raw),
        Err(failure) => {
            // SAFETY: the location is valid for as long as the thread, which is running this.
            unsafe { *libc::__errno_location() = failure.errno() };
            -1
        }
    }
}
