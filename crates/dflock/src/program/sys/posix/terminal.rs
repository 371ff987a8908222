//! The controlling terminal: given to the command while it runs, taken back afterwards.
//!
//! Never takes the terminal from another process group: only the group in the foreground gives it away, and
//! it is taken back only from the group that got it. Without a terminal every step does nothing.

use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

/// The terminal of this session, if it has one.
pub(super) struct Terminal(Option<File>);

impl Terminal {
    /// Looks for it.
    pub(super) fn controlling() -> Self {
        Self(File::open("/dev/tty").ok())
    }

    /// Whether our process group is in the foreground.
    pub(super) fn is_ours(&self) -> bool {
        self.belongs_to(getpgrp())
    }

    /// Puts a group into the foreground in our place.
    pub(super) fn lend(&self, group: Pid) {
        self.hand_over(getpgrp(), group);
    }

    /// Puts ourselves back into the foreground in place of that group.
    pub(super) fn take_back(&self, group: Pid) {
        self.hand_over(group, getpgrp());
    }

    fn belongs_to(&self, group: Pid) -> bool {
        self.0.as_ref().is_some_and(|file| tcgetpgrp(file) == Ok(group))
    }

    fn hand_over(&self, from: Pid, to: Pid) {
        let Some(file) = self.0.as_ref().filter(|_| self.belongs_to(from)) else { return };
        // From the background, the system would stop us for asking; see tcsetpgrp(3).
        let mut stop = SigSet::empty();
        stop.add(Signal::SIGTTOU);
        if stop.thread_block().is_ok() {
            let _ = tcsetpgrp(file, to);
        }
    }
}

/// Whether we stand between others in a pipeline of a shell. They are in our process group and may
/// want the terminal (a pager behind us, somebody typing before us), so the command gets it only
/// when it asks.
pub(super) fn in_pipeline() -> bool {
    is_pipe(&io::stdin()) || is_pipe(&io::stdout())
}

fn is_pipe(descriptor: &impl AsFd) -> bool {
    let Ok(status) = fstat(descriptor) else { return false };
    let kind = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT;
    kind == SFlag::S_IFIFO || kind == SFlag::S_IFSOCK
}
