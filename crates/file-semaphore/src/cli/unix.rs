//! The programs on Unix: `sema run`, the signals, and the calling process. `sema run` holds semaphores while a command
//! runs; the command's own process is the holder (see the crate `wrapcmd`). Signals end a wait, but do not interrupt
//! short steps. Whether the caller will end before the script does is guessed, for a warning alone: a lock in its name
//! would then be stale at once.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use pidlockfile::Pid;
use pidlockfile::process::{Stat, stat};
use wrapcmd::exit::End;
use wrapcmd::{Background, Running, Signals, Standby, StartError};

use super::arguments::{Form, Run};
use super::outcome::exit;
use super::run::{Possession, not_started, open, renewal, report_held, take};
use crate::error::Error;
use crate::record::Holder;
use crate::semaphore::{Guard, Semaphore};
use crate::sys::Alarm;

pub(crate) use wrapcmd::Began;
pub(super) use wrapcmd::hold_off;

/// Does all of it in a process of its own, and returns when the command begins, or with what kept it from that.
pub(crate) fn in_background(run: &Run, form: Form, words: &[OsString]) -> Result<End, Error> {
    // Later nobody waits for the exit code.
    if let Some(error) = run.command().first().and_then(|it| StartError::foreseen(it)) {
        return Ok(End::Code(not_started(&error, form)));
    }
    let signals = catch_signals()?;
    let background = Background::start("sema", words, &signals).map_err(cannot_start)?;
    Ok(ended(background.outcome(&signals))?.unwrap_or(End::Code(exit::DONE)))
}

/// Takes the locks and runs the command. Returns how it ended.
///
/// # Errors
/// Whatever kept the command from being run.
pub(crate) fn run(words: &Run, form: Form, began: Option<Began>) -> Result<End, Error> {
    let semaphores = open(words)?;
    let signals = catch_signals()?;
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
    report_held(words, begin, &command);
    for guard in &guards {
        guard.shield();
    }
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
    let mut possession = Possession::Kept;
    let every = renewal(words.lock.config().stale_timeout);
    let (mut begun, mut on_disk) = (false, false);
    let mut keep = || {
        if !std::mem::replace(&mut begun, true) {
            return Some(DISK_DELAY.min(every));
        }
        if !on_disk {
            for guard in &guards {
                guard.sync();
            }
            on_disk = true;
            return Some(every);
        }
        for guard in &guards {
            let renewed = guard.renew();
            if let Err(error @ (Error::NotLocked { .. } | Error::NotHolder { .. })) = renewed {
                possession.lose(words, form, "lost while the command runs", &error);
            }
        }
        Some(every)
    };
    running.attend_beside(signals, &mut keep);
    // Before the process is waited for: until then its number is its own, so that the lock that
    // is released can be no other's. It holds nothing any more, but nobody takes its lock meanwhile.
    possession.release_all(words, form, guards);
    let end = ended(running.end())?;
    Ok(possession.end(end))
}

/// A lock is written to the disk when its command has run for this long: a shorter one leaves no lock
/// that a crash of the machine could spoil, and writing takes longer than such a command.
const DISK_DELAY: Duration = Duration::from_millis(100);

/// The news that the process that stands by has ended.
const CHILD: i32 = Signal::SIGCHLD as i32;

/// The process the lock is taken for; made when the lock is first about to be taken, or its caller is the next in the
/// queue.
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
    match wrapcmd::restart_lacks(&error) {
        Some(message) => Error::Process { message },
        None => system_error(error),
    }
}

fn ended<T>(end: io::Result<T>) -> Result<T, Error> {
    end.map_err(|_| Error::Process { message: "cannot wait for the command" })
}

pub(super) fn catch_signals() -> Result<Signals, Error> {
    Signals::catch().map_err(system_error)
}

/// A signal ends a wait, and so does the end of the process that stands by.
impl Alarm for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        AsFd::as_fd(self)
    }

    fn ring(&self) -> Option<Error> {
        self.ending().map(|signal| Error::Interrupted { signal })
    }
}

/// An error of the few system calls that concern no file.
fn system_error(error: io::Error) -> Error {
    let errno = Errno::try_from(error).unwrap_or(Errno::UnknownErrno);
    Error::Process { message: errno.desc() }
}

/// Shells, by the names their processes have. A process of theirs that began by fork(2) alone is a
/// subshell: `( )`, `$( )`, a part of a pipe.
const SHELLS: [&str; 12] =
    ["sh", "dash", "bash", "zsh", "ksh", "ksh93", "mksh", "yash", "ash", "busybox", "posh", "fish"];

/// Programs that start another one and end with it.
const WRAPPERS: [&str; 17] = [
    "timeout", "xargs", "sudo", "doas", "su", "runuser", "time", "find", "watch", "strace",
    "flock", "unshare", "chronic", "parallel", "script", "ionice", "setsid",
];

/// What the calling process is, if it is one that ends early: in words, with its number.
pub(super) fn short_lived(caller: Pid) -> Option<String> {
    let own = stat(caller)?;
    let parent = Pid::new(own.parent).and_then(stat);
    let what = kind(&own, parent.as_ref())?;
    Some(format!("{what} (process {caller})"))
}

fn kind(own: &Stat, parent: Option<&Stat>) -> Option<String> {
    if WRAPPERS.contains(&own.name.as_str()) {
        return Some(own.name.clone());
    }
    let forked = parent.is_some_and(|parent| own.image != (0, 0) && own.image == parent.image);
    (forked && SHELLS.contains(&own.name.as_str())).then(|| "a subshell".to_owned())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn process(name: &str, image: u64) -> Stat {
        let line = format!(
            "7 ({name}) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 1 18 4242 20 21 22 23 24 {image} 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 {image}"
        );
        Stat::parse(line.as_bytes()).unwrap()
    }

    #[rstest]
    #[case::subshell(process("bash", 5), Some(process("bash", 5)), Some("a subshell"))]
    #[case::script_of_a_script(process("sh", 5), Some(process("sh", 6)), None)]
    #[case::worker_of_a_program(process("python3", 5), Some(process("python3", 5)), None)]
    #[case::hidden_parent(process("sh", 0), Some(process("sh", 0)), None)]
    #[case::wrapper(process("timeout", 5), None, Some("timeout"))]
    #[case::first_process(process("sh", 5), None, None)]
    fn a_process_that_ends_early(
        #[case] own: Stat,
        #[case] parent: Option<Stat>,
        #[case] what: Option<&str>,
    ) {
        assert_eq!(kind(&own, parent.as_ref()).as_deref(), what);
    }
}
