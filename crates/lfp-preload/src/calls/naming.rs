//! link(2), rename(2), unlink(2), remove(3): the calls that make and remove locks.

use std::ffi::{c_char, c_int, c_uint};

use libc::F_OK;
use rustix::io::Errno;

use super::{calls, failed, failure, settle, settled};
use crate::files::{self, Verb, may_change};
use crate::real::{self, HERE};

calls! {
    fn [link](old: *const c_char, new: *const c_char) -> c_int {
        // SAFETY: the caller's promise, handed on; so in all calls of this file.
        unsafe { named((HERE, old), (HERE, new), Verb::Link, real::linkat(HERE, old, HERE, new, 0)) }
    }
    fn [linkat](
        old_dir: c_int, old: *const c_char, new_dir: c_int, new: *const c_char, flags: c_int,
    ) -> c_int {
        // SAFETY: as in `link`.
        unsafe { named((old_dir, old), (new_dir, new), Verb::Link,
            real::linkat(old_dir, old, new_dir, new, flags)) }
    }
    fn [rename](old: *const c_char, new: *const c_char) -> c_int {
        // SAFETY: as in `link`.
        unsafe { named((HERE, old), (HERE, new), Verb::Rename, real::renameat(HERE, old, HERE, new)) }
    }
    fn [renameat](
        old_dir: c_int, old: *const c_char, new_dir: c_int, new: *const c_char,
    ) -> c_int {
        // SAFETY: as in `link`.
        unsafe { named((old_dir, old), (new_dir, new), Verb::Rename,
            real::renameat(old_dir, old, new_dir, new)) }
    }
    fn [renameat2](
        old_dir: c_int, old: *const c_char, new_dir: c_int, new: *const c_char, flags: c_uint,
    ) -> c_int {
        // SAFETY: as in `link`.
        unsafe { named((old_dir, old), (new_dir, new), Verb::Rename,
            real::renameat2(old_dir, old, new_dir, new, flags)) }
    }
    fn [unlink](path: *const c_char) -> c_int {
        // SAFETY: as in `link`.
        unsafe { removed(HERE, path, real::unlinkat(HERE, path, 0)) }
    }
    fn [unlinkat](dir: c_int, path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: as in `link`.
        unsafe { removed(dir, path, real::unlinkat(dir, path, flags)) }
    }
    fn [remove](path: *const c_char) -> c_int {
        // SAFETY: as in `link`.
        unsafe { removed(HERE, path, real::remove(path)) }
    }
}

/// # Safety
/// The paths are what the real call got.
unsafe fn named(
    old: (c_int, *const c_char),
    new: (c_int, *const c_char),
    verb: Verb,
    result: c_int,
) -> c_int {
    if result == 0 {
        return result;
    }
    let errno = failure();
    // The kernel may have missed the old name before it has read the new one.
    // SAFETY: it judges the pointer now.
    let is_bad = may_change(errno) && unsafe { real::faccessat(HERE, new.1, F_OK, 0) } != 0;
    if is_bad && failure() == Errno::FAULT {
        return settle(None, errno);
    }
    // SAFETY: the caller's promise.
    let (old, new) = unsafe { (failed(old.0, old.1, errno), failed(new.0, new.1, errno)) };
    let instead = old.zip(new).and_then(|(old, new)| files::name(old, new, verb, errno));
    settle(instead, errno)
}

/// # Safety
/// The path is what the real call got.
unsafe fn removed(dir: c_int, path: *const c_char, result: c_int) -> c_int {
    if result == 0 {
        return result;
    }
    // SAFETY: the caller's promise.
    unsafe { settled(dir, path, files::remove) }
}
