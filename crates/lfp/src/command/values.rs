//! Parses single values of the command line: numbers, signals, times. Words in, values out.
//!
//! Pure.

use std::time::Duration;

use nix::sys::signal::Signal;
use pidlockfile::Pid;

/// The longest `--timeout`, in seconds: some thirty years.
const TIMEOUT_MAX_SECS: u64 = 1_000_000_000;

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

/// Decimal digits with at most one point among or before them; no sign, no exponent.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(part) || !(digits(whole) || (whole.is_empty() && text.len() > 1)) {
        return Err("needs a number of seconds, such as 10 or 0.5".to_owned());
    }
    let nanoseconds = part.bytes().chain(std::iter::repeat(b'0')).take(9);
    let nanoseconds = nanoseconds.fold(0_u32, |sum, digit| {
        sum.saturating_mul(10).saturating_add(u32::from(digit.saturating_sub(b'0')))
    });
    let whole: Option<u64> = if whole.is_empty() { Some(0) } else { whole.parse().ok() };
    whole
        .filter(|whole| *whole <= TIMEOUT_MAX_SECS)
        .map(|whole| Duration::new(whole, nanoseconds))
        .ok_or_else(|| format!("at most {TIMEOUT_MAX_SECS} seconds"))
}
