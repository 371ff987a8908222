//! stat(2) and access(2) in all their forms.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::os::fd::AsRawFd;

use libc::{AT_SYMLINK_NOFOLLOW, W_OK};

use super::{calls, failed, failure, looked, settle};
use crate::files::{self, Asks};
use crate::real::{self, HERE};

calls! {
    fn stat(path: *const c_char, buffer: *mut c_void) -> c_int {
        // SAFETY: the caller's promise, handed on; so in all calls of this file.
        unsafe { told(HERE, path, || real::stat(path, buffer),
            |dir, path| real::fstatat(dir, path, buffer, 0)) }
    }
    fn stat64(path: *const c_char, buffer: *mut c_void) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { told(HERE, path, || real::stat64(path, buffer),
            |dir, path| real::fstatat64(dir, path, buffer, 0)) }
    }
    fn lstat(path: *const c_char, buffer: *mut c_void) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { told(HERE, path, || real::lstat(path, buffer),
            |dir, path| real::fstatat(dir, path, buffer, AT_SYMLINK_NOFOLLOW)) }
    }
    fn lstat64(path: *const c_char, buffer: *mut c_void) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { told(HERE, path, || real::lstat64(path, buffer),
            |dir, path| real::fstatat64(dir, path, buffer, AT_SYMLINK_NOFOLLOW)) }
    }
    fn fstatat(dir: c_int, path: *const c_char, buffer: *mut c_void, flags: c_int) -> c_int {
        // SAFETY: as in `stat`.
        let call = |dir, path| unsafe { real::fstatat(dir, path, buffer, flags) };
        // SAFETY: as in `stat`.
        unsafe { told(dir, path, || call(dir, path), call) }
    }
    fn fstatat64(dir: c_int, path: *const c_char, buffer: *mut c_void, flags: c_int) -> c_int {
        // SAFETY: as in `stat`.
        let call = |dir, path| unsafe { real::fstatat64(dir, path, buffer, flags) };
        // SAFETY: as in `stat`.
        unsafe { told(dir, path, || call(dir, path), call) }
    }
    fn __xstat(version: c_int, path: *const c_char, buffer: *mut c_void) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { told(HERE, path, || real::__xstat(version, path, buffer),
            |dir, path| real::__fxstatat(version, dir, path, buffer, 0)) }
    }
    fn __xstat64(version: c_int, path: *const c_char, buffer: *mut c_void) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { told(HERE, path, || real::__xstat64(version, path, buffer),
            |dir, path| real::__fxstatat64(version, dir, path, buffer, 0)) }
    }
    fn __lxstat(version: c_int, path: *const c_char, buffer: *mut c_void) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { told(HERE, path, || real::__lxstat(version, path, buffer),
            |dir, path| real::__fxstatat(version, dir, path, buffer, AT_SYMLINK_NOFOLLOW)) }
    }
    fn __lxstat64(version: c_int, path: *const c_char, buffer: *mut c_void) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { told(HERE, path, || real::__lxstat64(version, path, buffer),
            |dir, path| real::__fxstatat64(version, dir, path, buffer, AT_SYMLINK_NOFOLLOW)) }
    }
    fn __fxstatat(
        version: c_int, dir: c_int, path: *const c_char, buffer: *mut c_void, flags: c_int,
    ) -> c_int {
        // SAFETY: as in `stat`.
        let call = |dir, path| unsafe { real::__fxstatat(version, dir, path, buffer, flags) };
        // SAFETY: as in `stat`.
        unsafe { told(dir, path, || call(dir, path), call) }
    }
    fn __fxstatat64(
        version: c_int, dir: c_int, path: *const c_char, buffer: *mut c_void, flags: c_int,
    ) -> c_int {
        // SAFETY: as in `stat`.
        let call = |dir, path| unsafe { real::__fxstatat64(version, dir, path, buffer, flags) };
        // SAFETY: as in `stat`.
        unsafe { told(dir, path, || call(dir, path), call) }
    }
    fn statx(
        dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, buffer: *mut c_void,
    ) -> c_int {
        // SAFETY: as in `stat`.
        let call = |dir, path| unsafe { real::statx(dir, path, flags, mask, buffer) };
        // SAFETY: as in `stat`.
        unsafe { told(dir, path, || call(dir, path), call) }
    }
    fn access(path: *const c_char, mode: c_int) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { allowed(HERE, path, mode, || real::access(path, mode)) }
    }
    fn euidaccess(path: *const c_char, mode: c_int) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { allowed(HERE, path, mode, || real::euidaccess(path, mode)) }
    }
    fn eaccess(path: *const c_char, mode: c_int) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { allowed(HERE, path, mode, || real::eaccess(path, mode)) }
    }
    fn faccessat(dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { allowed(dir, path, mode, || real::faccessat(dir, path, mode, flags)) }
    }
}

/// # Safety
/// `path` is what the real call gets; `at` is the same call relative to a directory.
unsafe fn told(
    dir: c_int,
    path: *const c_char,
    call: impl Fn() -> c_int,
    at: impl FnOnce(c_int, *const c_char) -> c_int,
) -> c_int {
    let result = call();
    if result == 0 {
        // SAFETY: the caller's promise.
        return unsafe { looked(dir, path, result, || (), call) };
    }
    let errno = failure();
    // SAFETY: the caller's promise.
    let found = unsafe { failed(dir, path, errno) }.and_then(|name| files::elsewhere(name, errno));
    let Some((directory, file)) = found else { return settle(None, errno) };
    let result = at(directory.as_raw_fd(), file.as_ptr().cast());
    let errno = if result == 0 { errno } else { failure() };
    drop(directory);
    settle((result == 0).then_some(Ok(0)), errno)
}

/// # Safety
/// `path` is what the real call gets.
unsafe fn allowed(dir: c_int, path: *const c_char, mode: c_int, call: impl Fn() -> c_int) -> c_int {
    let result = call();
    if result == 0 {
        // SAFETY: the caller's promise.
        return unsafe { looked(dir, path, result, || (), call) };
    }
    let errno = failure();
    let asks = if mode & W_OK != 0 { Asks::ToWrite } else { Asks::Other };
    // SAFETY: the caller's promise.
    let instead = unsafe { failed(dir, path, errno) }.and_then(|name| {
        let temporary = || files::elsewhere(name, errno).map(|_| Ok(()));
        files::access(name, asks, errno).or_else(temporary)
    });
    settle(instead.map(|it| it.map(|()| 0)), errno)
}
