//! The programs `sema` and `semats`: arguments in, text or JSON and an exit code out.

mod actions;
mod arguments;
mod caller;
mod outcome;
mod run;
mod semats;

use std::io::{self, Write};
use std::process::ExitCode;

/// The whole program `sema`.
#[must_use]
pub fn sema() -> ExitCode {
    ExitCode::from(match wrapcmd::take_over(std::env::args_os().skip(1)) {
        Some(refusal) => run::refused(&refusal),
        None => actions::perform(std::env::args_os().collect()).follow(),
    })
}

/// The whole program `semats`.
#[must_use]
pub fn semats() -> ExitCode {
    let words = std::env::args_os().skip(1);
    ExitCode::from(semats::main(words.collect()).follow())
}

/// Writes to standard error, whether anybody listens or not.
fn complain(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
