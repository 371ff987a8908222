//! `sema run`: hold a semaphore while a command runs, in the name of the command's own process (see
//! the crate `handover`).

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use nix::sys::signal::Signal;
use pidlockfile::Pid;
use wrapcmd::{Refusal, Signals, Standby};

use super::actions::{catch_signals, warn};
use super::arguments::{Lock, Taking};
use super::complain;
use super::outcome::{exit, printable};
use crate::error::Error;
use crate::record::Holder;
use crate::semaphore::{Patience, Semaphore};
use crate::sys::watch::Alarm;

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
    let signals = catch_signals()?;
    let patience = Patience { timeout, alarm: Some(&signals) };
    let mut standby = None;
    let mut claimant = || claim(&semaphore, &mut standby, command, &signals);
    let acquired = semaphore.acquire_as(taking.tag.as_deref(), &mut claimant, &patience);
    let ring = if acquired.is_ok() { signals.ring() } else { None };
    let (guard, standby) = match (acquired, standby, ring) {
        (Ok(guard), Some(standby), None) => (guard, standby),
        // Somebody killed the process that was to become the command.
        (Err(Error::Interrupted { signal: CHILD }), Some(standby), _) => {
            return ended(standby.dismiss());
        }
        (Ok(guard), Some(standby), Some(CHILD)) => {
            // The lock of the dead may be another's by now.
            let _ = guard.release();
            return ended(standby.dismiss());
        }
        (Ok(guard), _, Some(signal)) => {
            guard.release()?;
            return Err(Error::Interrupted { signal });
        }
        (Ok(_), None, None) => return Err(Error::NoHolder { pid: 0 }),
        (Err(error), ..) => return Err(error),
    };
    guard.shield();
    let running = standby.go(&[("SEMA_SLOT", &guard.slot().to_string())]);
    running.attend(&signals);
    // Before the process is waited for: until then its number is its own, so that the lock that
    // is released can be no other's. It holds nothing any more, but nobody takes its lock meanwhile.
    if let Err(error) = guard.release() {
        warn(&lock.path, &format!("lost while the command ran: {error}"));
    }
    ended(running.end())
}

/// The news that the process that stands by has ended.
const CHILD: i32 = Signal::SIGCHLD as i32;

/// The process the lock is taken for; made when the lock is first seen to be free.
fn claim(
    semaphore: &Semaphore,
    standby: &mut Option<Standby>,
    command: &[OsString],
    signals: &Signals,
) -> Result<Holder, Error> {
    let cannot = |_| Error::Process { message: "cannot start /proc/self/exe" };
    let standby = match standby {
        Some(standby) => standby,
        None => standby.insert(Standby::start("sema", command, signals).map_err(cannot)?),
    };
    let number = standby.pid();
    let holder =
        Pid::new(number.into()).and_then(|pid| Holder::of(pid, semaphore.inner.judge.here()));
    holder.ok_or(Error::NoHolder { pid: number.into() })
}

fn ended(code: io::Result<u8>) -> Result<u8, Error> {
    code.map_err(|_| Error::Process { message: "cannot wait for the command" })
}

/// The process that stood by did not become the command: the exit code that says so.
pub(crate) fn refused(refusal: &Refusal) -> u8 {
    // Whoever never gave the word has said why.
    let Some(code) = refusal.code() else { return exit::SYSTEM };
    complain(&(printable(&format!("sema: {refusal}")) + "\n"));
    code
}
