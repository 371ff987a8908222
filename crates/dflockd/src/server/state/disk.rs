//! The interfaces that the record needs: a place to write, the time. Pure.

use leases::Moment;
use std::io;

/// Has the index and the two files of holds, 0 and 1.
pub(super) trait Disk {
    /// Writes all of it.
    ///
    /// # Errors
    /// An error of the system; part of it may be written.
    fn write(&mut self, slot: usize, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes sure that this many bytes of a file can be written.
    ///
    /// # Errors
    /// An error of the system.
    fn reserve(&mut self, slot: usize, bytes: u64) -> io::Result<()>;

    /// Makes sure that a power cut loses nothing of a file.
    ///
    /// # Errors
    /// An error of the system.
    fn sync(&mut self, slot: usize) -> io::Result<()>;

    /// Writes into the file of the index, which is small.
    ///
    /// # Errors
    /// An error of the system.
    fn write_index(&mut self, at: usize, bytes: &[u8], synced: Synced) -> io::Result<()>;
}

/// The state of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// Everything can be written.
    Good,
    /// There is no room for further holds.
    Full,
    /// Nothing can be written.
    Broken,
}

/// Whether answers wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Synced {
    /// They wait, so that a power cut loses nothing.
    Yes,
    /// They wait only until the kernel has the data, which outlives this process.
    No,
}

/// A time, on both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// A clock that never goes back, for pauses.
    pub(super) now: Moment,
    /// Microseconds since the start of the machine, including sleep.
    pub(super) boot_micros: u64,
}
