//! Takes and releases locks: at the service, or else in the lock files. One rule for the command and the library.
//!
//! A service that is there is never passed by, even if it is busy, or if its listener cannot be trusted.

use std::fs::Metadata;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat};
use ttylock::{Answer, DeviceName, Event, Holder, Layout, Outcome, Request, Table, Weight, follow};

use super::{Address, Client, Error, PATIENCE, after_refusal};

/// Time for a search for holders that a command shows or removes, and for locks of its own ancestors. A STAT of the
/// service ends earlier.
#[cfg(feature = "cli")]
pub(crate) const COMMAND_SEARCH: Duration = Duration::from_secs(2);

/// The same for the names of holders in a complaint.
pub(crate) const COMPLAINT_SEARCH: Duration = Duration::from_millis(500);

/// Whom the user wants to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The service, wherever it usually is; without one, the lock files.
    Usual,
    /// This service and no other: any listener there is asked.
    Server(Address),
    /// The files themselves.
    Direct,
}

/// Asks a service, at the first of the route's addresses where there is one, or the lock files.
#[derive(Debug)]
pub(crate) struct Broker {
    /// [`Route::Direct`] also after a request for which there was no service.
    route: Route,
    pub(crate) table: Table,
    /// What is known of the last request that was denied. A service gives no reasons.
    pub(crate) reasons: Vec<String>,
    pub(crate) client: Option<Client>,
    /// Whether a service is asked that has WAIT, as far as is known.
    pub(crate) has_queue: bool,
    patience: Duration,
    /// Whether the service may have taken a lock for the last request, without our having heard of it.
    pub(crate) may_have_taken: bool,
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

    /// Whether one of the failures is of this kind.
    #[cfg(feature = "cli")]
    pub(crate) fn has(&self, kind: impl Fn(&Error) -> bool) -> bool {
        self.failures.iter().any(|(_, error)| kind(error))
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

    /// A broker whose service may take this long for each answer.
    pub(crate) fn within(route: &Route, layout: Layout, patience: Duration) -> Self {
        Self {
            route: route.clone(),
            table: Table::new(layout).keeping_unrecorded(),
            reasons: Vec::new(),
            client: None,
            has_queue: *route != Route::Direct,
            patience,
            may_have_taken: false,
        }
    }

    /// Whether the lock files are asked, and no service.
    pub(crate) fn is_direct(&self) -> bool {
        self.route == Route::Direct
    }

    pub(crate) fn be_patient(&mut self, patience: Duration) {
        self.patience = patience;
        if let Some(client) = &mut self.client {
            client.be_patient(patience);
        }
    }

    /// Locks in turn within this time, of which a service counts whole seconds. The files are asked once, and so is a
    /// service where there is less than a second, or that has no queue.
    pub(crate) fn lock_within(
        &mut self,
        request: &Request,
        time: Duration,
    ) -> Result<Outcome, Trouble> {
        let Request { device, pid } = request;
        let whole = Duration::from_secs(time.as_secs());
        let mut has_queue = self.has_queue;
        let question = |client: &mut Client| {
            if has_queue && !whole.is_zero() {
                match client.wait(device, *pid, whole) {
                    Err(Error::Unsupported) => has_queue = false,
                    answer => return answer,
                }
            }
            client.lock(device, *pid)
        };
        let answer = self.ask(question, |files| files.lock_files(request));
        self.has_queue &= has_queue;
        answer
    }

    pub(crate) fn unlock(&mut self, request: &Request) -> Result<Outcome, Trouble> {
        self.ask(
            |client| client.unlock(&request.device, request.pid),
            |files| files.unlock_files(request),
        )
    }

    /// The same, but [`Outcome::Busy`] only if the lock may still stand.
    pub(crate) fn release(&mut self, request: &Request) -> Result<Outcome, Trouble> {
        let Request { device, pid } = request;
        let deed = |files: &mut Self| match files.unlock_files(request) {
            Outcome::Busy => after_refusal(&files.table.holders(Some(device), COMPLAINT_SEARCH)),
            outcome @ (Outcome::Done | Outcome::Denied) => outcome,
        };
        self.ask(|client| client.release(device, *pid), deed)
    }

    /// The answer of the service, or what `deed` gives without one.
    pub(crate) fn ask(
        &mut self,
        question: impl FnOnce(&mut Client) -> Result<Outcome, Error>,
        deed: impl FnOnce(&mut Self) -> Outcome,
    ) -> Result<Outcome, Trouble> {
        if !self.is_direct() {
            match self.ask_service(question) {
                Err(trouble) if self.leaves_lock_files(&trouble) => {
                    self.route = Route::Direct;
                    (self.has_queue, self.may_have_taken) = (false, false);
                }
                answer => return answer,
            }
        }
        Ok(deed(self))
    }

    /// One question, on the connection there is or a new one.
    pub(crate) fn ask_service<T>(
        &mut self,
        question: impl FnOnce(&mut Client) -> Result<T, Error>,
    ) -> Result<T, Trouble> {
        let answer = question(self.client()?);
        self.may_have_taken = answer.as_ref().is_err_and(Error::leaves_in_doubt);
        answer.map_err(|error| {
            let address = self.client.take().map_or_else(Address::default, |it| it.address);
            Trouble::at(&self.route, vec![(address, error)])
        })
    }

    /// The holders of a device, as the service or the files show them, for complaints: a service that does not answer in
    /// a moment is not waited for.
    pub(crate) fn holders(&mut self, device: &DeviceName) -> Vec<Holder> {
        if self.is_direct() {
            return self.table.holders(Some(device), COMPLAINT_SEARCH).holders;
        }
        let patience = self.patience;
        self.be_patient(patience.min(COMPLAINT_SEARCH));
        let holders = self.ask_service(|client| client.status(Some(device))).unwrap_or_default();
        self.be_patient(patience);
        holders
    }

    /// Keeps no connection open for what takes long.
    pub(crate) fn close_connection(&mut self) {
        self.client = None;
    }

    fn lock_files(&mut self, request: &Request) -> Outcome {
        if let Some(reason) = wrong_device(&request.device) {
            self.reasons = vec![reason];
            return Outcome::Denied;
        }
        // A waiter asks again and again, and another directory may be there by now.
        self.table.reopen();
        let answer = self.table.lock(request);
        self.outcome_of(answer)
    }

    pub(crate) fn unlock_files(&mut self, request: &Request) -> Outcome {
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
        let (addresses, is_usual) = match &self.route {
            Route::Server(address) => (vec![address.clone()], false),
            Route::Usual | Route::Direct => (Address::usual().to_vec(), true),
        };
        for address in addresses {
            let client = Client::connect(&address, self.patience);
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
        let directory = &self.table.layout().lock_dir;
        let may_write = || faccessat(AT_FDCWD, directory, AccessFlags::W_OK, AtFlags::AT_EACCESS);
        trouble.is_absence && may_write().is_ok()
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
    let Ok(resolved) = follow(Path::new("/dev"), device) else {
        return Some("the name leads out of /dev".to_owned());
    };
    if !resolved.is_no_port() {
        return None;
    }
    let kind = node(device)?.file_type();
    let is = if kind.is_char_device() {
        "the null device, not a serial port"
    } else if kind.is_dir() {
        "a directory, not a serial port"
    } else if kind.is_block_device() {
        "a block device such as a disk, not a serial port"
    } else {
        "not a device"
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

    /// A command waits for what STAT finds.
    #[cfg(feature = "cli")]
    #[test]
    fn searches_end_before_their_callers_give_up() {
        use ttylock::limits::STATUS_SEARCH;

        const { assert!(COMPLAINT_SEARCH.as_millis() < STATUS_SEARCH.as_millis()) };
        const { assert!(2 * STATUS_SEARCH.as_millis() < COMMAND_SEARCH.as_millis()) };
    }

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
        let mut here = Layout::native();
        here.lock_dir = root.path().join("lock");
        let mut elsewhere = Layout::native();
        elsewhere.lock_dir = root.path().join("nowhere");
        let named = Route::Server(Address::default());
        let device: DeviceName = "/dev/ttyW0".parse().unwrap();
        for (route, layout, is_taken) in [
            (&Route::Usual, &here, is_absence),
            (&Route::Usual, &elsewhere, false),
            (&named, &here, false),
        ] {
            let failures = vec![(Address::default(), Error::Unreachable(why.into()))];
            let trouble = Trouble::at(route, failures);
            let broker = Broker::within(route, layout.clone(), PATIENCE);
            assert_eq!(broker.leaves_lock_files(&trouble), is_taken, "{trouble:?}");
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
