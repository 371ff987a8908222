//! Unix: system calls relative to an open directory.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::Mode;
use nix::unistd::UnlinkatFlags;
use rustix::fs::FlockOperation;

use super::{Rename, fill};
use crate::status::{Status, errno_of};
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

/// For calls that may simply be made again.
fn uninterrupted<T>(mut work: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match work() {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

pub(crate) fn inspect(dir: impl AsFd, name: &OsStr) -> Result<Status, Errno> {
    call("fstatat", || Status::of_name(dir, name).map_err(|error| errno(&error)))
}

/// Non-blocking: between the look and the opening a fifo may have been planted.
const UNFOLLOWED: OFlag =
    OFlag::O_NOFOLLOW.union(OFlag::O_NONBLOCK).union(OFlag::O_NOCTTY).union(OFlag::O_CLOEXEC);

pub(crate) fn open_to_read(dir: impl AsFd, name: &OsStr) -> Result<File, Errno> {
    open(dir, name, OFlag::O_RDONLY)
}

pub(crate) fn open_to_write(dir: impl AsFd, name: &OsStr) -> Result<File, Errno> {
    open(dir, name, OFlag::O_WRONLY)
}

pub(crate) fn open_to_read_and_write(dir: impl AsFd, name: &OsStr) -> Result<File, Errno> {
    open(dir, name, OFlag::O_RDWR)
}

fn open(dir: impl AsFd, name: &OsStr, access: OFlag) -> Result<File, Errno> {
    call("openat", || {
        uninterrupted(|| nix::fcntl::openat(dir.as_fd(), name, access | UNFOLLOWED, Mode::empty()))
            .map(File::from)
    })
}

pub(crate) fn create(dir: impl AsFd, name: &OsStr, mode: u32) -> Result<File, Errno> {
    let mode = bits(mode);
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | UNFOLLOWED;
    call("create", || {
        uninterrupted(|| nix::fcntl::openat(dir.as_fd(), name, flags, mode)).map(File::from)
    })
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
    call("fchmod", || nix::sys::stat::fchmod(file, bits(mode)))
}

fn bits(mode: u32) -> Mode {
    Mode::from_bits_truncate(permissions(mode))
}

/// As wide as the system has its `mode_t`, at least 16 bits.
fn permissions<N: TryFrom<u32> + Default>(mode: u32) -> N {
    N::try_from(mode & 0o777).unwrap_or_default()
}

pub(crate) fn sync(file: &File) -> Result<(), Errno> {
    call("fsync", || uninterrupted(|| nix::unistd::fsync(file)))
}

pub(crate) fn link(dir: impl AsFd, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
    call("linkat", || nix::unistd::linkat(dir.as_fd(), from, dir.as_fd(), to, AtFlags::empty()))
}

pub(crate) fn unlink(dir: impl AsFd, name: &OsStr) -> Result<(), Errno> {
    call("unlinkat", || nix::unistd::unlinkat(dir.as_fd(), name, UnlinkatFlags::NoRemoveDir))
}

pub(crate) fn rename(dir: impl AsFd, from: &OsStr, to: &OsStr, how: Rename) -> Result<(), Errno> {
    let dir = dir.as_fd();
    call(how.call_name(), || match how {
        Rename::Over => nix::fcntl::renameat(dir, from, dir, to),
        Rename::NoReplace | Rename::Exchange => rename_with(dir, from, to, how),
    })
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
fn rename_with(dir: BorrowedFd<'_>, from: &OsStr, to: &OsStr, how: Rename) -> Result<(), Errno> {
    use rustix::fs::RenameFlags;

    let exchanges = how == Rename::Exchange;
    let flags = if exchanges { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
    rustix::fs::renameat_with(dir, from, dir, to, flags).map_err(errno_of)
}

/// Other systems have no such call; callers have another way for each use.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn rename_with(_: BorrowedFd<'_>, _: &OsStr, _: &OsStr, _: Rename) -> Result<(), Errno> {
    Err(Errno::EINVAL)
}

/// Takes `flock(2)` on the open file without waiting, and says whether it has it: `false` while
/// another opening holds it. It is held until the last descriptor of this opening is closed.
pub(crate) fn try_lock_inode(file: &File) -> Result<bool, Errno> {
    let operation = FlockOperation::NonBlockingLockExclusive;
    match call("flock", || rustix::fs::flock(file, operation).map_err(errno_of)) {
        Ok(()) => Ok(true),
        Err(Errno::EWOULDBLOCK) => Ok(false),
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
pub(crate) fn settled(_dir: impl AsFd, _name: &OsStr, file: File) -> Result<File, Errno> {
    Ok(file)
}

/// Gives `flock(2)` back while the file stays open.
/// Whether another process locks any part of the file by `fcntl(2)`.
#[cfg(target_os = "linux")]
pub(crate) fn is_record_locked(file: &File) -> Result<bool, Errno> {
    use nix::fcntl::{FcntlArg, fcntl};
    use nix::libc;

    // The C library gives these constants another type than the field has.
    let short = |number: libc::c_int| libc::c_short::try_from(number).map_err(|_| Errno::EINVAL);
    // Which lock would be in the way of one for writing? The question needs no right to write.
    let (l_type, l_whence) = (short(libc::F_WRLCK)?, short(libc::SEEK_SET)?);
    let mut lock = libc::flock { l_type, l_whence, l_start: 0, l_len: 0, l_pid: 0 };
    match fcntl(file, FcntlArg::F_GETLK(&mut lock)) {
        Ok(_) => Ok(lock.l_type != short(libc::F_UNLCK)?),
        // It is behind what the numbers of this system reach.
        Err(Errno::EOVERFLOW) => Ok(true),
        Err(errno) => Err(errno),
    }
}

/// Where the kernel lists no locks, none is asked for.
#[cfg(not(target_os = "linux"))]
pub(crate) fn is_record_locked(_file: &File) -> Result<bool, Errno> {
    Ok(false)
}

pub(crate) fn unlock_inode(file: &File) -> Result<(), Errno> {
    let operation = FlockOperation::NonBlockingUnlock;
    call("flock-un", || rustix::fs::flock(file, operation).map_err(errno_of))
}

pub(crate) fn open_directory(path: &std::path::Path) -> Result<Handle, Errno> {
    // A directory that may be used but not listed is enough.
    #[cfg(target_os = "linux")]
    let access = OFlag::O_PATH;
    #[cfg(not(target_os = "linux"))]
    let access = OFlag::O_RDONLY;
    let flags = access | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    uninterrupted(|| nix::fcntl::open(path, flags, Mode::empty()))
}

/// The names in a directory.
pub(crate) fn list(dir: impl AsFd) -> Result<Vec<OsString>, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    call("list", || {
        let mut listing = nix::dir::Dir::openat(dir.as_fd(), ".", flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in listing.iter() {
            names.push(OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned());
        }
        Ok(names)
    })
}

/// The error number inside a standard error.
pub(crate) fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// The user of this process, as a uid.
pub(crate) fn own_user() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// Makes a file somebody else's, which root may.
pub(crate) fn give_away(file: &File, owner: u32) -> Result<(), Errno> {
    call("fchown", || nix::unistd::fchown(file, Some(owner.into()), None))
}
