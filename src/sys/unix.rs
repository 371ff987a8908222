//! Other systems than Linux, by functions that most of them have. Type-checked, never run so far.
//!
//! They have no common way to find the user at the other end of a TCP connection, the user of a process, or
//! what a process may open. So a client may name a living process only with `--trust-pid`, or as root on a
//! Unix socket, and that process can hold a device only with `--anyone`.

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::path::Path;

use nix::sys::socket::MsgFlags;
use pidlockfile::Pid;
use ttylock::Node;

use super::{Credentials, Ids, PeerFacts, PidNumbers, SocketEnds};

/// Where syslog listens. Source: syslogd(8) of FreeBSD and macOS.
pub(crate) const SYSLOG: &str =
    if cfg!(target_os = "macos") { "/var/run/syslog" } else { "/var/run/log" };

/// Sends as it is: SIGPIPE is ignored all the same, and not all of these systems can say more.
pub(crate) const QUIETLY: MsgFlags = MsgFlags::empty();

/// Why the user of a living process is not known.
pub(crate) const WHY_HIDDEN: &str =
    "this system does not show the user of the process: see --trust-pid";

/// The users of the TCP sockets of this host: they cannot be seen.
#[derive(Debug, Default)]
pub(crate) struct Inquiry;

impl Inquiry {
    /// Unknown.
    pub(crate) fn uid_of(&mut self, _socket: &SocketEnds) -> Option<u32> {
        None
    }
}

/// The status of one process, which these systems do not show.
#[derive(Debug)]
pub(crate) enum ProcessStatus {}

impl ProcessStatus {
    /// None is shown.
    pub(crate) fn of(_pid: Pid) -> Option<Self> {
        None
    }

    /// None is shown.
    pub(crate) fn of_file(_status: &File) -> Option<Self> {
        None
    }

    /// Its users.
    pub(crate) fn users(&self) -> Option<Ids> {
        match *self {}
    }

    /// Its users and groups.
    pub(crate) fn credentials(&self) -> Option<Credentials> {
        match *self {}
    }
}

/// The peer at the other end of a Unix socket: its user (getpeereid(3)), but not its process. Every
/// process of these systems has one number, in jails too.
pub(crate) fn unix_peer(stream: BorrowedFd<'_>, group: Option<u32>) -> PeerFacts {
    let ids = nix::unistd::getpeereid(stream).ok();
    let (uid, gid) = ids.map(|(user, group)| (user.as_raw(), group.as_raw())).unzip();
    let is_member = group.is_some() && group == gid;
    PeerFacts { uid, gid, numbers: PidNumbers::Ours, is_member }
}

/// Nobody counts in another way, as far as is known.
pub(crate) fn translate(_peer: Pid, _number: Pid) -> Option<Pid> {
    None
}

/// Not asked for: it would count for processes whose rights are known, and none are.
pub(crate) fn acl(_path: &Path, _node: &Node) -> Option<Vec<u8>> {
    Some(Vec::new())
}
