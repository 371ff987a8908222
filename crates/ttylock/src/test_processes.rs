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

/// A process that lives until it is dropped.
pub(crate) struct Sleeper(Child);

impl Sleeper {
    pub(crate) fn new() -> Self {
        Self(Command::new("sleep").arg("1000").spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> Pid {
        pid_of(&self.0)
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
