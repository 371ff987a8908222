//! Commands that act on the holders of a device: `lfp ask`, `lfp unlock --force`, and `lfp run --yield-on` on
//! the other side. Each holder is named in the request, so a process that took the lock in between does not
//! lose it.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use pidlockfile::{Pid, process, words_of};

use super::actions::{
    busy, busy_for, done, done_or_failure, not_held, still_open, waited_or_failure,
};
use super::arguments::{AskArguments, UnlockArguments};
use super::command_lines;
use super::outcome::{Failure, Output};
use super::row::Row;
use super::search::in_the_way;
use super::waiting::{Waited, wait};
use crate::client::broker::{Broker, Route, how_to_start};
use crate::client::{Address, PATIENCE};
use ttylock::{DeviceName, Layout, Outcome, Request, Table};

/// The pause between two looks whether a holder has released the device.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How often a wrapper asks the service whether somebody waits for a device of its command.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Releases the lock of any process.
pub(super) fn force(
    asked: &UnlockArguments,
    route: &Route,
    output: &Output,
) -> Result<u8, Failure> {
    let device = &asked.target.device;
    let mut broker = Broker::new(route);
    let Some(holder) = asked.target.pid.or_else(|| holder(&mut broker, device)) else {
        let request = Request { device: device.clone(), pid: Pid::this() };
        return Err(busy(&mut broker, &request, |rows| Failure::not_held(rows, request.pid)));
    };
    let request = Request { device: device.clone(), pid: holder };
    let mut remarks = Vec::new();
    if let Some(signal) = asked.signal {
        ask_for_the_right(&mut broker, device)?;
        remarks.extend(signal_holder(&request, signal));
    }
    if asked.grace.is_some_and(|grace| has_released(&request, grace)) {
        return Ok(done(&request, remarks, output));
    }
    let outcome = broker.force(&request);
    // The signal may have ended the holder, and its lock went with it before the request came.
    let is_gone = matches!(outcome, Ok(Outcome::Busy))
        && asked.signal.is_some()
        && has_released(&request, Duration::ZERO);
    if !is_gone {
        done_or_failure(outcome, &mut broker, &request, not_held(&request))?;
        remarks.extend(still_open(&request));
    }
    Ok(done(&request, remarks, output))
}

/// A user that may not use force cannot have a signal sent to another process. The question releases nothing: the process
/// that asks has no lock.
fn ask_for_the_right(broker: &mut Broker, device: &DeviceName) -> Result<(), Failure> {
    let nobodys = Request { device: device.clone(), pid: Pid::this() };
    match broker.force(&nobodys) {
        Ok(Outcome::Busy) => Ok(()),
        outcome => done_or_failure(outcome, broker, &nobodys, busy_for(&nobodys)),
    }
}

/// Sends a signal to the process that has the lock by the records of those who take locks, and to no
/// other: any user may write any number into a lock file. Says why it was not sent.
fn signal_holder(request: &Request, signal: Signal) -> Option<String> {
    let pid = request.pid;
    let on_record = Table::new(Layout::native()).holder_on_record(&request.device);
    let Some(holder) = on_record.filter(|holder| holder.pid == pid) else {
        return Some(format!("pid {pid} got no signal: no service has recorded its lock"));
    };
    let error = process::signal(&holder, signal as i32).err()?;
    Some(format!("pid {pid} got no signal: {}", words_of(&error)))
}

/// The living process that has a lock of the device, as we see it, or else as the service does.
fn holder(broker: &mut Broker, device: &DeviceName) -> Option<Pid> {
    let seen = in_the_way(device).iter().find_map(Row::living_holder);
    seen.or_else(|| {
        super::search::living(broker.holders(device)).iter().find_map(Row::living_holder)
    })
}

/// Whether the holder releases the device within that time.
fn has_released(request: &Request, grace: Duration) -> bool {
    let deadline = Instant::now().checked_add(grace);
    loop {
        if !in_the_way(&request.device).iter().any(|row| row.is_lock_of(request.pid)) {
            return true;
        }
        if deadline.is_none_or(|deadline| Instant::now() >= deadline) {
            return false;
        }
        wrapcmd::pause(None, None, Some(LOOK_AGAIN));
    }
}

/// Stands in line for a moment, so that the holder's wrapper sees that somebody waits. If it gets
/// the port, it gives it back: to ask is not to take.
pub(super) fn ask(asked: &AskArguments, route: &Route, output: &Output) -> Result<u8, Failure> {
    let request = Request { device: asked.device.clone(), pid: Pid::this() };
    let mut broker = Broker::within(route, Layout::native(), asked.timeout.min(PATIENCE));
    let deadline = Instant::now().checked_add(asked.timeout);
    if let Some(remark) = why_nobody_yields(&mut broker, &request.device) {
        output.remark(&remark);
    }
    let waited = wait(&mut broker, &request, deadline, None, None);
    broker.release_unanswered(&request);
    match waited {
        Waited::TimedOut(_) => Err(busy(&mut broker, &request, busy_for(&request))),
        waited @ (Waited::Answered(_) | Waited::Interrupted(_)) => {
            waited_or_failure(waited, &mut broker, &request)?;
            let _ = broker.unlock(&request);
            Ok(done(&request, Vec::new(), output))
        }
    }
}

/// Why the holders will not learn that somebody asks, if that is known.
fn why_nobody_yields(broker: &mut Broker, device: &DeviceName) -> Option<String> {
    let rows = in_the_way(device);
    let holders: Vec<Pid> = rows.iter().filter_map(Row::living_holder).collect();
    let first = rows.iter().find(|row| row.living_holder().is_some())?;
    let device = device.as_str();
    if broker.lacks_service() {
        let start = how_to_start(&Address::default());
        return Some(format!("/dev/{device}: without the service no holder can yield\n  {start}"));
    }
    let yields = may_yield(&holders);
    let text = "does not yield: it was not started by lfp run --yield-on";
    (!yields).then(|| format!("/dev/{device}: {} {text}", first.who()))
}

/// Whether the wrapper of one of these commands has the option, or cannot be seen.
fn may_yield(holders: &[Pid]) -> bool {
    let wrappers: Vec<Pid> = holders.iter().filter_map(|pid| process::parent(*pid)).collect();
    let described = command_lines::of(&wrappers);
    let has_option = |words: &str| words.split(' ').any(|word| word.starts_with("--yield-on"));
    let may = |pid: &Pid| described.get(pid).is_none_or(|wrapper| has_option(&wrapper.words));
    wrappers.len() < holders.len() || wrappers.iter().any(may)
}

/// Sends a command a signal when somebody waits for one of its devices: once for each time that a queue
/// forms.
pub(super) struct Yielding<'a> {
    requests: &'a [Request],
    signal: Signal,
    /// The signal for the present queue was sent.
    is_sent: bool,
    last: Instant,
}

impl<'a> Yielding<'a> {
    pub(super) fn new(requests: &'a [Request], signal: Signal) -> Self {
        Self { requests, signal, is_sent: false, last: Instant::now() }
    }

    /// Checks if it is time, and sends the signal. Returns when to check again.
    pub(super) fn check(&mut self, broker: &mut Broker) -> Duration {
        let rest = ASK_AGAIN.saturating_sub(self.last.elapsed());
        if !rest.is_zero() {
            return rest;
        }
        let waiting = self.requests.iter().find(|request| broker.is_waited_for(&request.device));
        if let (Some(request), false) = (waiting, self.is_sent) {
            // The command has not been waited for, so its number is still its own.
            let _ = kill(nix::unistd::Pid::from_raw(request.pid.as_raw()), self.signal);
        }
        self.is_sent = waiting.is_some();
        broker.close_connection();
        self.last = Instant::now();
        ASK_AGAIN
    }
}
