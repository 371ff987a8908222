//! Whether a process may open a device for reading and writing, as the kernel would judge: mode
//! bits and POSIX ACL, by the process's effective user and its groups. The device is not opened.
//!
//! Sources: path_resolution(7), acl(5) ("access check algorithm"), and the kernel's
//! `include/uapi/linux/posix_acl_xattr.h` for the form of the attribute.

use std::path::Path;

use pidlockfile::Pid;
use pidlockfile::process::lives;
use ttylock::{Access, ResolvedDevice};

use super::Refusal;
use crate::sys::{self, Credentials, Status};

/// Reading and writing, as bits of a mode.
const READ_WRITE: u32 = 0o6;

/// The bits of a mode that are about the group, or the mask of an ACL.
const GROUP_BITS: u32 = 0o070;

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

/// Whether a process of ours, of which this is told, may open the device at this path. What is no character device, or
/// not there, is nobody's to forbid, nor is anything to a process that has just ended.
///
/// # Errors
/// [`Refusal::DeviceClosed`], and [`Refusal::RightsUnknown`] of a process that lives.
pub(crate) fn may_open(
    pid: Pid,
    process: Option<&Status>,
    path: &Path,
    device: &ResolvedDevice,
) -> Result<(), Refusal> {
    let Some(access) = device.access.filter(Access::is_character_device) else { return Ok(()) };
    if process.is_none() && lives(pid) {
        return Err(Refusal::RightsUnknown);
    }
    let Some(credentials) = process.and_then(Status::credentials) else { return Ok(()) };
    let acl = || Some(entries(&sys::acl(path, &device.node?)?));
    let may = credentials.user == 0 || permits(access, &credentials, acl);
    may.then_some(()).ok_or(Refusal::DeviceClosed)
}

/// What is no character device, or the null device.
pub(crate) fn is_no_port(device: &ResolvedDevice) -> bool {
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

/// The first of these that is about the process decides: owner, named user, all its groups
/// together, others. With an ACL, the group bits of the mode are the mask of the entries; where
/// those are all off, the kernel looks at no ACL (`acl_permission_check` in its `fs/namei.c`).
/// What cannot be told permits nothing.
fn permits(
    access: Access,
    process: &Credentials,
    acl: impl FnOnce() -> Option<Vec<Entry>>,
) -> bool {
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
    use rstest::rstest;
    use ttylock::{DeviceName, follow};

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
        let node = Access { user: 0, group: DIALOUT, mode };
        let process = Credentials { user: ALICE, groups: groups.to_vec() };
        assert_eq!(permits(node, &process, || Some(acl_of(acl))), permitted);
    }

    #[rstest]
    #[case(0o600, true)]
    #[case(0o066, false)]
    fn an_owner_is_judged_as_the_owner(#[case] mode: u32, #[case] permitted: bool) {
        let node = Access { user: ALICE, group: DIALOUT, mode };
        let process = Credentials { user: ALICE, groups: vec![DIALOUT] };
        assert_eq!(permits(node, &process, || None), permitted);
    }

    #[test]
    fn an_acl_that_cannot_be_told_permits_nothing() {
        let process = Credentials { user: ALICE, groups: vec![DIALOUT] };
        let node = |mode| Access { user: 0, group: DIALOUT, mode };
        assert!(!permits(node(0o666), &process, || None));
        assert!(permits(node(0o606), &Credentials { user: ALICE, groups: vec![100] }, || None));
    }

    /// A file of random mode, owners and ACL, and what each of these would be judged to.
    struct Case {
        path: std::path::PathBuf,
        verdicts: Vec<bool>,
    }

    const SUBJECTS: [(u32, &[u32]); 5] = [
        (ALICE, &[ALICE]),
        (ALICE, &[ALICE, DIALOUT]),
        (1001, &[DIALOUT, 100]),
        (1001, &[100, 101]),
        (1002, &[102]),
    ];

    /// An attribute of all required entries, in the order that the kernel asks for (acl(5)).
    fn attribute(random: &mut impl FnMut(u32) -> u32) -> Vec<u8> {
        const NONE: u32 = u32::MAX;
        let mut bits = || [0, 2, 4, 6, 6, 6, 7][random(7) as usize];
        let mut entries = vec![(0x01, bits(), NONE)];
        entries.extend([ALICE, 1001].map(|user| (USER, bits(), user)));
        entries.push((OWNING_GROUP, bits(), NONE));
        entries.extend([DIALOUT, 100].map(|group| (GROUP, bits(), group)));
        entries.extend([(MASK, bits(), NONE), (0x20, bits(), NONE)]);
        let keeps = [true, random(2) == 0, random(2) == 0, true, random(2) == 0, random(2) == 0];
        let kept = entries.iter().enumerate().filter(|(at, _)| keeps.get(*at) != Some(&false));
        let bytes = kept.flat_map(|(_, (tag, permission, id))| {
            let permission = u16::try_from(*permission).unwrap().to_le_bytes();
            [&tag.to_le_bytes()[..], &permission, &id.to_le_bytes()].concat()
        });
        [2, 0, 0, 0].into_iter().chain(bytes).collect()
    }

    fn case(directory: &Path, number: u32, random: &mut impl FnMut(u32) -> u32) -> Case {
        let path = directory.join(number.to_string());
        std::fs::write(&path, "").unwrap();
        let owner = [0, 0, ALICE, 1001][random(4) as usize];
        let group = [DIALOUT, 100, 7][random(3) as usize];
        std::os::unix::fs::chown(&path, Some(owner), Some(group)).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(random(0o1000));
        std::fs::set_permissions(&path, mode).unwrap();
        if random(4) > 0 {
            let (value, flags) = (attribute(random), rustix::fs::XattrFlags::empty());
            let name = "system.posix_acl_access";
            rustix::fs::setxattr(&path, name, &value, flags).expect("a file system with ACLs");
        }
        let metadata = std::fs::metadata(&path).unwrap();
        let mode = std::os::unix::fs::MetadataExt::mode(&metadata);
        let (node, place) = (ttylock::Node::of(&metadata), path.clone());
        let acl = move || Some(entries(&sys::acl(&place, &node)?));
        let judge = |(user, groups): (u32, &[u32])| {
            let process = Credentials { user, groups: groups.to_vec() };
            permits(Access { user: owner, group, mode }, &process, &acl)
        };
        Case { path, verdicts: SUBJECTS.map(judge).to_vec() }
    }

    /// Random modes and ACLs, compared with the kernel's answer to processes of those users and groups.
    #[test]
    #[ignore = "needs root: tests/run"]
    fn random_rights_are_judged_as_the_kernel_does() {
        let directory = tempfile::tempdir_in("/tmp").unwrap();
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(directory.path(), all).unwrap();
        let mut seed = u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos()) | 1;
        let first = seed;
        let mut random = |below: u32| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            u32::try_from(seed % u64::from(below)).unwrap()
        };
        let cases: Vec<Case> =
            (0..600).map(|number| case(directory.path(), number, &mut random)).collect();
        for (subject, (user, groups)) in SUBJECTS.iter().enumerate() {
            let [first_group, others @ ..] = groups else { unreachable!() };
            let list = |groups: &[u32]| groups.iter().map(u32::to_string).collect::<Vec<_>>();
            let more = if others.is_empty() {
                "--clear-groups".to_owned()
            } else {
                format!("--groups={}", list(others).join(","))
            };
            let words = [format!("--reuid={user}"), format!("--regid={first_group}"), more];
            let script = "cd \"$1\"; for f in *; do if exec 3<>\"$f\"; then echo \"$f\"; fi; done";
            let output = std::process::Command::new("setpriv")
                .args(words)
                .args(["bash", "-c", script, "bash"])
                .arg(directory.path())
                .output()
                .unwrap();
            let opened = String::from_utf8(output.stdout).unwrap();
            let opened: std::collections::HashSet<&str> = opened.lines().collect();
            assert!(!opened.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
            for case in &cases {
                let name = case.path.file_name().unwrap().to_str().unwrap();
                let kernel = opened.contains(name);
                assert_eq!(case.verdicts[subject], kernel, "seed {first}: {name} for {user}");
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

    #[test]
    fn real_devices() {
        for (dev, name) in [("/dev", "null"), ("/nonexistent", "device"), ("/", "dev")] {
            let name = DeviceName::parse(name.as_bytes()).unwrap();
            let device = follow(Path::new(dev), &name).unwrap();
            let (this, path) = (Pid::this(), Path::new(dev).join(device.real()));
            assert_eq!(may_open(this, Status::of(this).as_ref(), &path, &device), Ok(()));
            assert_eq!(is_no_port(&device), dev != "/nonexistent");
        }
    }
}
