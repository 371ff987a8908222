//! System calls of the locks on Linux.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::Mode;
use pidlockfile::Pid;
use rustix::fs::{AtFlags, CWD, Statx, StatxFlags};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::{Seen, look_plainly};
use crate::device::model::Numbers;

/// The flag for opening a directory that need not be listed.
pub(crate) const HANDLE: OFlag = OFlag::O_PATH;

/// Whether `/proc` shows what processes have open (proc(5), `/proc/PID/fd`).
pub(crate) const SHOWS_DESCRIPTORS: bool = true;

/// `lstat(2)` that does not ask a file system in user space, which might never answer.
pub(crate) fn look_at(path: &Path) -> io::Result<Seen> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    match rustix::fs::statx(CWD, path, flags, StatxFlags::BASIC_STATS) {
        Ok(seen) => Ok(seen.into()),
        // Kernels before 4.11.
        Err(rustix::io::Errno::NOSYS) => look_plainly(path),
        Err(errno) => Err(errno.into()),
    }
}

/// The target of a link in an open directory, examined as by [`look_at`].
pub(crate) fn look_through(directory: impl AsFd, link: &CStr) -> io::Result<Seen> {
    match rustix::fs::statx(&directory, link, AtFlags::STATX_DONT_SYNC, StatxFlags::BASIC_STATS) {
        Ok(seen) => Ok(seen.into()),
        Err(rustix::io::Errno::NOSYS) => {
            let directory = directory.as_fd().as_raw_fd();
            let link = OsStr::from_bytes(link.to_bytes());
            let path = Path::new("/proc/self/fd").join(directory.to_string()).join(link);
            std::fs::metadata(path).map(|seen| Seen::from(&seen))
        }
        Err(errno) => Err(errno.into()),
    }
}

/// The file of an open descriptor, examined as by [`look_at`].
pub(crate) fn look_into(open: impl AsFd) -> io::Result<Seen> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    match rustix::fs::statx(&open, c"", flags, StatxFlags::BASIC_STATS) {
        Ok(seen) => Ok(seen.into()),
        Err(rustix::io::Errno::NOSYS) => {
            let open = std::fs::File::from(open.as_fd().try_clone_to_owned()?);
            open.metadata().map(|seen| Seen::from(&seen))
        }
        Err(errno) => Err(errno.into()),
    }
}

/// For a single thread instead of a process: since Linux 6.9 (`PIDFD_THREAD` in pidfd_open(2)).
const OF_A_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(rustix::fs::OFlags::EXCL.bits());

/// One process or thread, never a later one with its number (pidfd_open(2)).
#[derive(Debug)]
pub(crate) struct ProcessHandle(OwnedFd);

impl ProcessHandle {
    pub(crate) fn open(pid: Pid) -> io::Result<Self> {
        Ok(Self(pidlockfile::process::handle(pid)?))
    }

    /// A thread by its number, or an error of the system: older kernels know processes only.
    pub(crate) fn of_thread(number: i32) -> io::Result<Self> {
        let thread = rustix::process::Pid::from_raw(number).ok_or(Errno::ESRCH)?;
        Ok(Self(pidfd_open(thread, OF_A_THREAD)?))
    }

    /// A descriptor of the process, as one of our own that child processes do not inherit; `None` if the process has
    /// no descriptor of that number (any more). Source: pidfd_getfd(2); asks for the right to trace the process.
    pub(crate) fn duplicate(&self, number: i32) -> io::Result<Option<OwnedFd>> {
        match pidfd_getfd(&self.0, number, PidfdGetfdFlags::empty()) {
            Ok(descriptor) => Ok(Some(descriptor)),
            Err(rustix::io::Errno::BADF) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl From<Statx> for Seen {
    fn from(seen: Statx) -> Self {
        let numbers_of =
            |major: u32, minor: u32| Numbers { major: major.into(), minor: minor.into() };
        Self {
            mode: u32::from(seen.stx_mode),
            owner: seen.stx_uid,
            group: seen.stx_gid,
            file_system: numbers_of(seen.stx_dev_major, seen.stx_dev_minor),
            inode: seen.stx_ino,
            device: numbers_of(seen.stx_rdev_major, seen.stx_rdev_minor),
        }
    }
}

/// Opens a directory in one that others may write: they may have made it, put a link in its place,
/// or mounted something over it.
pub(crate) fn open_below(above: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = HANDLE | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let resolve = ResolveFlag::RESOLVE_NO_XDEV | ResolveFlag::RESOLVE_NO_SYMLINKS;
    match openat2(above.as_fd(), name, OpenHow::new().flags(flags).resolve(resolve)) {
        // Before Linux 5.6 nothing more can be asked.
        Err(Errno::ENOSYS) => nix::fcntl::openat(above.as_fd(), name, flags, Mode::empty()),
        answer => answer,
    }
}

/// Splits a `dev_t` into major and minor number (makedev(3)).
pub(crate) fn numbers(device: u64) -> Numbers {
    Numbers { major: nix::sys::stat::major(device), minor: nix::sys::stat::minor(device) }
}
