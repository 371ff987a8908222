//! stat(2) and access(2) in all their forms.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::os::fd::AsRawFd;

use libc::{AT_EACCESS, AT_SYMLINK_NOFOLLOW, W_OK};

use super::{calls, failure, looked, settled};
use crate::files;
use crate::real::{self, HERE};

calls! {
    fn [stat stat64](path: *const c_char, buffer: *mut c_void) -> c_int {
        // SAFETY: the caller's promise, handed on; so in all calls of this file.
        unsafe { answered(HERE, path, |dir, path| real::fstatat(dir, path, buffer, 0)) }
    }
    fn [lstat lstat64](path: *const c_char, buffer: *mut c_void) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { answered(HERE, path, |dir, path| real::fstatat(dir, path, buffer, AT_SYMLINK_NOFOLLOW)) }
    }
    fn [fstatat fstatat64](
        dir: c_int, path: *const c_char, buffer: *mut c_void, flags: c_int,
    ) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { answered(dir, path, |dir, path| real::fstatat(dir, path, buffer, flags)) }
    }
    fn [__xstat __xstat64](version: c_int, path: *const c_char, buffer: *mut c_void) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { answered(HERE, path, |dir, path| real::__fxstatat(version, dir, path, buffer, 0)) }
    }
    fn [__lxstat __lxstat64](version: c_int, path: *const c_char, buffer: *mut c_void) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { answered(HERE, path, |dir, path|
            real::__fxstatat(version, dir, path, buffer, AT_SYMLINK_NOFOLLOW)) }
    }
    fn [__fxstatat __fxstatat64](
        version: c_int, dir: c_int, path: *const c_char, buffer: *mut c_void, flags: c_int,
    ) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { answered(dir, path, |dir, path| real::__fxstatat(version, dir, path, buffer, flags)) }
    }
    fn [statx](
        dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, buffer: *mut c_void,
    ) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { answered(dir, path, |dir, path| real::statx(dir, path, flags, mask, buffer)) }
    }
    fn [access](path: *const c_char, mode: c_int) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { allowed(HERE, path, mode, 0) }
    }
    fn [euidaccess eaccess](path: *const c_char, mode: c_int) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { allowed(HERE, path, mode, AT_EACCESS) }
    }
    fn [faccessat](dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { allowed(dir, path, mode, flags) }
    }
}

/// # Safety
/// `path` is what the real call gets.
unsafe fn answered(
    dir: c_int,
    path: *const c_char,
    call: impl Fn(c_int, *const c_char) -> c_int,
) -> c_int {
    let result = call(dir, path);
    if result == 0 {
        // SAFETY: the caller's promise.
        return unsafe { looked(dir, path, result, |_| (), || call(dir, path), -1) };
    }
    let instead = |name, errno| {
        let (directory, file) = files::elsewhere(name, errno)?;
        let result = call(directory.as_raw_fd(), file.as_ptr().cast());
        Some(if result == 0 { Ok(0) } else { Err(failure()) })
    };
    // SAFETY: the caller's promise.
    unsafe { settled(dir, path, instead) }
}

/// # Safety
/// `path` is what the real call gets.
unsafe fn allowed(dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let call = || unsafe { real::faccessat(dir, path, mode, flags) };
    let result = call();
    if result == 0 {
        // SAFETY: the caller's promise.
        return unsafe { looked(dir, path, result, |_| (), call, -1) };
    }
    let instead = |name, errno| {
        let to_write = if mode & W_OK != 0 { files::access_to_write(name, errno) } else { None };
        to_write.or_else(|| files::elsewhere(name, errno).map(|_| Ok(0)))
    };
    // SAFETY: the caller's promise.
    unsafe { settled(dir, path, instead) }
}
