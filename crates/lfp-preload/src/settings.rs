//! Reads the library's settings from the environment, once, when the library is loaded.
//!
//! In programs with more rights than their user (setuid) they are ignored, because the environment is the
//! user's.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use lfp::client::{Address, LFP_WAIT_MAX_SECS, PATIENCE};
use pidlockfile::Pid;

use crate::real::{program, variable};

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// The longest `LFP_TIMEOUT`, in seconds.
const TIMEOUT_MAX_SECS: u64 = 60;

/// What is read once: the program may change its environment at any time, and a signal handler may have
/// interrupted it in that.
pub(crate) struct Settings {
    /// This is `lfp` itself, below another `lfp run`: it asks the service by itself, and sees the locks as they are.
    pub(crate) is_lfp: bool,
    /// The process for which `lfp run` has taken its lock: this one, or one that this one descends from.
    pub(crate) run: Option<Pid>,
    pub(crate) whom: Whom,
    /// How long a program may be kept waiting by one of its calls.
    pub(crate) timeout: Duration,
    /// How long it stands in line for a busy port.
    pub(crate) wait: Option<Duration>,
    pub(crate) ports: Ports,
    /// Whether the ports that are locked by being opened are made exclusive (`TIOCEXCL`).
    pub(crate) is_exclusive: bool,
    /// The value of `LFP_PORTS`.
    devices: Vec<u8>,
    /// Whether the holder of a busy port is named on standard error, whatever that is.
    pub(crate) names_holder: bool,
    /// The directory for this user's files of one session.
    pub(crate) runtime: Option<PathBuf>,
}

/// Which service is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Whom {
    /// The one at the usual socket.
    Usual,
    At(Address),
    /// The address makes no sense.
    Nobody,
}

/// What is to be done about ports that are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ports {
    /// They are opened without a lock.
    Left,
    /// They are locked, if there is a service; if that is too slow, they are not opened.
    Locked,
    /// They are locked or not opened.
    Must,
}

/// The settings. They are read when the library is loaded, or by an earlier call.
pub(crate) fn settings() -> &'static Settings {
    SETTINGS.get_or_init(read)
}

fn read() -> Settings {
    let ports = variable(c"LFP_PORTS").unwrap_or_default();
    let is_on = |name| variable(name).is_some_and(|text| text == b"1");
    let seconds = |name, most| Some(Duration::from_secs(seconds_in(&variable(name)?, most)?));
    let runtime = variable(c"XDG_RUNTIME_DIR").map(OsString::from_vec).map(PathBuf::from);
    Settings {
        is_lfp: program() == Some(c"lfp"),
        run: variable(c"LFP_RUN_PID").and_then(|text| Pid::parse(&text).ok()),
        whom: variable(c"LFP_SERVER").map_or(Whom::Usual, |text| whom_in(&text)),
        timeout: seconds(c"LFP_TIMEOUT", TIMEOUT_MAX_SECS).unwrap_or(PATIENCE),
        wait: seconds(c"LFP_WAIT", LFP_WAIT_MAX_SECS),
        ports: ports_in(&ports),
        is_exclusive: is_on(c"LFP_EXCLUSIVE"),
        devices: ports,
        names_holder: is_on(c"LFP_TELL"),
        runtime: runtime.filter(|path| path.is_absolute()),
    }
}

impl Settings {
    /// The paths of the devices that count as ports whatever they are.
    pub(crate) fn further(&self) -> impl Iterator<Item = &[u8]> {
        self.devices.split(|byte| *byte == b':').skip(1)
    }
}

/// `LFP_PORTS` is 1 or must, or that with the names of further devices behind it, each after a colon.
fn ports_in(text: &[u8]) -> Ports {
    match text.split(|byte| *byte == b':').next() {
        Some(b"1") => Ports::Locked,
        Some(b"must") => Ports::Must,
        Some(_) | None => Ports::Left,
    }
}

fn whom_in(text: &[u8]) -> Whom {
    let address = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    address.map_or(Whom::Nobody, Whom::At)
}

/// Whole seconds, from 1 to the longest.
fn seconds_in(text: &[u8], most: u64) -> Option<u64> {
    let digits = text.iter().all(u8::is_ascii_digit);
    let number: u64 = std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()?;
    (1..=most).contains(&number).then_some(number)
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
    fn timeouts_are_parsed(#[case] text: &str, #[case] expected: Option<u64>) {
        assert_eq!(seconds_in(text.as_bytes(), TIMEOUT_MAX_SECS), expected);
    }

    #[rstest]
    #[case::empty("", Ports::Left)]
    #[case::on("1", Ports::Locked)]
    #[case::off("0", Ports::Left)]
    #[case::with_a_device("1:/dev/ttyW0", Ports::Locked)]
    #[case::must("must", Ports::Must)]
    #[case::must_with_a_device("must:/dev/ttyW0", Ports::Must)]
    #[case::only_a_device("/dev/ttyW0", Ports::Left)]
    #[case::odd("11", Ports::Left)]
    fn ports_are_asked_for(#[case] value: &str, #[case] expected: Ports) {
        assert_eq!(ports_in(value.as_bytes()), expected);
    }

    #[rstest]
    #[case::path("/run/x.sock", Whom::At(Address::Unix("/run/x.sock".into())))]
    #[case::empty("", Whom::Nobody)]
    #[case::elsewhere("192.0.2.1:50001", Whom::Nobody)]
    fn addresses_of_services_are_parsed(#[case] text: &str, #[case] expected: Whom) {
        assert_eq!(whom_in(text.as_bytes()), expected);
    }
}
