//! Windows: the metadata of a file by a handle that was opened only for that, so it is in nobody's way.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::{Identity, Obstacle, Status};

/// `FILE_READ_ATTRIBUTES`: no access to the content.
pub(crate) const READ_ATTRIBUTES: u32 = 0x80;
/// `FILE_FLAG_BACKUP_SEMANTICS`: directories can be opened as well.
pub(crate) const DIRECTORIES_TOO: u32 = 0x0200_0000;
/// `FILE_FLAG_OPEN_REPARSE_POINT`: a link itself and not where it leads.
pub(crate) const UNFOLLOWED: u32 = 0x0020_0000;

const ATTRIBUTE_DIRECTORY: u64 = 0x10;
const ATTRIBUTE_READ_ONLY: u64 = 0x1;
const ATTRIBUTE_REPARSE_POINT: u64 = 0x400;

/// From 1601, where Windows begins to count, to 1970.
const SECONDS_TO_1970: u64 = 11_644_473_600;

impl Status {
    /// Of an open file or directory.
    ///
    /// # Errors
    /// What the system says.
    pub fn of_open(file: &File) -> io::Result<Self> {
        let information = winapi_util::file::information(file)?;
        let attributes = information.file_attributes();
        let modified = information.last_write_time().and_then(since_1970).unwrap_or_default();
        Ok(Self {
            identity: Identity {
                device: information.volume_serial_number(),
                inode: information.file_index(),
            },
            // The right to read it is in access lists that this crate does not read.
            mode: if attributes & ATTRIBUTE_READ_ONLY == 0 { 0o644 } else { 0o444 },
            owner: 0,
            links: information.number_of_links(),
            size: information.file_size(),
            modified: SystemTime::UNIX_EPOCH
                .checked_add(modified)
                .unwrap_or(SystemTime::UNIX_EPOCH),
            obstacle: obstacle(attributes),
        })
    }

    /// Of what a path leads to.
    ///
    /// # Errors
    /// What the system says.
    pub fn of_path(path: &Path) -> io::Result<Self> {
        Self::of_open(&to_look_at(DIRECTORIES_TOO).open(path)?)
    }

    /// Of a path; of the link itself where it is a symbolic link.
    pub(crate) fn of_unfollowed(path: &Path) -> io::Result<Self> {
        Self::of_open(&to_look_at(DIRECTORIES_TOO | UNFOLLOWED).open(path)?)
    }
}

fn to_look_at(flags: u32) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.access_mode(READ_ATTRIBUTES).custom_flags(flags);
    options
}

fn obstacle(attributes: u64) -> Option<Obstacle> {
    if attributes & ATTRIBUTE_REPARSE_POINT != 0 {
        Some(Obstacle::Link)
    } else if attributes & ATTRIBUTE_DIRECTORY != 0 {
        Some(Obstacle::Directory)
    } else {
        None
    }
}

/// A time in tenths of microseconds since 1601; `None` for one before 1970.
fn since_1970(tenths: u64) -> Option<Duration> {
    const TENTHS: u64 = 10_000_000;
    let nanoseconds = u32::try_from(tenths % TENTHS).ok()?.checked_mul(100)?;
    Some(Duration::new((tenths / TENTHS).checked_sub(SECONDS_TO_1970)?, nanoseconds))
}
