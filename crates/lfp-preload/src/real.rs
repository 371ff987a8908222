//! The C library's own calls, which ours replace (`dlsym(RTLD_NEXT)`), and errno.
//!
//! Nothing here decides anything. There is one function for each call, with the C prototype and the result of a failure.
//! It looks up its successor once; if there is none, the call fails with ENOSYS. What a call relative to a directory does
//! as well has no function of its own.

#![expect(unsafe_code, reason = "these are the C library's calls")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{AT_FDCWD, ENOSYS, FILE, gid_t, mode_t, timespec, timeval, uid_t, utimbuf};
use rustix::fs::{FileType, fstat};

/// The next definition of a symbol after ours; its name ends with NUL. Looking it up twice does no harm.
fn next(slot: &AtomicPtr<c_void>, name: &'static str) -> *mut c_void {
    let known = slot.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let before = errno();
    // SAFETY: the name ends with NUL; dlsym(3) may be called at any time.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast()) };
    set_errno(before);
    slot.store(found, Ordering::Relaxed);
    found
}

macro_rules! real {
    ($($name:ident($($arg:ident: $type:ty),*) -> $ret:ty = $failed:expr;)*) => {
        /// Where each call's successor is noted.
        #[expect(non_upper_case_globals, reason = "the calls' own names")]
        mod slots {
            use std::ffi::c_void;
            use std::ptr::null_mut;
            use std::sync::atomic::AtomicPtr;

            $(pub(super) static $name: AtomicPtr<c_void> = AtomicPtr::new(null_mut());)*
        }

        /// Looks all of them up, to be called when the library has been loaded: later, a call may
        /// be made by a signal handler, which has no business with dlsym(3) and may have a small
        /// stack.
        pub(crate) fn look_up() {
            $(next(&slots::$name, concat!(stringify!($name), "\0"));)*
        }

        $(
        /// The C library's call of this name.
        ///
        /// # Safety
        /// As the C library's.
        pub(crate) unsafe fn $name($($arg: $type),*) -> $ret {
            let found = next(&slots::$name, concat!(stringify!($name), "\0"));
            if found.is_null() {
                set_errno(ENOSYS);
                return $failed;
            }
            // SAFETY: the symbol of this name has this prototype (its manual page, or the
            // header of the C library).
            let call: unsafe extern "C" fn($($type),*) -> $ret = unsafe { std::mem::transmute(found) };
            // SAFETY: the caller's promise.
            unsafe { call($($arg),*) }
        }
        )*
    };
}

// The variadic ones of the open family are called with their mode as a fixed argument, which the
// calling conventions of these processors pass in the same register (see `calls/opening.rs`).
real! {
    openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int = -1;
    __open_2(path: *const c_char, flags: c_int) -> c_int = -1;
    __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int = -1;
    fopen(path: *const c_char, mode: *const c_char) -> *mut FILE = null_mut();
    freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE = null_mut();
    fclose(stream: *mut FILE) -> c_int = -1;
    mkostemp(template: *mut c_char, flags: c_int) -> c_int = -1;
    linkat(old_dir: c_int, old: *const c_char, new_dir: c_int, new: *const c_char, flags: c_int) -> c_int = -1;
    renameat(old_dir: c_int, old: *const c_char, new_dir: c_int, new: *const c_char) -> c_int = -1;
    renameat2(old_dir: c_int, old: *const c_char, new_dir: c_int, new: *const c_char, flags: c_uint) -> c_int = -1;
    unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int = -1;
    remove(path: *const c_char) -> c_int = -1;
    fstatat(dir: c_int, path: *const c_char, buffer: *mut c_void, flags: c_int) -> c_int = -1;
    __fxstatat(version: c_int, dir: c_int, path: *const c_char, buffer: *mut c_void, flags: c_int) -> c_int = -1;
    statx(dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, buffer: *mut c_void) -> c_int = -1;
    faccessat(dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int = -1;
    fchmodat(dir: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int = -1;
    fchownat(dir: c_int, path: *const c_char, owner: uid_t, group: gid_t, flags: c_int) -> c_int = -1;
    utime(path: *const c_char, times: *const utimbuf) -> c_int = -1;
    utimes(path: *const c_char, times: *const timeval) -> c_int = -1;
    utimensat(dir: c_int, path: *const c_char, times: *const timespec, flags: c_int) -> c_int = -1;
    close(fd: c_int) -> c_int = -1;
    dup2(old: c_int, new: c_int) -> c_int = -1;
    dup3(old: c_int, new: c_int, flags: c_int) -> c_int = -1;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int = -1;
    closefrom(first: c_int) -> () = Default::default();
}

unsafe extern "C" {
    /// secure_getenv(3), of glibc and musl alike.
    fn secure_getenv(name: *const c_char) -> *mut c_char;
    /// program_invocation_short_name(3), of glibc and musl alike.
    static program_invocation_short_name: *const c_char;
}

/// What this program was called by, without a directory. To be asked when the library is loaded: it is the
/// program's to change.
pub(crate) fn program() -> Option<&'static CStr> {
    // SAFETY: the C library has set it before it starts other libraries.
    let name = unsafe { program_invocation_short_name };
    // SAFETY: when it is not null it is the end of the first argument, which stays where it is.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })
}

/// The number of the character device that a descriptor is.
pub(crate) fn device_of(fd: c_int) -> Option<u64> {
    if fd < 0 {
        return None;
    }
    // SAFETY: used for one call, which the kernel refuses where there is no such descriptor.
    let found = fstat(unsafe { BorrowedFd::borrow_raw(fd) }).ok()?;
    let is_device = FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice;
    is_device.then_some(found.st_rdev)
}

/// Whether there is a descriptor of this number.
pub(crate) fn is_open(fd: c_int) -> bool {
    // SAFETY: used for one call, which the kernel refuses where there is no such descriptor.
    fd >= 0 && rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(fd) }).is_ok()
}

/// Sets the exclusive mode of a terminal.
pub(crate) fn set_exclusive(fd: c_int) {
    // SAFETY: used for one call, which the kernel refuses where there is no such descriptor. The program
    // has just opened it and does not know its number yet.
    let _ = rustix::termios::ioctl_tiocexcl(unsafe { BorrowedFd::borrow_raw(fd) });
}

/// Ends it.
pub(crate) fn end_exclusive(fd: c_int) {
    // SAFETY: used for one call, which the kernel refuses where there is no such descriptor.
    let _ = rustix::termios::ioctl_tiocnxcl(unsafe { BorrowedFd::borrow_raw(fd) });
}

/// The directory that a path without one is relative to.
pub(crate) const HERE: c_int = AT_FDCWD;

/// The calling thread's errno.
pub(crate) fn errno() -> c_int {
    // SAFETY: the C library's location is valid for as long as the thread, which is running this.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's errno.
pub(crate) fn set_errno(number: c_int) {
    // SAFETY: as in `errno`.
    unsafe { *libc::__errno_location() = number }
}

/// A variable of the environment, unless the program has more rights than its user
/// (secure_getenv(3)). Copied: the program may change its environment at any time.
pub(crate) fn variable(name: &CStr) -> Option<Vec<u8>> {
    // SAFETY: the name is a C string.
    let value = unsafe { secure_getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: not null, so a C string; read at once. A program that changes its environment in
    // another thread meanwhile breaks the rules for getenv(3) itself.
    Some(unsafe { CStr::from_ptr(value) }.to_bytes().to_vec())
}
