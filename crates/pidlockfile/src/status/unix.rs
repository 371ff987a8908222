//! Unix: `stat(2)`.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FileType, Stat};

use super::{Identity, Obstacle, Status};

impl Status {
    /// Of an open file or directory.
    ///
    /// # Errors
    /// What the system says.
    pub fn of_open(file: impl AsFd) -> io::Result<Self> {
        Ok(Self::of(&rustix::fs::fstat(file)?))
    }

    /// Of what a path leads to.
    ///
    /// # Errors
    /// What the system says.
    pub fn of_path(path: &Path) -> io::Result<Self> {
        Ok(Self::of(&rustix::fs::stat(path)?))
    }

    /// Of a name in a directory; of the link itself where the name is a symbolic link.
    ///
    /// # Errors
    /// What the system says.
    pub fn of_name(directory: impl AsFd, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        Ok(Self::of(&rustix::fs::statat(directory, name.as_ref(), flags)?))
    }

    fn of(stat: &Stat) -> Self {
        let modified = since_1970(stat.st_mtime, stat.st_mtime_nsec).unwrap_or_default();
        Self {
            identity: Identity { device: bits(stat.st_dev), inode: bits(stat.st_ino) },
            mode: unsigned(stat.st_mode) & 0o7777,
            owner: stat.st_uid,
            links: bits(stat.st_nlink),
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            modified: SystemTime::UNIX_EPOCH
                .checked_add(modified)
                .unwrap_or(SystemTime::UNIX_EPOCH),
            obstacle: obstacle(FileType::from_raw_mode(stat.st_mode)),
        }
    }
}

fn obstacle(of: FileType) -> Option<Obstacle> {
    match of {
        FileType::RegularFile => None,
        FileType::Symlink => Some(Obstacle::Link),
        FileType::Directory => Some(Obstacle::Directory),
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => Some(Obstacle::Special),
    }
}

/// A time as `stat(2)` tells it; `None` for one before 1970. Nanoseconds out of range count as none.
fn since_1970(seconds: impl TryInto<u64>, nanoseconds: impl TryInto<u32>) -> Option<Duration> {
    let nanoseconds = nanoseconds.try_into().ok().filter(|part| *part < 1_000_000_000);
    Some(Duration::new(seconds.try_into().ok()?, nanoseconds.unwrap_or_default()))
}

/// A number whose width and sign depend on the system, by its 64 bits: different ones stay different.
fn bits(number: impl Into<i128>) -> u64 {
    u64::try_from(number.into() & i128::from(u64::MAX)).unwrap_or_default()
}

fn unsigned(number: impl Into<u32>) -> u32 {
    number.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::positive(7_i32, 7)]
    #[case::the_sign_is_a_bit_like_others(-1_i32, u64::MAX)]
    #[case::another_negative_one(-2_i32, u64::MAX - 1)]
    fn signed_numbers_stay_different(#[case] number: i32, #[case] expected: u64) {
        assert_eq!(bits(number), expected);
        assert_eq!(bits(u64::MAX), u64::MAX);
    }

    #[rstest]
    #[case::after_2038(0x8000_0000_i64, 5_i64, Some(Duration::new(0x8000_0000, 5)))]
    #[case::before_1970(-1_i64, 0_i64, None)]
    #[case::nanoseconds_that_are_none(1_i64, 1_000_000_000_i64, Some(Duration::from_secs(1)))]
    fn times_of_files_are_converted(
        #[case] seconds: i64,
        #[case] nanos: i64,
        #[case] expected: Option<Duration>,
    ) {
        assert_eq!(since_1970(seconds, nanos), expected);
    }

    /// A time that does not fit in 32 bits, where the file system can keep it.
    #[test]
    fn the_status_agrees_with_the_standard_library() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file()
            .set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(0x9000_0000))
            .unwrap();
        let (status, told) =
            (Status::of_path(file.path()).unwrap(), file.as_file().metadata().unwrap());
        assert_eq!(Status::of_open(file.as_file()).unwrap(), status);
        assert_eq!(status.identity, Identity { device: told.dev(), inode: told.ino() });
        assert_eq!((status.mode, status.owner), (told.mode() & 0o7777, told.uid()));
        assert_eq!((status.links, status.size), (told.nlink(), told.len()));
        assert_eq!(status.modified, told.modified().unwrap());
    }
}
