//! Files mode: handles a call that names a lock file, after the real call was made.
//!
//! A call comes here only after it has failed for lack of permission, or has looked at a lock. The result `None` means
//! that the result of the real call stands.
//!
//! Both modes learn here which process holds a lock file, and read small files of the system.

use std::borrow::Cow;
use std::ffi::CStr;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use lfp::Holder;
use pidlockfile::Pid;
use pidlockfile::process::{Stat, lives, shares_locks_of};
use rustix::fs::{
    CWD, FileType, MemfdFlags, Mode, OFlags, fstat, lstat, memfd_create, openat, readlinkat_raw,
    stat,
};
use rustix::io::{Errno, pread, read};
use rustix::process::{geteuid, getuid};
use ttylock::{BEGINNING, Content, DeviceName, Dialect, Layout, Outcome, READ_LIMIT};

use crate::locks::{self, LockState};
use crate::path::{self, LockName, PathKind};
use crate::private;
use crate::service::{NoAnswer, Service, may_answer};
use crate::settings::settings;

/// A file as a program named it.
#[derive(Clone, Copy)]
pub(crate) struct NamedPath<'a> {
    /// What a relative path is relative to.
    pub(crate) dir: i32,
    pub(crate) path: &'a CStr,
}

/// The result that a program may get instead of the real call's.
pub(crate) type Instead<T> = Option<Result<T, Errno>>;

/// What becomes of a call that has looked at a lock.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// The real result stands.
    Stands,
    /// The lock was a dead process's and is gone now: look again.
    Again,
    /// The lock is the program's own already, taken for it by `lfp run` or when it opened the port, or
    /// given back while the service did not answer: it is to find the port free, and its own lock when
    /// it asks for one.
    Hidden,
}

/// A device that is there.
struct PresentDevice {
    name: DeviceName,
    number: u64,
}

/// Whether the error says that the lock directory may not be written.
pub(crate) fn is_denied(errno: Errno) -> bool {
    matches!(errno, Errno::ACCESS | Errno::PERM | Errno::ROFS)
}

/// Whether a call that has failed so may be given another result at all.
pub(crate) fn may_change(errno: Errno) -> bool {
    (is_denied(errno) || matches!(errno, Errno::NOENT | Errno::EXIST)) && !settings().is_lfp
}

/// open(2) has failed.
pub(crate) fn open(
    name: NamedPath<'_>,
    flags: OFlags,
    mode: Mode,
    errno: Errno,
) -> Instead<OwnedFd> {
    let path = absolute(name)?;
    match place(&path) {
        PathKind::Lock(lock) => {
            let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
            let makes = writes && flags.contains(OFlags::CREATE);
            if !makes || !(is_denied(errno) || errno == Errno::EXIST) {
                return None;
            }
            let taken = take(&path, &lock, Pid::this(), errno)?;
            let refusal = if flags.contains(OFlags::EXCL) { Errno::EXIST } else { Errno::ACCESS };
            Some(match taken {
                Outcome::Done => swallow(flags).inspect_err(|_| {
                    // No descriptor for the program: it has no lock either.
                    let _ = release(&path, &lock);
                }),
                Outcome::Busy => Err(refusal),
                Outcome::Denied => Err(Errno::ACCESS),
            })
        }
        PathKind::Temporary(file) if is_denied(errno) && flags.contains(OFlags::CREATE) => {
            with_service(|| private::open(file, flags, mode))
        }
        PathKind::Temporary(file) if is_denied(errno) || errno == Errno::NOENT => {
            private::open(file, flags, mode)?.ok().map(Ok)
        }
        PathKind::Temporary(_) | PathKind::Directory | PathKind::Elsewhere => None,
    }
}

/// mkstemp(3) has failed. The name that is found is written over the template's end.
pub(crate) fn make(path: &mut [u8], flags: OFlags, errno: Errno) -> Instead<OwnedFd> {
    if !is_denied(errno) {
        return None;
    }
    let is_temporary = matches!(place(path), PathKind::Temporary(_));
    let start = path.iter().rposition(|byte| *byte == b'/').filter(|_| is_temporary)?;
    with_service(|| private::make(path.get_mut(start.saturating_add(1)..)?, flags))
}

/// Makes a temporary, which becomes a lock only by a service. The error names a busy service: RXTX and others print it,
/// and would say that their user lacks a permission.
fn with_service(make: impl FnOnce() -> Instead<OwnedFd>) -> Instead<OwnedFd> {
    match Service::reach().map(drop) {
        Ok(()) => make(),
        Err(NoAnswer::Busy) => Some(Err(Errno::BUSY)),
        Err(NoAnswer::Absent | NoAnswer::Unable(_)) => None,
    }
}

/// What a lock is opened for that lives in the service: whatever the program writes goes nowhere.
fn swallow(flags: OFlags) -> Result<OwnedFd, Errno> {
    let kept =
        if flags.contains(OFlags::CLOEXEC) { MemfdFlags::CLOEXEC } else { MemfdFlags::empty() };
    memfd_create("lfp-lock", kept).or_else(|_| {
        let flags = OFlags::RDWR | (flags & OFlags::CLOEXEC);
        openat(CWD, "/dev/null", flags, Mode::empty())
    })
}

/// link(2) or rename(2) has failed.
pub(crate) fn link_or_rename(
    old: NamedPath<'_>,
    new: NamedPath<'_>,
    verb: Verb,
    errno: Errno,
) -> Instead<i32> {
    let (old, new) = (absolute(old)?, absolute(new)?);
    let (PathKind::Lock(lock), PathKind::Temporary(file)) = (place(&new), place(&old)) else {
        return None;
    };
    let opened = openat(CWD, &*old, READ, Mode::empty()).ok();
    let opened = opened.or_else(|| private::open(file, READ, Mode::empty())?.ok())?;
    let Some(pid) = pid_in(&opened) else { return Some(Err(Errno::INVAL)) };
    let taken = match take(&new, &lock, pid, errno)? {
        Outcome::Done => Ok(0),
        Outcome::Busy => Err(Errno::EXIST),
        Outcome::Denied => Err(Errno::ACCESS),
    };
    if taken.is_ok() && verb == Verb::Rename {
        private::remove(file);
    }
    Some(taken)
}

/// What is done with a temporary to make a lock of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Link,
    Rename,
}

/// Takes a lock for a process. None: the program gets the result of the real call.
fn take(path: &[u8], lock: &LockName<'_>, pid: Pid, errno: Errno) -> Option<Outcome> {
    let PresentDevice { name, number } = device(lock)?;
    let (holder, is_for_us) = (holder(path), pid == Pid::this());
    if let Some(run) = holder.filter(|holder| is_run(*holder)) {
        return take_over(&name, number, run, pid);
    }
    // The service has the lock for a port that is open or was closed; from now on it is the lock file's.
    if holder == Some(Pid::this()) && is_for_us && locks::leave_to_file(number) {
        return Some(Outcome::Done);
    }
    let is_to_be_released = is_for_us && locks::is_to_be_released(number);
    // The service may still obey a release, which would be one of the new lock.
    if is_to_be_released && !is_cleared(number) || errno == Errno::EXIST && !is_to_be_released {
        return None;
    }
    let outcome = Service::reach().ok()?.lock(&name, pid).ok();
    let is_known = || holder == Some(Pid::this()) || locks::is(number, &[LockState::File]);
    match outcome {
        // The service may have come to it all the same, or may come to it later.
        None if is_for_us && !is_known() => {
            locks::set_to_be_released(number, &name, LockState::Closed);
        }
        Some(Outcome::Done) if is_for_us => locks::set(number, &name, LockState::File),
        Some(_) | None => {}
    }
    outcome
}

/// Takes a lock that `lfp run` has taken for this process, or for one that it descends from.
fn take_over(name: &DeviceName, number: u64, run: Pid, pid: Pid) -> Option<Outcome> {
    if run == pid {
        locks::set(number, name, LockState::Adopted);
        return Some(Outcome::Done);
    }
    let passed = Service::reach().ok()?.pass(name, run, pid)?;
    if passed == Outcome::Done {
        locks::set(number, name, LockState::Passed);
    }
    Some(passed)
}

fn is_cleared(number: u64) -> bool {
    may_answer() && locks::clear(number).is_ok()
}

/// unlink(2) has failed.
pub(crate) fn remove(name: NamedPath<'_>, errno: Errno) -> Instead<i32> {
    let path = absolute(name)?;
    match place(&path) {
        PathKind::Lock(lock) if is_denied(errno) => release(&path, &lock),
        PathKind::Temporary(file) if is_denied(errno) || errno == Errno::NOENT => {
            private::remove(file).then_some(Ok(0))
        }
        PathKind::Lock(_) | PathKind::Temporary(_) | PathKind::Directory | PathKind::Elsewhere => {
            None
        }
    }
}

fn release(path: &[u8], lock: &LockName<'_>) -> Instead<i32> {
    let holder = holder(path)?;
    let own = Pid::this();
    let device = device(lock);
    let forget =
        |state| device.as_ref().is_some_and(|it| locks::change(it.number, state, LockState::None));
    if is_run(holder) {
        if holder != own {
            return Some(Err(Errno::NOENT));
        }
        // `lfp run` keeps it until the command has ended.
        forget(LockState::Adopted);
        return Some(Ok(0));
    }
    let holder = if forget(LockState::File) { own } else { holder };
    let was_passed = forget(LockState::Passed);
    let named = match &device {
        Some(device) => device.name.clone(),
        // Unplugged: the service knows the lock by its name.
        None => DeviceName::parse(lock.device).ok()?,
    };
    let mut service = Service::reach().ok();
    let unanswered = if service.is_some() { LockState::InDoubt } else { LockState::Closed };
    let back = settings().run.filter(|run| was_passed && is_run(*run));
    if let Some((run, service)) = back.zip(service.as_mut()) {
        if service.pass(&named, holder, run) == Some(Outcome::Done) {
            return Some(Ok(0));
        }
    }
    match service.and_then(|mut service| service.unlock(&named, holder)) {
        Some(Outcome::Done) => Some(Ok(0)),
        Some(Outcome::Busy | Outcome::Denied) => Some(Err(Errno::ACCESS)),
        // It is released later: the program will not ask again.
        None => {
            let device = device.filter(|_| holder == own)?;
            locks::set_to_be_released(device.number, &device.name, unanswered);
            Some(Ok(0))
        }
    }
}

/// A call has looked at a file that is there.
pub(crate) fn look(name: NamedPath<'_>) -> Look {
    if !may_be_lock(name.path.to_bytes()) {
        return Look::Stands;
    }
    let Some(path) = absolute(name) else { return Look::Stands };
    let PathKind::Lock(lock) = place(&path) else { return Look::Stands };
    let Some(holder) = holder(&path) else { return Look::Stands };
    let device = device(&lock);
    if is_hidden(holder, device.as_ref()) {
        return Look::Hidden;
    }
    if lives(holder) {
        return Look::Stands;
    }
    let named = device.map(|it| it.name).or_else(|| DeviceName::parse(lock.device).ok());
    let cleared = named.and_then(|named| Service::reach().ok()?.unlock(&named, holder));
    if cleared == Some(Outcome::Done) { Look::Again } else { Look::Stands }
}

fn is_hidden(holder: Pid, device: Option<&PresentDevice>) -> bool {
    let own = Pid::this();
    let is = |states: &[LockState]| device.is_some_and(|it| locks::is(it.number, states));
    if is_run(holder) {
        return holder != own || !is(&[LockState::Adopted]);
    }
    holder == own && is(&[LockState::Open, LockState::Closed, LockState::InDoubt])
}

/// access(2) has failed, for writing. Behind a busy service the directory counts as writable, too: QtSerialPort would
/// put its lock into another directory, and open the port beside its holder.
pub(crate) fn access_to_write(name: NamedPath<'_>, errno: Errno) -> Instead<i32> {
    if !is_denied(errno) || place(&absolute(name)?) != PathKind::Directory {
        return None;
    }
    matches!(Service::reach().map(drop), Ok(()) | Err(NoAnswer::Busy)).then_some(Ok(0))
}

/// The directory in which a temporary is that was not found where the program named it, with its
/// name there.
pub(crate) fn elsewhere(name: NamedPath<'_>, errno: Errno) -> Option<(OwnedFd, Vec<u8>)> {
    if !(is_denied(errno) || errno == Errno::NOENT) {
        return None;
    }
    let path = absolute(name)?;
    let PathKind::Temporary(file) = place(&path) else { return None };
    let directory = private::directory()?;
    let mut file = private::has(&directory, file).then(|| file.to_vec())?;
    file.push(0);
    Some((directory, file))
}

/// chmod(2), chown(2) or utime(2) has failed: on a program's own lock it succeeds without effect.
pub(crate) fn change(name: NamedPath<'_>, errno: Errno) -> Instead<i32> {
    let path = absolute(name)?;
    let PathKind::Lock(lock) = place(&path) else { return None };
    let is_own = is_denied(errno) && device(&lock).is_some() && holder(&path) == Some(Pid::this());
    is_own.then_some(Ok(0))
}

/// What a file is.
fn place(path: &[u8]) -> PathKind<'_> {
    let place = path::classify(path);
    if let PathKind::Lock(lock) = place {
        if path::may_be_temporary(lock.device) && device(&lock).is_none() {
            return PathKind::Temporary(lock.file);
        }
    }
    place
}

/// The path from the root. A relative one has one only where it has no directory, in a lock
/// directory: for programs that have made that their own, or have it open. Allocates only there,
/// because every call that fails passes here, in signal handlers too.
fn absolute(name: NamedPath<'_>) -> Option<Cow<'_, [u8]>> {
    const LINK_BYTES: usize = 32;
    let bytes = name.path.to_bytes();
    if bytes.first() == Some(&b'/') {
        return Some(Cow::Borrowed(bytes));
    }
    if bytes.is_empty() || bytes.contains(&b'/') {
        return None;
    }
    let mut link = [0; LINK_BYTES];
    match name.dir {
        libc::AT_FDCWD => write!(&mut link[..], "/proc/self/cwd"),
        dir => write!(&mut link[..], "/proc/self/fd/{dir}"),
    }
    .ok()?;
    let link = CStr::from_bytes_until_nul(&link).ok()?;
    // One more than fit: what fills it is longer than the name of any lock directory.
    let mut directory = [0; path::DIRECTORY_BYTES + 1];
    let length = readlinkat_raw(CWD, link, &mut directory).ok()?;
    let directory = directory.get(..length)?;
    if path::classify(directory) != PathKind::Directory {
        return None;
    }
    Some(Cow::Owned([directory, b"/", bytes].concat()))
}

/// Whether the last part of a path is called as locks are: for calls that are made all the time.
pub(crate) fn may_be_lock(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    name.starts_with(BEGINNING.as_bytes()) && !settings().is_lfp
}

/// The device of a lock, if it is there.
fn device(lock: &LockName<'_>) -> Option<PresentDevice> {
    path::devices(lock.device).find_map(|below| {
        let name = DeviceName::parse(&below).ok()?;
        let found = stat(format!("/dev/{}", name.as_str())).ok()?;
        let is_device = FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice;
        is_device.then_some(PresentDevice { name, number: found.st_rdev })
    })
}

/// The process that a lock file names.
fn holder(path: &[u8]) -> Option<Pid> {
    pid_in(&openat(CWD, path, READ, Mode::empty()).ok()?)
}

/// The process that the usual lock file of a device names, as far as this process may read it. A file that another user
/// may have planted says nothing.
pub(crate) fn lock_holder(device: &DeviceName) -> Option<Pid> {
    let base = device.as_str().rsplit('/').next()?;
    let directory = Dialect::native().lock_dir();
    let path = directory.join(format!("{BEGINNING}{base}"));
    let file = openat(CWD, path, READ, Mode::empty()).ok()?;
    let owner = fstat(&file).ok()?.st_uid;
    pid_in(&file).filter(|pid| may_lock_for(directory, owner, *pid))
}

/// Whether the lock file of a holder is of a user who may lock for that process. `None` if no such file is there, or
/// not any more. A holder by the kernel's list is believed.
pub(crate) fn is_believed(holder: &Holder) -> Option<bool> {
    let Some(name) = holder.scheme.file() else { return Some(true) };
    let found = |it: PathBuf| lstat(it.join(name)).ok().map(|seen| (it, seen.st_uid));
    let (directory, owner) = Dialect::known_directories().into_iter().find_map(found)?;
    Some(holder.pid.is_none_or(|pid| may_lock_for(&directory, owner, pid)))
}

/// Whether a lock file of this owner in this directory can be a lock of that process: if all users may write the lock
/// directory, anybody can put a file there that names any process. Root, the service, this user and that of the process
/// are believed.
fn may_lock_for(directory: &Path, owner: u32, pid: Pid) -> bool {
    let is_open_to_all = stat(directory).is_ok_and(|seen| seen.st_mode & 0o002 != 0);
    let is_owner = |path: &Path| stat(path).is_ok_and(|seen| seen.st_uid == owner);
    let own = [0, getuid().as_raw(), geteuid().as_raw()];
    !is_open_to_all
        || own.contains(&owner)
        || is_owner(Path::new(&format!("/proc/{pid}")))
        || is_owner(&Layout::native().state_dir)
}

/// How a file is opened to be read: no link, and without waiting for the writer of a pipe.
const READ: OFlags =
    OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// The process that a regular file names, as lock files do: a living one, if it may be read so.
fn pid_in(file: &OwnedFd) -> Option<Pid> {
    if FileType::from_raw_mode(fstat(file).ok()?.st_mode) != FileType::RegularFile {
        return None;
    }
    let mut content = [0; READ_LIMIT];
    let length = pread(file, &mut content, 0).ok()?;
    Content::parse(content.get(..length)?).ok().map(|content| content.holder(lives))
}

/// Whether it is the process that `lfp run` has locked for, and shares its locks with this one. A number that was given
/// to another since does not.
fn is_run(process: Pid) -> bool {
    settings().run == Some(process) && shares_locks_of_holder(process)
}

/// Bytes that are read at once.
const PIECE_BYTES: usize = 2048;

/// A small file of the system, or as much of it as is asked for. Past the C library, whose calls are our own here.
pub(crate) fn read_file(path: &str, most: usize) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let file = openat(CWD, path, flags, Mode::empty()).ok()?;
    let mut all = Vec::new();
    let mut piece = [0; PIECE_BYTES];
    while all.len() < most {
        match read(&file, &mut piece) {
            Ok(0) => break,
            Ok(length) => all.extend_from_slice(piece.get(..length)?),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    Some(all)
}

/// More than the longest `/proc/PID/stat`.
const STAT_BYTES: usize = 2048;

/// Whether a lock of `holder` is this process's as well, by the rule of `lfp run`.
pub(crate) fn shares_locks_of_holder(holder: Pid) -> bool {
    shares_locks_of(holder, parent)
}

fn parent(child: Pid) -> Option<Pid> {
    Pid::new(Stat::parse(&read_file(&format!("/proc/{child}/stat"), STAT_BYTES)?)?.parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_to_the_end_or_to_the_bound() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        std::fs::write(&path, "x".repeat(PIECE_BYTES * 2)).unwrap();
        let path = path.to_str().unwrap();
        assert_eq!(read_file(path, usize::MAX).unwrap().len(), PIECE_BYTES * 2);
        assert_eq!(read_file(path, 1).unwrap().len(), PIECE_BYTES);
        assert_eq!(read_file("/nowhere", 1), None);
    }
}
