//! A holder of a device as a value: the process, the scheme of its lock, and whether it is alive. Pure.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use pidlockfile::Pid;

/// Somebody, or something, that keeps a device busy, or did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The device, as a name below `/dev`; for a lock file whose device is unknown, what its name
    /// says.
    pub device: String,
    /// By what it is held.
    pub scheme: Scheme,
    /// The process, if one is named.
    pub pid: Option<Pid>,
    /// The user the process belongs to, as a uid; of one that is gone, as far as it was noted.
    pub user: Option<u32>,
    /// The user the lock file belongs to, as a uid: often the holder, but not where a service
    /// made it for him.
    pub owner: Option<u32>,
    /// The command line of the process, cleaned and cut; without one, what the lock file says.
    pub command: Option<String>,
    /// When the lock file was written. The kernel does not tell when a flock was taken.
    pub since: Option<SystemTime>,
    /// Whether the holder is still there.
    pub standing: Standing,
}

/// The lock schemes of the field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scheme {
    /// A UUCP or FHS lock file, by name.
    Uucp(PathBuf),
    /// A lock file by device number, as SVR4, Solaris, gensio and liblockdev make them.
    Svr4(PathBuf),
    /// `flock(2)` on the device node.
    Flock,
    /// The device is open without any lock, as far as `/proc` lets the asker see.
    Open,
}

/// Whether a holder is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The process exists.
    Alive,
    /// The process is gone, or its number was given to another: the next LOCK takes the device.
    Stale,
    /// The lock file names no process, or cannot be read.
    Unknown,
    /// Anybody could have put it there, and it is not the lock of the process that it names: it keeps
    /// nobody out.
    Claim,
}

impl Scheme {
    /// One word for tables and protocol: `uucp`, `svr4`, `flock`, `open`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Uucp(_) => "uucp",
            Self::Svr4(_) => "svr4",
            Self::Flock => "flock",
            Self::Open => "open",
        }
    }

    /// The lock file, if it is one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Uucp(path) | Self::Svr4(path) => Some(path),
            Self::Flock | Self::Open => None,
        }
    }
}

impl Standing {
    /// `alive`, `stale`, `unknown` or `claim`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Stale => "stale",
            Self::Unknown => "unknown",
            Self::Claim => "claim",
        }
    }

    /// Whether somebody may be there: neither dead nor a mere claim.
    #[must_use]
    pub fn is_standing(self) -> bool {
        match self {
            Self::Alive | Self::Unknown => true,
            Self::Stale | Self::Claim => false,
        }
    }
}

impl Holder {
    /// Whether it keeps others from their lock: a program that merely has the device open does not.
    #[must_use]
    pub fn keeps_out(&self) -> bool {
        self.scheme != Scheme::Open && self.standing.is_standing()
    }

    /// Somebody of whom nothing is known but what he holds.
    pub(super) fn unknown(device: &str, scheme: Scheme) -> Self {
        Self {
            device: device.to_owned(),
            scheme,
            pid: None,
            user: None,
            owner: None,
            command: None,
            since: None,
            standing: Standing::Unknown,
        }
    }
}
