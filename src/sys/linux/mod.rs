//! Linux: netlink, `SO_PEERCRED`, `/proc`, POSIX ACL.
//!
//! `/proc/PID/status` shows the user of a process, its capabilities and groups. Peers on a Unix socket may run in a pid
//! namespace of their own, as in a container: a process number that such a peer gives means another process here. The
//! kernel gives the peer's number in our namespace. From there `/proc` shows the numbers of the peer, of its ancestors and
//! of its descendants in its own namespace, so these can be translated. Finding other processes of that namespace would
//! need a look at every process of the machine. Source: proc(5), `/proc/PID/status`, fields `NSpid` and `PPid`;
//! `/proc/PID/task/TID/children`.

mod inquiry;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::sys::socket::{MsgFlags, getsockopt, sockopt};
use pidlockfile::Pid;
use pidlockfile::process::{self, Ids, field_in, numbers_in};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open};
use ttylock::Node;

use super::{Credentials, PeerFacts, PidNumbers};
pub(crate) use inquiry::Inquiry;

/// Where syslog listens. Source: syslog(3).
pub(crate) const SYSLOG: &str = "/dev/log";

/// Sends without SIGPIPE.
pub(crate) const QUIETLY: MsgFlags = MsgFlags::MSG_NOSIGNAL;

/// Why the user of a living process is not known.
pub(crate) const WHY_HIDDEN: &str = "it is hidden: is /proc mounted with hidepid?";

/// The attribute in which the kernel keeps an ACL.
const ACL_ATTRIBUTE: &str = "system.posix_acl_access";

/// The longest ACL that is read: some five hundred entries. A longer one counts as unknown.
const ACL_BYTES: usize = 4096;

/// The peer at the other end of a Unix socket: user and groups as they were when it connected.
///
/// Whether it is in this group is asked of the socket, and nothing is kept of the list: a process may be in 65,536 groups.
pub(crate) fn unix_peer(stream: BorrowedFd<'_>, group: Option<u32>) -> PeerFacts {
    let Ok(credentials) = getsockopt(&stream, sockopt::PeerCredentials) else {
        return PeerFacts { uid: None, gid: None, numbers: PidNumbers::Unknown, is_member: false };
    };
    let (uid, gid) = (credentials.uid(), credentials.gid());
    let is_supplementary =
        |group| ttylock::peer_groups(stream).is_ok_and(|groups| groups.contains(&group));
    PeerFacts {
        uid: Some(uid),
        gid: Some(gid),
        numbers: pid_numbers(credentials.pid(), peer_process(stream, credentials.pid())),
        is_member: group.is_some_and(|group| group == gid || is_supplementary(group)),
    }
}

/// A handle of the process that connected. Where the kernel does not show which it was (before Linux 6.5), the process
/// that has its number is taken for it.
fn peer_process(stream: BorrowedFd<'_>, pid: i32) -> Option<OwnedFd> {
    match getsockopt(&stream, sockopt::PeerPidfd) {
        Ok(process) => Some(process),
        Err(nix::errno::Errno::ESRCH) => None,
        Err(_) => pidfd_open(rustix::process::Pid::from_raw(pid)?, PidfdFlags::empty()).ok(),
    }
}

/// The ACL of a device beyond its mode, as the kernel keeps it; empty where there is none. `None` where
/// it cannot be read, or the path leads to another node by now. A handle of this kind opens no device
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

/// More than the status of most processes: it is read in one piece.
const STATUS_BYTES: usize = 4096;

/// `/proc/PID/status` of one process at one time.
#[derive(Debug)]
pub(crate) struct ProcessStatus {
    status: String,
    users: Option<Ids>,
}

fn open_status(pid: Pid) -> Option<File> {
    File::open(format!("/proc/{pid}/status")).ok()
}

/// The whole file, as it was at one time: the kernel keeps the text until it has been read to its end. A process that
/// has ended has one until its parent has waited for it.
fn read_status(status: &File) -> Option<String> {
    let status = read_all(|room, place| status.read_at(room, place)).ok()?;
    // Names of programs may be any bytes. To replace those that are no text takes ten times as long as to check them.
    let text = String::from_utf8(status);
    Some(text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// The kernel gives as much of the text as there is room for. So a piece that leaves room is the last one.
fn read_all(read_at: impl Fn(&mut [u8], u64) -> io::Result<usize>) -> io::Result<Vec<u8>> {
    let (mut status, mut length) = (vec![0; STATUS_BYTES], 0_usize);
    loop {
        match read_at(status.get_mut(length..).unwrap_or_default(), length as u64) {
            Ok(read) => length = length.saturating_add(read),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if length < status.len() {
            status.truncate(length);
            return Ok(status);
        }
        status.resize(length.saturating_mul(2), 0);
    }
}

impl ProcessStatus {
    /// The status of the process that has this number now; `None` where it is hidden, or the process has ended.
    pub(crate) fn of(pid: Pid) -> Option<Self> {
        process::numbers_are_ours().then(|| Self::of_file(&open_status(pid)?))?
    }

    /// The same of one process, by its open file.
    pub(crate) fn of_file(status: &File) -> Option<Self> {
        let status = read_status(status)?;
        let users = Ids::in_status(&status, "Uid:");
        (!status.is_empty() && !process::has_ended_in(&status)).then_some(Self { status, users })
    }

    /// Its users.
    pub(crate) fn users(&self) -> Option<Ids> {
        self.users
    }

    /// Its users and groups.
    pub(crate) fn credentials(&self) -> Option<Credentials> {
        credentials_in(&self.status)
    }
}

fn credentials_in(status: &str) -> Option<Credentials> {
    let more = field_in(status, "Groups:").unwrap_or_default().split_ascii_whitespace();
    let more_groups = more.filter_map(|group| group.parse::<u32>().ok()).collect();
    let (users, groups) = (Ids::in_status(status, "Uid:")?, Ids::in_status(status, "Gid:")?);
    Some(Credentials { users, groups, more_groups })
}

/// Ancestors, and descendants, of a peer that are examined to learn which process it means by a number. It cannot name
/// others.
const RELATIVES: usize = 64;

/// A process, as the kernel shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kin {
    /// Its numbers: in the namespace of `/proc`, then in each one below, the innermost last.
    numbers: Vec<i32>,
    parent: Option<Pid>,
}

/// Where a peer with this number counts processes, by a handle of its process. The kernel shows the numbers of a process
/// with its handle, too (pidfd in proc(5)), and there it does not list 65,536 groups before them.
fn pid_numbers(peer: i32, process: Option<OwnedFd>) -> PidNumbers {
    let shown = process.and_then(|process| {
        std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).ok()
    });
    // One that has ended, and whose parent has waited for it, has no number any more.
    let numbers = shown.and_then(|shown| numbers_in(&shown));
    let numbers = numbers.filter(|numbers| numbers.iter().all(|number| *number > 0));
    let (Some(peer), Some(numbers)) = (Pid::new(i64::from(peer)), numbers) else {
        return PidNumbers::Unknown;
    };
    match kin(Pid::this()).map(|own| own.numbers.len()) {
        Some(own) if numbers.len() == own => PidNumbers::Ours,
        Some(own) if numbers.len() > own => PidNumbers::Own(peer),
        Some(_) | None => PidNumbers::Unknown,
    }
}

/// Translates a number from a peer in a pid namespace of its own: the peer itself, one of its ancestors, or one of
/// its descendants.
pub(crate) fn translate(peer: Pid, number: Pid) -> Option<Pid> {
    translate_by(peer, number, kin).or_else(|| translate_below(peer, number, kin, children))
}

/// Those below are in the peer's namespace if they have as many numbers: nobody gets out of one.
fn translate_below(
    peer: Pid,
    number: Pid,
    kin: impl Fn(Pid) -> Option<Kin>,
    children: impl Fn(Pid) -> Vec<Pid>,
) -> Option<Pid> {
    let depth = kin(peer)?.numbers.len();
    let mut family = VecDeque::from([peer]);
    let mut looks = 0_usize;
    while let Some(parent) = family.pop_front() {
        for child in children(parent) {
            looks = looks.saturating_add(1);
            if looks > RELATIVES {
                return None;
            }
            // Or it has ended, and another process has its number.
            let Some(Kin { numbers, .. }) = kin(child).filter(|kin| kin.parent == Some(parent))
            else {
                continue;
            };
            if numbers.len() == depth && numbers.last() == Some(&number.as_raw()) {
                return Some(child);
            }
            family.push_back(child);
        }
    }
    None
}

/// The children of a process's first thread.
fn children(process: Pid) -> Vec<Pid> {
    // The numbers of more children than are examined.
    let mut text = String::new();
    let file = File::open(format!("/proc/{process}/task/{process}/children"));
    let read = file.and_then(|file| file.take(16 * 1024).read_to_string(&mut text));
    if read.is_err() {
        return Vec::new();
    }
    text.split_ascii_whitespace().filter_map(|pid| Pid::parse(pid.as_bytes()).ok()).collect()
}

fn translate_by(peer: Pid, number: Pid, kin: impl Fn(Pid) -> Option<Kin>) -> Option<Pid> {
    let mut process = peer;
    let mut depth = None;
    for _ in 0..RELATIVES {
        let Kin { numbers, parent, .. } = kin(process)?;
        // Those above are in the peer's namespace as long as they have as many numbers.
        if *depth.get_or_insert(numbers.len()) != numbers.len() {
            return None;
        }
        if numbers.last() == Some(&number.as_raw()) {
            return Some(process);
        }
        process = parent?;
    }
    None
}

fn kin(process: Pid) -> Option<Kin> {
    kin_in(&read_status(&open_status(process)?)?)
}

fn kin_in(status: &str) -> Option<Kin> {
    let parent = field_in(status, "PPid:").and_then(|pid| Pid::parse(pid.trim().as_bytes()).ok());
    Some(Kin { numbers: numbers_in(status)?, parent })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn reads_the_ids() {
        let status = "Name:\tx\nUid:\t1000\t1001\t1002\t1003\nGid:\t5\t6\t7\t8\nGroups:\t20 24 \n";
        let expected = Credentials {
            users: Ids { real: 1000, effective: 1001, saved: 1002 },
            groups: Ids { real: 5, effective: 6, saved: 7 },
            more_groups: vec![20, 24],
        };
        assert_eq!(credentials_in(status), Some(expected));
    }

    /// The kernel keeps a text of any length, such as that of a process in many groups.
    #[rstest]
    #[case::none(0)]
    #[case::usual(1400)]
    #[case::one_byte_of_room(STATUS_BYTES - 1)]
    #[case::exactly_one_piece(STATUS_BYTES)]
    #[case::one_byte_more(STATUS_BYTES + 1)]
    #[case::many_pieces(5 * STATUS_BYTES)]
    fn the_whole_status_is_read(#[case] length: usize) {
        let text: Vec<u8> = (b'a'..=b'w').cycle().take(length).collect();
        let read_at = |mut room: &mut [u8], place| {
            io::Write::write(&mut room, &text[usize::try_from(place).unwrap()..])
        };
        assert_eq!(read_all(read_at).unwrap(), text);
    }

    #[rstest]
    #[case::one_id("Uid:\t1000\nGid:\t5\t6\t7\t8\n")]
    #[case::two_ids("Uid:\t1000\t1001\nGid:\t5\t6\t7\t8\n")]
    #[case::no_group("Uid:\t1000\t1001\t1002\t1003\n")]
    #[case::no_number("Uid:\t1000\tx\t1002\t1003\nGid:\t5\t6\t7\t8\n")]
    #[case::empty("")]
    fn no_ids_are_made_up(#[case] status: &str) {
        assert_eq!(credentials_in(status), None);
    }

    fn pid(number: i64) -> Pid {
        Pid::new(number).unwrap()
    }

    /// A container and its parent 90 outside: 100 is the first process, 110 the peer's parent, 120 the peer, 130 the
    /// peer's child. 140 and 170 are children of 130; 140 has a namespace of its own, with 150 in it. 160 was a child
    /// of the peer and has ended: another process has its number.
    fn family(process: Pid) -> Option<Kin> {
        let (numbers, parent): (&[i32], i64) = match process.as_raw() {
            90 => (&[90], 1),
            100 => (&[100, 1], 90),
            110 => (&[110, 5], 100),
            120 => (&[120, 7], 110),
            130 => (&[130, 8], 120),
            140 => (&[140, 9, 1], 130),
            150 => (&[150, 10, 2], 140),
            160 => (&[160, 11], 1),
            170 => (&[170, 12], 130),
            _ => return None,
        };
        Some(Kin { numbers: numbers.to_vec(), parent: Pid::new(parent) })
    }

    fn children(process: Pid) -> Vec<Pid> {
        let children: &[i64] = match process.as_raw() {
            120 => &[130, 160],
            130 => &[140, 170],
            140 => &[150],
            _ => &[],
        };
        children.iter().map(|child| pid(*child)).collect()
    }

    #[rstest]
    #[case::itself(7, Some(120), None)]
    #[case::its_parent(5, Some(110), None)]
    #[case::the_first(1, Some(100), None)]
    #[case::no_relative(6, None, None)]
    #[case::outside(90, None, None)]
    #[case::number_here(120, None, None)]
    #[case::child(8, None, Some(130))]
    #[case::grandchild(12, None, Some(170))]
    #[case::in_a_namespace_of_its_own(9, None, None)]
    #[case::an_ended_process(11, None, None)]
    fn relatives_are_translated(
        #[case] number: i64,
        #[case] ancestor: Option<i64>,
        #[case] descendant: Option<i64>,
    ) {
        let number = pid(number);
        assert_eq!(translate_by(pid(120), number, family), ancestor.map(pid));
        assert_eq!(translate_below(pid(120), number, family, children), descendant.map(pid));
    }

    #[test]
    fn translation_gives_up_on_a_process_with_too_many_children() {
        let below = |process: Pid| {
            let parent = (process != pid(1)).then(|| pid(1));
            Some(Kin { numbers: vec![process.as_raw(), 5], parent })
        };
        let all =
            |process: Pid| if process == pid(1) { (2..1000).map(pid).collect() } else { vec![] };
        assert_eq!(translate_below(pid(1), pid(6), below, all), None);
    }

    #[test]
    fn translation_gives_up_on_an_endless_line_of_parents() {
        let endless = |process: Pid| {
            let number = process.as_raw();
            let parent = Pid::new(i64::from(number) + 1);
            Some(Kin { numbers: vec![number, 5], parent })
        };
        assert_eq!(translate_by(pid(1), pid(6), endless), None);
    }

    #[rstest]
    #[case::nested("Name:\tx\nPPid:\t12\nGid:\t7\t8\t8\t8\nGroups:\t20 24 \nNSpid:\t34\t5\n", Some(Kin { numbers: vec![34, 5], parent: Pid::new(12) }))]
    #[case::first("PPid:\t0\nNSpid:\t1\n", Some(Kin { numbers: vec![1], parent: None }))]
    #[case::older_kernel("PPid:\t12\n", None)]
    #[case::empty("PPid:\t12\nNSpid:\n", None)]
    #[case::no_number("NSpid:\t1\tx\n", None)]
    #[case::cut("NSpid:\t120\t7", None)]
    fn reads_status(#[case] status: &str, #[case] expected: Option<Kin>) {
        assert_eq!(kin_in(status), expected);
    }

    #[test]
    fn this_process_is_in_our_pid_namespace() {
        let own = rustix::process::getpid();
        let handle = || Some(pidfd_open(own, PidfdFlags::empty()).unwrap());
        let number = own.as_raw_nonzero().get();
        assert_eq!(pid_numbers(number, handle()), PidNumbers::Ours);
        assert_eq!(pid_numbers(0, handle()), PidNumbers::Unknown);
        assert_eq!(pid_numbers(number, None), PidNumbers::Unknown);
        let file = File::open("/proc/self/stat").unwrap();
        assert_eq!(pid_numbers(number, Some(file.into())), PidNumbers::Unknown);
    }
}
