//! [`PortLock`], a guard for a port that this process has locked at the service: dropping it releases the
//! port.

use std::error;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Address, Client, Error, PATIENCE};
use pidlockfile::Pid;
use ttylock::{DeviceName, Holder, Outcome, held_by};

/// WAIT counts whole seconds. The rest of a timeout is spent asking again, at this distance.
const PAUSE: Duration = Duration::from_millis(20);

/// Locks a serial port for this process, or says at once who has it. The service is the one at its usual
/// socket, if root, this user, or the user that root gave the socket's directory to listens there.
///
/// # Errors
/// See [`LockError`].
pub fn lock(port: impl AsRef<Path>) -> Result<PortLock, LockError> {
    lock_timeout(port, Duration::ZERO)
}

/// Locks a serial port for this process, and waits up to `timeout` for it.
///
/// # Errors
/// See [`LockError`].
pub fn lock_timeout(port: impl AsRef<Path>, timeout: Duration) -> Result<PortLock, LockError> {
    let client = Client::usual(PATIENCE).map_err(LockError::Service)?;
    take(client, None, port.as_ref(), timeout)
}

/// The same at a service of the caller's choice.
///
/// # Errors
/// See [`LockError`].
pub fn lock_at(
    server: &Address,
    port: impl AsRef<Path>,
    timeout: Duration,
) -> Result<PortLock, LockError> {
    let client = Client::connect(server, PATIENCE).map_err(LockError::Service)?;
    take(client, Some(server.clone()), port.as_ref(), timeout)
}

/// A serial port that belongs to this process until the value is dropped, or until the process ends.
///
/// A child that was forked does not have the lock, and does not release it.
#[derive(Debug)]
#[must_use = "the port is released at once"]
pub struct PortLock {
    device: DeviceName,
    pid: Pid,
    /// `None` for the usual one.
    server: Option<Address>,
    held: bool,
}

/// Why a port was not locked.
#[derive(Debug)]
#[non_exhaustive]
pub enum LockError {
    /// The path is no name of a device below `/dev`.
    NotADevice,
    /// Another process has the port. These are known to hold it, as far as the service can see.
    Busy(Vec<Holder>),
    /// The service refuses: the port does not exist, or this user may not open it.
    Denied,
    /// The service did not answer.
    Service(Error),
}

impl PortLock {
    /// The port, as a name below `/dev`.
    #[must_use]
    pub fn device(&self) -> &DeviceName {
        &self.device
    }

    /// Releases the port. Dropping the value does the same, but reports no failure.
    ///
    /// # Errors
    /// [`LockError::Service`]; the lock then ends with this process.
    pub fn release(mut self) -> Result<(), LockError> {
        self.let_go().map_err(LockError::Service)
    }

    fn let_go(&mut self) -> Result<(), Error> {
        if !std::mem::take(&mut self.held) || Pid::this() != self.pid {
            return Ok(());
        }
        let mut client = match &self.server {
            None => Client::usual(PATIENCE)?,
            Some(server) => Client::connect(server, PATIENCE)?,
        };
        client.unlock(&self.device, self.pid).map(drop)
    }
}

impl Drop for PortLock {
    fn drop(&mut self) {
        // When the process has ended, the lock is stale, and the next process that asks gets the port.
        let _ = self.let_go();
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotADevice => f.write_str("not the name of a device below /dev"),
            Self::Denied => f.write_str("no such port, or this user may not open it"),
            Self::Service(error) => error.fmt(f),
            Self::Busy(holders) => f.write_str(&held_by(holders)),
        }
    }
}

impl error::Error for LockError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Service(error) => Some(error),
            Self::NotADevice | Self::Busy(_) | Self::Denied => None,
        }
    }
}

fn take(
    mut client: Client,
    server: Option<Address>,
    port: &Path,
    timeout: Duration,
) -> Result<PortLock, LockError> {
    let name = port.to_str().ok_or(LockError::NotADevice)?;
    let device = DeviceName::parse(name.as_bytes()).map_err(|_| LockError::NotADevice)?;
    let pid = Pid::this();
    match wait(&mut client, &device, pid, timeout).map_err(LockError::Service)? {
        Outcome::Done => Ok(PortLock { device, pid, server, held: true }),
        Outcome::Denied => Err(LockError::Denied),
        // An old service does not tell.
        Outcome::Busy => Err(LockError::Busy(client.status(Some(&device)).unwrap_or_default())),
    }
}

fn wait(
    client: &mut Client,
    device: &DeviceName,
    pid: Pid,
    timeout: Duration,
) -> Result<Outcome, Error> {
    let begin = Instant::now();
    loop {
        let left = timeout.saturating_sub(begin.elapsed());
        let whole = Duration::from_secs(left.as_secs());
        let outcome = match whole.is_zero() {
            true => client.lock(device, pid)?,
            false => client.wait(device, pid, whole)?,
        };
        if outcome != Outcome::Busy || left.is_zero() {
            return Ok(outcome);
        }
        if whole.is_zero() {
            std::thread::sleep(PAUSE.min(left));
        }
    }
}
