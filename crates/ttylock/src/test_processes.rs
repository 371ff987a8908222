//! Process numbers for tests.

use std::process::{Child, Command};

use pidlockfile::Pid;

/// The number of a process that has ended: here no process has it.
pub(crate) fn ended() -> Pid {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    pid_of(&child)
}

pub(crate) fn pid_of(child: &Child) -> Pid {
    Pid::new(child.id().into()).unwrap()
}
