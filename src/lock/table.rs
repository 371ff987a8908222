//! Taking and releasing the locks of a device: the only file that joins names, records and disk.

use std::path::PathBuf;

use super::{Answer, Request};

/// Where locks are written and looked for.
#[derive(Clone, Debug)]
pub struct Places {
    /// The system whose conventions apply.
    pub system: &'static crate::device::os::System,
    /// Where locks are written; the system's own directory unless an option says otherwise.
    pub lock_dir: PathBuf,
    /// Directories that are searched besides `lock_dir`.
    pub search_dirs: Vec<PathBuf>,
    /// Where start times of holders are kept, so that a reused pid is noticed.
    pub state_dir: PathBuf,
}

/// The locks of this machine, for one session or for a whole daemon.
#[derive(Debug)]
pub struct Table {
    places: Places,
}

impl Table {
    /// Opens nothing yet: directories that cannot be opened show in the answers.
    #[must_use]
    pub fn new(places: Places) -> Self {
        Self { places }
    }

    /// Takes every lock file of the device for the pid, or none.
    pub fn lock(&mut self, request: &Request) -> Answer {
        let _ = (&self.places, request);
        todo!("lands with the lock table")
    }

    /// Removes every lock file of the device that holds this pid or a dead one.
    pub fn unlock(&mut self, request: &Request) -> Answer {
        let _ = request;
        todo!("lands with the lock table")
    }
}
