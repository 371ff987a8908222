//! The system calls that the locks need: one file for each kind of system.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::FileType;
use rustix::io::Errno;

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

/// Whether there was no descriptor or no memory at that moment: nothing is known of what was asked for.
pub(crate) fn is_lack_of_room(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

/// `None` for what is not there, is of another kind, or may not be looked at.
///
/// # Errors
/// It [may be there](is_lack_of_room).
pub(crate) fn unless_hidden<T, E: Into<io::Error>>(found: Result<T, E>) -> io::Result<Option<T>> {
    match found.map_err(E::into) {
        Err(error) if is_lack_of_room(&error) => Err(error),
        found => Ok(found.ok()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// A directory or link that cannot be looked at for a moment must not pass for one that is not there.
    #[rstest]
    #[case::absent(Errno::NOENT, true)]
    #[case::forbidden(Errno::ACCESS, true)]
    #[case::of_another_kind(Errno::NOTDIR, true)]
    #[case::no_link(Errno::INVAL, true)]
    #[case::of_a_dead_server(Errno::STALE, true)]
    #[case::no_descriptor(Errno::MFILE, false)]
    #[case::no_descriptor_of_the_machine(Errno::NFILE, false)]
    #[case::no_memory(Errno::NOMEM, false)]
    fn only_what_is_surely_hidden_counts_as_absent(#[case] errno: Errno, #[case] is_hidden: bool) {
        let found = unless_hidden(Err::<(), _>(errno));
        assert_eq!(found.as_ref().ok(), is_hidden.then_some(&None));
        assert_eq!(unless_hidden(Ok::<_, Errno>(7)).unwrap(), Some(7));
    }
}
