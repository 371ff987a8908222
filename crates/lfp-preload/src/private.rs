//! A directory for temporary files that the lock directory does not accept: it belongs to the user, has mode
//! 0700, and cannot have been made by another user. Everything in it is named relative to the open directory
//! that was checked, never by path, and links in it are not followed.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::path::RANDOM_BYTES;
use crate::settings::settings;

/// Ends the name of the directory where the usual one is not ours; 0: it was not wanted yet.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// How many names are tried for a temporary.
const TRIES: u32 = 100;

/// The characters that mkstemp(3) puts into a template.
const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// The directory, opened; made if it is not there. None: there is none that is only ours.
pub(crate) fn directory() -> Option<OwnedFd> {
    let runtime = settings().runtime.as_ref().map(|path| path.join("lfp-preload"));
    let shared = || own(Path::new(&usual())).or_else(|| own(&unguessed(&usual())?));
    runtime.and_then(|path| own(&path)).or_else(shared)
}

fn usual() -> String {
    format!("/tmp/lfp-preload-{}", geteuid().as_raw())
}

/// One that nobody can have made before, because its name was not known; the same for the whole process,
/// and for what it forks. Anybody may have made the usual one, to stand in the way.
fn unguessed(usual: &str) -> Option<PathBuf> {
    if NUMBER.load(Ordering::Relaxed) == 0 {
        let mut bytes = [0; 8];
        getrandom(&mut bytes, GetRandomFlags::empty()).ok().filter(|length| *length == 8)?;
        // Two threads agree on one.
        let number = u64::from_ne_bytes(bytes).max(1);
        let _ = NUMBER.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
    }
    Some(PathBuf::from(format!("{usual}.{:016x}", NUMBER.load(Ordering::Relaxed))))
}

fn own(path: &Path) -> Option<OwnedFd> {
    const OTHERS: u32 = 0o077;
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    let opened = openat(CWD, path, flags, Mode::empty()).or_else(|_| {
        mkdirat(CWD, path, Mode::RWXU)?;
        openat(CWD, path, flags, Mode::empty())
    });
    let directory = opened.ok()?;
    let found = fstat(&directory).ok()?;
    let is_ours = found.st_uid == geteuid().as_raw() && found.st_mode & OTHERS == 0;
    is_ours.then_some(directory)
}

/// Opens a temporary as the program would have.
pub(crate) fn open(name: &[u8], flags: OFlags, mode: Mode) -> Option<Result<OwnedFd, Errno>> {
    Some(openat(directory()?, name, flags | OFlags::NOFOLLOW, mode))
}

/// Makes a temporary as mkstemp(3) does, which has failed: by then it has replaced the last six
/// characters of its template, and so do we, until there is no such file.
pub(crate) fn make(template: &mut [u8], flags: OFlags) -> Option<Result<OwnedFd, Errno>> {
    let start = template.len().checked_sub(RANDOM_BYTES)?;
    let directory = directory()?;
    let flags = flags | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    for _ in 0..TRIES {
        match openat(&directory, &*template, flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::EXIST) => {}
            made => return Some(made),
        }
        spell(template.get_mut(start..)?)?;
    }
    Some(Err(Errno::EXIST))
}

/// Writes random letters and digits.
fn spell(place: &mut [u8]) -> Option<()> {
    getrandom(&mut *place, GetRandomFlags::empty()).ok()?;
    for byte in place {
        *byte = *DIGITS.get(usize::from(*byte) % DIGITS.len())?;
    }
    Some(())
}

/// Whether the temporary is there.
pub(crate) fn has(directory: impl AsFd, name: &[u8]) -> bool {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|it| FileType::from_raw_mode(it.st_mode) == FileType::RegularFile)
}

/// Removes a temporary, and its directory when that has a name that nobody will look for. Whether it was there.
pub(crate) fn remove(name: &[u8]) -> bool {
    let removed =
        directory().is_some_and(|directory| unlinkat(directory, name, AtFlags::empty()).is_ok());
    if removed && NUMBER.load(Ordering::Relaxed) != 0 {
        let path = unguessed(&usual());
        let _ = path.and_then(|path| unlinkat(CWD, path, AtFlags::REMOVEDIR).ok());
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelled_in_letters_and_digits() {
        let mut place = [0; RANDOM_BYTES];
        spell(&mut place).unwrap();
        assert!(place.iter().all(u8::is_ascii_alphanumeric), "{place:?}");
    }
}
