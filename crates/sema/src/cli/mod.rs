//! The programs `sema` and `semats`: arguments in, text or JSON and an exit code out.

mod actions;
mod arguments;
mod json;
mod outcome;
mod run;
mod semats;
mod signals;

use std::io::{self, Write};
use std::process::ExitCode;

/// The whole program `sema`.
#[must_use]
pub fn sema() -> ExitCode {
    let told = run::told_by_wrapper(std::env::args_os().skip(1));
    ExitCode::from(told.unwrap_or_else(|| actions::perform(std::env::args_os().collect())))
}

/// The whole program `semats`.
#[must_use]
pub fn semats() -> ExitCode {
    let words = std::env::args_os().skip(1);
    ExitCode::from(semats::main(words.collect()))
}

/// Writes to standard output. A reader who has gone away is no reason to panic.
fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes to standard error, whether anybody listens or not.
fn complain(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
