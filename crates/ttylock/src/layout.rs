//! The directories of devices, locks and records on a machine, and the dialect of its lock files.

use std::path::PathBuf;

use crate::dialects::Dialect;

/// Where start times of holders are kept unless an option says otherwise. Only Linux has `/run`.
pub const STATE_DIR: &str = if cfg!(target_os = "linux") { "/run/lfpd" } else { "/var/run/lfpd" };

/// Where locks are written and looked for. Begin with [`Layout::native`] or [`Layout::of`], and change some of it.
///
/// ```
/// use ttylock::{Layout, Table};
///
/// // A service in a container, whose lock directory is that of the machine.
/// let mut layout = Layout::native();
/// layout.lock_dir = "/host/run/lock".into();
/// let table = Table::new(layout);
/// # drop(table);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Layout {
    /// The system whose conventions apply.
    pub dialect: &'static Dialect,
    /// Where device nodes are: `/dev`, except in tests.
    pub dev_dir: PathBuf,
    /// Where locks are written; the system's own directory unless an option says otherwise.
    pub lock_dir: PathBuf,
    /// Directories that are searched besides `lock_dir`.
    pub search_dirs: Vec<PathBuf>,
    /// Where start times of holders are kept, so that a reused pid is noticed: [`STATE_DIR`] unless an option says
    /// otherwise.
    pub state_dir: PathBuf,
    /// Where udev keeps what it knows of devices: `/run/udev/data`, except in tests.
    pub udev_dir: PathBuf,
}

impl Dialect {
    /// That of the system this program was built for.
    #[must_use]
    pub fn native() -> &'static Self {
        Self::by_name(std::env::consts::OS).unwrap_or_else(Self::generic)
    }
}

impl Layout {
    /// Those of this machine, as its programs and the packaged service use them.
    #[must_use]
    pub fn native() -> Self {
        Self::of(Dialect::native())
    }

    /// As [`Layout::native`], with the conventions of this system.
    #[must_use]
    pub fn of(dialect: &'static Dialect) -> Self {
        Self {
            dialect,
            dev_dir: PathBuf::from("/dev"),
            lock_dir: dialect.lock_dir().to_owned(),
            search_dirs: Dialect::known_directories(),
            state_dir: PathBuf::from(STATE_DIR),
            udev_dir: PathBuf::from("/run/udev/data"),
        }
    }
}
