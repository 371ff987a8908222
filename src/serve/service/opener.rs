//! Locks for processes that hold a port open without one (`--watch-opens`).

use std::time::Instant;

use pidlockfile::Pid;
use pidlockfile::process::{Fate, ProcessIdentity, lives, owner};
use ttylock::device::name::DeviceName;
use ttylock::device::node::ResolvedDevice;
use ttylock::lock::backoff::Contention;
use ttylock::lock::who::{self, Holder, Scheme};
use ttylock::lock::{Answer, Cause, Contended, Outcome, Request};

use super::Service;
use crate::serve::authority::has_open;
use crate::serve::opens::{Deed, Sight, Verdict};

/// Programs that hold a port open and wait, without keeping others from it: they take a lock
/// themselves when a call comes in, or give way to who dials out. Logins follow them on the line.
const WAITING: [&str; 12] = [
    "agetty", "getty", "mingetty", "mgetty", "vgetty", "uugetty", "fbgetty", "faxgetty", "efax",
    "hfaxd", "login", "sulogin",
];

impl Service {
    /// Whoever had a port open before the watch began, as far as that can be seen.
    pub(in crate::serve) fn find_openers(&mut self, now: Instant) {
        for holder in self.table.all_holders() {
            if let (Scheme::Open | Scheme::Flock, Some(pid)) = (holder.scheme, holder.pid) {
                let who = self.table.identify(pid);
                self.openers.opened(&holder.device, &who, now);
            }
        }
    }

    pub(in crate::serve) fn lost_sight_of_openers(&mut self, now: Instant) {
        self.openers.forget_unlocked();
        self.find_openers(now);
    }

    pub(in crate::serve) fn saw_opener(&mut self, sight: &Sight, now: Instant) {
        let Sight { port, pid, deed } = sight;
        let mut is_open = || has_open(*pid, &self.resolve_port(port)?);
        let is_closed = match deed {
            Deed::Opened => false,
            // Another descriptor of the port may still be open.
            Deed::Closed => is_open() != Some(true),
            Deed::Both => match is_open() {
                Some(open) => !open,
                // It has opened and closed the port once more, or for once.
                None => return,
            },
        };
        if !is_closed {
            let who = self.table.identify(*pid);
            self.openers.opened(port, &who, now);
        } else if self.openers.closed(port, *pid) {
            self.release_for_opener(port, *pid, now);
        }
    }

    fn release_for_opener(&mut self, port: &str, pid: Pid, now: Instant) {
        let Ok(device) = DeviceName::parse(port.as_bytes()) else { return };
        let request = Request { device, pid };
        let Ok(answer) = self.table.attempt_unlock(&request, Contention::Decides) else { return };
        self.tell_of_opener(pid, answer);
        if let Some(real) = self.table.take_released() {
            self.waiting.queue.wake(&real, now);
        }
        self.openers.retry(now);
    }

    /// Looks at one process that holds a port open. False when there is nobody to look at now.
    pub(in crate::serve) fn look_at_opener(&mut self, now: Instant) -> bool {
        let Some((port, who)) = self.openers.due(now) else { return false };
        let verdict = self.judge_opener(&port, &who);
        self.openers.settle(&port, &who, verdict, now);
        true
    }

    /// What is there by the name of a port: that is what is asked for, judged and locked.
    fn resolve_port(&mut self, port: &str) -> Option<ResolvedDevice> {
        let name = DeviceName::parse(port.as_bytes()).ok()?;
        self.table.resolve(&name).ok()
    }

    fn judge_opener(&mut self, port: &str, who: &ProcessIdentity) -> Verdict {
        let pid = who.pid;
        let Ok(device) = DeviceName::parse(port.as_bytes()) else { return Verdict::Left };
        let Some(resolved) = self.resolve_port(port) else { return Verdict::Later };
        // Whoever has the number of one that has ended has opened nothing.
        if has_open(pid, &resolved) == Some(false) || self.table.fate(who) != Fate::Same {
            return Verdict::Closed;
        }
        let request = Request { device, pid };
        let granted = self.authority.grant_opener(&mut self.processes, request, resolved);
        let Some(granted) = granted.ok().filter(|_| !waits(pid)) else { return Verdict::Left };
        let (request, resolved) = granted.into_parts();
        self.table.was_asked(self.openers.asked(port, who).unwrap_or_else(Instant::now));
        match self.table.attempt_lock_of(&request, resolved, Contention::Decides) {
            Err(Contended { cause: Cause::Reading, .. }) => Verdict::Pending,
            Ok(Answer { outcome: Outcome::Busy, .. }) | Err(_) => {
                let is_its_own = self.table.blocker() == Some(who);
                if is_its_own { Verdict::Left } else { Verdict::Later }
            }
            Ok(answer) => {
                let verdict = match answer.outcome {
                    Outcome::Done => Verdict::Locked,
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

    /// Adds those who were seen to open a port, where nobody else has told of them.
    pub(super) fn add_openers(&self, holders: &mut Vec<Holder>, port: Option<&str>) {
        for (port, who) in self.openers.of(port) {
            let pid = who.pid;
            let told = holders.iter().any(|it| it.device == port && it.pid == Some(pid));
            if !told && lives(pid) {
                holders.push(who::opener(port, pid));
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

/// Whether it is one of those programs, by the name that it goes by; systemd puts a name that is
/// yet to become the program's in parentheses.
fn waits(pid: Pid) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    WAITING.contains(&name.trim_end().trim_matches(['(', ')']))
}
