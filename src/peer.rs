//! The peer: the process or user at the other end of a connection, whether it may name a process, and whether it may open a
//! device.
//!
//! Never believes what the client says about itself. If the kernel does not show the address or the uid, the
//! peer is a stranger.
//!
//! A device is judged as the kernel would judge, without opening it: by mode bits and POSIX ACL, for the user and the
//! groups of whoever asks. Sources: path_resolution(7), acl(5) ("access check algorithm"), and the kernel's
//! `include/uapi/linux/posix_acl_xattr.h` for the form of the attribute.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::socket::{self, AddressFamily, SockaddrLike, SockaddrStorage};
use pidlockfile::Pid;
use pidlockfile::process::lives;
use ttylock::subordinate::OVERFLOW_UID;
use ttylock::{Access, ResolvedDevice};

use crate::sys::{self, PeerFacts, PidNumbers, SocketEnds, Subject};

pub(crate) use crate::sys::{Asker, Ids, Inquiry, ProcessStatus};

/// Somebody on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    place: PeerPlace,
    /// The user at the other end, if the kernel shows it.
    pub(crate) uid: Option<u32>,
    /// Its effective group when it connected; known on a Unix socket only.
    pub(crate) gid: Option<u32>,
    numbers: PidNumbers,
    /// Whether it was in the force group when it connected, by its effective group or any other; known on a Unix socket
    /// only.
    pub(crate) is_member: bool,
}

/// A peer that may not speak to the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stranger {
    /// An address that is not this host's own.
    Remote(SocketAddr),
    /// A socket of a kind that says nothing about its peer.
    OtherFamily,
    /// The connection has ended, so its user can no longer be found out.
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerPlace {
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
pub(crate) enum LockRight {
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
    /// This system does not show what the process may open.
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
            Some(AddressFamily::Unix) => {
                (PeerPlace::UnixSocket, sys::unix_peer(stream, force_group))
            }
            Some(AddressFamily::Inet | AddressFamily::Inet6) => {
                let near = socket::getsockname(raw).map_err(|_| Stranger::Gone)?;
                let near = address(&near).ok_or(Stranger::OtherFamily)?;
                let far = address(&far).ok_or(Stranger::OtherFamily)?;
                if !far.ip().is_loopback() {
                    return Err(Stranger::Remote(far));
                }
                // The peer's socket has the same two ends, the other way round. TCP does not show in which pid namespace
                // it is.
                let uid = inquiry.uid_of(&SocketEnds { near: far, far: near });
                (
                    PeerPlace::Loopback(far),
                    PeerFacts { uid, gid: None, numbers: PidNumbers::Ours, is_member: false },
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
        Self { place: PeerPlace::Starter, uid, gid, numbers: PidNumbers::Ours, is_member: false }
    }

    /// Whether it is root.
    #[must_use]
    pub(crate) fn is_root(&self) -> bool {
        self.uid == Some(0)
    }

    /// Whether it is at the other end of a TCP connection.
    #[must_use]
    pub(crate) fn is_on_tcp(&self) -> bool {
        matches!(self.place, PeerPlace::Loopback(_))
    }

    /// Which process of ours the peer means by a number.
    ///
    /// # Errors
    /// [`Refusal::Elsewhere`] and [`Refusal::NamespaceUnknown`], on a Unix socket only.
    pub(crate) fn meant(&self, pid: Pid, rule: Rule) -> Result<Pid, Refusal> {
        match (rule, self.numbers) {
            (Rule::Any, _) | (Rule::Own, PidNumbers::Ours) => Ok(pid),
            (Rule::Own, PidNumbers::Own(peer)) => {
                sys::translate(peer, pid).ok_or(Refusal::Elsewhere)
            }
            (Rule::Own, PidNumbers::Unknown) => Err(Refusal::NamespaceUnknown),
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
        // A process with users is alive, or has ended and is not waited for yet: then it holds nothing.
        match users() {
            Some(users) if [uid, users.real].contains(&OVERFLOW_UID) => Err(Refusal::Overflow),
            Some(users) if users.belong_to(uid) => Ok(()),
            Some(users) if alive() => Err(Refusal::Anothers(users.real)),
            None if alive() => Err(Refusal::Hidden),
            _ => self.may_name_the_gone(purpose),
        }
    }

    /// A process that ends before the request is served must not leave a lock behind. The scenario of the protocol's
    /// memo locks for a number out of thin air, over telnet.
    fn may_name_the_gone(&self, purpose: Purpose) -> Result<(), Refusal> {
        match (purpose, self.place) {
            (Purpose::Take, PeerPlace::UnixSocket) => Err(Refusal::Gone),
            (Purpose::Take, PeerPlace::Starter | PeerPlace::Loopback(_))
            | (Purpose::Release, _) => Ok(()),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.uid {
            Some(uid) => write!(f, "uid {uid}")?,
            None => f.write_str("unknown uid")?,
        }
        match self.place {
            PeerPlace::Starter => f.write_str(" on standard input"),
            PeerPlace::UnixSocket => f.write_str(" on a Unix socket"),
            PeerPlace::Loopback(address) => write!(f, " at {address}"),
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

/// Reading and writing, as bits of a mode.
const READ_WRITE: u32 = 0o6;

/// The bits of a mode that are about the group, or the mask of an ACL.
const GROUP_BITS: u32 = 0o070;

/// One entry of an ACL: tag, permission, and the user or group it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AclEntry {
    tag: u16,
    permission: u32,
    id: u32,
}

const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;

/// Whether a process of our namespace, with this status, may open the device at this path, with the rights that count for
/// the one who asks. Permitted also if the path leads to no character device or to nothing, and to a process that has just
/// ended.
///
/// # Errors
/// [`Refusal::DeviceClosed`], and [`Refusal::RightsUnknown`] of a process that lives.
pub(crate) fn may_open(
    pid: Pid,
    process: Option<&ProcessStatus>,
    asker: Asker,
    path: &Path,
    device: &ResolvedDevice,
) -> Result<(), Refusal> {
    let Some(access) = device.access.filter(Access::is_character_device) else { return Ok(()) };
    if process.is_none() && lives(pid) {
        return Err(Refusal::RightsUnknown);
    }
    let Some(credentials) = process.and_then(ProcessStatus::credentials) else { return Ok(()) };
    let subject = credentials.subject_for(asker);
    let acl = || Some(entries(&sys::acl(path, &device.node?)?));
    let may = subject.user == 0 || permits(access, &subject, acl);
    may.then_some(()).ok_or(Refusal::DeviceClosed)
}

/// A version of four bytes, then eight bytes for each entry, little-endian.
fn entries(value: &[u8]) -> Vec<AclEntry> {
    let entry = |bytes: &[u8]| {
        let (tag, rest) = bytes.split_first_chunk::<2>()?;
        let (permission, rest) = rest.split_first_chunk::<2>()?;
        let (id, _) = rest.split_first_chunk::<4>()?;
        let permission = u32::from(u16::from_le_bytes(*permission));
        Some(AclEntry { tag: u16::from_le_bytes(*tag), permission, id: u32::from_le_bytes(*id) })
    };
    match value.split_first_chunk::<4>() {
        Some(([2, 0, 0, 0], rest)) => rest.chunks_exact(8).filter_map(entry).collect(),
        Some(_) | None => Vec::new(),
    }
}

/// The first of these that is about the process decides: owner, named user, all its groups
/// together, others. With an ACL, the group bits of the mode are the mask of the entries; where
/// those are all off, the kernel looks at no ACL (`acl_permission_check` in its `fs/namei.c`).
/// An ACL that cannot be read permits nothing.
fn permits(access: Access, process: &Subject, acl: impl FnOnce() -> Option<Vec<AclEntry>>) -> bool {
    let permitted = |bits: u32| bits & READ_WRITE == READ_WRITE;
    if process.user == access.user {
        return permitted(access.mode >> 6);
    }
    let acl = if access.mode & GROUP_BITS == 0 { Some(Vec::new()) } else { acl() };
    let Some(acl) = acl else { return false };
    let mask = acl.iter().find(|entry| entry.tag == MASK).map_or(0o7, |mask| mask.permission);
    if let Some(user) = acl.iter().find(|entry| entry.tag == USER && entry.id == process.user) {
        return permitted(user.permission & mask);
    }
    let owning = acl.iter().find(|entry| entry.tag == OWNING_GROUP);
    let owning = owning.map_or(access.mode >> 3, |entry| entry.permission & mask);
    let named = acl.iter().filter(|entry| entry.tag == GROUP);
    let groups: Vec<u32> = std::iter::once((access.group, owning))
        .chain(named.map(|entry| (entry.id, entry.permission & mask)))
        .filter(|(group, _)| process.groups.contains(group))
        .map(|(_, bits)| bits)
        .collect();
    if groups.is_empty() { permitted(access.mode) } else { groups.into_iter().any(permitted) }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use rstest::rstest;
    use testbed::Lots;

    use super::*;

    const ALICE: u32 = 1000;
    const DIALOUT: u32 = 20;

    fn acl_of(entries: &[(u16, u32, u32)]) -> Vec<AclEntry> {
        let entry = |(tag, permission, id): &(u16, u32, u32)| AclEntry {
            tag: *tag,
            permission: *permission,
            id: *id,
        };
        entries.iter().map(entry).collect()
    }

    #[rstest]
    #[case::in_the_group(0o660, &[DIALOUT], &[], true)]
    #[case::outside(0o660, &[100], &[], false)]
    #[case::everybody(0o666, &[100], &[], true)]
    #[case::reading_is_not_enough(0o664, &[100], &[], false)]
    #[case::writing_is_not_enough(0o622, &[100], &[], false)]
    #[case::the_group_is_kept_out(0o606, &[DIALOUT], &[], false)]
    #[case::named_user(0o660, &[100], &[(USER, 6, ALICE), (OWNING_GROUP, 6, 0), (MASK, 6, 0)], true)]
    #[case::another_user(0o660, &[100], &[(USER, 6, 1001), (MASK, 6, 0)], false)]
    #[case::masked_user(0o640, &[100], &[(USER, 6, ALICE), (MASK, 4, 0)], false)]
    #[case::named_user_is_kept_out(0o666, &[DIALOUT], &[(USER, 0, ALICE), (MASK, 6, 0)], false)]
    #[case::named_group(0o660, &[100], &[(GROUP, 6, 100), (OWNING_GROUP, 0, 0), (MASK, 6, 0)], true)]
    #[case::the_owning_group_by_its_entry(0o660, &[DIALOUT], &[(OWNING_GROUP, 0, 0), (MASK, 6, 0)], false)]
    #[case::any_of_its_groups(0o660, &[DIALOUT, 100], &[(OWNING_GROUP, 0, 0), (GROUP, 6, 100), (MASK, 6, 0)], true)]
    #[case::not_together(0o660, &[100, 101], &[(GROUP, 4, 100), (GROUP, 2, 101), (MASK, 6, 0)], false)]
    fn judged_as_the_kernel_does(
        #[case] mode: u32,
        #[case] groups: &[u32],
        #[case] acl: &[(u16, u32, u32)],
        #[case] permitted: bool,
    ) {
        let node = Access { user: 0, group: DIALOUT, mode };
        let process = Subject { user: ALICE, groups: groups.to_vec() };
        assert_eq!(permits(node, &process, || Some(acl_of(acl))), permitted);
    }

    #[test]
    fn an_acl_that_cannot_be_told_permits_nothing() {
        let process = Subject { user: ALICE, groups: vec![DIALOUT] };
        let node = |mode| Access { user: 0, group: DIALOUT, mode };
        assert!(!permits(node(0o666), &process, || None));
        assert!(permits(node(0o606), &Subject { user: ALICE, groups: vec![100] }, || None));
    }

    const SUBJECTS: [(u32, &[u32]); 5] = [
        (ALICE, &[ALICE]),
        (ALICE, &[ALICE, DIALOUT]),
        (1001, &[DIALOUT, 100]),
        (1001, &[100, 101]),
        (1002, &[102]),
    ];

    /// An attribute of all required entries, in the order that the kernel asks for (acl(5)).
    fn attribute(lots: &mut Lots) -> Vec<u8> {
        const NONE: u32 = u32::MAX;
        let users = [(0x01, NONE), (USER, ALICE), (USER, 1001)];
        let groups = [(OWNING_GROUP, NONE), (GROUP, DIALOUT), (GROUP, 100)];
        let entries = users.into_iter().chain(groups).chain([(MASK, NONE), (0x20, NONE)]);
        let mut bytes = vec![2, 0, 0, 0];
        for (tag, id) in entries {
            if [USER, GROUP].contains(&tag) && lots.below(2) == 0 {
                continue;
            }
            let permission = [0_u16, 2, 4, 6, 6, 6, 7][lots.index(7)];
            bytes.extend([tag.to_le_bytes(), permission.to_le_bytes()].concat());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    /// A file of random mode, owners and ACL.
    fn file(path: &Path, lots: &mut Lots) -> Access {
        std::fs::write(path, "").unwrap();
        let (user, group) = ([0, 0, ALICE, 1001][lots.index(4)], [DIALOUT, 100, 7][lots.index(3)]);
        std::os::unix::fs::chown(path, Some(user), Some(group)).unwrap();
        let mode = u32::try_from(lots.below(0o1000)).unwrap();
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        if lots.below(4) > 0 {
            let (value, flags) = (attribute(lots), rustix::fs::XattrFlags::empty());
            let name = "system.posix_acl_access";
            rustix::fs::setxattr(path, name, &value, flags).expect("a file system with ACLs");
        }
        Access { user, group, mode: std::fs::metadata(path).unwrap().mode() }
    }

    /// Random modes and ACLs, compared with the kernel's answer to processes of those users and groups.
    #[test]
    #[ignore = "needs root: tests/run"]
    fn random_rights_are_judged_as_the_kernel_does() {
        let directory = tempfile::tempdir_in("/tmp").unwrap();
        std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let seed = u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos());
        let mut lots = Lots(seed);
        let paths = (0..600).map(|number| directory.path().join(number.to_string()));
        let files: Vec<_> = paths.map(|path| (file(&path, &mut lots), path)).collect();
        for (user, groups) in SUBJECTS {
            let words: Vec<String> = groups.iter().map(u32::to_string).collect();
            let ids = [format!("--reuid={user}"), format!("--regid={}", words[0])];
            let script = "cd \"$1\"; for f in *; do if exec 3<>\"$f\"; then echo \"$f\"; fi; done";
            let output = std::process::Command::new("setpriv")
                .args(ids)
                .args([format!("--groups={}", words.join(","))])
                .args(["bash", "-c", script, "bash"])
                .arg(directory.path())
                .output()
                .unwrap();
            let opened = String::from_utf8(output.stdout).unwrap();
            let opened: std::collections::HashSet<&str> = opened.lines().collect();
            assert!(!opened.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
            let process = Subject { user, groups: groups.to_vec() };
            for (access, path) in &files {
                let node = ttylock::Node::of(&std::fs::metadata(path).unwrap());
                let verdict = permits(*access, &process, || Some(entries(&sys::acl(path, &node)?)));
                let name = path.file_name().unwrap().to_str().unwrap();
                assert_eq!(verdict, opened.contains(name), "seed {seed}: {name} for {user}");
            }
        }
    }

    #[rstest]
    #[case::none(&[], &[])]
    #[case::version_only(&[2, 0, 0, 0], &[])]
    #[case::other_version(&[3, 0, 0, 0, 2, 0, 6, 0, 1, 0, 0, 0], &[])]
    #[case::entry(&[2, 0, 0, 0, 2, 0, 6, 0, 0xe8, 3, 0, 0], &[(USER, 6, ALICE)])]
    #[case::cut(&[2, 0, 0, 0, 2, 0, 6, 0, 0xe8, 3, 0], &[])]
    fn reads_the_attribute(#[case] value: &[u8], #[case] expected: &[(u16, u32, u32)]) {
        assert_eq!(entries(value), acl_of(expected));
    }
}
