//! System calls of the client on Linux.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
#[cfg(feature = "cli")]
use std::path::Path;

use nix::sys::socket::{self, AddressFamily, MsgFlags, SockFlag, SockType, sockopt};

/// Sends without SIGPIPE.
pub(crate) const QUIETLY: MsgFlags = MsgFlags::MSG_NOSIGNAL;

/// The user at the other end of a Unix socket: the one that called listen(2) (unix(7), `SO_PEERCRED`).
pub(crate) fn peer(socket: &UnixStream) -> io::Result<Option<u32>> {
    let peer = socket::getsockopt(socket, sockopt::PeerCredentials)?;
    Ok(Some(peer.uid()))
}

/// A Unix socket that is not connected yet, and that no program started from here inherits.
pub(crate) fn unix_socket() -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC;
    Ok(socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)?)
}

/// Whether no program started from here gets more rights than this one has (`no_new_privs`, prctl(2)).
#[cfg(feature = "cli")]
pub(crate) fn gains_nothing() -> bool {
    nix::sys::prctl::get_no_new_privs().is_ok_and(|it| it)
}

/// Whether a program brings capabilities (capabilities(7)).
#[cfg(feature = "cli")]
pub(crate) fn has_capabilities(path: &Path) -> bool {
    rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 64]).is_ok_and(|bytes| bytes > 0)
}
