//! Process numbers for tests.

use std::process::{Child, Command};

use pidlockfile::Pid;

/// A number that no process has, the smallest: the kernel gives out numbers below `pid_max`, which is this at most
/// (proc(5)).
pub(crate) fn no_process() -> Pid {
    Pid::new(4_194_304).unwrap()
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
