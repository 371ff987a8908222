//! The short commands: each asks once and prints the result.

use std::time::Instant;

use pidlockfile::Pid;
use pidlockfile::process::{NoCaller, lives, of_caller};
use wrapcmd::Value;

use super::arguments::{self, LockArguments, LockTarget, PassArguments, WaitArguments};
use super::listing::refuse_missing;
use super::outcome::{Failure, Output, exit};
use super::row::Row;
use super::search::{in_the_way, living, openers};
use super::waiting::{self, Waited};
use crate::client::broker::{Broker, Route, Trouble};
use ttylock::{Layout, Outcome, Pass, Request, Scheme, Table};

pub(super) fn lock(asked: &LockArguments, route: &Route, output: &Output) -> Result<u8, Failure> {
    refuse_missing(&asked.target.device, asked.presence)?;
    let (mut broker, request) = (Broker::new(route), request(&asked.target)?);
    let outcome = broker.lock(&request);
    done_or_failure(outcome, &mut broker, &request, busy_for(&request))
        .map(|()| locked(&request, output))
}

pub(super) fn unlock(asked: &LockTarget, route: &Route, output: &Output) -> Result<u8, Failure> {
    let mut broker = Broker::new(route);
    let pid = asked.pid.or_else(|| of_caller(|pid| pid).ok()).unwrap_or_else(Pid::this);
    let mut request = Request { device: asked.device.clone(), pid };
    let mut outcome = broker.unlock(&request);
    // As the last command of a script we may be the very process that called for the lock: a
    // shell does not fork for that one.
    if matches!(outcome, Ok(Outcome::Busy | Outcome::Denied)) && asked.pid.is_none() {
        let own = Request { pid: Pid::this(), ..request.clone() };
        if let Ok(Outcome::Done) = broker.unlock(&own) {
            (request, outcome) = (own, Ok(Outcome::Done));
        }
    }
    done_or_failure(outcome, &mut broker, &request, not_held(&request))?;
    Ok(done(&request, still_open(&request), output))
}

/// From the process that has it, by default the caller, to another process of the same user.
pub(super) fn pass(asked: &PassArguments, route: &Route, output: &Output) -> Result<u8, Failure> {
    let (mut broker, from) = (Broker::new(route), request(&asked.target)?);
    let pass = Pass { device: from.device.clone(), from: from.pid, to: asked.to };
    let to = Request { pid: asked.to, ..from.clone() };
    done_or_failure(broker.pass(&pass), &mut broker, &to, not_held(&from))?;
    Ok(done(&to, Vec::new(), output))
}

pub(super) fn wait(asked: &WaitArguments, route: &Route, output: &Output) -> Result<u8, Failure> {
    let LockArguments { target, presence } = &asked.lock;
    refuse_missing(&target.device, *presence)?;
    let (mut broker, request) = (Broker::new(route), request(target)?);
    let deadline = asked.timeout.and_then(|time| Instant::now().checked_add(time));
    broker.be_patient(waiting::patience(deadline));
    if in_the_way(&request.device).iter().any(|row| row.is_lock_of(request.pid)) {
        // It would be waited for without end: nobody else can release it meanwhile.
        return Err(busy(&mut broker, &request, busy_for(&request)));
    }
    // In a container, only the service may see the lock files.
    let is_new = broker.knows_no_holder(&request.device);
    let waited = waiting::wait(&mut broker, &request, deadline, None, Some(output));
    if is_new {
        broker.release_unanswered(&request);
    }
    waited_or_failure(waited, &mut broker, &request).map(|()| locked(&request, output))
}

/// What came of waiting, as a failure unless the lock was taken.
pub(super) fn waited_or_failure(
    waited: Waited,
    broker: &mut Broker,
    request: &Request,
) -> Result<(), Failure> {
    match waited {
        Waited::Answered(outcome) => done_or_failure(outcome, broker, request, busy_for(request)),
        Waited::TimedOut(reasons) => {
            Err(busy(broker, request, |rows| Failure::timed_out(rows, reasons)))
        }
        Waited::Interrupted(signal) => {
            Err(Failure::interrupted(signal).about(request.device.as_str()))
        }
    }
}

/// What an answer means for the command, and why it has failed. `failure` is what a busy device means for it.
pub(super) fn done_or_failure(
    outcome: Result<Outcome, Trouble>,
    broker: &mut Broker,
    request: &Request,
    failure: impl FnOnce(Vec<Row>) -> Failure,
) -> Result<(), Failure> {
    match outcome {
        Ok(Outcome::Done) => Ok(()),
        Ok(Outcome::Busy) => Err(busy(broker, request, failure)),
        Ok(Outcome::Denied) => {
            let reasons = broker.why_denied(request);
            Err(Failure::not_permitted(reasons).about(request.device.as_str()))
        }
        Err(trouble) => Err(trouble.failure().about(request.device.as_str())),
    }
}

/// What a busy device means for a process that wants it.
pub(super) fn busy_for(request: &Request) -> impl FnOnce(Vec<Row>) -> Failure {
    let pid = request.pid;
    move |rows| Failure::busy(rows, pid)
}

/// What a busy device means for a process that releases it.
pub(super) fn not_held(request: &Request) -> impl FnOnce(Vec<Row>) -> Failure {
    let Request { device, pid } = request.clone();
    move |rows| match Table::new(Layout::native()).is_held_elsewhere(&device) {
        true => Failure::held_elsewhere(rows),
        false => Failure::not_held(rows, pid),
    }
}

/// The holders in the way, as we see them, or else as the service does.
pub(super) fn busy(
    broker: &mut Broker,
    request: &Request,
    failure: impl FnOnce(Vec<Row>) -> Failure,
) -> Failure {
    let mut rows = in_the_way(&request.device);
    if rows.is_empty() {
        rows = living(broker.holders(&request.device));
    }
    failure(rows).about(request.device.as_str())
}

/// The lock is for the process that called us: we are gone in a moment.
fn request(asked: &LockTarget) -> Result<Request, Failure> {
    let caller = || {
        of_caller(|pid| pid).map_err(|none| {
            Failure::system(match none {
                NoCaller::Outside => {
                    "the process that called lfp is outside this pid namespace: use --pid"
                }
                NoCaller::Ended => {
                    "the process that called lfp has ended: name the process that gets the lock (--pid)"
                }
            })
        })
    };
    Ok(Request { device: asked.device.clone(), pid: asked.pid.map_or_else(caller, Ok)? })
}

/// What may surprise a user that has just got a lock.
fn locked(request: &Request, output: &Output) -> u8 {
    done(request, surprises(request), output)
}

/// A lock for a process that is not there is stale from the beginning; and a program that has the port open without a
/// lock goes on using it.
pub(super) fn surprises(request: &Request) -> Vec<String> {
    let Request { device, pid } = request;
    let mut remarks = Vec::new();
    if !lives(*pid) {
        remarks
            .push(format!("there is no process {pid}: the next process that asks gets the lock"));
    }
    let mut openers = openers(device);
    openers.retain(|row| row.holder.pid != Some(*pid));
    let opener = |row: &Row| {
        let (port, who) = (device.as_str(), row.who());
        if row.holder.scheme == Scheme::Exclusive {
            return format!(
                "/dev/{port}: locked, but {who}, has it open without a lock, and the kernel refuses it to all others \
                 but root (TIOCEXCL)"
            );
        }
        format!("/dev/{port}: locked, but open without a lock in {who}")
    };
    remarks.extend(openers.iter().map(opener));
    remarks
}

pub(super) fn still_open(request: &Request) -> Vec<String> {
    let device = request.device.as_str();
    let opener = |row: &Row| format!("/dev/{device}: unlocked, but still open in {}", row.who());
    openers(&request.device).iter().map(opener).collect()
}

/// Silent but for JSON and remarks: no news is good news.
pub(super) fn done(request: &Request, remarks: Vec<String>, output: &Output) -> u8 {
    let pid = u64::try_from(request.pid.as_raw()).unwrap_or(0);
    for remark in &remarks {
        output.remark(remark);
    }
    let json = || {
        Value::Object(vec![
            ("outcome", "done".into()),
            ("device", format!("/dev/{}", request.device.as_str()).as_str().into()),
            ("pid", Value::Number(pid)),
            ("remarks", Value::List(remarks.iter().map(|it| it.as_str().into()).collect())),
        ])
    };
    output.answer(String::new, json);
    exit::DONE
}

pub(super) fn completions(shell: wrapcmd::Shell, output: &Output) -> Result<u8, Failure> {
    output.print(&wrapcmd::completions(shell, &arguments::command()));
    Ok(exit::DONE)
}
