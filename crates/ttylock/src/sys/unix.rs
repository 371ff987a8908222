//! Other systems than Linux, by functions that all of them have. Type-checked, never run so far.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use pidlockfile::{Directory, Pid, Status};
use rustix::fs::{Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{Seen, look_plainly};
use crate::device::Numbers;

/// The flag for opening a directory: these systems also require the right to list it.
pub(crate) const HANDLE: OFlags = OFlags::RDONLY;

/// `/proc`, where there is one, does not show what processes have open.
pub(crate) const SHOWS_DESCRIPTORS: bool = false;

/// Nobody sees what others have open.
pub(crate) fn examines_all(_: bool) -> bool {
    SHOWS_DESCRIPTORS
}

/// `lstat(2)`.
pub(crate) fn look_at(path: &Path) -> io::Result<Seen> {
    look_plainly(path)
}

/// These systems do not show descriptors, so there is no link to examine.
pub(crate) fn look_through(_: impl AsFd, _: &CStr) -> io::Result<Seen> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The file of an open descriptor.
pub(crate) fn look_into(open: impl AsFd) -> io::Result<Seen> {
    let open = std::fs::File::from(open.as_fd().try_clone_to_owned()?);
    open.metadata().map(|seen| Seen::from(&seen))
}

/// These systems cannot duplicate another process's descriptors.
#[derive(Debug)]
pub(crate) struct ProcessHandle;

impl ProcessHandle {
    pub(crate) fn open(_: Pid) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn of_thread(_: i32) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn duplicate(&self, _: i32) -> io::Result<Option<OwnedFd>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Opens a directory in one that others may write: they may have made it, put a link in its place,
/// or mounted something over it.
pub(crate) fn open_below(above: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = HANDLE | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let own = device(Status::of_open(above.as_fd()))?;
    let name = name.to_str().ok_or(Errno::ILSEQ)?;
    // Only a look beforehand shows what is mounted there.
    if device(Status::of_name(above.as_fd(), name))? != own {
        return Err(Errno::XDEV);
    }
    let opened = rustix::fs::openat(above, name, flags, Mode::empty())?;
    if device(Status::of_open(&opened))? == own { Ok(opened) } else { Err(Errno::XDEV) }
}

fn device(seen: io::Result<Status>) -> Result<u64, Errno> {
    let number = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    seen.map(|seen| seen.identity.device).map_err(number)
}

/// Calls `see` with each name in an open directory and what it is, as far as the directory says that.
pub(crate) fn each_entry(
    directory: impl AsFd,
    mut see: impl FnMut(&CStr, FileType),
) -> io::Result<()> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        see(entry.file_name(), entry.file_type());
    }
    Ok(())
}

/// These systems do not promise that a listing is of one moment. Whether links are counted is not known here: each name of a
/// lock has a file of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileSystem;

impl FileSystem {
    pub(crate) fn of(_: impl AsFd) -> Self {
        Self
    }

    pub(crate) fn of_path(_: &Path) -> Self {
        Self
    }

    pub(crate) fn counts_links(self) -> bool {
        false
    }

    pub(crate) fn lists_exactly(self) -> bool {
        false
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened;

impl Opened {
    pub(crate) fn now() -> Self {
        Self
    }
}

/// Opens a directory, and examines it.
pub(crate) fn open_examined(
    open: impl FnOnce() -> io::Result<OwnedFd>,
) -> io::Result<(Directory, Opened)> {
    Ok((Directory::from_handle(open()?)?, Opened))
}

/// Nor that each change of a directory shows in its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamesVersion {}

impl NamesVersion {
    pub(crate) fn of_path(_: &Path) -> Option<Self> {
        None
    }

    pub(crate) fn counts(self, _: FileClock) -> bool {
        match self {}
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct FileClock;

impl FileClock {
    pub(crate) fn now() -> Self {
        Self
    }
}

#[derive(Debug)]
pub(crate) enum SmallListing {}

impl SmallListing {
    pub(crate) fn of(
        _: FileSystem,
        _: Option<Opened>,
        _: Option<fn(&[u8]) -> bool>,
    ) -> Option<Self> {
        None
    }

    pub(crate) fn show_all(&self, _: impl AsFd, _: impl FnMut(&[u8])) -> bool {
        match *self {}
    }

    pub(crate) fn show_last(&self, _: impl FnMut(&[u8])) -> bool {
        match *self {}
    }
}

/// The numbers of the null device, which every system chooses for itself.
pub(crate) fn null_device() -> Option<Numbers> {
    look_plainly(Path::new("/dev/null")).ok().map(|null| null.device)
}

/// Splits a `dev_t` into major and minor number, as this system does.
pub(crate) fn numbers(device: u64) -> Numbers {
    let numbers = |device| {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        Numbers { major: major.into(), minor: minor.into() }
    };
    let unknown = Numbers { major: u64::MAX, minor: device };
    rustix::fs::Dev::try_from(device).map_or(unknown, numbers)
}

/// Where the kernel lists no locks, none is asked for.
pub(crate) fn is_record_locked(_: impl AsFd) -> bool {
    false
}
