//! The process between `dflock run` and its command; it runs this same program.
//!
//! It makes sure that the command ends when `dflock run` is killed. Otherwise the lock would be free while
//! the command continues.

use super::sys::Tie;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Command;
use wrapcmd::exit;

/// The first argument of the step; no subcommand has this name.
const STEP_WORD: &str = "become-command-of";
/// The parent is gone already: what KILL would have given.
const ORPHANED: u8 = 137;

/// The step before this command, with these changes of its environment. A variable without a value is unset.
pub(super) fn command(
    command: &[OsString],
    changes: &[(&str, Option<OsString>)],
) -> io::Result<Command> {
    let mut step = Command::new(itself()?);
    step.arg(STEP_WORD).arg(std::process::id().to_string()).args(command);
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
    if arguments.next()? != STEP_WORD {
        return None;
    }
    let parent = arguments.next().and_then(|pid| pid.to_str()?.parse().ok());
    let Some(tie) = parent.and_then(Tie::to_parent) else { return Some(ORPHANED) };
    let name = arguments.next()?;
    let mut command = Command::new(&name);
    command.args(arguments);
    let error = match tie.run(command) {
        Ok(code) => return Some(code),
        Err(error) => error,
    };
    let _ = writeln!(io::stderr(), "dflock: {}: {error}", name.to_string_lossy());
    Some(if error.kind() == io::ErrorKind::NotFound {
        exit::NOT_FOUND
    } else {
        exit::NOT_EXECUTABLE
    })
}
