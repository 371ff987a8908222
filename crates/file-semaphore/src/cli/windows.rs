//! The programs on Windows. In `sema run`, `sema` itself is the holder, because a process cannot become another program:
//! if `sema` is killed, the command continues, and its locks are those of a dead process. Ctrl-C and similar events end
//! the programs at once; a lock that was being taken is then that of a dead process.

use std::ffi::OsString;
use std::io;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Instant;

use pidlockfile::Pid;
use wrapcmd::StartError;
use wrapcmd::exit::End;

use super::arguments::{Form, Run};
use super::run::{Possession, not_started, open, renewal, report_held, take};
use crate::error::Error;
use crate::semaphore::{Guard, Semaphore};
use crate::sys::Alarm;

/// Nobody goes on in the background here.
#[derive(Debug)]
pub(crate) enum Began {}

/// Refuses it.
pub(crate) fn in_background(_run: &Run, _form: Form, _words: &[OsString]) -> Result<End, Error> {
    Err(Error::Process { message: "--bg: not on Windows" })
}

/// Takes the locks and runs the command. Returns how it ended.
///
/// # Errors
/// Whatever kept the command from being run.
pub(crate) fn run(words: &Run, form: Form, _began: Option<Began>) -> Result<End, Error> {
    let semaphores = open(words)?;
    let begin = Instant::now();
    let mut own = |semaphore: &Semaphore| semaphore.files.own_holder();
    let guards = take(words, form, &semaphores, None, &mut own)?;
    let line = words.command();
    let [program, arguments @ ..] = line.as_slice() else {
        return Err(Error::NoHolder { pid: 0 });
    };
    report_held(words, begin, &line);
    let slot = guards.first().map_or(1, Guard::slot);
    let mut command = std::process::Command::new(program);
    command.args(arguments).env("SEMA_SLOT", slot.to_string());
    let end = match command.spawn() {
        Ok(child) => attend(words, child, &guards)?,
        Err(error) => {
            let error = StartError::Command { program: program.clone(), error };
            End::Code(not_started(&error, form))
        }
    };
    let mut possession = Possession::Kept;
    possession.release_all(words, form, guards);
    Ok(possession.end(end))
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
                // What was lost is reported when all is over.
                for guard in guards {
                    drop(guard.renew());
                }
            }
        }
    }
}

/// Nothing is caught.
pub(super) struct Signals;

pub(super) fn catch_signals() -> Result<Signals, Error> {
    Ok(Signals)
}

/// Nothing is held off.
pub(super) fn hold_off() {}

impl Alarm for Signals {
    fn ring(&self) -> Option<Error> {
        None
    }
}

/// Nothing is known of the calling process, so there is no warning.
pub(super) fn short_lived(_caller: Pid) -> Option<String> {
    None
}
