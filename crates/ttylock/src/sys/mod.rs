//! The system calls that the locks need: one file for each kind of system.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::FileType;

use crate::device::Numbers;

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "unix.rs")]
mod system;

#[cfg(target_os = "linux")]
pub use system::peer_groups;
pub(crate) use system::{
    FileClock, FileSystem, HANDLE, NamesVersion, Opened, ProcessHandle, SHOWS_DESCRIPTORS,
    SmallListing, each_entry, examines_all, is_record_locked, look_at, look_into, look_through,
    null_device, numbers, open_below, open_examined,
};

/// The file that a name leads to.
#[derive(Debug)]
pub(crate) struct Seen {
    /// Kind and permission bits (`st_mode`).
    pub(crate) mode: u32,
    pub(crate) owner: u32,
    pub(crate) group: u32,
    pub(crate) file_system: Numbers,
    pub(crate) inode: u64,
    /// The numbers of the device, if it is one.
    pub(crate) device: Numbers,
}

impl Seen {
    pub(crate) fn kind(&self) -> FileType {
        kind_in(self.mode).map_or(FileType::Unknown, FileType::from_raw_mode)
    }
}

/// The first `most` bytes of a file. Most files have less than the room that they find, so one reading takes all of it.
pub(crate) fn text_of(path: &Path, most: u64) -> io::Result<String> {
    let file = File::open(path)?;
    let mut content = Vec::with_capacity(4096);
    file.take(most).read_to_end(&mut content)?;
    Ok(String::from_utf8_lossy(&content).into_owned())
}

/// `lstat(2)`, as every Unix has it.
fn look_plainly(path: &Path) -> io::Result<Seen> {
    std::fs::symlink_metadata(path).map(|seen| Seen::from(&seen))
}

impl From<&Metadata> for Seen {
    fn from(seen: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;

        Self {
            mode: seen.mode(),
            owner: seen.uid(),
            group: seen.gid(),
            file_system: numbers(seen.dev()),
            inode: seen.ino(),
            device: numbers(seen.rdev()),
        }
    }
}

/// Whether the exclusive mode of a terminal is set (ioctl_tty(2), `TIOCGEXCL`, since Linux 3.8).
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "no library offers this call")]
pub(crate) fn is_exclusive(terminal: impl AsFd) -> io::Result<bool> {
    use rustix::ioctl::{Getter, Opcode, ioctl, opcode};

    const TIOCGEXCL: Opcode = opcode::read::<i32>(b'T', 0x40);
    // SAFETY: the call writes one int to the given place, and does nothing else (ioctl_tty(2)).
    let is_set: i32 = unsafe { ioctl(terminal, Getter::<TIOCGEXCL, i32>::new()) }?;
    Ok(is_set != 0)
}

/// Whether it is set; unknown on this system.
#[cfg(not(target_os = "linux"))]
pub(crate) fn is_exclusive(_terminal: impl AsFd) -> io::Result<bool> {
    Err(io::ErrorKind::Unsupported.into())
}

/// As wide as the system has it: 16 bits on some, in which all of it fits.
fn kind_in<N: TryFrom<u32>>(mode: u32) -> Option<N> {
    N::try_from(mode & 0xffff).ok()
}
