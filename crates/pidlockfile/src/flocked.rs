//! A file that can keep others out by `flock(2)` for as long as a value lives.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};

static HAS_CHILDREN: AtomicBool = AtomicBool::new(true);

use crate::errno::Errno;
use crate::sys;

/// For a program that starts no other process from now on: no child has its descriptors, so it closes a file without
/// unlocking it before.
#[cfg(feature = "program")]
pub fn without_children() {
    HAS_CHILDREN.store(false, Ordering::Relaxed);
}

/// Ends `flock(2)` on a file that is closed next: a process that was forked meanwhile has the descriptor as well, so
/// closing it would not be enough.
pub(crate) fn unlock_before_close(file: &File) {
    if HAS_CHILDREN.load(Ordering::Relaxed) {
        // It goes with the last descriptor at the latest.
        let _ = sys::unlock_inode(file);
    }
}

/// A file, and perhaps `flock(2)` on it, which ends with this value.
#[derive(Debug)]
pub(crate) struct Flocked {
    pub(crate) file: File,
    is_ours: AtomicBool,
}

impl Flocked {
    /// A file that was opened to be read.
    pub(crate) fn readable(file: File) -> Self {
        Self { file, is_ours: false.into() }
    }

    /// A file that was opened to be written, which on Windows keeps others out already.
    pub(crate) fn writable(file: File) -> Self {
        Self { file, is_ours: cfg!(windows).into() }
    }

    /// A file that is held already, by an opening that another value may share: this one does not unlock it.
    pub(crate) fn lent(file: File) -> Self {
        Self { file, is_ours: false.into() }
    }

    /// Asks for `flock(2)`; `false` while another process has it.
    pub(crate) fn try_lock(&self) -> Result<bool, Errno> {
        if !self.is_ours.load(Ordering::Relaxed) {
            self.is_ours.store(sys::try_lock_inode(&self.file)?, Ordering::Relaxed);
        }
        Ok(self.is_ours.load(Ordering::Relaxed))
    }
}

impl Drop for Flocked {
    fn drop(&mut self) {
        if *self.is_ours.get_mut() {
            unlock_before_close(&self.file);
        }
    }
}
