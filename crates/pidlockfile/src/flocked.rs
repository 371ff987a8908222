//! A file that keeps others out by `flock(2)` for as long as a value lives.

use std::fs::File;

use crate::errno::Errno;
use crate::sys;

/// A file with `flock(2)` on it, which ends with this value, even if another process has inherited the descriptor.
#[derive(Debug)]
pub(crate) struct Flocked(File);

impl Flocked {
    /// One that was opened to write; `None` while another process has it.
    pub(crate) fn try_lock(file: File) -> Result<Option<Self>, Errno> {
        Ok(sys::try_lock_writable(&file)?.then_some(Self(file)))
    }

    pub(crate) fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for Flocked {
    fn drop(&mut self) {
        // It goes with the last descriptor at the latest.
        let _ = sys::unlock_inode(&self.0);
    }
}
