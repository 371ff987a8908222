//! Asks the service. Blocking, within one second in all; a service that does not answer in that
//! time is not asked again by this process.
//!
//! No connection is kept: a program must find no descriptor of ours among its own.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lfp::client::{Address, Client, Error, UNIX_SOCKET};
use pidlockfile::Pid;
use rustix::fs::stat;
use rustix::process::geteuid;
use ttylock::device::name::DeviceName;
use ttylock::lock::Outcome;

use crate::real::variable;

/// How long a program may be kept waiting by one of its calls.
const LIMIT: Duration = Duration::from_secs(1);

/// Whether the service has once not answered in time.
static HANGS: AtomicBool = AtomicBool::new(false);

/// A service that has greeted us.
pub(crate) struct Service {
    client: Client,
    deadline: Instant,
}

impl Service {
    /// The service that `LFP_SERVER` names, or else the one at its usual Unix socket if that is
    /// root's, the socket directory's owner's, or our own.
    pub(crate) fn reach() -> Option<Self> {
        if HANGS.load(Ordering::Relaxed) {
            return None;
        }
        let deadline = Instant::now().checked_add(LIMIT)?;
        let named = variable(c"LFP_SERVER");
        let address = match &named {
            Some(text) => std::str::from_utf8(text).ok()?.parse().ok()?,
            None => Address::default(),
        };
        let client = Client::connect(&address, LIMIT).inspect_err(remember).ok()?;
        let listener = client.listener().ok()?;
        let trusted = named.is_some() || listener.is_some_and(may_be_the_service);
        trusted.then_some(Self { client, deadline })
    }

    pub(crate) fn lock(&mut self, device: &DeviceName, pid: Pid) -> Option<Outcome> {
        self.ask(|client| client.lock(device, pid))
    }

    pub(crate) fn unlock(&mut self, device: &DeviceName, pid: Pid) -> Option<Outcome> {
        self.ask(|client| client.unlock(device, pid))
    }

    /// Gives a lock from one process to another; the device is nobody else's at any moment.
    pub(crate) fn pass(&mut self, device: &DeviceName, from: Pid, to: Pid) -> Option<Outcome> {
        self.ask(|client| client.pass(device, from, to))
    }

    /// The processes that hold a device, by whatever scheme.
    pub(crate) fn holders(&mut self, device: &DeviceName) -> Option<Vec<Pid>> {
        let holders = self.ask(|client| client.status(Some(device)))?;
        Some(holders.into_iter().filter_map(|holder| holder.pid).collect())
    }

    fn ask<T>(&mut self, question: impl FnOnce(&mut Client) -> Result<T, Error>) -> Option<T> {
        self.client.be_patient(self.deadline.saturating_duration_since(Instant::now()));
        question(&mut self.client).inspect_err(remember).ok()
    }
}

fn remember(error: &Error) {
    if matches!(error, Error::TimedOut) {
        HANGS.store(true, Ordering::Relaxed);
    }
}

/// Whoever listens at the usual socket must be root (a super-server), our own user, or the user to
/// whom root gave the socket's directory: in a directory that others may write, somebody else
/// could listen there and answer 200 to everything.
fn may_be_the_service(listener: u32) -> bool {
    const OTHERS_WRITE: u32 = 0o022;
    let given_to = || {
        let directory = Path::new(UNIX_SOCKET).parent()?;
        let above = stat(directory.parent()?).ok()?;
        let is_roots = above.st_uid == 0 && above.st_mode & OTHERS_WRITE == 0;
        stat(directory).ok().filter(|_| is_roots).map(|it| it.st_uid)
    };
    listener == 0 || listener == geteuid().as_raw() || given_to() == Some(listener)
}
