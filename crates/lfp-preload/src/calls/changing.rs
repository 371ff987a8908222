//! chmod(2), chown(2), utime(2): on a program's own lock they succeed without effect; temporary files are
//! changed where they are.

use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd;

use libc::{AT_SYMLINK_NOFOLLOW, gid_t, mode_t, timespec, timeval, uid_t, utimbuf};

use super::{calls, settled};
use crate::files;
use crate::real::{self, HERE};

calls! {
    fn [chmod](path: *const c_char, mode: mode_t) -> c_int {
        // SAFETY: the caller's promise, handed on; so in all calls of this file.
        unsafe { changed(HERE, path, |dir, path| real::fchmodat(dir, path, mode, 0)) }
    }
    fn [fchmodat](dir: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int {
        // SAFETY: as in `chmod`.
        unsafe { changed(dir, path, |dir, path| real::fchmodat(dir, path, mode, flags)) }
    }
    fn [chown](path: *const c_char, owner: uid_t, group: gid_t) -> c_int {
        // SAFETY: as in `chmod`.
        unsafe { changed(HERE, path, |dir, path| real::fchownat(dir, path, owner, group, 0)) }
    }
    fn [lchown](path: *const c_char, owner: uid_t, group: gid_t) -> c_int {
        // SAFETY: as in `chmod`.
        unsafe { changed(HERE, path, |dir, path|
            real::fchownat(dir, path, owner, group, AT_SYMLINK_NOFOLLOW)) }
    }
    fn [fchownat](
        dir: c_int, path: *const c_char, owner: uid_t, group: gid_t, flags: c_int,
    ) -> c_int {
        // SAFETY: as in `chmod`.
        unsafe { changed(dir, path, |dir, path| real::fchownat(dir, path, owner, group, flags)) }
    }
    fn [utime](path: *const c_char, times: *const utimbuf) -> c_int {
        // SAFETY: as in `chmod`.
        unsafe { changed(HERE, path, |dir, path| if dir == HERE { real::utime(path, times) } else { -1 }) }
    }
    fn [utimes](path: *const c_char, times: *const timeval) -> c_int {
        // SAFETY: as in `chmod`.
        unsafe { changed(HERE, path, |dir, path| if dir == HERE { real::utimes(path, times) } else { -1 }) }
    }
    fn [utimensat](
        dir: c_int, path: *const c_char, times: *const timespec, flags: c_int,
    ) -> c_int {
        // SAFETY: as in `chmod`.
        unsafe { changed(dir, path, |dir, path| real::utimensat(dir, path, times, flags)) }
    }
}

/// # Safety
/// `path` is what the real call gets.
unsafe fn changed(
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
    unsafe { settled(dir, path, instead) }
}
