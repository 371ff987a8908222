//! Whether a process may open a device for reading and writing, as the kernel would judge: mode
//! bits and POSIX ACL, by the process's effective user and its groups. The device is not opened.
//!
//! Sources: path_resolution(7), acl(5) ("access check algorithm"), and the kernel's
//! `include/uapi/linux/posix_acl_xattr.h` for the form of the attribute.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use pidlockfile::Pid;
use pidlockfile::process;
use ttylock::device::node::{Access, Numbers, ResolvedDevice};

/// Reading and writing, as bits of a mode.
const READ_WRITE: u32 = 0o6;

/// The attribute in which the kernel keeps an ACL.
const ACL_ATTRIBUTE: &str = "system.posix_acl_access";

/// The longest ACL that is read: some five hundred entries. A longer one permits nothing.
const ACL_BYTES: usize = 4096;

/// As much as `/proc/PID/status` usually has: so it is read at once.
const USUAL_STATUS_BYTES: usize = 4096;

/// More than the longest `/proc/PID/status`; a process may be in 65,536 groups.
const STATUS_BYTES: usize = 1 << 20;

/// As whom a process is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Credentials {
    user: u32,
    groups: Vec<u32>,
}

/// Whose a device node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node {
    user: u32,
    group: u32,
    mode: u32,
}

/// One entry of an ACL: tag, permission, and the user or group it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    permission: u32,
    id: u32,
}

const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;

/// Whether a process may open the device at this path. What is no character device, or not there,
/// is nobody's to forbid; nor is a process whose rights nobody tells, as it has just ended.
pub(super) fn may_open(process: Option<&Status>, path: &Path, device: &ResolvedDevice) -> bool {
    let Some(access) = device.access.filter(Access::is_character_device) else { return true };
    let Access { mode, user, group } = access;
    let Some(credentials) = process.and_then(Status::credentials) else { return true };
    credentials.user == 0 || Node { user, group, mode }.permits(&credentials, &acl(path))
}

/// Whether a process of this user is in a group; nobody's who has ended.
pub(super) fn is_in(pid: Pid, user: u32, group: u32) -> bool {
    let status = Processes::default().status(pid);
    let credentials = status.as_ref().and_then(Status::credentials);
    credentials.is_some_and(|process| process.user == user && process.groups.contains(&group))
}

/// The null device is number 1:3. Source: null(4).
pub(super) fn is_no_port(device: &ResolvedDevice) -> bool {
    const NULL: Numbers = Numbers { major: 1, minor: 3 };
    let numbers = device.node.and_then(|node| node.device);
    device.access.is_some_and(|access| !access.is_character_device() || numbers == Some(NULL))
}

/// What the kernel tells of processes. The file of the last one is kept open: a client names the same
/// process all day.
#[derive(Debug, Default)]
pub struct Processes {
    last: Option<(Pid, File)>,
}

/// `/proc/PID/status` of one process at one time.
#[derive(Debug)]
pub struct Status(String);

impl Processes {
    /// What is told of the process that has this number now; `None` where nothing is.
    pub fn status(&mut self, pid: Pid) -> Option<Status> {
        if let Some(status) = self.status_of_last(pid) {
            return Some(status);
        }
        // Where there is one, `/proc` counts processes as we do.
        process::owner(pid)?;
        let file = File::open(format!("/proc/{pid}/status")).ok()?;
        self.last = Some((pid, file));
        self.status_of_last(pid)
    }

    /// The file is that one process's: nothing can be read of it when that has ended.
    fn status_of_last(&mut self, pid: Pid) -> Option<Status> {
        let (_, file) = self.last.as_ref().filter(|(last, _)| *last == pid)?;
        let status = read(file).filter(|status| !status.is_empty());
        if status.is_none() {
            self.last = None;
        }
        status.map(|status| Status(String::from_utf8_lossy(&status).into_owned()))
    }
}

fn read(file: &File) -> Option<Vec<u8>> {
    let mut status = vec![0; USUAL_STATUS_BYTES];
    let mut length = file.read_at(&mut status, 0).ok()?;
    // What fits is told at once.
    while length == status.len() && length < STATUS_BYTES {
        status.resize(STATUS_BYTES.min(2 * length), 0);
        let rest = status.get_mut(length..)?;
        length += file.read_at(rest, u64::try_from(length).ok()?).ok()?;
    }
    status.truncate(length);
    Some(status)
}

impl Status {
    /// The effective user; where that is root, the one who started it: as [`process::owner`], which
    /// asks for the owner of `/proc/PID`.
    pub fn owner(&self) -> Option<u32> {
        let line = self.0.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        let mut users = line.split_ascii_whitespace().map(str::parse::<u32>);
        let (real, effective) = (users.next()?.ok()?, users.next()?.ok()?);
        Some(if effective == 0 { real } else { effective })
    }

    fn credentials(&self) -> Option<Credentials> {
        credentials_in(&self.0)
    }
}

/// The effective user and group stand second in their lines.
fn credentials_in(status: &str) -> Option<Credentials> {
    let field = |key: &str| status.lines().find_map(|line| line.strip_prefix(key));
    let second = |key| field(key)?.split_ascii_whitespace().nth(1)?.parse::<u32>().ok();
    let mut groups = vec![second("Gid:")?];
    let more = field("Groups:").unwrap_or_default().split_ascii_whitespace();
    groups.extend(more.filter_map(|group| group.parse::<u32>().ok()));
    Some(Credentials { user: second("Uid:")?, groups })
}

/// The ACL of a device beyond its mode; empty where there is none.
fn acl(device: &Path) -> Vec<Entry> {
    let mut value = [0; ACL_BYTES];
    match rustix::fs::lgetxattr(device, ACL_ATTRIBUTE, &mut value) {
        Ok(length) => entries(value.get(..length).unwrap_or_default()),
        Err(_) => Vec::new(),
    }
}

/// A version of four bytes, then eight bytes for each entry, little-endian.
fn entries(value: &[u8]) -> Vec<Entry> {
    let entry = |bytes: &[u8]| {
        let (tag, rest) = bytes.split_first_chunk::<2>()?;
        let (permission, rest) = rest.split_first_chunk::<2>()?;
        let (id, _) = rest.split_first_chunk::<4>()?;
        let permission = u32::from(u16::from_le_bytes(*permission));
        Some(Entry { tag: u16::from_le_bytes(*tag), permission, id: u32::from_le_bytes(*id) })
    };
    match value.split_first_chunk::<4>() {
        Some(([2, 0, 0, 0], rest)) => rest.chunks_exact(8).filter_map(entry).collect(),
        Some(_) | None => Vec::new(),
    }
}

impl Node {
    /// The first of these that is about the process decides: owner, named user, all its groups
    /// together, others. With an ACL, the group bits of the mode are the mask of the entries.
    fn permits(self, process: &Credentials, acl: &[Entry]) -> bool {
        let permitted = |bits: u32| bits & READ_WRITE == READ_WRITE;
        if process.user == self.user {
            return permitted(self.mode >> 6);
        }
        let mask = acl.iter().find(|entry| entry.tag == MASK).map_or(0o7, |mask| mask.permission);
        if let Some(user) = acl.iter().find(|entry| entry.tag == USER && entry.id == process.user) {
            return permitted(user.permission & mask);
        }
        let owning = acl.iter().find(|entry| entry.tag == OWNING_GROUP);
        let owning = owning.map_or(self.mode >> 3, |entry| entry.permission & mask);
        let named = acl.iter().filter(|entry| entry.tag == GROUP);
        let groups: Vec<u32> = std::iter::once((self.group, owning))
            .chain(named.map(|entry| (entry.id, entry.permission & mask)))
            .filter(|(group, _)| process.groups.contains(group))
            .map(|(_, bits)| bits)
            .collect();
        if groups.is_empty() { permitted(self.mode) } else { groups.into_iter().any(permitted) }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use ttylock::device::name::DeviceName;
    use ttylock::device::node::follow;

    use super::*;

    const ALICE: u32 = 1000;
    const DIALOUT: u32 = 20;

    fn acl_of(entries: &[(u16, u32, u32)]) -> Vec<Entry> {
        let entry = |(tag, permission, id): &(u16, u32, u32)| Entry {
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
        let node = Node { user: 0, group: DIALOUT, mode };
        let process = Credentials { user: ALICE, groups: groups.to_vec() };
        assert_eq!(node.permits(&process, &acl_of(acl)), permitted);
    }

    #[rstest]
    #[case(0o600, true)]
    #[case(0o066, false)]
    fn an_owner_is_judged_as_the_owner(#[case] mode: u32, #[case] permitted: bool) {
        let node = Node { user: ALICE, group: DIALOUT, mode };
        let process = Credentials { user: ALICE, groups: vec![DIALOUT] };
        assert_eq!(node.permits(&process, &[]), permitted);
    }

    #[test]
    fn the_effective_ids_count() {
        let status = "Name:\tx\nUid:\t1000\t1001\t1002\t1003\nGid:\t5\t6\t7\t8\nGroups:\t20 24 \n";
        let expected = Credentials { user: 1001, groups: vec![6, 20, 24] };
        assert_eq!(credentials_in(status), Some(expected));
        assert_eq!(credentials_in("Uid:\t1000\nGid:\t5\t6\n"), None);
        assert_eq!(credentials_in(""), None);
    }

    #[rstest]
    #[case::usual("Uid:\t1000\t1001\t1002\t1003\n", Some(1001))]
    #[case::raised_to_root("Name:\tsu\nUid:\t1000\t0\t0\t0\n", Some(1000))]
    #[case::root("Uid:\t0\t0\t0\t0\n", Some(0))]
    #[case::cut("Uid:\t1000\n", None)]
    #[case::none("", None)]
    fn a_process_is_its_effective_users(#[case] status: &str, #[case] owner: Option<u32>) {
        assert_eq!(Status(status.to_owned()).owner(), owner);
    }

    #[test]
    fn a_file_that_is_kept_is_one_process_s_only() {
        let mut processes = Processes::default();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::new(child.id().into()).unwrap();
        for pid in [Pid::this(), pid, pid] {
            let status = processes.status(pid).unwrap();
            assert_eq!(status.owner(), process::owner(pid));
            assert!(status.0.contains(&format!("\nPid:\t{pid}\n")));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(processes.status(pid).is_none());
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

    #[test]
    fn real_devices() {
        for (dev, name) in [("/dev", "null"), ("/nonexistent", "device"), ("/", "dev")] {
            let name = DeviceName::parse(name.as_bytes()).unwrap();
            let device = follow(Path::new(dev), &name).unwrap();
            let own = Processes::default().status(Pid::this());
            assert!(may_open(own.as_ref(), &Path::new(dev).join(device.real()), &device));
            assert_eq!(is_no_port(&device), dev != "/nonexistent");
        }
    }
}
