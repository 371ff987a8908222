//! `sema run` on Windows: the locks are held in the name of `sema` itself, as no process can become another
//! program. When `sema` is killed the command runs on, and its locks are those of a dead process.

use std::ffi::OsStr;
use std::io;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Instant;

use wrapcmd::exit::{End, NOT_EXECUTABLE, NOT_FOUND};

use super::actions::warn;
use super::arguments::Run;
use super::complain;
use super::locks::{Failure, open, renewal};
use super::outcome::{exit, printable};
use crate::error::Error;
use crate::guard::Guard;
use crate::many::Wish;
use crate::semaphore::Semaphore;

/// Takes the locks, runs the command, and tells how it ended.
///
/// # Errors
/// Whatever kept the command from being run.
pub(crate) fn run(words: &Run) -> Result<End, Failure> {
    let semaphores = open(words)?;
    let begin = Instant::now();
    let wish = Wish {
        tag: words.taking.tag.as_deref(),
        timeout: words.timeout(),
        alarm: None,
        sharing: words.sharing(),
    };
    let all: Vec<&Semaphore> = semaphores.iter().collect();
    let mut own = |semaphore: &Semaphore| semaphore.inner.own_holder();
    let guards = match Semaphore::acquire_many_as(&all, &wish, &mut own) {
        Err(Error::Timeout { path, holder, .. }) if words.nonblock => {
            return Err(Error::AlreadyLocked { path, holder }.into());
        }
        taken => taken?,
    };
    let line = words.command();
    let [program, arguments @ ..] = line.as_slice() else {
        return Err(Error::NoHolder { pid: 0 }.into());
    };
    if words.verbose {
        let seconds = begin.elapsed().as_secs_f64();
        warn(&words.lock.path, &format!("held after {seconds:.6} s"));
        let whole = line.join(OsStr::new(" "));
        warn(&words.lock.path, &format!("running {}", whole.to_string_lossy()));
    }
    let slot = guards.first().map_or(1, Guard::slot);
    let mut command = std::process::Command::new(program);
    command.args(arguments).env("SEMA_SLOT", slot.to_string());
    let end = match command.spawn() {
        Ok(child) => attend(words, child, &guards)?,
        Err(error) => {
            let program = program.to_string_lossy();
            complain(&(printable(&format!("sema: {program}: {error}")) + "\n"));
            let absent = error.kind() == io::ErrorKind::NotFound;
            End::Code(if absent { NOT_FOUND } else { NOT_EXECUTABLE })
        }
    };
    Ok(let_go(words, guards).unwrap_or(end))
}

/// Waits for the command, and renews what it holds.
fn attend(words: &Run, child: Child, guards: &[Guard]) -> Result<End, Error> {
    let cannot = || Error::Process { message: "cannot wait for the command" };
    let every = renewal(words.lock.config().stale_timeout);
    let (send, ended) = channel::<io::Result<ExitStatus>>();
    let mut child = child;
    std::thread::spawn(move || {
        let _ = send.send(child.wait());
    });
    loop {
        match ended.recv_timeout(every) {
            Ok(status) => return Ok(End::of(status.map_err(|_| cannot())?).unwrap_or(End::Code(1))),
            Err(RecvTimeoutError::Disconnected) => return Err(cannot()),
            Err(RecvTimeoutError::Timeout) => {
                // What was lost is told when all is over.
                guards.iter().for_each(|guard| drop(guard.renew()));
            }
        }
    }
}

/// The exit code that says so, where a lock was lost.
fn let_go(words: &Run, guards: Vec<Guard>) -> Option<End> {
    let mut end = None;
    for guard in guards {
        match guard.release() {
            Err(error @ (Error::NotLocked { .. } | Error::NotHolder { .. })) => {
                warn(&words.lock.path, &format!("lost while the command ran: {}", error.reason()));
                end = Some(End::Code(exit::LOST));
            }
            Err(error) => {
                warn(&words.lock.path, &format!("cannot be released: {}", error.reason()));
            }
            Ok(()) => {}
        }
    }
    end
}
