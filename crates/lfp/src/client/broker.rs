//! Takes and releases locks: at the service, or else in the lock files. One rule for the command and the library.
//!
//! A service that is there is never passed by, even if it is busy, or if its listener cannot be trusted.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat};
use ttylock::{Answer, DeviceName, Event, Holder, Layout, Outcome, Request, Table, Weight, follow};

use super::{Address, Client, Error, PATIENCE};
use crate::limits::COMPLAINT_SEARCH;

/// Character device 1:3. Source: null(4).
const NULL: u64 = 0x103;

/// What the user wants to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The service, wherever it usually is; without one, the lock files.
    Usual,
    /// This service and no other: any listener there is asked.
    Server(Address),
    /// The files themselves.
    Direct,
}

/// What is asked: a service, or the lock files.
#[derive(Debug)]
pub(crate) enum Broker {
    Service(Box<Service>),
    Files(Box<Files>),
}

/// A service, at the first of the route's addresses where there is one.
#[derive(Debug)]
pub(crate) struct Service {
    route: Route,
    layout: Layout,
    pub(crate) client: Option<Client>,
    /// Whether it has WAIT, as far as is known.
    pub(crate) has_queue: bool,
    patience: Duration,
    /// Whether it may have taken a lock for the last request, without our having heard of it.
    pub(crate) may_have_taken: bool,
}

/// The lock files, with what was said about the last request.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) table: Table,
    pub(crate) reasons: Vec<String>,
}

/// No answer: what went wrong at which address.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) failures: Vec<(Address, Error)>,
    /// There is no service at the usual addresses.
    pub(crate) is_absence: bool,
}

impl Trouble {
    fn at(route: &Route, failures: Vec<(Address, Error)>) -> Self {
        let is_absence = failures.iter().all(|(_, error)| error.is_absence());
        Self { is_absence: *route == Route::Usual && is_absence, failures }
    }

    /// A service is there that gives no reply in time.
    #[cfg(feature = "cli")]
    pub(crate) fn is_silence(&self) -> bool {
        self.failures.iter().any(|(_, error)| matches!(error, Error::TimedOut))
    }

    /// The failure that advice is for: where a service is there and busy, it is not to be started.
    pub(crate) fn foremost(&self) -> usize {
        self.failures.iter().position(|(_, error)| error.is_busy()).unwrap_or_default()
    }
}

impl Broker {
    pub(crate) fn new(route: &Route) -> Self {
        Self::within(route, Layout::native(), PATIENCE)
    }

    /// One whose service may take so long for each answer.
    pub(crate) fn within(route: &Route, layout: Layout, patience: Duration) -> Self {
        if *route == Route::Direct {
            return Self::Files(Box::new(Files::new(layout)));
        }
        Self::Service(Box::new(Service {
            route: route.clone(),
            layout,
            client: None,
            has_queue: true,
            patience,
            may_have_taken: false,
        }))
    }

    /// Locks in turn within this time, of which a service counts whole seconds. The files are asked once, and so is a
    /// service where there is less than a second, or that has no queue.
    pub(crate) fn lock_within(
        &mut self,
        request: &Request,
        time: Duration,
    ) -> Result<Outcome, Trouble> {
        self.either(|service| service.lock_within(request, time), |files| files.lock(request))
    }

    pub(crate) fn unlock(&mut self, request: &Request) -> Result<Outcome, Trouble> {
        self.ask(
            |client| client.unlock(&request.device, request.pid),
            |files| files.unlock(request),
        )
    }

    pub(crate) fn ask(
        &mut self,
        question: impl FnOnce(&mut Client) -> Result<Outcome, Error>,
        deed: impl FnOnce(&mut Files) -> Outcome,
    ) -> Result<Outcome, Trouble> {
        self.either(|service| service.ask(question), deed)
    }

    /// The answer of the service, or what the files give without one.
    fn either(
        &mut self,
        question: impl FnOnce(&mut Service) -> Result<Outcome, Trouble>,
        deed: impl FnOnce(&mut Files) -> Outcome,
    ) -> Result<Outcome, Trouble> {
        let layout = match self {
            Self::Files(files) => return Ok(deed(files)),
            Self::Service(service) => match question(service) {
                Err(trouble) if service.leaves_lock_files(&trouble) => service.layout.clone(),
                answer => return answer,
            },
        };
        let mut files = Files::new(layout);
        let outcome = deed(&mut files);
        *self = Self::Files(Box::new(files));
        Ok(outcome)
    }

    /// The holders of a device, as the service or the files show them, for complaints: a service that does not answer in
    /// a moment is not waited for.
    pub(crate) fn holders(&mut self, device: &DeviceName) -> Vec<Holder> {
        let service = match self {
            Self::Files(files) => {
                return files.table.holders(Some(device), COMPLAINT_SEARCH).holders;
            }
            Self::Service(service) => service,
        };
        let patience = service.patience;
        service.be_patient(patience.min(COMPLAINT_SEARCH));
        let holders = service.ask(|client| client.status(Some(device))).unwrap_or_default();
        service.be_patient(patience);
        holders
    }

    /// Keeps no connection open for what takes long.
    pub(crate) fn hang_up(&mut self) {
        if let Self::Service(service) = self {
            service.client = None;
        }
    }

    /// What was said about the last request. A service says nothing.
    pub(crate) fn reasons(&self) -> Vec<String> {
        match self {
            Self::Service(_) => Vec::new(),
            Self::Files(files) => files.reasons.clone(),
        }
    }
}

impl Files {
    fn new(layout: Layout) -> Self {
        Self { table: Table::new(layout).keeping_unrecorded(), reasons: Vec::new() }
    }

    fn lock(&mut self, request: &Request) -> Outcome {
        if let Some(reason) = wrong_device(&request.device) {
            self.reasons = vec![reason];
            return Outcome::Denied;
        }
        // A waiter asks again and again, and another directory may be there by now.
        self.table.reopen();
        let answer = self.table.lock(request);
        self.outcome_of(answer)
    }

    pub(crate) fn unlock(&mut self, request: &Request) -> Outcome {
        let answer = self.table.unlock(request);
        self.outcome_of(answer)
    }

    /// Keeps the events that say why a lock was denied.
    pub(crate) fn outcome_of(&mut self, answer: Answer) -> Outcome {
        let outcome = answer.outcome();
        let is_weighty = |event: &Event| matches!(event.weight, Weight::Notice | Weight::Warning);
        let events = answer.events.into_iter().filter(is_weighty);
        self.reasons = events.map(|event| event.text).collect();
        outcome
    }
}

impl Service {
    fn lock_within(
        &mut self,
        Request { device, pid }: &Request,
        time: Duration,
    ) -> Result<Outcome, Trouble> {
        let whole = Duration::from_secs(time.as_secs());
        if self.has_queue && !whole.is_zero() {
            let answer = self.ask(|client| match client.wait(device, *pid, whole) {
                Err(Error::Unsupported) => Ok(None),
                answer => answer.map(Some),
            })?;
            match answer {
                Some(outcome) => return Ok(outcome),
                None => self.has_queue = false,
            }
        }
        self.ask(|client| client.lock(device, *pid))
    }

    /// One question, on the connection there is or a new one.
    pub(crate) fn ask<T>(
        &mut self,
        question: impl FnOnce(&mut Client) -> Result<T, Error>,
    ) -> Result<T, Trouble> {
        self.client()?;
        self.hear(question).map_err(|error| self.lost(error))
    }

    /// What the service says on the connection there is.
    pub(crate) fn hear<T>(
        &mut self,
        question: impl FnOnce(&mut Client) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let answer = self.client.as_mut().map_or(Err(Error::Closed), question);
        self.may_have_taken = answer.as_ref().is_err_and(Error::leaves_in_doubt);
        answer
    }

    pub(crate) fn be_patient(&mut self, patience: Duration) {
        self.patience = patience;
        if let Some(client) = &mut self.client {
            client.be_patient(patience);
        }
    }

    pub(crate) fn client(&mut self) -> Result<&mut Client, Trouble> {
        let client = match self.client.take() {
            Some(client) => client,
            None => self.connect()?,
        };
        Ok(self.client.insert(client))
    }

    /// The next address is tried only if nothing listens: any answer counts.
    fn connect(&self) -> Result<Client, Trouble> {
        let mut failures = Vec::new();
        let connect = |address: &Address| Client::connect(address, self.patience);
        let (addresses, is_usual) = match &self.route {
            Route::Server(address) => (vec![address.clone()], false),
            Route::Usual | Route::Direct => (Address::usual().to_vec(), true),
        };
        for address in addresses {
            let client = connect(&address);
            match if is_usual { client.and_then(Client::of_a_service) } else { client } {
                Ok(client) => return Ok(client),
                Err(error) => {
                    let is_last = !matches!(error, Error::Unreachable(_) | Error::Untrusted(_));
                    failures.push((address, error));
                    if is_last {
                        break;
                    }
                }
            }
        }
        Err(Trouble::at(&self.route, failures))
    }

    /// Whether the lock files are used instead of the service: this user may write the lock directory, as all users may
    /// on Debian.
    pub(crate) fn leaves_lock_files(&self, trouble: &Trouble) -> bool {
        let may_write =
            || faccessat(AT_FDCWD, &self.layout.lock_dir, AccessFlags::W_OK, AtFlags::AT_EACCESS);
        trouble.is_absence && may_write().is_ok()
    }

    pub(crate) fn lost(&mut self, error: Error) -> Trouble {
        let client = self.client.take();
        let address = client.map_or_else(Address::default, |client| client.address);
        Trouble::at(&self.route, vec![(address, error)])
    }
}

/// What to do about an answer that did not come, as far as that is known.
pub(crate) fn advice(address: &Address, error: &Error) -> Option<String> {
    if error.is_absence() {
        Some(how_to_start(address))
    } else if error.is_busy() {
        Some(how_to_restart(address))
    } else {
        None
    }
}

/// The command that starts the service there.
pub(crate) fn how_to_start(address: &Address) -> String {
    let is_usual = Address::usual().contains(address) && is_systemd_here();
    let command = match address {
        Address::Unix(_) if is_usual => "sudo systemctl enable --now lfpd-unix.socket",
        Address::Tcp(_) if is_usual => "sudo systemctl enable --now lfpd.socket",
        Address::Unix(_) | Address::Tcp(_) => "see EXAMPLES in lfpd(8)",
    };
    format!("to start the service: {command}")
}

/// A restart loses no lock.
fn how_to_restart(address: &Address) -> String {
    let command = if *address == Address::default() && is_systemd_here() {
        "restart it: sudo systemctl restart lfpd-unix.service"
    } else {
        "restart the service"
    };
    format!("it is busy or hangs; if this goes on, {command}")
}

/// Source: sd_booted(3).
fn is_systemd_here() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// Why there is nothing to lock: what is there is no serial port, or lies elsewhere.
pub(crate) fn wrong_device(device: &DeviceName) -> Option<String> {
    if follow(Path::new("/dev"), device).is_err() {
        return Some("the name leads out of /dev".to_owned());
    }
    let node = node(device)?;
    let kind = node.file_type();
    let is = match kind {
        _ if node.rdev() == NULL && kind.is_char_device() => "the null device, not a serial port",
        _ if kind.is_char_device() => return None,
        _ if kind.is_dir() => "a directory, not a serial port",
        _ if kind.is_block_device() => "a block device such as a disk, not a serial port",
        _ => "not a device",
    };
    Some(format!("it is {is}"))
}

pub(crate) fn node(device: &DeviceName) -> Option<Metadata> {
    path(device).metadata().ok()
}

pub(crate) fn path(device: &DeviceName) -> PathBuf {
    Path::new("/dev").join(device.below_dev())
}

#[cfg(test)]
mod tests {
    use std::io;

    use rstest::rstest;

    use super::*;
    use crate::client::LockError;

    /// There is no socket, and the service on TCP hangs: it need not be started.
    #[test]
    fn the_error_is_that_of_the_service_that_is_there() {
        let [socket, tcp] = Address::usual();
        let absent = Error::Unreachable(io::ErrorKind::NotFound.into());
        let failures = vec![(socket, absent), (tcp.clone(), Error::TimedOut)];
        let device: DeviceName = "/dev/ttyW0".parse().unwrap();
        let error = LockError::of(&device, Trouble::at(&Route::Usual, failures)).to_string();
        assert!(error.starts_with(&format!("/dev/ttyW0: {tcp}: ")), "{error}");
        assert!(error.contains("restart") && !error.contains("to start"), "{error}");
    }

    /// Nobody listens anywhere: the error names the port and the socket, and says how to start a service there.
    #[test]
    fn the_error_without_a_service_says_how_to_start_one() {
        let absent = || Error::Unreachable(io::ErrorKind::NotFound.into());
        let failures = Address::usual().into_iter().map(|it| (it, absent())).collect();
        let device: DeviceName = "/dev/ttyW0".parse().unwrap();
        let error = LockError::of(&device, Trouble::at(&Route::Usual, failures)).to_string();
        assert!(error.starts_with("/dev/ttyW0: /run/lfpd/lfpd.sock: "), "{error}");
        assert!(error.contains("; to start the service: "), "{error}");
    }

    /// The lock files are for machines without a service. One that is there is not passed by, whatever is wrong with it.
    #[rstest]
    #[case::no_socket(io::ErrorKind::NotFound, true)]
    #[case::refused(io::ErrorKind::ConnectionRefused, true)]
    #[case::busy(io::ErrorKind::WouldBlock, false)]
    #[case::not_trusted(io::ErrorKind::PermissionDenied, false)]
    fn only_without_a_service_the_lock_files_are_made(
        #[case] why: io::ErrorKind,
        #[case] is_absence: bool,
    ) {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("lock")).unwrap();
        let here = Layout { lock_dir: root.path().join("lock"), ..Layout::native() };
        let elsewhere = Layout { lock_dir: root.path().join("nowhere"), ..Layout::native() };
        let named = Route::Server(Address::default());
        let device: DeviceName = "/dev/ttyW0".parse().unwrap();
        for (route, layout, is_taken) in [
            (&Route::Usual, &here, is_absence),
            (&Route::Usual, &elsewhere, false),
            (&named, &here, false),
        ] {
            let mut broker = Broker::within(route, layout.clone(), PATIENCE);
            let failures = vec![(Address::default(), Error::Unreachable(why.into()))];
            let outcome = broker.either(|_| Err(Trouble::at(route, failures)), |_| Outcome::Done);
            assert_eq!(matches!(broker, Broker::Files(_)), is_taken, "{outcome:?}");
            let Err(trouble) = outcome else { continue };
            let error = LockError::of(&device, trouble).to_string();
            assert!(
                error.starts_with("/dev/ttyW0: /run/lfpd/lfpd.sock: the lock file "),
                "{error}"
            );
            assert_eq!(error.contains("to start the service"), is_absence, "{error}");
            let is_busy = why == io::ErrorKind::WouldBlock;
            assert_eq!(error.contains("restart"), is_busy, "{error}");
        }
    }
}
