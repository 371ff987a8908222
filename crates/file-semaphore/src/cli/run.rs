//! `sema run`: hold a semaphore while a command runs, in the name of the command's own process (see
//! the crate `handover`).

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use nix::sys::signal::Signal;
use pidlockfile::Pid;
use wrapcmd::exit::End;
use wrapcmd::{Refusal, Signals, Standby};

use super::actions::{catch_signals, warn};
use super::arguments::{Lock, Taking};
use super::complain;
use super::outcome::{exit, printable};
use crate::error::Error;
use crate::limits::STALE_TIMEOUT;
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
) -> Result<End, Error> {
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
            return ended(standby.dismissed());
        }
        (Ok(guard), Some(standby), Some(CHILD)) => {
            // The lock of the dead may be another's by now.
            let _ = guard.release();
            return ended(standby.dismissed());
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
    let mut lost = false;
    running.attend_and(
        &signals,
        Some(renewal(semaphore.inner.config.stale_timeout)),
        || match guard.renew() {
            Err(error @ (Error::NotLocked | Error::NotHolder { .. })) if !lost => {
                lost = true;
                warn(&lock.path, &format!("lost while the command runs: {error}"));
            }
            Ok(()) | Err(_) => {}
        },
    );
    // Before the process is waited for: until then its number is its own, so that the lock that
    // is released can be no other's. It holds nothing any more, but nobody takes its lock meanwhile.
    match guard.release() {
        Err(error @ (Error::NotLocked | Error::NotHolder { .. })) => {
            warn(&lock.path, &format!("lost while the command ran: {error}"));
            lost = true;
        }
        Err(error) => warn(&lock.path, &format!("cannot be released: {error}")),
        Ok(()) => {}
    }
    let end = ended(running.outcome())?;
    Ok(if lost { End::Code(exit::LOST) } else { end })
}

/// How often a lock is renewed, so that it never counts as old for who has the same idea of that.
fn renewal(stale_timeout: Option<Duration>) -> Duration {
    let old = stale_timeout.unwrap_or(STALE_TIMEOUT).min(STALE_TIMEOUT);
    (old / 4).max(Duration::from_millis(100))
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

fn ended(end: io::Result<End>) -> Result<End, Error> {
    end.map_err(|_| Error::Process { message: "cannot wait for the command" })
}

/// The process that stood by did not become the command: the exit code that says so.
pub(crate) fn refused(refusal: &Refusal) -> u8 {
    // Whoever never gave the word has said why.
    let Some(code) = refusal.code() else { return exit::SYSTEM };
    complain(&(printable(&format!("sema: {refusal}")) + "\n"));
    code
}
