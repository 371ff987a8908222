//! Creates a directory in which the same users may create files as in the one around it, whatever the umask.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{Gid, Uid, fchown, geteuid, mkdir};
use pidlockfile::Directory;

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
