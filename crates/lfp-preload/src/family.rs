//! Whose locks are this process's as well.

use pidlockfile::Pid;
use pidlockfile::process::{Stat, shares_locks_of};

use crate::contents;

/// More than the longest `/proc/PID/stat`.
const STAT_BYTES: usize = 2048;

/// Whether a lock of `holder` is this process's as well, by the rule of `lfp run`.
pub(crate) fn shares_locks_of_holder(holder: Pid) -> bool {
    shares_locks_of(holder, parent)
}

/// Read past the C library: its calls are our own here.
fn parent(child: Pid) -> Option<Pid> {
    Pid::new(Stat::parse(&contents::read_file(&format!("/proc/{child}/stat"), STAT_BYTES)?)?.parent)
}
