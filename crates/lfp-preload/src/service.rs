//! Asks the service. Blocking, for at most `LFP_TIMEOUT`, unless the program waits in line.
//!
//! A service that did not answer in that time is left alone for a while, each time for twice as long, where its answer
//! is not needed: by calls that name lock files, whose real result then stands, and by calls that repeat a release. A
//! port that is opened always asks.
//!
//! No connection is kept, so a program finds no descriptor of ours among its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lfp::Holder;
use lfp::client::{Client, Error};
use pidlockfile::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::thread::{NanosleepRelativeResult, nanosleep};
use rustix::time::{ClockId, clock_gettime};
use ttylock::{DeviceName, Outcome};

use crate::mode::{self, Whom, timeout};

/// For how long it is left alone first, and at most, in milliseconds.
const PAUSE_FIRST: u64 = 1_000;
const PAUSE_LAST: u64 = 64_000;

/// Between two attempts to reach a service that hangs up.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

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

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// No service is there, or none that serves this process.
    Absent,
    /// A service is there, and has not answered in time.
    Busy,
    /// This process cannot connect just now: its descriptors or the machine's memory are used up.
    Unable(Errno),
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
    /// The service, unless it is being left alone.
    pub(crate) fn reach() -> Option<Self> {
        if may_answer() { Self::reach_within(timeout()).ok() } else { None }
    }

    /// The service that `LFP_SERVER` names, or else the one at its usual Unix socket if nobody
    /// else can be listening there. `time` is for reaching it and for all its answers.
    pub(crate) fn reach_within(time: Duration) -> Result<Self, NoAnswer> {
        let deadline = later(time);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let client = match mode::whom() {
                Whom::Usual => Client::usual(left),
                Whom::At(address) => Client::connect(address, left),
                Whom::Nobody => return Err(NoAnswer::Absent),
            };
            match client.inspect_err(breaks_off) {
                Ok(client) => return Ok(Self { client, deadline }),
                // It hangs up where too many are connected, and while it is restarted.
                Err(error) if error.is_busy() && later(RETRY_PAUSE) < deadline => rest(RETRY_PAUSE),
                Err(error) => return Err(given_up(&error)),
            }
        }
    }

    /// Stands in line for a lock. Whatever this process catches a signal for, it is to go on with.
    pub(crate) fn wait(&mut self, device: &DeviceName, pid: Pid, time: Duration) -> Waited {
        self.deadline = later(time.saturating_add(timeout()));
        if let Err(error) = self.client.begin_wait(device, pid, time) {
            given_up(&error);
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

    pub(crate) fn lock(&mut self, device: &DeviceName, pid: Pid) -> Result<Outcome, NoAnswer> {
        self.ask(|client| client.lock(device, pid))
    }

    pub(crate) fn unlock(&mut self, device: &DeviceName, pid: Pid) -> Option<Outcome> {
        self.ask(|client| client.unlock(device, pid)).ok()
    }

    /// Passes a lock from one process to another; no other process can get the device in between.
    pub(crate) fn pass(&mut self, device: &DeviceName, from: Pid, to: Pid) -> Option<Outcome> {
        self.ask(|client| client.pass(device, from, to)).ok()
    }

    /// The holders of a device, by any scheme.
    pub(crate) fn holders(&mut self, device: &DeviceName) -> Option<Vec<Holder>> {
        self.ask(|client| client.status(Some(device))).ok()
    }

    fn ask<T>(
        &mut self,
        question: impl FnOnce(&mut Client) -> Result<T, Error>,
    ) -> Result<T, NoAnswer> {
        self.client.be_patient(self.deadline.saturating_duration_since(Instant::now()));
        question(&mut self.client).inspect(|_| answered()).map_err(|error| given_up(&error))
    }
}

impl NoAnswer {
    fn of(error: &Error) -> Self {
        const USED_UP: [Errno; 4] = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
        let errno =
            if let Error::Unreachable(error) = error { Errno::from_io_error(error) } else { None };
        match errno.filter(|errno| USED_UP.contains(errno)) {
            Some(errno) => Self::Unable(errno),
            None if error.is_busy() => Self::Busy,
            None => Self::Absent,
        }
    }
}

fn later(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now)
}

/// Past the C library, whose calls may be the program's own.
pub(crate) fn rest(time: Duration) {
    let Ok(time) = Timespec::try_from(time) else { return };
    match nanosleep(&time) {
        NanosleepRelativeResult::Ok
        | NanosleepRelativeResult::Interrupted(_)
        | NanosleepRelativeResult::Err(_) => {}
    }
}

fn answered() {
    UNTIL.store(0, Ordering::Relaxed);
    PAID_AFTER.store(0, Ordering::Relaxed);
    PAUSE.store(0, Ordering::Relaxed);
}

fn breaks_off(error: &Error) {
    if !matches!(error, Error::Unreachable(_)) {
        pay_later();
    }
}

/// Nothing more is asked in this call; a busy service is left alone for a while.
fn given_up(error: &Error) -> NoAnswer {
    breaks_off(error);
    let reason = NoAnswer::of(error);
    if reason == NoAnswer::Busy {
        let pause = next(PAUSE.load(Ordering::Relaxed));
        PAUSE.store(pause, Ordering::Relaxed);
        UNTIL.store(now().saturating_add(pause), Ordering::Relaxed);
    }
    reason
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
