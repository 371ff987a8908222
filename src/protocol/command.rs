//! What a line asks for. Never touches a device, a process or a file.
//!
//! Refused in a fixed order, so that a line with several faults always gets the same answer:
//! the verb unknown (500), or without use here (202); the number of arguments (500); the pid no
//! number (500); the pid no process can have (550); the device name not allowed (550). Whose pid
//! it is comes after that, and is not asked here.

use lockfile::process::{Pid, PidError};

use crate::device::name::{DeviceName, NotADevice};
use crate::lock::Request;

/// A line that passed every check that needs nothing but the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Take the device.
    Lock(Request),
    /// Release the device.
    Unlock(Request),
    /// End the session.
    Quit,
}

/// Why a line is no command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Unknown verb, wrong number of arguments, or a pid that is no number.
    NotUnderstood,
    /// A verb of RFC 959 that has no use here.
    NotImplemented,
    /// A device or a pid that nobody may name.
    NotAllowed,
}

/// How a verb's arguments become a command.
#[derive(Clone, Copy, Debug)]
enum Arguments {
    None(fn() -> Command),
    DeviceAndPid(fn(Request) -> Command),
}

/// A verb, and what it takes. Adding a command is adding a row.
struct Row {
    verb: &'static str,
    arguments: Arguments,
}

const COMMANDS: &[Row] = &[
    Row { verb: "LOCK", arguments: Arguments::DeviceAndPid(Command::Lock) },
    Row { verb: "UNLOCK", arguments: Arguments::DeviceAndPid(Command::Unlock) },
    Row { verb: "QUIT", arguments: Arguments::None(|| Command::Quit) },
];

/// The other verbs of RFC 959, section 4.1.
pub const WITHOUT_USE: &[&str] = &[
    "USER", "PASS", "ACCT", "CWD", "CDUP", "SMNT", "REIN", "PORT", "PASV", "TYPE", "STRU", "MODE",
    "RETR", "STOR", "STOU", "APPE", "ALLO", "REST", "RNFR", "RNTO", "ABOR", "DELE", "RMD", "MKD",
    "PWD", "LIST", "NLST", "SITE", "SYST", "STAT", "HELP", "NOOP",
];

/// Reads one line without its end: words between spaces and tabs, the verb in any case.
///
/// # Errors
/// The first [`Refusal`] in the order that this file's head gives.
pub fn parse(line: &[u8]) -> Result<Command, Refusal> {
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    let verb = words.next().ok_or(Refusal::NotUnderstood)?;
    let known = |name: &str| verb.eq_ignore_ascii_case(name.as_bytes());
    match COMMANDS.iter().find(|row| known(row.verb)) {
        Some(row) => row.arguments.read(words),
        None if WITHOUT_USE.iter().any(|name| known(name)) => Err(Refusal::NotImplemented),
        None => Err(Refusal::NotUnderstood),
    }
}

impl Arguments {
    fn read<'a>(self, mut words: impl Iterator<Item = &'a [u8]>) -> Result<Command, Refusal> {
        // One more than any command takes is enough to know that there are too many.
        match (self, words.next(), words.next(), words.next()) {
            (Self::None(command), None, ..) => Ok(command()),
            (Self::DeviceAndPid(command), Some(device), Some(pid), None) => {
                let pid = Pid::parse(pid)?;
                Ok(command(Request { device: DeviceName::parse(device)?, pid }))
            }
            (Self::None(_) | Self::DeviceAndPid(_), ..) => Err(Refusal::NotUnderstood),
        }
    }
}

impl From<PidError> for Refusal {
    fn from(error: PidError) -> Self {
        match error {
            PidError::Malformed => Self::NotUnderstood,
            PidError::OutOfRange => Self::NotAllowed,
        }
    }
}

impl From<NotADevice> for Refusal {
    fn from(_: NotADevice) -> Self {
        Self::NotAllowed
    }
}
