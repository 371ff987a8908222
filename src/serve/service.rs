//! Answers the requests of sessions from the peer, the lock table, the queue of waiters, and the log. Reads and writes
//! no connection.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use pidlockfile::Pid;
use ttylock::limits::STATUS_SEARCH;
use ttylock::{
    Answer, Backoff, Cause, Contended, DeviceName, Event, Names, Outcome, Pass, Request,
    ResolvedDevice, Survey, Table, Weight,
};

use super::admission::User;
use super::authority::{Authority, Granted, Refused};
use super::connection::{Client, Phase};
use super::journal::Journal;
use super::ports::PortThreads;
use super::queue::{Attempt, Queue, WaiterId};
use crate::limits::FORESEEN_PER_USER;
use crate::log::{Log, Severity};
use crate::peer::{Inquiry, Peer};
use crate::protocol::command::Demand;
use crate::protocol::reply::{Identity, Reply, Version};
use crate::protocol::session::Session;
use crate::protocol::status::{Report, Scope, Waiter};

/// A lock of this device for a process number that no process had, as the memo takes one over telnet.
#[derive(Debug)]
pub(super) struct Foreseen {
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
    pub(super) table: Table,
    pub(super) journal: Journal,
    inquiry: Inquiry,
    /// The clients that wait for a device.
    pub(super) queue: Queue,
    pub(super) foreseen: Vec<Foreseen>,
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
            foreseen: Vec::new(),
            ports: PortThreads::default(),
        }
    }

    /// Logs what belongs to no request.
    pub(crate) fn log_events(&mut self) {
        self.journal.of_nobody(self.table.take_events());
    }

    /// For the end of a session.
    pub(crate) fn sweep(&self) {
        self.table.sweep();
    }

    /// Tells the log why nothing can be served.
    pub(crate) fn complain(&mut self, complaint: &str) {
        self.log_events();
        self.journal.log.record(Severity::Error, &format_args!("{complaint}"));
    }

    /// Looks at a new connection, before anything is said on it. A client with a number may wait for a device.
    pub(super) fn welcome(&mut self, stream: BorrowedFd<'_>, id: Option<WaiterId>) -> Client {
        let peer = Peer::told_by(&mut self.inquiry, stream);
        let mut session = match &peer {
            Ok(_) => Session::admit(self.identity.clone()),
            Err(stranger) => {
                let weight = Severity::Warning;
                self.journal.of_user(None, weight, format_args!("connection refused: {stranger}"));
                Session::refuse(self.identity.clone())
            }
        };
        if id.is_some() {
            session = session.offering_to_wait();
        }
        let id = id.unwrap_or(WaiterId(0));
        Client { session, peer, id, backoff: None, holder: None }
    }

    /// What is said to those there is no room or time for.
    pub(super) fn farewell(&self) -> String {
        Reply::Closing.encode(&self.identity)
    }

    /// Ends the session of a web browser: a web page can make it say anything.
    pub(super) fn dismiss_a_browser(&mut self, client: &mut Client) {
        let said = format_args!("the client is a web browser: session ended");
        self.journal.of_user(client.user(), Severity::Warning, said);
        client.session.dismiss();
    }

    /// Serves a demand, if the client may make it. None if the client has its answer.
    pub(super) fn change(
        &mut self,
        client: &mut Client,
        demand: Demand,
        now: Instant,
    ) -> Option<Phase> {
        let outcome = match demand {
            Demand::Lock(request) => {
                self.grant_taking(client, request).map(|granted| self.lock(client, granted))
            }
            Demand::Wait(request, seconds) => {
                let granted = self.grant_taking(client, request);
                if let Some((granted, names)) = granted.and_then(|it| self.named(it)) {
                    let (request, _) = granted.into_parts();
                    let time = Duration::from_secs(seconds.into());
                    client.holder = Some(self.table.machine().identify(request.pid));
                    let (user, now) = (client.user(), Instant::now());
                    self.queue.enter(client.id, names, request, user, time, now);
                    return Some(Phase::Waiting);
                }
                None
            }
            Demand::Unlock(Request { device, pid }) => self
                .grant(client, &device, |authority, peer, _| authority.released(peer, pid))
                .map(|pid| self.unlock(client, &Request { device, pid })),
            Demand::Force(Request { device, pid }) => self
                .grant(client, &device, |authority, peer, _| authority.forced(peer, pid))
                .map(|pid| self.force(client, &Request { device, pid })),
            Demand::Pass(Pass { device, from, to }) => {
                let right =
                    |authority: &Authority, peer: &Peer, _: &mut _| authority.released(peer, from);
                let from = self.grant(client, &device, right);
                let to = from.and_then(|_| self.grant_taking(client, Request { device, pid: to }));
                to.zip(from).map(|(granted, from)| self.pass(client, granted, from))
            }
        };
        match outcome.unwrap_or(Ok(Outcome::Denied)) {
            Ok(outcome) => {
                client.answer(outcome);
                None
            }
            Err(cause) => {
                let pause = client.under_way().pause(cause, now);
                Some(Phase::Retrying(now.checked_add(pause).unwrap_or(now)))
            }
        }
    }

    /// A right of the client's; the log says why it has none.
    fn grant<R>(
        &mut self,
        client: &Client,
        device: &DeviceName,
        right: impl FnOnce(&Authority, &Peer, &mut Table) -> Result<R, Refused>,
    ) -> Option<R> {
        let peer = client.peer.as_ref().ok()?;
        let granted = right(&self.authority, peer, &mut self.table);
        granted.map_err(|refused| self.tell_refused(peer, device, refused)).ok()
    }

    /// The right to a device of the process that the client names.
    fn grant_taking(&mut self, client: &Client, request: Request) -> Option<Granted> {
        let Request { device, pid } = request;
        self.grant(client, &device.clone(), |authority, peer, table| {
            let request = Request { device, pid: authority.meant(peer, pid)? };
            authority.grant_taking(peer, request, table)
        })
    }

    fn named(&self, granted: Granted) -> Option<(Granted, Names)> {
        self.table.names_of(granted.device()).map(|names| (granted, names))
    }

    /// No LOCK overtakes a waiter that could have the device now: waiters are tried before.
    fn lock(&mut self, client: &mut Client, granted: Granted) -> Result<Outcome, Cause> {
        let backoff = *client.under_way();
        let (real, now) = (granted.device().real(), Instant::now());
        if !self.queue.was_busy_since(real, backoff.asked(), now) {
            self.queue.wake(real, now);
            if !backoff.decides() {
                // The attempt for the waiter ends when the kernel's list has been read.
                let is_reading = self.queue.has_attempt_without_answer(real);
                return Err(if is_reading { Cause::Reading } else { Cause::Breaking });
            }
            self.journal.of_user(
                client.user(),
                Severity::Info,
                format_args!("{real} is busy: a client waits for it"),
            );
            return Ok(Outcome::Busy);
        }
        let answer = self.take(client.user(), granted, backoff);
        self.report_to_log(client, answer)
    }

    fn pass(&mut self, client: &mut Client, granted: Granted, from: Pid) -> Result<Outcome, Cause> {
        let (Request { pid: to, device: name }, device) = granted.into_parts();
        let kept = device.clone();
        let pass = Pass { device: name, from, to };
        let answer = self.table.attempt_pass(&pass, Some(device), *client.under_way());
        let outcome = self.report_to_log(client, answer);
        if matches!(outcome, Ok(Outcome::Done)) {
            self.ports.released(kept.real(), from);
            self.ports.locked(&kept, || self.table.machine().identify(to));
        }
        outcome
    }

    fn unlock(&mut self, client: &mut Client, request: &Request) -> Result<Outcome, Cause> {
        let answer = self.release(request, *client.under_way());
        self.report_to_log(client, answer)
    }

    /// The log names both users and the lock.
    fn force(&mut self, client: &mut Client, request: &Request) -> Result<Outcome, Cause> {
        let owner = pidlockfile::process::owner(request.pid);
        let outcome = self.unlock(client, request);
        if let (Ok(Outcome::Done), Ok(peer)) = (&outcome, &client.peer) {
            let from = owner.map(|uid| format!(" of uid {uid}")).unwrap_or_default();
            let (device, pid) = (request.device.as_str(), request.pid);
            self.journal.log.record(
                Severity::Warning,
                &format_args!("{peer}: took {device} from pid {pid}{from} by force"),
            );
        }
        outcome
    }

    /// Takes what was granted, at the very device that was judged.
    pub(super) fn take(
        &mut self,
        user: User,
        granted: Granted,
        backoff: Backoff,
    ) -> Result<Answer, Contended> {
        if self.is_one_too_many(user, &granted) {
            let text = "refused: too many locks of this user for processes that do not exist";
            let events = vec![Event { weight: Weight::Notice, text: text.to_owned() }];
            return Ok(Answer { outcome: Outcome::Denied, blocker: None, released: None, events });
        }
        let is_foreseen = granted.is_foreseen();
        let (request, device) = granted.into_parts();
        let kept = device.clone();
        let answer = self.table.attempt_lock(&request, Some(device), backoff);
        if matches!(answer, Ok(Answer { outcome: Outcome::Done, .. })) {
            self.ports.locked(&kept, || self.table.machine().identify(request.pid));
            self.foreseen.retain(|it| it.device.real() != kept.real());
            if is_foreseen {
                self.foreseen.push(Foreseen { user, request, device: kept });
            }
        }
        answer
    }

    /// Locks of processes that exist are counted by their records. Those of others have no user but the one who asks.
    fn is_one_too_many(&mut self, user: User, granted: &Granted) -> bool {
        let has_too_many = |foreseen: &[Foreseen]| {
            foreseen.iter().filter(|it| it.user == user).count() >= FORESEEN_PER_USER
        };
        if !granted.is_foreseen() || user == Some(0) || !has_too_many(&self.foreseen) {
            return false;
        }
        // Those that are gone by now do not count.
        self.foreseen.retain(|it| self.table.is_foreseen_for(&it.device, it.request.pid));
        has_too_many(&self.foreseen)
    }

    pub(super) fn release(
        &mut self,
        request: &Request,
        backoff: Backoff,
    ) -> Result<Answer, Contended> {
        self.ports.before_release(request, &mut self.table);
        let answer = self.table.attempt_unlock(request, backoff);
        if let Ok(Answer { released: Some(real), .. }) = &answer {
            self.ports.released(real, request.pid);
            self.foreseen.retain(|it| it.device.real() != real);
            self.queue.wake(real, Instant::now());
        }
        answer
    }

    /// Tries to take a device for one who waits for it. The client has its answer unless the
    /// outcome is busy.
    pub(super) fn attempt(&mut self, client: &mut Client, attempt: &Attempt) -> Outcome {
        // A day may have gone by since it was asked.
        let has_ended =
            client.holder.as_ref().is_some_and(|who| self.table.machine().has_ended(who));
        let granted = self.grant(client, &attempt.request.device, |authority, peer, table| {
            authority.grant_taking(peer, attempt.request.clone(), table)
        });
        let granted = granted.filter(|_| !has_ended);
        let Some((granted, names)) = granted.and_then(|it| self.named(it)) else {
            self.queue.tried(attempt, Outcome::Denied, None, Instant::now());
            client.answer(Outcome::Denied);
            return Outcome::Denied;
        };
        if names.real != *attempt.device {
            // The name that it waited for is another device now, and others wait for that.
            self.queue.change(attempt.waiter, names, Instant::now());
            return Outcome::Busy;
        }
        let answer = match self.take(client.user(), granted, *client.under_way()) {
            Ok(answer) => answer,
            Err(Contended { cause, .. }) => {
                client.under_way().pause(cause, Instant::now());
                self.queue.tried(attempt, Outcome::Busy, None, Instant::now());
                self.queue.has_no_answer_yet(attempt, Instant::now());
                return Outcome::Busy;
            }
        };
        // The next look is the next attempt.
        client.backoff = None;
        self.queue.tried(attempt, answer.outcome, answer.blocker.clone(), Instant::now());
        let outcome = answer.outcome;
        // Asked again and again, a busy one would fill the log.
        if outcome != Outcome::Busy {
            let _ = self.report_to_log(client, Ok(answer));
            client.answer(outcome);
        }
        outcome
    }

    fn tell_refused(&mut self, peer: &Peer, device: &DeviceName, refused: Refused) {
        match refused {
            Refused::Process(pid, refusal) => {
                let device = device.as_str();
                self.journal.of_user(
                    peer.uid(),
                    Severity::Notice,
                    format_args!("{peer}: refused to name process {pid} for {device}: {refusal}"),
                );
            }
            Refused::Device(answer) => self.journal.of_peer(peer, answer.events),
        }
    }

    /// Logs what happened, and returns what the client is told.
    fn report_to_log(
        &mut self,
        client: &Client,
        answer: Result<Answer, Contended>,
    ) -> Result<Outcome, Cause> {
        let (outcome, events) = match answer {
            Ok(Answer { outcome, events, .. }) => (Ok(outcome), events),
            Err(Contended { events, cause }) => (Err(cause), events),
        };
        if let Ok(peer) = &client.peer {
            self.journal.of_peer(peer, events);
        }
        outcome
    }

    /// A process is gone: what it held is for everybody.
    pub(super) fn process_gone(&mut self, pid: Pid) {
        self.ports.process_gone(pid, &mut self.table);
        self.journal.of_nobody(self.table.gone(pid));
        self.queue.process_gone(pid, Instant::now());
    }

    /// A process that has got a number with a lock keeps the lock if it may hold the port. A lock that it has taken
    /// itself is its own.
    pub(super) fn judge_the_newcomers(&mut self) {
        let lives = |lock: &Foreseen| pidlockfile::process::lives(lock.request.pid);
        let (came, absent) = std::mem::take(&mut self.foreseen).into_iter().partition(lives);
        self.foreseen = absent;
        for Foreseen { user, request, device } in came {
            if !self.table.is_foreseen_for(&device, request.pid) {
                continue;
            }
            let right = self.authority.grant_opener(request.clone(), device);
            let Err(refusal) = right else { continue };
            let now = Instant::now();
            if self.release(&request, Backoff::since(now).used_up(now)).is_ok() {
                let (device, pid) = (request.device.as_str(), request.pid);
                self.journal.of_user(
                    user,
                    Severity::Notice,
                    format_args!(
                        "released {device} of pid {pid}, which has started since: {refusal}"
                    ),
                );
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
        let Some(Survey { port, mut holders, is_complete }) = survey else {
            return client.session.report(None);
        };
        self.ports.add_openers(&mut holders, port.as_deref());
        let scope = if port.is_some() { Scope::Device } else { Scope::All };
        let waiter = |(device, request, user): (&str, &Request, Option<u32>)| Waiter {
            device: device.to_owned(),
            pid: request.pid,
            user,
        };
        let waiters: Vec<_> = self.queue.waiters(port.as_deref()).map(waiter).collect();
        let report = Report::new(scope, &holders, &waiters);
        client.session.report(Some(if is_complete { report } else { report.incomplete() }));
    }
}
