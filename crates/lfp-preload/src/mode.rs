//! What the environment asks of us, read once when the library is loaded.
//!
//! Programs with more rights than their user (setuid) are asked nothing: their environment is the
//! user's.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use pidlockfile::Pid;

use crate::real::{program, variable};

static IS_LFP: AtomicBool = AtomicBool::new(false);
static PORTS: AtomicBool = AtomicBool::new(false);
static RUN: AtomicI32 = AtomicI32::new(0);
static TIMEOUT: AtomicU64 = AtomicU64::new(1);
/// What `LFP_PORTS` says.
static DEVICES: OnceLock<Vec<u8>> = OnceLock::new();

/// The longest `LFP_TIMEOUT`, in seconds.
const TIMEOUT_MAX_SECS: u64 = 60;

/// To be called when the library has been loaded, before any call of the program.
pub(crate) fn start() {
    IS_LFP.store(program() == Some(c"lfp"), Ordering::Relaxed);
    if let Some(pid) = variable(c"LFP_RUN_PID").and_then(|text| Pid::parse(&text).ok()) {
        RUN.store(pid.as_raw(), Ordering::Relaxed);
    }
    if let Some(seconds) = variable(c"LFP_TIMEOUT").and_then(|text| seconds_in(&text)) {
        TIMEOUT.store(seconds, Ordering::Relaxed);
    }
    let ports = variable(c"LFP_PORTS");
    PORTS.store(is_on(ports.as_deref()), Ordering::Relaxed);
    let _ = DEVICES.set(ports.unwrap_or_default());
}

/// The paths of the devices that count as ports whatever they are.
pub(crate) fn further() -> impl Iterator<Item = &'static [u8]> {
    let value = DEVICES.get().map(Vec::as_slice).unwrap_or_default();
    value.split(|byte| *byte == b':').skip(1)
}

/// `LFP_PORTS` is 1, or 1 with the names of further devices behind it, each after a colon.
fn is_on(ports: Option<&[u8]>) -> bool {
    ports.is_some_and(|value| value.split(|byte| *byte == b':').next() == Some(b"1"))
}

/// Whole seconds, from 1 to the longest.
fn seconds_in(text: &[u8]) -> Option<u64> {
    let digits = text.iter().all(u8::is_ascii_digit);
    let number: u64 = std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()?;
    (1..=TIMEOUT_MAX_SECS).contains(&number).then_some(number)
}

/// How long a program may be kept waiting by one of its calls.
pub(crate) fn timeout() -> Duration {
    Duration::from_secs(TIMEOUT.load(Ordering::Relaxed))
}

/// Whether ports are locked when they are opened.
pub(crate) fn ports() -> bool {
    PORTS.load(Ordering::Relaxed)
}

/// Whether this is `lfp` itself, which another `lfp run` has above it: it asks the service by itself, and is
/// to see the locks as they are.
pub(crate) fn is_lfp() -> bool {
    IS_LFP.load(Ordering::Relaxed)
}

/// The process for which `lfp run` has taken its lock: this one, or one that this one descends
/// from.
pub(crate) fn run() -> Option<Pid> {
    Pid::new(RUN.load(Ordering::Relaxed).into())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::least("1", Some(1))]
    #[case::most("60", Some(60))]
    #[case::more("61", None)]
    #[case::none("0", None)]
    #[case::sign("+5", None)]
    #[case::empty("", None)]
    #[case::long("99999999999999999999999", None)]
    fn timeouts(#[case] text: &str, #[case] expected: Option<u64>) {
        assert_eq!(seconds_in(text.as_bytes()), expected);
    }

    #[rstest]
    #[case::unset(None, false)]
    #[case::empty(Some(""), false)]
    #[case::on(Some("1"), true)]
    #[case::off(Some("0"), false)]
    #[case::with_a_device(Some("1:/dev/ttyW0"), true)]
    #[case::only_a_device(Some("/dev/ttyW0"), false)]
    #[case::odd(Some("11"), false)]
    fn ports_are_asked_for(#[case] value: Option<&str>, #[case] expected: bool) {
        assert_eq!(is_on(value.map(str::as_bytes)), expected);
        start();
    }
}
