//! Linux: netlink, `SO_PEERCRED`, `/proc`, POSIX ACL.

mod inquiry;
mod status;

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::sys::socket::{MsgFlags, getsockopt, sockopt};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use ttylock::{Node, Numbers};

use super::{PeerFacts, PidNumbers};
pub(crate) use inquiry::Inquiry;
pub(crate) use status::{Status, translate};

/// Where syslog listens. Source: syslog(3).
pub(crate) const SYSLOG: &str = "/dev/log";

/// Where records are kept unless an option says otherwise.
pub(crate) const STATE_DIR: &str = "/run/lfpd";

/// Sends without SIGPIPE.
pub(crate) const QUIETLY: MsgFlags = MsgFlags::MSG_NOSIGNAL;

/// Why the user of a living process is not known.
pub(crate) const WHY_HIDDEN: &str = "it is hidden: is /proc mounted with hidepid?";

/// The attribute in which the kernel keeps an ACL.
const ACL_ATTRIBUTE: &str = "system.posix_acl_access";

/// The longest ACL that is read: some five hundred entries. A longer one counts as unknown.
const ACL_BYTES: usize = 4096;

/// The peer at the other end of a Unix socket: user and groups as they were when it connected.
///
/// Whether it is in this group is asked of the socket, and nothing is kept of the list: a process may be in 65,536 groups.
pub(crate) fn unix_peer(stream: BorrowedFd<'_>, group: Option<u32>) -> PeerFacts {
    let Ok(credentials) = getsockopt(&stream, sockopt::PeerCredentials) else {
        return PeerFacts { uid: None, gid: None, numbers: PidNumbers::Unknown, is_member: false };
    };
    let (uid, gid) = (credentials.uid(), credentials.gid());
    let is_supplementary =
        |group| ttylock::peer_groups(stream).is_ok_and(|groups| groups.contains(&group));
    PeerFacts {
        uid: Some(uid),
        gid: Some(gid),
        numbers: status::of(credentials.pid(), process(stream, credentials.pid())),
        is_member: group.is_some_and(|group| group == gid || is_supplementary(group)),
    }
}

/// A handle of the process that connected. Where the kernel does not show which it was (before Linux 6.5), the process
/// that has its number is taken for it.
fn process(stream: BorrowedFd<'_>, pid: i32) -> Option<OwnedFd> {
    match getsockopt(&stream, sockopt::PeerPidfd) {
        Ok(process) => Some(process),
        Err(nix::errno::Errno::ESRCH) => None,
        Err(_) => pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok(),
    }
}

/// The ACL of a device beyond its mode, as the kernel keeps it; empty where there is none. `None` where
/// it cannot be read, or the path leads to another node by now. A handle of this kind opens no device
/// (`O_PATH` in open(2)).
pub(crate) fn acl(path: &Path, node: &Node) -> Option<Vec<u8>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    if Node::of(&handle.metadata().ok()?) != *node {
        return None;
    }
    let mut value = [0; ACL_BYTES];
    let handle = format!("/proc/self/fd/{}", handle.as_raw_fd());
    match rustix::fs::getxattr(handle, ACL_ATTRIBUTE, &mut value) {
        Ok(length) => value.get(..length).map(<[u8]>::to_vec),
        Err(Errno::NODATA | Errno::NOTSUP) => Some(Vec::new()),
        Err(_) => None,
    }
}

/// The numbers of the null device: 1:3. Source: null(4).
pub(crate) fn null_device() -> Option<Numbers> {
    Some(Numbers { major: 1, minor: 3 })
}
