//! Finds the user of a TCP socket of this host: by netlink's sock_diag messages, or more slowly by `/proc/net`.
//!
//! Source: sock_diag(7), `linux/inet_diag.h`, netlink(7). Every length is checked before it is used. An
//! answer about another socket than the one asked for is ignored.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    self, AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType,
};
use nix::unistd::Uid;
use ttylock::subordinate::OVERFLOW_UID;

use crate::limits::CONNECTIONS_MAX;
use crate::sys::SocketEnds;

/// The kernel's tables of connections must be read whole, to find the user of each connection. A line has 150 bytes,
/// and a connection within this host has two lines.
const _: () = assert!(2 * 150 * CONNECTIONS_MAX <= ttylock::tcp::PROC_NET_BYTES);

/// Asks the kernel to which users the TCP sockets of this host belong: one socket for all questions.
#[derive(Debug, Default)]
pub(crate) struct Inquiry {
    netlink: Option<OwnedFd>,
    sequence: u32,
    /// It has shown a socket once, so "no such socket" is the truth.
    proven: bool,
    /// Whether the kernel remembers which user closed a socket.
    remembers: Option<bool>,
}

impl Inquiry {
    /// The uid of the program that holds a TCP socket of this host open.
    ///
    /// `/proc/net` is the slow way for kernels and containers without `sock_diag`; a kernel
    /// without the module for TCP says "no such socket", so that answer is not the last word
    /// either, until there has been another one. Otherwise every client that hangs up at once could
    /// make us read through all sockets of the machine.
    pub(crate) fn uid_of(&mut self, socket: &SocketEnds) -> Option<u32> {
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
            uid = Uid::from_raw(OVERFLOW_UID);
            nix::unistd::fchown(&stream, Some(uid), None)?;
        }
        let socket = SocketEnds { near: stream.local_addr()?, far: stream.peer_addr()? };
        drop(stream);
        Ok(self.ask_kernel(&socket)? == Some(SocketUser::Closed(uid.as_raw())))
    }

    fn ask_kernel(&mut self, socket: &SocketEnds) -> Result<Option<SocketUser>, Errno> {
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
        let question = question(socket, self.sequence);
        socket::send(netlink.as_raw_fd(), &question, MsgFlags::empty())?;
        let mut buffer = [0; BUFFER_BYTES];
        // The kernel has answered before send(2) returned, so there is nothing to wait for.
        let (flags, mut place) = (MsgFlags::MSG_DONTWAIT, [io::IoSliceMut::new(&mut buffer)]);
        let message = socket::recvmsg::<NetlinkAddr>(netlink.as_raw_fd(), &mut place, None, flags)?;
        let (length, sender) = (message.bytes, message.address);
        self.netlink = Some(netlink);
        let from_kernel = sender.is_some_and(|sender| sender.pid() == 0);
        let bytes = buffer.get(..length).filter(|_| from_kernel);
        Ok(bytes.and_then(|bytes| parse_answer(bytes, socket, self.sequence)))
    }
}

/// `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;
/// `struct inet_diag_req_v2`.
const REQUEST_BYTES: usize = 56;
/// `struct inet_diag_msg` without attributes.
const ANSWER_BYTES: usize = 72;
/// The largest answer to one exact question, with attributes nobody asked for.
pub(super) const BUFFER_BYTES: usize = 1024;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;

/// Where the socket's `inet_diag_sockid` stands in an answer.
const ANSWER_ID: usize = HEADER_BYTES + 4;

/// The question for one exact socket.
pub(super) fn question(socket: &SocketEnds, sequence: u32) -> Vec<u8> {
    let family = if socket.near.is_ipv4() { AF_INET } else { AF_INET6 };
    let mut bytes = Vec::with_capacity(HEADER_BYTES + REQUEST_BYTES);
    // Both lengths are small constants.
    bytes.extend(72_u32.to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend([family, IPPROTO_TCP, 0, 0]);
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(socket.near.port().to_be_bytes());
    bytes.extend(socket.far.port().to_be_bytes());
    bytes.extend(wide(socket.near.ip()));
    bytes.extend(wide(socket.far.ip()));
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend([0xff; 8]);
    debug_assert_eq!(bytes.len(), HEADER_BYTES + REQUEST_BYTES);
    bytes
}

/// The user of a socket, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SocketUser {
    /// A process of this uid holds it open.
    Open(u32),
    /// It was closed with bytes under way, by this uid; 0 if the kernel does not remember it (Linux before 6.17).
    Closed(u32),
}

/// The states in which a closed socket is still the one that was open. In others the kernel
/// keeps only a remainder of it, which belongs to nobody and is shown with uid 0.
const CLOSING: [u8; 3] = [4, 9, 11];

/// Parses the kernel's answer. `None` if it is not about this very socket.
pub(super) fn parse_answer(bytes: &[u8], socket: &SocketEnds, sequence: u32) -> Option<SocketUser> {
    let length = usize::try_from(word(bytes, 0)?).ok()?;
    let bytes = bytes.get(..length).filter(|b| b.len() >= HEADER_BYTES + ANSWER_BYTES)?;
    let kind = u16::from_ne_bytes(field(bytes, 4)?);
    let of_this_question = kind == SOCK_DIAG_BY_FAMILY && word(bytes, 8)? == sequence;
    let [family, state] = field(bytes, HEADER_BYTES)?;
    let found = SocketEnds {
        near: address(bytes, family, ANSWER_ID, ANSWER_ID + 4)?,
        far: address(bytes, family, ANSWER_ID + 2, ANSWER_ID + 20)?,
    };
    let uid = word(bytes, HEADER_BYTES + 64)?;
    let inode = word(bytes, HEADER_BYTES + 68)?;
    if !of_this_question || found != *socket {
        return None;
    }
    match inode {
        0 => CLOSING.contains(&state).then_some(SocketUser::Closed(uid)),
        _ => ttylock::tcp::is_connected(state).then_some(SocketUser::Open(uid)),
    }
}

/// An address in the sixteen bytes that both families have.
fn wide(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V6(ip) => ip.octets(),
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        }
    }
}

fn address(bytes: &[u8], family: u8, port: usize, ip: usize) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(field(bytes, port)?);
    let ip = match family {
        AF_INET => IpAddr::from(Ipv4Addr::from(field::<4>(bytes, ip)?)),
        AF_INET6 => IpAddr::from(Ipv6Addr::from(field::<16>(bytes, ip)?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip.to_canonical(), port))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    field(bytes, at).map(u32::from_ne_bytes)
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
pub(super) mod tests {
    use rstest::rstest;

    use super::*;

    pub(in crate::sys) fn connection(near: &str, far: &str) -> SocketEnds {
        SocketEnds { near: near.parse().unwrap(), far: far.parse().unwrap() }
    }

    /// What a kernel would say of a socket.
    fn said(socket: &SocketEnds, state: u8, uid: u32, inode: u32) -> Vec<u8> {
        let family = if socket.near.is_ipv4() { AF_INET } else { AF_INET6 };
        let mut bytes = Vec::new();
        bytes.extend(88_u32.to_ne_bytes());
        bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        bytes.extend([0; 2]);
        bytes.extend(7_u32.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend([family, state, 0, 0]);
        bytes.extend(socket.near.port().to_be_bytes());
        bytes.extend(socket.far.port().to_be_bytes());
        bytes.extend(wide(socket.near.ip()));
        bytes.extend(wide(socket.far.ip()));
        bytes.extend([0; 24]);
        bytes.extend(uid.to_ne_bytes());
        bytes.extend(inode.to_ne_bytes());
        bytes
    }

    fn v4() -> SocketEnds {
        connection("127.0.0.1:40000", "127.0.0.1:50001")
    }

    /// A closed socket is believed only in the states in which the kernel shows the socket itself.
    #[rstest]
    #[case::established(1, 1000, 99, Some(SocketUser::Open(1000)))]
    #[case::root(1, 0, 99, Some(SocketUser::Open(0)))]
    #[case::client_shut_its_half(5, 1000, 99, Some(SocketUser::Open(1000)))]
    #[case::listener_on_that_port(10, 0, 99, None)]
    #[case::still_connecting(2, 0, 99, None)]
    #[case::closed_just_now_shows_root(5, 0, 0, None)]
    #[case::closed_with_bytes_under_way(4, 1000, 0, Some(SocketUser::Closed(1000)))]
    #[case::last_ack(9, 1000, 0, Some(SocketUser::Closed(1000)))]
    #[case::both_at_once(11, 1000, 0, Some(SocketUser::Closed(1000)))]
    #[case::closed_and_established(1, 1000, 0, None)]
    #[case::closed_and_half_closed(5, 1000, 0, None)]
    #[case::time_wait(6, 1000, 0, None)]
    #[case::half_open(3, 1000, 0, None)]
    fn the_user_is_believed_only_while_the_socket_itself_is_shown(
        #[case] state: u8,
        #[case] uid: u32,
        #[case] inode: u32,
        #[case] believed: Option<SocketUser>,
    ) {
        assert_eq!(parse_answer(&said(&v4(), state, uid, inode), &v4(), 7), believed);
    }

    #[test]
    fn believes_only_what_is_about_that_socket() {
        let bytes = said(&v4(), 1, 1000, 99);
        assert_eq!(
            parse_answer(&bytes, &connection("127.0.0.1:40001", "127.0.0.1:50001"), 7),
            None
        );
        assert_eq!(
            parse_answer(&bytes, &connection("127.0.0.1:50001", "127.0.0.1:40000"), 7),
            None
        );
        assert_eq!(parse_answer(&bytes, &v4(), 8), None);
    }

    #[test]
    fn a_dual_stack_socket_is_the_same_socket() {
        let mapped = connection("[::ffff:127.0.0.1]:40000", "[::ffff:127.0.0.1]:50001");
        assert_eq!(
            parse_answer(&said(&mapped, 1, 1000, 99), &v4(), 7),
            Some(SocketUser::Open(1000))
        );
    }

    #[test]
    fn cut_or_garbled_answers_say_nothing_and_never_panic() {
        let whole = said(&connection("[::1]:40000", "[::1]:50001"), 1, 1000, 99);
        for end in 0..whole.len() {
            assert_eq!(
                parse_answer(&whole[..end], &connection("[::1]:40000", "[::1]:50001"), 7),
                None
            );
        }
        for at in 0..whole.len() {
            let mut garbled = whole.clone();
            garbled[at] ^= 0xff;
            let _ = parse_answer(&garbled, &v4(), 7);
        }
        let mut refused = Vec::new();
        refused.extend(36_u32.to_ne_bytes());
        refused.extend(2_u16.to_ne_bytes());
        refused.resize(36, 0);
        assert_eq!(parse_answer(&refused, &v4(), 7), None);
    }
}
