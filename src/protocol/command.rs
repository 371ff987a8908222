//! Cuts a stream of bytes into lines, removes telnet's option bytes, and parses a line into a command. Never touches a
//! device, a process or a file. Pure.
//!
//! Holds at most one line of [`LINE_BYTES`], whatever arrives, and gives the same lines however the stream
//! was cut into packets.
//!
//! Errors are found in a fixed order, so a line with several errors always gets the same answer: unknown verb
//! (500), verb without meaning here (202), number of arguments (500), pid or seconds not a number (500),
//! impossible pid or too many seconds (550), device name not allowed (550). The owner of the pid is checked
//! later, elsewhere.
//!
//! NOOP, HELP, STAT, WAIT, PASS and FORCE are additions to the protocol, in the manner of RFC 959; `reply`
//! has the answer to STAT. RFC 959 has a PASS of its own, with a password: PASS with anything but a device
//! and two numbers is that one.

use pidlockfile::process::{Pid, PidError};
use ttylock::{DeviceName, NotADevice, Pass, Request};

use super::reply::{Reply, WAIT, Waiting};
use crate::limits::{ECHO_CHARS, LINE_BYTES, WAIT_MAX_SECS};

/// What a client asks of the service: a line that passed every check that needs nothing but the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Take the device.
    Lock(Request),
    /// Release the device.
    Unlock(Request),
    /// Take the device as soon as it is free, within this many seconds.
    Wait(Request, u32),
    /// Hand the device from one process to another.
    Pass(Pass),
    /// Release the device for a process of any user.
    Force(Request),
    /// Show the holders of this device, or of any.
    Status(Option<DeviceName>),
    /// End the session with a web browser: a web page makes it send requests here.
    Http,
}

/// A verb, and what makes the words behind it a command, or answers them at once.
type Row = (&'static str, fn(&[&[u8]]) -> Result<Command, Reply>);

/// Adding a command is adding a row, and its line for HELP.
const COMMANDS: [Row; 9] = [
    ("LOCK", |words| change(Command::Lock, words)),
    ("UNLOCK", |words| change(Command::Unlock, words)),
    (WAIT, wait),
    ("PASS", pass),
    ("FORCE", |words| change(Command::Force, words)),
    ("STAT", status),
    ("HELP", |words| alone(Reply::Help, words)),
    ("NOOP", |words| alone(Reply::Okay, words)),
    ("QUIT", |words| alone(Reply::Goodbye, words)),
];

/// The other verbs of RFC 959, section 4.1, except PASS, which may have a use.
pub const WITHOUT_USE: &[&str] = &[
    "USER", "ACCT", "CWD", "CDUP", "SMNT", "REIN", "PORT", "PASV", "TYPE", "STRU", "MODE", "RETR",
    "STOR", "STOU", "APPE", "ALLO", "REST", "RNFR", "RNTO", "ABOR", "DELE", "RMD", "MKD", "PWD",
    "LIST", "NLST", "SITE", "SYST",
];

/// Reads one line without its end: words between spaces and tabs, the verb in any case.
///
/// # Errors
/// The reply, if the line asks for nothing more. A fault is the first one in the order that this file's head gives.
pub fn parse(line: &[u8], waiting: Waiting) -> Result<Command, Reply> {
    if is_http(line) {
        return Ok(Command::Http);
    }
    let words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    let words: Vec<&[u8]> = words.collect();
    let (verb, arguments) = words.split_first().ok_or(Reply::NotUnderstood)?;
    let known = |name: &str| verb.eq_ignore_ascii_case(name.as_bytes());
    match COMMANDS.iter().find(|(name, _)| known(name)) {
        Some((WAIT, _)) if waiting == Waiting::NotOffered => Err(Reply::NotImplemented),
        Some((_, read)) => read(arguments),
        None if WITHOUT_USE.iter().any(|name| known(name)) => Err(Reply::NotImplemented),
        None => Err(Reply::NotUnderstood),
    }
}

/// Whether a line is from a web browser: a request line of HTTP, or one of the first headers that every browser sends.
/// The headers count because a request line that is too long is skipped.
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

fn alone(reply: Reply, words: &[&[u8]]) -> Result<Command, Reply> {
    Err(if words.is_empty() { reply } else { Reply::NotUnderstood })
}

fn status(words: &[&[u8]]) -> Result<Command, Reply> {
    match words {
        [] => Ok(Command::Status(None)),
        [device] => Ok(Command::Status(Some(DeviceName::parse(device)?))),
        _ => Err(Reply::NotUnderstood),
    }
}

fn change(command: fn(Request) -> Command, words: &[&[u8]]) -> Result<Command, Reply> {
    let [device, pid] = words else { return Err(Reply::NotUnderstood) };
    Ok(command(request(device, pid)?))
}

fn wait(words: &[&[u8]]) -> Result<Command, Reply> {
    let [device, pid, seconds] = words else { return Err(Reply::NotUnderstood) };
    let seconds = read_seconds(seconds);
    // What is no number at all comes before what is too large a one.
    if Pid::parse(pid) == Err(PidError::Malformed) || seconds == Err(Reply::NotUnderstood) {
        return Err(Reply::NotUnderstood);
    }
    Ok(Command::Wait(request(device, pid)?, seconds?))
}

fn request(device: &[u8], pid: &[u8]) -> Result<Request, Reply> {
    let pid = Pid::parse(pid)?;
    Ok(Request { device: DeviceName::parse(device)?, pid })
}

fn pass(words: &[&[u8]]) -> Result<Command, Reply> {
    let [device, from, to] = words else { return Err(Reply::NotImplemented) };
    let (from, to) = (Pid::parse(from), Pid::parse(to));
    if [from, to].contains(&Err(PidError::Malformed)) {
        return Err(Reply::NotImplemented);
    }
    let (from, to) = (from?, to?);
    Ok(Command::Pass(Pass { device: DeviceName::parse(device)?, from, to }))
}

fn read_seconds(word: &[u8]) -> Result<u32, Reply> {
    if !word.iter().all(u8::is_ascii_digit) {
        return Err(Reply::NotUnderstood);
    }
    let seconds = word.iter().try_fold(0_u32, |sum, digit| {
        sum.checked_mul(10)?.checked_add(u32::from(digit.saturating_sub(b'0')))
    });
    seconds.filter(|seconds| *seconds <= WAIT_MAX_SECS).ok_or(Reply::Denied)
}

impl From<PidError> for Reply {
    fn from(error: PidError) -> Self {
        match error {
            PidError::Malformed => Self::NotUnderstood,
            PidError::OutOfRange => Self::Denied,
        }
    }
}

impl From<NotADevice> for Reply {
    fn from(_: NotADevice) -> Self {
        Self::Denied
    }
}

/// Takes bytes, gives lines. Feed it with [`Framer::next_line`] until it asks for more.
/// Between two lines it holds no memory.
#[derive(Clone, Debug, Default)]
pub struct Framer {
    line: Vec<u8>,
    /// Bytes of the line so far, also those that are no longer kept.
    length: usize,
    telnet: Telnet,
}

/// One line without its end (LF, or CR LF).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A line within the limit.
    Whole(Vec<u8>),
    /// The beginning of a line that was longer than [`LINE_BYTES`].
    TooLong(Vec<u8>),
}

/// Where in a telnet sequence the stream stands. Source: RFC 854, RFC 855.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Telnet {
    #[default]
    Data,
    /// After IAC.
    Command,
    /// After IAC and WILL, WONT, DO or DONT: the option follows.
    Option,
    /// After IAC SB: everything up to IAC SE belongs to the option.
    Subnegotiation,
    /// After an IAC within a subnegotiation.
    SubnegotiationCommand,
}

const SE: u8 = 240;
const SB: u8 = 250;
const WILL: u8 = 251;
const DONT: u8 = 254;
const IAC: u8 = 255;

impl Framer {
    /// At the beginning of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes off the front of `input` up to the end of one line, and gives that line;
    /// `None` when all bytes are taken and the line has not ended.
    pub fn next_line(&mut self, input: &mut &[u8]) -> Option<Line> {
        while let Some((&byte, rest)) = input.split_first() {
            *input = rest;
            match self.data(byte) {
                Some(b'\n') => return Some(self.end()),
                Some(byte) => self.keep(byte),
                None => {}
            }
        }
        None
    }

    /// The byte of text that this byte of the stream stands for, if any.
    fn data(&mut self, byte: u8) -> Option<u8> {
        let (next, data) = match (self.telnet, byte) {
            (Telnet::Data, IAC) => (Telnet::Command, None),
            // IAC IAC stands for the byte itself.
            (Telnet::Data, _) | (Telnet::Command, IAC) => (Telnet::Data, Some(byte)),
            (Telnet::Command, SB) => (Telnet::Subnegotiation, None),
            (Telnet::Command, WILL..=DONT) => (Telnet::Option, None),
            (Telnet::Command, _) | (Telnet::Option, _) => (Telnet::Data, None),
            (Telnet::Subnegotiation, IAC) => (Telnet::SubnegotiationCommand, None),
            (Telnet::SubnegotiationCommand, SE) => (Telnet::Data, None),
            (Telnet::Subnegotiation | Telnet::SubnegotiationCommand, _) => {
                (Telnet::Subnegotiation, None)
            }
        };
        self.telnet = next;
        data
    }

    fn keep(&mut self, byte: u8) {
        self.length = self.length.saturating_add(1);
        // The end of the line needs one byte of the limit.
        if self.length < LINE_BYTES {
            self.line.push(byte);
        }
    }

    fn end(&mut self) -> Line {
        let fits = self.length < LINE_BYTES;
        self.length = 0;
        let mut line = std::mem::take(&mut self.line);
        if fits {
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            return Line::Whole(line);
        }
        line.truncate(ECHO_CHARS);
        Line::TooLong(line)
    }
}
