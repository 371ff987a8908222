//! Locks for processes that hold a port open without one (`--watch-opens`).

use std::time::Instant;

use pidlockfile::Pid;
use pidlockfile::process::{Fate, ProcessIdentity, lives, owner};
use ttylock::{
    Answer, Cause, Contended, Contention, DeviceName, Holder, NoLook, Node, OpenLook, Outcome,
    Progress, Request, ResolvedDevice, opener,
};

use super::Service;
use crate::serve::opens::{Begun, Deed, Looker, Question, Sight, Verdict, Why};

/// Programs that hold a port open and wait, without keeping others from it: they take a lock
/// themselves when a call comes in, or give way to programs that dial out. Logins follow them on the line.
const WAITING: [&str; 12] = [
    "agetty", "getty", "mingetty", "mgetty", "vgetty", "uugetty", "fbgetty", "faxgetty", "efax",
    "hfaxd", "login", "sulogin",
];

/// A question, and which node the answer is about.
pub(in crate::serve) type Asked = (Question, Option<Node>);

impl Service {
    /// Every process with a port open is to be looked for. True when that is to be asked for.
    pub(in crate::serve) fn is_to_find_openers(&mut self) -> bool {
        self.openers.survey_begins()
    }

    /// What was found. True when it is to be asked for again.
    pub(in crate::serve) fn found_openers(&mut self, holders: &[Holder], now: Instant) -> bool {
        let Self { openers, table, .. } = self;
        let found = holders.iter().filter_map(|holder| {
            let is_opener = holder.scheme.file().is_none();
            let pid = holder.pid.filter(|_| is_opener)?;
            Some((holder.device.clone(), table.identify(pid), owner(pid)))
        });
        openers.survey_ended(found, now) && openers.survey_begins()
    }

    /// More was opened and closed than was told.
    pub(in crate::serve) fn lost_sight_of_openers(&mut self, now: Instant) {
        self.openers.forget_unlocked(now);
    }

    pub(in crate::serve) fn saw_opener(&mut self, sight: &Sight, now: Instant) {
        let Sight { port, pid, deed } = sight;
        let (who, user) = (self.table.identify(*pid), owner(*pid));
        match deed {
            Deed::Opened => self.openers.opened(port, &who, user, now),
            // Another descriptor of the port may still be open.
            Deed::Closed | Deed::Both => {
                self.openers.may_have_closed(port, &who, user, *deed, now);
            }
        }
    }

    fn release_for_opener(&mut self, port: &str, pid: Pid, now: Instant) {
        let Ok(device) = DeviceName::parse(port.as_bytes()) else { return };
        let request = Request { device, pid };
        self.before_release(&request);
        let Ok(answer) = self.table.attempt_unlock(&request, Contention::Decides) else { return };
        self.was_released(&answer, pid);
        self.tell_of_opener(pid, answer);
        self.openers.retry(now);
    }

    /// What is there by the name of a port: that is what is asked for, judged and locked.
    pub(super) fn resolve_port(&mut self, port: &str) -> Option<ResolvedDevice> {
        let name = DeviceName::parse(port.as_bytes()).ok()?;
        self.table.resolve(&name).ok()
    }

    /// What a look at a process has told: whether it has the port open.
    fn looked_at_opener(&mut self, (question, node): Asked, is_open: Option<bool>, now: Instant) {
        if !self.openers.answered(&question) {
            return;
        }
        let Question { port, who, why } = question;
        // A process with the number of one that has ended has opened nothing.
        let is_open = if self.table.fate(&who) == Fate::Same { is_open } else { Some(false) };
        match (why, is_open) {
            (Why::Due, _) => {
                let verdict = self.judge_opener(&port, &who, node, is_open);
                self.openers.settle(&port, &who, verdict, now);
            }
            (Why::Told(_), Some(true)) => self.openers.is_open(&port, &who, now),
            // It has opened and closed the port once more, or for once.
            (Why::Told(Deed::Both), None) => self.openers.is_untold(&port, &who),
            (Why::Told(_), Some(false) | None) => {
                if self.openers.closed(&port, &who) {
                    self.release_for_opener(&port, who.pid, now);
                }
            }
        }
    }

    fn judge_opener(
        &mut self,
        port: &str,
        who: &ProcessIdentity,
        node: Option<Node>,
        is_open: Option<bool>,
    ) -> Verdict {
        let pid = who.pid;
        let Ok(device) = DeviceName::parse(port.as_bytes()) else { return Verdict::Left };
        // What was looked at is what is locked.
        let resolved = self.resolve_port(port).filter(|resolved| resolved.node == node);
        let Some(resolved) = resolved else { return Verdict::Later };
        if is_open == Some(false) {
            return Verdict::Closed;
        }
        let request = Request { device, pid };
        let granted = self.authority.grant_opener(&mut self.processes, request, resolved);
        let Some(granted) = granted.ok().filter(|_| !waits(pid)) else { return Verdict::Left };
        let exclusive = self.may_become_exclusive(granted.device());
        let (request, resolved) = granted.into_parts();
        let asked = self.openers.asked(port, who).unwrap_or_else(Instant::now);
        match self.table.attempt_lock_of(&request, resolved, Contention::Decides, asked) {
            Err(Contended { cause: Cause::Reading, .. }) => Verdict::Pending,
            Ok(Answer { outcome: Outcome::Busy, blocker: Some(it), .. }) if it == *who => {
                Verdict::Left
            }
            Ok(Answer { outcome: Outcome::Busy, .. }) | Err(_) => Verdict::Later,
            Ok(answer) => {
                let verdict = match answer.outcome {
                    Outcome::Done => {
                        self.locked_for(&request, exclusive.as_ref());
                        Verdict::Locked
                    }
                    Outcome::Busy | Outcome::Denied => Verdict::Left,
                };
                self.tell_of_opener(pid, answer);
                verdict
            }
        }
    }

    fn tell_of_opener(&mut self, pid: Pid, answer: Answer) {
        let user = owner(pid);
        for event in answer.events {
            self.tell_of(
                user,
                event.weight.into(),
                format_args!("pid {pid} opened it without a lock: {}", event.text),
            );
        }
    }

    /// Adds the processes that were seen to open a port, if they are not listed yet.
    pub(super) fn add_openers(&self, holders: &mut Vec<Holder>, port: Option<&str>) {
        for (port, who) in self.openers.of(port) {
            let pid = who.pid;
            let told = holders.iter().any(|it| it.device == port && it.pid == Some(pid));
            if !told && lives(pid) {
                holders.push(opener(port, pid));
            }
        }
    }

    /// What was taken in its name is its own affair now, or another's.
    pub(super) fn forget_lock_of_opener(&mut self, real: &str, pid: Pid) {
        if self.openers.is_empty() {
            return;
        }
        self.openers.released(real, pid);
        self.openers.retry(Instant::now());
    }

    /// When a process that holds a port open is to be looked at.
    pub(in crate::serve) fn next_look_at_openers(&self) -> Option<Instant> {
        self.openers.next_moment()
    }
}

impl Looker<Asked, OpenLook> for Service {
    fn begin(&mut self) -> Begun<Asked, OpenLook> {
        let Some(question) = self.openers.next(Instant::now()) else { return Begun::Nothing };
        let node = self.resolve_port(&question.port).and_then(|resolved| resolved.node);
        let Some(node) = node else { return Begun::Told((question, None), None) };
        match OpenLook::begin(question.who.pid, &node) {
            Ok(look) => Begun::Look((question, Some(node)), look),
            Err(NoLook::Ended) => Begun::Told((question, Some(node)), Some(false)),
            Err(NoLook::Hidden) => Begun::Told((question, Some(node)), None),
            Err(NoLook::NoRoom) => {
                self.openers.put_back(&question);
                Begun::NoRoom
            }
        }
    }

    fn step(&mut self, look: &mut OpenLook) -> (usize, Option<Option<bool>>) {
        let (looks, progress) = look.step();
        match progress {
            Progress::More => (looks, None),
            Progress::Told(is_open) => (looks, Some(is_open)),
        }
    }

    fn told(&mut self, asked: Asked, is_open: Option<bool>) {
        self.looked_at_opener(asked, is_open, Instant::now());
    }
}

/// Whether it is one of those programs, by the name that it goes by; systemd puts a name that is
/// yet to become the program's in parentheses.
fn waits(pid: Pid) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    WAITING.contains(&name.trim_end().trim_matches(['(', ')']))
}
