//! Every system call this crate makes on lock files, one wrapper each, relative to a directory.
//!
//! They are together so that tests can fail, kill or reorder any one of them (`faults.rs`); they
//! decide nothing. Calls that change names are never repeated here after an interruption: only
//! the caller can tell whether they took place.

#[cfg_attr(unix, path = "sys/unix.rs")]
#[cfg_attr(windows, path = "sys/windows.rs")]
mod system;

use std::fs::File;
use std::io;

pub(crate) use system::*;

/// What becomes of the file that has the new name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "rename(2) does no more")]
pub enum Rename {
    /// It keeps the name, and nothing is renamed.
    NoReplace,
    /// It gets the old name: two files change places in one step. Only Linux and macOS know this.
    Exchange,
    /// It goes.
    Over,
}

#[cfg(unix)]
impl Rename {
    fn call_name(self) -> &'static str {
        match self {
            Self::NoReplace => "rename-noreplace",
            Self::Exchange => "rename-exchange",
            Self::Over => "rename",
        }
    }
}

/// Whether a file has more names than this number, whichever; `false` only where the system says so. A file that has lost
/// its name and has another one may have been moved aside for a moment: a forced release puts it back.
pub(crate) fn has_more_names_than(file: &File, count: u64) -> bool {
    stat_open(file).map_or(true, |stat| stat.links > count)
}

/// Fills the buffer from the start of a file, but asks no further than `expected` bytes: a known size saves the call
/// that would only say "end of file".
fn fill(
    buffer: &mut [u8],
    expected: usize,
    read_at: impl Fn(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut filled = 0_usize;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match read_at(rest, u64::try_from(filled).unwrap_or(u64::MAX)) {
            Ok(0) => break,
            Ok(count) => filled = filled.saturating_add(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if filled >= expected {
            break;
        }
    }
    Ok(filled)
}
