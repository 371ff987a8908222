//! Linux: netlink, `SO_PEERCRED`, `/proc`, POSIX ACL.

mod inquiry;
mod namespace;
mod sock_diag;
mod status;

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, getsockopt, sockopt};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use ttylock::{Node, Numbers as Device};

use super::values::{Numbers, PeerFacts};
pub(crate) use inquiry::Inquiry;
pub(crate) use namespace::translate;
pub(crate) use status::Status;

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

/// The longest ACL that is read: some five hundred entries. A longer one cannot be told.
const ACL_BYTES: usize = 4096;

/// The peer at the other end of a Unix socket: user and group as they were when it connected.
///
/// What else is told of the process, is told by its number, and only of the very process that
/// connected. Of its groups those count that a program with the set-group-ID bit does not change
/// (credentials(7)): a client that connects and becomes such a program has no more rights than before.
pub(crate) fn unix_peer(stream: BorrowedFd<'_>) -> PeerFacts {
    let Ok(credentials) = getsockopt(&stream, sockopt::PeerCredentials) else {
        return PeerFacts { uid: None, gid: None, numbers: Numbers::Unknown, groups: Vec::new() };
    };
    let mut kin = namespace::kin_of(credentials.pid());
    if is_reaped(stream) {
        kin = None;
    }
    let (numbers, supplementary) = namespace::of(credentials.pid(), kin);
    let groups = std::iter::once(credentials.gid()).chain(supplementary).collect();
    let (uid, gid) = (Some(credentials.uid()), Some(credentials.gid()));
    PeerFacts { uid, gid, numbers, groups }
}

/// Whether the process that connected is no more, so that another one may have its number. Where the
/// kernel does not tell (before Linux 6.5), it is believed to be there.
fn is_reaped(stream: BorrowedFd<'_>) -> bool {
    let process = match getsockopt(&stream, sockopt::PeerPidfd) {
        Ok(process) => process,
        Err(errno) => return errno == nix::errno::Errno::ESRCH,
    };
    let mut ended = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
    if !matches!(poll(&mut ended, PollTimeout::ZERO), Ok(1..)) {
        return false;
    }
    // It has ended; its number is its own until somebody has taken note (pidfd in proc(5)).
    let told = format!("/proc/self/fdinfo/{}", process.as_raw_fd());
    std::fs::read_to_string(told).is_ok_and(|told| told.lines().any(|line| line == "Pid:\t-1"))
}

/// The ACL of a device beyond its mode, as the kernel keeps it; empty where there is none. `None` where
/// it cannot be told, or the path leads to another node by now. A handle of this kind opens no device
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
pub(crate) fn null_device() -> Option<Device> {
    Some(Device { major: 1, minor: 3 })
}
