//! `lfp run`: holds a device while a command runs; the command's own process is the holder (see the crate
//! `wrapcmd`). When the command has ended, programs may still have its ports open, such as itself in the background:
//! these are named.

use std::fs;
use std::iter::successors;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use pidlockfile::{Pid, process, words_of};
use ttylock::{DeviceName, Holder, Layout, Outcome, Request, Table, follow, out_of_sight};
use wrapcmd::exit::End;
use wrapcmd::{Beside, Signals, Standby};

use super::actions::{busy_for, done_or_failure, still_open, surprises, waited_or_failure};
use super::arguments::RunArguments;
use super::exclusive::Exclusion;
use super::listing::{OUTSIDE, refuse_missing};
use super::outcome::{Failure, Output, warn};
use super::preempt::Yielding;
use super::row::printable;
use super::{shim, waiting};
use crate::client::broker::{Broker, COMMAND_SEARCH, Route, how_to_start};
use crate::client::{Address, PATIENCE};

/// How long the service may take for the first answer where we can wait for the lock.
const ATTEMPT: Duration = Duration::from_secs(1);

/// Takes the locks, runs the command, releases the locks, and gives the command's exit code.
///
/// # Errors
/// Whatever kept the command from being run.
pub(super) fn run(asked: &RunArguments, route: &Route, output: &Output) -> Result<u8, Failure> {
    check_order(asked)?;
    for device in std::iter::once(&asked.device).chain(&asked.also) {
        refuse_missing(device, asked.presence)?;
    }
    if asked.no_fork {
        in_this_process(asked, route, output)
    } else {
        in_a_child(asked, route, output)
    }
}

/// `lfp run picocom /dev/ttyUSB0` would lock a port named picocom, and try to execute the real one.
fn check_order(asked: &RunArguments) -> Result<(), Failure> {
    let Some(program) = asked.command.words.first().map(Path::new) else { return Ok(()) };
    let is_device = program.metadata().is_ok_and(|file| file.file_type().is_char_device());
    if !is_device {
        return Ok(());
    }
    let shown = printable(&program.to_string_lossy());
    let text = format!("{shown} is a device, not a command: lfp run DEVICE -- COMMAND");
    Err(Failure::usage(text))
}

fn in_a_child(asked: &RunArguments, route: &Route, output: &Output) -> Result<u8, Failure> {
    let signals = Signals::catch().map_err(|error| Failure::system(words_of(&error)))?;
    let standby =
        Standby::start("lfp", &asked.command.words, output.form(), &signals).map_err(|error| {
            match wrapcmd::restart_lacks(&error) {
                Some(text) => Failure::system(text),
                None => Failure::system(format!("cannot start the command: {}", words_of(&error))),
            }
        })?;
    let pid = Pid::new(standby.pid().into()).ok_or_else(|| Failure::system("no process"))?;
    let additions = shim::additions(asked, route, pid)?;
    let mut broker = Broker::new(route);
    let taken = take_all(&mut broker, asked, pid, Some(&signals), output);
    let signal = taken.as_ref().err().and_then(|failure| failure.signal);
    let signal = signal.or_else(|| waiting::ending(&signals));
    if let (Some(_), Ok(requests)) = (signal, &taken) {
        release_all(&mut broker, requests);
    }
    let requests = match (signal, taken) {
        // Somebody killed the process that was to become the command. The service may have noticed it first,
        // and refused it.
        (Some(Signal::SIGCHLD), _) => return ended(standby.dismiss()),
        (Some(signal), Ok(_)) => {
            return Err(Failure::interrupted(signal).about(asked.device.as_str()));
        }
        (_, taken) => taken?,
    };
    broker.close_connection();
    // Before the command is there: none of its openings is missed.
    let exclusion = asked.exclusive.then(|| Exclusion::watch(&requests)).flatten();
    let running = standby.go(&additions);
    let yielding = asked.yield_on.map(|signal| Yielding::new(&requests, signal));
    let mut beside = WorkBeside { yielding, exclusion, broker: &mut broker };
    running.attend_beside(&signals, &mut beside);
    if let Some(exclusion) = beside.exclusion {
        exclusion.end();
    }
    let remarks = left_open_by(pid, &requests);
    // Before the process is waited for: until then its number is its own, so that the lock that
    // is released can be no other's.
    for request in requests.iter().rev() {
        release(&mut broker, request);
    }
    for remark in remarks {
        output.remark(&remark);
    }
    ended(running.end())
}

/// What is done while the command runs.
struct WorkBeside<'a> {
    yielding: Option<Yielding<'a>>,
    exclusion: Option<Exclusion>,
    broker: &'a mut Broker,
}

impl Beside for WorkBeside<'_> {
    fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.exclusion.as_ref().and_then(Exclusion::bell)
    }

    fn work(&mut self) -> Option<Duration> {
        let exclusion = self.exclusion.as_mut().and_then(Exclusion::examine_due);
        let yielding = self.yielding.as_mut().map(|yielding| yielding.check(self.broker));
        exclusion.into_iter().chain(yielding).min()
    }
}

/// The locks are this process's own, and end with it: nobody is left to release them.
fn in_this_process(asked: &RunArguments, route: &Route, output: &Output) -> Result<u8, Failure> {
    let additions = shim::additions(asked, route, Pid::this())?;
    let mut broker = Broker::new(route);
    let requests = take_all(&mut broker, asked, Pid::this(), None, output)?;
    broker.close_connection();
    let mut words = asked.command.words.iter().cloned();
    let Some(program) = words.next() else { return Err(Failure::system("no command")) };
    let error = wrapcmd::execute(program, words, &additions);
    release_all(&mut broker, &requests);
    Ok(output.not_started(error))
}

/// All the locks, or none. They are taken in one order by everybody, so that no two wait for each
/// other.
fn take_all(
    broker: &mut Broker,
    asked: &RunArguments,
    pid: Pid,
    signals: Option<&Signals>,
    output: &Output,
) -> Result<Vec<Request>, Failure> {
    let deadline = asked.timeout.and_then(|time| Instant::now().checked_add(time));
    let mut taken: Vec<Request> = Vec::new();
    for device in in_order(asked) {
        let request = Request { device, pid };
        // A wait is interrupted by signals, a question is not: so it is a short one where we may wait.
        let patience = asked.timeout.map_or(PATIENCE, |_| waiting::patience(deadline).min(ATTEMPT));
        broker.be_patient(patience);
        let outcome = broker.lock(&request);
        broker.be_patient(PATIENCE);
        let is_taken = matches!(outcome, Ok(Outcome::Done));
        if !is_taken && is_an_ancestors(&request.device) {
            // A process that started this one has it for both.
            continue;
        }
        let outcome = match asked.timeout {
            Some(_) if !is_taken => {
                let waited = waiting::wait(broker, &request, deadline, signals, Some(output));
                broker.release_unanswered(&request);
                waited_or_failure(waited, broker, &request)
            }
            _ => done_or_failure(outcome, broker, &request, busy_for(&request)),
        };
        if let Err(failure) = outcome {
            release_all(broker, &taken);
            return Err(failure);
        }
        taken.push(request);
    }
    for remark in taken.iter().flat_map(surprises) {
        output.remark(&remark);
    }
    if broker.is_direct() && out_of_sight().outside {
        output.remark(&format!(
            "{OUTSIDE}; give the container the service's socket, {}",
            Address::default()
        ));
    }
    if asked.yield_on.is_some() && !broker.has_queue {
        output.remark(&format!(
            "--yield-on has no effect: only the service knows which processes wait\n  {}",
            how_to_start(&Address::default())
        ));
    }
    shim::caution(asked, output);
    Ok(taken)
}

/// Each device once, by the names of their nodes.
fn in_order(asked: &RunArguments) -> Vec<DeviceName> {
    let node = |device: &DeviceName| {
        let resolved = follow(Path::new("/dev"), device).ok();
        resolved.map_or_else(|| device.as_str().to_owned(), |resolved| resolved.real().to_owned())
    };
    let all = std::iter::once(&asked.device).chain(&asked.also);
    let mut devices: Vec<_> = all.map(|device| (node(device), device.clone())).collect();
    devices.sort_by(|a, b| a.0.cmp(&b.0));
    devices.dedup_by(|b, a| a.0 == b.0);
    devices.into_iter().map(|(_, device)| device).collect()
}

/// Whether we have the lock, or a process that we descend from: then it is ours, too, as long as that lives. Only the
/// record of a lock says so. A lock file alone does not, whoever wrote it: everybody descends from the process that a
/// bare 1 names, by which administrators reserve a port. To be asked only after the lock was refused: the kernel's list
/// may be long. A lock that the search does not find in its time remains its holder's.
fn is_an_ancestors(device: &DeviceName) -> bool {
    let mut table = Table::new(Layout::native());
    let on_record = table.holder_on_record(device).map(|holder| holder.pid);
    let is_ours = |pid: &Pid| process::shares_locks_of(*pid, process::parent);
    let Some(holder) = on_record.filter(is_ours) else { return false };
    let locks = table.holders(Some(device), COMMAND_SEARCH).holders.into_iter();
    let mut locks = locks.filter(Holder::keeps_out).peekable();
    locks.peek().is_some() && locks.all(|it| it.pid == Some(holder))
}

/// The command will not run. What cannot be released is stale in a moment.
fn release_all(broker: &mut Broker, requests: &[Request]) {
    for request in requests.iter().rev() {
        let _ = broker.unlock(request);
    }
}

/// A lock that cannot be released does no harm: in a moment its process is gone.
fn release(broker: &mut Broker, request: &Request) {
    if let Err(trouble) = broker.unlock(request) {
        let failure = trouble.failure().about(request.device.as_str());
        warn(&format!("{failure}\n  the lock is stale now; the next process that asks gets it"));
    }
}

fn ended(end: std::io::Result<End>) -> Result<u8, Failure> {
    end.map(End::code).map_err(|_| Failure::system("cannot wait for the command"))
}

/// How often, and at which interval, the ports are examined while a program may still be about to open them: gpsd forks,
/// ends, and opens its port then.
const LOOKS: usize = 20;
const INTERVAL: Duration = Duration::from_millis(50);

/// A process that began longer ago than this has opened its ports by now.
const RECENT_SECS: u64 = 10;

/// A sentence for each program that has one of the command's ports open. To be asked when the command has ended, and is
/// not waited for yet, and before the locks are released: the next holder may open the port at once.
pub(super) fn left_open_by(command: Pid, requests: &[Request]) -> Vec<String> {
    for _ in 1..LOOKS {
        let remarks = all_still_open(requests);
        if !remarks.is_empty() || !left_a_process(command) {
            return remarks;
        }
        wrapcmd::pause(None, None, Some(INTERVAL));
    }
    all_still_open(requests)
}

fn all_still_open(requests: &[Request]) -> Vec<String> {
    requests.iter().flat_map(still_open).collect()
}

/// Whether there is a process that looks like an orphan of the command: it is younger, began a moment ago, and its parent
/// is one that may have adopted it: the first process, or an ancestor of our caller's. A mistake costs nothing but time.
fn left_a_process(command: Pid) -> bool {
    let recent = ticks_of_uptime()
        .and_then(|now| now.checked_sub(process::ticks_per_second()?.checked_mul(RECENT_SECS)?));
    let Some(begin) = process::stat(command).map(|it| it.start.max(recent.unwrap_or_default()))
    else {
        return false;
    };
    let caller = process::parent(Pid::this());
    let line = successors(caller, |pid| process::parent(*pid)).skip(1);
    let adopters: Vec<i64> = line.map(|pid| pid.as_raw().into()).chain([1]).collect();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| Pid::parse(entry.file_name().as_encoded_bytes()).ok())
        .filter(|pid| *pid != Pid::this() && *pid != command)
        .filter_map(process::stat)
        .any(|it| it.start >= begin && adopters.contains(&it.parent) && !it.has_ended())
}

/// The time since the start of the machine, in the unit of [`process::Stat::start`]. Source: proc(5), `/proc/uptime`.
fn ticks_of_uptime() -> Option<u64> {
    let text = fs::read_to_string("/proc/uptime").ok()?;
    let (seconds, _) = text.split_once('.')?;
    seconds.parse::<u64>().ok()?.checked_mul(process::ticks_per_second()?)
}
