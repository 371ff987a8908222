//! The short commands: each asks once, and says what came of it.

use std::path::Path;

use clap_complete::{Shell, generate};
use pidlockfile::Pid;
use wrapcmd::Value;

use super::arguments::{self, Asked, AskedInTime, Route};
use super::broker::{Broker, Trouble, Waited, places};
use super::devices::{Device, Names};
use super::outcome::{Failure, Kind, exit};
use super::output::Output;
use super::report::{self, Row, Service, in_the_way, table};
use ttylock::device::name::DeviceName;
use ttylock::device::node::follow;
use ttylock::lock::who::Holder;
use ttylock::lock::{Outcome, Request};

pub(super) fn lock(asked: &Asked, route: &Route, output: &Output) -> Result<u8, Failure> {
    let (mut broker, request) = (Broker::new(route), request(asked)?);
    match broker.lock(&request) {
        Ok(Outcome::Done) => Ok(locked(&request, output)),
        Ok(Outcome::Busy) => Err(busy(&request, Kind::Busy)),
        Ok(Outcome::Denied) => Err(denied(&broker, &request)),
        Err(trouble) => Err(unreachable(&request, trouble)),
    }
}

pub(super) fn unlock(asked: &Asked, route: &Route, output: &Output) -> Result<u8, Failure> {
    let (mut broker, request) = (Broker::new(route), request(asked)?);
    match broker.unlock(&request) {
        Ok(Outcome::Done) => Ok(done(&request, output)),
        Ok(Outcome::Busy) => Err(busy(&request, Kind::NotHeld)),
        Ok(Outcome::Denied) => Err(denied(&broker, &request)),
        Err(trouble) => Err(unreachable(&request, trouble)),
    }
}

pub(super) fn wait(asked: &AskedInTime, route: &Route, output: &Output) -> Result<u8, Failure> {
    let (mut broker, request) = (Broker::new(route), request(&asked.asked)?);
    let waited = broker.wait(&request, asked.timeout, None);
    taken(waited, &broker, &request).map(|()| locked(&request, output))
}

/// What came of waiting, as a failure unless the lock was taken.
pub(super) fn taken(waited: Waited, broker: &Broker, request: &Request) -> Result<(), Failure> {
    match waited {
        Waited::Taken => Ok(()),
        Waited::TimedOut => Err(busy(request, Kind::TimedOut)),
        Waited::Denied => Err(denied(broker, request)),
        Waited::Interrupted(signal) => {
            Err(Failure::about(request.device.as_str(), Kind::Interrupted(signal)))
        }
        Waited::Trouble(trouble) => Err(unreachable(request, trouble)),
    }
}

pub(super) fn busy(request: &Request, kind: fn(Vec<Row>) -> Kind) -> Failure {
    Failure::about(request.device.as_str(), kind(in_the_way(&request.device)))
}

pub(super) fn denied(broker: &Broker, request: &Request) -> Failure {
    let reasons = broker.why_denied(request);
    Failure::about(request.device.as_str(), Kind::NotPermitted(reasons))
}

pub(super) fn unreachable(request: &Request, trouble: Trouble) -> Failure {
    let Trouble::Unreachable(mut reasons) = trouble;
    reasons.push("without a service, --direct uses the lock files themselves".to_owned());
    Failure::about(request.device.as_str(), Kind::Unreachable(reasons))
}

/// The lock is for whoever called us: we are gone in a moment.
fn request(asked: &Asked) -> Result<Request, Failure> {
    let caller = || Pid::new(nix::unistd::getppid().as_raw().into());
    let pid = asked.pid.or_else(caller);
    let pid = pid.ok_or_else(|| Failure::system("whoever called lfp is not to be seen: use --pid"));
    Ok(Request { device: asked.device.clone(), pid: pid? })
}

/// A lock for a device that is not there is a lock: it may be plugged in later. But most often
/// the name was misspelt.
fn locked(request: &Request, output: &Output) -> u8 {
    let trail = follow(Path::new("/dev"), &request.device);
    if trail.is_ok_and(|trail| trail.node.is_none()) {
        output.remark(&format!("/dev/{}: locked, but not there", request.device.as_str()));
    }
    done(request, output)
}

/// Silent but for JSON: no news is good news.
fn done(request: &Request, output: &Output) -> u8 {
    let pid = u64::try_from(request.pid.as_raw()).unwrap_or(0);
    let json = || {
        Value::Object(vec![
            ("outcome", "done".into()),
            ("device", format!("/dev/{}", request.device.as_str()).as_str().into()),
            ("pid", Value::Number(pid)),
        ])
    };
    output.answer(|_| String::new(), json);
    exit::DONE
}

pub(super) fn who(asked: &[DeviceName], route: &Route, output: &Output) -> Result<u8, Failure> {
    let places = places();
    let mut names = Names::new(&places.dev_dir, &places.udev_dir);
    let mut service = Service::NotThere;
    let mut free = Vec::new();
    let mut holders = Vec::new();
    let mut reports = Vec::with_capacity(asked.len());
    for device in asked {
        let sight = report::look(Some(device), route)?;
        service = sight.service;
        if sight.holders.is_empty() {
            free.push(device.as_str());
        }
        reports.push((device.as_str(), names.beside(device), sight.holders.clone()));
        let named = |holder| Holder { device: device.as_str().to_owned(), ..holder };
        holders.extend(sight.holders.into_iter().map(named));
    }
    let devices = names.group(holders);
    output.answer(
        |colour| {
            let held = if devices.is_empty() { String::new() } else { table(&devices, colour) };
            let nobody = |name| format!("/dev/{name}: nobody holds it{}\n", reservation());
            free.iter().map(nobody).fold(held, |text, line| text + &line)
        },
        || {
            let device = |(name, others, holders): &(&str, Vec<String>, Vec<Holder>)| {
                report::device_in_json(name, others, holders)
            };
            answer(service, reports.iter().map(device).collect())
        },
    );
    Ok(exit::DONE)
}

pub(super) fn list(route: &Route, output: &Output) -> Result<u8, Failure> {
    let places = places();
    let sight = report::look(None, route)?;
    let devices = Names::new(&places.dev_dir, &places.udev_dir).group(sight.holders);
    output.answer(
        |colour| match devices.as_slice() {
            [] => format!("nobody holds a serial port{}\n", reservation()),
            devices => table(devices, colour),
        },
        || {
            let device = |it: &Device| report::device_in_json(&it.name, &it.others, &it.holders);
            answer(sight.service, devices.iter().map(device).collect())
        },
    );
    Ok(exit::DONE)
}

/// What "nobody" leaves out. Source: proc(5): other users' descriptors are not to be seen.
fn reservation() -> &'static str {
    if sees_all() {
        ""
    } else {
        " (programs of other users that have a port open without any lock are shown to root only)"
    }
}

fn sees_all() -> bool {
    nix::unistd::geteuid().is_root()
}

fn answer(service: Service, devices: Vec<Value>) -> Value {
    Value::Object(vec![
        ("complete", Value::Bool(sees_all())),
        ("service", Value::Bool(service == Service::Asked)),
        ("devices", Value::List(devices)),
    ])
}

pub(super) fn completions(shell: Shell, output: &Output) -> Result<u8, Failure> {
    let mut script = Vec::new();
    generate(shell, &mut arguments::command(), "lfp", &mut script);
    output.print(&String::from_utf8_lossy(&script));
    Ok(exit::DONE)
}
