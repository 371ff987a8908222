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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_and_its_parent_but_no_other() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let parent = Pid::new(std::os::unix::process::parent_id().into()).unwrap();
        assert!(includes(Pid::this()) && includes(parent));
        assert!(!includes(Pid::new(child.id().into()).unwrap()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
