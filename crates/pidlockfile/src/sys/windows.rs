//! Windows: system calls by path, below a directory that cannot be moved or removed while it is open.
//!
//! There is no `flock(2)`. To exclude others, a process opens the file for writing and does not share
//! writing. This ends with the handle, however the process ends. Reading, renaming and removing are shared,
//! so a process that has a file open keeps no other from these; foreign programs may.
//!
//! The metadata of a file is read by a handle that was opened only for that, so it is in nobody's way.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::windows::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::{Rename, fill};
use crate::errno::Errno;
use crate::status::{Identity, Obstacle, Status};

/// `FILE_READ_ATTRIBUTES`: no access to the content.
const READ_ATTRIBUTES: u32 = 0x80;
/// `FILE_FLAG_BACKUP_SEMANTICS`: directories can be opened as well.
const DIRECTORIES_TOO: u32 = 0x0200_0000;
/// `FILE_FLAG_OPEN_REPARSE_POINT`: a link itself and not where it leads.
const UNFOLLOWED: u32 = 0x0020_0000;

const ATTRIBUTE_DIRECTORY: u64 = 0x10;
const ATTRIBUTE_READ_ONLY: u64 = 0x1;
const ATTRIBUTE_REPARSE_POINT: u64 = 0x400;

/// From 1601, where Windows begins to count, to 1970.
const SECONDS_TO_1970: u64 = 11_644_473_600;

/// `FILE_SHARE_READ`, `FILE_SHARE_WRITE`, `FILE_SHARE_DELETE`.
const SHARE_READING: u32 = 1;
const SHARE_WRITING: u32 = 2;
const SHARE_REMOVING: u32 = 4;
const SHARE_ALL: u32 = SHARE_READING | SHARE_WRITING | SHARE_REMOVING;

/// `GENERIC_READ`, and `FILE_WRITE_ATTRIBUTES` to set the time of a file.
const READ: u32 = 0x8000_0000;
const SET_TIMES: u32 = 0x100;

/// Programs that look at every new file (virus scanners, indexers) have it open for some milliseconds.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(5);

/// An open directory.
#[derive(Debug)]
pub(crate) struct Handle {
    path: PathBuf,
    file: File,
}

impl AsRef<Self> for Handle {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl Handle {
    pub(crate) fn status(&self) -> Result<Status, Errno> {
        Ok(Status::of_open(&self.file)?)
    }

    fn at(&self, name: &OsStr) -> PathBuf {
        self.path.join(name)
    }
}

/// Without sharing removal (and renaming): the path means this directory as long as it is open.
pub(crate) fn open_directory(path: &Path) -> Result<Handle, Errno> {
    let path = std::path::absolute(path)?;
    let sharing = SHARE_READING | SHARE_WRITING;
    let mut options = OpenOptions::new();
    options.access_mode(READ_ATTRIBUTES).share_mode(sharing).custom_flags(DIRECTORIES_TOO);
    let file = options.open(&path)?;
    if file.metadata()?.is_dir() { Ok(Handle { path, file }) } else { Err(Errno::NOENT) }
}

pub(crate) fn inspect(dir: impl AsRef<Handle>, name: &OsStr) -> Result<Status, Errno> {
    Ok(Status::of_unfollowed(&dir.as_ref().at(name))?)
}

/// Shared in every way. The time can be set by it where that is allowed.
pub(crate) fn open_to_read(dir: impl AsRef<Handle>, name: &OsStr) -> Result<File, Errno> {
    let path = dir.as_ref().at(name);
    let open = |access| {
        let mut options = OpenOptions::new();
        options.access_mode(access).share_mode(SHARE_ALL).custom_flags(UNFOLLOWED);
        options.open(&path).map_err(Errno::from)
    };
    match open(READ | SET_TIMES) {
        Err(Errno::ACCESS) => open(READ),
        opened => opened,
    }
}

/// Excludes others as long as it is open.
pub(crate) fn open_to_write(dir: impl AsRef<Handle>, name: &OsStr) -> Result<File, Errno> {
    open_excluding(dir, name, OpenOptions::new().write(true))
}

/// Excludes others as long as it is open.
pub(crate) fn open_to_read_and_write(dir: impl AsRef<Handle>, name: &OsStr) -> Result<File, Errno> {
    open_excluding(dir, name, OpenOptions::new().read(true).write(true))
}

fn open_excluding(
    dir: impl AsRef<Handle>,
    name: &OsStr,
    options: &mut OpenOptions,
) -> Result<File, Errno> {
    options.share_mode(SHARE_READING | SHARE_REMOVING).custom_flags(UNFOLLOWED);
    Ok(options.open(dir.as_ref().at(name))?)
}

/// Excludes others as long as it is open. Access is what the directory's access list passes on.
pub(crate) fn create(dir: impl AsRef<Handle>, name: &OsStr, _mode: u32) -> Result<File, Errno> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).share_mode(SHARE_READING | SHARE_REMOVING);
    Ok(options.open(dir.as_ref().at(name))?)
}

pub(crate) fn stat_open(file: &File) -> Result<Status, Errno> {
    Ok(Status::of_open(file)?)
}

/// As [`fill`].
pub(crate) fn read_start(file: &File, buffer: &mut [u8], expected: usize) -> Result<usize, Errno> {
    Ok(fill(buffer, expected, |rest, at| file.seek_read(rest, at))?)
}

/// Of a new file, from its beginning.
pub(crate) fn write_all(mut file: &File, content: &[u8]) -> Result<(), Errno> {
    Ok(file.write_all(content)?)
}

/// There are no permission bits.
pub(crate) fn set_mode(_file: &File, _mode: u32) -> Result<(), Errno> {
    Ok(())
}

pub(crate) fn sync(file: &File) -> Result<(), Errno> {
    Ok(file.sync_all()?)
}

/// The caller's next way is a second name, which is not needed here: see [`rename`].
pub(crate) fn link(dir: impl AsRef<Handle>, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
    Ok(std::fs::hard_link(dir.as_ref().at(from), dir.as_ref().at(to))?)
}

pub(crate) fn unlink(dir: impl AsRef<Handle>, name: &OsStr) -> Result<(), Errno> {
    let path = dir.as_ref().at(name);
    patiently(|| Ok(std::fs::remove_file(&path)?))
}

/// `MoveFileW` never replaces a file. Two files cannot change places.
pub(crate) fn rename(
    dir: impl AsRef<Handle>,
    from: &OsStr,
    to: &OsStr,
    how: Rename,
) -> Result<(), Errno> {
    let (from, to) = (dir.as_ref().at(from), dir.as_ref().at(to));
    match how {
        Rename::Exchange => Err(Errno::INVAL),
        Rename::Over => patiently(|| Ok(std::fs::rename(&from, &to)?)),
        Rename::NoReplace => {
            // The wrapper takes text; a path that is none cannot be given to it.
            let (Some(from), Some(to)) = (from.to_str(), to.to_str()) else {
                return Err(Errno::INVAL);
            };
            let failed = |error: winsafe::co::ERROR| {
                Errno::of_number(i32::try_from(error.raw()).unwrap_or_default())
            };
            patiently(|| winsafe::MoveFile(from, to).map_err(failed))
        }
    }
}

/// A step that nothing has come of while another program has the file open is tried again for a moment.
fn patiently(mut step: impl FnMut() -> Result<(), Errno>) -> Result<(), Errno> {
    for _ in 1..TRIES {
        match step() {
            Err(Errno::BUSY) => std::thread::sleep(PAUSE),
            other => return other,
        }
    }
    step()
}

/// A file that was opened to be read excludes nobody: `EBADF`, which asks for one of [`open_to_write`].
pub(crate) fn try_lock_inode(_file: &File) -> Result<bool, Errno> {
    Err(Errno::BADF)
}

/// What excludes others from a file, if it is there under that name.
pub(crate) struct Lock {
    _writable: Option<File>,
}

/// Excludes others from a file of [`create`]; `None` while another excludes us. Where the name leads to
/// another file, or to none, there is nothing to be excluded from.
pub(crate) fn try_lock_created(
    dir: impl AsRef<Handle>,
    name: &OsStr,
    file: &File,
) -> Result<Option<Lock>, Errno> {
    let writable = match open_to_write(dir, name) {
        Ok(writable) => writable,
        Err(Errno::NOENT) => return Ok(Some(Lock { _writable: None })),
        Err(Errno::BUSY) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let same = stat_open(&writable)?.identity == stat_open(file)?.identity;
    Ok(Some(Lock { _writable: same.then_some(writable) }))
}

/// A new file as it is kept from here on: open for reading only, so that programs that share nothing but
/// reading can read it.
pub(crate) fn reopened(dir: impl AsRef<Handle>, name: &OsStr, file: File) -> Result<File, Errno> {
    drop(file);
    open_to_read(dir, name)
}

/// Not before the file is closed.
pub(crate) fn unlock_inode(_file: &File) -> Result<(), Errno> {
    Err(Errno::INVAL)
}

/// Users have no numbers here.
pub(crate) fn own_user() -> u32 {
    0
}

/// There is nobody to give it to.
pub(crate) fn give_away(_file: &File, _owner: u32) -> Result<(), Errno> {
    Err(Errno::NOSYS)
}

/// The names in a directory, but for those that are no text.
pub(crate) fn list(dir: impl AsRef<Handle>) -> Result<Vec<OsString>, Errno> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&dir.as_ref().path)? {
        names.push(entry?.file_name());
    }
    Ok(names)
}

impl Status {
    /// Of an open file or directory.
    ///
    /// # Errors
    /// What the system says.
    pub fn of_open(file: &File) -> io::Result<Self> {
        let information = winapi_util::file::information(file)?;
        let attributes = information.file_attributes();
        let modified = information.last_write_time().and_then(since_1970).unwrap_or_default();
        Ok(Self {
            identity: Identity {
                device: information.volume_serial_number(),
                inode: information.file_index(),
            },
            // The right to read it is in access lists that this crate does not read.
            mode: if attributes & ATTRIBUTE_READ_ONLY == 0 { 0o644 } else { 0o444 },
            owner: 0,
            links: information.number_of_links(),
            size: information.file_size(),
            modified: SystemTime::UNIX_EPOCH
                .checked_add(modified)
                .unwrap_or(SystemTime::UNIX_EPOCH),
            obstacle: obstacle(attributes),
        })
    }

    /// Of what a path leads to.
    ///
    /// # Errors
    /// What the system says.
    pub fn of_path(path: &Path) -> io::Result<Self> {
        Self::of_open(&to_look_at(DIRECTORIES_TOO).open(path)?)
    }

    /// Of a path; of the link itself where it is a symbolic link.
    pub(crate) fn of_unfollowed(path: &Path) -> io::Result<Self> {
        Self::of_open(&to_look_at(DIRECTORIES_TOO | UNFOLLOWED).open(path)?)
    }
}

fn to_look_at(flags: u32) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.access_mode(READ_ATTRIBUTES).custom_flags(flags);
    options
}

fn obstacle(attributes: u64) -> Option<Obstacle> {
    if attributes & ATTRIBUTE_REPARSE_POINT != 0 {
        Some(Obstacle::Link)
    } else if attributes & ATTRIBUTE_DIRECTORY != 0 {
        Some(Obstacle::Directory)
    } else {
        None
    }
}

/// A time in tenths of microseconds since 1601; `None` for one before 1970.
fn since_1970(tenths: u64) -> Option<Duration> {
    const TENTHS: u64 = 10_000_000;
    let nanoseconds = u32::try_from(tenths % TENTHS).ok()?.checked_mul(100)?;
    Some(Duration::new((tenths / TENTHS).checked_sub(SECONDS_TO_1970)?, nanoseconds))
}
