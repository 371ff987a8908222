//! Work about open ports, beside the service: which processes have a port open, and what follows from that. Examining
//! processes takes time, so this work has threads of its own, and no client waits for it. By `PortThreads` the service
//! reports each lock and its end to these threads.
//!
//! `worker` is such a thread. `exclusive` is the work of `--exclusive`, and `open_watch` that of `--watch-opens`,
//! which keeps what it has seen in `openers`.

mod events;
mod exclusive;
mod open_watch;
mod openers;

use pidlockfile::Pid;
use pidlockfile::process::{ProcessIdentity, lives};
use ttylock::{Holder, Request, ResolvedDevice, Table, opener};

pub(super) use exclusive::ExclusivePorts;
pub(super) use open_watch::OpenPorts;
pub(super) use openers::OpenerTask;

/// The threads that follow the locks of ports.
#[derive(Debug, Default)]
pub(super) struct PortThreads {
    pub(super) opens: Option<OpenPorts>,
    pub(super) exclusive: Option<ExclusivePorts>,
}

impl PortThreads {
    /// A process has got the lock of a port.
    pub(super) fn locked(&self, port: &ResolvedDevice, who: impl FnOnce() -> ProcessIdentity) {
        if let Some(exclusive) = &self.exclusive {
            exclusive.port_locked(port, &who());
        }
    }

    /// A lock is about to be released.
    pub(super) fn before_release(&self, request: &Request, table: &mut Table) {
        let Some(ports) = self.exclusive.as_ref().filter(|it| it.is_held_by(request.pid)) else {
            return;
        };
        if let Ok(port) = table.resolve(&request.device) {
            ports.before_release(port.real(), request.pid);
        }
    }

    /// The lock of a port has been released or passed on.
    pub(super) fn released(&self, real: &str, pid: Pid) {
        if let Some(exclusive) = &self.exclusive {
            exclusive.released(|port, _| port == real);
        }
        if let Some(opens) = &self.opens {
            opens.change(|openers| openers.released(real, pid));
        }
    }

    /// A process has ended, and its locks with it.
    pub(super) fn process_gone(&self, pid: Pid, table: &mut Table) {
        let mut is_gone =
            |who: &ProcessIdentity| who.pid == pid && table.machine().fate(who).is_over();
        if let Some(exclusive) = &self.exclusive {
            exclusive.released(|_, who| is_gone(who));
        }
        if let Some(opens) = &self.opens {
            opens.change(|openers| openers.gone(&mut is_gone));
        }
    }

    /// Adds the processes that were seen to open a port, if they are not listed yet.
    pub(super) fn add_openers(&self, holders: &mut Vec<Holder>, port: Option<&str>) {
        let Some(ports) = &self.opens else { return };
        for (port, who) in ports.openers().of(port) {
            let pid = who.pid;
            let is_listed = holders.iter().any(|it| it.device == port && it.pid == Some(pid));
            if !is_listed && lives(pid) {
                holders.push(opener(port, pid));
            }
        }
    }

    /// The service ends in an orderly way.
    pub(super) fn end(&self) {
        if let Some(exclusive) = &self.exclusive {
            exclusive.end();
        }
    }
}
