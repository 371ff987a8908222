//! `sema run`: hold a semaphore while a command runs.
//!
//! The lock records the *command's* process, not the wrapper's: should the wrapper be killed, the
//! lock still tells the truth, which is that the command is at work; and it is stale the moment
//! the command ends. For that the process must exist before the lock does. So the wrapper first
//! starts itself again as a process that waits to be told over a pipe, takes the lock in that
//! process's name, and tells it; it then becomes the command (execve(2) keeps the number and the
//! start time). If the wrapper dies first, the pipe closes and the command never runs.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lockfile::Pid;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};

use super::actions::{system, warn};
use super::arguments::{Lock, Taking};
use super::complain;
use super::outcome::{exit, printable};
use super::signals::{Sender, Signals, is_ignored, let_through};
use crate::error::Error;
use crate::record::{Holder, integer};
use crate::semaphore::{Patience, Semaphore};
use crate::watch::Alarm;

/// The first argument of the process that waits to be told. No command of `sema` is called so.
const WHEN_TOLD: &str = "exec-when-told";

/// Takes the lock, runs the command, and tells the exit code.
///
/// # Errors
/// Whatever kept the command from being run.
pub(crate) fn run(
    lock: &Lock,
    timeout: Option<Duration>,
    taking: &Taking,
    command: &[OsString],
) -> Result<u8, Error> {
    let semaphore = Semaphore::with_config(&lock.path, taking.config(lock.config()))?;
    reap_children();
    let signals = Signals::catch(&[Signal::SIGCHLD]).map_err(system)?;
    let patience = Patience { timeout, alarm: Some(&signals) };
    let mut waiting = None;
    let mut claimant = || claim(&semaphore, &mut waiting, command, signals.added());
    let guard = semaphore.acquire_as(taking.tag.as_deref(), &mut claimant, &patience)?;
    if let Some(signal) = signals.ring() {
        guard.release()?;
        return Err(Error::Interrupted { signal });
    }
    let Some(waiting) = waiting else { return Err(Error::NoHolder { pid: 0 }) };
    let mut child = waiting.tell(guard.slot());
    let ended = attend(&mut child.0, &signals);
    if let Err(error) = guard.release() {
        warn(&lock.path, &format!("lost while the command ran: {error}"));
    }
    ended.map(exit_code)
}

/// The process the lock is taken for; made when the lock is first seen to be free.
fn claim(
    semaphore: &Semaphore,
    waiting: &mut Option<Waiting>,
    command: &[OsString],
    mask: u64,
) -> Result<Holder, Error> {
    let waiting = match waiting {
        Some(waiting) => waiting,
        None => waiting.insert(Waiting::start(command, mask)?),
    };
    let number = u64::from(waiting.child.0.id());
    let pid = i64::try_from(number).ok().and_then(Pid::new);
    let holder = pid.and_then(|pid| Holder::of(pid, semaphore.inner.judge.here()));
    holder.ok_or(Error::NoHolder { pid: number })
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
    fn start(command: &[OsString], mask: u64) -> Result<Self, Error> {
        let (listen, tell) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(system)?;
        // The only descriptor the child inherits besides the first three; it closes it before
        // it becomes the command.
        fcntl(listen.as_fd(), FcntlArg::F_SETFD(FdFlag::empty())).map_err(system)?;
        let child = Command::new("/proc/self/exe")
            .arg0("sema")
            .arg(WHEN_TOLD)
            .arg(listen.as_raw_fd().to_string())
            .arg(mask.to_string())
            .args(command)
            .spawn()
            .map_err(|_| Error::Process { message: "cannot start /proc/self/exe" })?;
        Ok(Self { tell, child: Reaped(child) })
    }

    /// Lets the process become the command. If it is dead already, that will be its exit code.
    fn tell(self, slot: usize) -> Reaped {
        let _ = File::from(self.tell).write_all(slot.to_string().as_bytes());
        self.child
    }
}

/// The other side: waits to be told and becomes the command. `None`: this process is not meant.
pub(crate) fn told_by_wrapper(mut words: impl Iterator<Item = OsString>) -> Option<u8> {
    words.next().filter(|word| word == WHEN_TOLD)?;
    let descriptor = words.next()?.into_string().ok()?;
    let mask = words.next()?.into_string().ok()?;
    let program = words.next()?;
    let slot = listen(&descriptor)?;
    let_through(integer(&mask)?);
    let error = Command::new(&program).args(words).env("SEMA_SLOT", slot.to_string()).exec();
    complain(&(printable(&format!("sema: {}: {error}", program.to_string_lossy())) + "\n"));
    let missing = error.kind() == std::io::ErrorKind::NotFound;
    Some(if missing { exit::NOT_FOUND } else { exit::NOT_EXECUTABLE })
}

/// Reads which slot is held. Nothing at all means that the wrapper is gone, so there is no lock.
fn listen(descriptor: &str) -> Option<u64> {
    let number = i32::try_from(integer(descriptor)?).ok().filter(|number| *number > 2)?;
    let pipe = File::open(format!("/proc/self/fd/{number}")).ok()?;
    nix::unistd::close(number).ok()?;
    let mut slot = String::new();
    pipe.take(20).read_to_string(&mut slot).ok()?;
    integer(&slot)
}

/// Waits for the command, and hands it the signals that arrive meanwhile.
///
/// What a terminal sends (Ctrl-C) it sends to the command as well, so that is not repeated.
fn attend(child: &mut Child, signals: &Signals) -> Result<ExitStatus, Error> {
    let lost = |_| Error::Process { message: "cannot wait for the command" };
    loop {
        while let Some(arrived) = signals.next() {
            let told_already = arrived.sender == Sender::Kernel;
            if arrived.signal != Signal::SIGCHLD && !told_already {
                forward(child, arrived.signal);
            }
        }
        if let Some(status) = child.try_wait().map_err(lost)? {
            return Ok(status);
        }
        let mut places = [PollFd::new(Alarm::as_fd(signals), PollFlags::POLLIN)];
        let _ = poll(&mut places, PollTimeout::NONE);
    }
}

/// The child has not been waited for, so its number is still its own.
fn forward(child: &Child, signal: Signal) {
    if let Ok(pid) = i32::try_from(child.id()) {
        let _ = kill(nix::unistd::Pid::from_raw(pid), signal);
    }
}

fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(exit::SYSTEM),
        (None, Some(signal)) => exit::by_signal(signal),
        (None, None) => exit::SYSTEM,
    }
}
