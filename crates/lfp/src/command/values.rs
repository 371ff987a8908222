//! Parses single values of the command line: numbers, signals. Words in, values out.
//!
//! Pure.

use nix::sys::signal::Signal;
use pidlockfile::Pid;

/// The name of a program, without a directory.
pub(super) fn program(text: &str) -> Result<String, &'static str> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_+.".contains(&byte);
    let is_name = !text.is_empty() && !text.starts_with(['.', '-']) && text.bytes().all(fits);
    is_name.then(|| text.to_owned()).ok_or("needs the name of a program, without a directory")
}

/// A process number.
pub(super) fn pid(text: &str) -> Result<Pid, &'static str> {
    Pid::parse(text.as_bytes()).map_err(|_| "needs a process number, 1 or more")
}

/// `TERM`, `SIGTERM` or a number, in any case.
pub(super) fn signal(text: &str) -> Result<Signal, &'static str> {
    let name = text.to_ascii_uppercase();
    let name = if name.starts_with("SIG") { name } else { format!("SIG{name}") };
    let number = || Signal::try_from(text.parse::<i32>().ok()?).ok();
    name.parse().ok().or_else(number).ok_or("needs a signal, such as TERM, SIGUSR1 or 10")
}
