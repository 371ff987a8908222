//! Ports that only the holders of their locks can open (`--exclusive`): a thread duplicates the holder's own
//! descriptor and asks the kernel to refuse the port to all others, until the lock ends. Nothing here opens a port.
//!
//! The service reports locks and their ends. It ends a mode itself, before it answers: by one call through the
//! descriptor of the holder. If that descriptor is gone, the thread looks for another process that has the port open.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use pidlockfile::Pid;
use pidlockfile::process::{Fate, ProcessIdentity, real_user};
use rustix::thread::{CapabilitySet, capabilities};
use ttylock::{
    Closing, DeviceName, Duplicate, Examined, Layout, NoDuplicate, Node, PortWatch, Request,
    ResolvedDevice, Table, Trigger, serial_devices,
};

use crate::log::{Log, Severity};
use crate::serve::authority::Authority;
use crate::serve::worker::{self, Bell, Work, locked};

/// The capabilities needed: to duplicate descriptors of other users' processes, and to see them and be notified of
/// openings.
const NEEDED: CapabilitySet = CapabilitySet::SYS_PTRACE.union(CapabilitySet::DAC_READ_SEARCH);

/// The locked ports, for the service.
#[derive(Clone, Debug)]
pub(in crate::serve) struct ExclusivePorts {
    /// The ports that stay open to all, by any of their names.
    exempt: Arc<[DeviceName]>,
    state: Arc<Mutex<PortsState>>,
    waker: Bell,
}

/// What the service and the thread share, by the real names of the ports.
#[derive(Debug, Default)]
struct PortsState {
    ports: BTreeMap<String, LockedPort>,
    is_ending: bool,
}

#[derive(Debug, Default)]
struct LockedPort {
    /// The process that has the lock.
    holder: Option<ProcessIdentity>,
    /// The mode that we have set.
    set: Option<SetMode>,
    /// The mode of an earlier lock, which is still to be ended.
    left: Option<Node>,
    /// The thread is to examine it at once.
    is_new: bool,
}

/// The exclusive mode, as we have set it.
#[derive(Clone, Copy, Debug)]
struct SetMode {
    node: Node,
    /// The number of the holder's descriptor.
    number: i32,
    /// The holder has the port open by the watched node, so its next opening is reported.
    is_watched: bool,
}

impl ExclusivePorts {
    /// Starts the thread. Ports may be locked already.
    ///
    /// # Errors
    /// The system's; or this process lacks a capability.
    pub(in crate::serve) fn start(
        exempt: &[DeviceName],
        layout: Layout,
        authority: Authority,
        log: Log,
    ) -> io::Result<Self> {
        if !capabilities(None)?.effective.contains(NEEDED) {
            let why = "--exclusive needs CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let exempt: Arc<[DeviceName]> = exempt.into();
        let ports = Self { exempt: exempt.clone(), state: Arc::default(), waker: Bell::new()? };
        let (watch, mut table) = (PortWatch::of(&layout.dev_dir)?, Table::new(layout.clone()));
        for (name, _) in serial_devices(&authority.dev_dir) {
            let Ok(device) = DeviceName::parse(name.as_bytes()) else { continue };
            if let (Ok(port), Some(who)) = (table.resolve(&device), table.holder_on_record(&device))
            {
                ports.port_locked(&port, &who);
            }
        }
        let state = Arc::clone(&ports.state);
        worker::start_worker(&ports.waker, "lfpd-exclusive", move || ExclusiveWork {
            exempt,
            state,
            watch,
            table: Table::new(layout),
            authority,
            log,
            has_warned: false,
        })?;
        Ok(ports)
    }

    /// A process has got the lock of a port.
    pub(in crate::serve) fn port_locked(&self, port: &ResolvedDevice, who: &ProcessIdentity) {
        if !applies_to(port, &self.exempt) {
            return;
        }
        let mut state = locked(&self.state);
        let port = state.ports.entry(port.real().to_owned()).or_default();
        if port.holder.as_ref() != Some(who) {
            port.release();
            port.holder = Some(who.clone());
            self.waker.ring();
        }
    }

    pub(in crate::serve) fn is_held_by(&self, pid: Pid) -> bool {
        locked(&self.state).ports.values().any(|port| port.is_held_by(pid))
    }

    /// A lock is about to be released, and the mode ends first. If the lock stays, the thread makes the port exclusive
    /// again at its next examination, in a second at most.
    pub(in crate::serve) fn before_release(&self, port: &str, pid: Pid) {
        let mut state = locked(&self.state);
        if let Some(port) = state.ports.get_mut(port).filter(|port| port.is_held_by(pid)) {
            port.end_at_once();
        }
    }

    /// The locks of these ports, with these holders, have ended.
    pub(in crate::serve) fn released(
        &self,
        mut has_ended: impl FnMut(&str, &ProcessIdentity) -> bool,
    ) {
        for (name, port) in &mut locked(&self.state).ports {
            if port.holder.as_ref().is_some_and(|who| has_ended(name, who)) {
                port.release();
                self.waker.ring();
            }
        }
    }

    /// An orderly end: afterwards nothing would end the modes when their locks end.
    pub(in crate::serve) fn end(&self) {
        let mut state = locked(&self.state);
        state.is_ending = true;
        state.ports.values_mut().for_each(LockedPort::end_at_once);
    }
}

/// Whether a port is made exclusive when it is locked, unless it is exempt by any of its names. Pseudo-terminals are
/// not: they keep the mode after the last close, and nothing would end it if the daemon were killed.
fn applies_to(port: &ResolvedDevice, exempt: &[DeviceName]) -> bool {
    let is_exempt = |name: &str| exempt.iter().any(|it| it.as_str() == name);
    let device = port.node.and_then(|node| node.device);
    device.is_some_and(|device| !device.is_pseudo_terminal()) && !port.every_name().any(is_exempt)
}

impl LockedPort {
    fn is_held_by(&self, pid: Pid) -> bool {
        self.holder.as_ref().is_some_and(|who| who.pid == pid)
    }

    /// Ends the mode through the descriptor through which it was set, if that still exists.
    fn end_at_once(&mut self) {
        let (Some(who), Some(SetMode { node, number, .. })) = (&self.holder, self.set) else {
            return;
        };
        let duplicate =
            Duplicate::again(who.pid, number, &node, Closing::Apart(real_user(who.pid)));
        if let Ok(Some(duplicate)) = duplicate {
            if duplicate.end_exclusive().is_ok() {
                self.set = None;
            }
        }
    }

    /// The mode is still to be ended. The service and the thread may both see the end of the same lock: the second one finds
    /// no mode that is set, and does not forget the one that is left.
    fn leave_mode(&mut self) {
        self.left = self.set.take().map(|set| set.node).or(self.left);
    }

    fn release(&mut self) {
        self.end_at_once();
        self.leave_mode();
        self.holder = None;
        self.is_new = true;
    }
}

/// The thread.
struct ExclusiveWork {
    exempt: Arc<[DeviceName]>,
    state: Arc<Mutex<PortsState>>,
    watch: PortWatch,
    table: Table,
    authority: Authority,
    log: Log,
    has_warned: bool,
}

impl Work for ExclusiveWork {
    fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.watch.bell()
    }

    fn work(&mut self) -> Option<Instant> {
        let now = Instant::now();
        self.watch_ports(now);
        self.watch.read_events(now);
        if let Some((port, trigger)) = self.watch.due(now) {
            let result = self.examine(&port, trigger);
            self.watch.examined(&port, result, now, Instant::now());
        }
        self.watch.next_moment()
    }
}

impl ExclusiveWork {
    /// Watches the ports before they are examined, so that no opening is missed.
    fn watch_ports(&mut self, now: Instant) {
        let mut state = locked(&self.state);
        state.ports.retain(|_, port| port.holder.is_some() || port.left.is_some());
        let all: BTreeSet<String> = state.ports.keys().cloned().collect();
        let is_new = |port: &mut LockedPort| std::mem::take(&mut port.is_new);
        let new = state.ports.iter_mut().filter_map(|(name, port)| is_new(port).then_some(name));
        let new: Vec<String> = new.cloned().collect();
        drop(state);
        self.watch.keep_only(|port| all.contains(port));
        for port in new {
            match self.watch.add(&port, now) {
                Ok(()) => {}
                // The port comes back with another node.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    self.warn(&port, &format!("its openings cannot be watched: {error}"));
                }
            }
        }
    }

    fn examine(&mut self, port: &str, trigger: Trigger) -> Examined {
        self.end_left(port);
        let held =
            locked(&self.state).ports.get(port).and_then(|it| Some((it.holder.clone()?, it.set)));
        let Some((who, set)) = held else { return Examined::Unchanged };
        if !self.is_on_record(port, &who) {
            // Anybody who may write the lock directory can remove a lock file without a word.
            if let Some(port) = locked(&self.state).ports.get_mut(port) {
                port.leave_mode();
            }
            self.end_left(port);
            return Examined::Unchanged;
        }
        if trigger == Trigger::Timer && set.is_some_and(|set| set.is_watched) {
            return Examined::Unchanged;
        }
        let Some(node) = self.node_for(port, &who) else { return Examined::Unchanged };
        match Duplicate::of(who.pid, &node, Closing::Apart(real_user(who.pid))) {
            // Asked after the search, which had a handle of the process: so the answer is about that process.
            Ok(duplicate) if self.table.machine().fate(&who) == Fate::Same => {
                return self.set(port, &who, node, &duplicate);
            }
            Ok(_) | Err(NoDuplicate::NotOpen) => self.is_not_open(port, &who),
            Err(NoDuplicate::Forbidden) => {
                self.warn(port, &"the holder's descriptors cannot be seen");
            }
            Err(NoDuplicate::System(_)) => {}
        }
        Examined::Unchanged
    }

    /// Whether the process has the lock of the port, by our own record.
    fn is_on_record(&mut self, port: &str, who: &ProcessIdentity) -> bool {
        let Ok(device) = DeviceName::parse(port.as_bytes()) else { return false };
        self.table.holder_on_record(&device).as_ref() == Some(who) || {
            // The lock directory may be another one by now.
            self.table.reopen();
            self.table.holder_on_record(&device).as_ref() == Some(who)
        }
    }

    /// The present node of a port, if the process may open it.
    fn node_for(&mut self, port: &str, who: &ProcessIdentity) -> Option<Node> {
        let device = DeviceName::parse(port.as_bytes()).ok()?;
        let resolved =
            self.table.resolve(&device).ok().filter(|it| applies_to(it, &self.exempt))?;
        let node = resolved.node?;
        let request = Request { device, pid: who.pid };
        let granted = self.authority.grant_opener(request, resolved);
        granted.ok().map(|_| node)
    }

    /// The holder has the port open.
    fn set(
        &mut self,
        port: &str,
        who: &ProcessIdentity,
        node: Node,
        duplicate: &Duplicate,
    ) -> Examined {
        let mut state = locked(&self.state);
        let is_ending = state.is_ending;
        // The lock may have ended meanwhile.
        let port_of = state.ports.get_mut(port).filter(|port| port.left.is_none() && !is_ending);
        let Some(held) = port_of.filter(|it| it.holder.as_ref() == Some(who)) else {
            return Examined::Unchanged;
        };
        let made = duplicate.make_exclusive();
        let is_ours = held.set.is_some() || made.as_ref().is_ok_and(|made| *made);
        let (number, is_watched) = (duplicate.number(), duplicate.is_by(&node));
        held.set = is_ours.then_some(SetMode { node, number, is_watched });
        drop(state);
        match made {
            Ok(true) => {
                self.log.record(
                    Severity::Info,
                    &format_args!("{port} is exclusive for pid {}", who.pid),
                );
                Examined::Changed
            }
            Ok(false) => Examined::Unchanged,
            Err(error) => {
                self.warn(port, &error);
                Examined::Unchanged
            }
        }
    }

    /// The holder may open the port again by a node that is not watched. Until then, a process that has inherited its
    /// descriptor may have the mode.
    fn is_not_open(&self, port: &str, who: &ProcessIdentity) {
        let mut state = locked(&self.state);
        let port = state.ports.get_mut(port).filter(|it| it.holder.as_ref() == Some(who));
        if let Some(set) = port.and_then(|port| port.set.as_mut()) {
            set.is_watched = false;
        }
    }

    /// Ends the mode of an earlier lock, through any process that has the port open. If there is none, the last close
    /// has ended it.
    fn end_left(&self, port: &str) {
        let Some(node) = locked(&self.state).ports.get(port).and_then(|port| port.left) else {
            return;
        };
        let any = Duplicate::of_any(&node, |_| true, |pid| Closing::Apart(real_user(pid)));
        let is_over = match any {
            // An error means that the device is gone, and its mode with it.
            Ok(duplicate) => {
                let _ = duplicate.end_exclusive();
                true
            }
            Err(NoDuplicate::NotOpen) => true,
            Err(NoDuplicate::Forbidden | NoDuplicate::System(_)) => false,
        };
        if let Some(port) = locked(&self.state).ports.get_mut(port).filter(|_| is_over) {
            port.left = None;
        }
    }

    /// Reported once, because others may cause it as often as they like.
    fn warn(&mut self, port: &str, why: &dyn Display) {
        let has_warned = std::mem::replace(&mut self.has_warned, true);
        let severity = if has_warned { Severity::Debug } else { Severity::Warning };
        self.log.record(severity, &format_args!("{port} is locked, but not exclusive: {why}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_is_seen_twice_leaves_the_mode_to_be_ended() {
        let node = Node::of(&std::fs::metadata("/dev/null").unwrap());
        let set = Some(SetMode { node, number: 3, is_watched: true });
        let mut port = LockedPort { set, ..LockedPort::default() };
        port.release();
        port.leave_mode();
        assert!(port.set.is_none() && port.left.is_some());
    }
}
