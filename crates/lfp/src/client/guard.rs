//! [`PortLock`], a guard for a port that this process has locked: dropping it releases the port.

use std::error;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::route::{WithoutService, how_to_start, without_service};
use super::{Address, COMPLAINT_PATIENCE, Client, Error, PATIENCE};
use pidlockfile::Pid;
use ttylock::{
    Answer, DeviceName, Holder, Layout, NotADevice, Outcome, Request, Table, Weight, held_by,
};

/// WAIT counts whole seconds. The rest of a timeout is spent asking again, at this distance.
const PAUSE: Duration = Duration::from_millis(20);

/// Locks a serial port for this process, or says at once who has it.
///
/// The service is asked at its usual socket, if root, this user, or the user that root gave the socket's directory to
/// listens there. If there is no service and this user may write the lock directory, the lock files are made directly.
///
/// # Errors
/// See [`LockError`].
pub fn lock(port: impl AsRef<Path>) -> Result<PortLock, LockError> {
    lock_timeout(port, Duration::ZERO)
}

/// Locks a serial port for this process, and waits up to `timeout` for it. Only a service serves its waiters in turn.
///
/// # Errors
/// See [`LockError`].
pub fn lock_timeout(port: impl AsRef<Path>, timeout: Duration) -> Result<PortLock, LockError> {
    take(Service::Usual(Layout::native()), port.as_ref(), timeout)
}

/// The same at a service of the caller's choice, and nowhere else.
///
/// # Errors
/// See [`LockError`].
pub fn lock_at(
    server: &Address,
    port: impl AsRef<Path>,
    timeout: Duration,
) -> Result<PortLock, LockError> {
    take(Service::At(server.clone()), port.as_ref(), timeout)
}

/// A serial port that belongs to this process until the value is dropped, or until the process ends.
///
/// A child that was forked does not have the lock, and does not release it.
#[must_use = "the port is released at once"]
pub struct PortLock {
    request: Request,
    taken: Taken,
}

/// Where a lock was taken, to be released there.
enum Taken {
    Service(Service),
    LockFiles(Layout),
    Released,
}

/// Which service is asked.
#[derive(Clone)]
enum Service {
    /// The usual one, and what is used where there is none.
    Usual(Layout),
    At(Address),
}

/// Why a port was not locked. Its text names the port.
#[derive(Debug)]
#[non_exhaustive]
pub enum LockError {
    /// The path is no name of a device below `/dev`.
    NotADevice,
    /// Another process has the port.
    #[non_exhaustive]
    Busy {
        /// The port.
        device: DeviceName,
        /// The known holders, as far as the service or this process can see them.
        holders: Vec<Holder>,
    },
    /// The port does not exist, this user may not open it, or the lock files cannot be written.
    #[non_exhaustive]
    Denied {
        /// The port.
        device: DeviceName,
        /// The known reasons. A service gives none.
        reasons: Vec<String>,
    },
    /// The service did not answer.
    #[non_exhaustive]
    Service {
        /// The port.
        device: DeviceName,
        /// Where the service was asked.
        address: Address,
        /// What went wrong.
        error: Error,
    },
}

impl fmt::Debug for PortLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortLock").field("request", &self.request).finish_non_exhaustive()
    }
}

impl PortLock {
    /// The port, as a name below `/dev`.
    #[must_use]
    pub fn device(&self) -> &DeviceName {
        &self.request.device
    }

    /// Releases the port. Dropping the value does the same, but reports no failure.
    ///
    /// # Errors
    /// [`LockError::Service`]; the lock then ends with this process.
    pub fn release(mut self) -> Result<(), LockError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), LockError> {
        let taken = std::mem::replace(&mut self.taken, Taken::Released);
        let Request { device, pid } = &self.request;
        match taken {
            _ if Pid::this() != *pid => Ok(()),
            Taken::Released => Ok(()),
            Taken::LockFiles(layout) => {
                Table::new(layout).unlock(&self.request);
                Ok(())
            }
            Taken::Service(service) => {
                let released = service.reach().and_then(|mut client| client.unlock(device, *pid));
                released.map(drop).map_err(|error| service.failed(device, error))
            }
        }
    }
}

impl Drop for PortLock {
    fn drop(&mut self) {
        // When the process has ended, the lock is stale, and the next process that asks gets the port.
        let _ = self.end();
    }
}

impl Service {
    fn reach(&self) -> Result<Client, Error> {
        match self {
            Self::Usual(_) => Client::usual(PATIENCE),
            Self::At(address) => Client::connect(address, PATIENCE),
        }
    }

    fn failed(&self, device: &DeviceName, error: Error) -> LockError {
        let address = match self {
            Self::Usual(_) => Address::default(),
            Self::At(address) => address.clone(),
        };
        LockError::Service { device: device.clone(), address, error }
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotADevice => f.write_str("not the name of a device below /dev"),
            Self::Busy { device, holders } => {
                write!(f, "/dev/{}: {}", device.as_str(), held_by(holders))
            }
            Self::Denied { device, reasons } if reasons.is_empty() => {
                write!(f, "/dev/{}: no such port, or this user may not open it", device.as_str())
            }
            Self::Denied { device, reasons } => {
                let reasons = reasons.join("; ");
                write!(f, "/dev/{}: the lock cannot be written: {reasons}", device.as_str())
            }
            Self::Service { device, address, error } => {
                write!(f, "/dev/{}: {address}: {error}", device.as_str())?;
                if error.is_absence() { write!(f, "; {}", how_to_start()) } else { Ok(()) }
            }
        }
    }
}

impl error::Error for LockError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Service { error, .. } => Some(error),
            Self::NotADevice | Self::Busy { .. } | Self::Denied { .. } => None,
        }
    }
}

fn take(service: Service, port: &Path, timeout: Duration) -> Result<PortLock, LockError> {
    let name = port.to_str().ok_or(LockError::NotADevice)?;
    let device = name.parse().map_err(|NotADevice| LockError::NotADevice)?;
    let request = Request { device, pid: Pid::this() };
    take_at(service.reach(), service, request, timeout)
}

fn take_at(
    reached: Result<Client, Error>,
    service: Service,
    request: Request,
    timeout: Duration,
) -> Result<PortLock, LockError> {
    let mut client = match (reached, &service) {
        (Ok(client), _) => client,
        (Err(error), Service::Usual(layout))
            if error.is_absence() && without_service(layout) == WithoutService::LockFiles =>
        {
            return take_directly(layout.clone(), request, timeout);
        }
        (Err(error), _) => return Err(service.failed(&request.device, error)),
    };
    let outcome = wait(&mut client, &request, timeout);
    let device = &request.device;
    match outcome.map_err(|error| service.failed(device, error))? {
        Outcome::Done => Ok(PortLock { request, taken: Taken::Service(service) }),
        Outcome::Denied => Err(LockError::Denied { device: device.clone(), reasons: Vec::new() }),
        Outcome::Busy => {
            // An old service does not tell.
            let holders = client.status(Some(device)).unwrap_or_default();
            Err(LockError::Busy { device: device.clone(), holders })
        }
    }
}

/// Makes the lock files, trying for up to `timeout`.
fn take_directly(
    layout: Layout,
    request: Request,
    timeout: Duration,
) -> Result<PortLock, LockError> {
    let begin = Instant::now();
    loop {
        // Each attempt opens the directories anew: others may be there by now.
        let mut table = Table::new(layout.clone());
        let answer = table.lock(&request);
        let left = timeout.saturating_sub(begin.elapsed());
        let device = request.device.clone();
        match answer.outcome {
            Outcome::Done => return Ok(PortLock { request, taken: Taken::LockFiles(layout) }),
            Outcome::Busy if !left.is_zero() => std::thread::sleep(PAUSE.min(left)),
            Outcome::Busy => {
                let holders = table.holders(&device, COMPLAINT_PATIENCE).holders;
                return Err(LockError::Busy { device, holders });
            }
            Outcome::Denied => {
                return Err(LockError::Denied { device, reasons: reasons(answer) });
            }
        }
    }
}

fn reasons(answer: Answer) -> Vec<String> {
    let weighty = |weight| matches!(weight, Weight::Notice | Weight::Warning);
    let events = answer.events.into_iter().filter(|event| weighty(event.weight));
    events.map(|event| event.text).collect()
}

fn wait(client: &mut Client, request: &Request, timeout: Duration) -> Result<Outcome, Error> {
    let Request { device, pid } = request;
    let begin = Instant::now();
    loop {
        let left = timeout.saturating_sub(begin.elapsed());
        let whole = Duration::from_secs(left.as_secs());
        let outcome = match whole.is_zero() {
            true => client.lock(device, *pid)?,
            false => client.wait(device, *pid, whole)?,
        };
        if outcome != Outcome::Busy || left.is_zero() {
            return Ok(outcome);
        }
        if whole.is_zero() {
            std::thread::sleep(PAUSE.min(left));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use rstest::rstest;

    use super::*;

    fn layout(root: &Path) -> Layout {
        for name in ["dev", "lock", "state", "udev"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        Layout {
            dev_dir: root.join("dev"),
            lock_dir: root.join("lock"),
            search_dirs: Vec::new(),
            state_dir: root.join("state"),
            udev_dir: root.join("udev"),
            ..Layout::native()
        }
    }

    fn directly(layout: &Layout, timeout: Duration) -> Result<PortLock, LockError> {
        let request = Request { device: "/dev/ttyW0".parse().unwrap(), pid: Pid::this() };
        take_directly(layout.clone(), request, timeout)
    }

    #[test]
    fn a_guard_holds_the_port_until_it_is_dropped() {
        let root = tempfile::tempdir().unwrap();
        let layout = layout(root.path());
        let file = root.path().join("lock/LCK..ttyW0");
        let port = directly(&layout, Duration::ZERO).unwrap();
        assert_eq!(port.device().as_str(), "ttyW0");
        assert!(file.exists());
        drop(port);
        assert!(!file.exists());
    }

    /// The parent of this process lives as long as the test.
    fn held(root: &Path) -> (std::path::PathBuf, u32) {
        let (file, holder) = (root.join("lock/LCK..ttyW0"), std::os::unix::process::parent_id());
        std::fs::write(&file, format!("{holder:>10}\n")).unwrap();
        (file, holder)
    }

    #[test]
    fn the_error_names_the_port_and_the_holder() {
        let root = tempfile::tempdir().unwrap();
        let layout = layout(root.path());
        let (_, holder) = held(root.path());
        let error = directly(&layout, Duration::from_millis(30)).unwrap_err().to_string();
        assert!(error.starts_with("/dev/ttyW0: held by "), "{error}");
        assert!(error.ends_with(&format!("(process {holder})")), "{error}");
    }

    #[test]
    fn a_port_that_becomes_free_is_got_before_the_time_is_up() {
        let root = tempfile::tempdir().unwrap();
        let layout = layout(root.path());
        let (file, _) = held(root.path());
        let port = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| directly(&layout, Duration::from_secs(60)));
            std::fs::remove_file(&file).unwrap();
            waiter.join().unwrap()
        });
        assert_eq!(port.unwrap().device().as_str(), "ttyW0");
    }

    /// The lock files are for machines without a service. One that is there is not passed by, whatever is wrong with it.
    #[rstest]
    #[case::no_socket(io::ErrorKind::NotFound, true)]
    #[case::refused(io::ErrorKind::ConnectionRefused, true)]
    #[case::busy(io::ErrorKind::WouldBlock, false)]
    #[case::not_trusted(io::ErrorKind::PermissionDenied, false)]
    fn only_without_a_service_the_lock_files_are_made(
        #[case] why: io::ErrorKind,
        #[case] is_taken: bool,
    ) {
        let root = tempfile::tempdir().unwrap();
        let layout = layout(root.path());
        let request = Request { device: "/dev/ttyW0".parse().unwrap(), pid: Pid::this() };
        let reached = || Err(Error::Unreachable(why.into()));
        let usual = Service::Usual(layout.clone());
        let taken = take_at(reached(), usual, request.clone(), Duration::ZERO);
        assert_eq!(taken.is_ok(), is_taken, "{taken:?}");
        drop(taken);
        let elsewhere = Layout { lock_dir: root.path().join("nowhere"), ..layout };
        let services = [Service::At(Address::default()), Service::Usual(elsewhere)];
        for service in services {
            let error = take_at(reached(), service, request.clone(), Duration::ZERO).unwrap_err();
            let error = error.to_string();
            assert!(
                error.starts_with("/dev/ttyW0: /run/lfpd/lfpd.sock: the lock file "),
                "{error}"
            );
            assert_eq!(error.contains("to start the service"), is_taken, "{error}");
        }
    }

    #[rstest]
    #[case("/etc/passwd")]
    #[case("/dev/../etc/passwd")]
    #[case("")]
    fn other_paths_are_no_devices(#[case] port: &str) {
        assert!(matches!(lock(port), Err(LockError::NotADevice)));
    }
}
