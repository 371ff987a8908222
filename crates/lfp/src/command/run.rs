//! `lfp run`: hold a device while a command runs, in the name of the command's own process (see the
//! crate `handover`).

use nix::errno::Errno;
use nix::sys::signal::Signal;
use pidlockfile::Pid;
use wrapcmd::{Refusal, Signals, Standby};

use super::actions::{busy, denied, taken, unreachable};
use super::arguments::{Route, Run};
use super::broker::{Broker, Waited};
use super::outcome::{Failure, Kind, exit};
use super::output::{Output, warn};
use ttylock::lock::{Outcome, Request};

/// Takes the lock, runs the command, releases the lock, and tells the command's exit code.
///
/// # Errors
/// Whatever kept the command from being run.
pub(super) fn run(asked: &Run, route: &Route, _output: &Output) -> Result<u8, Failure> {
    let signals = Signals::catch().map_err(system)?;
    let standby = Standby::start("lfp", &asked.command, &signals)
        .map_err(|error| Failure::system(format!("cannot start /proc/self/exe: {error}")))?;
    let pid = Pid::new(standby.pid().into()).ok_or_else(|| Failure::system("no process"))?;
    let request = Request { device: asked.device.clone(), pid };
    let mut broker = Broker::new(route);
    match take(&mut broker, &request, asked, &signals) {
        // Somebody killed the process that was to become the command.
        Err(Failure { kind: Kind::Interrupted(Signal::SIGCHLD), .. }) => {
            return ended(standby.dismiss());
        }
        taken => taken?,
    }
    if let Some(signal) = signals.ending() {
        let _ = broker.unlock(&request);
        if signal == Signal::SIGCHLD {
            return ended(standby.dismiss());
        }
        return Err(Failure::about(asked.device.as_str(), Kind::Interrupted(signal)));
    }
    broker.hang_up();
    let running = standby.go(&[]);
    running.attend(&signals);
    // Before the process is waited for: until then its number is its own, so that the lock that
    // is released can be no other's.
    release(&mut broker, &request);
    ended(running.end())
}

fn take(
    broker: &mut Broker,
    request: &Request,
    asked: &Run,
    signals: &Signals,
) -> Result<(), Failure> {
    let Some(timeout) = asked.timeout else {
        return match broker.lock(request) {
            Ok(Outcome::Done) => Ok(()),
            Ok(Outcome::Busy) => Err(busy(request, Kind::Busy)),
            Ok(Outcome::Denied) => Err(denied(broker, request)),
            Err(trouble) => Err(unreachable(request, trouble)),
        };
    };
    let waited = broker.wait(request, Some(timeout), Some(signals));
    if matches!(waited, Waited::Interrupted(_) | Waited::Trouble(_)) {
        // The answer may have been on its way when we stopped listening.
        let _ = broker.unlock(request);
    }
    taken(waited, broker, request)
}

/// A lock that cannot be released does no harm: in a moment its process is gone.
fn release(broker: &mut Broker, request: &Request) {
    if let Err(trouble) = broker.unlock(request) {
        let failure = unreachable(request, trouble);
        warn(&format!("{failure}\n  the lock is stale now, and the next who asks will get it"));
    }
}

fn ended(code: std::io::Result<u8>) -> Result<u8, Failure> {
    code.map_err(|_| Failure::system("cannot wait for the command"))
}

/// The process that stood by did not become the command: the exit code that says so.
pub(super) fn refused(refusal: &Refusal) -> u8 {
    // Whoever never gave the word has said why.
    let Some(code) = refusal.code() else { return exit::SYSTEM };
    warn(&refusal.to_string());
    code
}

fn system(errno: Errno) -> Failure {
    Failure::system(errno.desc())
}
