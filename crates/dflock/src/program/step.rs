//! The process between `dflock run` and its command; it runs this same program.
//!
//! It makes sure that the command ends when `dflock run` is killed. Otherwise the lock would be free while
//! the command continues.

use super::complain;
use super::outcome::Failure;
use super::sys::Tie;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use wrapcmd::{Form, StartError};

/// The first argument of the step, and the form of its message if the command cannot be executed; no subcommand has
/// such a name.
const ROLES: [(&str, Form); 2] =
    [("become-command-of", Form::Text), ("become-command-or-json-of", Form::Json)];
/// The parent is gone already: what KILL would have given.
const ORPHANED: u8 = 137;

/// The step before this command, with these changes of its environment. A variable without a value is unset.
pub(super) fn command(
    command: &[OsString],
    changes: &[(&str, Option<OsString>)],
    form: Form,
) -> io::Result<Command> {
    let [(text, _), (json, _)] = ROLES;
    let role = if form == Form::Json { json } else { text };
    let mut step = Command::new(itself()?);
    step.arg(role).arg(std::process::id().to_string()).args(command);
    for (name, value) in changes {
        match value {
            Some(value) => step.env(name, value),
            None => step.env_remove(name),
        };
    }
    Ok(step)
}

/// This program, on Linux also when another file has its name by now.
fn itself() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") {
        Ok(PathBuf::from("/proc/self/exe"))
    } else {
        std::env::current_exe()
    }
}

/// When this process was started as the step: becomes the command, or has it run, and gives the exit
/// code, which says why not when it could not.
pub(super) fn become_command() -> Option<u8> {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next()?;
    let (_, form) = ROLES.into_iter().find(|(word, _)| first == *word)?;
    let parent = arguments.next().and_then(|pid| pid.to_str()?.parse().ok());
    let Some(tie) = parent.and_then(Tie::to_parent) else { return Some(ORPHANED) };
    let name = arguments.next()?;
    let mut command = Command::new(&name);
    command.args(arguments);
    let error = match tie.run(command) {
        Ok(code) => return Some(code),
        Err(error) => error,
    };
    let failure = Failure::NotStarted(StartError::Command { program: name, error });
    complain(&failure, form);
    Some(failure.exit_code())
}
