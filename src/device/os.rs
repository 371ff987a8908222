//! The table of systems: lock directories, name forms and contents of every known Unix. Data only.

use std::path::PathBuf;

/// The conventions of one system.
#[derive(Debug, PartialEq, Eq)]
pub struct System {
    /// What `--os` calls it.
    pub name: &'static str,
    /// Where its programs write locks.
    pub lock_dir: &'static str,
    /// Where else its programs may have left locks.
    pub search_dirs: &'static [&'static str],
}

/// Every system, the one of this machine first.
pub const SYSTEMS: &[System] =
    &[System { name: "linux", lock_dir: "/var/lock", search_dirs: &["/run/lock"] }];

/// Finds a system by the name that `--os` takes.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static System> {
    SYSTEMS.iter().find(|system| system.name == name)
}

/// The system this program runs on.
#[must_use]
pub fn native() -> &'static System {
    &SYSTEMS[0]
}

impl System {
    /// The directories searched when no option replaces them.
    #[must_use]
    pub fn default_search_dirs(&self) -> Vec<PathBuf> {
        self.search_dirs.iter().map(PathBuf::from).collect()
    }
}
