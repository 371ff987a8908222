//! Answers the requests of sessions from the peer, the lock table, the queue of waiters, and the log. Reads and writes
//! no connection.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use pidlockfile::Pid;
use ttylock::{
    Answer, Backoff, Cause, Contended, Contention, DeviceName, Outcome, Pass, Request,
    ResolvedDevice, Table,
};

use super::admission::User;
use super::authority::{Authority, Granted, Permitted, Refused};
use super::client::{Client, Delay};
use super::foreseen::{Foreseen, Lock};
use super::journal::Journal;
use super::ports::PortThreads;
use super::queue::{Attempt, Queue, WaiterId};
use super::quota::Quota;
use super::status_worker::{self, Seen};
use crate::limits::FILES_PER_USER;
use crate::log::{Log, Severity};
use crate::peer::{Inquiry, Peer, Processes};
use crate::protocol::command::Demand;
use crate::protocol::reply::{Identity, Reply, Version};
use crate::protocol::session::Session;
use crate::protocol::status::{Report, Scope, Waiter};

/// What all clients of one process share.
#[derive(Debug)]
pub(crate) struct Service {
    identity: Identity,
    pub(super) authority: Authority,
    pub(super) processes: Processes,
    pub(super) table: Table,
    pub(super) journal: Journal,
    inquiry: Inquiry,
    /// The clients that wait for a device.
    pub(super) queue: Queue,
    quota: Quota,
    pub(super) foreseen: Foreseen,
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
            processes: Processes::default(),
            table,
            journal: Journal::of(log),
            inquiry: Inquiry::default(),
            queue: Queue::default(),
            quota: Quota::default(),
            foreseen: Foreseen::default(),
            ports: PortThreads::default(),
        }
    }

    /// Logs what belongs to no request.
    pub(crate) fn log_events(&mut self) {
        self.journal.of_nobody(self.table.take_events());
    }

    /// Tells the log why nothing can be served.
    pub(crate) fn complain(&mut self, complaint: &str) {
        self.log_events();
        self.journal.record(Severity::Error, format_args!("{complaint}"));
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
        Client { session, peer, id, backoff: Backoff::default(), asked: None, holder: None }
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
    pub(super) fn change(&mut self, client: &mut Client, demand: Demand) -> Option<Delay> {
        let outcome = match self.grant(client, demand) {
            None => Ok(Outcome::Denied),
            Some(Permitted::Lock(granted)) => self.lock(client, granted),
            Some(Permitted::Unlock(request)) => self.unlock(client, &request),
            Some(Permitted::Force(request)) => self.force(client, &request),
            Some(Permitted::Pass(granted, from)) => self.pass(client, granted, from),
            Some(Permitted::Wait(granted, seconds)) => {
                match self.table.names_of(granted.device()) {
                    Some(names) => {
                        let (request, _) = granted.into_parts();
                        let time = Duration::from_secs(seconds.into());
                        client.holder = Some(self.table.machine().identify(request.pid));
                        let (user, now) = (client.user(), Instant::now());
                        self.queue.enter(client.id, names, request, user, time, now);
                        return Some(Delay::Waiting);
                    }
                    None => Ok(Outcome::Denied),
                }
            }
        };
        client.take(outcome).err().map(Delay::Retry)
    }

    fn grant(&mut self, client: &Client, demand: Demand) -> Option<Permitted> {
        let peer = client.peer.as_ref().ok()?;
        let device = demand.device().clone();
        let granted = self.authority.grant(&mut self.processes, peer, demand, &mut self.table);
        granted.map_err(|refused| self.tell_refused(peer, &device, refused)).ok()
    }

    /// No LOCK overtakes a waiter that could have the device now: waiters are tried before.
    fn lock(&mut self, client: &mut Client, granted: Granted) -> Result<Outcome, Contended> {
        let contention = client.backoff.contention();
        let asked = *client.asked.get_or_insert_with(Instant::now);
        let (real, now) = (granted.device().real(), Instant::now());
        if !self.queue.was_busy_since(real, asked, now) {
            self.queue.wake(real, now);
            if contention == Contention::ComesBack {
                return Err(Contended::default());
            }
            self.journal.of_user(
                client.user(),
                Severity::Info,
                format_args!("{real} is busy: a client waits for it"),
            );
            return Ok(Outcome::Busy);
        }
        if self.holds_too_many(client) {
            return Ok(Outcome::Denied);
        }
        let answer = self.take(client.user(), granted, contention, asked);
        self.report_to_log(client, answer)
    }

    fn pass(&mut self, client: &Client, granted: Granted, from: Pid) -> Result<Outcome, Contended> {
        let (Request { pid: to, device: name }, device) = granted.into_parts();
        let kept = device.clone();
        let pass = Pass { device: name, from, to };
        let answer = self.table.attempt_pass(&pass, Some(device), client.backoff.contention());
        let outcome = self.report_to_log(client, answer);
        if matches!(outcome, Ok(Outcome::Done)) {
            self.ports.released(kept.real(), from);
            self.has_lock(client.user(), to, &kept);
        }
        outcome
    }

    fn unlock(&mut self, client: &Client, request: &Request) -> Result<Outcome, Contended> {
        let answer = self.release(request, client.backoff.contention());
        self.report_to_log(client, answer)
    }

    /// The log names both users and the lock.
    fn force(&mut self, client: &Client, request: &Request) -> Result<Outcome, Contended> {
        let owner = pidlockfile::process::owner(request.pid);
        let outcome = self.unlock(client, request);
        if let (Ok(Outcome::Done), Ok(peer)) = (&outcome, &client.peer) {
            let from = owner.map(|uid| format!(" of uid {uid}")).unwrap_or_default();
            let (device, pid) = (request.device.as_str(), request.pid);
            self.journal.record(
                Severity::Warning,
                format_args!("{peer}: took {device} from pid {pid}{from} by force"),
            );
        }
        outcome
    }

    /// Takes what was granted, at the very device that was judged.
    pub(super) fn take(
        &mut self,
        user: User,
        granted: Granted,
        contention: Contention,
        asked: Instant,
    ) -> Result<Answer, Contended> {
        let is_foreseen = granted.is_foreseen();
        let (request, device) = granted.into_parts();
        let kept = device.clone();
        let answer = self.table.attempt_lock(&request, Some(device), contention, asked);
        if matches!(answer, Ok(Answer { outcome: Outcome::Done, .. })) {
            self.has_lock(user, request.pid, &kept);
            if is_foreseen {
                let files = self.table.names_of(&kept).map_or(1, |names| names.written);
                self.foreseen.note(Lock { user, request, device: kept, files });
            }
        }
        answer
    }

    /// A process has got a lock that this user asked for.
    fn has_lock(&mut self, user: User, pid: Pid, device: &ResolvedDevice) {
        let Self { table, ports, quota, .. } = self;
        ports.locked(device, || table.machine().identify(pid));
        // A session watches no process, and need not identify this one.
        if !table.watched().is_empty() {
            let who = table.machine().identify(pid);
            if table.watched().count_of(&who) > 0 {
                quota.note(user, who);
            }
        }
    }

    pub(super) fn release(
        &mut self,
        request: &Request,
        contention: Contention,
    ) -> Result<Answer, Contended> {
        self.ports.before_release(request, &mut self.table);
        let answer = self.table.attempt_unlock(request, contention);
        if let Ok(Answer { released: Some(real), .. }) = &answer {
            self.ports.released(real, request.pid);
            self.queue.wake(real, Instant::now());
        }
        answer
    }

    fn holds_too_many(&mut self, client: &Client) -> bool {
        let (user, table) = (client.user(), &mut self.table);
        let held = self.quota.files(user, |who| table.watched().count_of(who));
        let room = FILES_PER_USER.saturating_sub(held);
        if self.foreseen.files(user) >= room {
            // Those that are gone by now do not count.
            self.foreseen.retain(|lock| table.is_locked_for(&lock.device, lock.request.pid));
        }
        let foreseen = if user == Some(0) { 0 } else { self.foreseen.files(user) };
        if foreseen < room {
            return false;
        }
        let files = held.saturating_add(foreseen);
        self.journal.of_user(
            user,
            Severity::Notice,
            format_args!("refused: the processes of this user already have {files} lock files"),
        );
        true
    }

    /// Tries to take a device for one who waits for it. The client has its answer unless the
    /// outcome is busy.
    pub(super) fn attempt(&mut self, client: &mut Client, attempt: &Attempt) -> Outcome {
        // A day may have gone by since it was asked.
        let has_ended =
            client.holder.as_ref().is_some_and(|who| self.table.machine().has_ended(who));
        let granted = self.grant_again(client, &attempt.request).filter(|_| !has_ended);
        let names = granted.as_ref().and_then(|it| self.table.names_of(it.device()));
        let (Some(granted), Some(names), false) = (granted, names, self.holds_too_many(client))
        else {
            self.queue.tried(attempt, Outcome::Denied, None, Instant::now());
            client.answer(Outcome::Denied);
            return Outcome::Denied;
        };
        if names.real != *attempt.device {
            // The name that it waited for is another device now, and others wait for that.
            self.queue.change(attempt.waiter, names, Instant::now());
            return Outcome::Busy;
        }
        // The next look is the next attempt.
        let asked = client.asked.take().unwrap_or_else(Instant::now);
        let answer = self.take(client.user(), granted, Contention::Decides, asked);
        let is_pending = matches!(&answer, Err(it) if it.cause == Cause::Reading);
        let blocker = answer.as_ref().ok().and_then(|answer| answer.blocker.clone());
        let outcome = match answer {
            // Asked again and again, it would fill the log.
            Ok(Answer { outcome: Outcome::Busy, .. }) | Err(_) => Outcome::Busy,
            Ok(answer) => self.report_to_log(client, Ok(answer)).unwrap_or(Outcome::Busy),
        };
        self.queue.tried(attempt, outcome, blocker, Instant::now());
        if is_pending {
            client.asked = Some(asked);
            self.queue.wake(&attempt.device, Instant::now());
        }
        if outcome != Outcome::Busy {
            client.answer(outcome);
        }
        outcome
    }

    /// The right to what was granted before, for another attempt.
    fn grant_again(&mut self, client: &Client, request: &Request) -> Option<Granted> {
        let peer = client.peer.as_ref().ok()?;
        let Self { authority, processes, table, .. } = self;
        let granted = authority.grant_taking(processes, peer, request.clone(), table);
        granted.map_err(|refused| self.tell_refused(peer, &request.device, refused)).ok()
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
    ) -> Result<Outcome, Contended> {
        let (outcome, events) = match answer {
            Ok(Answer { outcome, events, .. }) => (Ok(outcome), events),
            Err(Contended { events, cause }) => {
                (Err(Contended { events: Vec::new(), cause }), events)
            }
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

    /// A process that has got a number with a lock keeps the lock if it may hold the port.
    pub(super) fn judge_the_newcomers(&mut self) {
        let came = self.foreseen.take(|lock| pidlockfile::process::lives(lock.request.pid));
        for Lock { user, request, device, .. } in came {
            let right = self.authority.grant_opener(&mut self.processes, request.clone(), device);
            let Err(refusal) = right else { continue };
            if self.release(&request, Contention::Decides).is_ok() {
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

    /// Finds the holders of a device, or of any: the answer to STAT. It takes a while, as every process of the machine
    /// is looked at.
    pub(super) fn report(&mut self, client: &mut Client, device: Option<&DeviceName>) {
        let seen = status_worker::look(&mut self.table, device);
        self.report_seen(client, seen);
    }

    /// The same when somebody else has looked.
    pub(super) fn report_seen(&mut self, client: &mut Client, seen: Option<Seen>) {
        let Some(Seen { port, mut holders, is_complete }) = seen else {
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
