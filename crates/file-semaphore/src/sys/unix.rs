//! What every Unix has: flock(2), directories in which the same users may write as in the one around them, the links
//! that may be followed, and the name of the machine. `pidlockfile` knows about processes.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{Gid, Uid, fchown, geteuid, mkdir};
use pidlockfile::Directory;
use rustix::fs::{FlockOperation, flock};
use rustix::io::retry_on_intr;

/// Permissions, sticky and set-group-ID.
const BITS: u32 = 0o3777;

/// Makes the directory if there is none.
///
/// # Errors
/// As the system has it; `NotADirectory` for anything else in its place, a link to one too.
pub(crate) fn make_directory_alike(path: &Path, around: &Directory) -> io::Result<()> {
    let around = File::from(around.as_fd().try_clone_to_owned()?).metadata()?;
    match mkdir(path, permission_bits(around.mode() & BITS)) {
        Ok(()) => {}
        Err(Errno::EEXIST) if std::fs::symlink_metadata(path)?.is_dir() => return Ok(()),
        Err(Errno::EEXIST) => return Err(Errno::ENOTDIR.into()),
        Err(error) => return Err(error.into()),
    }
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
    let made = File::from(open(path, flags, Mode::empty())?);
    let seen = made.metadata()?;
    // Else somebody has put another one in its place.
    if seen.uid() != geteuid().as_raw() || std::fs::read_dir(path)?.next().is_some() {
        return Ok(());
    }
    // Only root gives away files; nobody else can be kept out by that.
    if geteuid().is_root() && seen.uid() != around.uid() {
        fchown(&made, Some(Uid::from_raw(around.uid())), None)?;
    }
    let group = Some(Gid::from_raw(around.gid()));
    let same_group = seen.gid() == around.gid() || fchown(&made, None, group).is_ok();
    let mode = if same_group { around.mode() } else { without_group(around.mode()) };
    if seen.mode() & BITS != mode & BITS {
        fchmod(&made, permission_bits(mode & BITS))?;
    }
    Ok(())
}

fn narrowed<N: TryFrom<u32> + Default>(mode: u32) -> N {
    N::try_from(mode).unwrap_or_default()
}

/// As wide as the system has it, at least 16 bits.
pub(super) fn permission_bits(mode: u32) -> Mode {
    Mode::from_bits_truncate(narrowed(mode))
}

/// The maker's own group is as everybody else.
fn without_group(mode: u32) -> u32 {
    (mode & 0o1707) | (mode & 0o007) << 3
}

/// Keeps all others from `flock(2)` on this file while this opening of it lasts. Whether that
/// succeeded: not if another has it, nor where the file system knows no such locks.
pub(crate) fn flock_exclusively(file: &impl AsFd) -> bool {
    lock(file, FlockOperation::NonBlockingLockExclusive) == Ok(())
}

/// Whether nobody has excluded others from this file. Does not exclude others that ask the same.
pub(crate) fn is_flock_free(file: &impl AsFd) -> bool {
    let free = lock(file, FlockOperation::NonBlockingLockShared);
    if free == Ok(()) {
        release_flock(file);
    }
    free != Err(rustix::io::Errno::WOULDBLOCK)
}

/// Waits until nobody excludes others from this file. Whether that could be found out: only the
/// end of the process that excludes others, or of this one, ends the wait.
pub(crate) fn wait_until_flock_free(file: &impl AsFd) -> bool {
    let free = lock(file, FlockOperation::LockShared) == Ok(());
    release_flock(file);
    free
}

/// Lets go early.
pub(crate) fn release_flock(file: &impl AsFd) {
    let _ = lock(file, FlockOperation::Unlock);
}

fn lock(file: &impl AsFd, how: FlockOperation) -> Result<(), rustix::io::Errno> {
    retry_on_intr(|| flock(file, how))
}

/// The kernel's own rule for links in directories like /tmp (`fs.protected_symlinks`, proc(5)):
/// sticky and writable to all, a link there is followed only when it is the follower's or the
/// directory owner's. Following it by hand must not be the way around.
pub(crate) fn may_follow_link(link: &Metadata, around: &Metadata) -> bool {
    const STICKY_AND_OPEN: u32 = 0o1002;
    around.mode() & STICKY_AND_OPEN != STICKY_AND_OPEN
        || link.uid() == geteuid().as_raw()
        || link.uid() == around.uid()
}

/// The machine's name.
pub(crate) fn host_name() -> Option<OsString> {
    nix::unistd::gethostname().ok()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::open_to_all(0o1777, 0o1777)]
    #[case::groups_own(0o2775, 0o755)]
    #[case::not_for_others(0o2770, 0o700)]
    fn another_group_is_let_in_as_all_others_are(#[case] mode: u32, #[case] without: u32) {
        assert_eq!(without_group(mode), without);
    }
}
