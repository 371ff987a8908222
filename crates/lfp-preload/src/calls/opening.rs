//! The calls that open and close: open(2), creat(2), mkstemp(3); fopen(3), freopen(3) and fclose(3), whose own system
//! calls bypass ours; close(2) and other calls that close descriptors. In ports mode, closing the last descriptor of a
//! port releases it. If no port is taken, this costs one read of memory more than the real call.
//!
//! `open` is variadic in C; a function with a variable number of arguments cannot be written in
//! Rust. On the processors that the library is built for, the calling conventions (System V
//! x86-64, AAPCS64 on Linux, RISC-V LP64) pass a variable argument of this type in the register of
//! a fixed one. Where the caller gave no mode, the register holds whatever it held; the mode is
//! used only with the flags that ask for one, as in the C library itself.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::ptr::null_mut;

use libc::{
    CLOSE_RANGE_CLOEXEC, FILE, O_ACCMODE, O_CREAT, O_DIRECTORY, O_EXCL, O_PATH, O_TMPFILE, O_TRUNC,
    O_WRONLY, S_IFCHR, S_IFMT, mode_t,
};
use rustix::fs::{Mode, OFlags};

use super::{calls, end_failed, end_with, failed_path, real_failure, unless_own};
use crate::ports::{self, Opening};
use crate::real::{self, HERE};
use crate::settings::{Ports, settings};
use crate::{files, locks};

calls! {
    fn [open open64](path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        // SAFETY: the caller's promise, handed on; so in all calls of this file.
        unsafe { open_path(HERE, path, flags, mode) }
    }
    fn [openat openat64](dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        // SAFETY: as in `open`.
        unsafe { open_path(dir, path, flags, mode) }
    }
    fn [__open_2 __open64_2](path: *const c_char, flags: c_int) -> c_int {
        // Without the mode that the flags ask for, the C library ends the program.
        // SAFETY: as in `open`.
        unsafe { if has_mode(flags) { real::__open_2(path, flags) } else { open_path(HERE, path, flags, 0) } }
    }
    fn [__openat_2 __openat64_2](dir: c_int, path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: as in `open`.
        unsafe { if has_mode(flags) { real::__openat_2(dir, path, flags) } else { open_path(dir, path, flags, 0) } }
    }
    fn [creat creat64](path: *const c_char, mode: mode_t) -> c_int {
        // SAFETY: as in `open`.
        unsafe { open_path(HERE, path, O_CREAT | O_WRONLY | O_TRUNC, mode) }
    }
    fn [mkstemp mkstemp64](template: *mut c_char) -> c_int {
        // SAFETY: as in `open`.
        unsafe { make_temporary(template, 0) }
    }
    fn [mkostemp mkostemp64](template: *mut c_char, flags: c_int) -> c_int {
        // SAFETY: as in `open`.
        unsafe { make_temporary(template, flags) }
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
unsafe fn open_path(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let mode = if has_mode(flags) { mode } else { 0 };
    // SAFETY: the caller's promise.
    let call = || unsafe { real::openat(dir, path, flags, mode) };
    // SAFETY: the caller's promise.
    let Some(fd) = (unsafe { with_port_lock(dir, path, flags, call, |fd| *fd) }) else { return -1 };
    if fd >= 0 {
        // A lock is looked at only by opening it to read.
        if flags & (O_ACCMODE | O_CREAT | O_PATH) != 0 {
            return fd;
        }
        let forget = |fd| {
            // SAFETY: the descriptor is ours until we return it.
            unsafe { real::close(fd) };
        };
        // SAFETY: the caller's promise.
        return unsafe { unless_own(dir, path, fd, forget, call, -1) };
    }
    let instead = |name, errno| {
        let opened = files::open(name, open_flags(flags), Mode::from_bits_truncate(mode), errno)?;
        Some(opened.map(IntoRawFd::into_raw_fd))
    };
    // SAFETY: the caller's promise.
    unsafe { end_failed(dir, path, instead) }
}

/// Makes a call that opens; in ports mode, takes the lock of the port first. `descriptor` gives the descriptor of the
/// result, negative if the call has failed. `None`: the call was not made, and errno says why.
///
/// # Safety
/// `path` is what the real call gets.
pub(super) unsafe fn with_port_lock<R>(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    call: impl FnOnce() -> R,
    descriptor: impl FnOnce(&R) -> c_int,
) -> Option<R> {
    // SAFETY: the caller's promise.
    let port = match unsafe { lock_port(dir, path, flags) } {
        Opening::Plain => return Some(call()),
        Opening::Locked(port) => port,
        Opening::Refused(errno) => {
            end_with(Some(Err(errno)), errno);
            return None;
        }
    };
    let result = call();
    let errno = real::errno();
    ports::opened(port, descriptor(&result));
    real::set_errno(errno);
    Some(result)
}

/// Before a call that opens: in ports mode, the lock of a port.
///
/// # Safety
/// `path` is what the real call gets.
unsafe fn lock_port(dir: c_int, path: *const c_char, flags: c_int) -> Opening {
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
        ports::lock_to_open(dir, unsafe { CStr::from_ptr(path) }, found.st_rdev)
    } else {
        Opening::Plain
    };
    real::set_errno(before);
    opening
}

/// # Safety
/// `template` is what the real call gets: a C string that may be written.
unsafe fn make_temporary(template: *mut c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let fd = unsafe { real::mkostemp(template, flags) };
    if fd >= 0 {
        return fd;
    }
    let errno = real_failure();
    if template.is_null() || !files::is_denied(errno) {
        return fd;
    }
    // SAFETY: not null, so a C string.
    let length = unsafe { libc::strlen(template) };
    // SAFETY: so many bytes may be written, by the contract of mkstemp(3), and nobody else does.
    let path = unsafe { std::slice::from_raw_parts_mut(template.cast::<u8>(), length) };
    let instead = files::make(path, open_flags(flags), errno);
    end_with(instead.map(|it| it.map(IntoRawFd::into_raw_fd)), errno)
}

calls! {
    fn [fopen fopen64](path: *const c_char, mode: *const c_char) -> *mut FILE {
        // SAFETY: the caller's promise, handed on.
        unsafe { open_stream(path, mode) }
    }
    fn [freopen freopen64](
        path: *const c_char, mode: *const c_char, stream: *mut FILE,
    ) -> *mut FILE {
        // SAFETY: the caller's promise, handed on.
        unsafe { reopen_stream(path, mode, stream) }
    }
    fn [fclose](stream: *mut FILE) -> c_int {
        let fd = if locks::none() { -1 } else { descriptor(&stream) };
        // SAFETY: the caller's promise, handed on.
        close_descriptors(fd, fd, || unsafe { real::fclose(stream) })
    }
}

/// # Safety
/// `path` and `mode` are what the real call gets.
unsafe fn open_stream(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's promise.
    let call = || unsafe { real::fopen(path, mode) };
    // SAFETY: the caller's promise.
    let Some(stream) = (unsafe { with_port_lock(HERE, path, 0, call, descriptor) }) else {
        return null_mut();
    };
    if mode.is_null() {
        return stream;
    }
    // SAFETY: not null, so a C string, which the real call has read.
    let flags = flags(unsafe { CStr::from_ptr(mode) }.to_bytes());
    if !stream.is_null() {
        // SAFETY: the caller's promise; the stream is ours until we return it.
        return unsafe { show_stream(path, stream, flags, call) };
    }
    let errno = real_failure();
    // SAFETY: the caller's promise.
    let name = unsafe { failed_path(HERE, path, errno) };
    let instead =
        name.and_then(|name| files::open(name, flags, Mode::from_bits_truncate(0o666), errno));
    let opened = match instead {
        Some(Ok(fd)) => fd,
        other => {
            end_with(other.map(|it| it.map(|fd| fd.as_raw_fd())), errno);
            return null_mut();
        }
    };
    real::set_errno(errno.raw_os_error());
    let fd = opened.into_raw_fd();
    // SAFETY: a descriptor that no other code uses, and the program's own mode.
    let stream = unsafe { libc::fdopen(fd, mode) };
    if stream.is_null() {
        // SAFETY: still nobody else's.
        unsafe { real::close(fd) };
    }
    stream
}

/// A stream is closed and another file opened in it: in ports mode, a port is locked first, and one that was
/// behind it is released.
///
/// # Safety
/// `path`, `mode` and `stream` are what the real call gets.
unsafe fn reopen_stream(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
    // SAFETY: the caller's promise.
    let call = || unsafe { real::freopen(path, mode, stream) };
    if path.is_null() || stream.is_null() {
        return call();
    }
    let (fd, mut result) = (descriptor(&stream), null_mut());
    close_descriptors(fd, fd, || {
        // SAFETY: the caller's promise.
        if let Some(opened) = unsafe { with_port_lock(HERE, path, 0, call, descriptor) } {
            result = opened;
            return descriptor(&result);
        }
        let errno = real_failure();
        // As where the file cannot be opened: the stream is closed all the same.
        // SAFETY: the caller's promise; it is not used again.
        unsafe { real::fclose(stream) };
        end_with(None, errno)
    });
    result
}

/// -1 for no stream.
fn descriptor(stream: &*mut FILE) -> c_int {
    // SAFETY: an open stream, where it is not null.
    if stream.is_null() { -1 } else { unsafe { libc::fileno(*stream) } }
}

/// # Safety
/// `path` is what the real call got, `stream` what it gave.
unsafe fn show_stream(
    path: *const c_char,
    stream: *mut FILE,
    flags: OFlags,
    call: impl Fn() -> *mut FILE,
) -> *mut FILE {
    if flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::CREATE) {
        return stream;
    }
    let forget = |stream| {
        // SAFETY: the stream is ours until we return it, and is not used again.
        unsafe { real::fclose(stream) };
    };
    // SAFETY: the caller's promise.
    unsafe { unless_own(HERE, path, stream, forget, call, null_mut()) }
}

/// What fopen(3) opens with.
fn flags(mode: &[u8]) -> OFlags {
    let both = mode.contains(&b'+');
    let access = |one| if both { OFlags::RDWR } else { one };
    let mut flags = match mode.first() {
        Some(b'w') => access(OFlags::WRONLY) | OFlags::CREATE | OFlags::TRUNC,
        Some(b'a') => access(OFlags::WRONLY) | OFlags::CREATE | OFlags::APPEND,
        Some(_) | None => access(OFlags::RDONLY),
    };
    if mode.contains(&b'x') {
        flags |= OFlags::EXCL;
    }
    if mode.contains(&b'e') {
        flags |= OFlags::CLOEXEC;
    }
    flags
}

calls! {
    fn [close](fd: c_int) -> c_int {
        // SAFETY: the caller's promise, handed on; so in all calls of this file.
        close_descriptors(fd, fd, || unsafe { real::close(fd) })
    }
    fn [dup2](old: c_int, new: c_int) -> c_int {
        // SAFETY: as in `close`.
        replace_descriptor(old, new, || unsafe { real::dup2(old, new) })
    }
    fn [dup3](old: c_int, new: c_int, flags: c_int) -> c_int {
        // SAFETY: as in `close`.
        replace_descriptor(old, new, || unsafe { real::dup3(old, new, flags) })
    }
    fn [close_range](first: c_uint, last: c_uint, flags: c_int) -> c_int {
        let bound = |fd: c_uint| c_int::try_from(fd).unwrap_or(c_int::MAX);
        // SAFETY: as in `close`.
        let call = || unsafe { real::close_range(first, last, flags) };
        // close_range(2): with this flag they stay open until the process becomes another program.
        let is_later = c_uint::from_ne_bytes(flags.to_ne_bytes()) & CLOSE_RANGE_CLOEXEC != 0;
        if is_later { call() } else { close_descriptors(bound(first), bound(last), call) }
    }
    fn [closefrom](first: c_int) -> () {
        close_descriptors(first, c_int::MAX, || {
            // SAFETY: as in `close`.
            unsafe { real::closefrom(first) };
            0
        });
    }
}

/// Makes a call that closes `new`, unless that is `old`, or `old` is no descriptor.
fn replace_descriptor(old: c_int, new: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if old == new || !locks::none() && !real::is_open(old) {
        return call();
    }
    close_descriptors(new, new, call)
}

/// Makes a call that closes these descriptors.
pub(super) fn close_descriptors(first: c_int, last: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if locks::none() {
        return call();
    }
    let before = real::errno();
    let range = first..=last;
    let ports = ports::locked_among(&range);
    ports::end_exclusive(&ports, &range);
    real::set_errno(before);
    let result = call();
    let errno = real::errno();
    ports::release_closed(&ports);
    real::set_errno(errno);
    result
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("r", OFlags::RDONLY)]
    #[case("rb", OFlags::RDONLY)]
    #[case("re", OFlags::RDONLY | OFlags::CLOEXEC)]
    #[case("r+", OFlags::RDWR)]
    #[case("w", OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)]
    #[case("w+b", OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC)]
    #[case("wx", OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::EXCL)]
    #[case("a", OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND)]
    #[case("", OFlags::RDONLY)]
    fn modes_of_fopen_become_open_flags(#[case] mode: &str, #[case] expected: OFlags) {
        assert_eq!(flags(mode.as_bytes()), expected);
    }
}
