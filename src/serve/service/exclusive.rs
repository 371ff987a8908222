//! Ports that only the holders of their locks can open (`--exclusive`): duplicates the holder's own descriptor, and
//! asks the kernel to refuse the port to all others until the lock ends. Each mode is recorded before it is set.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::num::NonZeroU32;
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
use crate::serve::exclusive::{Exclusive, Note, Notes, Ports, Question, Scope, Set, Why};
use crate::serve::opens::{Begun, Looker};

/// The state of `--exclusive` in the service.
#[derive(Debug, Default)]
pub(super) struct Exclusion {
    wanted: Exclusive,
    pub(super) ports: Ports,
    notes: Option<Notes>,
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
    ///
    /// # Errors
    /// The system's: the record cannot be kept.
    pub(crate) fn make_exclusive(&mut self, wanted: Exclusive) -> io::Result<()> {
        let is_new = wanted != Exclusive::Never;
        let notes = Notes::open(&self.table.layout().state_dir, is_new);
        self.exclusion.notes = if is_new { Some(notes?) } else { notes.ok() };
        self.exclusion.wanted = wanted;
        Ok(())
    }

    /// Continues the work of an earlier daemon, which may have been killed at any moment: its modes on ports that are
    /// still locked are ours now, and its other modes are ended.
    pub(in crate::serve) fn begin_exclusive(&mut self, now: Instant) {
        let notes = self.exclusion.notes.as_ref().map(Notes::all).unwrap_or_default();
        for note in notes {
            self.take_over(&note, now);
        }
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

    fn take_over(&mut self, note: &Note, now: Instant) {
        let numbers = Some(note.device);
        let node = Node { file_system: note.device, inode: 0, device: numbers };
        let set = Set { node, mark: note.mark, number: -1 };
        let device = DeviceName::parse(note.port.as_bytes()).ok();
        let who = device.and_then(|device| self.table.holder_on_record(&device));
        let resolved = self.resolve_port(&note.port);
        if let Some((who, resolved)) = who.filter(|who| note.is_of(who)).zip(resolved) {
            if self.exclusion.wanted.applies_to(&resolved) {
                self.exclusion.ports.locked(resolved.real(), &who, now);
                return self.exclusion.ports.note(resolved.real(), Some(set));
            }
        }
        // Without a mark, it may be the mode of a program that has opened the port since.
        let scope = if note.mark.is_some() { Scope::Anybody } else { Scope::Holder };
        let who = self.table.identify(note.pid);
        self.exclusion.ports.leave(&note.port, (who, set), scope, now);
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
            self.exclusion.ports.leave(port, left, Scope::Anybody, Instant::now());
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
            if self.end_mode(port, &set, &duplicate) {
                self.exclusion.ports.note(port, None);
            }
        }
    }

    /// Ends our own mode only. Returns whether it is ended.
    fn end_mode(&mut self, port: &str, set: &Set, duplicate: &Duplicate) -> bool {
        let ended = is_ours(set, duplicate).and_then(|is_ours| {
            if is_ours {
                duplicate.end_exclusive()?;
                if set.mark.is_some() {
                    duplicate.unmark()?;
                }
            }
            Ok(is_ours)
        });
        match ended {
            Ok(is_ours) => {
                self.forget_note(set);
                if is_ours {
                    self.tell(Severity::Debug, format_args!("{port} is no longer exclusive"));
                }
                true
            }
            Err(error) => {
                self.hindered(port, &error.to_string());
                // The device is gone, and its mode with it.
                false
            }
        }
    }

    fn forget_note(&mut self, set: &Set) {
        if let Some((notes, device)) = self.exclusion.notes.as_ref().zip(set.node.device) {
            // A record that remains is about an earlier use of the device.
            let _ = notes.remove(device);
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
        let set = match (before, duplicate.is_exclusive()) {
            (_, Err(error)) => return self.hindered(port, &error.to_string()),
            (Some(set), Ok(true)) if is_ours_or_untold(&set, duplicate) => {
                Some(Set { number: duplicate.number(), node, ..set })
            }
            // The program has set it itself.
            (_, Ok(true)) => None,
            (_, Ok(false)) => match self.set_mode(port, who, node, duplicate) {
                Ok(set) => Some(set),
                Err(error) => {
                    self.hindered(port, &error.to_string());
                    None
                }
            },
        };
        if let (Some(before), None) = (before, set) {
            self.forget_note(&before);
        }
        self.exclusion.ports.note(port, set);
    }

    /// The record comes first, so that the next daemon knows of the mode in any case.
    fn set_mode(
        &mut self,
        port: &str,
        who: &ProcessIdentity,
        node: Node,
        duplicate: &Duplicate,
    ) -> io::Result<Set> {
        let unknown = || io::Error::other("its process could not be identified later");
        let device = node.device.ok_or_else(unknown)?;
        let note = |mark| Note::new(device, port, who, mark).ok_or_else(unknown);
        let notes = self.exclusion.notes.as_ref().ok_or_else(unknown)?;
        let mark = a_mark();
        notes.write(&note(mark)?)?;
        let mark = match mark {
            Some(mark) if duplicate.mark(mark)? => Some(mark),
            _ => {
                notes.write(&note(None)?)?;
                None
            }
        };
        duplicate.set_exclusive()?;
        let pid = who.pid;
        self.tell(Severity::Info, format_args!("{port} is exclusive for pid {pid}"));
        Ok(Set { node, mark, number: duplicate.number() })
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
            self.forget_left(&port);
        }
    }

    /// Forgets the ports that no process has open any more.
    pub(in crate::serve) fn forget_forsaken(&mut self) {
        for port in self.exclusion.ports.forsaken() {
            self.forget_left(&port);
        }
    }

    fn forget_left(&mut self, port: &str) {
        if let Some((_, set)) = self.exclusion.ports.forget_left(port) {
            self.forget_note(&set);
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
                    Why::Ended(set) => {
                        self.end_mode(&look.port, set, &duplicate);
                        self.forget_left(&look.port);
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

/// Whether this use of the device is the one that we have made exclusive. If it could not be marked, it counts as
/// ours: only root could have opened the port meanwhile.
fn is_ours(set: &Set, duplicate: &Duplicate) -> io::Result<bool> {
    set.mark.map_or(Ok(true), |mark| duplicate.has_mark(mark))
}

fn is_ours_or_untold(set: &Set, duplicate: &Duplicate) -> bool {
    is_ours(set, duplicate).unwrap_or(true)
}

/// A number that hardly ever repeats.
fn a_mark() -> Option<NonZeroU32> {
    let bytes = RandomState::new().hash_one(0_u8).to_ne_bytes();
    bytes.first_chunk().and_then(|bytes| NonZeroU32::new(u32::from_ne_bytes(*bytes)))
}
