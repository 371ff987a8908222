//! Which users' symbolic links are followed.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// The kernel's own rule for links in directories like /tmp (`fs.protected_symlinks`, proc(5)):
/// sticky and writable to all, a link there is followed only when it is the follower's or the
/// directory owner's. Following it by hand must not be the way around.
pub(crate) fn may_follow_link(link: &Metadata, around: &Metadata) -> bool {
    const STICKY_AND_OPEN: u32 = 0o1002;
    around.mode() & STICKY_AND_OPEN != STICKY_AND_OPEN
        || link.uid() == nix::unistd::geteuid().as_raw()
        || link.uid() == around.uid()
}
