//! Whether a process may open a device for reading and writing, as the kernel would judge: mode
//! bits and POSIX ACL, by the process's effective user and its groups. The device is not opened.
//!
//! Sources: path_resolution(7), acl(5) ("access check algorithm"), and the kernel's
//! `include/uapi/linux/posix_acl_xattr.h` for the form of the attribute.

use std::path::Path;

use pidlockfile::Pid;
use ttylock::device::node::{Access, ResolvedDevice};

use crate::sys::{self, Credentials, Processes, Status};

/// Reading and writing, as bits of a mode.
const READ_WRITE: u32 = 0o6;

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
    credentials.user == 0
        || Node { user, group, mode }.permits(&credentials, &entries(&sys::acl(path)))
}

/// Whether a process of this user is in a group; nobody's who has ended.
pub(super) fn is_in(pid: Pid, user: u32, group: u32) -> bool {
    let status = Processes::default().status(pid);
    let credentials = status.as_ref().and_then(Status::credentials);
    credentials.is_some_and(|process| process.user == user && process.groups.contains(&group))
}

/// What is no character device, or the null device.
pub(super) fn is_no_port(device: &ResolvedDevice) -> bool {
    let numbers = device.node.and_then(|node| node.device);
    let is_null = || numbers.is_some() && numbers == sys::null_device();
    device.access.is_some_and(|access| !access.is_character_device() || is_null())
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
