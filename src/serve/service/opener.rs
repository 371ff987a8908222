//! Locks for processes that hold a port open without one (`--watch-opens`).

use std::time::Instant;

use pidlockfile::Pid;
use pidlockfile::process::{ProcessIdentity, lives, owner};
use ttylock::{
    Answer, Cause, Contended, Contention, DeviceName, Holder, Node, Outcome, Request, opener,
};

use super::Service;
use crate::limits::ATTEMPTED;
#[cfg(target_os = "linux")]
use crate::serve::ports::OpenPorts;
use crate::serve::ports::{Verdict, Wish};

/// Programs that hold a port open and wait, without keeping others from it: they take a lock
/// themselves when a call comes in, or give way to programs that dial out. Logins follow them on the line.
const WAITING: [&str; 12] = [
    "agetty", "getty", "mingetty", "mgetty", "vgetty", "uugetty", "fbgetty", "faxgetty", "efax",
    "hfaxd", "login", "sulogin",
];

impl Service {
    /// From now on, a port that is held open without a lock gets one. Returns the descriptor that is readable when
    /// [`Self::serve_openers`] is to be called.
    ///
    /// # Errors
    /// The system's.
    #[cfg(target_os = "linux")]
    pub(in crate::serve) fn watch_opens(&mut self) -> std::io::Result<&OpenPorts> {
        let ports = OpenPorts::start(&self.authority.dev_dir, self.log.another())?;
        Ok(self.opens.insert(ports))
    }

    /// Takes and releases locks for processes that have ports open, some in each call.
    pub(in crate::serve) fn serve_openers(&mut self) {
        let Some(ports) = self.opens.clone() else { return };
        for _ in 0..ATTEMPTED {
            let Some(wish) = ports.next_wish() else { break };
            match wish {
                Wish::Release { port, pid } => self.release_for_opener(&port, pid),
                Wish::Lock { port, who, node, asked } => {
                    let verdict = self.lock_for_opener(&port, &who, node, asked);
                    let is_open = ports.openers().settle(&port, &who, verdict, Instant::now());
                    if !is_open && verdict == Verdict::Locked {
                        self.release_for_opener(&port, who.pid);
                    }
                }
            }
        }
        ports.wake();
    }

    fn release_for_opener(&mut self, port: &str, pid: Pid) {
        let Ok(device) = DeviceName::parse(port.as_bytes()) else { return };
        let request = Request { device, pid };
        self.before_release(&request);
        let Ok(answer) = self.table.attempt_unlock(&request, Contention::Decides) else { return };
        self.was_released(&answer, pid);
        self.tell_of_opener(pid, answer);
        if let Some(ports) = &self.opens {
            ports.openers().retry(Instant::now());
        }
    }

    fn lock_for_opener(
        &mut self,
        port: &str,
        who: &ProcessIdentity,
        node: Node,
        asked: Option<Instant>,
    ) -> Verdict {
        let pid = who.pid;
        let Ok(device) = DeviceName::parse(port.as_bytes()) else { return Verdict::Left };
        // The node that was examined is the one that is locked.
        let resolved = self.table.resolve(&device).ok().filter(|it| it.node == Some(node));
        let Some(resolved) = resolved else { return Verdict::Later };
        let request = Request { device, pid };
        let granted = self.authority.grant_opener(&mut self.processes, request, resolved);
        let Some(granted) = granted.ok().filter(|_| !waits(pid)) else { return Verdict::Left };
        let exclusive = self.may_become_exclusive(granted.device());
        let (request, resolved) = granted.into_parts();
        let asked = asked.unwrap_or_else(Instant::now);
        match self.table.attempt_lock(&request, Some(resolved), Contention::Decides, asked) {
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
        let Some(ports) = &self.opens else { return };
        for (port, who) in ports.openers().of(port) {
            let pid = who.pid;
            let told = holders.iter().any(|it| it.device == port && it.pid == Some(pid));
            if !told && lives(pid) {
                holders.push(opener(port, pid));
            }
        }
    }

    /// The lock that was taken for a process has been released or passed on, or is its own by now.
    pub(super) fn forget_lock_of_opener(&mut self, real: &str, pid: Pid) {
        let Some(ports) = &self.opens else { return };
        let mut openers = ports.openers();
        openers.released(real, pid);
        openers.retry(Instant::now());
        ports.wake();
    }

    /// A process has ended.
    pub(super) fn opener_gone(&mut self, pid: Pid) {
        let Some(ports) = &self.opens else { return };
        let mut openers = ports.openers();
        openers.gone(|who| who.pid == pid && self.table.machine().fate(who).is_over());
        openers.retry(Instant::now());
        ports.wake();
    }
}

/// Whether it is one of those programs, by the name that it goes by; systemd puts a name that is
/// yet to become the program's in parentheses.
fn waits(pid: Pid) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    WAITING.contains(&name.trim_end().trim_matches(['(', ')']))
}
