//! Parses a line into a command. Never touches a device, a process or a file. Pure.
//!
//! Errors are found in a fixed order, so a line with several errors always gets the same answer: unknown verb
//! (500), verb without meaning here (202), number of arguments (500), pid or seconds not a number (500),
//! impossible pid or too many seconds (550), device name not allowed (550). The owner of the pid is checked
//! later, elsewhere.
//!
//! NOOP, HELP, STAT, WAIT, PASS and FORCE are additions to the protocol, in the manner of RFC 959; `status`
//! has the answer to STAT. RFC 959 has a PASS of its own, with a password: PASS with anything but a device
//! and two numbers is that one.

use pidlockfile::process::{Pid, PidError};

use crate::limits::WAIT_MAX_SECS;
use ttylock::{DeviceName, NotADevice, Pass, Request};

/// A line that passed every check that needs nothing but the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Change a lock.
    Change(Demand),
    /// Asks for the holders of this device, or of any.
    Status(Option<DeviceName>),
    /// Which commands there are.
    Help,
    /// Nothing: the client sees that the service lives.
    Noop,
    /// End the session.
    Quit,
}

/// A change of a lock. It needs the peer's right to name its processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Take the device.
    Lock(Request),
    /// Release the device.
    Unlock(Request),
    /// Take the device as soon as it is free, within so many seconds.
    Wait(Request, u32),
    /// Hand the device from one process to another.
    Pass(Pass),
    /// Release the device, whosever the process is.
    Force(Request),
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

/// Why a line is no command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Unknown verb, wrong number of arguments, or a pid that is no number.
    NotUnderstood,
    /// A verb of RFC 959 that has no use here.
    NotImplemented,
    /// A device or a pid that no client may name.
    NotAllowed,
    /// A line of HTTP: a web page makes a browser on this host send requests here.
    Http,
}

/// A verb, and what it takes. Adding a command is adding a row.
struct Row {
    verb: &'static str,
    /// As HELP shows them.
    arguments: &'static str,
    /// Makes the words behind the verb a command.
    read: fn(&[&[u8]]) -> Result<Command, Refusal>,
}

const COMMANDS: &[Row] = &[
    Row { verb: "LOCK", arguments: " device pid", read: |words| change(Demand::Lock, words) },
    Row { verb: "UNLOCK", arguments: " device pid", read: |words| change(Demand::Unlock, words) },
    Row { verb: WAIT, arguments: " device pid seconds", read: wait },
    Row { verb: "PASS", arguments: " device from-pid to-pid", read: pass },
    Row { verb: "FORCE", arguments: " device pid", read: |words| change(Demand::Force, words) },
    Row { verb: "STAT", arguments: " [device]", read: status },
    Row { verb: "HELP", arguments: "", read: |words| alone(Command::Help, words) },
    Row { verb: "NOOP", arguments: "", read: |words| alone(Command::Noop, words) },
    Row { verb: "QUIT", arguments: "", read: |words| alone(Command::Quit, words) },
];

/// The one verb that not every session offers.
const WAIT: &str = "WAIT";

/// The other verbs of RFC 959, section 4.1, but for PASS, which may have a use.
pub const WITHOUT_USE: &[&str] = &[
    "USER", "ACCT", "CWD", "CDUP", "SMNT", "REIN", "PORT", "PASV", "TYPE", "STRU", "MODE", "RETR",
    "STOR", "STOU", "APPE", "ALLO", "REST", "RNFR", "RNTO", "ABOR", "DELE", "RMD", "MKD", "PWD",
    "LIST", "NLST", "SITE", "SYST",
];

/// Reads one line without its end: words between spaces and tabs, the verb in any case.
///
/// # Errors
/// The first [`Refusal`] in the order that this file's head gives.
pub fn parse(line: &[u8], waiting: Waiting) -> Result<Command, Refusal> {
    let words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    let words: Vec<&[u8]> = words.collect();
    let (verb, arguments) = words.split_first().ok_or(Refusal::NotUnderstood)?;
    let known = |name: &str| verb.eq_ignore_ascii_case(name.as_bytes());
    if is_http(line) {
        return Err(Refusal::Http);
    }
    match COMMANDS.iter().find(|row| known(row.verb)) {
        Some(row) if row.is_offered(waiting) => (row.read)(arguments),
        Some(_) => Err(Refusal::NotImplemented),
        None if WITHOUT_USE.iter().any(|name| known(name)) => Err(Refusal::NotImplemented),
        None => Err(Refusal::NotUnderstood),
    }
}

/// A request line, or one of the first headers that every browser sends, as a request line that
/// is too long is skipped.
#[must_use]
pub fn is_http(line: &[u8]) -> bool {
    let begins = |word: &[u8], with: &str| {
        word.get(..with.len()).is_some_and(|word| word.eq_ignore_ascii_case(with.as_bytes()))
    };
    let mut words = line.split(|byte| *byte == b' ');
    let first = words.next().unwrap_or_default();
    ["host:", "origin:", "user-agent:"].iter().any(|header| begins(first, header))
        || words.nth(1).is_some_and(|version| begins(version, "http/"))
}

/// Every command with its arguments, as HELP shows them.
pub fn synopses(waiting: Waiting) -> impl Iterator<Item = String> {
    COMMANDS
        .iter()
        .filter(move |row| row.is_offered(waiting))
        .map(|row| format!("{}{}", row.verb, row.arguments))
}

impl Row {
    fn is_offered(&self, waiting: Waiting) -> bool {
        waiting == Waiting::Offered || self.verb != WAIT
    }
}

fn alone(command: Command, words: &[&[u8]]) -> Result<Command, Refusal> {
    words.is_empty().then_some(command).ok_or(Refusal::NotUnderstood)
}

fn status(words: &[&[u8]]) -> Result<Command, Refusal> {
    match words {
        [] => Ok(Command::Status(None)),
        [device] => Ok(Command::Status(Some(DeviceName::parse(device)?))),
        _ => Err(Refusal::NotUnderstood),
    }
}

fn change(demand: fn(Request) -> Demand, words: &[&[u8]]) -> Result<Command, Refusal> {
    let [device, pid] = words else { return Err(Refusal::NotUnderstood) };
    Ok(Command::Change(demand(request(device, pid)?)))
}

fn wait(words: &[&[u8]]) -> Result<Command, Refusal> {
    let [device, pid, seconds] = words else { return Err(Refusal::NotUnderstood) };
    let seconds = read_seconds(seconds);
    // What is no number at all comes before what is too large a one.
    if Pid::parse(pid) == Err(PidError::Malformed) || seconds == Err(Refusal::NotUnderstood) {
        return Err(Refusal::NotUnderstood);
    }
    Ok(Command::Change(Demand::Wait(request(device, pid)?, seconds?)))
}

fn request(device: &[u8], pid: &[u8]) -> Result<Request, Refusal> {
    let pid = Pid::parse(pid)?;
    Ok(Request { device: DeviceName::parse(device)?, pid })
}

fn pass(words: &[&[u8]]) -> Result<Command, Refusal> {
    let [device, from, to] = words else { return Err(Refusal::NotImplemented) };
    let (from, to) = (Pid::parse(from), Pid::parse(to));
    if [from, to].contains(&Err(PidError::Malformed)) {
        return Err(Refusal::NotImplemented);
    }
    let (from, to) = (from?, to?);
    Ok(Command::Change(Demand::Pass(Pass { device: DeviceName::parse(device)?, from, to })))
}

fn read_seconds(word: &[u8]) -> Result<u32, Refusal> {
    if !word.iter().all(u8::is_ascii_digit) {
        return Err(Refusal::NotUnderstood);
    }
    let seconds = word.iter().try_fold(0_u32, |sum, digit| {
        sum.checked_mul(10)?.checked_add(u32::from(digit.saturating_sub(b'0')))
    });
    seconds.filter(|seconds| *seconds <= WAIT_MAX_SECS).ok_or(Refusal::NotAllowed)
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
