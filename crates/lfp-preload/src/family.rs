//! The ancestors of a process.

use pidlockfile::Pid;
use pidlockfile::process::{Stat, descends_from};

use crate::contents;

/// More than the longest `/proc/PID/stat`.
const STAT_BYTES: usize = 2048;

/// Whether `other` is this process, or one that it descends from.
pub(crate) fn includes(other: Pid) -> bool {
    descends_from(other, parent)
}

/// Read past the C library: its calls are our own here.
fn parent(child: Pid) -> Option<Pid> {
    Pid::new(Stat::parse(&contents::of(&format!("/proc/{child}/stat"), STAT_BYTES)?)?.parent)
}
