//! System calls of the locks on Linux.

use std::ffi::{CStr, OsStr};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use pidlockfile::{Directory, Identity, Pid};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawDir, ResolveFlags, SeekFrom, StatFs, Statx,
    StatxAttributes, StatxFlags, openat, openat2,
};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use rustix::thread::{CapabilitySet, capabilities};

use super::{Seen, look_plainly};
use crate::device::Numbers;

/// The flag for opening a directory that need not be listed.
pub(crate) const HANDLE: OFlags = OFlags::PATH;

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
        Err(Errno::NOSYS) => look_plainly(path),
        Err(errno) => Err(errno.into()),
    }
}

/// The target of a link in an open directory, examined as by [`look_at`].
pub(crate) fn look_through(directory: impl AsFd, link: &CStr) -> io::Result<Seen> {
    match rustix::fs::statx(&directory, link, AtFlags::STATX_DONT_SYNC, StatxFlags::BASIC_STATS) {
        Ok(seen) => Ok(seen.into()),
        Err(Errno::NOSYS) => {
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
        Err(Errno::NOSYS) => {
            let open = std::fs::File::from(open.as_fd().try_clone_to_owned()?);
            open.metadata().map(|seen| Seen::from(&seen))
        }
        Err(errno) => Err(errno.into()),
    }
}

/// For a single thread instead of a process: since Linux 6.9 (`PIDFD_THREAD` in pidfd_open(2)).
const OF_A_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(OFlags::EXCL.bits());

/// One process or thread, never a later one with its number (pidfd_open(2)).
#[derive(Debug)]
pub(crate) struct ProcessHandle(OwnedFd);

impl ProcessHandle {
    pub(crate) fn open(pid: Pid) -> io::Result<Self> {
        Ok(Self(pidlockfile::process::handle(pid)?))
    }

    /// A thread by its number, or an error of the system: older kernels know processes only.
    pub(crate) fn of_thread(number: i32) -> io::Result<Self> {
        let thread = rustix::process::Pid::from_raw(number).ok_or(Errno::SRCH)?;
        Ok(Self(pidfd_open(thread, OF_A_THREAD)?))
    }

    /// A descriptor of the process, as one of our own that child processes do not inherit; `None` if the process has
    /// no descriptor of that number (any more). Source: pidfd_getfd(2); asks for the right to trace the process.
    pub(crate) fn duplicate(&self, number: i32) -> io::Result<Option<OwnedFd>> {
        match pidfd_getfd(&self.0, number, PidfdGetfdFlags::empty()) {
            Ok(descriptor) => Ok(Some(descriptor)),
            Err(Errno::BADF) => Ok(None),
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

/// The numbers of the null device. Source: null(4).
pub(crate) fn null_device() -> Option<Numbers> {
    Some(Numbers { major: 1, minor: 3 })
}

/// Opens a directory in one that others may write: they may have made it, put a link in its place,
/// or mounted something over it.
pub(crate) fn open_below(above: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    let open = |access| {
        let flags = access | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat2(&above, name, flags, Mode::empty(), resolve) {
            // Before Linux 5.6 nothing more can be asked.
            Err(Errno::NOSYS) => openat(&above, name, flags, Mode::empty()),
            answer => answer,
        }
    };
    match open(OFlags::RDONLY) {
        // It may be used, but not listed.
        Err(Errno::ACCESS) => open(HANDLE),
        answer => answer,
    }
}

/// The kind of a file system, as statfs(2) says it; `None` if it does not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileSystem(Option<u64>);

impl FileSystem {
    /// The one of an open directory.
    pub(crate) fn of(directory: impl AsFd) -> Self {
        Self::seen(rustix::fs::fstatfs(directory))
    }

    /// The one of the directory to which a path leads.
    pub(crate) fn of_path(directory: &Path) -> Self {
        Self::seen(rustix::fs::statfs(directory))
    }

    fn seen(seen: Result<StatFs, Errno>) -> Self {
        let kind = seen.ok().and_then(|seen| u64::try_from(seen.f_type).ok());
        Self(kind.map(|kind| kind & 0xffff_ffff))
    }

    /// Whether it shows one file under all its hard links, and counts them. Not all of those in user space do.
    pub(crate) fn counts_links(self) -> bool {
        // ramfs, tmpfs, ext2 to ext4, XFS, btrfs and overlayfs. Source: statfs(2).
        const COUNTING: [u64; 6] =
            [0x8584_58f6, 0x0102_1994, 0xef53, 0x5846_5342, 0x9123_683e, 0x794c_7630];
        self.0.is_some_and(|kind| COUNTING.contains(&kind))
    }

    /// Whether it lists a directory as it is at one moment: its calls hold the directory's lock, as do all that change a name
    /// in it (`iterate_dir` in the kernel's fs/readdir.c), and each such change sets the directory's times. Others list what
    /// they remember: a network's or a user's file system, or btrfs before Linux 6.7, where a kept opening does not show newer
    /// names.
    pub(crate) fn lists_exactly(self) -> bool {
        // ramfs, tmpfs, ext2 to ext4, and XFS. Source: statfs(2).
        const EXACT: [u64; 4] = [0x8584_58f6, 0x0102_1994, 0xef53, 0x5846_5342];
        self.0.is_some_and(|kind| EXACT.contains(&kind))
    }
}

/// What was seen of a directory straight after it was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    /// The clock before that.
    clock: FileClock,
    version: Option<NamesVersion>,
}

impl Opened {
    /// Of a directory that is opened straight afterwards, and not examined.
    pub(crate) fn now() -> Self {
        Self { clock: FileClock::now(), version: None }
    }
}

/// Opens a directory, and examines it in the one call that also says which names it has.
pub(crate) fn open_examined(
    open: impl FnOnce() -> io::Result<OwnedFd>,
) -> io::Result<(Directory, Opened)> {
    let opened = Opened::now();
    let handle = open()?;
    let Ok(seen) = NamesVersion::examine(&handle, c"", AtFlags::EMPTY_PATH) else {
        return Ok((Directory::from_handle(handle)?, opened));
    };
    let device = rustix::fs::makedev(seen.stx_dev_major, seen.stx_dev_minor);
    let identity = Identity { device, inode: seen.stx_ino };
    let mode = u32::from(seen.stx_mode) & 0o7777;
    let directory = Directory::examined(handle, identity, mode, seen.stx_uid);
    Ok((directory, Opened { version: NamesVersion::in_status(&seen), ..opened }))
}

/// Calls `see` with each name in an open directory and what it is, as far as the directory says that.
pub(crate) fn each_entry(
    directory: impl AsFd,
    mut see: impl FnMut(&CStr, FileType),
) -> io::Result<()> {
    let mut buffer = [MaybeUninit::uninit(); LISTING_BYTES];
    let mut entries = RawDir::new(directory, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        see(entry.file_name(), entry.file_type());
    }
    Ok(())
}

/// Which names a directory has, by its times: as long as it has the same version, it has the same names.
///
/// A change of a name sets the times of the directory by a clock that moves on every few milliseconds. So a change may leave
/// them as they are, if the one before was made a moment ago. Only a version that was older than that clock, before the
/// names were read, [says something](Self::counts).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NamesVersion {
    file_system: (u32, u32),
    inode: u64,
    links: u32,
    size: u64,
    modified: (i64, u32),
    changed: (i64, u32),
}

impl NamesVersion {
    /// Of an open directory. `None` if it cannot be examined.
    pub(crate) fn of(directory: impl AsFd) -> Option<Self> {
        Self::seen(directory, c"", AtFlags::EMPTY_PATH)
    }

    /// Of the directory to which a path leads.
    pub(crate) fn of_path(path: &Path) -> Option<Self> {
        Self::seen(CWD, path, AtFlags::empty())
    }

    fn seen(directory: impl AsFd, path: impl rustix::path::Arg, flags: AtFlags) -> Option<Self> {
        Self::in_status(&Self::examine(directory, path, flags).ok()?)
    }

    fn examine(
        directory: impl AsFd,
        path: impl rustix::path::Arg,
        flags: AtFlags,
    ) -> Result<Statx, Errno> {
        // This looks at the directory without its lock. Two processes that each change one and then look at the other's
        // must not both miss the change: both have this fence between their two steps.
        fence(Ordering::SeqCst);
        rustix::fs::statx(directory, path, flags, StatxFlags::BASIC_STATS)
    }

    fn in_status(seen: &Statx) -> Option<Self> {
        // Where names are encrypted, a key that comes or goes changes all of them, and no time.
        if seen.stx_attributes.contains(StatxAttributes::ENCRYPTED) {
            return None;
        }
        let time = |it: rustix::fs::StatxTimestamp| (it.tv_sec, it.tv_nsec);
        Some(Self {
            file_system: (seen.stx_dev_major, seen.stx_dev_minor),
            inode: seen.stx_ino,
            links: seen.stx_nlink,
            size: seen.stx_size,
            modified: time(seen.stx_mtime),
            changed: time(seen.stx_ctime),
        })
    }

    /// Whether every later change shows, if the clock of files stood there before this was seen. Some file systems keep whole
    /// seconds. (If somebody sets the clock back, a change would have to be made at the same nanosecond.)
    pub(crate) fn counts(self, clock: FileClock) -> bool {
        self.changed < clock.0 && self.changed.1 != 0
    }
}

/// A time of the clock by which files get their times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileClock((i64, u32));

impl FileClock {
    /// By the C library, which makes no system call for that. The other library looks for the kernel's code by itself, and
    /// crashes below valgrind, which hides it. If the clock cannot be read, no version counts.
    #[expect(unsafe_code, reason = "no other library offers this call")]
    pub(crate) fn now() -> Self {
        let mut now = MaybeUninit::<libc::timespec>::uninit();
        // SAFETY: the call writes one time, and only to where it is told.
        let got = unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, now.as_mut_ptr()) };
        if got != 0 {
            return Self((i64::MIN, 0));
        }
        // SAFETY: the call has written it.
        let now = unsafe { now.assume_init() };
        Self((wide(now.tv_sec), u32::try_from(now.tv_nsec).unwrap_or_default()))
    }

    /// Whether less than two seconds lie between them.
    fn is_just_before(self, later: Self) -> bool {
        let (before, after) = (self.0.0, later.0.0);
        (before..=before.saturating_add(1)).contains(&after)
    }
}

/// A number of seconds, which has 32 bits on some machines.
fn wide(seconds: impl Into<i64>) -> i64 {
    seconds.into()
}

/// The most bytes of entries that are read, some hundred names: a larger directory is not small. To list more takes as
/// long as to ask for the names of a device.
const LISTING_BYTES: usize = 8192;

/// What is listed of an open directory again and again.
#[derive(Debug)]
pub(crate) struct SmallListing {
    listed: Mutex<Listed>,
    /// Which names are wanted of a directory that seldom changes: it is listed again only if it has changed, which takes one
    /// call instead of three, and one more if it has.
    wanted: Option<fn(&[u8]) -> bool>,
    /// It was found to be large, and is not listed any more.
    is_large: AtomicBool,
}

/// What was listed last.
#[derive(Debug)]
struct Listed {
    /// Before the first listing.
    opened: Option<Opened>,
    /// Those that are wanted, each with a zero behind it.
    names: Vec<u8>,
    /// The directory has these names as long as it has this version.
    version: Option<NamesVersion>,
}

impl SmallListing {
    /// Of a directory that seldom changes only the names that are `wanted` are shown, of another one all. `None` if the
    /// directory's file system does not list it as it is at one moment.
    pub(crate) fn of(
        file_system: FileSystem,
        opened: Option<Opened>,
        wanted: Option<fn(&[u8]) -> bool>,
    ) -> Option<Self> {
        let listed = Mutex::new(Listed { opened, names: Vec::new(), version: None });
        let is_large = AtomicBool::new(false);
        file_system.lists_exactly().then_some(Self { listed, wanted, is_large })
    }

    /// Calls `see` with each name in the directory, always the same open one. Whether these are all: the names at one moment,
    /// if the directory is small and may be listed. Otherwise the caller must not conclude anything from a name that is
    /// missing.
    pub(crate) fn show_all(&self, directory: impl AsFd, see: impl FnMut(&[u8])) -> bool {
        if self.is_large.load(Ordering::Relaxed) {
            return false;
        }
        // One thread at a time: they share the position.
        let Ok(mut listed) = self.listed.lock() else { return false };
        let now = FileClock::now();
        // The first time, what was seen at the opening is enough: a change since then shows the next time.
        let opened = listed.opened.take().filter(|opened| opened.clock.is_just_before(now));
        let is_rewound = opened.is_some();
        let Opened { clock, version } = opened.unwrap_or_else(|| {
            let version = self.wanted.and_then(|_| NamesVersion::of(&directory));
            Opened { clock: now, version }
        });
        if version.is_none() || version != listed.version {
            listed.version = None;
            if !is_rewound && rustix::fs::seek(&directory, SeekFrom::Start(0)).is_err() {
                return false;
            }
            let is_whole = listed.read(directory.as_fd(), self.wanted);
            if is_whole != Some(true) {
                listed.names.clear();
                self.is_large.store(is_whole.is_some(), Ordering::Relaxed);
                return false;
            }
            listed.version = version.filter(|it| it.counts(clock));
        }
        listed.each_name(see);
        true
    }

    /// Calls `see` with what was shown last, whatever has changed since. False if nothing was.
    pub(crate) fn show_last(&self, see: impl FnMut(&[u8])) -> bool {
        let Ok(listed) = self.listed.lock() else { return false };
        listed.each_name(see);
        // An open directory has at least itself in it.
        self.wanted.is_none() && !listed.names.is_empty()
    }
}

impl Listed {
    fn each_name(&self, see: impl FnMut(&[u8])) {
        self.names.split(|byte| *byte == 0).filter(|name| !name.is_empty()).for_each(see);
    }

    /// Reads the names of a directory that was just opened, or set to its start: Linux 6.11 to 6.13 show no names that came to
    /// a tmpfs after that. False if there are more than are read; `None` if they cannot be read.
    fn read(
        &mut self,
        directory: BorrowedFd<'_>,
        wanted: Option<fn(&[u8]) -> bool>,
    ) -> Option<bool> {
        self.names.clear();
        let mut buffer = [MaybeUninit::uninit(); LISTING_BYTES];
        let mut entries = RawDir::new(directory, &mut buffer);
        let mut pieces = 0_u8;
        loop {
            pieces = pieces.saturating_add(u8::from(entries.is_buffer_empty()));
            match entries.next() {
                // A second piece is of another moment. An empty one says that the first was whole: a signal can end it.
                None => return Some(true),
                Some(Ok(entry)) if pieces == 1 => {
                    let name = entry.file_name();
                    if wanted.is_none_or(|wanted| wanted(name.to_bytes())) {
                        self.names.extend_from_slice(name.to_bytes_with_nul());
                    }
                }
                Some(entry) => return entry.is_ok().then_some(false),
            }
        }
    }
}

/// Splits a `dev_t` into major and minor number (makedev(3)).
pub(crate) fn numbers(device: u64) -> Numbers {
    Numbers { major: rustix::fs::major(device).into(), minor: rustix::fs::minor(device).into() }
}

/// The supplementary groups of the process that connected a Unix socket, as they were at that moment (`SO_PEERGROUPS` in
/// unix(7), since Linux 4.13).
///
/// # Errors
/// The system's, as for a socket of another kind.
#[expect(unsafe_code, reason = "no library offers this call")]
pub fn peer_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    use libc::{SO_PEERGROUPS, SOL_SOCKET, getsockopt, socklen_t};

    // Most processes are in fewer. The kernel says how many there are if there is no room for all of them.
    let mut groups = vec![0_u32; 64];
    loop {
        let bytes = size_of_val(groups.as_slice());
        let mut length = socklen_t::try_from(bytes).map_err(io::Error::other)?;
        let (socket, room) = (socket.as_raw_fd(), groups.as_mut_ptr());
        // SAFETY: the call writes at most `length` bytes to the given place, which is the length of the list, and then
        // their number, or the number that it has, into `length`.
        let got =
            unsafe { getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, room.cast(), &raw mut length) };
        let count = usize::try_from(length).map_err(io::Error::other)? / size_of::<u32>();
        if got == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || count <= groups.len() {
            return Err(error);
        }
        groups.resize(count, 0);
    }
}

/// Whether another process locks any part of the file by `fcntl(2)`, also by an open file description (OFD). These locks do
/// not conflict with `flock(2)`. A program that uses a lock file only so, such as Python's fasteners, leaves it empty. On a
/// file system that cannot tell, there is none.
#[expect(
    unsafe_code,
    reason = "rustix asserts that the lock's process has a number: an OFD lock has -1"
)]
pub(crate) fn is_record_locked(file: impl AsFd) -> bool {
    use libc::{EOVERFLOW, F_GETLK, F_UNLCK, F_WRLCK, SEEK_SET, c_int, c_short, fcntl, flock};

    // The C library gives these constants another type than the field has.
    let short = |number: c_int| c_short::try_from(number).unwrap_or_default();
    // Which lock would be in the way of one for writing? The question needs no right to write.
    let (l_type, l_whence) = (short(F_WRLCK), short(SEEK_SET));
    let mut lock = flock { l_type, l_whence, l_start: 0, l_len: 0, l_pid: 0 };
    // SAFETY: the call reads and writes this structure, and nothing else.
    let got = unsafe { fcntl(file.as_fd().as_raw_fd(), F_GETLK, &raw mut lock) };
    if got == 0 {
        return lock.l_type != short(F_UNLCK);
    }
    // The lock is behind what the numbers of this system reach.
    io::Error::last_os_error().raw_os_error() == Some(EOVERFLOW)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::{Duration, Instant};

    use rstest::rstest;

    use super::*;

    /// A directory that was changed at that time, and the clock just before it was looked at.
    #[rstest]
    #[case::earlier((7, 1), (7, 2), true)]
    #[case::a_second_earlier((6, 9), (7, 2), true)]
    #[case::at_this_tick((7, 2), (7, 2), false)]
    #[case::later((7, 3), (7, 2), false)]
    #[case::of_a_clock_that_was_set_back((8, 1), (7, 2), false)]
    #[case::in_whole_seconds((6, 0), (7, 2), false)]
    fn a_version_counts_if_every_later_change_has_another_time(
        #[case] changed: (i64, u32),
        #[case] clock: (i64, u32),
        #[case] expected: bool,
    ) {
        let root = tempfile::tempdir().unwrap();
        let version = NamesVersion { changed, ..NamesVersion::of_path(root.path()).unwrap() };
        assert_eq!(version.counts(FileClock(clock)), expected);
    }

    fn names_in(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> =
            entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }

    /// A directory that was opened long ago, and its listing; `None` if its file system is not listed.
    fn opened(path: &Path, wanted: Option<fn(&[u8]) -> bool>) -> Option<(fs::File, SmallListing)> {
        let directory = fs::File::open(path).unwrap();
        let listing = SmallListing::of(FileSystem::of(&directory), None, wanted);
        if listing.is_none() {
            eprintln!("the file system of {} is not listed", path.display());
        }
        Some((directory, listing?))
    }

    fn shown_again(directory: impl AsFd, listing: &SmallListing) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        let mut see = |name: &[u8]| names.push(String::from_utf8_lossy(name).into());
        assert!(listing.show_all(directory, &mut see));
        names.retain(|name| ![".", ".."].contains(&name.as_str()));
        names.sort_unstable();
        names
    }

    /// A change, long after the directory was listed last or straight after another change.
    #[rstest]
    #[case::a_new_file(|at: &Path| fs::write(at.join("new"), ""))]
    #[case::a_new_link(|at: &Path| fs::hard_link(at.join("one"), at.join("new")))]
    #[case::a_new_symbolic_link(|at: &Path| symlink("x", at.join("new")))]
    #[case::another_name(|at: &Path| fs::rename(at.join("one"), at.join("new")))]
    #[case::a_name_less(|at: &Path| fs::remove_file(at.join("one")))]
    #[case::a_file_over_another(|at: &Path| fs::rename(at.join("one"), at.join("two")))]
    #[case::from_elsewhere(|at: &Path| fs::rename(at.join("below/three"), at.join("new")))]
    #[case::to_elsewhere(|at: &Path| fs::rename(at.join("one"), at.join("below/one")))]
    fn a_changed_directory_is_listed_again(#[case] change: fn(&Path) -> io::Result<()>) {
        for waits in [true, false] {
            let root = tempfile::tempdir().unwrap();
            let path = root.path();
            fs::create_dir(path.join("below")).unwrap();
            for name in ["one", "two", "below/three"] {
                fs::write(path.join(name), "").unwrap();
            }
            let Some((directory, listing)) = opened(path, Some(|_| true)) else { return };
            let is_kept = || listing.listed.lock().unwrap().version.is_some();
            let by = Instant::now() + Duration::from_secs(60);
            assert_eq!(shown_again(&directory, &listing), names_in(path));
            while waits && !is_kept() {
                assert!(Instant::now() < by, "it is listed each time");
                assert_eq!(shown_again(&directory, &listing), names_in(path));
            }
            change(path).unwrap();
            assert_eq!(shown_again(&directory, &listing), names_in(path));
        }
    }

    /// The first listing is of what was there at the opening, or later. What was seen then does not hide a change since.
    #[rstest]
    #[case::at_once(false)]
    #[case::when_the_names_seen_at_the_opening_count(true)]
    fn a_change_since_the_opening_shows_in_the_second_listing(#[case] waits: bool) {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("LCK..old"), "").unwrap();
        let open = || open_examined(|| pidlockfile::open_directory(root.path())).unwrap();
        let counts = |it: Opened| it.version.is_some_and(|version| version.counts(it.clock));
        let by = Instant::now() + Duration::from_secs(60);
        let (directory, at_opening) = loop {
            let open = open();
            if !waits || counts(open.1) || !FileSystem::of(&open.0).lists_exactly() {
                break open;
            }
            assert!(Instant::now() < by, "its time does not become old");
        };
        for wanted in [None, Some((|_| true) as fn(&[u8]) -> bool)] {
            let file_system = FileSystem::of(&directory);
            let Some(listing) = SmallListing::of(file_system, Some(at_opening), wanted) else {
                return;
            };
            let made = root.path().join(format!("LCK..{}", wanted.is_some()));
            fs::write(made, "").unwrap();
            let first = shown_again(&directory, &listing);
            assert!(first.contains(&"LCK..old".to_owned()), "{first:?}");
            assert_eq!(shown_again(&directory, &listing), names_in(root.path()));
            fs::write(root.path().join("LCK..new"), "").unwrap();
            assert_eq!(shown_again(&directory, &listing), names_in(root.path()));
            fs::remove_file(root.path().join("LCK..new")).unwrap();
            assert_eq!(shown_again(&directory, &listing), names_in(root.path()));
            rustix::fs::seek(&directory, SeekFrom::Start(0)).unwrap();
        }
    }

    /// Some kernels show an opening only the names that the directory had when it was opened, or set to its start.
    #[test]
    fn a_name_that_came_after_the_opening_is_shown() {
        let root = tempfile::tempdir().unwrap();
        let Some((directory, listing)) = opened(root.path(), Some(|_| true)) else { return };
        for name in ["LCK..ttyS0", "LCK..ttyS1"] {
            fs::write(root.path().join(name), "").unwrap();
            assert_eq!(shown_again(&directory, &listing), names_in(root.path()));
        }
    }

    #[test]
    fn a_directory_that_may_not_be_read_is_not_listed() {
        let root = tempfile::tempdir().unwrap();
        let Some((_, listing)) = opened(root.path(), None) else { return };
        let handle = rustix::fs::open(root.path(), HANDLE, Mode::empty()).unwrap();
        assert!(!listing.show_all(handle, |_| ()));
    }

    #[test]
    fn the_groups_of_a_peer_are_those_of_the_process() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let own = rustix::process::getgroups().unwrap();
        let own: Vec<u32> = own.into_iter().map(rustix::process::Gid::as_raw).collect();
        assert_eq!(peer_groups(one.as_fd()).unwrap(), own);
        let file = fs::File::open("/proc/self/stat").unwrap();
        assert!(peer_groups(file.as_fd()).is_err());
    }

    #[test]
    fn a_directory_that_may_not_be_listed_as_it_is_at_one_moment_is_not_listed() {
        let proc = fs::File::open("/proc").unwrap();
        assert!(SmallListing::of(FileSystem::of(proc), None, None).is_none());
    }

    #[test]
    fn a_listing_of_several_pieces_is_not_whole() {
        let root = tempfile::tempdir().unwrap();
        let Some((directory, listing)) = opened(root.path(), None) else { return };
        let mut made = 0_usize;
        let last_whole = loop {
            let mut seen = 0_usize;
            if !listing.show_all(&directory, |_| seen += 1) {
                break made;
            }
            // It also shows `.` and `..`.
            assert_eq!(seen, made + 2);
            fs::write(root.path().join(format!("LCK..{made}")), "").unwrap();
            made += 1;
        };
        assert!((64..512).contains(&last_whole), "{last_whole}");
        for number in 1..made {
            fs::remove_file(root.path().join(format!("LCK..{number}"))).unwrap();
        }
        assert!(!listing.show_all(&directory, |_| ()), "it was large");
        let listing = SmallListing::of(FileSystem::of(&directory), None, None).unwrap();
        let mut names = Vec::new();
        assert!(listing.show_all(&directory, |name| names.push(name.to_vec())));
        assert!(names.contains(&b"LCK..0".to_vec()));
    }
}
