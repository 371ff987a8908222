//! The interfaces that the record needs: a place to write, a list of all holds, the time. Pure.

use super::load::Clocks;
use leases::{Hold, Moment, Progress};
use std::io;

/// Where the index is and the two files of holds, 0 and 1.
pub(super) trait Disk {
    /// Writes all of it.
    ///
    /// # Errors
    /// The system's; part of it may be written.
    fn write(&mut self, slot: usize, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes sure that so many bytes of a file can be written.
    ///
    /// # Errors
    /// The system's.
    fn reserve(&mut self, slot: usize, bytes: u64) -> io::Result<()>;

    /// Makes sure that a power cut loses nothing of a file.
    ///
    /// # Errors
    /// The system's.
    fn sync(&mut self, slot: usize) -> io::Result<()>;

    /// Writes the index, which is small.
    ///
    /// # Errors
    /// The system's.
    fn write_index(&mut self, bytes: &[u8], synced: Synced) -> io::Result<()>;
}

/// Who knows all holds.
pub(super) trait Holds {
    /// Tells of the holds at the next places.
    fn look_over(&self, cursor: &mut u32, budget: u32, note: &mut dyn FnMut(Hold<'_>)) -> Progress;
}

/// How well it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Everything can be written.
    Good,
    /// There is no room for more holds than there are.
    Full,
    /// Nothing can be written.
    Broken,
}

/// Whether something waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synced {
    /// It does, so that a power cut forgets nothing.
    Yes,
    /// The kernel has it, which outlives this process.
    No,
}

/// A time, on all clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// The server's.
    pub(super) now: Moment,
    /// The machine's.
    pub(super) clocks: Clocks,
}
