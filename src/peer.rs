//! The peer: the process or user at the other end of a connection, and whether it may name a process.
//!
//! Never believes what the client says about itself. If the kernel does not tell the address or the uid, the
//! peer is a stranger.

mod permission;

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::socket::{self, AddressFamily, SockaddrLike, SockaddrStorage};
use pidlockfile::Pid;

use crate::sys::{self, Connection, Numbers, PeerFacts};
pub(crate) use crate::sys::{Asker, Ids, Inquiry, Status};
pub(crate) use permission::{is_no_port, may_open};

/// Somebody on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    place: Place,
    uid: Option<u32>,
    /// Its effective group when it connected; only a Unix socket tells.
    gid: Option<u32>,
    numbers: Numbers,
    /// Whether it was in the force group when it connected; only a Unix socket tells.
    is_member: bool,
}

/// A peer that may not speak to the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stranger {
    /// An address that is not this host's own.
    Remote(SocketAddr),
    /// A socket of a kind that says nothing about its peer.
    OtherFamily,
    /// The connection is no longer, so its user can no longer be found out.
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// No socket: the user that started this program.
    Starter,
    UnixSocket,
    Loopback(SocketAddr),
}

/// Which processes a peer may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Its own, and those that do not exist; root any.
    Own,
    /// Any: `--trust-pid`.
    Any,
}

/// Whether a process that may not open a device may lock it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// No: the holder must be able to read and write it.
    OfDevice,
    /// Yes: `--anyone`.
    Anyone,
}

/// What a process is named for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To hold a lock from now on.
    Take,
    /// To hold one no longer.
    Release,
}

/// Why a peer may not name a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The process belongs to this other uid.
    Anothers(u32),
    /// One of the two belongs to [`OVERFLOW_UID`], which is many users.
    Overflow,
    /// There is no such process, though the client could know that.
    Gone,
    /// The peer is in a pid namespace of its own; there this is neither its own number nor that of
    /// an ancestor or descendant.
    Elsewhere,
    /// The pid namespace of the peer is unknown.
    NamespaceUnknown,
    /// The name means no serial port: a directory, a disk, a file, the null device.
    NoPort,
    /// The process may not open the device.
    DeviceClosed,
    /// This system does not tell what the process may open.
    RightsUnknown,
    /// The peer may not release what is others'.
    NoForce,
    /// The process exists, but its user is not known (`hidepid` in proc(5), or another system
    /// than Linux).
    Hidden,
    /// The process exists, but the user of the peer is not known.
    PeerUnknown,
}

impl Asker {
    /// On whose behalf a process is to hold a device that this user names it for.
    pub(crate) fn of(uid: Option<u32>, gid: Option<u32>, rule: Rule) -> Self {
        match (rule, uid) {
            (Rule::Any, _) | (Rule::Own, Some(0)) => Self::Trusted,
            (Rule::Own, _) => Self::User { uid, gid },
        }
    }
}

impl Peer {
    /// Finds out the peer of a connection. To be called before anything is sent: a client that has its greeting may be gone
    /// the next moment, and then its user can no longer be found out.
    ///
    /// # Errors
    /// [`Stranger`] when the peer is not surely on this host.
    pub(crate) fn of(
        inquiry: &mut Inquiry,
        stream: BorrowedFd<'_>,
        force_group: Option<u32>,
    ) -> Result<Self, Stranger> {
        let raw = stream.as_raw_fd();
        let far = match socket::getpeername::<SockaddrStorage>(raw) {
            Ok(address) => address,
            Err(Errno::ENOTSOCK) => return Ok(Self::starter()),
            Err(_) => return Err(Stranger::Gone),
        };
        let (place, facts) = match far.family() {
            Some(AddressFamily::Unix) => (Place::UnixSocket, sys::unix_peer(stream, force_group)),
            Some(AddressFamily::Inet | AddressFamily::Inet6) => {
                let near = socket::getsockname(raw).map_err(|_| Stranger::Gone)?;
                let near = address(&near).ok_or(Stranger::OtherFamily)?;
                let far = address(&far).ok_or(Stranger::OtherFamily)?;
                if !far.ip().is_loopback() {
                    return Err(Stranger::Remote(far));
                }
                // The peer's socket has the same two ends, the other way round. TCP does not tell in which pid namespace
                // it is.
                let uid = inquiry.uid_of(&Connection { near: far, far: near });
                (
                    Place::Loopback(far),
                    PeerFacts { uid, gid: None, numbers: Numbers::Ours, is_member: false },
                )
            }
            _ => return Err(Stranger::OtherFamily),
        };
        let PeerFacts { uid, gid, numbers, is_member } = facts;
        Ok(Self { place, uid, gid, numbers, is_member })
    }

    fn starter() -> Self {
        let uid = Some(nix::unistd::getuid().as_raw());
        let gid = Some(nix::unistd::getgid().as_raw());
        Self { place: Place::Starter, uid, gid, numbers: Numbers::Ours, is_member: false }
    }

    /// The user at the other end, where the kernel tells.
    #[must_use]
    pub(crate) fn uid(&self) -> Option<u32> {
        self.uid
    }

    /// Whether it is root.
    #[must_use]
    pub(crate) fn is_root(&self) -> bool {
        self.uid == Some(0)
    }

    /// Its group when it connected, where the kernel tells.
    #[must_use]
    pub(crate) fn gid(&self) -> Option<u32> {
        self.gid
    }

    /// Whether it was in the force group when it connected, by its effective group or any other.
    #[must_use]
    pub(crate) fn is_member(&self) -> bool {
        self.is_member
    }

    /// Whether it is at the other end of a TCP connection.
    #[must_use]
    pub(crate) fn is_on_tcp(&self) -> bool {
        matches!(self.place, Place::Loopback(_))
    }

    /// Which process of ours the peer means by a number.
    ///
    /// # Errors
    /// [`Refusal::Elsewhere`] and [`Refusal::NamespaceUnknown`], on a Unix socket only.
    pub(crate) fn meant(&self, pid: Pid, rule: Rule) -> Result<Pid, Refusal> {
        match (rule, self.numbers) {
            (Rule::Any, _) | (Rule::Own, Numbers::Ours) => Ok(pid),
            (Rule::Own, Numbers::Own(peer)) => sys::translate(peer, pid).ok_or(Refusal::Elsewhere),
            (Rule::Own, Numbers::Unknown) => Err(Refusal::NamespaceUnknown),
        }
    }

    /// May this peer take or release locks for a process of ours, which has these users and is alive or not?
    ///
    /// # Errors
    /// The reason why not.
    pub(crate) fn may_name(
        &self,
        users: impl FnOnce() -> Option<Ids>,
        mut alive: impl FnMut() -> bool,
        purpose: Purpose,
        rule: Rule,
    ) -> Result<(), Refusal> {
        if rule == Rule::Any {
            return Ok(());
        }
        let uid = match self.uid {
            None if alive() => return Err(Refusal::PeerUnknown),
            // Root may release the lock of any process, also of one that is gone.
            Some(0) if purpose == Purpose::Release || alive() => return Ok(()),
            None | Some(0) => return self.may_name_the_gone(purpose),
            Some(uid) => uid,
        };
        // One that has users is there, or has ended and nobody has taken note: it holds nothing.
        match users() {
            Some(users) if [uid, users.real].contains(&OVERFLOW_UID) => Err(Refusal::Overflow),
            Some(users) if users.belong_to(uid) => Ok(()),
            Some(users) if alive() => Err(Refusal::Anothers(users.real)),
            None if alive() => Err(Refusal::Hidden),
            _ => self.may_name_the_gone(purpose),
        }
    }

    /// A process that ends before the request is served must not leave a lock behind. The memo's own
    /// scenario locks for a number out of thin air, over telnet.
    fn may_name_the_gone(&self, purpose: Purpose) -> Result<(), Refusal> {
        match (purpose, self.place) {
            (Purpose::Take, Place::UnixSocket) => Err(Refusal::Gone),
            (Purpose::Take, Place::Starter | Place::Loopback(_)) | (Purpose::Release, _) => Ok(()),
        }
    }
}

/// The user whom the kernel shows for all those that have no number in our user namespace; also
/// the user `nobody`. Source: `DEFAULT_OVERFLOWUID` in the kernel's `include/linux/highuid.h`.
pub(crate) const OVERFLOW_UID: u32 = 65_534;

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.uid {
            Some(uid) => write!(f, "uid {uid}")?,
            None => f.write_str("unknown uid")?,
        }
        match self.place {
            Place::Starter => f.write_str(" on standard input"),
            Place::UnixSocket => f.write_str(" on a Unix socket"),
            Place::Loopback(address) => write!(f, " at {address}"),
        }
    }
}

impl fmt::Display for Stranger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote(address) => write!(f, "{address} is not on this host"),
            Self::OtherFamily => f.write_str("a socket whose peer is unknown"),
            Self::Gone => f.write_str("a connection that had closed already"),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anothers(owner) => write!(f, "it belongs to uid {owner}"),
            Self::Overflow => write!(f, "uid {OVERFLOW_UID} may be any user"),
            Self::Gone => f.write_str("there is no such process"),
            Self::Elsewhere => f.write_str(
                "the peer is in another pid namespace; there the number is neither its own nor an ancestor's or descendant's",
            ),
            Self::NamespaceUnknown => f.write_str("the pid namespace of the peer is unknown"),
            Self::NoForce => {
                f.write_str("only root, and members of --force-group on a Unix socket")
            }
            Self::NoPort => f.write_str("it is not a serial port"),
            Self::DeviceClosed => f.write_str("it may not open the device"),
            Self::RightsUnknown => {
                f.write_str("this system hides what the process may open (hidepid?): see --anyone")
            }
            Self::Hidden => f.write_str(sys::WHY_HIDDEN),
            Self::PeerUnknown => f.write_str("the user of the connection is unknown"),
        }
    }
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = || storage.as_sockaddr_in().map(|a| SocketAddr::from((a.ip(), a.port())));
    let v6 = || storage.as_sockaddr_in6().map(|a| SocketAddr::from((a.ip(), a.port())));
    let address = v4().or_else(v6)?;
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}
