//! `sema run`: holds semaphores while a command runs; the command's own process is the holder (see the crate
//! `wrapcmd`).

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use pidlockfile::Pid;
pub(crate) use wrapcmd::Began;
use wrapcmd::exit::End;
use wrapcmd::{Background, Running, Signals, Standby, StartError};

use super::arguments::{Form, Run};
use super::locks::{Kept, not_started, open, renewal, take, tell_held};
use super::outcome::exit;
use super::signals;
use crate::error::Error;
use crate::record::Holder;
use crate::semaphore::{Guard, Semaphore};
use crate::sys::watch::Alarm;

/// Does all of it in a process of its own, and returns when the command begins, or with what kept it from that.
pub(crate) fn in_background(run: &Run, form: Form, words: &[OsString]) -> Result<End, Error> {
    // Later nobody waits for the exit code.
    if let Some(error) = run.command().first().and_then(|it| StartError::foreseen(it)) {
        return Ok(End::Code(not_started(&error, form)));
    }
    let signals = signals::catch_signals()?;
    let background = Background::start("sema", words, &signals).map_err(cannot_start)?;
    let ended = background.outcome(&signals);
    let ended = ended.map_err(|_| Error::Process { message: "cannot wait for the command" })?;
    Ok(ended.unwrap_or(End::Code(exit::DONE)))
}

/// Takes the locks, runs the command, and tells how it ended.
///
/// # Errors
/// Whatever kept the command from being run.
pub(crate) fn run(words: &Run, form: Form, began: Option<Began>) -> Result<End, Error> {
    let semaphores = open(words)?;
    let signals = signals::catch_signals()?;
    let begin = Instant::now();
    let command = words.command();
    let mut standby = None;
    let mut claimant = |semaphore: &Semaphore| {
        let start = || Standby::start("sema", &command, form, &signals).map_err(cannot_start);
        claim(semaphore, &mut standby, start)
    };
    let taken = take(words, form, &semaphores, Some(&signals), &mut claimant);
    // What ends the process that stands by is news, too.
    let ring = match &taken {
        Ok(_) | Err(Error::NoHolder { .. }) => signals.ring(),
        Err(_) => None,
    };
    let (guards, standby) = match (taken, standby, ring) {
        (Ok(guards), Some(standby), None) => (guards, standby),
        // Somebody killed the process that was to become the command. The locks of the dead may be
        // others' by now.
        (Err(Error::Interrupted { signal: CHILD }), Some(standby), _)
        | (Ok(_) | Err(_), Some(standby), Some(Error::Interrupted { signal: CHILD })) => {
            return ended(standby.dismiss());
        }
        (Err(_), _, Some(interrupted)) => return Err(interrupted),
        (Ok(guards), _, Some(interrupted)) => {
            guards.into_iter().try_for_each(Guard::release)?;
            return Err(interrupted);
        }
        (Ok(_), None, None) => return Err(Error::NoHolder { pid: 0 }),
        (Err(error), ..) => return Err(error),
    };
    if began.is_some_and(|began| began.report().is_err()) {
        guards.into_iter().try_for_each(Guard::release)?;
        return Err(Error::Process { message: "the process that waited for it has ended" });
    }
    tell_held(words, begin, &command);
    guards.iter().for_each(Guard::shield);
    let slot = guards.first().map_or(1, Guard::slot);
    let running = standby.go(&[("SEMA_SLOT", &slot.to_string())]);
    attend(words, form, running, guards, &signals)
}

/// While the command runs, renews what it holds; releases when it has ended.
fn attend(
    words: &Run,
    form: Form,
    running: Running,
    guards: Vec<Guard>,
    signals: &Signals,
) -> Result<End, Error> {
    let mut kept = Kept::All;
    let every = renewal(words.lock.config().stale_timeout);
    let (mut begun, mut on_disk) = (false, false);
    let mut keep = || {
        if !std::mem::replace(&mut begun, true) {
            return Some(DISK_DELAY.min(every));
        }
        if !on_disk {
            guards.iter().for_each(Guard::sync);
            on_disk = true;
            return Some(every);
        }
        for guard in &guards {
            let renewed = guard.renew();
            if let Err(error @ (Error::NotLocked { .. } | Error::NotHolder { .. })) = renewed {
                kept.lose(words, form, "lost while the command runs", &error);
            }
        }
        Some(every)
    };
    running.attend_beside(signals, &mut keep);
    // Before the process is waited for: until then its number is its own, so that the lock that
    // is released can be no other's. It holds nothing any more, but nobody takes its lock meanwhile.
    kept.let_go(words, form, guards);
    let end = ended(running.end())?;
    Ok(kept.end(end))
}

/// A lock is written to the disk when its command has run for so long: a shorter one leaves no lock
/// that a crash of the machine could spoil, and writing takes longer than such a command.
const DISK_DELAY: Duration = Duration::from_millis(100);

/// The news that the process that stands by has ended.
const CHILD: i32 = Signal::SIGCHLD as i32;

/// The process the lock is taken for; made when the lock is first seen to be free.
fn claim(
    semaphore: &Semaphore,
    standby: &mut Option<Standby>,
    start: impl FnOnce() -> Result<Standby, Error>,
) -> Result<Holder, Error> {
    let standby = match standby {
        Some(standby) => standby,
        None => standby.insert(start()?),
    };
    let number = standby.pid();
    let holder =
        Pid::new(number.into()).and_then(|pid| Holder::of(pid, semaphore.files.judge.here()));
    holder.ok_or(Error::NoHolder { pid: number.into() })
}

/// Why this program cannot be started once more, as the process that stands by.
fn cannot_start(error: io::Error) -> Error {
    let message = if !Path::new("/proc/self").exists() {
        "cannot start the command: run needs /proc, which is not mounted"
    } else if error.kind() == io::ErrorKind::NotFound {
        "cannot start the command: the file of this program is gone"
    } else {
        return signals::system_error(Errno::try_from(error).unwrap_or(Errno::UnknownErrno));
    };
    Error::Process { message }
}

fn ended(end: io::Result<End>) -> Result<End, Error> {
    end.map_err(|_| Error::Process { message: "cannot wait for the command" })
}
