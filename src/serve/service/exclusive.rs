//! Reports locks and their ends to the thread of `--exclusive`.

use std::io;

use pidlockfile::Pid;
use ttylock::{Request, ResolvedDevice};

use super::Service;
use crate::serve::ports::{Exclusive, ExclusivePorts};

impl Service {
    /// Which ports a daemon is to make exclusive.
    pub(crate) fn make_exclusive(&mut self, wanted: Exclusive) {
        self.wants_exclusive = wanted;
    }

    /// From now on, ports are made exclusive when they are locked. Called before the first client is served.
    ///
    /// # Errors
    /// The system's, also without the capabilities for that.
    pub(in crate::serve) fn begin_exclusive(&mut self) -> io::Result<()> {
        if self.makes_exclusive() {
            let (layout, authority) = (self.layout().clone(), self.authority.clone());
            let (wanted, log) = (&self.wants_exclusive, self.log.another());
            self.exclusive = Some(ExclusivePorts::start(wanted, layout, authority, log)?);
        }
        Ok(())
    }

    /// Whether ports are made exclusive.
    pub(in crate::serve) fn makes_exclusive(&self) -> bool {
        self.wants_exclusive != Exclusive::Never
    }

    /// The device, kept until it is locked, if it may become exclusive.
    pub(super) fn may_become_exclusive(&self, port: &ResolvedDevice) -> Option<ResolvedDevice> {
        let ports = self.exclusive.as_ref()?;
        ports.are_possible_for(port).then(|| port.clone())
    }

    /// A process has got the lock of a port.
    pub(super) fn locked_for(&mut self, request: &Request, port: Option<&ResolvedDevice>) {
        if let Some((ports, port)) = self.exclusive.as_ref().zip(port) {
            ports.port_locked(port, &self.table.machine().identify(request.pid));
        }
    }

    /// A lock is about to be released.
    pub(super) fn before_release(&mut self, request: &Request) {
        let Some(ports) = self.exclusive.as_ref().filter(|it| it.is_held_by(request.pid)) else {
            return;
        };
        if let Ok(port) = self.table.resolve(&request.device) {
            ports.before_release(port.real(), request.pid);
        }
    }

    /// The lock of a port has ended.
    pub(super) fn lock_has_ended(&mut self, port: &str) {
        if let Some(ports) = &self.exclusive {
            ports.port_released(port);
        }
    }

    /// A process has ended, and its locks with it.
    pub(super) fn locks_have_ended(&mut self, pid: Pid) {
        let Some(ports) = self.exclusive.as_ref().filter(|it| it.is_held_by(pid)) else { return };
        let table = std::cell::RefCell::new(&mut self.table);
        ports.holder_gone(|who| who.pid == pid && table.borrow_mut().machine().fate(who).is_over());
    }

    /// An orderly end.
    pub(in crate::serve) fn end_all_exclusive(&mut self) {
        if let Some(ports) = &self.exclusive {
            ports.end();
        }
    }
}
