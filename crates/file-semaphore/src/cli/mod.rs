//! The programs `sema` and `semats`: arguments in, text or JSON and an exit code out.

mod actions;
mod arguments;
mod locks;
mod outcome;
mod semats;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::process::ExitCode;

#[cfg(unix)]
use unix as platform;
#[cfg(windows)]
use windows as platform;

/// The whole program `sema`.
#[must_use]
pub fn sema() -> ExitCode {
    // First of all: is this the process that stands by to become a command?
    #[cfg(unix)]
    if let Some((error, form)) = wrapcmd::take_over(std::env::args_os().skip(1)) {
        return ExitCode::from(locks::not_started(&error, form));
    }
    #[cfg(unix)]
    let _ = pidlockfile::catch_file_size_signal();
    let words: Vec<_> = std::env::args_os().collect();
    #[cfg(unix)]
    if let Some((words, began)) = wrapcmd::in_background(words.iter().skip(1)) {
        return ExitCode::from(actions::perform(words, Some(began)).follow());
    }
    ExitCode::from(actions::perform(words, None).follow())
}

/// The whole program `semats`.
#[must_use]
pub fn semats() -> ExitCode {
    #[cfg(unix)]
    let _ = pidlockfile::catch_file_size_signal();
    let words = std::env::args_os().skip(1);
    ExitCode::from(semats::main(words.collect()).follow())
}
