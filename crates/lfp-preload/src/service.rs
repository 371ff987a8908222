//! Asks the service. Blocking, within one second in all (`LFP_TIMEOUT` says more); a service that
//! does not answer in that time is not asked again by this process.
//!
//! No connection is kept: a program must find no descriptor of ours among its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use lfp::client::{Address, Client, Error};
use pidlockfile::Pid;
use ttylock::device::name::DeviceName;
use ttylock::lock::Outcome;

use crate::mode::timeout;
use crate::real::variable;

/// Whether the service has once not answered in time.
static HANGS: AtomicBool = AtomicBool::new(false);

/// A service that has greeted us.
pub(crate) struct Service {
    client: Client,
    deadline: Instant,
}

impl Service {
    /// The service that `LFP_SERVER` names, or else the one at its usual Unix socket if nobody
    /// else can be listening there.
    pub(crate) fn reach() -> Option<Self> {
        if HANGS.load(Ordering::Relaxed) {
            return None;
        }
        let deadline = Instant::now().checked_add(timeout())?;
        let client = match variable(c"LFP_SERVER") {
            Some(text) => {
                let address: Address = std::str::from_utf8(&text).ok()?.parse().ok()?;
                Client::connect(&address, timeout())
            }
            None => Client::usual(timeout()),
        };
        Some(Self { client: client.inspect_err(remember).ok()?, deadline })
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
