//! Who may ask for what: joins the peer, the process that it names and the device.

use std::cell::LazyCell;
use std::path::PathBuf;

use pidlockfile::{Pid, process};
use ttylock::device::name::DeviceName;
use ttylock::device::node::{ResolvedDevice, follow};
use ttylock::lock::{Pass, Request, who};

use crate::peer::{self, Access, Peer, Processes, Purpose, Refusal, Rule, Status};
use crate::protocol::session::Demand;

/// What an administrator has decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// Which processes a peer may name.
    pub rule: Rule,
    /// Which devices a process may hold.
    pub access: Access,
    /// Where device nodes are.
    pub dev_dir: PathBuf,
    /// Whose members may release anybody's locks, besides root.
    pub force_group: Option<u32>,
}

/// Why a demand is refused: for which process.
pub(super) type Refused = (Pid, Refusal);

impl Authority {
    /// The demand with its processes as they are numbered here, if the peer may make it; and the device of
    /// one that takes it, as it was looked at.
    pub(super) fn grant(
        &self,
        processes: &mut Processes,
        peer: &Peer,
        demand: Demand,
    ) -> Result<(Demand, Option<ResolvedDevice>), Refused> {
        let granted = match demand {
            Demand::Lock(request) => {
                let (request, device) = self.grant_taking(processes, peer, request)?;
                return Ok((Demand::Lock(request), device));
            }
            Demand::Wait(request, seconds) => {
                Demand::Wait(self.grant_taking(processes, peer, request)?.0, seconds)
            }
            Demand::Unlock(Request { device, pid }) => {
                let pid = self.meant(peer, pid)?;
                self.named(peer, pid, || process::owner(pid), Purpose::Release)?;
                Demand::Unlock(Request { device, pid })
            }
            Demand::Force(Request { device, pid }) => {
                let pid = self.meant(peer, pid)?;
                if !peer.is_root() && !self.force_group.is_some_and(|group| peer.is_in(group)) {
                    return Err((pid, Refusal::NoForce));
                }
                Demand::Force(Request { device, pid })
            }
            Demand::Pass(Pass { device, from, to }) => {
                let from = self.meant(peer, from)?;
                self.named(peer, from, || process::owner(from), Purpose::Release)?;
                let (Request { device, pid }, _) =
                    self.grant_taking(processes, peer, Request { device, pid: to })?;
                Demand::Pass(Pass { device, from, to: pid })
            }
        };
        Ok((granted, None))
    }

    fn grant_taking(
        &self,
        processes: &mut Processes,
        peer: &Peer,
        request: Request,
    ) -> Result<(Request, Option<ResolvedDevice>), Refused> {
        let Request { device, pid } = request;
        let request = Request { pid: self.meant(peer, pid)?, device };
        let device = self.still_granted(processes, peer, &request)?;
        Ok((request, device))
    }

    /// Whether a request that was granted earlier may be served now: by then its number may be
    /// another process's. Gives the device as it was looked at.
    pub(super) fn still_granted(
        &self,
        processes: &mut Processes,
        peer: &Peer,
        request: &Request,
    ) -> Result<Option<ResolvedDevice>, Refused> {
        let pid = request.pid;
        // Whose it is and what it may open are told of one process at one time.
        let status = LazyCell::new(|| processes.status(pid));
        // Others may see whose it is, and no more.
        let owner = || status.as_ref().and_then(Status::owner).or_else(|| process::owner(pid));
        self.named(peer, pid, owner, Purpose::Take)?;
        // What leads nowhere is refused where the device is resolved for the lock.
        let Ok(device) = follow(&self.dev_dir, &request.device) else { return Ok(None) };
        if peer::is_no_port(&device) {
            return Err((pid, Refusal::NoPort));
        }
        match self.access {
            Access::Anyone => {}
            Access::OfDevice => {
                self.may_open(pid, status.as_ref(), &device).map_err(|refusal| (pid, refusal))?;
            }
        }
        Ok(Some(device))
    }

    fn meant(&self, peer: &Peer, pid: Pid) -> Result<Pid, Refused> {
        peer.meant(pid, self.rule).map_err(|refusal| (pid, refusal))
    }

    fn named(
        &self,
        peer: &Peer,
        pid: Pid,
        owner: impl FnOnce() -> Option<u32>,
        purpose: Purpose,
    ) -> Result<(), Refused> {
        peer.may_name(pid, owner, purpose, self.rule).map_err(|refusal| (pid, refusal))
    }

    /// Whether a process may hold a device of its own accord.
    pub(super) fn may_hold(&self, processes: &mut Processes, request: &Request) -> bool {
        let Ok(device) = follow(&self.dev_dir, &request.device) else { return true };
        let pid = request.pid;
        let mut may_open = || {
            self.access == Access::Anyone
                || self.may_open(pid, processes.status(pid).as_ref(), &device).is_ok()
        };
        !peer::is_no_port(&device) && may_open()
    }

    /// Whether a process has a port open; None where its descriptors are hidden from us.
    pub(super) fn has_open(&self, pid: Pid, port: &str) -> Option<bool> {
        let device = DeviceName::parse(port.as_bytes()).ok()?;
        let node = follow(&self.dev_dir, &device).ok()?.node?;
        who::has_open(pid, &node)
    }

    fn may_open(
        &self,
        pid: Pid,
        process: Option<&Status>,
        device: &ResolvedDevice,
    ) -> Result<(), Refusal> {
        peer::may_open(pid, process, &self.dev_dir.join(device.real()), device)
    }
}
