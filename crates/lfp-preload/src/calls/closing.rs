//! close(2) and other calls that close descriptors: in ports mode, closing the last descriptor of a port
//! releases it. If no port is taken, this costs one read of memory more than the real call.

use std::ffi::{c_int, c_uint};

use libc::CLOSE_RANGE_CLOEXEC;

use super::calls;
use crate::locks;
use crate::ports;
use crate::real;

calls! {
    fn [close](fd: c_int) -> c_int {
        // SAFETY: the caller's promise, handed on; so in all calls of this file.
        closed(fd, fd, || unsafe { real::close(fd) })
    }
    fn [dup2](old: c_int, new: c_int) -> c_int {
        // SAFETY: as in `close`.
        replaced(old, new, || unsafe { real::dup2(old, new) })
    }
    fn [dup3](old: c_int, new: c_int, flags: c_int) -> c_int {
        // SAFETY: as in `close`.
        replaced(old, new, || unsafe { real::dup3(old, new, flags) })
    }
    fn [close_range](first: c_uint, last: c_uint, flags: c_int) -> c_int {
        let bound = |fd: c_uint| c_int::try_from(fd).unwrap_or(c_int::MAX);
        // SAFETY: as in `close`.
        let call = || unsafe { real::close_range(first, last, flags) };
        // close_range(2): with this flag they stay open until the process becomes another program.
        let is_later = c_uint::from_ne_bytes(flags.to_ne_bytes()) & CLOSE_RANGE_CLOEXEC != 0;
        if is_later { call() } else { closed(bound(first), bound(last), call) }
    }
    fn [closefrom](first: c_int) -> () {
        closed(first, c_int::MAX, || {
            // SAFETY: as in `close`.
            unsafe { real::closefrom(first) };
            0
        });
    }
}

/// Makes a call that closes `new`, unless that is `old`, or `old` is no descriptor.
fn replaced(old: c_int, new: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if old == new || !locks::none() && !real::is_open(old) {
        return call();
    }
    closed(new, new, call)
}

/// Makes a call that closes these descriptors.
pub(super) fn closed(first: c_int, last: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if locks::none() {
        return call();
    }
    let before = real::errno();
    let range = first..=last;
    let ports = ports::leaving(&range);
    ports::share(&ports, &range);
    real::set_errno(before);
    let result = call();
    let errno = real::errno();
    ports::left(&ports);
    real::set_errno(errno);
    result
}
