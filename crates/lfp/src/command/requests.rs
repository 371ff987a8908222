//! The requests that only the command makes by a [`Broker`]: to hand locks over, to release those of others, to see which
//! processes wait. And the likely reasons why the service has refused a request: its answer has none, and most can be
//! checked from here. They are sentences for people, and decide nothing.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat, geteuid};
use pidlockfile::{Pid, process};

use super::outcome::Failure;
use super::row::{printable, user_name};
use super::search::living;
use crate::client::PATIENCE;
use crate::client::broker::{Broker, Trouble, advice, node, path, wrong_device};
use ttylock::{DeviceName, Layout, Outcome, Pass, Request};

/// For giving back what the service may have taken for a request that it has not answered: its caller has waited long
/// enough.
const UNANSWERED_PATIENCE: Duration = Duration::from_millis(100);

impl Broker {
    /// Whether the service says that no process has a lock of the device. Its numbers of processes may be those of another
    /// container.
    pub(super) fn knows_no_holder(&mut self, device: &DeviceName) -> bool {
        let has_none = |holders| living(holders).iter().all(|row| row.living_holder().is_none());
        !self.is_direct() && has_none(self.holders(device)) && self.client.is_some()
    }

    /// Releases what the service may have taken for a request that it has not answered. Only for a process that surely
    /// did not have the device before, and not after a refusal: the process may have got the lock by another request.
    pub(super) fn release_unanswered(&mut self, request: &Request) {
        if self.may_have_taken {
            self.close_connection();
            self.be_patient(UNANSWERED_PATIENCE);
            let _ = self.unlock(request);
        }
        self.be_patient(PATIENCE);
    }

    pub(super) fn lock(&mut self, request: &Request) -> Result<Outcome, Trouble> {
        self.lock_within(request, Duration::ZERO)
    }

    /// Releases the lock of another user's process, for users that may do so.
    pub(super) fn force(&mut self, request: &Request) -> Result<Outcome, Trouble> {
        let outcome = self.ask(
            |client| client.force(&request.device, request.pid),
            |files| files.unlock_files(request),
        );
        let is_refused = matches!(outcome, Ok(Outcome::Denied)) && !self.is_direct();
        if is_refused && !geteuid().is_root() {
            self.reasons = vec![NO_FORCE.to_owned()];
        }
        outcome
    }

    /// Hands a lock over. Why it was not permitted is said of the receiver.
    pub(super) fn pass(&mut self, pass: &Pass) -> Result<Outcome, Trouble> {
        self.ask(
            |client| client.pass(&pass.device, pass.from, pass.to),
            |files| {
                let answer = files.table.pass(pass);
                files.outcome_of(answer)
            },
        )
    }

    /// Whether surely no service is there, which alone has a queue. Waits for it as long as for an answer.
    pub(super) fn lacks_service(&mut self) -> bool {
        self.is_direct() || self.client().is_err_and(|trouble| trouble.is_absence)
    }

    /// Whether somebody stands in the service's line for a device.
    pub(super) fn is_waited_for(&mut self, device: &DeviceName) -> bool {
        if self.is_direct() {
            return false;
        }
        let waiters = self.ask_service(|client| client.waiters(Some(device)));
        waiters.is_ok_and(|waiters| !waiters.is_empty())
    }

    /// Why a request was denied, as far as it is known here.
    pub(super) fn why_denied(&self, request: &Request) -> Vec<String> {
        if !self.reasons.is_empty() {
            self.reasons.clone()
        } else if self.is_direct() {
            no_such_process(request.pid).into_iter().collect()
        } else {
            supposed_reasons(request)
        }
    }
}

impl Trouble {
    /// Why nothing was done, and what to do about it.
    pub(super) fn failure(&self) -> Failure {
        let foremost = self.failures.get(self.foremost());
        let is_busy = foremost.is_some_and(|(_, error)| error.is_busy());
        let advice = foremost.and_then(|(address, error)| advice(address, error));
        let mut reasons: Vec<String> = self.reasons().into_iter().chain(advice).collect();
        if is_busy {
            return Failure::unreachable("the lock file service does not answer", reasons);
        }
        let direct =
            "--direct uses the lock files without the service, for users who may write them";
        reasons.push(direct.to_owned());
        Failure::unreachable("no lock file service can be reached", reasons)
    }

    /// For people.
    pub(super) fn reasons(&self) -> Vec<String> {
        self.failures.iter().map(|(address, error)| format!("{address}: {error}")).collect()
    }
}

/// The likeliest reasons, a printable line for each: several may have to be mended.
fn supposed_reasons(Request { device, pid }: &Request) -> Vec<String> {
    if let Some(reason) = wrong_device(device).or_else(|| no_such_process(*pid)) {
        return vec![reason];
    }
    let mut reasons: Vec<String> = foreign_process(*pid).into_iter().collect();
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
const NO_FORCE: &str = "only root and members of the service's administrator group may use --force, and the \
     service must be able to write the lock directory";

/// Why nothing is locked for a number that no process has.
fn no_such_process(pid: Pid) -> Option<String> {
    (!process::lives(pid)).then(|| format!("there is no process {pid}"))
}

fn foreign_process(pid: Pid) -> Option<String> {
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
fn no_room(lock_dir: &Path) -> Option<String> {
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

/// A process that may not open a port may not keep others from it either. The service has decided that about the process
/// that was named (`may_open` in lfpd). This asks the kernel about `lfp` itself, by its effective user, which is most often
/// the same.
fn closed_device(device: &DeviceName) -> Option<String> {
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
