//! The functions that programs call instead of the C library's. Each makes the real call. Before one that opens, `ports`
//! is asked for the lock; after one that has failed, or has found a lock, `files` for the result. After one that closes,
//! `ports` releases the lock.
//!
//! Every function here has the prototype of the C library's function of the same name, and its callers
//! promise what they promise that one: paths are C strings and buffers are large enough. We read a path only
//! after the kernel has read it, so a bad pointer is EFAULT as usual.

#![expect(unsafe_code, reason = "the C interface")]
#![expect(clippy::missing_safety_doc, reason = "said above, for all of them")]

pub mod names;
pub mod opening;

use std::ffi::{CStr, c_char, c_int};

use rustix::io::Errno;

use crate::files::{Instead, Look, NamedPath, look, may_be_lock, may_change};
use crate::real;
use crate::settings::settings;

/// Defines the calls, exported by their names, except in the tests of this library itself: there they
/// would replace the calls of the tests. A call with several names is one call in the C library, too: on systems of
/// 64 bits, those for large files are the usual ones.
macro_rules! calls {
    ($(fn [$($name:ident)+] $args:tt -> $ret:ty $body:block)*) => {$($(
        #[doc = concat!("`", stringify!($name), "` of the C library.")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name $args -> $ret $body
    )+)*};
}
use calls;

// SAFETY: the dynamic loader calls what this section points to when it has loaded the library and
// those it needs; the function takes no arguments and comes back.
#[cfg_attr(not(test), used)]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
#[cfg_attr(test, expect(dead_code, reason = "only a loaded library is started"))]
static START: extern "C" fn() = start;

extern "C" fn start() {
    real::look_up();
    settings();
}

/// A path that the kernel has just read for the same call.
///
/// # Safety
/// Null, or a C string that lives as long as the call.
unsafe fn name<'a>(dir: c_int, path: *const c_char) -> Option<NamedPath<'a>> {
    if path.is_null() {
        return None;
    }
    // SAFETY: not null, and the caller's promise.
    Some(NamedPath { dir, path: unsafe { CStr::from_ptr(path) } })
}

/// A path of a call that has failed, if the error is one that may be ours to change. It is also one
/// that the kernel gives only when it has read the path: a bad pointer is EFAULT, and is not read
/// by us.
///
/// # Safety
/// As [`name`].
unsafe fn failed_path<'a>(dir: c_int, path: *const c_char, errno: Errno) -> Option<NamedPath<'a>> {
    if !may_change(errno) {
        return None;
    }
    // SAFETY: the caller's promise, and the kernel has read it.
    unsafe { name(dir, path) }
}

/// Ends a call that has failed: with what `instead` gives for its path, if the error is one that may be ours to change.
///
/// # Safety
/// As [`name`].
unsafe fn end_failed<'a>(
    dir: c_int,
    path: *const c_char,
    instead: impl FnOnce(NamedPath<'a>, Errno) -> Instead<c_int>,
) -> c_int {
    let errno = real_failure();
    // SAFETY: the caller's promise.
    let name = unsafe { failed_path(dir, path, errno) };
    end_with(name.and_then(|name| instead(name, errno)), errno)
}

/// The errno that the real call has left.
fn real_failure() -> Errno {
    Errno::from_raw_os_error(real::errno())
}

/// Ends a call that has failed: with what it shall say instead, or else as it was.
fn end_with(instead: Instead<c_int>, errno: Errno) -> c_int {
    let (result, errno) = match instead {
        Some(Ok(result)) => (result, errno),
        Some(Err(errno)) => (-1, errno),
        None => (-1, errno),
    };
    real::set_errno(errno.raw_os_error());
    result
}

/// Ends a call that has found a file. A lock of the program's own is hidden: `none` is the result then, and `forget` is
/// to be done with what was found. Where the lock of a dead process was removed, `again` makes the call once more.
///
/// # Safety
/// As [`name`].
unsafe fn unless_own<R: Copy>(
    dir: c_int,
    path: *const c_char,
    result: R,
    forget: impl FnOnce(R),
    again: impl FnOnce() -> R,
    none: R,
) -> R {
    // SAFETY: the caller's promise.
    let name = unsafe { name(dir, path) };
    let Some(name) = name.filter(|name| may_be_lock(name.path.to_bytes())) else { return result };
    let errno = real::errno();
    match look(name) {
        Look::Stands => {
            real::set_errno(errno);
            result
        }
        Look::Again => {
            forget(result);
            real::set_errno(errno);
            again()
        }
        Look::Hidden => {
            forget(result);
            real::set_errno(Errno::NOENT.raw_os_error());
            none
        }
    }
}
