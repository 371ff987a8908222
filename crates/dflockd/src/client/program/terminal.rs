//! The controlling terminal: lent to the command while it runs, taken back afterwards.
//!
//! Without a terminal, or in the background of one, every step does nothing.

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};
use std::fs::File;

/// A terminal in whose foreground we were started.
pub(super) struct Terminal(File);

impl Terminal {
    /// Nothing when we have no terminal or are not in its foreground.
    pub(super) fn ours() -> Option<Self> {
        let file = File::open("/dev/tty").ok()?;
        (tcgetpgrp(&file).ok()? == getpgrp()).then_some(Self(file))
    }

    /// Puts a process group into the foreground.
    pub(super) fn lend(&self, group: Pid) {
        // From the background, the system would stop us for asking; see tcsetpgrp(3).
        let mut stop = SigSet::empty();
        stop.add(Signal::SIGTTOU);
        if stop.thread_block().is_ok() {
            let _ = tcsetpgrp(&self.0, group);
        }
    }

    /// Puts ourselves back into the foreground.
    pub(super) fn take_back(&self) {
        self.lend(getpgrp());
    }

    /// Whether we are in the foreground (again).
    pub(super) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.0).is_ok_and(|group| group == getpgrp())
    }
}
