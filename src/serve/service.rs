//! Answers the questions of a session with the peer, the lock table, the queue of waiters, and the log. Reads
//! and writes no connection.

mod daemon;
mod exclusive;
mod foreseen;
mod opener;
mod rights;

use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use pidlockfile::Pid;
use ttylock::{
    Answer, Backoff, Contended, Contention, DeviceName, Event, Layout, Outcome, Pass, Request,
    Table,
};

use super::admission::User;
use super::authority::{Authority, Granted};
use super::client::{Client, Need};
use super::foreseen::Foreseen;
use super::log_budget::{LogBudget, Verdict};
use super::ports::{Exclusive, ExclusivePorts, OpenPorts};
use super::quota::Quota;
use super::status_worker::{self, Seen};
use super::waiting::Waiting;
use crate::limits::DEFERRED_MOST;
use crate::log::{Log, Severity};
use crate::peer::{Inquiry, Peer, Processes, Stranger};
use crate::protocol::command::Demand;
use crate::protocol::queue::WaiterId;
use crate::protocol::reply::{Identity, Reply, Version};
use crate::protocol::session::{Session, Step};
use crate::protocol::status::{Report, Scope, Waiter};

/// What all clients of one process share.
#[derive(Debug)]
pub(crate) struct Service {
    identity: Identity,
    authority: Authority,
    processes: Processes,
    table: Table,
    log: Log,
    /// What the log is still to be told.
    untold: Vec<(Severity, String)>,
    inquiry: Inquiry,
    waiting: Waiting,
    log_budget: LogBudget,
    quota: Quota,
    /// The processes that have ports open without a lock, where a daemon watches that.
    opens: Option<OpenPorts>,
    foreseen: Foreseen,
    wants_exclusive: Exclusive,
    exclusive: Option<ExclusivePorts>,
}

impl Service {
    /// A service under this host's name.
    #[must_use]
    pub(crate) fn new(version: Version, authority: Authority, table: Table, log: Log) -> Self {
        let host = nix::unistd::gethostname().unwrap_or_default();
        let identity = Identity::new(host.as_encoded_bytes(), version);
        let (inquiry, waiting) = (Inquiry::default(), Waiting::default());
        Self {
            identity,
            authority,
            processes: Processes::default(),
            table,
            log,
            untold: Vec::new(),
            inquiry,
            waiting,
            log_budget: LogBudget::default(),
            quota: Quota::default(),
            opens: None,
            foreseen: Foreseen::default(),
            wants_exclusive: Exclusive::Never,
            exclusive: None,
        }
    }

    /// Does beforehand what most requests need, while a client reads its greeting.
    pub(crate) fn prepare(&mut self) {
        self.table.prepare();
    }

    /// Whether there is anything to [`Service::flush`].
    #[must_use]
    pub(crate) fn has_deferred_work(&self) -> bool {
        self.deferred() > 0
    }

    fn deferred(&self) -> usize {
        self.untold.len()
    }

    /// However much is asked, so much is put off and no more.
    fn flush_if_much(&mut self) {
        if self.deferred() >= DEFERRED_MOST {
            self.flush();
        }
    }

    /// Opens all directories anew at the next request.
    pub(crate) fn reopen(&mut self) {
        self.table.reopen();
    }

    /// Does what no client need wait for: records and the log. To be called when there is
    /// nothing else to do, or [`crate::limits::FLUSH_AFTER`] after it became necessary.
    pub(crate) fn flush(&mut self) {
        let events = self.table.take_events();
        self.untold.extend(events.into_iter().map(|event| (event.weight.into(), event.text)));
        for (severity, line) in std::mem::take(&mut self.untold) {
            self.log.record(severity, &line);
        }
    }

    fn tell(&mut self, severity: Severity, line: fmt::Arguments<'_>) {
        if self.log.wants(severity) {
            self.untold.push((severity, line.to_string()));
        }
    }

    /// The same for what a user has caused. One user cannot bury the lines of others.
    fn tell_of(&mut self, user: User, severity: Severity, line: fmt::Arguments<'_>) {
        if !self.log.wants(severity) {
            return;
        }
        if let Verdict::Log(left_out) = self.log_budget.spend(user, Instant::now()) {
            if left_out > 0 {
                let uid = user.map_or_else(|| "an unknown user".to_owned(), |u| format!("uid {u}"));
                let line = format!("{left_out} lines about {uid} were left out");
                self.untold.push((Severity::Warning, line));
            }
            self.untold.push((severity, line.to_string()));
        }
    }

    /// Looks at a new connection, before anything is said on it.
    pub(crate) fn welcome(&mut self, stream: BorrowedFd<'_>) -> Client {
        self.admit(stream, WaiterId(0))
    }

    /// The same for one of many, each with a number of its own.
    pub(super) fn welcome_to_wait(&mut self, stream: BorrowedFd<'_>, id: WaiterId) -> Client {
        let client = self.admit(stream, id);
        Client { session: client.session.offering_to_wait(), ..client }
    }

    fn admit(&mut self, stream: BorrowedFd<'_>, id: WaiterId) -> Client {
        let peer = Peer::told_by(&mut self.inquiry, stream);
        let session = match &peer {
            Ok(_) => Session::admit(self.identity.clone()),
            Err(stranger) => {
                self.tell_of(
                    None,
                    Severity::Warning,
                    format_args!("connection refused: {stranger}"),
                );
                Session::refuse(self.identity.clone())
            }
        };
        Client { session, peer, id, backoff: Backoff::default(), asked: None, holder: None }
    }

    /// Tells the log why nothing can be served.
    pub(crate) fn complain(&mut self, complaint: &str) {
        self.flush();
        self.log.record(Severity::Error, &complaint);
    }

    /// What is said to those there is no room or time for.
    pub(super) fn farewell(&self) -> String {
        Reply::Closing.encode(&self.identity)
    }

    /// Goes on with a client until its connection has something to do. The bytes that are needed
    /// are taken off the front of `input`.
    pub(crate) fn attend(&mut self, client: &mut Client, input: &mut &[u8]) -> Need {
        // Of the demand that was judged in the step before.
        let mut right = None;
        loop {
            self.flush_if_much();
            match client.session.next(input) {
                Step::Send(line) => return Need::Send(line),
                Step::Receive => return Need::Receive,
                Step::Close => return Need::Close,
                Step::Status(device) => return Need::Status(device),
                Step::MayName(demand) => {
                    let (granted, to_device) = self.grant(&client.peer, demand).unzip();
                    right = to_device.flatten();
                    client.session.vouch(granted);
                }
                Step::Change(demand) => {
                    if let Some(need) = self.change(client, demand, right.take()) {
                        return need;
                    }
                }
                Step::Http => self.dismiss_a_browser(client),
            }
        }
    }

    /// Serves a demand that was granted. `None` if the client has its answer.
    fn change(
        &mut self,
        client: &mut Client,
        demand: Demand,
        right: Option<Granted>,
    ) -> Option<Need> {
        let answer = match demand {
            Demand::Lock(request) => match self.right(client, right, &request) {
                Some(granted) => self.lock(client, granted),
                None => Ok(Outcome::Denied),
            },
            Demand::Unlock(request) => {
                self.unlock(&client.peer, &request, client.backoff.contention())
            }
            Demand::Force(request) => self.force(client, &request),
            Demand::Pass(pass) => {
                let request = Request { device: pass.device.clone(), pid: pass.to };
                match self.right(client, right, &request) {
                    Some(granted) => self.pass(client, &pass, granted),
                    None => Ok(Outcome::Denied),
                }
            }
            Demand::Wait(request, seconds) => {
                let granted = self.right(client, right, &request);
                match granted.and_then(|granted| self.table.names_of(granted.device())) {
                    Some(names) => {
                        let time = Duration::from_secs(seconds.into());
                        client.holder = Some(self.table.machine().identify(request.pid));
                        let (user, now) = (client.user(), Instant::now());
                        self.waiting.enter(client.id, names, request, user, time, now);
                        return Some(Need::Wait);
                    }
                    None => Ok(Outcome::Denied),
                }
            }
        };
        client.take(answer).err().map(Need::Retry)
    }

    fn dismiss_a_browser(&mut self, client: &mut Client) {
        let said = format_args!("the client is a web browser: session ended");
        self.tell_of(client.user(), Severity::Warning, said);
        client.session.dismiss();
    }

    /// No LOCK overtakes a waiter that could have the device now: waiters are tried before.
    fn lock(&mut self, client: &mut Client, granted: Granted) -> Result<Outcome, Contended> {
        let contention = client.backoff.contention();
        let asked = *client.asked.get_or_insert_with(Instant::now);
        let real = granted.device().real();
        if !self.those_before_were_tried(real, asked) {
            if contention == Contention::ComesBack {
                return Err(Contended::default());
            }
            self.tell_of(
                client.user(),
                Severity::Info,
                format_args!("{real} is busy: a client waits for it"),
            );
            return Ok(Outcome::Busy);
        }
        if self.holds_too_many(client) {
            return Ok(Outcome::Denied);
        }
        let pid = granted.pid();
        let answer = self.take(client.user(), granted, contention, asked);
        let outcome = self.told(&client.peer, answer);
        self.note_holder(client, pid, &outcome);
        outcome
    }

    fn pass(
        &mut self,
        client: &Client,
        pass: &Pass,
        granted: Granted,
    ) -> Result<Outcome, Contended> {
        let (Request { pid: to, .. }, device) = granted.into_parts();
        let (pass, real) = (Pass { to, ..pass.clone() }, device.real().to_owned());
        let exclusive = self.may_become_exclusive(&device);
        let answer = self.table.attempt_pass(&pass, Some(device), client.backoff.contention());
        let outcome = self.told(&client.peer, answer);
        self.note_holder(client, to, &outcome);
        if matches!(outcome, Ok(Outcome::Done)) {
            self.forget_lock_of_opener(&real, pass.from);
            self.lock_has_ended(&real);
            let request = Request { device: pass.device, pid: to };
            self.locked_for(&request, exclusive.as_ref());
        }
        outcome
    }

    fn those_before_were_tried(&mut self, real: &str, asked: Instant) -> bool {
        let now = Instant::now();
        let queue = &mut self.waiting.queue;
        let tried = queue.is_empty() || queue.was_busy_since(real, asked, now);
        if !tried {
            queue.wake(real, now);
        }
        tried
    }

    fn unlock(
        &mut self,
        peer: &Result<Peer, Stranger>,
        request: &Request,
        contention: Contention,
    ) -> Result<Outcome, Contended> {
        self.before_release(request);
        let answer = self.table.attempt_unlock(request, contention);
        if let Ok(answer) = &answer {
            self.was_released(answer, request.pid);
        }
        self.told(peer, answer)
    }

    /// What follows the end of a lock that was this process's, if the answer tells of one.
    fn was_released(&mut self, answer: &Answer, pid: Pid) {
        let Some(real) = &answer.released else { return };
        self.lock_has_ended(real);
        self.forget_lock_of_opener(real, pid);
        self.waiting.queue.wake(real, Instant::now());
    }

    /// The log names both users and the lock.
    fn force(&mut self, client: &Client, request: &Request) -> Result<Outcome, Contended> {
        let owner = pidlockfile::process::owner(request.pid);
        let outcome = self.unlock(&client.peer, request, client.backoff.contention());
        if let (Ok(Outcome::Done), Ok(peer)) = (&outcome, &client.peer) {
            let from = owner.map(|uid| format!(" of uid {uid}")).unwrap_or_default();
            let (device, pid) = (request.device.as_str(), request.pid);
            self.tell(
                Severity::Warning,
                format_args!("{peer}: took {device} from pid {pid}{from} by force"),
            );
        }
        outcome
    }

    /// Finds the holders of a device, or of any: the answer to [`Need::Status`]. It takes a while, as
    /// every process of the machine is looked at.
    pub(crate) fn report(&mut self, client: &mut Client, device: Option<&DeviceName>) {
        let seen = status_worker::look(&mut self.table, device);
        self.report_seen(client, seen);
    }

    /// The same when somebody else has looked.
    pub(super) fn report_seen(&mut self, client: &mut Client, seen: Option<Seen>) {
        let Some(Seen { port, mut holders, is_complete }) = seen else {
            return client.session.report(None);
        };
        self.add_openers(&mut holders, port.as_deref());
        let scope = if port.is_some() { Scope::Device } else { Scope::All };
        let waiters = self.waiters(port.as_deref());
        let report = Report::new(scope, &holders, &waiters);
        client.session.report(Some(if is_complete { report } else { report.incomplete() }));
    }

    /// Where locks are, for callers that look by themselves.
    pub(super) fn layout(&self) -> &Layout {
        self.table.layout()
    }

    /// The waiters for a device, or for any.
    fn waiters(&self, real: Option<&str>) -> Vec<Waiter> {
        let waiters = self.waiting.queue.waiters(real);
        let waiter = |(device, request, user): (&str, &Request, Option<u32>)| Waiter {
            device: device.to_owned(),
            pid: request.pid,
            user,
        };
        waiters.map(waiter).collect()
    }

    /// Tells the log what happened, and returns what the client is told.
    fn told(
        &mut self,
        peer: &Result<Peer, Stranger>,
        answer: Result<Answer, Contended>,
    ) -> Result<Outcome, Contended> {
        let (outcome, events) = match answer {
            Ok(Answer { outcome, events, .. }) => (Ok(outcome), events),
            Err(Contended { events, cause }) => {
                (Err(Contended { events: Vec::new(), cause }), events)
            }
        };
        if let Ok(peer) = peer {
            self.tell_events(peer, events);
        }
        outcome
    }

    fn tell_events(&mut self, peer: &Peer, events: Vec<Event>) {
        for event in events {
            let weight = event.weight.into();
            self.tell_of(peer.uid(), weight, format_args!("{peer}: {}", event.text));
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.flush();
    }
}
