//! Takes and releases locks for `lfp`, through a service or by the files themselves. Prints nothing.

use std::time::Duration;

use super::arguments::Route;
use super::denial::{Reason, nobodys, supposed_reason, wrong_device};
use super::listener;
use crate::client::route::{WithoutService, without_service};
use crate::client::{Address, COMPLAINT_PATIENCE, Client, Error, PATIENCE};
use ttylock::{DeviceName, Holder, Layout, Outcome, Pass, Request, Table, Weight};

/// What is asked: a service, or the lock files.
#[derive(Debug)]
pub(super) enum Broker {
    Service(Box<Service>),
    Files(Box<Files>),
}

/// A service, at the first of these addresses where there is one.
#[derive(Debug)]
pub(super) struct Service {
    addresses: Vec<Address>,
    choice: Choice,
    pub(super) client: Option<Client>,
    pub(super) queue: Queue,
    patience: Duration,
}

/// The lock files, with what was said about the last request.
#[derive(Debug)]
pub(super) struct Files {
    table: Table,
    reasons: Vec<Reason>,
}

/// Where the addresses come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// The user named them: any listener there is asked.
    Told,
    /// Our defaults: the listener must be one that may be the service.
    Usual,
}

/// Whether the service has WAIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    Supposed,
    Missing,
}

/// No answer, and why.
#[derive(Debug)]
pub(super) enum Trouble {
    /// There is no service at the usual addresses.
    Nobody(Vec<Reason>),
    /// The service cannot be reached, or what is there is none.
    Unreachable(Vec<Reason>),
    /// There is one that says nothing in time.
    Silent(Vec<Reason>),
}

impl Trouble {
    pub(super) fn of(error: &Error, reasons: Vec<Reason>) -> Self {
        if matches!(error, Error::TimedOut) {
            Self::Silent(reasons)
        } else {
            Self::Unreachable(reasons)
        }
    }

    /// Whether the lock files are used instead of the service.
    pub(super) fn leaves_lock_files(&self) -> bool {
        matches!(self, Self::Nobody(_)) && without_service(&layout()) == WithoutService::LockFiles
    }

    pub(super) fn reasons(self) -> Vec<Reason> {
        match self {
            Self::Nobody(reasons) | Self::Unreachable(reasons) | Self::Silent(reasons) => reasons,
        }
    }
}

/// Where everything is on this machine.
pub(super) fn layout() -> Layout {
    Layout::native()
}

impl Broker {
    pub(super) fn new(route: &Route) -> Self {
        Self::within(route, PATIENCE)
    }

    /// One whose service may take so long for each answer.
    pub(super) fn within(route: &Route, patience: Duration) -> Self {
        let (addresses, choice) = match route {
            Route::Direct => {
                return Self::Files(Box::new(Files::new()));
            }
            Route::Server(address) => (vec![address.clone()], Choice::Told),
            Route::Usual => (Address::usual().to_vec(), Choice::Usual),
        };
        let queue = Queue::Supposed;
        Self::Service(Box::new(Service { addresses, choice, client: None, queue, patience }))
    }

    /// From now on the service may take so long for each answer.
    pub(super) fn be_patient(&mut self, patience: Duration) {
        if let Self::Service(service) = self {
            service.be_patient(patience);
        }
    }

    pub(super) fn lock(&mut self, request: &Request) -> Result<Outcome, Trouble> {
        self.ask(|client| client.lock(&request.device, request.pid), |files| files.lock(request))
    }

    pub(super) fn unlock(&mut self, request: &Request) -> Result<Outcome, Trouble> {
        self.ask(
            |client| client.unlock(&request.device, request.pid),
            |files| files.unlock(request),
        )
    }

    /// The service, or the files.
    fn ask(
        &mut self,
        question: impl FnOnce(&mut Client) -> Result<Outcome, Error>,
        deed: impl FnOnce(&mut Files) -> Outcome,
    ) -> Result<Outcome, Trouble> {
        let answer = match self {
            Self::Files(files) => return Ok(deed(files)),
            Self::Service(service) => service.ask(question),
        };
        match answer {
            Err(trouble) if trouble.leaves_lock_files() => {
                let mut files = Files::new();
                let outcome = deed(&mut files);
                *self = Self::Files(Box::new(files));
                Ok(outcome)
            }
            answer => answer,
        }
    }

    /// Releases the lock of another user's process, for users that may do so.
    pub(super) fn force(&mut self, request: &Request) -> Result<Outcome, Trouble> {
        self.ask(|client| client.force(&request.device, request.pid), |files| files.unlock(request))
    }

    /// Whether waiting processes can be seen: only a service has a queue. Known after the first request.
    pub(super) fn has_line(&self) -> bool {
        matches!(self, Self::Service(service) if service.queue == Queue::Supposed)
    }

    /// Whether surely no service is there, which alone has a queue. Waits for it as long as for an answer.
    pub(super) fn lacks_service(&mut self) -> bool {
        match self {
            Self::Files(_) => true,
            Self::Service(service) => matches!(service.client(), Err(Trouble::Nobody(_))),
        }
    }

    /// Whether somebody stands in the service's line for a device.
    pub(super) fn is_waited_for(&mut self, device: &DeviceName) -> bool {
        let Self::Service(service) = self else { return false };
        let waiters = service.ask(|client| client.waiters(Some(device)));
        waiters.is_ok_and(|waiters| !waiters.is_empty())
    }

    /// Hands a lock over. Why it was not permitted is told for the receiver.
    pub(super) fn pass(&mut self, pass: &Pass) -> Result<Outcome, Trouble> {
        self.ask(
            |client| client.pass(&pass.device, pass.from, pass.to),
            |files| {
                let answer = files.table.pass(pass);
                files.told(answer)
            },
        )
    }

    /// The holders of a device, as the service sees them, for complaints: a service that does not answer in
    /// a moment is not waited for.
    pub(super) fn holders(&mut self, device: &DeviceName) -> Vec<Holder> {
        let Self::Service(service) = self else { return Vec::new() };
        let patience = service.patience;
        service.be_patient(patience.min(COMPLAINT_PATIENCE));
        let holders = service.ask(|client| client.status(Some(device))).unwrap_or_default();
        service.be_patient(patience);
        holders
    }

    /// Keeps no connection open for what takes long.
    pub(super) fn hang_up(&mut self) {
        if let Self::Service(service) = self {
            service.client = None;
        }
    }

    /// Why a request was denied, as far as can be told from here.
    pub(super) fn why_denied(&self, request: &Request) -> Vec<Reason> {
        match self {
            Self::Files(files) if files.reasons.is_empty() => {
                nobodys(request.pid).into_iter().collect()
            }
            Self::Files(files) => files.reasons.clone(),
            Self::Service(_) => vec![supposed_reason(request)],
        }
    }
}

impl Files {
    fn new() -> Self {
        Self { table: Table::new(layout()), reasons: Vec::new() }
    }

    fn lock(&mut self, request: &Request) -> Outcome {
        if let Some(reason) = wrong_device(&request.device) {
            self.reasons = vec![reason];
            return Outcome::Denied;
        }
        // A waiter asks again and again, and another directory may be there by now.
        self.table.reopen();
        let answer = self.table.lock(request);
        self.told(answer)
    }

    fn unlock(&mut self, request: &Request) -> Outcome {
        let answer = self.table.unlock(request);
        self.told(answer)
    }

    fn told(&mut self, answer: ttylock::Answer) -> Outcome {
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

    pub(super) fn be_patient(&mut self, patience: Duration) {
        self.patience = patience;
        if let Some(client) = &mut self.client {
            client.be_patient(patience);
        }
    }

    pub(super) fn client(&mut self) -> Result<&mut Client, Trouble> {
        let client = match self.client.take() {
            Some(client) => client,
            None => self.connect()?,
        };
        Ok(self.client.insert(client))
    }

    /// The next address is tried only if nothing listens: any answer counts.
    fn connect(&self) -> Result<Client, Trouble> {
        let mut reasons = Vec::new();
        let mut nobody = self.choice == Choice::Usual;
        for address in &self.addresses {
            match Client::connect(address, self.patience) {
                Ok(client) => match self.doubt(&client, address) {
                    None => return Ok(client),
                    Some(doubt) => {
                        nobody = false;
                        reasons.push(format!("{address}: {doubt}"));
                    }
                },
                Err(error) => {
                    nobody &= error.is_absence();
                    reasons.push(format!("{address}: {error}"));
                    if !matches!(error, Error::Unreachable(_)) {
                        return Err(Trouble::of(&error, reasons));
                    }
                }
            }
        }
        Err(if nobody { Trouble::Nobody(reasons) } else { Trouble::Unreachable(reasons) })
    }

    fn doubt(&self, client: &Client, address: &Address) -> Option<Reason> {
        match self.choice {
            Choice::Told => None,
            Choice::Usual => listener::doubt(address, client.listener().ok().flatten()),
        }
    }

    pub(super) fn lost(&mut self, error: &Error) -> Trouble {
        self.client = None;
        Trouble::of(error, vec![error.to_string()])
    }
}
