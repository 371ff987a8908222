//! Asks the service. Blocking, for at most one second (`LFP_TIMEOUT` changes that), unless the program waits
//! in line. A service that did not answer in that time is not asked for a while, each time for twice as long.
//!
//! No connection is kept, so a program finds no descriptor of ours among its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lfp::Holder;
use lfp::client::{Client, Error};
use pidlockfile::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use ttylock::{DeviceName, Outcome};

use crate::mode::{self, Whom, timeout};

/// For how long it is left alone first, and at most, in milliseconds.
const PAUSE_FIRST: u64 = 1_000;
const PAUSE_LAST: u64 = 64_000;

/// Milliseconds of the monotonic clock before which it is left alone; 0: it has answered.
static UNTIL: AtomicU64 = AtomicU64::new(0);

/// Milliseconds of the monotonic clock before which nothing is paid: a service that greets and breaks off, or cannot
/// release a lock, would be asked at every close(2) of the program.
static PAID_AFTER: AtomicU64 = AtomicU64::new(0);

/// How long it was left alone the last time.
static PAUSE: AtomicU64 = AtomicU64::new(0);

/// A service that has greeted us.
pub(crate) struct Service {
    client: Client,
    deadline: Instant,
}

/// What became of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    Told(Outcome),
    /// A signal has come meanwhile.
    Interrupted,
    /// No answer.
    Unknown,
}

/// Whether it is not being left alone just now.
pub(crate) fn may_answer() -> bool {
    now() >= UNTIL.load(Ordering::Relaxed)
}

/// Whether it is worth a try to tell it what was closed.
pub(crate) fn may_be_paid() -> bool {
    may_answer() && now() >= PAID_AFTER.load(Ordering::Relaxed)
}

/// It could not do what it was told: it is told again after a pause.
pub(crate) fn pay_later() {
    PAID_AFTER.store(now().saturating_add(PAUSE_FIRST), Ordering::Relaxed);
}

impl Service {
    /// The service that `LFP_SERVER` names, or else the one at its usual Unix socket if nobody
    /// else can be listening there.
    pub(crate) fn reach() -> Option<Self> {
        if !may_answer() {
            return None;
        }
        let deadline = later(timeout());
        let client = match mode::whom() {
            Whom::Usual => Client::usual(timeout()),
            Whom::At(address) => Client::connect(address, timeout()),
            Whom::Nobody => return None,
        };
        Some(Self { client: client.inspect_err(remember).ok()?, deadline })
    }

    /// Stands in line for a lock. Whatever this process catches a signal for, it is to go on with.
    pub(crate) fn wait(&mut self, device: &DeviceName, pid: Pid, time: Duration) -> Waited {
        self.deadline = later(time.saturating_add(timeout()));
        if self.client.begin_wait(device, pid, time).inspect_err(remember).is_err() {
            return Waited::Unknown;
        }
        let left = self.deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).ok();
        let came = poll(&mut [PollFd::new(&self.client, PollFlags::IN)], left.as_ref());
        self.deadline = later(timeout());
        match came {
            Err(Errno::INTR) => Waited::Interrupted,
            Err(_) => Waited::Unknown,
            Ok(_) => self.ask(Client::finish_wait).map_or(Waited::Unknown, Waited::Told),
        }
    }

    pub(crate) fn lock(&mut self, device: &DeviceName, pid: Pid) -> Option<Outcome> {
        self.ask(|client| client.lock(device, pid))
    }

    pub(crate) fn unlock(&mut self, device: &DeviceName, pid: Pid) -> Option<Outcome> {
        self.ask(|client| client.unlock(device, pid))
    }

    /// Passes a lock from one process to another; no other process can get the device in between.
    pub(crate) fn pass(&mut self, device: &DeviceName, from: Pid, to: Pid) -> Option<Outcome> {
        self.ask(|client| client.pass(device, from, to))
    }

    /// The holders of a device, by any scheme.
    pub(crate) fn holders(&mut self, device: &DeviceName) -> Option<Vec<Holder>> {
        self.ask(|client| client.status(Some(device)))
    }

    fn ask<T>(&mut self, question: impl FnOnce(&mut Client) -> Result<T, Error>) -> Option<T> {
        self.be_patient();
        question(&mut self.client).inspect(|_| answered()).inspect_err(remember).ok()
    }

    fn be_patient(&mut self) {
        self.client.be_patient(self.deadline.saturating_duration_since(Instant::now()));
    }
}

fn later(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now)
}

fn answered() {
    UNTIL.store(0, Ordering::Relaxed);
    PAID_AFTER.store(0, Ordering::Relaxed);
    PAUSE.store(0, Ordering::Relaxed);
}

fn remember(error: &Error) {
    if !matches!(error, Error::Unreachable(_)) {
        pay_later();
    }
    if matches!(error, Error::TimedOut) {
        let pause = next(PAUSE.load(Ordering::Relaxed));
        PAUSE.store(pause, Ordering::Relaxed);
        UNTIL.store(now().saturating_add(pause), Ordering::Relaxed);
    }
}

/// Twice as long as the last time.
fn next(pause: u64) -> u64 {
    pause.saturating_mul(2).clamp(PAUSE_FIRST, PAUSE_LAST)
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let rest = u64::try_from(time.tv_nsec).unwrap_or_default();
    seconds.saturating_mul(1000).saturating_add(rest / 1_000_000)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::first(0, 1_000)]
    #[case::second(1_000, 2_000)]
    #[case::last(64_000, 64_000)]
    fn pauses_double(#[case] pause: u64, #[case] expected: u64) {
        assert_eq!(next(pause), expected);
    }
}
