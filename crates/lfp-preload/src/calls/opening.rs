//! open(2), creat(2), mkstemp(3).
//!
//! `open` is variadic in C; a function with a variable number of arguments cannot be written in
//! Rust. On the processors that the library is built for, the calling conventions (System V
//! x86-64, AAPCS64 on Linux, RISC-V LP64) pass a variable argument of this type in the register of
//! a fixed one. Where the caller gave no mode, the register holds whatever it held; the mode is
//! used only with the flags that ask for one, as in the C library itself.

use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;
use std::os::fd::IntoRawFd;

use libc::{
    O_ACCMODE, O_CREAT, O_DIRECTORY, O_EXCL, O_PATH, O_TMPFILE, O_TRUNC, O_WRONLY, S_IFCHR, S_IFMT,
    mode_t,
};
use rustix::fs::{Mode, OFlags};

use super::{calls, failure, looked, settle, settled};
use crate::files;
use crate::mode::{Ports, settings};
use crate::ports::{self, Opening};
use crate::real::{self, HERE};

calls! {
    fn [open open64](path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        // SAFETY: the caller's promise, handed on; so in all calls of this file.
        unsafe { opened(HERE, path, flags, mode) }
    }
    fn [openat openat64](dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        // SAFETY: as in `open`.
        unsafe { opened(dir, path, flags, mode) }
    }
    fn [__open_2 __open64_2](path: *const c_char, flags: c_int) -> c_int {
        // Without the mode that the flags ask for, the C library ends the program.
        // SAFETY: as in `open`.
        unsafe { if has_mode(flags) { real::__open_2(path, flags) } else { opened(HERE, path, flags, 0) } }
    }
    fn [__openat_2 __openat64_2](dir: c_int, path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: as in `open`.
        unsafe { if has_mode(flags) { real::__openat_2(dir, path, flags) } else { opened(dir, path, flags, 0) } }
    }
    fn [creat creat64](path: *const c_char, mode: mode_t) -> c_int {
        // SAFETY: as in `open`.
        unsafe { opened(HERE, path, O_CREAT | O_WRONLY | O_TRUNC, mode) }
    }
    fn [mkstemp mkstemp64](template: *mut c_char) -> c_int {
        // SAFETY: as in `open`.
        unsafe { made(template, 0) }
    }
    fn [mkostemp mkostemp64](template: *mut c_char, flags: c_int) -> c_int {
        // SAFETY: as in `open`.
        unsafe { made(template, flags) }
    }
}

/// Whether a call with these flags has a mode.
fn has_mode(flags: c_int) -> bool {
    flags & O_CREAT != 0 || flags & O_TMPFILE == O_TMPFILE
}

/// The flags as rustix has them, bit for bit.
fn open_flags(flags: c_int) -> OFlags {
    OFlags::from_bits_retain(u32::from_ne_bytes(flags.to_ne_bytes()))
}

/// # Safety
/// `path` is what the real call gets.
unsafe fn opened(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let mode = if has_mode(flags) { mode } else { 0 };
    // SAFETY: the caller's promise.
    let call = || unsafe { real::openat(dir, path, flags, mode) };
    // SAFETY: the caller's promise.
    let Some(fd) = (unsafe { locked(dir, path, flags, call, |fd| *fd) }) else { return -1 };
    if fd >= 0 {
        if flags & (O_ACCMODE | O_CREAT | O_PATH) != 0 {
            return fd;
        }
        let forget = |fd| {
            // SAFETY: the descriptor is ours until we return it.
            unsafe { real::close(fd) };
        };
        // SAFETY: the caller's promise.
        return unsafe { looked(dir, path, fd, forget, call, -1) };
    }
    let instead = |name, errno| {
        let opened = files::open(name, open_flags(flags), Mode::from_bits_truncate(mode), errno)?;
        Some(opened.map(IntoRawFd::into_raw_fd))
    };
    // SAFETY: the caller's promise.
    unsafe { settled(dir, path, instead) }
}

/// Makes a call that opens; in ports mode, takes the lock of the port first. `descriptor` tells the descriptor of the
/// result, negative if the call has failed. `None`: the call was not made, and errno says why.
///
/// # Safety
/// `path` is what the real call gets.
pub(super) unsafe fn locked<R>(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    call: impl FnOnce() -> R,
    descriptor: impl FnOnce(&R) -> c_int,
) -> Option<R> {
    // SAFETY: the caller's promise.
    let port = match unsafe { announce(dir, path, flags) } {
        Opening::Plain => return Some(call()),
        Opening::Locked(port) => port,
        Opening::Refused(errno) => {
            settle(Some(Err(errno)), errno);
            return None;
        }
    };
    let result = call();
    let errno = real::errno();
    match descriptor(&result) {
        fd @ 0.. => ports::opened(port, fd),
        // It is released, unless another thread has it open.
        _ => ports::left(&[port]),
    }
    real::set_errno(errno);
    Some(result)
}

/// Before a call that opens: in ports mode, the lock of a port.
///
/// # Safety
/// `path` is what the real call gets.
unsafe fn announce(dir: c_int, path: *const c_char, flags: c_int) -> Opening {
    const NEW: c_int = O_CREAT | O_EXCL;
    let opens_no_device = flags & (O_PATH | O_DIRECTORY) != 0 || flags & NEW == NEW;
    if settings().ports == Ports::Left || opens_no_device {
        return Opening::Plain;
    }
    let before = real::errno();
    let mut found = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel judges the path; the buffer is as large as the call wants it.
    let there = unsafe { real::fstatat(dir, path, found.as_mut_ptr().cast(), 0) } == 0;
    // SAFETY: zeroed, and every bit pattern is a value of this type.
    let found = unsafe { found.assume_init() };
    let opening = if there && found.st_mode & S_IFMT == S_IFCHR {
        // SAFETY: the kernel has read the path.
        ports::opening(dir, unsafe { CStr::from_ptr(path) }, found.st_rdev)
    } else {
        Opening::Plain
    };
    real::set_errno(before);
    opening
}

/// # Safety
/// `template` is what the real call gets: a C string that may be written.
unsafe fn made(template: *mut c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let fd = unsafe { real::mkostemp(template, flags) };
    if fd >= 0 {
        return fd;
    }
    let errno = failure();
    if template.is_null() || !files::is_denied(errno) {
        return fd;
    }
    // SAFETY: not null, so a C string.
    let length = unsafe { libc::strlen(template) };
    // SAFETY: so many bytes may be written, by the contract of mkstemp(3), and nobody else does.
    let path = unsafe { std::slice::from_raw_parts_mut(template.cast::<u8>(), length) };
    let instead = files::make(path, open_flags(flags), errno);
    settle(instead.map(|it| it.map(IntoRawFd::into_raw_fd)), errno)
}
