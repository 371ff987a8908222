//! `lfp run`: hold a device while a command runs.
//!
//! The lock names the *command's* process, not the wrapper's: should the wrapper be killed, the
//! lock still tells the truth, which is that the command is at work; and it is stale the moment
//! the command ends. For that the process must exist before the lock does. So the wrapper first
//! starts itself again as a process that waits to be told over a pipe, takes the lock in that
//! process's name, and tells it; it then becomes the command (execve(2) keeps the number). If the
//! wrapper dies first, the pipe closes and the command never runs.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lockfile::Pid;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};

use super::actions::{busy, denied, taken, unreachable};
use super::arguments::{Route, Run};
use super::broker::{Broker, Waited};
use super::outcome::{Failure, Kind, exit};
use super::output::{Output, warn};
use super::signals::{Sender, Signals, is_ignored, let_through};
use crate::lock::{Outcome, Request};

/// The first argument of the process that waits to be told. No command of `lfp` is called so.
const WHEN_TOLD: &str = "exec-when-told";

/// What the process is told when the lock is taken.
const GO: &[u8] = b"g";

/// Takes the lock, runs the command, releases the lock, and tells the command's exit code.
///
/// # Errors
/// Whatever kept the command from being run.
pub(super) fn run(asked: &Run, route: &Route, _output: &Output) -> Result<u8, Failure> {
    reap_children();
    let signals = Signals::catch().map_err(system)?;
    let waiting = Waiting::start(&asked.command, &signals)?;
    let request = Request { device: asked.device.clone(), pid: waiting.pid()? };
    let mut broker = Broker::new(route);
    match take(&mut broker, &request, asked, &signals) {
        // Somebody killed the process that was to become the command.
        Err(Failure { kind: Kind::Interrupted(Signal::SIGCHLD), .. }) => return waiting.end(),
        taken => taken?,
    }
    if let Some(signal) = signals.ending() {
        let _ = broker.unlock(&request);
        if signal == Signal::SIGCHLD {
            return waiting.end();
        }
        return Err(Failure::about(asked.device.as_str(), Kind::Interrupted(signal)));
    }
    broker.hang_up();
    let mut child = waiting.tell();
    attend(&child.0, &signals);
    // Before the process is waited for: until then its number is its own, so that the lock that
    // is released can be no other's.
    release(&mut broker, &request);
    child.end()
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

fn system(errno: Errno) -> Failure {
    Failure::system(errno.desc())
}

/// A caller may have told the kernel to forget children (`signal(SIGCHLD, SIG_IGN)` survives
/// execve(2)); then nobody would learn the command's exit code. Any handler undoes that.
fn reap_children() {
    if is_ignored(Signal::SIGCHLD) {
        let unused = Arc::new(AtomicBool::new(false));
        let _ = signal_hook::flag::register(Signal::SIGCHLD as i32, unused);
    }
}

/// A child that is always waited for.
struct Reaped(Child);

impl Reaped {
    fn end(&mut self) -> Result<u8, Failure> {
        let lost = |_| Failure::system("cannot wait for the command");
        self.0.wait().map(exit_code).map_err(lost)
    }
}

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.wait();
    }
}

/// The process that waits to be told. Fields drop in this order: the pipe closes, which ends the
/// process, and only then is it waited for.
struct Waiting {
    tell: OwnedFd,
    child: Reaped,
}

impl Waiting {
    fn start(command: &[OsString], signals: &Signals) -> Result<Self, Failure> {
        let (listen, tell) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(system)?;
        // The only descriptor the child inherits besides those that were ours; it closes it
        // before it becomes the command.
        fcntl(listen.as_fd(), FcntlArg::F_SETFD(FdFlag::empty())).map_err(system)?;
        let child = Command::new("/proc/self/exe")
            .arg0("lfp")
            .arg(WHEN_TOLD)
            .arg(listen.as_raw_fd().to_string())
            .arg(signals.newly_held())
            .args(command)
            .spawn()
            .map_err(|error| Failure::system(format!("cannot start /proc/self/exe: {error}")))?;
        Ok(Self { tell, child: Reaped(child) })
    }

    fn pid(&self) -> Result<Pid, Failure> {
        Pid::new(self.child.0.id().into()).ok_or_else(|| Failure::system("no process"))
    }

    /// What became of a process that never was told.
    fn end(mut self) -> Result<u8, Failure> {
        drop(self.tell);
        self.child.end()
    }

    /// Lets the process become the command. If it is dead already, that will be its exit code.
    fn tell(self) -> Reaped {
        let _ = File::from(self.tell).write_all(GO);
        self.child
    }
}

/// The other side: waits to be told and becomes the command. `None`: this process is not meant.
pub(super) fn told_by_wrapper<'a>(mut words: impl Iterator<Item = &'a OsString>) -> Option<u8> {
    words.next().filter(|word| *word == WHEN_TOLD)?;
    let (descriptor, held, program) = (words.next()?, words.next()?, words.next()?);
    // It inherits no signal mask of ours. Let through at once, so that it can be ended.
    let told = held.to_str().and_then(let_through).and(descriptor.to_str()).and_then(listen);
    if told.is_none() {
        return Some(exit::SYSTEM);
    }
    let error = Command::new(program).args(words).exec();
    warn(&format!("{}: {}", program.to_string_lossy(), plain(&error, program)));
    let missing = error.kind() == std::io::ErrorKind::NotFound;
    Some(if missing { exit::NOT_FOUND } else { exit::NOT_EXECUTABLE })
}

/// As a shell says it.
fn plain(error: &std::io::Error, program: &OsStr) -> String {
    let path = program.as_encoded_bytes().contains(&b'/');
    if error.kind() == std::io::ErrorKind::NotFound && !path {
        return "command not found".to_owned();
    }
    let words = error.raw_os_error().map(|number| Errno::from_raw(number).desc().to_owned());
    words.unwrap_or_else(|| error.to_string())
}

/// Waits for the word. Nothing at all means that the wrapper is gone, so there is no lock.
fn listen(descriptor: &str) -> Option<()> {
    let number: i32 = descriptor.parse().ok().filter(|number| *number > 2)?;
    let mut pipe = File::open(format!("/proc/self/fd/{number}")).ok()?;
    nix::unistd::close(number).ok()?;
    let mut word = [0; GO.len()];
    pipe.read_exact(&mut word).ok()?;
    (word == GO).then_some(())
}

/// Waits until the command has ended, without taking note of it yet, and hands it the signals
/// that arrive meanwhile.
///
/// What a terminal sends (Ctrl-C) it sends to the command as well, so that is not repeated.
fn attend(child: &Child, signals: &Signals) {
    loop {
        while let Some(arrived) = signals.next() {
            let told_already = arrived.sender == Sender::Kernel;
            if arrived.signal != Signal::SIGCHLD && !told_already {
                forward(child, arrived.signal);
            }
        }
        if has_ended(child) {
            return;
        }
        signals.pause(None, None);
    }
}

fn has_ended(child: &Child) -> bool {
    let Some(pid) = raw(child) else { return true };
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    !matches!(waitid(Id::Pid(pid), flags), Ok(WaitStatus::StillAlive) | Err(Errno::EINTR))
}

/// The child has not been waited for, so its number is still its own.
fn forward(child: &Child, signal: Signal) {
    if let Some(pid) = raw(child) {
        let _ = kill(pid, signal);
    }
}

fn raw(child: &Child) -> Option<nix::unistd::Pid> {
    i32::try_from(child.id()).ok().map(nix::unistd::Pid::from_raw)
}

fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(exit::SYSTEM),
        (None, Some(signal)) => exit::by_signal(signal),
        (None, None) => exit::SYSTEM,
    }
}
