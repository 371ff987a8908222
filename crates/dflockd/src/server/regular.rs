//! Opens the server's own files safely. Anything may be in their place: only a regular file is opened,
//! nothing blocks, and nothing is written before the open file was checked.

use nix::fcntl::{AtFlags, OFlag, openat};
use nix::libc;
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::path::Path;

/// Opens a file in this directory for reading and writing, or creates it. A symbolic link is refused.
///
/// # Errors
/// An error of the system; [`ErrorKind::InvalidData`] if it is not a regular file.
pub(super) fn open(directory: impl AsFd, name: &Path, mode: libc::mode_t) -> io::Result<File> {
    // Opening a device may already have an effect.
    if let Ok(found) = fstatat(&directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        check(name, &found)?;
    }
    let flags =
        OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let file = openat(&directory, name, flags, Mode::from_bits_truncate(mode))?;
    check(name, &fstat(&file)?)?;
    Ok(file.into())
}

fn check(name: &Path, found: &FileStat) -> io::Result<()> {
    let what = match SFlag::from_bits_truncate(found.st_mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFREG => return Ok(()),
        SFlag::S_IFDIR => "a directory",
        SFlag::S_IFLNK => "a symbolic link",
        SFlag::S_IFIFO => "a FIFO",
        SFlag::S_IFSOCK => "a socket",
        SFlag::S_IFCHR | SFlag::S_IFBLK => "a device",
        _ => "something else",
    };
    let message = format!("{} is {what}, not a regular file", name.display());
    Err(io::Error::new(ErrorKind::InvalidData, message))
}
