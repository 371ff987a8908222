//! The metadata of a file in one form for every system: numbers of devices and files, sizes and times in 64
//! bits, even if the C library's `struct stat` has 32.

use std::time::SystemTime;

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(windows)]
pub(crate) use windows::{DIRECTORIES_TOO, READ_ATTRIBUTES, UNFOLLOWED};

/// Which file it is, whatever its name: device and inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_structs, reason = "these two identify a file")]
pub struct Identity {
    /// The number of the device that holds the file.
    pub device: u64,
    /// The file's number on it.
    pub inode: u64,
}

/// What `stat(2)` tells of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Which file it is.
    pub identity: Identity,
    /// Its permission bits, with those for set-user-ID and the like.
    pub mode: u32,
    /// The user who owns it.
    pub owner: u32,
    /// How many names it has.
    pub links: u64,
    /// Its length in bytes.
    pub size: u64,
    /// When it was last written; the beginning of 1970 for what claims to be older.
    pub modified: SystemTime,
    /// Why it can be no lock file; `None` for a regular file.
    pub(crate) obstacle: Option<Obstacle>,
}

/// What stands where a lock file was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a file has no other types")]
pub enum Obstacle {
    /// A symbolic link, dangling or not; on Windows any reparse point that is no plain file.
    Link,
    /// A directory.
    Directory,
    /// A fifo, socket or device.
    Special,
    /// A regular file that this process may not read.
    Unreadable,
}
