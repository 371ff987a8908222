//! A client of the Lock File Protocol, for Rust programs; `lfp` itself uses it.
//!
//! Blocking, with one connection, a socket of the standard library. Every wait has a deadline, and every
//! reply a largest size. Uses extensions only if the caller asks for them, and never retries by itself.

mod address;
pub(crate) mod broker;
mod error;
mod guard;
mod reply;
mod usual;

use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{self, UnixAddr};
use pidlockfile::Pid;

pub use address::{Address, NotAnAddress, UNIX_SOCKET};
pub use error::Error;
pub use guard::{LockError, PortLock, lock, lock_at, lock_timeout, try_lock};
pub use reply::{REPLY_LIMIT, Waiter};

use crate::sys;
use reply::Reply;
use ttylock::limits::WAIT_MAX_SECS;
use ttylock::{DeviceName, Holder, Outcome, Standing, Survey};

/// For reaching the service, for its greeting, and for each answer. Longer than a service takes for its slowest LOCK.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// For a release that was not confirmed and is repeated beside other work: the end of the process releases the lock in
/// any case.
pub const RELEASE_PATIENCE: Duration = Duration::from_secs(1);

/// The longest `LFP_WAIT`, in seconds: how long an unmodified program waits for a busy port (liblfp_preload(7)).
pub const LFP_WAIT_MAX_SECS: u64 = 1_000_000_000;

/// How much is read at once, in bytes.
const READ_BYTES: usize = 4096;

/// A connection to a service that has greeted us.
///
/// ```no_run
/// use lfp::{Client, DeviceName, client::PATIENCE};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let port: DeviceName = "/dev/ttyUSB0".parse()?;
/// let mut client = Client::usual(PATIENCE)?;
/// for waiter in client.waiters(Some(&port))? {
///     println!("process {} waits for {}", waiter.pid, waiter.device);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Client {
    /// A Unix socket or one of TCP: from here on both are the same.
    socket: UnixStream,
    /// Where it was connected to.
    pub(crate) address: Address,
    /// The addresses of a TCP connection: this end and the other.
    ends: Option<[SocketAddr; 2]>,
    /// What was read and is no whole reply yet.
    bytes: Vec<u8>,
    patience: Duration,
    greeting: String,
}

/// The time in a WAIT: whole seconds, rounded up, at most [`WAIT_MAX_SECS`]. A client that waits longer asks again.
pub(crate) fn whole_seconds(time: Duration) -> u32 {
    let whole = time.as_millis().div_ceil(1000);
    u32::try_from(whole).unwrap_or(WAIT_MAX_SECS).min(WAIT_MAX_SECS)
}

impl Client {
    /// Connects and takes the greeting. That may take as long as `patience`, and so may every later
    /// exchange.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when there is no connection; [`Error::Refused`] and
    /// [`Error::Dismissed`] when the service says so instead of greeting; and as
    /// [`Client::lock`].
    pub fn connect(address: &Address, patience: Duration) -> Result<Self, Error> {
        // A service has a moment to answer even at the end of the user's time.
        let patience = patience.max(Duration::from_millis(1));
        let begin = Instant::now();
        let connected = match address {
            Address::Unix(path) => connect_unix(path, patience).map(|socket| (socket, None)),
            Address::Tcp(address) => connect_tcp(address, patience),
        };
        let (socket, ends) = connected.map_err(Error::Unreachable)?;
        let (bytes, greeting) = (Vec::new(), String::new());
        let address = address.clone();
        let mut client = Self { socket, address, ends, bytes, patience, greeting };
        let reply = client.receive(patience.saturating_sub(begin.elapsed()))?;
        match reply.code {
            220 => reply.text().clone_into(&mut client.greeting),
            421 => return Err(Error::Dismissed),
            550 => return Err(Error::Refused),
            code => return Err(Error::Unexpected(code)),
        }
        Ok(client)
    }

    /// From now on every exchange may take as long as this.
    pub fn be_patient(&mut self, patience: Duration) {
        self.patience = patience.max(Duration::from_millis(1));
    }

    /// What the service said first, without the code: its host and its version.
    #[must_use]
    pub fn greeting(&self) -> &str {
        &self.greeting
    }

    /// The user at the other end of this very connection, as the kernel knows it: on a Unix
    /// socket the one that called listen(2) (unix(7), `SO_PEERCRED`), on TCP the one that accepted the
    /// connection; `None` where `/proc/net` does not show it. For
    /// addresses at which other users than the service's may listen.
    ///
    /// # Errors
    /// The kernel's, which a connected socket gives no reason for.
    pub fn listener(&self) -> io::Result<Option<u32>> {
        match self.ends {
            Some([near, far]) => Ok(ttylock::tcp::user(far, near)),
            None => sys::peer(&self.socket).map(Some),
        }
    }

    /// Takes a device for a process. The lock stays until [`Client::unlock`], or until the
    /// process is gone, whatever becomes of the connection.
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::Closed`] and [`Error::Broken`] for the connection;
    /// [`Error::Protocol`], [`Error::Dismissed`] and [`Error::Unexpected`] for what came over it.
    pub fn lock(&mut self, device: &DeviceName, pid: Pid) -> Result<Outcome, Error> {
        outcome(&self.ask(&format!("LOCK {} {pid}", device.as_str()))?)
    }

    /// Releases a device for a process. [`Outcome::Busy`]: the process does not hold it, or another process is changing
    /// the lock, which still stands; [`Client::release`] finds out which.
    ///
    /// # Errors
    /// As [`Client::lock`].
    pub fn unlock(&mut self, device: &DeviceName, pid: Pid) -> Result<Outcome, Error> {
        outcome(&self.ask(&format!("UNLOCK {} {pid}", device.as_str()))?)
    }

    /// [`Client::unlock`], and after a refusal STAT, which is an extension. [`Outcome::Done`] also if the device has no
    /// lock file any more: another process has released it by force. [`Outcome::Busy`]: the lock may still stand.
    ///
    /// # Errors
    /// As [`Client::status`].
    pub fn release(&mut self, device: &DeviceName, pid: Pid) -> Result<Outcome, Error> {
        let outcome = self.unlock(device, pid)?;
        if outcome != Outcome::Busy {
            return Ok(outcome);
        }
        match self.survey_and_waiters(Some(device)) {
            Err(Error::Unsupported) => Ok(outcome),
            answer => answer.map(|(survey, _)| after_refusal(&survey)),
        }
    }

    /// Hands a lock from one process to another, both the caller's: for a daemon that forks, or
    /// for a program that takes over the lock of its parent. No other process can get the device
    /// in between. [`Outcome::Busy`]: `from` is gone, or does not hold it;
    /// [`Outcome::Denied`]: `to` is gone, or one of them is another user's process. An extension.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the service has no such PASS; and as [`Client::lock`].
    pub fn pass(&mut self, device: &DeviceName, from: Pid, to: Pid) -> Result<Outcome, Error> {
        outcome(&self.ask(&format!("PASS {} {from} {to}", device.as_str()))?)
    }

    /// Releases a device for a process of any user: for root, and on a Unix socket for members of
    /// the service's `--force-group`. The caller names the holder, so that the device is
    /// never taken from another process that came in between. The service does not inform the holder; the
    /// caller should do so before.
    /// [`Outcome::Busy`]: that process does not hold it; [`Outcome::Denied`]: the caller may not.
    /// An extension.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the service has no FORCE; and as [`Client::lock`].
    pub fn force(&mut self, device: &DeviceName, holder: Pid) -> Result<Outcome, Error> {
        outcome(&self.ask(&format!("FORCE {} {holder}", device.as_str()))?)
    }

    /// LOCK that waits its turn, for at most `time`, which is rounded up to whole seconds and is never longer than
    /// a day. [`Outcome::Busy`]: the time is up. An extension.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the service has no WAIT; and as [`Client::lock`].
    pub fn wait(
        &mut self,
        device: &DeviceName,
        pid: Pid,
        time: Duration,
    ) -> Result<Outcome, Error> {
        self.begin_wait(device, pid, time)?;
        let whole = Duration::from_secs(whole_seconds(time).into());
        outcome(&self.receive(whole.saturating_add(self.patience))?)
    }

    /// The first half of [`Client::wait`], for callers that wait for other things too: poll the
    /// connection's descriptor, then call [`Client::finish_wait`]. To give up, drop the client:
    /// the service takes no lock for a waiter that is gone.
    ///
    /// # Errors
    /// As [`Client::lock`].
    pub fn begin_wait(
        &mut self,
        device: &DeviceName,
        pid: Pid,
        time: Duration,
    ) -> Result<(), Error> {
        self.send(&format!("WAIT {} {pid} {}", device.as_str(), whole_seconds(time)))
    }

    /// The second half.
    ///
    /// # Errors
    /// As [`Client::wait`].
    pub fn finish_wait(&mut self) -> Result<Outcome, Error> {
        outcome(&self.receive(self.patience)?)
    }

    /// Ends a wait and takes the service's last word on it, which comes at once. Nothing can be asked afterwards.
    ///
    /// # Errors
    /// As [`Client::wait`].
    #[cfg(feature = "cli")]
    pub(crate) fn leave_queue(&mut self) -> Result<Outcome, Error> {
        // If the connection has failed, the reading says so.
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
        self.finish_wait()
    }

    /// The holders of a device, or of every device. An extension. The lock files are named without their
    /// directories.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the service has no STAT; [`Error::Protocol`] when the answer
    /// makes no sense; and as [`Client::lock`].
    pub fn status(&mut self, device: Option<&DeviceName>) -> Result<Vec<Holder>, Error> {
        Ok(self.survey_and_waiters(device)?.0.holders)
    }

    /// The waiters for a device, or for every device, in no order. An extension.
    ///
    /// # Errors
    /// As [`Client::status`].
    pub fn waiters(&mut self, device: Option<&DeviceName>) -> Result<Vec<Waiter>, Error> {
        Ok(self.survey_and_waiters(device)?.1)
    }

    pub(crate) fn survey_and_waiters(
        &mut self,
        device: Option<&DeviceName>,
    ) -> Result<(Survey, Vec<Waiter>), Error> {
        let reply = match device {
            Some(device) => self.ask(&format!("STAT {}", device.as_str()))?,
            None => self.ask("STAT")?,
        };
        match reply.code {
            211..=213 => reply::survey_and_waiters(&reply).ok_or(Error::Protocol),
            code => Err(refusal(code)),
        }
    }

    /// The service's own words on what it can do. An extension.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the service has no HELP; and as [`Client::lock`].
    pub fn help(&mut self) -> Result<Vec<String>, Error> {
        let reply = self.ask("HELP")?;
        match reply.code {
            211 | 214 => Ok(reply.lines),
            code => Err(refusal(code)),
        }
    }

    /// Nothing, to see that the service is there. An extension.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the service has no NOOP; and as [`Client::lock`].
    pub fn noop(&mut self) -> Result<(), Error> {
        self.expect("NOOP", 200)
    }

    /// Says goodbye and waits for the answer. Dropping the client is as good.
    ///
    /// # Errors
    /// As [`Client::lock`].
    pub fn quit(mut self) -> Result<(), Error> {
        self.expect("QUIT", 221)
    }

    fn expect(&mut self, line: &str, expected: u16) -> Result<(), Error> {
        let code = self.ask(line)?.code;
        if code == expected { Ok(()) } else { Err(refusal(code)) }
    }

    /// Sends one line and takes the reply; 421 is an error.
    ///
    /// # Errors
    /// [`Error::Dismissed`] for 421; and as [`Client::lock`].
    fn ask(&mut self, line: &str) -> Result<Reply, Error> {
        self.send(line)?;
        let reply = self.receive(self.patience)?;
        if reply.code == 421 { Err(Error::Dismissed) } else { Ok(reply) }
    }

    /// Says one line, in one write. Never raises SIGPIPE: a library does not know what its program does about that
    /// signal.
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::Closed`] and [`Error::Broken`].
    fn send(&mut self, line: &str) -> Result<(), Error> {
        self.socket.set_write_timeout(Some(self.patience)).map_err(Error::Broken)?;
        let line = format!("{line}\r\n");
        let mut bytes = line.as_bytes();
        while !bytes.is_empty() {
            match socket::send(self.socket.as_raw_fd(), bytes, sys::QUIETLY) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(Error::of(errno.into())),
            }
        }
        Ok(())
    }

    /// Takes one reply, of one line or of many.
    ///
    /// # Errors
    /// [`Error::TimedOut`] after `time`, [`Error::Closed`], [`Error::Broken`], and
    /// [`Error::Protocol`] for what is no reply.
    fn receive(&mut self, time: Duration) -> Result<Reply, Error> {
        let deadline = Instant::now().checked_add(time);
        loop {
            if let Some(reply) = reply::take(&mut self.bytes).map_err(|_| Error::Protocol)? {
                return Ok(reply);
            }
            let mut buffer = [0; READ_BYTES];
            let length = self.read(&mut buffer, deadline)?;
            self.bytes.extend_from_slice(buffer.get(..length).unwrap_or_default());
        }
    }

    fn read(&mut self, buffer: &mut [u8], deadline: Option<Instant>) -> Result<usize, Error> {
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(Error::TimedOut);
            }
            self.socket.set_read_timeout(left).map_err(Error::Broken)?;
            match self.socket.read(buffer) {
                Ok(0) => return Err(Error::Closed),
                Ok(length) => return Ok(length),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::of(error)),
            }
        }
    }
}

/// What became of a lock whose release was refused. A lock file that is ignored is no lock.
pub(crate) fn after_refusal(survey: &Survey) -> Outcome {
    let is_lock = |it: &Holder| it.scheme.file().is_some() && it.standing != Standing::Ignored;
    let is_gone = survey.is_complete && !survey.holders.iter().any(is_lock);
    if is_gone { Outcome::Done } else { Outcome::Busy }
}

/// Readable when there may be a reply to receive.
impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn outcome(reply: &Reply) -> Result<Outcome, Error> {
    match reply.code {
        200 => Ok(Outcome::Done),
        450 => Ok(Outcome::Busy),
        550 => Ok(Outcome::Denied),
        code => Err(refusal(code)),
    }
}

fn refusal(code: u16) -> Error {
    match code {
        202 | 500 | 502 => Error::Unsupported,
        421 => Error::Dismissed,
        550 => Error::Refused,
        code => Error::Unexpected(code),
    }
}

/// A listener whose queue is full blocks connect(2) on a Unix socket for ever, unless the time
/// for sending is limited beforehand (unix(7), socket(7)).
fn connect_unix(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let socket = UnixStream::from(sys::unix_socket()?);
    socket.set_write_timeout(Some(patience))?;
    let address = UnixAddr::new(path)?;
    let begin = Instant::now();
    loop {
        match socket::connect(socket.as_raw_fd(), &address) {
            Ok(()) => return Ok(socket),
            // A signal of the program that waits for a place in the queue: nothing has begun.
            Err(Errno::EINTR) if begin.elapsed() < patience => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn connect_tcp(
    address: &SocketAddr,
    patience: Duration,
) -> io::Result<(UnixStream, Option<[SocketAddr; 2]>)> {
    let stream = TcpStream::connect_timeout(address, patience)?;
    // A request is one small write: it is not to wait for company. Only a matter of speed.
    let _ = stream.set_nodelay(true);
    let ends = [stream.local_addr()?, *address];
    Ok((OwnedFd::from(stream).into(), Some(ends)))
}

#[cfg(test)]
mod tests;
