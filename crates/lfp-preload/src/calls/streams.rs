//! fopen(3), freopen(3) and fclose(3), whose own system calls bypass ours.

use std::ffi::{CStr, c_char, c_int};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::ptr::null_mut;

use libc::FILE;
use rustix::fs::{Mode, OFlags};

use super::opening::locked;
use super::{calls, failed, failure, looked, settle};
use crate::files;
use crate::locks;
use crate::real::{self, HERE};

calls! {
    fn [fopen fopen64](path: *const c_char, mode: *const c_char) -> *mut FILE {
        // SAFETY: the caller's promise, handed on.
        unsafe { streamed(path, mode) }
    }
    fn [freopen freopen64](
        path: *const c_char, mode: *const c_char, stream: *mut FILE,
    ) -> *mut FILE {
        // SAFETY: the caller's promise, handed on.
        unsafe { reopened(path, mode, stream) }
    }
    fn [fclose](stream: *mut FILE) -> c_int {
        let fd = if locks::none() { -1 } else { descriptor(&stream) };
        // SAFETY: the caller's promise, handed on.
        super::closing::closed(fd, fd, || unsafe { real::fclose(stream) })
    }
}

/// # Safety
/// `path` and `mode` are what the real call gets.
unsafe fn streamed(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's promise.
    let call = || unsafe { real::fopen(path, mode) };
    // SAFETY: the caller's promise.
    let Some(stream) = (unsafe { locked(HERE, path, 0, call, descriptor) }) else {
        return null_mut();
    };
    if mode.is_null() {
        return stream;
    }
    // SAFETY: not null, so a C string, which the real call has read.
    let flags = flags(unsafe { CStr::from_ptr(mode) }.to_bytes());
    if !stream.is_null() {
        // SAFETY: the caller's promise; the stream is ours until we return it.
        return unsafe { shown(path, stream, flags, call) };
    }
    let errno = failure();
    // SAFETY: the caller's promise.
    let name = unsafe { failed(HERE, path, errno) };
    let instead =
        name.and_then(|name| files::open(name, flags, Mode::from_bits_truncate(0o666), errno));
    let opened = match instead {
        Some(Ok(fd)) => fd,
        other => {
            settle(other.map(|it| it.map(|fd| fd.as_raw_fd())), errno);
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
unsafe fn reopened(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
    // SAFETY: the caller's promise.
    let call = || unsafe { real::freopen(path, mode, stream) };
    if path.is_null() || stream.is_null() {
        return call();
    }
    let (fd, mut result) = (descriptor(&stream), null_mut());
    super::closing::closed(fd, fd, || {
        // SAFETY: the caller's promise.
        if let Some(opened) = unsafe { locked(HERE, path, 0, call, descriptor) } {
            result = opened;
            return descriptor(&result);
        }
        let errno = failure();
        // As where the file cannot be opened: the stream is closed all the same.
        // SAFETY: the caller's promise; it is not used again.
        unsafe { real::fclose(stream) };
        settle(None, errno)
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
unsafe fn shown(
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
    unsafe { looked(HERE, path, stream, forget, call, null_mut()) }
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
