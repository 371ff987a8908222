//! Finds the user of a TCP socket of this host: by netlink, or more slowly by `/proc/net`.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    self, AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType,
};
use nix::unistd::Uid;

use super::sock_diag::{self, SocketUser};
use crate::limits::CONNECTIONS_MAX;
use crate::sys::values::Connection;

/// The kernel's tables of connections must be read whole, to find the user of each connection. A line has 150 bytes,
/// and a connection within this host has two lines.
const _: () = assert!(2 * 150 * CONNECTIONS_MAX <= ttylock::tcp::PROC_NET_BYTES);

/// Any but 0.
const UNLIKELY_UID: u32 = 65_534;

/// Asks the kernel to which users the TCP sockets of this host belong: one socket for all questions.
#[derive(Debug, Default)]
pub(crate) struct Inquiry {
    netlink: Option<OwnedFd>,
    sequence: u32,
    /// It has told of a socket once, so "no such socket" is the truth.
    proven: bool,
    /// Whether it tells truly which user closed a socket.
    remembers: Option<bool>,
}

impl Inquiry {
    /// The uid of the program that holds a TCP socket of this host open.
    ///
    /// `/proc/net` is the slow way for kernels and containers without `sock_diag`; a kernel
    /// without the module for TCP says "no such socket", so that answer is not the last word
    /// either, until there has been another one. Otherwise every client that hangs up at once could
    /// make us read through all sockets of the machine.
    pub(crate) fn uid_of(&mut self, socket: &Connection) -> Option<u32> {
        match self.ask_kernel(socket) {
            Ok(Some(SocketUser::Open(uid))) => {
                self.proven = true;
                return Some(uid);
            }
            // Kernels that forget which user closed a socket say that it was root.
            Ok(Some(SocketUser::Closed(uid))) => return self.remembers().then_some(uid),
            Ok(None) => {}
            // Whatever is left in it, the next question gets a fresh one.
            Err(_) => self.netlink = None,
        }
        if self.proven {
            return None;
        }
        ttylock::tcp::user(socket.near, socket.far)
    }

    /// Tries it with a socket of our own. RXTX closes at once after its UNLOCK, so it may be gone
    /// before it can be looked at.
    fn remembers(&mut self) -> bool {
        if let Some(remembers) = self.remembers {
            return remembers;
        }
        let remembers = self.try_own_socket().unwrap_or(false);
        *self.remembers.insert(remembers)
    }

    fn try_own_socket(&mut self) -> io::Result<bool> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        let mut uid = nix::unistd::geteuid();
        if uid.is_root() {
            // Of a socket that is root's own it could not be seen.
            uid = Uid::from_raw(UNLIKELY_UID);
            nix::unistd::fchown(&stream, Some(uid), None)?;
        }
        let socket = Connection { near: stream.local_addr()?, far: stream.peer_addr()? };
        drop(stream);
        Ok(self.ask_kernel(&socket)? == Some(SocketUser::Closed(uid.as_raw())))
    }

    fn ask_kernel(&mut self, socket: &Connection) -> Result<Option<SocketUser>, Errno> {
        let netlink = match self.netlink.take() {
            Some(netlink) => netlink,
            None => socket::socket(
                AddressFamily::Netlink,
                SockType::Raw,
                SockFlag::SOCK_CLOEXEC,
                SockProtocol::NetlinkSockDiag,
            )?,
        };
        self.sequence = self.sequence.wrapping_add(1);
        let question = sock_diag::question(socket, self.sequence);
        socket::send(netlink.as_raw_fd(), &question, MsgFlags::empty())?;
        let mut buffer = [0; sock_diag::BUFFER_BYTES];
        // The kernel has answered before send(2) returned, so there is nothing to wait for.
        let (flags, mut place) = (MsgFlags::MSG_DONTWAIT, [io::IoSliceMut::new(&mut buffer)]);
        let message = socket::recvmsg::<NetlinkAddr>(netlink.as_raw_fd(), &mut place, None, flags)?;
        let (length, sender) = (message.bytes, message.address);
        self.netlink = Some(netlink);
        let from_kernel = sender.is_some_and(|sender| sender.pid() == 0);
        let bytes = buffer.get(..length).filter(|_| from_kernel);
        Ok(bytes.and_then(|bytes| sock_diag::parse_answer(bytes, socket, self.sequence)))
    }
}
