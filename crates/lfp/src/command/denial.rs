//! Guesses why a service said "not permitted", which is all it says: most reasons can be checked from here.
//! Gives a sentence for people, and decides nothing.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat, geteuid};
use pidlockfile::Pid;
use pidlockfile::process;

use super::printable::printable;
use super::row::user_name;
use crate::client::broker::{node, path, wrong_device};
use ttylock::{DeviceName, Layout, Request};

/// Why something is as it is, for people: one printable line.
pub(super) type Reason = String;

/// The likeliest reasons: several may have to be mended.
pub(super) fn supposed_reasons(Request { device, pid }: &Request) -> Vec<Reason> {
    if let Some(reason) = wrong_device(device).or_else(|| nobodys(*pid)) {
        return vec![reason];
    }
    let mut reasons: Vec<Reason> = somebody_elses(*pid).into_iter().collect();
    reasons.extend(closed_device(device));
    if reasons.is_empty() {
        reasons.push(no_room(&Layout::native().lock_dir).unwrap_or_else(|| {
            "the service may not write the lock directory, or does not know this user: its log \
             says which"
                .to_owned()
        }));
    }
    reasons
}

/// Why the service does not release a lock by force.
pub(super) const NO_FORCE: &str = "only root and members of the service's administrator group may use --force, and the \
     service must be able to write the lock directory";

/// Why nothing is locked for a number that no process has.
pub(super) fn nobodys(pid: Pid) -> Option<Reason> {
    (!process::lives(pid)).then(|| format!("there is no process {pid}"))
}

fn somebody_elses(pid: Pid) -> Option<Reason> {
    let (users, own) = (process::users(pid)?, geteuid());
    let owner = users.real;
    let foreign = !own.is_root() && !users.belong_to(own.as_raw());
    foreign.then(|| {
        // `su` waits for the shell that it has started, and keeps the rights of root.
        let name = process::stat(pid).map_or_else(String::new, |it| format!(" ({})", printable(&it.name)));
        let owner = user_name(owner).unwrap_or_else(|| format!("uid {owner}"));
        format!(
            "process {pid}{name} belongs to {owner}: you can lock and unlock for your own processes only; \
             --pid names another one"
        )
    })
}

/// Nobody can lock without a lock directory, or with a full one.
fn no_room(lock_dir: &Path) -> Option<Reason> {
    let shown = printable(&lock_dir.to_string_lossy());
    match rustix::fs::statvfs(lock_dir) {
        Ok(room) if room.f_bavail == 0 && room.f_blocks > 0 => {
            Some(format!("the file system of the lock directory {shown} is full"))
        }
        Ok(room) if room.f_favail == 0 && room.f_files > 0 => Some(format!(
            "the file system of the lock directory {shown} has no room for another file"
        )),
        Err(rustix::io::Errno::NOENT) => Some(format!("the lock directory {shown} does not exist")),
        Ok(_) | Err(_) => None,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_directory_that_is_missing_is_named() {
        let root = tempfile::tempdir().unwrap();
        let missing = root.path().join("lock");
        let said = no_room(&missing).unwrap();
        assert_eq!(said, format!("the lock directory {} does not exist", missing.display()));
        // What is wrong with a file is not known from here.
        std::fs::write(&missing, "").unwrap();
        assert_eq!(no_room(&missing).filter(|said| said.contains("does not exist")), None);
    }
}
