//! Ports that only the holders of their locks can open (`--exclusive`): duplicates the holder's own descriptor, and
//! asks the kernel to refuse the port to all others until the lock ends.

use std::io;
use std::time::Instant;

use pidlockfile::Pid;
use pidlockfile::process::{Fate, ProcessIdentity, owner};
use ttylock::{
    Closing, DeviceName, Duplicate, Found, Holder, NoDuplicate, Node, Request, ResolvedDevice,
    Search, serial_devices,
};

use super::Service;
use crate::limits::EXCLUSIVE_LOOK_MOST;
use crate::log::Severity;
use crate::serve::exclusive::{Exclusive, Ports, Question, Set, Why};
use crate::serve::opens::{Begun, Looker};

/// The state of `--exclusive` in the service.
#[derive(Debug, Default)]
pub(super) struct Exclusion {
    wanted: Exclusive,
    pub(super) ports: Ports,
    /// The port that was checked last.
    checked: String,
    /// An obstacle was reported.
    is_told: bool,
}

/// The examination of one process, for a port.
#[derive(Debug)]
pub(in crate::serve) struct PortSearch {
    port: String,
    search: Search,
    why: Why,
}

impl Service {
    /// From now on, ports are made exclusive when they are locked.
    pub(crate) fn make_exclusive(&mut self, wanted: Exclusive) {
        self.exclusion.wanted = wanted;
    }

    /// Ports may be locked already. If such a port is exclusive, an earlier service or a program has set the mode, and
    /// it stays until the port's last close.
    pub(in crate::serve) fn begin_exclusive(&mut self, now: Instant) {
        if self.exclusion.wanted == Exclusive::Never {
            return;
        }
        for (name, _) in serial_devices(&self.authority.dev_dir.clone()) {
            let resolved = self.resolve_port(&name);
            let device = DeviceName::parse(name.as_bytes());
            let Some((resolved, device)) = resolved.zip(device.ok()) else { continue };
            if let Some(who) = self.table.holder_on_record(&device) {
                self.locked_by(&resolved, &who, now);
            }
        }
    }

    /// A process has got the lock of a port.
    pub(super) fn locked_for(&mut self, request: &Request, port: Option<&ResolvedDevice>) {
        if let Some(port) = port {
            let who = self.table.identify(request.pid);
            self.locked_by(port, &who, Instant::now());
        }
    }

    fn locked_by(&mut self, port: &ResolvedDevice, who: &ProcessIdentity, now: Instant) {
        let Exclusion { wanted, ports, .. } = &mut self.exclusion;
        let is_known = ports.holder(port.real()) == Some(who);
        if wanted.applies_to(port) && !is_known {
            ports.locked(port.real(), who, now);
        }
    }

    /// The device, kept until it is locked, if it may become exclusive.
    pub(super) fn may_become_exclusive(&self, port: &ResolvedDevice) -> Option<ResolvedDevice> {
        self.exclusion.wanted.applies_to(port).then(|| port.clone())
    }

    /// A lock is about to be released, and the mode ends first. If the lock stays, the port is made exclusive again.
    pub(super) fn before_release(&mut self, request: &Request) {
        for port in self.exclusion.ports.of(request.pid) {
            let asked = self.table.resolve(&request.device);
            if asked.is_ok_and(|asked| asked.real() == port) {
                self.end_at_once(&port);
                self.exclusion.ports.happened(&port, Instant::now());
            }
        }
    }

    /// The lock of a port has ended.
    pub(super) fn lock_has_ended(&mut self, port: &str) {
        if !self.exclusion.ports.is_held(port) {
            return;
        }
        self.end_at_once(port);
        if let Some((who, Some(set))) = self.exclusion.ports.ended(port) {
            let left = (who, set);
            self.exclusion.ports.leave(port, left, Instant::now());
        }
    }

    /// A process has ended, and its locks with it.
    pub(super) fn locks_have_ended(&mut self, pid: Pid) {
        for port in self.exclusion.ports.of(pid) {
            let who = self.exclusion.ports.holder(&port).cloned();
            if who.is_some_and(|who| self.table.fate(&who).is_over()) {
                self.lock_has_ended(&port);
            }
        }
    }

    /// Ends the mode of a port through the descriptor through which it was set, if that still exists.
    fn end_at_once(&mut self, port: &str) {
        let ports = &self.exclusion.ports;
        let Some((pid, set)) = ports.holder(port).map(|who| who.pid).zip(ports.set_of(port)) else {
            return;
        };
        let closing = Closing::Apart(owner(pid));
        if !closing.has_room() {
            return;
        }
        if let Ok(Some(duplicate)) = Duplicate::again(pid, set.number, &set.node, closing) {
            if self.end_mode(port, &duplicate) {
                self.exclusion.ports.note(port, None);
            }
        }
    }

    /// Returns whether the mode is ended.
    fn end_mode(&mut self, port: &str, duplicate: &Duplicate) -> bool {
        match duplicate.end_exclusive() {
            Ok(()) => {
                self.tell(Severity::Debug, format_args!("{port} is no longer exclusive"));
                true
            }
            Err(error) => {
                self.hindered(port, &error.to_string());
                // The device is gone, and its mode with it.
                false
            }
        }
    }

    /// The holder has the port open.
    fn has_opened(&mut self, port: &str, who: &ProcessIdentity, node: Node, duplicate: &Duplicate) {
        let is_ours = self.exclusion.ports.holder(port) == Some(who);
        if !is_ours || self.exclusion.ports.is_left(port) {
            // The mode of an earlier lock ends first.
            return self.exclusion.ports.happened(port, Instant::now());
        }
        let before = self.exclusion.ports.set_of(port);
        let ours = Set { number: duplicate.number(), node };
        let set = match (before, duplicate.is_exclusive()) {
            (_, Err(error)) => return self.hindered(port, &error.to_string()),
            (Some(_), Ok(true)) => Some(ours),
            // The program has set it itself.
            (None, Ok(true)) => None,
            (_, Ok(false)) => match duplicate.set_exclusive() {
                Ok(()) => {
                    let pid = who.pid;
                    self.tell(Severity::Info, format_args!("{port} is exclusive for pid {pid}"));
                    Some(ours)
                }
                Err(error) => {
                    self.hindered(port, &error.to_string());
                    None
                }
            },
        };
        self.exclusion.ports.note(port, set);
    }

    /// Reported once, because others may cause it as often as they like.
    fn hindered(&mut self, port: &str, why: &str) {
        let is_told = std::mem::replace(&mut self.exclusion.is_told, true);
        let severity = if is_told { Severity::Debug } else { Severity::Warning };
        self.tell(severity, format_args!("{port} is locked, but not exclusive: {why}"));
    }

    /// Checks whether one of the exclusive ports is still locked.
    pub(in crate::serve) fn check_exclusive(&mut self) {
        let Some(port) = self.exclusion.ports.next_exclusive(&self.exclusion.checked) else {
            return;
        };
        if !self.is_still_locked(&port) {
            self.lock_has_ended(&port);
        }
        self.exclusion.checked = port;
    }

    fn is_still_locked(&mut self, port: &str) -> bool {
        let device = DeviceName::parse(port.as_bytes()).ok();
        let who = device.and_then(|device| self.table.holder_on_record(&device));
        who.is_some() && who.as_ref() == self.exclusion.ports.holder(port)
    }

    /// An orderly end: afterwards nothing would end the modes when their locks end.
    pub(in crate::serve) fn end_all_exclusive(&mut self) {
        for port in self.exclusion.ports.all_exclusive() {
            self.end_at_once(&port);
        }
    }

    /// The exclusive ports.
    pub(in crate::serve) fn exclusive_ports(&mut self) -> &mut Ports {
        &mut self.exclusion.ports
    }

    /// Whether ports are made exclusive.
    pub(in crate::serve) fn makes_exclusive(&self) -> bool {
        self.exclusion.wanted != Exclusive::Never
    }

    /// Openings of this port cannot be watched.
    pub(in crate::serve) fn is_not_watched(&mut self, port: &str, why: &io::Error) {
        self.hindered(port, &format!("its openings cannot be watched: {why}"));
    }

    /// The processes that have a port open after its lock has ended.
    pub(in crate::serve) fn surveyed_exclusive(&mut self, holders: &[Holder], now: Instant) {
        let pids = holders.iter().filter(|it| it.scheme.file().is_none()).filter_map(|it| it.pid);
        let nobodys = self.exclusion.ports.was_surveyed(pids.collect(), now);
        if let Some(port) = nobodys {
            // The last close has ended the mode.
            self.exclusion.ports.forget_left(&port);
        }
    }

    /// The present node of a port, if that process still has its lock and may open it.
    fn port_of(&mut self, port: &str, who: &ProcessIdentity) -> Option<Node> {
        if !self.is_still_locked(port) {
            self.lock_has_ended(port);
            return None;
        }
        let resolved = self.resolve_port(port).filter(|it| self.exclusion.wanted.applies_to(it))?;
        let node = resolved.node?;
        let device = DeviceName::parse(port.as_bytes()).ok()?;
        let request = Request { device, pid: who.pid };
        let granted = self.authority.grant_opener(&mut self.processes, request, resolved);
        granted.ok().map(|_| node)
    }
}

impl Looker<Question, PortSearch> for Service {
    fn begin(&mut self) -> Begun<Question, PortSearch> {
        let now = Instant::now();
        let Some(question) = self.exclusion.ports.next(now) else { return Begun::Nothing };
        let node = match &question.why {
            Why::Holds(who) => self.port_of(&question.port, who),
            Why::Ended(set) => Some(set.node),
        };
        let Some(node) = node else { return Begun::Told(question, None) };
        let closing = Closing::Apart(owner(question.pid));
        if !closing.has_room() {
            let later = now.checked_add(EXCLUSIVE_LOOK_MOST).unwrap_or(now);
            self.exclusion.ports.put_back(&question, later);
            return Begun::Nothing;
        }
        match Search::begin(question.pid, &node, closing) {
            Ok(search) => {
                // Asked while the search has a handle of the process, so the answer is about that process.
                if let Why::Holds(who) = &question.why {
                    if self.table.fate(who) != Fate::Same {
                        return Begun::Told(question, Some(false));
                    }
                }
                let (port, why) = (question.port.clone(), question.why.clone());
                Begun::Look(question, PortSearch { port, search, why })
            }
            Err(why) => self.not_found(question, &why),
        }
    }

    fn step(&mut self, look: &mut PortSearch) -> (usize, Option<Option<bool>>) {
        let (looks, found) = look.search.step();
        let answer = match found {
            Found::More => None,
            Found::Told(Ok(duplicate)) => {
                match &look.why {
                    Why::Holds(who) => {
                        self.has_opened(&look.port, who, look.search.node(), &duplicate);
                    }
                    Why::Ended(_) => {
                        self.end_mode(&look.port, &duplicate);
                        self.exclusion.ports.forget_left(&look.port);
                    }
                }
                Some(Some(true))
            }
            Found::Told(Err(NoDuplicate::NotOpen)) => Some(Some(false)),
            Found::Told(Err(NoDuplicate::Forbidden | NoDuplicate::System(_))) => Some(None),
        };
        (looks, answer)
    }

    fn told(&mut self, question: Question, is_open: Option<bool>) {
        self.exclusion.ports.answered(&question, is_open, Instant::now());
    }
}

impl Service {
    fn not_found(&mut self, question: Question, why: &NoDuplicate) -> Begun<Question, PortSearch> {
        match why {
            NoDuplicate::NotOpen => Begun::Told(question, Some(false)),
            NoDuplicate::Forbidden => {
                self.hindered(&question.port, "the holder's descriptors cannot be seen");
                Begun::Told(question, None)
            }
            NoDuplicate::System(_) => {
                let now = Instant::now();
                let later = now.checked_add(EXCLUSIVE_LOOK_MOST).unwrap_or(now);
                self.exclusion.ports.put_back(&question, later);
                Begun::NoRoom
            }
        }
    }
}
