//! Guesses why a service said "not permitted", which is all it says: most reasons can be checked from here.
//! Gives a sentence for people, and decides nothing.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat, geteuid};
use pidlockfile::Pid;
use pidlockfile::process;

use super::printable::printable;
use ttylock::{DeviceName, Request, follow};

/// Why something is as it is, for people: one printable line.
pub(super) type Reason = String;

/// Character device 1:3. Source: null(4).
const NULL: u64 = 0x103;

/// The likeliest reason.
pub(super) fn supposed_reason(Request { device, pid }: &Request) -> Reason {
    wrong_device(device)
        .or_else(|| nobodys(*pid))
        .or_else(|| somebody_elses(*pid))
        .or_else(|| closed_device(device))
        .unwrap_or_else(|| {
            "the service may not write the lock directory, or does not know this user: its log \
             says which"
                .to_owned()
        })
}

/// Why there is nothing to lock: what is there is no serial port, or lies elsewhere.
pub(super) fn wrong_device(device: &DeviceName) -> Option<Reason> {
    if follow(Path::new("/dev"), device).is_err() {
        return Some("the name leads out of /dev".to_owned());
    }
    let node = node(device)?;
    let kind = node.file_type();
    let is = match kind {
        _ if node.rdev() == NULL && kind.is_char_device() => "the null device, not a serial port",
        _ if kind.is_char_device() => return None,
        _ if kind.is_dir() => "a directory, not a serial port",
        _ if kind.is_block_device() => "a block device such as a disk, not a serial port",
        _ => "not a device",
    };
    Some(format!("it is {is}"))
}

/// Why nothing is locked for a number that no process has.
pub(super) fn nobodys(pid: Pid) -> Option<Reason> {
    (!process::lives(pid)).then(|| format!("there is no process {pid}"))
}

fn somebody_elses(pid: Pid) -> Option<Reason> {
    let owner = process::owner(pid)?;
    let foreign = !geteuid().is_root() && owner != geteuid().as_raw();
    foreign.then(|| {
        format!("process {pid} belongs to uid {owner}; you can lock only for your own processes")
    })
}

/// A process that may not open a port may not keep others from it either.
fn closed_device(device: &DeviceName) -> Option<Reason> {
    let both = AccessFlags::R_OK | AccessFlags::W_OK;
    faccessat(AT_FDCWD, &path(device), both, AtFlags::AT_EACCESS).err()?;
    let node = node(device)?;
    let group = users::get_group_by_gid(node.gid());
    let group =
        group.map_or_else(|| node.gid().to_string(), |it| printable(&it.name().to_string_lossy()));
    Some(format!("you may not read and write it; members of its group {group} may"))
}

fn node(device: &DeviceName) -> Option<Metadata> {
    path(device).metadata().ok()
}

fn path(device: &DeviceName) -> PathBuf {
    Path::new("/dev").join(device.below_dev())
}
