//! Every system call this crate makes on lock files, one wrapper each, relative to a directory.
//!
//! They are together so that tests can fail, kill or reorder any one of them (`faults`); they
//! decide nothing.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, Flock, FlockArg, OFlag};
use nix::sys::stat::{FileStat, Mode};
use nix::unistd::UnlinkatFlags;

#[cfg(test)]
use crate::faults::step;

/// Outside tests a step is nothing at all.
#[cfg(not(test))]
#[inline]
fn step(_call: &'static str) -> Result<(), Errno> {
    Ok(())
}

pub(crate) fn inspect(dir: impl AsFd, name: &str) -> Result<FileStat, Errno> {
    step("fstatat")?;
    nix::sys::stat::fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW)
}

pub(crate) fn open_to_read(dir: impl AsFd, name: &str) -> Result<File, Errno> {
    step("openat")?;
    // Non-blocking: between the look and the opening a fifo may have been planted.
    let flags = OFlag::O_RDONLY
        | OFlag::O_NOFOLLOW
        | OFlag::O_NONBLOCK
        | OFlag::O_NOCTTY
        | OFlag::O_CLOEXEC;
    nix::fcntl::openat(dir, name, flags, Mode::empty()).map(File::from)
}

pub(crate) fn create(dir: impl AsFd, name: &str, mode: Mode) -> Result<File, Errno> {
    step("create")?;
    let flags = OFlag::O_WRONLY
        | OFlag::O_CREAT
        | OFlag::O_EXCL
        | OFlag::O_NOFOLLOW
        | OFlag::O_NOCTTY
        | OFlag::O_CLOEXEC;
    nix::fcntl::openat(dir, name, flags, mode).map(File::from)
}

pub(crate) fn stat_open(file: &File) -> Result<FileStat, Errno> {
    step("fstat")?;
    nix::sys::stat::fstat(file)
}

pub(crate) fn read_start(file: &File, buffer: &mut [u8]) -> Result<usize, Errno> {
    step("pread")?;
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let offset = u64::try_from(filled).unwrap_or(u64::MAX);
        match file.read_at(rest, offset) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(errno(&error)),
        }
    }
    Ok(filled)
}

pub(crate) fn write_all(file: &File, content: &[u8]) -> Result<(), Errno> {
    step("write")?;
    file.write_all_at(content, 0).map_err(|error| errno(&error))
}

pub(crate) fn set_mode(file: &File, mode: Mode) -> Result<(), Errno> {
    step("fchmod")?;
    nix::sys::stat::fchmod(file, mode)
}

pub(crate) fn sync(file: &File) -> Result<(), Errno> {
    step("fsync")?;
    nix::unistd::fsync(file)
}

pub(crate) fn link(dir: impl AsFd, from: &str, to: &str) -> Result<(), Errno> {
    step("linkat")?;
    nix::unistd::linkat(dir.as_fd(), from, dir.as_fd(), to, AtFlags::empty())
}

pub(crate) fn unlink(dir: impl AsFd, name: &str) -> Result<(), Errno> {
    step("unlinkat")?;
    nix::unistd::unlinkat(dir, name, UnlinkatFlags::NoRemoveDir)
}

pub(crate) fn rename(dir: impl AsFd, from: &str, to: &str) -> Result<(), Errno> {
    step("rename")?;
    nix::fcntl::renameat(dir.as_fd(), from, dir.as_fd(), to)
}

/// The two kinds of `renameat2` that never lose a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rename {
    NoReplace,
    Exchange,
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn rename_with(dir: impl AsFd, from: &str, to: &str, how: Rename) -> Result<(), Errno> {
    use nix::fcntl::RenameFlags;

    let (call, flags) = match how {
        Rename::NoReplace => ("rename-noreplace", RenameFlags::RENAME_NOREPLACE),
        Rename::Exchange => ("rename-exchange", RenameFlags::RENAME_EXCHANGE),
    };
    step(call)?;
    nix::fcntl::renameat2(dir.as_fd(), from, dir.as_fd(), to, flags)
}

/// Elsewhere `nix` has no `renameat2`; callers have another way for each use.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn rename_with(
    _dir: impl AsFd,
    _from: &str,
    _to: &str,
    _how: Rename,
) -> Result<(), Errno> {
    Err(Errno::EINVAL)
}

pub(crate) fn lock_inode(file: File) -> Result<Flock<File>, (File, Errno)> {
    if let Err(errno) = step("flock") {
        return Err((file, errno));
    }
    Flock::lock(file, FlockArg::LockExclusiveNonblock)
}

pub(crate) fn open_directory(path: &std::path::Path) -> Result<OwnedFd, Errno> {
    // A directory that may be used but not listed is enough.
    #[cfg(target_os = "linux")]
    let access = OFlag::O_PATH;
    #[cfg(not(target_os = "linux"))]
    let access = OFlag::O_RDONLY;
    nix::fcntl::open(path, access | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
}

/// The error number inside a standard error.
fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}
