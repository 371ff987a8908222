//! A holder of a device as a value: the process, the scheme of its lock, and whether it is alive; and what a search for
//! holders finds. Pure.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use pidlockfile::Pid;

/// Something that keeps a device busy, or did so.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The device, as a name below `/dev`; for a lock file whose device is unknown, what its name
    /// says.
    pub device: String,
    /// How it is held.
    pub scheme: Scheme,
    /// The process, if it is known.
    pub pid: Option<Pid>,
    /// The user of the process, as a uid; of a process that has ended, the user that was noted.
    pub user: Option<u32>,
    /// The owner of the lock file, as a uid: often the user of the holder, but not if a service made the file.
    pub owner: Option<u32>,
    /// The name of the process (proc(5), `comm`), in printable ASCII; without one, what the lock file says.
    pub command: Option<String>,
    /// When the lock file was written. The kernel does not tell when a flock was taken.
    pub since: Option<SystemTime>,
    /// Whether the holder is still there.
    pub standing: Standing,
}

/// The lock schemes that programs use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Scheme {
    /// A UUCP or FHS lock file, by name.
    Uucp(PathBuf),
    /// A lock file by device number, as SVR4, Solaris, gensio and liblockdev make them.
    Svr4(PathBuf),
    /// `flock(2)` on the device node.
    Flock,
    /// The device is open without any lock, as far as `/proc` lets the asker see.
    Open,
    /// The device is open, and the kernel refuses it to all others but root (`TIOCEXCL`). This is no lock: it says
    /// nothing about who may have the device next.
    Exclusive,
}

/// Whether a holder is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a program decides about each")]
pub enum Standing {
    /// The process exists.
    Alive,
    /// The process has ended, or another process has its number: the next LOCK takes the device.
    Stale,
    /// The lock file names no process, or cannot be read.
    Unknown,
    /// A file that any user could have put there and that is not the lock of the process that it names: it keeps no
    /// other process out.
    Ignored,
}

impl Holder {
    /// A holder of which nothing else is known.
    pub fn new(device: impl Into<String>, scheme: Scheme, standing: Standing) -> Self {
        Self {
            device: device.into(),
            scheme,
            pid: None,
            user: None,
            owner: None,
            command: None,
            since: None,
            standing,
        }
    }
}

impl Scheme {
    /// One word for tables and protocol: `uucp`, `svr4`, `flock`, `open`, `exclusive`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Uucp(_) => "uucp",
            Self::Svr4(_) => "svr4",
            Self::Flock => "flock",
            Self::Open => "open",
            Self::Exclusive => "exclusive",
        }
    }

    /// The lock file, if it is one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Uucp(path) | Self::Svr4(path) => Some(path),
            Self::Flock | Self::Open | Self::Exclusive => None,
        }
    }

    /// Whether it is a lock, which others can take over by the rules of locks. An open port is not one.
    #[must_use]
    pub fn is_lock(&self) -> bool {
        match self {
            Self::Uucp(_) | Self::Svr4(_) | Self::Flock => true,
            Self::Open | Self::Exclusive => false,
        }
    }
}

impl Standing {
    /// `alive`, `stale`, `unknown` or `ignored`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Stale => "stale",
            Self::Unknown => "unknown",
            Self::Ignored => "ignored",
        }
    }

    /// Whether the holder may exist: it is neither dead nor ignored.
    #[must_use]
    pub fn is_standing(self) -> bool {
        match self {
            Self::Alive | Self::Unknown => true,
            Self::Stale | Self::Ignored => false,
        }
    }
}

impl Holder {
    /// Whether it keeps others from their lock: a program that merely has the device open does not.
    #[must_use]
    pub fn keeps_out(&self) -> bool {
        self.scheme.is_lock() && self.standing.is_standing()
    }

    /// A holder of which only the lock is known.
    pub(super) fn unknown(device: &str, scheme: Scheme) -> Self {
        Self::new(device, scheme, Standing::Unknown)
    }
}

/// `held by minicom (process 4711)`: the holders that keep others out, in words.
#[must_use]
pub fn held_by(holders: &[Holder]) -> String {
    let keeps_out = holders.iter().filter(|holder| holder.keeps_out());
    let name = |holder: &Holder| match (&holder.command, holder.pid) {
        (Some(command), Some(pid)) => format!("{command} (process {pid})"),
        (None, Some(pid)) => format!("process {pid}"),
        (Some(command), None) => command.clone(),
        (None, None) => "another process".to_owned(),
    };
    let mut names: Vec<String> = keeps_out.map(name).collect();
    names.dedup();
    match names.is_empty() {
        true => "held by another process".to_owned(),
        false => format!("held by {}", names.join(", ")),
    }
}

/// The holders of one device, or of all serial devices.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Survey {
    /// The real node of the one device, as a name below `/dev`.
    pub port: Option<String>,
    /// The holders, also those that have ended.
    pub holders: Vec<Holder>,
    /// Whether the search came to its end. If not, there may be further holders.
    pub is_complete: bool,
    /// Holders that no search finds from here.
    pub out_of_sight: OutOfSight,
}

impl Survey {
    /// Of these holders. None is out of sight.
    #[must_use]
    pub fn new(holders: Vec<Holder>, is_complete: bool) -> Self {
        Self { port: None, holders, is_complete, out_of_sight: OutOfSight::default() }
    }
}

/// Holders that may be there and that no search of this process finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutOfSight {
    /// Those outside this pid namespace, as outside a container: neither their locks without lock files nor their open
    /// ports are shown (`/proc/locks` in proc_locks(5), pid_namespaces(7)).
    pub outside: bool,
    /// Programs of other users that have a port open without any lock: only a process that may examine every other one
    /// sees them (`/proc/PID/fd` in proc_pid_fd(5), `hidepid` in proc(5)).
    pub of_other_users: bool,
}

impl OutOfSight {
    /// Whether every holder can be seen.
    #[must_use]
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }

    /// The word for it in the answer to STAT; `None` for nothing.
    #[must_use]
    pub fn word(self) -> Option<&'static str> {
        match (self.outside, self.of_other_users) {
            (false, false) => None,
            (true, false) => Some("outside"),
            (false, true) => Some("users"),
            (true, true) => Some("outside,users"),
        }
    }

    /// The same from its word. Unknown ones are ignored, as later services may have more.
    #[must_use]
    pub fn from_word(word: &str) -> Self {
        let has = |one: &str| word.split(',').any(|each| each == one);
        Self { outside: has("outside"), of_other_users: has("users") }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::uucp(Scheme::Uucp("/run/lock/LCK..ttyS0".into()), "uucp", true)]
    #[case::svr4(Scheme::Svr4("/run/lock/LK.005.004.064".into()), "svr4", true)]
    #[case::flock(Scheme::Flock, "flock", true)]
    #[case::open(Scheme::Open, "open", false)]
    #[case::exclusive(Scheme::Exclusive, "exclusive", false)]
    fn a_living_holder_keeps_others_out_by_a_lock_alone(
        #[case] scheme: Scheme,
        #[case] word: &str,
        #[case] is_lock: bool,
    ) {
        let mut holder = Holder::unknown("ttyS0", scheme);
        assert_eq!(holder.scheme.word(), word);
        for (standing, word, may_exist) in [
            (Standing::Alive, "alive", true),
            (Standing::Unknown, "unknown", true),
            (Standing::Stale, "stale", false),
            (Standing::Ignored, "ignored", false),
        ] {
            assert_eq!(standing.word(), word);
            holder.standing = standing;
            assert_eq!(holder.keeps_out(), is_lock && may_exist, "{word}");
        }
    }

    #[rstest]
    #[case::all(Some("minicom"), Some(4711), "held by minicom (process 4711)")]
    #[case::no_command(None, Some(4711), "held by process 4711")]
    #[case::no_process(Some("minicom"), None, "held by minicom")]
    #[case::nothing(None, None, "held by another process")]
    fn holders_are_named_once(
        #[case] command: Option<&str>,
        #[case] pid: Option<i64>,
        #[case] text: &str,
    ) {
        let held = Holder {
            command: command.map(str::to_owned),
            pid: pid.and_then(Pid::new),
            ..Holder::unknown("ttyS0", Scheme::Flock)
        };
        let gone = Holder { standing: Standing::Stale, command: None, pid: None, ..held.clone() };
        assert_eq!(held_by(&[held.clone(), gone, held]), text);
    }

    #[rstest]
    #[case::nothing(None, false, false)]
    #[case::containers(Some("outside"), true, false)]
    #[case::users(Some("users"), false, true)]
    #[case::both(Some("outside,users"), true, true)]
    fn it_has_a_word(
        #[case] word: Option<&str>,
        #[case] outside: bool,
        #[case] of_other_users: bool,
    ) {
        let unseen = OutOfSight { outside, of_other_users };
        assert_eq!(unseen.word(), word);
        assert_eq!(OutOfSight::from_word(word.unwrap_or_default()), unseen);
        assert_eq!(OutOfSight::from_word(&format!("{},new", word.unwrap_or_default())), unseen);
        assert_eq!(unseen.is_nothing(), word.is_none());
    }
}
