//! The command under `dflock run`: it has its own process group, and dies when `dflock` dies.

use crate::program::outcome::Survivors;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getppid};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use wrapcmd::exit;

/// A started command and everything it starts, as long as that stays in its group.
pub(super) struct Child {
    pub(super) group: Pid,
}

/// What became of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It ended, with this exit code as a shell would give it.
    Ended(u8),
    /// It was stopped by this signal, most often by Ctrl-Z.
    Stopped(Signal),
    /// Nothing new.
    Nothing,
}

impl Child {
    /// Starts the step before the command, which leads the group.
    pub(super) fn start(mut step: Command) -> io::Result<Self> {
        let child = step.process_group(0).spawn()?;
        let pid = i32::try_from(child.id()).map_err(|_| io::Error::from(io::ErrorKind::Other))?;
        Ok(Self { group: Pid::from_raw(pid) })
    }

    /// Sends a signal to the command and what it started. It may be gone.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = killpg(self.group, signal);
    }

    /// Kills the whole group. Returns whether at least one process of it may be killed.
    pub(super) fn kill(&self) -> bool {
        killpg(self.group, Signal::SIGKILL) != Err(Errno::EPERM)
    }

    /// The processes of the group that are left.
    pub(super) fn survivors(&self) -> Option<Survivors> {
        let number = self.group.as_raw();
        self.is_populated().then(|| match kill(self.group, None) {
            Err(Errno::ESRCH) => Survivors::Group(number),
            Ok(()) | Err(_) => Survivors::Command(number),
        })
    }

    /// Whether anybody is left in the group. Not being allowed to ask means there is.
    pub(super) fn is_populated(&self) -> bool {
        killpg(self.group, None) != Err(Errno::ESRCH)
    }

    /// What became of the command since the last call. Does not wait.
    pub(super) fn change(&self) -> Change {
        match waitpid(self.group, Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED)) {
            Ok(WaitStatus::Exited(_, code)) => {
                Change::Ended(u8::try_from(code & 0xff).unwrap_or(1))
            }
            Ok(WaitStatus::Signaled(_, signal, _)) => Change::Ended(exit::by_signal(signal as i32)),
            Ok(WaitStatus::Stopped(_, signal)) => Change::Stopped(signal),
            Ok(_) | Err(_) => Change::Nothing,
        }
    }
}

/// That this process ends with the one that started it, where the system can do that.
pub(in crate::program) struct Tie(());

impl Tie {
    /// Nothing when that one has ended already.
    pub(in crate::program) fn to_parent(parent: u32) -> Option<Self> {
        let is_tied = die_with_parent().is_ok();
        (is_tied && u32::try_from(getppid().as_raw()) == Ok(parent)).then_some(Self(()))
    }

    /// Becomes the command; comes back with the reason when it cannot.
    pub(in crate::program) fn run(self, mut command: Command) -> io::Result<u8> {
        Err(command.exec())
    }
}

/// Has the kernel kill this process when the thread that started it ends (prctl(2)).
#[cfg(target_os = "linux")]
fn die_with_parent() -> io::Result<()> {
    Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?)
}

/// Has the kernel kill this process when its parent ends (procctl(2), `PROC_PDEATHSIG_CTL`). Type-checked, never run so
/// far.
#[cfg(target_os = "freebsd")]
fn die_with_parent() -> io::Result<()> {
    use rustix::process::{Signal, set_parent_process_death_signal};

    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// The system cannot do that: a command outlives a `dflock` that was killed with SIGKILL, and goes on without its lock
/// when the lease is over.
#[cfg(not(any(target_os = "linux", target_os = "freebsd")))]
fn die_with_parent() -> io::Result<()> {
    Ok(())
}
