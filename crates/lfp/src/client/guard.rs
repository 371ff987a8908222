//! [`PortLock`], a guard for a port that this process has locked: dropping it releases the port.

use std::error;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::broker::{Broker, Route, Trouble, advice};
use super::{Address, Error};
use pidlockfile::Pid;
use ttylock::{DeviceName, Holder, NotADevice, Outcome, Request, held_by};

/// WAIT counts whole seconds. The rest of a timeout is spent asking again, at this distance.
const PAUSE: Duration = Duration::from_millis(20);

/// Locks a serial port for this process, or says at once who has it.
///
/// The service is asked at its usual socket, or else at the usual TCP port, if root, this user, or the service's user
/// listens there. If there is no service and this user may write the lock directory, the lock files are made directly.
///
/// # Errors
/// See [`LockError`].
pub fn try_lock(port: impl AsRef<Path>) -> Result<PortLock, LockError> {
    lock_timeout(port, Duration::ZERO)
}

/// Locks a serial port for this process, and waits for it as long as it takes. Only a service serves its waiters in
/// turn.
///
/// # Errors
/// See [`LockError`], but never [`LockError::Busy`].
pub fn lock(port: impl AsRef<Path>) -> Result<PortLock, LockError> {
    lock_timeout(port, Duration::MAX)
}

/// Locks a serial port for this process, and waits up to `timeout` for it.
///
/// # Errors
/// See [`LockError`].
pub fn lock_timeout(port: impl AsRef<Path>, timeout: Duration) -> Result<PortLock, LockError> {
    take(&Route::Usual, port.as_ref(), timeout)
}

/// As [`lock_timeout`], but at a service of the caller's choice, and nowhere else.
///
/// # Errors
/// See [`LockError`].
pub fn lock_at(
    server: &Address,
    port: impl AsRef<Path>,
    timeout: Duration,
) -> Result<PortLock, LockError> {
    take(&Route::Server(server.clone()), port.as_ref(), timeout)
}

/// A serial port that belongs to this process until the value is dropped, or until the process ends.
///
/// A child that was forked does not have the lock, and does not release it.
///
/// ```no_run
/// use lfp::LockError;
///
/// # fn main() -> Result<(), LockError> {
/// let port = lfp::try_lock("/dev/ttyUSB0")?;
/// println!("this process has /dev/{}", port.device().as_str());
/// if let Err(LockError::NotReleased { lock, reason, .. }) = port.release() {
///     println!("try again later: {reason}");
///     lock.release()?;
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "the port is released at once"]
pub struct PortLock {
    request: Request,
    /// Where it was locked, and is to be released; none after that.
    broker: Option<Broker>,
}

/// Why a port was not locked, or not released. Its text names the port.
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
    /// The port was not released: another process was changing the lock, or the release was denied.
    #[non_exhaustive]
    NotReleased {
        /// The lock, to be released again. Dropping it is the last attempt.
        lock: Box<PortLock>,
        /// The known reason.
        reason: String,
    },
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
    /// [`LockError::NotReleased`], which has the lock; [`LockError::Service`]: the lock then ends with this process.
    pub fn release(mut self) -> Result<(), LockError> {
        let Some(mut broker) = self.take_broker() else { return Ok(()) };
        let device = &self.request.device;
        let reason = match broker.release(&self.request) {
            Ok(Outcome::Done) => return Ok(()),
            Ok(Outcome::Busy) => "another process is changing the lock, or has it".to_owned(),
            Ok(Outcome::Denied) if broker.reasons.is_empty() => "the service denies it".to_owned(),
            Ok(Outcome::Denied) => broker.reasons.join("; "),
            Err(trouble) => return Err(LockError::of(device, trouble)),
        };
        self.broker = Some(broker);
        Err(LockError::NotReleased { lock: Box::new(self), reason })
    }

    fn take_broker(&mut self) -> Option<Broker> {
        self.broker.take().filter(|_| Pid::this() == self.request.pid)
    }
}

impl Drop for PortLock {
    fn drop(&mut self) {
        // When the process has ended, the lock is stale, and the next process that asks gets the port.
        let _ = self.take_broker().map(|mut broker| broker.unlock(&self.request));
    }
}

impl LockError {
    pub(super) fn of(device: &DeviceName, trouble: Trouble) -> Self {
        let foremost = trouble.foremost();
        let failure = trouble.failures.into_iter().nth(foremost);
        let (address, error) = failure.unwrap_or((Address::default(), Error::Closed));
        Self::Service { device: device.clone(), address, error }
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
                advice(address, error).map_or(Ok(()), |advice| write!(f, "; {advice}"))
            }
            Self::NotReleased { lock, reason } => {
                write!(f, "/dev/{}: not released: {reason}; try again", lock.device().as_str())
            }
        }
    }
}

impl error::Error for LockError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        if let Self::Service { error, .. } = self { Some(error) } else { None }
    }
}

fn take(route: &Route, port: &Path, timeout: Duration) -> Result<PortLock, LockError> {
    let name = port.to_str().ok_or(LockError::NotADevice)?;
    let device = name.parse().map_err(|NotADevice| LockError::NotADevice)?;
    take_by(Broker::new(route), Request { device, pid: Pid::this() }, timeout)
}

fn take_by(mut broker: Broker, request: Request, timeout: Duration) -> Result<PortLock, LockError> {
    let begin = Instant::now();
    // Each attempt gets the time that is left.
    let outcome = loop {
        let left = timeout.saturating_sub(begin.elapsed());
        match broker.lock_within(&request, left) {
            Ok(Outcome::Busy) if !left.is_zero() => std::thread::sleep(PAUSE.min(left)),
            outcome => break outcome,
        }
    };
    let device = request.device.clone();
    match outcome {
        Ok(Outcome::Done) => {
            broker.close_connection();
            Ok(PortLock { request, broker: Some(broker) })
        }
        Ok(Outcome::Denied) => Err(LockError::Denied { device, reasons: broker.reasons }),
        Ok(Outcome::Busy) => {
            let holders = broker.holders(&device);
            Err(LockError::Busy { device, holders })
        }
        // What the service may have taken all the same is left to it until this process ends: an UNLOCK could release
        // the lock that another thread of this process has got meanwhile.
        Err(trouble) => Err(LockError::of(&device, trouble)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use rstest::rstest;
    use ttylock::Layout;

    use super::*;
    use crate::client::PATIENCE;

    fn layout(root: &Path) -> Layout {
        for name in ["dev", "lock", "state", "udev"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        let mut layout = Layout::native();
        layout.dev_dir = root.join("dev");
        layout.lock_dir = root.join("lock");
        layout.search_dirs = Vec::new();
        layout.state_dir = root.join("state");
        layout.udev_dir = root.join("udev");
        layout
    }

    fn directly(layout: &Layout, timeout: Duration) -> Result<PortLock, LockError> {
        take_by(Broker::within(&Route::Direct, layout.clone(), PATIENCE), request(), timeout)
    }

    fn request() -> Request {
        Request { device: "/dev/ttyW0".parse().unwrap(), pid: Pid::this() }
    }

    /// Without a record, its number means nothing in another pid namespace.
    #[test]
    fn a_lock_without_a_record_is_held_by_flock() {
        use nix::fcntl::{Flock, FlockArg};

        let root = tempfile::tempdir().unwrap();
        let mut layout = layout(root.path());
        layout.state_dir = root.path().join("none");
        let port = directly(&layout, Duration::ZERO).unwrap();
        let file = || std::fs::File::open(root.path().join("lock/LCK..ttyW0")).unwrap();
        let is_held = |file| Flock::lock(file, FlockArg::LockExclusiveNonblock).is_err();
        let other = file();
        assert!(is_held(file()));
        drop(port);
        assert!(!is_held(other));
        assert_eq!(std::fs::read_dir(layout.lock_dir).unwrap().count(), 0);
    }

    #[test]
    fn a_port_that_another_has_is_got_when_it_becomes_free() {
        let root = tempfile::tempdir().unwrap();
        let layout = layout(root.path());
        // The parent of this process lives as long as the test.
        let (file, holder) =
            (layout.lock_dir.join("LCK..ttyW0"), std::os::unix::process::parent_id());
        std::fs::write(&file, format!("{holder:>10}\n")).unwrap();
        let error = directly(&layout, Duration::from_millis(30)).unwrap_err().to_string();
        assert!(error.starts_with("/dev/ttyW0: held by "), "{error}");
        assert!(error.ends_with(&format!("(process {holder})")), "{error}");
        let port = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| directly(&layout, Duration::from_secs(60)));
            std::fs::remove_file(&file).unwrap();
            waiter.join().unwrap()
        });
        assert_eq!(port.unwrap().device().as_str(), "ttyW0");
    }

    const A_DAY: Duration = Duration::from_secs(86_400);

    /// A super-server's session has no queue: it is asked again and again. A service with one lets nobody wait for more
    /// than a day at once.
    #[rstest]
    #[case::no_queue(2 * A_DAY, &["202 not", "450 busy", "200 okay"], &["WAIT 86400", "LOCK", "LOCK"])]
    #[case::no_limit(Duration::MAX, &["450 busy", "450 busy", "200 okay"], &["WAIT 86400"; 3])]
    fn a_service_is_asked_again(
        #[case] timeout: Duration,
        #[case] answers: &[&str],
        #[case] requests: &[&str],
    ) {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let broker =
            Broker::within(&Route::Server(Address::Unix(path)), layout(root.path()), PATIENCE);
        std::thread::scope(|scope| {
            let service = scope.spawn(move || {
                let mut stream = listener.accept().unwrap().0;
                stream.write_all(b"220 ready\r\n").unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let heard = answers.iter().zip(lines).map(|(answer, line)| {
                    stream.write_all(format!("{answer}\r\n").as_bytes()).unwrap();
                    verb_and_time(&line.unwrap())
                });
                heard.collect::<Vec<_>>()
            });
            let port = take_by(broker, request(), timeout).unwrap();
            assert_eq!(service.join().unwrap(), requests);
            drop(port);
        });
    }

    fn verb_and_time(line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        [words[0]].iter().chain(words.get(3)).copied().collect::<Vec<_>>().join(" ")
    }

    /// A process is stopped in the gate, through which every lock is removed.
    #[test]
    fn a_lock_that_is_not_released_can_be_released_again() {
        use nix::fcntl::{Flock, FlockArg};

        let root = tempfile::tempdir().unwrap();
        let port = directly(&layout(root.path()), Duration::ZERO).unwrap();
        let path = root.path().join("state/gate");
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        let gate = std::fs::File::open(path).unwrap();
        let inside = Flock::lock(gate, FlockArg::LockExclusive).unwrap();
        let file = root.path().join("lock/LCK..ttyW0");
        let error = port.release().unwrap_err();
        let text =
            "/dev/ttyW0: not released: another process is changing the lock, or has it; try again";
        assert_eq!(error.to_string(), text);
        assert!(file.exists());
        drop(inside);
        let LockError::NotReleased { lock, .. } = error else { panic!("{error}") };
        lock.release().unwrap();
        assert!(!file.exists());
    }

    /// A lock that is gone was released by force.
    #[rstest]
    #[case::done(&["200 okay"], true)]
    #[case::gone(&["450 busy", "213 nobody"], true)]
    #[case::open(&["450 busy", "213-x\r\n scheme=open standing=alive pid=1\r\n213 x"], true)]
    #[case::ignored(&["450 busy", "213-x\r\n scheme=uucp standing=ignored file=\"x\"\r\n213 x"], true)]
    #[case::stands(&["450 busy", "213-x\r\n scheme=uucp standing=alive file=\"x\"\r\n213 x"], false)]
    #[case::cut_short(&["450 busy", "213-holders=0 shown=0 incomplete=yes\r\n213 x"], false)]
    #[case::unknown(&["450 busy", "500 what?"], false)]
    #[case::denied(&["550 denied"], false)]
    fn a_refused_release_is_an_error_unless_the_lock_is_gone(
        #[case] answers: &[&str],
        #[case] is_released: bool,
    ) {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let broker =
            Broker::within(&Route::Server(Address::Unix(path)), layout(root.path()), PATIENCE);
        let port = PortLock { request: request(), broker: Some(broker) };
        let released = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = listener.accept().unwrap().0;
                stream.write_all(b"220 ready\r\n").unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                for answer in answers {
                    lines.next().unwrap().unwrap();
                    stream.write_all(format!("{answer}\r\n").as_bytes()).unwrap();
                }
            });
            port.release().map_err(|error| {
                let LockError::NotReleased { mut lock, .. } = error else { panic!("{error}") };
                // The last attempt, by dropping it, would wait for an answer.
                drop(lock.broker.take());
            })
        });
        assert_eq!(released.is_ok(), is_released);
    }

    #[test]
    fn a_guard_may_be_sent_and_shared() {
        fn check<T: Send + Sync>() {}
        check::<PortLock>();
    }

    #[rstest]
    #[case("/etc/passwd")]
    #[case("/dev/../etc/passwd")]
    #[case("")]
    fn other_paths_are_no_devices(#[case] port: &str) {
        assert!(matches!(try_lock(port), Err(LockError::NotADevice)));
        assert!(matches!(lock(port), Err(LockError::NotADevice)));
    }
}
