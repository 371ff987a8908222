//! Answers the requests of sessions from the peer, the lock table, the queue of waiters, and the log. Reads and writes
//! no connection.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use pidlockfile::Pid;
use ttylock::subordinate::owner_of;
use ttylock::{
    Answer, Backoff, Cause, Checked, DeviceName, Event, Outcome, Pass, Request, ResolvedDevice,
    Stop, Survey, Table, Weight,
};

use super::admission::{ClientId, Owner, User};
use super::authority::{Authority, Granted, denied};
use super::client::{Client, Phase};
use super::ports::PortThreads;
use super::queue::{Candidate, Queue};
use crate::limits::{LOCKS_OF_A_USER, STATUS_SEARCH};
use crate::log::{Journal, Log, Severity};
use crate::peer::{Inquiry, Peer};
use crate::protocol::Session;
use crate::protocol::command::Command;
use crate::protocol::reply::{Identity, Reply, Report, Scope, Version};

/// A lock for a number that no process had when it was taken, as the protocol's memo takes one over telnet. It is stale from the
/// start: programs that know its record are not kept out. Other programs take a later process of that number for the
/// holder.
#[derive(Debug)]
pub(super) struct LockForMissing {
    /// The user that asked for it.
    user: User,
    request: Request,
    device: ResolvedDevice,
}

/// What all clients of one process share.
#[derive(Debug)]
pub(crate) struct Service {
    identity: Identity,
    pub(super) authority: Authority,
    pub(crate) table: Table,
    pub(super) journal: Journal,
    inquiry: Inquiry,
    /// The clients that wait for a device.
    pub(super) queue: Queue,
    pub(super) for_missing: Vec<LockForMissing>,
    pub(super) ports: PortThreads,
}

impl Service {
    /// A service under this host's name.
    #[must_use]
    pub(crate) fn new(version: Version, authority: Authority, table: Table, log: Log) -> Self {
        let host = nix::unistd::gethostname().unwrap_or_default();
        Self {
            identity: Identity::new(host.as_encoded_bytes(), version),
            authority,
            table,
            journal: Journal::of(log),
            inquiry: Inquiry::default(),
            queue: Queue::default(),
            for_missing: Vec::new(),
            ports: PortThreads::default(),
        }
    }

    /// Logs what belongs to no request.
    pub(crate) fn log_events(&mut self) {
        self.journal.of_nobody(self.table.take_events());
    }

    /// Logs why nothing can be served.
    pub(crate) fn complain(&mut self, complaint: &str) {
        self.log_events();
        self.journal.log.record(Severity::Error, &format_args!("{complaint}"));
    }

    /// From now on, a client may wait for a device, by its id.
    pub(super) fn offer_to_wait(&mut self) {
        self.identity = self.identity.clone().offering_to_wait();
    }

    /// Identifies the peer of a new connection, before anything is said on it.
    pub(super) fn welcome(&mut self, stream: BorrowedFd<'_>, id: ClientId) -> Client {
        let peer = Peer::of(&mut self.inquiry, stream, self.authority.force_group);
        let identity = self.identity.clone();
        let session = match &peer {
            Ok(_) => Session::admit(identity),
            Err(stranger) => {
                let weight = Severity::Warning;
                self.journal.of_user(None, weight, format_args!("connection refused: {stranger}"));
                Session::refuse(identity)
            }
        };
        let peer = peer.ok();
        let owner = Owner {
            user: peer.as_ref().and_then(|peer| peer.uid).map(owner_of),
            is_administrator: peer.as_ref().is_some_and(|peer| self.authority.may_force(peer)),
        };
        Client { session, peer, id, owner, backoff: None, claimant: None }
    }

    /// The last line for a client for which there is no room or time.
    pub(super) fn farewell(&self) -> String {
        Reply::Closing.encode(&self.identity, b"")
    }

    /// Does what a client asks for. Returns what the client then waits for; `None` if it has its answer.
    pub(super) fn answer(
        &mut self,
        client: &mut Client,
        command: Command,
        now: Instant,
    ) -> Option<Phase> {
        let waits = client.backoff.and_then(|backoff| self.table.is_kept_outside(backoff));
        if let Some(cause) = waits {
            return Some(retry(client, cause, now));
        }
        let answer = match command {
            Command::Status(device) => return Some(Phase::Searching(device)),
            Command::Wait(request, seconds) => match self.wait(client, request, seconds) {
                None => return Some(Phase::Waiting),
                Some(denied) => denied,
            },
            // A web page can make a browser say anything.
            Command::Http => {
                let said = format_args!("the client is a web browser: session ended");
                self.journal.of_user(client.owner.user, Severity::Warning, said);
                client.session.close();
                return None;
            }
            Command::Lock(request) => self.lock(client, request),
            Command::Unlock(request) => self.unlock(client, request),
            Command::Force(request) => self.force(client, request),
            Command::Pass(pass) => self.pass(client, pass),
        };
        let outcome = answer.outcome();
        self.log(client, answer.events);
        if let Err(Stop::NotYet(cause)) = answer.result {
            return Some(retry(client, cause, now));
        }
        client.answer(outcome.into());
        None
    }

    /// The right of the process that the client names to a device.
    fn grant_taking(&mut self, client: &Client, request: Request) -> Result<Granted, Answer> {
        let pid = self.authority.meant(client.peer()?, &request)?;
        self.authority.grant_taking(client.peer()?, Request { pid, ..request }, &mut self.table)
    }

    /// Puts the client into the line for a device, or has the answer.
    fn wait(&mut self, client: &mut Client, request: Request, secs: u32) -> Option<Answer> {
        let granted = match self.grant_taking(client, request) {
            Ok(granted) => granted,
            Err(refusal) => return Some(refusal),
        };
        let Some(names) = self.table.files_of(granted.device()) else { return Some(denied(None)) };
        let (request, _) = granted.into_parts();
        client.claimant = Some(self.table.machine().identify(request.pid));
        let (time, now) = (Duration::from_secs(secs.into()), Instant::now());
        self.queue.enter(client.id, names, request, client.user(), time, now);
        None
    }

    /// Takes a device for a client. Waiters that could have the device now are tried before, so that no LOCK overtakes
    /// them.
    fn lock(&mut self, client: &mut Client, request: Request) -> Answer {
        let granted = match self.grant_taking(client, request) {
            Ok(granted) => granted,
            Err(refusal) => return refusal,
        };
        let backoff = *client.under_way();
        let (real, now) = (granted.device().real(), Instant::now());
        if self.queue.admits_lock(real, backoff.asked(), now) {
            return self.take(client.user(), granted, backoff);
        }
        self.queue.wake(real, now);
        if backoff.is_exhausted() {
            let text = format!("{real} is busy: a client waits for it");
            let events = vec![Event::new(Weight::Info, text)];
            return Answer { result: Err(Stop::Busy(None)), events };
        }
        // When this LOCK comes back, the waiters have been tried. If the attempt for a waiter has no answer until the
        // kernel's list is read, neither has this LOCK.
        let is_reading = self.queue.has_attempt_without_answer(real);
        let cause = if is_reading { Cause::Reading } else { Cause::Contended };
        Answer { result: Err(Stop::NotYet(cause)), events: Vec::new() }
    }

    /// The rights of the giver and of the receiver.
    fn grant_passing(
        &mut self,
        client: &Client,
        Pass { device, from, to }: Pass,
    ) -> Result<(Pid, Granted), Answer> {
        let given = Request { device: device.clone(), pid: from };
        let from = self.authority.grant_release(client.peer()?, &given, &self.table)?;
        Ok((from, self.grant_taking(client, Request { device, pid: to })?))
    }

    fn pass(&mut self, client: &mut Client, pass: Pass) -> Answer {
        let (from, granted) = match self.grant_passing(client, pass) {
            Ok(granted) => granted,
            Err(refusal) => return refusal,
        };
        let (Request { device, pid: to }, Checked { device: resolved, .. }) = granted.into_parts();
        let kept = resolved.clone();
        let pass = Pass { device, from, to };
        let answer = self.table.attempt_pass(&pass, Some(resolved), client.under_way());
        if answer.result.is_ok() {
            self.ports.released(kept.real(), from);
            self.ports.locked(&kept, || self.table.machine().identify(to));
        }
        answer
    }

    fn unlock(&mut self, client: &mut Client, request: Request) -> Answer {
        let Self { authority, table, .. } = &*self;
        let granted = client.peer().and_then(|peer| authority.grant_release(peer, &request, table));
        match granted {
            Ok(pid) => self.release(&Request { pid, ..request }, client.under_way()),
            Err(refusal) => refusal,
        }
    }

    /// The log names both users and the lock.
    fn force(&mut self, client: &mut Client, request: Request) -> Answer {
        let granted = client.peer().and_then(|peer| self.authority.grant_force(peer, &request));
        let pid = match granted {
            Ok(pid) => pid,
            Err(refusal) => return refusal,
        };
        let (request, user) = (Request { pid, ..request }, pidlockfile::process::real_user(pid));
        let answer = self.release(&request, client.under_way());
        if let (Ok(_), Some(peer)) = (&answer.result, &client.peer) {
            let from = user.map(|uid| format!(" of uid {uid}")).unwrap_or_default();
            let device = request.device.as_str();
            self.journal.log.record(
                Severity::Warning,
                &format_args!("{peer}: took {device} from pid {pid}{from} by force"),
            );
        }
        answer
    }

    /// Takes what was granted: exactly the device for which the rights were checked.
    pub(super) fn take(&mut self, user: User, granted: Granted, backoff: Backoff) -> Answer {
        if self.has_too_many_for_missing(user, &granted) {
            let why = "refused: too many locks of this user for processes that do not exist";
            return denied(Some(why.to_owned()));
        }
        let is_for_missing = granted.is_for_missing;
        let (request, checked) = granted.into_parts();
        let kept = checked.device.clone();
        let answer = self.table.attempt_lock(&request, Some(checked), backoff);
        if answer.result.is_ok() {
            self.ports.locked(&kept, || self.table.machine().identify(request.pid));
            self.for_missing.retain(|it| it.device.real() != kept.real());
            if is_for_missing {
                self.for_missing.push(LockForMissing { user, request, device: kept });
            }
        }
        answer
    }

    /// Locks of processes that exist are counted by the table: their records have the user. Only the service knows which
    /// user has asked for a process that does not exist.
    fn has_too_many_for_missing(&mut self, user: User, granted: &Granted) -> bool {
        let has_too_many = |locks: &[LockForMissing]| {
            locks.iter().filter(|it| it.user.map(owner_of) == user.map(owner_of)).count()
                >= LOCKS_OF_A_USER
        };
        if !granted.is_for_missing || user == Some(0) || !has_too_many(&self.for_missing) {
            return false;
        }
        // Those that are gone by now do not count.
        self.for_missing.retain(|it| self.table.is_locked_for_missing(&it.device, it.request.pid));
        has_too_many(&self.for_missing)
    }

    pub(super) fn release(&mut self, request: &Request, backoff: &mut Backoff) -> Answer {
        self.ports.before_release(request, &mut self.table);
        let answer = self.table.attempt_unlock(request, backoff);
        if let Ok(real) = &answer.result {
            self.ports.released(real, request.pid);
            self.for_missing.retain(|it| it.device.real() != real);
            self.queue.wake(real, Instant::now());
        }
        answer
    }

    /// A release that does not wait for a process that holds the lock file by `flock(2)`. It has no answer while
    /// another process is in the gate, and the caller tries again later.
    pub(super) fn release_now(&mut self, request: &Request) -> Answer {
        let now = Instant::now();
        self.release(request, &mut Backoff::since(now).exhausted(now))
    }

    /// Tries to take a device for a client that waits for it. The client has its answer unless the outcome is busy.
    pub(super) fn attempt(&mut self, client: &mut Client, candidate: &Candidate) -> Outcome {
        // A day may have gone by since it was asked.
        let has_ended =
            client.claimant.as_ref().is_some_and(|who| self.table.machine().has_ended(who));
        let Service { authority, table, .. } = &mut *self;
        let request = candidate.request.clone();
        let granted = client.peer().and_then(|peer| authority.grant_taking(peer, request, table));
        let named = match granted {
            Ok(granted) => table.files_of(granted.device()).map(|names| (granted, names)),
            Err(Answer { events, .. }) => {
                self.log(client, events);
                None
            }
        };
        let Some((granted, names)) = named.filter(|_| !has_ended) else {
            self.queue.tried(candidate, Outcome::Denied, None, Instant::now());
            client.answer(Reply::Denied);
            return Outcome::Denied;
        };
        if names.real != *candidate.device {
            // The name that it waited for is another device now, and others wait for that.
            self.queue.move_to(candidate.waiter, names, Instant::now());
            return Outcome::Busy;
        }
        let answer = self.take(client.user(), granted, *client.under_way());
        let outcome = answer.outcome();
        self.queue.tried(candidate, outcome, answer.blocker().cloned(), Instant::now());
        if let Err(Stop::NotYet(cause)) = answer.result {
            client.under_way().pause(cause, Instant::now());
            self.queue.has_no_answer_yet(candidate, Instant::now());
            return outcome;
        }
        // The next attempt begins anew.
        client.backoff = None;
        // An event for each busy attempt would fill the log.
        if outcome != Outcome::Busy {
            self.log(client, answer.events);
            client.answer(outcome.into());
        }
        outcome
    }

    fn log(&mut self, client: &Client, events: Vec<Event>) {
        if let Some(peer) = &client.peer {
            self.journal.of_peer(peer, events);
        }
    }

    /// A process is gone: removes its locks, and wakes the waiters that it kept out.
    pub(super) fn process_gone(&mut self, pid: Pid) {
        self.ports.process_gone(pid, &mut self.table);
        self.journal.of_nobody(self.table.remove_locks_of_ended(pid));
        self.queue.process_gone(pid, Instant::now());
    }

    /// Releases the locks for missing processes whose numbers other processes have by now, unless they may hold the port.
    pub(super) fn check_newcomers(&mut self) {
        let lives = |lock: &LockForMissing| pidlockfile::process::lives(lock.request.pid);
        let (came, absent) = std::mem::take(&mut self.for_missing).into_iter().partition(lives);
        self.for_missing = absent;
        for LockForMissing { user, request, device } in came {
            // A lock that the process has taken itself is its own.
            if !self.table.is_locked_for_missing(&device, request.pid) {
                continue;
            }
            let kept = device.clone();
            let right = self.authority.grant_newcomer(user, request.clone(), device);
            let Err(refusal) = right else { continue };
            let result = self.release_now(&request).result;
            if result.is_ok() {
                let (device, pid) = (request.device.as_str(), request.pid);
                self.journal.of_user(
                    user,
                    Severity::Notice,
                    format_args!(
                        "released {device} of pid {pid}, which has started since: {refusal}"
                    ),
                );
            } else if matches!(result, Err(Stop::NotYet(_))) {
                self.for_missing.push(LockForMissing { user, request, device: kept });
            }
        }
    }

    /// The holders of a device, or of any; `None` if the device may not be named. The search takes a while, as every
    /// process of the machine is examined.
    pub(super) fn survey(&mut self, device: Option<&DeviceName>) -> Option<Survey> {
        self.table.surveys(&[device.cloned()], Instant::now() + STATUS_SEARCH).pop().flatten()
    }

    /// Answers STAT.
    pub(super) fn report(&mut self, client: &mut Client, survey: Option<Survey>) {
        let Some(Survey { port, mut holders, is_complete, out_of_sight, .. }) = survey else {
            return client.answer(Reply::Denied);
        };
        self.ports.add_openers(&mut holders, port.as_deref());
        let scope = if port.is_some() { Scope::Device } else { Scope::All };
        let report = Report::new(scope, &holders, &self.queue.waiters(port.as_deref()));
        let report = report.without(out_of_sight);
        client.answer(Reply::Status(if is_complete { report } else { report.incomplete() }));
    }
}

/// Counts an attempt at a request that had no answer, and lets the client wait for the next one.
fn retry(client: &mut Client, cause: Cause, now: Instant) -> Phase {
    let pause = client.under_way().pause(cause, now);
    Phase::Retrying(now.checked_add(pause).unwrap_or(now))
}
