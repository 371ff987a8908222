//! Programs that open serial ports, for `--watch-opens`: what is seen of them, and what is to be done.

mod events;
mod openers;
mod rounds;
#[cfg(target_os = "linux")]
mod watch;

use pidlockfile::Pid;

pub(super) use events::Deed;
pub(super) use openers::{Openers, Question, Verdict, Why};
pub(super) use rounds::{Begun, Looker, Rounds};
#[cfg(target_os = "linux")]
pub(super) use watch::OpenWatch;

/// Whether a daemon watches which processes open ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opens {
    /// No.
    Ignored,
    /// A port that is held open without a lock gets one.
    Watched,
}

/// What a process did to a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sight {
    pub(super) port: String,
    pub(super) pid: Pid,
    pub(super) deed: Deed,
}

/// What one reading told.
#[derive(Debug, Default)]
pub(super) struct News {
    pub(super) sights: Vec<Sight>,
    /// There was more than the kernel keeps in mind.
    pub(super) has_gap: bool,
}
