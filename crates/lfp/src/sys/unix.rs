//! Other systems than Linux, by functions that most of them have. Type-checked, never run so far.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
#[cfg(feature = "cli")]
use std::path::Path;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{self, AddressFamily, MsgFlags, SockFlag, SockType};

/// Sends without SIGPIPE.
#[cfg(not(target_vendor = "apple"))]
pub(crate) const QUIETLY: MsgFlags = MsgFlags::MSG_NOSIGNAL;

/// Nothing: that is the socket's own property there, which the standard library gives to those it
/// makes, and [`unix_socket`] to its own.
#[cfg(target_vendor = "apple")]
pub(crate) const QUIETLY: MsgFlags = MsgFlags::empty();

/// The user at the other end of a Unix socket: the one that called listen(2) (getpeereid(3)).
pub(crate) fn peer(socket: &UnixStream) -> io::Result<Option<u32>> {
    let (user, _) = nix::unistd::getpeereid(socket)?;
    Ok(Some(user.as_raw()))
}

/// A Unix socket that is not connected yet, and that no program started from here inherits: not
/// quite at once, as not all of these systems can.
pub(crate) fn unix_socket() -> io::Result<OwnedFd> {
    let socket = socket::socket(AddressFamily::Unix, SockType::Stream, SockFlag::empty(), None)?;
    fcntl(&socket, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    #[cfg(target_vendor = "apple")]
    rustix::net::sockopt::set_socket_nosigpipe(&socket, true)?;
    Ok(socket)
}

/// There is no such thing, as far as is known.
#[cfg(feature = "cli")]
pub(crate) fn gains_nothing() -> bool {
    false
}

/// Programs have none there.
#[cfg(feature = "cli")]
pub(crate) fn has_capabilities(_path: &Path) -> bool {
    false
}
