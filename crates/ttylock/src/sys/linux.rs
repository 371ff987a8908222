//! System calls of the locks on Linux.

use std::ffi::{CStr, OsStr};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::Mode;
use pidlockfile::Pid;
use rustix::fs::{AtFlags, CWD, RawDir, SeekFrom, Statx, StatxFlags};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use rustix::thread::{CapabilitySet, capabilities};

use super::{Seen, look_plainly};
use crate::device::Numbers;

/// The flag for opening a directory that need not be listed.
pub(crate) const HANDLE: OFlag = OFlag::O_PATH;

/// Whether `/proc` shows what processes have open (proc(5), `/proc/PID/fd`).
pub(crate) const SHOWS_DESCRIPTORS: bool = true;

/// The machine's own user namespace (`PROC_USER_INIT_INO` in the kernel's proc_ns.h).
const FIRST_USER_NAMESPACE: u64 = 0xEFFF_FFFD;

/// Whether this process may examine every process that `/proc` shows: it has CAP_SYS_PTRACE (capabilities(7)), and not only
/// for a user namespace of its own, unless that has processes of its own as well.
pub(crate) fn examines_all(in_a_container: bool) -> bool {
    let sets = capabilities(None);
    let namespace = || std::fs::metadata("/proc/self/ns/user").map(|seen| seen.ino());
    sets.is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE))
        && (in_a_container || namespace().is_ok_and(|inode| inode == FIRST_USER_NAMESPACE))
}

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

/// Whether a directory's file system shows one file under all its hard links, and counts them. Not all of those in user
/// space do.
pub(crate) fn counts_links(directory: impl AsFd) -> bool {
    // ramfs, tmpfs, ext2 to ext4, XFS, btrfs and overlayfs. Source: statfs(2).
    const COUNTING: [u64; 6] =
        [0x8584_58f6, 0x0102_1994, 0xef53, 0x5846_5342, 0x9123_683e, 0x794c_7630];
    kind_of_file_system(directory).is_some_and(|kind| COUNTING.contains(&kind))
}

fn kind_of_file_system(directory: impl AsFd) -> Option<u64> {
    let kind = u64::try_from(rustix::fs::fstatfs(directory).ok()?.f_type).ok()?;
    Some(kind & 0xffff_ffff)
}

/// The most bytes of entries that are read, some hundred names: a larger directory is not small. To list more takes as
/// long as to ask for the names of a device.
const LISTING_BYTES: usize = 8192;

/// A directory that is kept open, to be listed again and again.
#[derive(Debug)]
pub(crate) struct SmallListing {
    listed: Mutex<OwnedFd>,
    /// It was found to be large, and is not listed any more.
    is_large: AtomicBool,
}

impl SmallListing {
    /// `None` if the directory may not be listed, or if its file system is not one of those that list it as it is at one
    /// moment. Their calls hold the directory's lock, as do all that change a name in it (`iterate_dir` in the kernel's
    /// fs/readdir.c). Others list what they remember: a network's or a user's file system, or btrfs before Linux 6.7,
    /// where a kept opening does not show newer names.
    pub(crate) fn open(directory: impl AsFd) -> Option<Self> {
        // ramfs, tmpfs, ext2 to ext4, and XFS. Source: statfs(2).
        const EXACT: [u64; 4] = [0x8584_58f6, 0x0102_1994, 0xef53, 0x5846_5342];
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let listed = nix::fcntl::openat(directory.as_fd(), ".", flags, Mode::empty()).ok()?;
        let is_exact = EXACT.contains(&kind_of_file_system(&listed)?);
        is_exact.then(|| Self { listed: Mutex::new(listed), is_large: false.into() })
    }

    /// Calls `see` with each name in the directory. Whether these are all: the names at one moment, if the directory is
    /// small. Otherwise the caller must not conclude anything from a name that is missing.
    pub(crate) fn show_all(&self, mut see: impl FnMut(&[u8])) -> bool {
        if self.is_large.load(Ordering::Relaxed) {
            return false;
        }
        // One thread at a time: they share the position.
        let Ok(listed) = self.listed.lock() else { return false };
        if rustix::fs::seek(&*listed, SeekFrom::Start(0)).is_err() {
            return false;
        }
        let mut buffer = [MaybeUninit::uninit(); LISTING_BYTES];
        let mut entries = RawDir::new(&*listed, &mut buffer);
        let mut pieces = 0_u8;
        loop {
            pieces = pieces.saturating_add(u8::from(entries.is_buffer_empty()));
            match entries.next() {
                // A second piece is of another moment. An empty one says that the first was whole: a signal can end it.
                None => return true,
                Some(Ok(entry)) if pieces == 1 => see(entry.file_name().to_bytes()),
                Some(entry) => {
                    self.is_large.store(entry.is_ok(), Ordering::Relaxed);
                    return false;
                }
            }
        }
    }
}

/// Splits a `dev_t` into major and minor number (makedev(3)).
pub(crate) fn numbers(device: u64) -> Numbers {
    Numbers { major: nix::sys::stat::major(device), minor: nix::sys::stat::minor(device) }
}

/// The supplementary groups of the process that connected a Unix socket, as they were at that moment (`SO_PEERGROUPS` in
/// unix(7), since Linux 4.13).
///
/// # Errors
/// The system's, as for a socket of another kind.
#[expect(unsafe_code, reason = "no library offers this call")]
pub fn peer_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    use nix::libc::{SO_PEERGROUPS, SOL_SOCKET, getsockopt, socklen_t};

    // Most processes are in fewer. The kernel tells how many there are if there is no room for all of them.
    let mut groups = vec![0_u32; 64];
    loop {
        let bytes = size_of_val(groups.as_slice());
        let mut length = socklen_t::try_from(bytes).map_err(io::Error::other)?;
        let (socket, room) = (socket.as_raw_fd(), groups.as_mut_ptr());
        // SAFETY: the call writes at most `length` bytes to where it is told, which is the length of the list, and then
        // their number, or the number that it has, into `length`.
        let got =
            unsafe { getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, room.cast(), &raw mut length) };
        let count = usize::try_from(length).map_err(io::Error::other)? / size_of::<u32>();
        if got == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(nix::libc::ERANGE) || count <= groups.len() {
            return Err(error);
        }
        groups.resize(count, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_of_a_peer_are_those_of_the_process() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let own = nix::unistd::getgroups().unwrap();
        let own: Vec<u32> = own.into_iter().map(nix::unistd::Gid::as_raw).collect();
        assert_eq!(peer_groups(one.as_fd()).unwrap(), own);
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        assert!(peer_groups(file.as_fd()).is_err());
    }

    #[test]
    fn a_directory_that_may_not_be_listed_as_it_is_at_one_moment_is_not_listed() {
        let proc = std::fs::File::open("/proc").unwrap();
        assert!(SmallListing::open(proc).is_none());
    }

    #[test]
    fn a_listing_of_several_pieces_is_not_whole() {
        let root = tempfile::tempdir().unwrap();
        let Some(listing) = SmallListing::open(std::fs::File::open(root.path()).unwrap()) else {
            return eprintln!("the file system of {} is not listed", root.path().display());
        };
        let mut made = 0_usize;
        let last_whole = loop {
            let mut seen = 0_usize;
            if !listing.show_all(|_| seen += 1) {
                break made;
            }
            // It also shows `.` and `..`.
            assert_eq!(seen, made + 2);
            std::fs::write(root.path().join(format!("LCK..{made}")), "").unwrap();
            made += 1;
        };
        assert!((64..512).contains(&last_whole), "{last_whole}");
        for number in 1..made {
            std::fs::remove_file(root.path().join(format!("LCK..{number}"))).unwrap();
        }
        assert!(!listing.show_all(|_| ()), "it was large");
        let listing = SmallListing::open(std::fs::File::open(root.path()).unwrap()).unwrap();
        let mut names = Vec::new();
        assert!(listing.show_all(|name| names.push(name.to_vec())));
        assert!(names.contains(&b"LCK..0".to_vec()));
    }
}
