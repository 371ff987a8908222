//! Decides which requests are allowed, from the peer, the process that it names, and the device.
//!
//! This is the only place that decides it. For a taker, the result is a `Granted`; for a releaser, the number
//! of its process here. No other code can make a `Granted`, and only that can be locked, waited for or passed.

use std::cell::LazyCell;
use std::path::PathBuf;

use pidlockfile::{Pid, process};
use ttylock::{Answer, Applicant, Checked, Event, Request, ResolvedDevice, Stop, Table, Weight};

use super::admission::User;
use crate::peer::{self, Asker, Ids, LockRight, Peer, ProcessStatus, Purpose, Refusal, Rule};

/// What an administrator has decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Authority {
    /// Which processes a peer may name.
    pub rule: Rule,
    /// Which devices a process may hold.
    pub access: LockRight,
    /// Where device nodes are.
    pub dev_dir: PathBuf,
    /// The group with members that, like root, may release any lock.
    pub force_group: Option<u32>,
}

/// The right of one process to one device, for one attempt at the very node that was examined. A later attempt needs a new
/// one.
#[derive(Debug)]
pub(super) struct Granted {
    request: Request,
    device: ResolvedDevice,
    /// The process, observed since before its rights were checked.
    applicant: Option<Applicant>,
    /// There was no such process at that time.
    pub(super) is_for_missing: bool,
}

impl Granted {
    /// The node that was examined.
    pub(super) fn device(&self) -> &ResolvedDevice {
        &self.device
    }

    pub(super) fn into_parts(self) -> (Request, Checked) {
        (self.request, Checked { device: self.device, applicant: self.applicant })
    }
}

/// The answer to a client without the right, with a line for the log that says why.
pub(super) fn denied(why: Option<String>) -> Answer {
    let events = why.map(|text| Event::new(Weight::Notice, text)).into_iter().collect();
    Answer { result: Err(Stop::Denied), events }
}

fn refused(Request { device, pid }: &Request, why: Refusal) -> Answer {
    let device = device.as_str();
    denied(Some(format!("refused to name process {pid} for {device}: {why}")))
}

/// The users of a process. Where its status is hidden, its owner may be seen nevertheless; also of one that has ended.
fn users(pid: Pid, status: Option<&ProcessStatus>) -> Option<Ids> {
    // A process that is gone has no status, which was read already.
    let seen = || process::lives(pid).then(|| process::users(pid)).flatten();
    status.and_then(ProcessStatus::users).or_else(seen)
}

impl Authority {
    /// The process that a peer means by a number, as it is numbered here.
    pub(super) fn meant(&self, peer: &Peer, request: &Request) -> Result<Pid, Answer> {
        peer.meant(request.pid, self.rule).map_err(|why| refused(request, why))
    }

    /// The process that a peer means by a number, if the peer may release the locks of that process.
    pub(super) fn grant_release(
        &self,
        peer: &Peer,
        request: &Request,
        table: &Table,
    ) -> Result<Pid, Answer> {
        let pid = self.meant(peer, request)?;
        let status = || match table.observed(pid) {
            Some(process) => process.status().and_then(ProcessStatus::of_file),
            None => ProcessStatus::of(pid),
        };
        let (users, alive) = (|| users(pid, status().as_ref()), || process::lives(pid));
        let named = peer.may_name(users, alive, Purpose::Release, self.rule);
        named.map(|()| pid).map_err(|why| refused(&Request { pid, ..request.clone() }, why))
    }

    /// The process that a peer means by a number, if the peer may release any lock.
    pub(super) fn grant_force(&self, peer: &Peer, request: &Request) -> Result<Pid, Answer> {
        let pid = self.meant(peer, request)?;
        let refusal = || refused(&Request { pid, ..request.clone() }, Refusal::NoForce);
        self.may_force(peer).then_some(pid).ok_or_else(refusal)
    }

    /// Whether a peer may release any lock.
    pub(super) fn may_force(&self, peer: &Peer) -> bool {
        peer.is_root() || peer.is_member
    }

    /// The right to a device of a process by its number here. Each attempt asks again: by then, the number may be that of
    /// another process, and the name may lead to another device.
    pub(super) fn grant_taking(
        &self,
        peer: &Peer,
        request: Request,
        table: &mut Table,
    ) -> Result<Granted, Answer> {
        let pid = request.pid;
        let applicant = table.observe(pid);
        // Its user and its groups come from one reading: they are those of one process.
        let status = LazyCell::new(|| applicant.status().and_then(ProcessStatus::of_file));
        // A process with a status has not ended.
        let alive = || status.is_some() || process::lives(pid);
        peer.may_name(|| users(pid, status.as_ref()), alive, Purpose::Take, self.rule)
            .map_err(|why| refused(&request, why))?;
        let device = table.resolve(&request.device)?;
        let asker = Asker::of(peer.uid, peer.gid, self.rule);
        match self.may_hold(pid, asker, &device, || LazyCell::force(&status).as_ref()) {
            // Root may do so for any process, also for a hidden one.
            Err(Refusal::RightsUnknown) if peer.is_root() => {}
            may_hold => may_hold.map_err(|why| refused(&request, why))?,
        }
        let is_for_missing = !alive();
        let user = LazyCell::force(&status)
            .as_ref()
            .and_then(ProcessStatus::users)
            .map(|users| users.real);
        let applicant = Some(applicant.with_user(user));
        Ok(Granted { request, device, applicant, is_for_missing })
    }

    /// The right of a process to hold a device that it has open. Nobody has named it: its effective user opened the port.
    pub(super) fn grant_opener(
        &self,
        request: Request,
        device: ResolvedDevice,
    ) -> Result<Granted, Refusal> {
        self.grant_for(Asker::Trusted, request, device)
    }

    /// The right of a process to keep a device that a user has locked for its number over TCP, before it started.
    pub(super) fn grant_newcomer(
        &self,
        user: User,
        request: Request,
        device: ResolvedDevice,
    ) -> Result<Granted, Refusal> {
        self.grant_for(Asker::of(user, None, self.rule), request, device)
    }

    fn grant_for(
        &self,
        asker: Asker,
        request: Request,
        device: ResolvedDevice,
    ) -> Result<Granted, Refusal> {
        let status = LazyCell::new(|| ProcessStatus::of(request.pid));
        self.may_hold(request.pid, asker, &device, || LazyCell::force(&status).as_ref())?;
        Ok(Granted { request, device, applicant: None, is_for_missing: false })
    }

    /// Whether a process may hold a device that was examined. For a device that is missing, every port with one of its lock
    /// files must be permitted.
    fn may_hold<'s>(
        &self,
        pid: Pid,
        asker: Asker,
        device: &ResolvedDevice,
        status: impl FnOnce() -> Option<&'s ProcessStatus>,
    ) -> Result<(), Refusal> {
        let mut ports = std::iter::once(device).chain(&device.namesakes);
        if ports.clone().any(ResolvedDevice::is_no_port) {
            return Err(Refusal::NoPort);
        }
        match self.access {
            LockRight::Anyone => Ok(()),
            LockRight::OfDevice => {
                let status = status();
                ports.try_for_each(|port| {
                    peer::may_open(pid, status, asker, &self.dev_dir.join(port.real()), port)
                })
            }
        }
    }
}
