//! Asks the service. Blocking, for at most `LFP_TIMEOUT`, unless the program waits in line.
//!
//! A service that did not answer in that time is left alone for as long again, where its answer is not needed: by calls
//! that name lock files, whose real result then stands, and by calls that repeat a release. A port that is opened always
//! asks.
//!
//! No connection is kept, so a program finds no descriptor of ours among its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lfp::client::{Client, Error};
use pidlockfile::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::thread::{NanosleepRelativeResult, nanosleep};
use rustix::time::{ClockId, clock_gettime};
use ttylock::{DeviceName, Outcome};

use crate::settings::{Whom, settings};

/// Between two attempts to reach a service that hangs up.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Between two attempts to release what the service could not release. It would be asked at every close(2) of the program.
const RELEASE_PAUSE: Duration = Duration::from_secs(1);

/// Milliseconds of the monotonic clock before which the service is asked only for what is needed.
static ASK_AFTER: AtomicU64 = AtomicU64::new(0);

/// The same before which no release is repeated.
static RELEASE_AFTER: AtomicU64 = AtomicU64::new(0);

/// A service that has greeted us.
pub(crate) struct Service {
    client: Client,
    deadline: Instant,
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

/// Whether the service may be asked now. One that has not answered is left alone for a while.
pub(crate) fn may_answer() -> bool {
    now() >= ASK_AFTER.load(Ordering::Relaxed)
}

/// Whether a release may be repeated now.
pub(crate) fn may_release() -> bool {
    may_answer() && now() >= RELEASE_AFTER.load(Ordering::Relaxed)
}

/// The service could not release a port: no release is repeated before a pause is over.
pub(crate) fn release_later() {
    put_off(&RELEASE_AFTER, RELEASE_PAUSE);
}

impl Service {
    /// The service, unless it is being left alone.
    pub(crate) fn reach() -> Result<Self, NoAnswer> {
        if may_answer() { Self::reach_within(settings().timeout) } else { Err(NoAnswer::Busy) }
    }

    /// The service that `LFP_SERVER` names, or else the one at its usual Unix socket if nobody
    /// else can be listening there. `time` is for reaching it and for all its answers.
    pub(crate) fn reach_within(time: Duration) -> Result<Self, NoAnswer> {
        let deadline = later(time);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let client = match &settings().whom {
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

    /// Stands in line for a lock. An error ends the wait: a signal that this process catches, or no answer.
    pub(crate) fn wait(
        &mut self,
        device: &DeviceName,
        pid: Pid,
        time: Duration,
    ) -> Result<Outcome, Errno> {
        self.deadline = later(time.saturating_add(settings().timeout));
        self.ask(|client| client.begin_wait(device, pid, time)).map_err(|_| Errno::BUSY)?;
        let left = self.deadline.saturating_duration_since(Instant::now());
        poll(
            &mut [PollFd::new(&self.client, PollFlags::IN)],
            Timespec::try_from(left).ok().as_ref(),
        )?;
        self.deadline = later(settings().timeout);
        self.ask(Client::finish_wait).map_err(|_| Errno::BUSY)
    }

    pub(crate) fn lock(&mut self, device: &DeviceName, pid: Pid) -> Result<Outcome, NoAnswer> {
        self.ask(|client| client.lock(device, pid))
    }

    pub(crate) fn unlock(&mut self, device: &DeviceName, pid: Pid) -> Option<Outcome> {
        self.ask(|client| client.release(device, pid)).ok()
    }

    /// Passes a lock from one process to another; no other process can get the device in between.
    pub(crate) fn pass(&mut self, device: &DeviceName, from: Pid, to: Pid) -> Option<Outcome> {
        self.ask(|client| client.pass(device, from, to)).ok()
    }

    pub(crate) fn ask<T>(
        &mut self,
        question: impl FnOnce(&mut Client) -> Result<T, Error>,
    ) -> Result<T, NoAnswer> {
        self.client.be_patient(self.deadline.saturating_duration_since(Instant::now()));
        question(&mut self.client).inspect(|_| answered()).map_err(|error| given_up(&error))
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
    ASK_AFTER.store(0, Ordering::Relaxed);
    RELEASE_AFTER.store(0, Ordering::Relaxed);
}

fn breaks_off(error: &Error) {
    if !matches!(error, Error::Unreachable(_)) {
        release_later();
    }
}

/// Nothing more is asked in this call; a busy service is left alone for a while.
fn given_up(error: &Error) -> NoAnswer {
    const USED_UP: [Errno; 4] = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    breaks_off(error);
    let errno =
        if let Error::Unreachable(error) = error { Errno::from_io_error(error) } else { None };
    match errno.filter(|errno| USED_UP.contains(errno)) {
        Some(errno) => NoAnswer::Unable(errno),
        None if error.is_busy() => {
            put_off(&ASK_AFTER, settings().timeout);
            NoAnswer::Busy
        }
        None => NoAnswer::Absent,
    }
}

fn put_off(until: &AtomicU64, pause: Duration) {
    let pause = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
    until.store(now().saturating_add(pause), Ordering::Relaxed);
}

/// Milliseconds of the monotonic clock.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let rest = u64::try_from(time.tv_nsec).unwrap_or_default();
    seconds.saturating_mul(1000).saturating_add(rest / 1_000_000)
}
