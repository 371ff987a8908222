//! Devices that do not exist: which device may appear under a name, and which lock files a lock for it would
//! have.
//!
//! A lock file's name has only the last part of a device's name, so a lock for `nosuch/ttyS2` would keep
//! others from `ttyS2`.

use std::path::{Path, PathBuf};

use super::DeviceName;
use super::node::{Access, ResolvedDevice, follow};
use super::other_names::BY_UDEV;
use crate::dialects::Dialect;
use crate::dialects::forms::NamedDevice;
use crate::lock::names::{lock_names, named_by};
use crate::sys;

/// The most directories below `/dev` that are read.
const DIRECTORIES: usize = 128;

/// Where the kernel makes the terminals that it numbers.
const NUMBERED: &str = "pts";

/// Whether the kernel or udev may make a device of this name: in `/dev` itself, in a directory in which only root
/// makes names, or, if the directory does not exist yet, in one of udev's.
pub(crate) fn may_come(dev_dir: &Path, real: &str) -> bool {
    let Some((directory, base)) = real.rsplit_once('/') else { return true };
    match directory {
        NUMBERED => base.bytes().all(|byte| byte.is_ascii_digit()),
        _ if BY_UDEV.contains(&directory) => true,
        _ => is_roots(dev_dir, Path::new(directory)),
    }
}

/// Whether each directory on the way exists, and only root and this user may make names in it.
fn is_roots(dev_dir: &Path, directory: &Path) -> bool {
    let mut way = dev_dir.to_owned();
    directory.components().all(|part| {
        way.push(part);
        sys::look_at(&way).is_ok_and(|seen| seen.is_directory() && !seen.is_open_to_others())
    })
}

/// The existing ports that share a lock file with this device, which does not exist.
pub(crate) fn namesakes(
    dialect: &Dialect,
    dev_dir: &Path,
    absent: &ResolvedDevice,
) -> Vec<ResolvedDevice> {
    let mut found: Vec<ResolvedDevice> = Vec::new();
    let Some(lock_names) = lock_names(dialect, absent) else { return found };
    for name in candidates(dev_dir, &named_by(dialect, &lock_names)) {
        let Ok(name) = DeviceName::parse(name.as_bytes()) else { continue };
        let Ok(port) = follow(dev_dir, &name) else { continue };
        let is_port = port.access.as_ref().is_some_and(Access::is_character_device);
        if is_port && !found.iter().any(|known| known.node == port.node) {
            found.push(port);
        }
    }
    found
}

/// The names that devices with these lock files would have, in every directory.
fn candidates(dev_dir: &Path, named: &[NamedDevice<'_>]) -> Vec<String> {
    let mut names = Vec::new();
    for directory in directories(dev_dir) {
        let Some(directory) = directory.to_str() else { continue };
        for name in named.iter().filter_map(|named| named.device_in(directory)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

/// `/dev` and the directories below it, except those in which other users may make files, and those of pseudo-terminals.
fn directories(dev_dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    let mut next = 0;
    while let Some(directory) = found.get(next).cloned() {
        next = next.saturating_add(1);
        if directory.as_os_str() == NUMBERED {
            continue;
        }
        let entries = std::fs::read_dir(dev_dir.join(&directory)).into_iter().flatten().flatten();
        for entry in entries {
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let below = directory.join(entry.file_name());
            if is_directory && found.len() < DIRECTORIES && is_roots(dev_dir, &below) {
                found.push(below);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use rstest::rstest;

    use super::*;

    /// A `/dev` with the null device in the place of each port.
    fn dev() -> tempfile::TempDir {
        let dev = tempfile::tempdir().unwrap();
        for below in ["pts", "serial/by-id", "usb", "shm"] {
            fs::create_dir_all(dev.path().join(below)).unwrap();
        }
        fs::set_permissions(dev.path().join("shm"), Permissions::from_mode(0o1777)).unwrap();
        dev
    }

    #[rstest]
    #[case::usb("ttyUSB7", true)]
    #[case::by_a_rule("arduino", true)]
    #[case::by_id("serial/by-id/usb-X", true)]
    #[case::first_by_path("serial/by-path/pci-0", true)]
    #[case::terminal("pts/12", true)]
    #[case::where_there_are_devices("usb/lp7", true)]
    #[case::no_terminal("pts/ttyS2", false)]
    #[case::nowhere("nosuch/ttyS2", false)]
    #[case::open_to_all("shm/ttyS2", false)]
    #[case::below_that("shm/a/ttyS2", false)]
    fn names_that_devices_may_have(#[case] name: &str, #[case] may_come_: bool) {
        assert_eq!(may_come(dev().path(), name), may_come_);
    }

    #[rstest]
    #[case::other_directory("usb/ttyS2", "ttyS2")]
    #[case::dial_out("cua2", "ttyS2")]
    #[case::number("7", "pts/7")]
    #[case::underscore("pts_7", "pts/7")]
    #[case::colon("pts:7", "pts/7")]
    #[case::link("usb-X_1", "serial/by-id/usb-X_1")]
    #[case::link_by_underscores("serial_by-id_usb-X_1", "serial/by-id/usb-X_1")]
    #[case::slash_against_underscore("usb/x", "usb_x")]
    fn every_holder_met_at_a_lock_file_is_found(#[case] absent: &str, #[case] port: &str) {
        let dev = dev();
        let resolve =
            |name: &str| follow(dev.path(), &DeviceName::parse(name.as_bytes()).unwrap()).unwrap();
        // A node cannot be made by everybody, and a link that leads out is none: mount(2) is not needed
        // where the names alone are asked for.
        let linux = Dialect::by_name("linux").unwrap();
        let absent = resolve(absent);
        let lock_names = lock_names(linux, &absent).unwrap();
        let asked = candidates(dev.path(), &named_by(linux, &lock_names));
        assert!(asked.iter().any(|name| name == port), "{asked:?}");
        symlink("ttyS2", dev.path().join("unrelated")).unwrap();
        assert!(namesakes(linux, dev.path(), &absent).is_empty());
    }
}
