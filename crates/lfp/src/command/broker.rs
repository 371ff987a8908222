//! Who takes and releases locks for us: a service, or the files themselves. Says nothing to
//! people.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use pidlockfile::process;
use wrapcmd::{Signals, Woken};

use super::arguments::Route;
use super::listener;
use crate::client::{Address, Client, Error};
use crate::limits::WAIT_MAX_SECS;
use ttylock::device::node::follow;
use ttylock::device::os;
use ttylock::lock::table::{Places, Table};
use ttylock::lock::{Outcome, Request, Weight};

/// Why something is as it is, for people: one printable line.
pub(super) type Reason = String;

/// How long a service may take for one answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long and how often a service that went away is looked for while we wait for a lock.
const ABSENCE_PAUSE: Duration = Duration::from_millis(200);
const ABSENCES: u32 = 50;

/// How often a lock is asked for again where nobody tells us that it is free.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Whom we ask.
#[derive(Debug)]
pub(super) enum Broker {
    Service(Service),
    Files(Box<Files>),
}

/// A service, at the first of these addresses where there is one.
#[derive(Debug)]
pub(super) struct Service {
    addresses: Vec<Address>,
    choice: Choice,
    client: Option<Client>,
    queue: Queue,
}

/// The lock files, with what was said about the last request.
#[derive(Debug)]
pub(super) struct Files {
    table: Table,
    reasons: Vec<Reason>,
}

/// Whose choice the addresses are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// The user's: whoever is there is asked.
    Told,
    /// Ours: it must be somebody who may be the service.
    Usual,
}

/// Whether the service has WAIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Supposed,
    Missing,
}

/// No answer, and why.
#[derive(Debug)]
pub(super) enum Trouble {
    /// No service answers.
    Unreachable(Vec<Reason>),
}

/// What became of waiting.
#[derive(Debug)]
pub(super) enum Waited {
    Taken,
    Denied,
    TimedOut,
    Interrupted(Signal),
    Trouble(Trouble),
}

/// Where everything is on this machine.
pub(super) fn places() -> Places {
    let system = os::native();
    Places {
        system,
        dev_dir: PathBuf::from("/dev"),
        lock_dir: PathBuf::from(system.lock_dir),
        search_dirs: system.default_search_dirs(),
        state_dir: PathBuf::from("/run/lfpd"),
        udev_dir: PathBuf::from("/run/udev/data"),
    }
}

impl Broker {
    pub(super) fn new(route: &Route) -> Self {
        let (addresses, choice) = match route {
            Route::Direct => {
                let files = Files { table: Table::new(places()), reasons: Vec::new() };
                return Self::Files(Box::new(files));
            }
            Route::Server(address) => (vec![address.clone()], Choice::Told),
            Route::Usual => (Address::usual().to_vec(), Choice::Usual),
        };
        Self::Service(Service { addresses, choice, client: None, queue: Queue::Supposed })
    }

    pub(super) fn lock(&mut self, request: &Request) -> Result<Outcome, Trouble> {
        match self {
            Self::Files(files) => Ok(files.lock(request)),
            Self::Service(service) => {
                service.ask(|client| client.lock(&request.device, request.pid))
            }
        }
    }

    pub(super) fn unlock(&mut self, request: &Request) -> Result<Outcome, Trouble> {
        match self {
            Self::Files(files) => Ok(files.unlock(request)),
            Self::Service(service) => {
                service.ask(|client| client.unlock(&request.device, request.pid))
            }
        }
    }

    /// Keeps no connection open for what takes long.
    pub(super) fn hang_up(&mut self) {
        if let Self::Service(service) = self {
            service.client = None;
        }
    }

    /// LOCK, in turn, until the time is up; without `timeout`, for as long as it takes.
    pub(super) fn wait(
        &mut self,
        request: &Request,
        timeout: Option<Duration>,
        signals: Option<&Signals>,
    ) -> Waited {
        let deadline = timeout.and_then(|time| Instant::now().checked_add(time));
        let patient = timeout.is_none_or(|time| !time.is_zero());
        let mut wait =
            Wait { request, deadline, signals, reached: false, absences: 0, pause: FIRST_PAUSE };
        loop {
            let step = match self {
                Self::Service(service) if patient && service.queue == Queue::Supposed => {
                    wait.queue(service)
                }
                Self::Service(_) | Self::Files(_) => wait.try_again(self),
            };
            if let Some(waited) = step {
                return waited;
            }
        }
    }

    /// Why a request was denied, as far as can be told from here.
    pub(super) fn why_denied(&self, request: &Request) -> Vec<Reason> {
        match self {
            Self::Files(files) => files.reasons.clone(),
            Self::Service(_) => vec![supposed_reason(request)],
        }
    }
}

/// A service says "no" and nothing else; but most of what it looked at can be seen from here.
fn supposed_reason(Request { device, pid }: &Request) -> Reason {
    if follow(Path::new("/dev"), device).is_err() {
        return "the name leads out of /dev".to_owned();
    }
    let me = nix::unistd::geteuid();
    match process::owner(*pid) {
        Some(owner) if !me.is_root() && owner != me.as_raw() => {
            format!("process {pid} belongs to uid {owner}, and locks are for one's own processes")
        }
        _ => "the service may not write the lock directory, or does not know who we are: \
              its log says which"
            .to_owned(),
    }
}

impl Files {
    fn lock(&mut self, request: &Request) -> Outcome {
        // Who waits asks again and again, and another directory may be there by now.
        self.table.reopen();
        let answer = self.table.lock(request);
        self.told(answer)
    }

    fn unlock(&mut self, request: &Request) -> Outcome {
        let answer = self.table.unlock(request);
        self.told(answer)
    }

    fn told(&mut self, mut answer: ttylock::lock::Answer) -> Outcome {
        // The command that runs under the lock may do so for days.
        answer.events.extend(self.table.settle());
        let weighty = |weight| matches!(weight, Weight::Notice | Weight::Warning);
        self.reasons = answer
            .events
            .into_iter()
            .filter(|event| weighty(event.weight))
            .map(|event| event.text)
            .collect();
        answer.outcome
    }
}

impl Service {
    /// One question, on the connection there is or a new one.
    pub(super) fn ask<T>(
        &mut self,
        question: impl FnOnce(&mut Client) -> Result<T, Error>,
    ) -> Result<T, Trouble> {
        let client = self.client()?;
        question(client).map_err(|error| self.lost(&error))
    }

    fn client(&mut self) -> Result<&mut Client, Trouble> {
        let client = match self.client.take() {
            Some(client) => client,
            None => self.connect()?,
        };
        Ok(self.client.insert(client))
    }

    /// The next address is tried only where nobody listens: an answer, whatever it is, counts.
    fn connect(&self) -> Result<Client, Trouble> {
        let mut reasons = Vec::new();
        for address in &self.addresses {
            match Client::connect(address, PATIENCE) {
                Ok(client) => match self.doubt(&client, address) {
                    None => return Ok(client),
                    Some(doubt) => reasons.push(format!("{address}: {doubt}")),
                },
                Err(error) => {
                    reasons.push(format!("{address}: {error}"));
                    if !matches!(error, Error::Unreachable(_)) {
                        break;
                    }
                }
            }
        }
        Err(Trouble::Unreachable(reasons))
    }

    fn doubt(&self, client: &Client, address: &Address) -> Option<Reason> {
        match (self.choice, address) {
            (Choice::Told, _) => None,
            (Choice::Usual, Address::Tcp(address)) => listener::trusted_port(address.port()).err(),
            (Choice::Usual, Address::Unix(path)) => {
                let owner = client.listener().ok().flatten();
                listener::trusted_socket(path, owner).err()
            }
        }
    }

    fn lost(&mut self, error: &Error) -> Trouble {
        self.client = None;
        Trouble::Unreachable(vec![error.to_string()])
    }
}

/// One wait for one lock.
struct Wait<'a> {
    request: &'a Request,
    deadline: Option<Instant>,
    signals: Option<&'a Signals>,
    /// Whether the service was there at all.
    reached: bool,
    /// How often in a row it was not there any more.
    absences: u32,
    pause: Duration,
}

impl Wait<'_> {
    /// `None` without end.
    fn left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Waits in the service's queue. `None`: not decided yet.
    fn queue(&mut self, service: &mut Service) -> Option<Waited> {
        if let Some(signal) = self.signals.and_then(Signals::ending) {
            return Some(Waited::Interrupted(signal));
        }
        let seconds = seconds(self.left());
        let began = service.client().and_then(|client| {
            let began = client.begin_wait(&self.request.device, self.request.pid, seconds);
            began.map_err(|error| Trouble::Unreachable(vec![error.to_string()]))
        });
        if let Err(trouble) = began {
            service.client = None;
            return self.absent(trouble);
        }
        self.reached = true;
        let time = Duration::from_secs(seconds.into()).saturating_add(PATIENCE);
        let answer = match self.listen(service, Instant::now().checked_add(time)) {
            Ok(answer) => answer,
            Err(signal) => return Some(Waited::Interrupted(signal)),
        };
        match answer {
            Ok(Outcome::Done) => Some(Waited::Taken),
            Ok(Outcome::Denied) => Some(Waited::Denied),
            Ok(Outcome::Busy) => {
                self.absences = 0;
                self.left().filter(Duration::is_zero).map(|_| Waited::TimedOut)
            }
            Err(Error::Unsupported) => {
                service.queue = Queue::Missing;
                None
            }
            Err(error) => {
                let trouble = service.lost(&error);
                if error.is_passing() {
                    self.absent(trouble)
                } else {
                    Some(Waited::Trouble(trouble))
                }
            }
        }
    }

    /// The service's answer, unless a signal comes first.
    fn listen(
        &self,
        service: &mut Service,
        until: Option<Instant>,
    ) -> Result<Result<Outcome, Error>, Signal> {
        let Some(client) = service.client.as_mut() else { return Ok(Err(Error::Closed)) };
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let woken = match self.signals {
                Some(signals) => signals.pause(Some(client.as_fd()), left),
                None => wrapcmd::pause(Some(client.as_fd()), left),
            };
            if woken != Woken::Signal {
                return Ok(client.finish_wait());
            }
            if let Some(signal) = self.signals.and_then(Signals::ending) {
                // To hang up is to give up our place.
                service.client = None;
                return Err(signal);
            }
        }
    }

    /// The service is being restarted, perhaps; the lock is worth some patience.
    fn absent(&mut self, trouble: Trouble) -> Option<Waited> {
        if !self.reached {
            return Some(Waited::Trouble(trouble));
        }
        self.absences = self.absences.saturating_add(1);
        if self.left().is_some_and(|left| left.is_zero()) {
            return Some(Waited::TimedOut);
        }
        if self.absences > ABSENCES {
            return Some(Waited::Trouble(trouble));
        }
        self.rest(ABSENCE_PAUSE)
    }

    /// Asks once, and rests a while if it was in vain.
    fn try_again(&mut self, broker: &mut Broker) -> Option<Waited> {
        if let Some(signal) = self.signals.and_then(Signals::ending) {
            return Some(Waited::Interrupted(signal));
        }
        match broker.lock(self.request) {
            Ok(Outcome::Done) => return Some(Waited::Taken),
            Ok(Outcome::Denied) => return Some(Waited::Denied),
            Ok(Outcome::Busy) => {
                self.reached = true;
                self.absences = 0;
            }
            Err(trouble) => return self.absent(trouble),
        }
        if self.left().is_some_and(|left| left.is_zero()) {
            return Some(Waited::TimedOut);
        }
        let pause = self.pause;
        self.pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        self.rest(pause)
    }

    /// A pause that a signal ends.
    fn rest(&self, pause: Duration) -> Option<Waited> {
        let pause = self.left().map_or(pause, |left| left.min(pause));
        match self.signals {
            Some(signals) => {
                signals.pause(None, Some(pause));
                signals.ending().map(Waited::Interrupted)
            }
            None => {
                wrapcmd::pause(None, Some(pause));
                None
            }
        }
    }
}

/// What WAIT can be told: whole seconds, rounded up.
fn seconds(left: Option<Duration>) -> u32 {
    let left = left.map_or(WAIT_MAX_SECS.into(), |left| left.as_millis().div_ceil(1000));
    u32::try_from(left).unwrap_or(WAIT_MAX_SECS).min(WAIT_MAX_SECS)
}
