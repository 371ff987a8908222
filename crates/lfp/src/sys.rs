//! What the client asks of the operating system. On other systems than Linux, by functions that most of them have:
//! type-checked, never run so far.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
#[cfg(feature = "cli")]
use std::path::Path;

#[cfg(target_os = "linux")]
use nix::sys::socket::sockopt;
use nix::sys::socket::{self, AddressFamily, MsgFlags, SockFlag, SockType};

/// Sends without SIGPIPE.
#[cfg(not(target_vendor = "apple"))]
pub(crate) const QUIETLY: MsgFlags = MsgFlags::MSG_NOSIGNAL;

/// Nothing: that is the socket's own property there, which the standard library gives to those it
/// makes, and [`unix_socket`] to its own.
#[cfg(target_vendor = "apple")]
pub(crate) const QUIETLY: MsgFlags = MsgFlags::empty();

/// The user at the other end of a Unix socket: the one that called listen(2) (`SO_PEERCRED` in unix(7), or
/// getpeereid(3)).
pub(crate) fn peer(socket: &UnixStream) -> io::Result<u32> {
    #[cfg(target_os = "linux")]
    let uid = socket::getsockopt(socket, sockopt::PeerCredentials)?.uid();
    #[cfg(not(target_os = "linux"))]
    let uid = nix::unistd::getpeereid(socket)?.0.as_raw();
    Ok(uid)
}

/// A Unix socket that is not connected yet, and that no program started from here inherits.
#[cfg(target_os = "linux")]
pub(crate) fn unix_socket() -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC;
    Ok(socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)?)
}

/// The same in two steps, as not all of these systems can do it in one.
#[cfg(not(target_os = "linux"))]
pub(crate) fn unix_socket() -> io::Result<OwnedFd> {
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};

    let socket = socket::socket(AddressFamily::Unix, SockType::Stream, SockFlag::empty(), None)?;
    fcntl(&socket, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    #[cfg(target_vendor = "apple")]
    rustix::net::sockopt::set_socket_nosigpipe(&socket, true)?;
    Ok(socket)
}

/// Whether no program started from here gets more rights than this one has (`no_new_privs`, prctl(2)). Other systems have
/// no such thing, as far as is known.
#[cfg(feature = "cli")]
pub(crate) fn gains_nothing() -> bool {
    #[cfg(target_os = "linux")]
    return nix::sys::prctl::get_no_new_privs().is_ok_and(|it| it);
    #[cfg(not(target_os = "linux"))]
    return false;
}

/// Whether a program brings capabilities (capabilities(7)).
#[cfg(all(feature = "cli", target_os = "linux"))]
pub(crate) fn has_capabilities(path: &Path) -> bool {
    rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 64]).is_ok_and(|bytes| bytes > 0)
}

/// Programs have none there.
#[cfg(all(feature = "cli", not(target_os = "linux")))]
pub(crate) fn has_capabilities(_path: &Path) -> bool {
    false
}
