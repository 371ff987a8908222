//! Signals as something to wait for (signalfd(2)), so that none arrives between taking a lock and
//! knowing that it was taken.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::watch::Alarm;

/// Signals that ask a program to end, or that a command may want to hear.
const ENDING: [Signal; 7] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGALRM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// From here on no signal interrupts: the work is too short to matter, and its result is told.
/// Never fails in a way that could be acted upon.
pub(crate) fn hold_off() {
    let _ = ENDING.iter().copied().collect::<SigSet>().thread_block();
}

/// One signal that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) signal: Signal,
    pub(crate) sender: Sender,
}

/// Where a signal comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// The kernel; for the signals here a terminal, which tells its whole process group.
    Kernel,
    /// A process.
    Process,
}

/// The signals of this process, readable. Those that were ignored when the program began stay
/// ignored (nohup(1)).
#[derive(Debug)]
pub(crate) struct Signals {
    fd: SignalFd,
    added: u64,
}

impl Signals {
    /// Holds the ending signals off and makes them readable, `more` included.
    pub(crate) fn catch(more: &[Signal]) -> nix::Result<Self> {
        let ignored = ignored_signals();
        let heard = ENDING.into_iter().filter(|signal| !is_in(*signal, ignored));
        let set: SigSet = heard.chain(more.iter().copied()).collect();
        let before = set.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let added = set.iter().filter(|signal| !before.contains(*signal));
        let added = added.filter_map(bit).fold(0, |mask, bit| mask | (1 << bit));
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self { fd, added })
    }

    /// What this holds off that was not held off before, for [`let_through`].
    pub(crate) fn added(&self) -> u64 {
        self.added
    }

    /// The next signal that has arrived. Does not wait.
    pub(crate) fn next(&self) -> Option<Arrived> {
        /// `si_code` of what the kernel itself sends (sigaction(2)).
        const SI_KERNEL: i32 = 0x80;
        loop {
            let info = self.fd.read_signal().ok()??;
            let number = i32::try_from(info.ssi_signo).ok()?;
            if let Ok(signal) = Signal::try_from(number) {
                let kernel = info.ssi_code == SI_KERNEL;
                let sender = if kernel { Sender::Kernel } else { Sender::Process };
                return Some(Arrived { signal, sender });
            }
        }
    }
}

impl Alarm for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The first ending signal; a child that ended does not end a wait.
    fn ring(&self) -> Option<i32> {
        let mut arrived = std::iter::from_fn(|| self.next());
        arrived.find(|arrived| arrived.signal != Signal::SIGCHLD).map(|first| first.signal as i32)
    }
}

/// The mask of ignored signals, bit n-1 for signal n (proc(5), `SigIgn`).
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

pub(crate) fn is_ignored(signal: Signal) -> bool {
    is_in(signal, ignored_signals())
}

fn is_in(signal: Signal, mask: u64) -> bool {
    bit(signal).and_then(|bit| mask.checked_shr(bit)).is_some_and(|rest| rest & 1 == 1)
}

/// A signal's place in a mask of the kernel's.
fn bit(signal: Signal) -> Option<u32> {
    u32::try_from(signal as i32).ok()?.checked_sub(1).filter(|bit| *bit < u64::BITS)
}

/// Lets signals through again that another process held off and this one inherited: a child has
/// its parent's mask (the standard library does not change that), a command must not.
pub(crate) fn let_through(mask: u64) {
    let set: SigSet = Signal::iterator().filter(|signal| is_in(*signal, mask)).collect();
    let _ = set.thread_unblock();
}
