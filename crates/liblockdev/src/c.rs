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

use crate::device::{self, Errno, Told};

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
    let name = unsafe { text(device) };
    ended("dev_testlock", name, name.ok_or(Errno(libc::EFAULT)).and_then(device::test))
}

/// Takes the device for this process.
///
/// # Safety
/// `device` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dev_lock(device: *const c_char) -> pid_t {
    // SAFETY: the caller's promise.
    let name = unsafe { text(device) };
    let lock = |name: &[u8]| device::lock(name, locker());
    ended("dev_lock", name, name.ok_or(Errno(libc::EFAULT)).and_then(lock))
}

/// Hands the lock of `old`, or with 0 of any process, to this process.
///
/// # Safety
/// `device` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dev_relock(device: *const c_char, old: pid_t) -> pid_t {
    // SAFETY: the caller's promise.
    let name = unsafe { text(device) };
    let relock = |name: &[u8]| device::relock(name, named(old)?, locker());
    ended("dev_relock", name, name.ok_or(Errno(libc::EFAULT)).and_then(relock))
}

/// Releases the device for `pid`, or with 0 for any process.
///
/// # Safety
/// `device` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dev_unlock(device: *const c_char, pid: pid_t) -> pid_t {
    // SAFETY: the caller's promise.
    let name = unsafe { text(device) };
    let unlock = |name: &[u8]| device::unlock(name, named(pid)?);
    ended("dev_unlock", name, name.ok_or(Errno(libc::EFAULT)).and_then(unlock))
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
    let name = unsafe { text(device) };
    loop {
        match name.ok_or(Errno(libc::EFAULT)).and_then(device::test) {
            Ok(Told::HeldBy(_) | Told::Busy) => thread::sleep(PAUSE),
            free_or_unknown => return ended("ttywait", name, free_or_unknown),
        }
    }
}

/// What lockdev(8) does for the process that starts it, for programs that were compiled to start it: 0,
/// 1 when another process has the device, or a negative number of errno(3).
///
/// # Safety
/// `device` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttylock_helper(device: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    helped(unsafe { text(device) }, |name| device::lock(name, Pid::this()))
}

/// The same of `lockdev -u`.
///
/// # Safety
/// `device` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttyunlock_helper(device: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    helped(unsafe { text(device) }, |name| device::unlock(name, Some(Pid::this())))
}

/// The same of `lockdev` without an option: 0, nobody has the device.
///
/// # Safety
/// `device` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttylocked_helper(device: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    helped(unsafe { text(device) }, device::test)
}

/// Waits until nobody has the device.
///
/// # Safety
/// `device` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ttywait_helper(device: *const c_char) -> c_int {
    loop {
        // SAFETY: the caller's promise.
        match unsafe { ttylocked_helper(device) } {
            1 => thread::sleep(PAUSE),
            ended => return ended,
        }
    }
}

fn helped(device: Option<&[u8]>, call: impl FnOnce(&[u8]) -> Result<Told, Errno>) -> c_int {
    match device.ok_or(Errno(libc::EFAULT)).and_then(call) {
        Ok(Told::Done) => 0,
        Ok(Told::HeldBy(_) | Told::Busy) => 1,
        Err(Errno(number)) => number.checked_neg().unwrap_or(-1),
    }
}

/// # Safety
/// `device` is null or a C string that lives as long as the call.
unsafe fn text<'a>(device: *const c_char) -> Option<&'a [u8]> {
    if device.is_null() {
        return None;
    }
    // SAFETY: not null, and the caller's promise.
    Some(unsafe { CStr::from_ptr(device) }.to_bytes())
}

fn locker() -> Pid {
    Pid::new(OTHER.load(Ordering::Relaxed).into()).unwrap_or_else(Pid::this)
}

/// A process that a caller names; 0 is none.
fn named(pid: pid_t) -> Result<Option<Pid>, Errno> {
    if pid == 0 {
        return Ok(None);
    }
    Pid::new(pid.into()).map(Some).ok_or(Errno(libc::EINVAL))
}

fn ended(call: &str, device: Option<&[u8]>, told: Result<Told, Errno>) -> pid_t {
    if DEBUG.load(Ordering::Relaxed) > 0 {
        let device = device.unwrap_or_default().escape_ascii();
        let _ = writeln!(std::io::stderr(), "liblockdev: {call}({device}): {told:?}");
    }
    let number = match told {
        Ok(Told::Done) => return 0,
        Ok(Told::HeldBy(pid)) => return pid.as_raw(),
        Ok(Told::Busy) => libc::EBUSY,
        Err(Errno(number)) => number,
    };
    // SAFETY: the location is valid for as long as the thread, which is running this.
    unsafe { *libc::__errno_location() = number };
    -1
}
