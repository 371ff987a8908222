//! Linux: signalfd(2), proc(5).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::Command;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::{Arrived, Sender, hand_on_path};

/// Signals that are held off, readable.
#[derive(Debug)]
pub(crate) struct Caught(SignalFd);

impl Caught {
    /// Makes signals readable that are held off already.
    pub(crate) fn these(set: &SigSet) -> nix::Result<Self> {
        SignalFd::with_flags(set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map(Self)
    }

    /// The next one that has arrived. Does not wait.
    pub(crate) fn next(&self) -> Option<Arrived> {
        /// `si_code` of what the kernel itself sends (sigaction(2)).
        const SI_KERNEL: i32 = 0x80;
        loop {
            let info = self.0.read_signal().ok()??;
            let number = i32::try_from(info.ssi_signo).ok()?;
            if let Ok(signal) = Signal::try_from(number) {
                let kernel = info.ssi_code == SI_KERNEL;
                let sender = if kernel { Sender::Kernel } else { Sender::Process };
                return Some(Arrived { signal, sender });
            }
        }
    }
}

impl AsFd for Caught {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The mask of the signals that are ignored, bit n-1 for signal n (proc(5), `SigIgn`). The kernel
/// takes its time to put that file together.
pub(crate) fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// This very program, to be started with fork(2) and execvp(3): posix_spawn(3), which the standard
/// library prefers, leaves signals 32 and 33, the C library's own, ignored in the child and in every
/// program after it. It does not prefer it when the program is looked for in another PATH; the real one is
/// handed on.
pub(crate) fn itself() -> io::Result<Command> {
    let mut command = Command::new("exe");
    command.env("PATH", "/proc/self");
    hand_on_path(&mut command);
    Ok(command)
}
