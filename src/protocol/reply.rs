//! Every code and sentence of the service's replies; no other file has any. Pure.
//!
//! A reply is one line of printable ASCII with CR LF, shorter than [`REPLY_BYTES`]. The replies to HELP and
//! STAT have several lines: the first has a hyphen after the code, the last a blank, and those between are
//! indented by one blank (RFC 959, 4.2). A reply never holds a path, a system error or a control character.
//! It is made of fixed sentences, the host's name, the version, at most [`ECHO_CHARS`] cleaned characters of
//! the client's line, and the text of `status` about holders.

use std::sync::Arc;

use pidlockfile::ascii;

use super::command::{self, Waiting};
use super::status::Report;
use crate::limits::{ECHO_CHARS, HOST_CHARS, REPLY_BYTES, VERSION_CHARS};

/// How the service names itself. All sessions share one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity(Arc<(String, Version)>);

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
    /// 500, the line is no command.
    NotUnderstood(Echo),
    /// 550, the asker may not.
    Denied,
    /// 421, the service ends the session.
    Closing,
    /// 214, the commands there are.
    Help(Waiting),
    /// 211 for all devices, 213 for one: the holders.
    Status(Report),
}

/// What a 500 reply repeats of a line: cut, and clean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Echo(String);

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
        Self(Arc::new((host, version)))
    }
}

impl Echo {
    /// Cuts and cleans a line.
    #[must_use]
    pub fn of(line: &[u8]) -> Self {
        Self(clean(line, ECHO_CHARS))
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
            Self::Help(_) => 214,
            Self::Greeting => 220,
            Self::Goodbye => 221,
            Self::Closing => 421,
            Self::Busy => 450,
            Self::NotUnderstood(_) => 500,
            Self::Denied => 550,
        }
    }

    /// The line as it is sent, with its end.
    #[must_use]
    pub fn encode(&self, identity: &Identity) -> String {
        let (host, Version(version)) = &*identity.0;
        let code = self.code();
        let one = |text: &str| format!("{code} {text}\r\n");
        let line = match self {
            Self::Greeting => one(&format!("{host} Lock File Server (Version {version}) ready")),
            Self::Okay => one("Command okay."),
            Self::NotImplemented => one("Command not implemented"),
            Self::Goodbye => one(&format!("Thank you for using the Lock File service on {host}")),
            Self::Closing => one("Service not available, closing control connection"),
            Self::Busy => one(": File busy"),
            Self::NotUnderstood(Echo(line)) => one(&format!("'{line}': command not understood")),
            Self::Denied => one(": Permission denied."),
            Self::Help(waiting) => {
                let first = "The following commands are recognized.";
                lines(code, first, command::synopses(*waiting), "End of help.")
            }
            Self::Status(report) => lines(code, &report.count(), report.lines(), "End of status."),
        };
        debug_assert!(line.split_inclusive('\n').all(|line| line.len() < REPLY_BYTES));
        line
    }
}

/// A reply of several lines.
fn lines(code: u16, first: &str, between: impl Iterator<Item = String>, last: &str) -> String {
    let between: String = between.map(|line| format!(" {line}\r\n")).collect();
    format!("{code}-{first}\r\n{between}{code} {last}\r\n")
}

/// At most `limit` characters; every byte outside printable ASCII shows as `?`.
fn clean(bytes: &[u8], limit: usize) -> String {
    bytes.iter().take(limit).map(|byte| ascii(char::from(*byte))).collect()
}
