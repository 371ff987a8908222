//! Linux: netlink, `SO_PEERCRED`, `/proc`, POSIX ACL.

mod inquiry;
mod namespace;
mod proc_net;
mod sock_diag;
mod status;

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, getsockopt, socket, sockopt};
use pidlockfile::Pid;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use ttylock::device::node::{Node, Numbers as Device};

use super::{Connection, Credentials, Numbers, UnixPeer};
pub use inquiry::Inquiry;
pub(crate) use namespace::translate;
pub use status::{Processes, Status};

/// Where syslog listens. Source: syslog(3).
pub(crate) const SYSLOG: &str = "/dev/log";

/// Where records are kept unless an option says otherwise.
pub(crate) const STATE_DIR: &str = "/run/lfpd";

/// Sends without SIGPIPE.
pub(crate) const QUIETLY: MsgFlags = MsgFlags::MSG_NOSIGNAL;

/// Whether it is told what a living process may open; but for some that are hidden.
pub(crate) const SHOWS_RIGHTS: bool = true;

/// Why nobody says whose a living process is.
pub(crate) const WHY_HIDDEN: &str = "it is hidden from us: is /proc mounted with hidepid?";

/// The attribute in which the kernel keeps an ACL.
const ACL_ATTRIBUTE: &str = "system.posix_acl_access";

/// The longest ACL that is read: some five hundred entries. A longer one cannot be told.
const ACL_BYTES: usize = 4096;

/// A stream socket that no program started from here inherits.
pub(crate) fn stream_socket(family: AddressFamily) -> nix::Result<OwnedFd> {
    socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)
}

/// Who is at the other end of a Unix socket.
pub(crate) fn unix_peer(stream: BorrowedFd<'_>) -> UnixPeer {
    let credentials = getsockopt(&stream, sockopt::PeerCredentials).ok();
    let numbers = credentials.map_or(Numbers::Unknown, |peer| namespace::of(peer.pid()));
    let process = credentials.and_then(|peer| Pid::new(i64::from(peer.pid())));
    UnixPeer { uid: credentials.map(|peer| peer.uid()), numbers, process }
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
