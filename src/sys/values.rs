//! What is known about a peer, as values for every system. Pure.

use std::net::SocketAddr;

use pidlockfile::Pid;

/// The two ends of a TCP connection as one of its sockets sees them, IPv4-mapped addresses as
/// IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connection {
    pub(crate) near: SocketAddr,
    pub(crate) far: SocketAddr,
}

/// What is told of the peer at the other end of a connection.
pub(crate) struct PeerFacts {
    pub(crate) uid: Option<u32>,
    pub(crate) numbers: Numbers,
    /// The groups of the process that connected, as it was then; as far as they can be told.
    pub(crate) groups: Vec<u32>,
}

/// In which namespace a peer counts processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "only Linux has namespaces of process numbers")
)]
pub(crate) enum Numbers {
    /// In ours.
    Ours,
    /// In one of its own below ours; here it has this number.
    Own(Pid),
    /// Nobody tells.
    Unknown,
}

/// The user and groups by which a process is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) user: u32,
    pub(crate) groups: Vec<u32>,
}
