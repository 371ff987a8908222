//! The command under `dflock run`: its own process group, and dead when we are.
//!
//! Between us and the command stands one more step of this same program, which asks the kernel to
//! kill it when its parent dies and then becomes the command. Otherwise a `kill -9` of dflock
//! would free the lock and leave the command running.

use super::outcome::Failure;
use super::sys;
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid, getppid};
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;
use wrapcmd::exit;

/// The first argument of the step between; no subcommand has this name.
const STEP_WORD: &str = "become-command-of";
/// The parent is gone already: what KILL would have given.
const ORPHANED: u8 = 137;

/// A started command and everything it starts, as long as that stays in its group.
pub(super) struct Child {
    group: Pid,
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
    /// Starts the command with these additions to its environment. Must be called on the main
    /// thread: the kernel kills the command when the starting *thread* ends.
    pub(super) fn start(
        command: &[OsString],
        additions: &[(&str, &OsStr)],
    ) -> Result<Self, Failure> {
        let step = |itself| {
            Command::new(itself)
                .arg(STEP_WORD)
                .arg(getpid().to_string())
                .args(command)
                .envs(additions.iter().copied())
                .process_group(0)
                .spawn()
        };
        let child = sys::itself()
            .and_then(step)
            .map_err(|error| Failure::System("starting the command", error))?;
        let pid = i32::try_from(child.id())
            .map_err(|_| Failure::System("starting the command", io::ErrorKind::Other.into()))?;
        Ok(Self { group: Pid::from_raw(pid) })
    }

    pub(super) fn group(&self) -> Pid {
        self.group
    }

    /// Sends a signal to the command and what it started. It may be gone.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = killpg(self.group, signal);
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

/// The step between: when this process was started as such, becomes the command and does not
/// return; or returns the exit code that says why not.
pub(super) fn become_command() -> Option<u8> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != STEP_WORD {
        return None;
    }
    let parent = arguments.next().and_then(|pid| pid.to_str()?.parse().ok()).map(Pid::from_raw);
    if sys::die_with_parent().is_err() || parent != Some(getppid()) {
        return Some(ORPHANED);
    }
    let name = arguments.next()?;
    let error = Command::new(&name).args(arguments).exec();
    let _ = writeln!(io::stderr(), "dflock: {}: {error}", name.to_string_lossy());
    Some(if error.kind() == io::ErrorKind::NotFound {
        exit::NOT_FOUND
    } else {
        exit::NOT_EXECUTABLE
    })
}
