//! The calls that name a file without opening it. link(2), rename(2), unlink(2), remove(3) make and remove locks; stat(2)
//! and access(2), in all their forms, look at them; chmod(2), chown(2) and utime(2) on a program's own lock succeed
//! without effect, and change temporary files where they are.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::os::fd::AsRawFd;

use libc::{
    AT_EACCESS, AT_SYMLINK_NOFOLLOW, F_OK, W_OK, gid_t, mode_t, timespec, timeval, uid_t, utimbuf,
};
use rustix::io::Errno;

use super::{calls, end_failed, end_with, failed_path, real_failure, unless_own};
use crate::files::{self, Verb, may_change};
use crate::real::{self, HERE};

calls! {
    fn [link](old: *const c_char, new: *const c_char) -> c_int {
        // SAFETY: the caller's promise, handed on; so in all calls of this file.
        unsafe { end_link_or_rename((HERE, old), (HERE, new), Verb::Link, real::linkat(HERE, old, HERE, new, 0)) }
    }
    fn [linkat](
        old_dir: c_int, old: *const c_char, new_dir: c_int, new: *const c_char, flags: c_int,
    ) -> c_int {
        // SAFETY: as in `link`.
        unsafe { end_link_or_rename((old_dir, old), (new_dir, new), Verb::Link,
            real::linkat(old_dir, old, new_dir, new, flags)) }
    }
    fn [rename](old: *const c_char, new: *const c_char) -> c_int {
        // SAFETY: as in `link`.
        unsafe { end_link_or_rename((HERE, old), (HERE, new), Verb::Rename, real::renameat(HERE, old, HERE, new)) }
    }
    fn [renameat](
        old_dir: c_int, old: *const c_char, new_dir: c_int, new: *const c_char,
    ) -> c_int {
        // SAFETY: as in `link`.
        unsafe { end_link_or_rename((old_dir, old), (new_dir, new), Verb::Rename,
            real::renameat(old_dir, old, new_dir, new)) }
    }
    fn [renameat2](
        old_dir: c_int, old: *const c_char, new_dir: c_int, new: *const c_char, flags: c_uint,
    ) -> c_int {
        // SAFETY: as in `link`.
        unsafe { end_link_or_rename((old_dir, old), (new_dir, new), Verb::Rename,
            real::renameat2(old_dir, old, new_dir, new, flags)) }
    }
    fn [unlink](path: *const c_char) -> c_int {
        // SAFETY: as in `link`.
        unsafe { end_removal(HERE, path, real::unlinkat(HERE, path, 0)) }
    }
    fn [unlinkat](dir: c_int, path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: as in `link`.
        unsafe { end_removal(dir, path, real::unlinkat(dir, path, flags)) }
    }
    fn [remove](path: *const c_char) -> c_int {
        // SAFETY: as in `link`.
        unsafe { end_removal(HERE, path, real::remove(path)) }
    }
}

/// # Safety
/// The paths are what the real call got.
unsafe fn end_link_or_rename(
    old: (c_int, *const c_char),
    new: (c_int, *const c_char),
    verb: Verb,
    result: c_int,
) -> c_int {
    if result == 0 {
        return result;
    }
    let errno = real_failure();
    // The kernel may have missed the old name before it has read the new one.
    // SAFETY: it judges the pointer now.
    let is_bad = may_change(errno) && unsafe { real::faccessat(HERE, new.1, F_OK, 0) } != 0;
    if is_bad && real_failure() == Errno::FAULT {
        return end_with(None, errno);
    }
    // SAFETY: the caller's promise.
    let (old, new) =
        unsafe { (failed_path(old.0, old.1, errno), failed_path(new.0, new.1, errno)) };
    let instead = old.zip(new).and_then(|(old, new)| files::link_or_rename(old, new, verb, errno));
    end_with(instead, errno)
}

/// # Safety
/// The path is what the real call got.
unsafe fn end_removal(dir: c_int, path: *const c_char, result: c_int) -> c_int {
    if result == 0 {
        return result;
    }
    // SAFETY: the caller's promise.
    unsafe { end_failed(dir, path, files::remove) }
}

calls! {
    fn [stat stat64](path: *const c_char, buffer: *mut c_void) -> c_int {
        // SAFETY: the caller's promise, handed on; so in all calls of this file.
        unsafe { look_at(HERE, path, |dir, path| real::fstatat(dir, path, buffer, 0)) }
    }
    fn [lstat lstat64](path: *const c_char, buffer: *mut c_void) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { look_at(HERE, path, |dir, path| real::fstatat(dir, path, buffer, AT_SYMLINK_NOFOLLOW)) }
    }
    fn [fstatat fstatat64](
        dir: c_int, path: *const c_char, buffer: *mut c_void, flags: c_int,
    ) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { look_at(dir, path, |dir, path| real::fstatat(dir, path, buffer, flags)) }
    }
    fn [__xstat __xstat64](version: c_int, path: *const c_char, buffer: *mut c_void) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { look_at(HERE, path, |dir, path| real::__fxstatat(version, dir, path, buffer, 0)) }
    }
    fn [__lxstat __lxstat64](version: c_int, path: *const c_char, buffer: *mut c_void) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { look_at(HERE, path, |dir, path|
            real::__fxstatat(version, dir, path, buffer, AT_SYMLINK_NOFOLLOW)) }
    }
    fn [__fxstatat __fxstatat64](
        version: c_int, dir: c_int, path: *const c_char, buffer: *mut c_void, flags: c_int,
    ) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { look_at(dir, path, |dir, path| real::__fxstatat(version, dir, path, buffer, flags)) }
    }
    fn [statx](
        dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, buffer: *mut c_void,
    ) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { look_at(dir, path, |dir, path| real::statx(dir, path, flags, mask, buffer)) }
    }
    fn [access](path: *const c_char, mode: c_int) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { check_access(HERE, path, mode, 0) }
    }
    fn [euidaccess eaccess](path: *const c_char, mode: c_int) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { check_access(HERE, path, mode, AT_EACCESS) }
    }
    fn [faccessat](dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
        // SAFETY: as in `stat`.
        unsafe { check_access(dir, path, mode, flags) }
    }
}

/// # Safety
/// `path` is what the real call gets.
unsafe fn look_at(
    dir: c_int,
    path: *const c_char,
    call: impl Fn(c_int, *const c_char) -> c_int,
) -> c_int {
    let result = call(dir, path);
    if result == 0 {
        // SAFETY: the caller's promise.
        return unsafe { unless_own(dir, path, result, |_| (), || call(dir, path), -1) };
    }
    let instead = |name, errno| {
        let (directory, file) = files::elsewhere(name, errno)?;
        let result = call(directory.as_raw_fd(), file.as_ptr().cast());
        Some(if result == 0 { Ok(0) } else { Err(real_failure()) })
    };
    // SAFETY: the caller's promise.
    unsafe { end_failed(dir, path, instead) }
}

/// # Safety
/// `path` is what the real call gets.
unsafe fn check_access(dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let call = || unsafe { real::faccessat(dir, path, mode, flags) };
    let result = call();
    if result == 0 {
        // SAFETY: the caller's promise.
        return unsafe { unless_own(dir, path, result, |_| (), call, -1) };
    }
    let instead = |name, errno| {
        let to_write = if mode & W_OK != 0 { files::access_to_write(name, errno) } else { None };
        to_write.or_else(|| files::elsewhere(name, errno).map(|_| Ok(0)))
    };
    // SAFETY: the caller's promise.
    unsafe { end_failed(dir, path, instead) }
}

calls! {
    fn [chmod](path: *const c_char, mode: mode_t) -> c_int {
        // SAFETY: the caller's promise, handed on; so in all calls of this file.
        unsafe { change_attributes(HERE, path, |dir, path| real::fchmodat(dir, path, mode, 0)) }
    }
    fn [fchmodat](dir: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int {
        // SAFETY: as in `chmod`.
        unsafe { change_attributes(dir, path, |dir, path| real::fchmodat(dir, path, mode, flags)) }
    }
    fn [chown](path: *const c_char, owner: uid_t, group: gid_t) -> c_int {
        // SAFETY: as in `chmod`.
        unsafe { change_attributes(HERE, path, |dir, path| real::fchownat(dir, path, owner, group, 0)) }
    }
    fn [lchown](path: *const c_char, owner: uid_t, group: gid_t) -> c_int {
        // SAFETY: as in `chmod`.
        unsafe { change_attributes(HERE, path, |dir, path|
            real::fchownat(dir, path, owner, group, AT_SYMLINK_NOFOLLOW)) }
    }
    fn [fchownat](
        dir: c_int, path: *const c_char, owner: uid_t, group: gid_t, flags: c_int,
    ) -> c_int {
        // SAFETY: as in `chmod`.
        unsafe { change_attributes(dir, path, |dir, path| real::fchownat(dir, path, owner, group, flags)) }
    }
    fn [utime](path: *const c_char, times: *const utimbuf) -> c_int {
        // SAFETY: as in `chmod`.
        unsafe { change_attributes(HERE, path, |dir, path| if dir == HERE { real::utime(path, times) } else { -1 }) }
    }
    fn [utimes](path: *const c_char, times: *const timeval) -> c_int {
        // SAFETY: as in `chmod`.
        unsafe { change_attributes(HERE, path, |dir, path| if dir == HERE { real::utimes(path, times) } else { -1 }) }
    }
    fn [utimensat](
        dir: c_int, path: *const c_char, times: *const timespec, flags: c_int,
    ) -> c_int {
        // SAFETY: as in `chmod`.
        unsafe { change_attributes(dir, path, |dir, path| real::utimensat(dir, path, times, flags)) }
    }
}

/// # Safety
/// `path` is what the real call gets.
unsafe fn change_attributes(
    dir: c_int,
    path: *const c_char,
    call: impl Fn(c_int, *const c_char) -> c_int,
) -> c_int {
    let result = call(dir, path);
    if result == 0 {
        return result;
    }
    let instead = |name, errno| {
        let temporary = || {
            let (directory, file) = files::elsewhere(name, errno)?;
            (call(directory.as_raw_fd(), file.as_ptr().cast()) == 0).then_some(Ok(0))
        };
        files::change(name, errno).or_else(temporary)
    };
    // SAFETY: the caller's promise.
    unsafe { end_failed(dir, path, instead) }
}
