//! Unix: system calls relative to an open directory, and `stat(2)`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat, Uid};
use rustix::io::{Errno, retry_on_intr};

use super::{Rename, fill};
use crate::status::{Identity, Obstacle, Status};
#[cfg(test)]
use crate::tests::faults::call;

/// Outside tests a call is just made.
#[cfg(not(test))]
#[inline]
fn call<T>(_name: &'static str, work: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    work()
}

/// An open directory.
pub(crate) type Handle = OwnedFd;

/// `flock(2)` that lasts as long as the file is open.
pub(crate) struct Lock;

pub(crate) fn inspect(dir: impl AsFd, name: &OsStr) -> Result<Status, Errno> {
    call("fstatat", || Status::of_name(dir, name).map_err(|error| errno(&error)))
}

/// Non-blocking: between the look and the opening a fifo may have been planted.
const UNFOLLOWED: OFlags =
    OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

pub(crate) fn open_to_read(dir: impl AsFd, name: &OsStr) -> Result<File, Errno> {
    open(dir, name, OFlags::RDONLY)
}

pub(crate) fn open_to_write(dir: impl AsFd, name: &OsStr) -> Result<File, Errno> {
    open(dir, name, OFlags::WRONLY)
}

pub(crate) fn open_to_read_and_write(dir: impl AsFd, name: &OsStr) -> Result<File, Errno> {
    open(dir, name, OFlags::RDWR)
}

fn open(dir: impl AsFd, name: &OsStr, access: OFlags) -> Result<File, Errno> {
    call("openat", || {
        retry_on_intr(|| rustix::fs::openat(&dir, name, access | UNFOLLOWED, Mode::empty()))
            .map(File::from)
    })
}

pub(crate) fn create(dir: impl AsFd, name: &OsStr, mode: u32) -> Result<File, Errno> {
    let mode = mode_bits(mode);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | UNFOLLOWED;
    call("create", || retry_on_intr(|| rustix::fs::openat(&dir, name, flags, mode)).map(File::from))
}

pub(crate) fn stat_open(file: &File) -> Result<Status, Errno> {
    call("fstat", || Status::of_open(file).map_err(|error| errno(&error)))
}

/// As [`fill`].
pub(crate) fn read_start(file: &File, buffer: &mut [u8], expected: usize) -> Result<usize, Errno> {
    call("pread", || {
        fill(buffer, expected, |rest, at| file.read_at(rest, at)).map_err(|error| errno(&error))
    })
}

pub(crate) fn write_all(file: &File, content: &[u8]) -> Result<(), Errno> {
    call("write", || file.write_all_at(content, 0).map_err(|error| errno(&error)))
}

pub(crate) fn set_mode(file: &File, mode: u32) -> Result<(), Errno> {
    call("fchmod", || rustix::fs::fchmod(file, mode_bits(mode)))
}

fn mode_bits(mode: u32) -> Mode {
    Mode::from_bits_truncate(permissions(mode))
}

/// As wide as the system has its `mode_t`, at least 16 bits.
fn permissions<N: TryFrom<u32> + Default>(mode: u32) -> N {
    N::try_from(mode & 0o777).unwrap_or_default()
}

pub(crate) fn sync(file: &File) -> Result<(), Errno> {
    call("fsync", || retry_on_intr(|| rustix::fs::fsync(file)))
}

pub(crate) fn link(dir: impl AsFd, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
    call("linkat", || rustix::fs::linkat(&dir, from, &dir, to, AtFlags::empty()))
}

pub(crate) fn unlink(dir: impl AsFd, name: &OsStr) -> Result<(), Errno> {
    call("unlinkat", || rustix::fs::unlinkat(dir, name, AtFlags::empty()))
}

pub(crate) fn rename(dir: impl AsFd, from: &OsStr, to: &OsStr, how: Rename) -> Result<(), Errno> {
    let dir = dir.as_fd();
    call(how.call_name(), || match how {
        Rename::Over => rustix::fs::renameat(dir, from, dir, to),
        Rename::NoReplace | Rename::Exchange => rename_with(dir, from, to, how),
    })
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
fn rename_with(dir: BorrowedFd<'_>, from: &OsStr, to: &OsStr, how: Rename) -> Result<(), Errno> {
    use rustix::fs::RenameFlags;

    let exchanges = how == Rename::Exchange;
    let flags = if exchanges { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
    rustix::fs::renameat_with(dir, from, dir, to, flags)
}

/// Other systems have no such call; callers have another way for each use.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn rename_with(_: BorrowedFd<'_>, _: &OsStr, _: &OsStr, _: Rename) -> Result<(), Errno> {
    Err(Errno::INVAL)
}

/// Takes `flock(2)` on the open file without waiting, and says whether it has it: `false` while
/// another opening holds it. It is held until the last descriptor of this opening is closed.
pub(crate) fn try_lock_inode(file: &File) -> Result<bool, Errno> {
    let operation = FlockOperation::NonBlockingLockExclusive;
    match call("flock", || rustix::fs::flock(file, operation)) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// The same on a file of [`create`] that may have this name. What it gives is to be kept meanwhile.
pub(crate) fn try_lock_created(
    _dir: impl AsFd,
    _name: &OsStr,
    file: &File,
) -> Result<Option<Lock>, Errno> {
    Ok(try_lock_inode(file)?.then_some(Lock))
}

/// A new file as it is kept from here on.
pub(crate) fn reopened(_dir: impl AsFd, _name: &OsStr, file: File) -> Result<File, Errno> {
    Ok(file)
}

/// Gives `flock(2)` back while the file stays open.
pub(crate) fn unlock_inode(file: &File) -> Result<(), Errno> {
    let operation = FlockOperation::NonBlockingUnlock;
    call("flock-un", || rustix::fs::flock(file, operation))
}

/// For reading its names, too, if this user may: whoever lists it needs no second opening.
pub(crate) fn open_directory(path: &Path) -> Result<Handle, Errno> {
    let open = |access| {
        let flags = access | OFlags::DIRECTORY | OFlags::CLOEXEC;
        retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))
    };
    match open(OFlags::RDONLY) {
        // A directory that may be used but not listed is enough.
        #[cfg(target_os = "linux")]
        Err(Errno::ACCESS) => open(OFlags::PATH),
        answer => answer,
    }
}

/// The names in a directory.
pub(crate) fn list(dir: impl AsFd) -> Result<Vec<OsString>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    call("list", || {
        let mut names = Vec::new();
        for entry in Dir::new(rustix::fs::openat(dir, ".", flags, Mode::empty())?)? {
            names.push(OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned());
        }
        Ok(names)
    })
}

/// The error number inside a standard error.
pub(crate) fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// The user of this process, as a uid.
pub(crate) fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Makes a file somebody else's, which root may.
pub(crate) fn give_away(file: &File, owner: u32) -> Result<(), Errno> {
    call("fchown", || rustix::fs::fchown(file, Some(Uid::from_raw(owner)), None))
}

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

/// A time as `stat(2)` gives it; `None` for one before 1970. Nanoseconds out of range count as none.
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
