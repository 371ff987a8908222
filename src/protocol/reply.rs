//! Every code and sentence of the service's replies; no other file has any. Pure.
//!
//! A reply is one line of printable ASCII with CR LF, shorter than [`REPLY_BYTES`]. The replies to HELP and
//! STAT have several lines: the first has a hyphen after the code, the last a blank, and those between are
//! indented by one blank (RFC 959, 4.2). A reply never holds a path, a system error or a control character.
//! It is made of fixed sentences, the host's name, the version, at most [`ECHO_CHARS`] cleaned characters of
//! the client's line, and the text of `status` about holders.

use std::fmt::Display;
use std::sync::Arc;

use pidlockfile::ascii;
use ttylock::Outcome;

use super::status::Report;
use crate::limits::{ECHO_CHARS, REPLY_BYTES};

/// The host's name in replies, in characters (Linux allows 64). The rest is left out.
pub const HOST_CHARS: usize = 255;

/// The text of `--banner-version`, in characters. A longer one is a usage error.
pub const VERSION_CHARS: usize = 64;

/// How the service names itself, and whether it offers WAIT. All sessions share one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    names: Arc<(String, Version)>,
    pub(super) waiting: Waiting,
}

/// Whether a session can wait for a device. A process with a single client could not keep order
/// among the waiters, so there WAIT is a verb without use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// WAIT is a command.
    Offered,
    /// WAIT is answered like a verb without use.
    NotOffered,
}

/// The version in the greeting: printable ASCII, at most [`VERSION_CHARS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(String);

/// What the service can say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// 220, before anything else is said.
    Greeting,
    /// 200, done.
    Okay,
    /// 202, a verb of RFC 959 that has no use here.
    NotImplemented,
    /// 221, the answer to QUIT.
    Goodbye,
    /// 450: another process has it, or it is not the client's to release.
    Busy,
    /// 500, the line is no command. The reply repeats it: cut, and clean.
    NotUnderstood,
    /// 550, the asker may not.
    Denied,
    /// 421, the service ends the session.
    Closing,
    /// 214, the commands there are.
    Help,
    /// 211 for all devices, 213 for one: the holders.
    Status(Report),
}

/// The one verb that not every session offers.
pub(super) const WAIT: &str = "WAIT";

/// Every command with its arguments, as HELP shows them.
const COMMANDS: [&str; 9] = [
    "LOCK device pid",
    "UNLOCK device pid",
    "WAIT device pid seconds",
    "PASS device from-pid to-pid",
    "FORCE device pid",
    "STAT [device]",
    "HELP",
    "NOOP",
    "QUIT",
];

impl Version {
    /// The only version a client has ever seen.
    pub const ORIGINAL: &str = "rxtx-1.5-9";

    /// [`Version::ORIGINAL`].
    #[must_use]
    pub fn original() -> Self {
        Self(Self::ORIGINAL.to_owned())
    }

    /// `None` when it is empty, too long, or holds more than printable ASCII and blanks.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let printable = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        let fits = (1..=VERSION_CHARS).contains(&text.len());
        (printable && fits).then(|| Self(text.to_owned()))
    }
}

impl Identity {
    /// Takes the host's name as it comes; what a reply may not hold shows as `?`.
    #[must_use]
    pub fn new(host: &[u8], version: Version) -> Self {
        let mut host = clean(host, HOST_CHARS);
        if host.is_empty() {
            "localhost".clone_into(&mut host);
        }
        Self { names: Arc::new((host, version)), waiting: Waiting::NotOffered }
    }

    /// The same with WAIT among its commands, for a service that can keep the order among several who wait.
    #[must_use]
    pub fn offering_to_wait(self) -> Self {
        Self { waiting: Waiting::Offered, ..self }
    }
}

impl From<Outcome> for Reply {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::Okay,
            Outcome::Busy => Self::Busy,
            Outcome::Denied => Self::Denied,
        }
    }
}

impl Reply {
    /// The three digits.
    #[must_use]
    pub fn code(&self) -> u16 {
        match self {
            Self::Okay => 200,
            Self::NotImplemented => 202,
            Self::Status(report) => report.code,
            Self::Help => 214,
            Self::Greeting => 220,
            Self::Goodbye => 221,
            Self::Closing => 421,
            Self::Busy => 450,
            Self::NotUnderstood => 500,
            Self::Denied => 550,
        }
    }

    /// The reply to this line of the client, as it is sent, with its end.
    #[must_use]
    pub fn encode(&self, identity: &Identity, line: &[u8]) -> String {
        let (host, Version(version)) = &*identity.names;
        let code = self.code();
        let one = |text: &str| format!("{code} {text}\r\n");
        let reply = match self {
            Self::Greeting => one(&format!("{host} Lock File Server (Version {version}) ready")),
            Self::Okay => one("Command okay."),
            Self::NotImplemented => one("Command not implemented"),
            Self::Goodbye => one(&format!("Thank you for using the Lock File service on {host}")),
            Self::Closing => one("Service not available, closing control connection"),
            Self::Busy => one(": File busy"),
            Self::NotUnderstood => {
                one(&format!("'{}': command not understood", clean(line, ECHO_CHARS)))
            }
            Self::Denied => one(": Permission denied."),
            Self::Help => {
                let first = "The following commands are recognized.";
                let is_there =
                    |it: &&str| identity.waiting == Waiting::Offered || !it.starts_with(WAIT);
                let commands = COMMANDS.into_iter().filter(is_there);
                lines(code, first, commands, "End of help.")
            }
            Self::Status(report) => lines(code, &report.count, &report.lines, "End of status."),
        };
        debug_assert!(reply.split_inclusive('\n').all(|line| line.len() < REPLY_BYTES));
        reply
    }
}

/// A reply of several lines.
fn lines<L: Display>(
    code: u16,
    first: &str,
    between: impl IntoIterator<Item = L>,
    last: &str,
) -> String {
    let between: String = between.into_iter().map(|line| format!(" {line}\r\n")).collect();
    format!("{code}-{first}\r\n{between}{code} {last}\r\n")
}

/// At most `limit` characters; every byte outside printable ASCII shows as `?`.
fn clean(bytes: &[u8], limit: usize) -> String {
    bytes.iter().take(limit).map(|byte| ascii(char::from(*byte))).collect()
}
