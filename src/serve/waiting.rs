//! The waiters, and what is known of the devices they wait for: which files keep each device busy, and which
//! process.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pidlockfile::Pid;
use pidlockfile::process::ProcessIdentity;

use super::admission::User;
use crate::protocol::queue::{Attempt, Queue, WaiterId};
use ttylock::{Names, Outcome, Request};

/// The line, with what wakes it.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) queue: Queue,
    facts: HashMap<Arc<str>, Facts>,
}

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A file of this name went, or another came in its place.
    Name(String),
    /// More than the kernel keeps in mind, or a directory itself.
    Everything,
}

#[derive(Debug)]
struct Facts {
    files: HashSet<String>,
    blocker: Option<ProcessIdentity>,
    /// The process that was known to have ended when it kept the device busy: one that inherited its descriptor has
    /// the `flock(2)` now.
    gone: Option<ProcessIdentity>,
}

impl Facts {
    fn is_blocked_by(&self, pid: Pid) -> bool {
        self.blocker.as_ref().is_some_and(|blocker| blocker.pid == pid)
    }
}

impl Waiting {
    pub(super) fn enter(
        &mut self,
        id: WaiterId,
        names: Names,
        request: Request,
        user: User,
        time: Duration,
        now: Instant,
    ) {
        self.queue.enter(id, &names.real, request, user, time, now);
        self.learn(names);
    }

    /// The waiter's name is another device by now: it waits for that device, as the last.
    pub(super) fn change(&mut self, id: WaiterId, names: Names, now: Instant) {
        self.queue.change(id, &names.real, now);
        self.learn(names);
        self.clean();
    }

    fn learn(&mut self, Names { real, files, .. }: Names) {
        let files = files.iter().map(|name| name.as_str().to_owned()).collect();
        // The latest names count: links come and go.
        self.facts.insert(Arc::from(real), Facts { files, blocker: None, gone: None });
    }

    pub(super) fn leave(&mut self, id: WaiterId, now: Instant) {
        if self.queue.leave(id, now) {
            self.clean();
        }
    }

    pub(super) fn expire(&mut self, now: Instant) -> Vec<WaiterId> {
        let over = self.queue.expire(now);
        if !over.is_empty() {
            self.clean();
        }
        over
    }

    pub(super) fn tried(
        &mut self,
        attempt: &Attempt,
        outcome: Outcome,
        blocker: Option<ProcessIdentity>,
        now: Instant,
    ) {
        self.queue.tried(attempt, outcome, now);
        if let Some(facts) = self.facts.get_mut(&attempt.device) {
            facts.blocker = blocker;
        }
        if outcome != Outcome::Busy {
            self.clean();
        }
    }

    fn clean(&mut self) {
        let queue = &self.queue;
        self.facts.retain(|device, _| queue.is_waited_for(device));
    }

    pub(super) fn process_gone(&mut self, pid: Pid, now: Instant) {
        for (device, facts) in &self.facts {
            if facts.is_blocked_by(pid) {
                self.queue.wake(device, now);
            }
        }
    }

    /// Notes that the process that keeps the device busy has ended. False if that was known: then the device is as busy
    /// as before, and no event will tell when it is free.
    pub(super) fn note_gone(&mut self, device: &str, who: &ProcessIdentity) -> bool {
        let facts = self.facts.get_mut(device);
        facts.is_some_and(|facts| facts.gone.replace(who.clone()).as_ref() != Some(who))
    }

    pub(super) fn is_blocked_by(&self, pid: Pid) -> bool {
        self.facts.values().any(|facts| facts.is_blocked_by(pid))
    }

    pub(super) fn blocker(&self, device: &str) -> Option<&ProcessIdentity> {
        self.facts.get(device)?.blocker.as_ref()
    }

    pub(super) fn changed(&mut self, change: &Change, now: Instant) {
        self.changed_but_for(None, change, now);
    }

    /// The same, but that nothing is learned of this device: an attempt for it has just changed
    /// what it could not keep.
    pub(super) fn changed_but_for(&mut self, own: Option<&str>, change: &Change, now: Instant) {
        for (device, facts) in &self.facts {
            if own == Some(&**device) {
                continue;
            }
            let concerned = match change {
                Change::Name(name) => facts.files.contains(name),
                Change::Everything => true,
            };
            if concerned {
                self.queue.wake(device, now);
            }
        }
    }
}
