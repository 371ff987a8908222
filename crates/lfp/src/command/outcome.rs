//! How a command ends: its exit codes, its failures with their words, each kind in one place, and what it prints: answers on
//! standard output as text or JSON, complaints on standard error.

use std::cell::Cell as Slot;
use std::fmt;
use std::io::{self, IsTerminal, Write};

use nix::sys::signal::Signal;
use pidlockfile::Pid;
use ttylock::Scheme;
use wrapcmd::usage::in_one_line;
use wrapcmd::{Form, StartError, Value};

use super::row::{Row, plain, printable};

/// The exit codes: those of sysexits(3) where they fit. [`wrapcmd::exit`] has those that shells use too.
pub(super) mod exit {
    /// Done.
    pub(crate) const DONE: u8 = 0;
    /// Somebody else has it, unless `-E` says otherwise.
    pub(crate) const BUSY: u8 = 1;
    /// `EX_USAGE`
    pub(crate) const USAGE: u8 = 64;
    /// `EX_NOINPUT`: there is no such device.
    pub(crate) const NO_DEVICE: u8 = 66;
    /// `EX_UNAVAILABLE`
    pub(crate) const UNREACHABLE: u8 = 69;
    /// `EX_OSERR`
    pub(crate) const SYSTEM: u8 = 71;
    /// `EX_IOERR`
    pub(crate) const OUTPUT: u8 = 74;
    /// `EX_TEMPFAIL`
    pub(crate) const TIMED_OUT: u8 = 75;
    /// `EX_NOPERM`
    pub(crate) const NOT_PERMITTED: u8 = 77;
}

/// Why it was not done.
#[derive(Debug, Default)]
pub(super) struct Failure {
    /// The device it is about, as `/dev/NAME`.
    pub(super) device: Option<String>,
    /// One word for JSON.
    pub(super) word: &'static str,
    /// The exit code; none is the one for a device that another process has.
    code: Option<u8>,
    /// What is wrong, for people.
    text: String,
    /// The holders in the way, as far as can be seen.
    pub(super) holders: Vec<Row>,
    /// Why, as far as is known: a line for each.
    reasons: Vec<String>,
    /// The signal that came first.
    pub(super) signal: Option<Signal>,
}

const ENDS_WITH_ITS_PROCESS: &str =
    "only the holder can end flock(2), by closing the port: there is no lock file to remove";

impl Failure {
    fn new(word: &'static str, code: impl Into<Option<u8>>, text: impl Into<String>) -> Self {
        Self { word, code: code.into(), text: text.into(), ..Self::default() }
    }

    fn with(self, holders: Vec<Row>, reasons: Vec<String>) -> Self {
        let reasons = holders.iter().map(Row::sentence).chain(reasons).collect();
        Self { holders, reasons, ..self }
    }

    pub(super) fn about(self, device: &str) -> Self {
        Self { device: Some(format!("/dev/{device}")), ..self }
    }

    /// Somebody else has it, or this process, which asked for it again.
    pub(super) fn busy(holders: Vec<Row>, pid: Pid) -> Self {
        let is_own = holders.iter().any(|row| row.is_lock_of(pid));
        let text = if is_own { "busy: locked already for the same process" } else { "busy" };
        Self::new("busy", None, text).with(holders, Vec::new())
    }

    /// The holder has another number here, or none: the number that was given belongs to another process.
    pub(super) fn held_elsewhere(holders: Vec<Row>) -> Self {
        let text = "not unlocked: the holder is in another container";
        let way_out =
            "the process number counts there: unlock the port there, or end the holder".to_owned();
        Self::new("busy", None, text).with(holders, vec![way_out])
    }

    /// There is no lock, or another process has it. Or this process has it, and another one is changing its file.
    pub(super) fn not_held(holders: Vec<Row>, pid: Pid) -> Self {
        if holders.iter().any(|row| row.is_lock_of(pid) && row.holder.scheme.file().is_some()) {
            let text = "another process is changing the lock: try again";
            return Self::new("busy", None, text).with(holders, Vec::new());
        }
        let mut text = "not locked, or locked by another process".to_owned();
        let mut reasons: Vec<String> = holders.iter().map(Row::sentence).collect();
        let is_flock = |row: &Row| row.holder.scheme == Scheme::Flock;
        if !holders.is_empty() && holders.iter().all(is_flock) {
            // Locked, but without a lock file.
            text = reasons.remove(0);
            reasons.push(ENDS_WITH_ITS_PROCESS.to_owned());
        }
        Self { holders, reasons, ..Self::new("not-held", None, text) }
    }

    /// Busy to the end of the time, or whatever else kept us from the answer.
    pub(super) fn timed_out(holders: Vec<Row>, reasons: Vec<String>) -> Self {
        let text = if holders.is_empty() { "time is up" } else { "still busy, time is up" };
        Self::new("timed-out", exit::TIMED_OUT, text).with(holders, reasons)
    }

    pub(super) fn not_permitted(reasons: Vec<String>) -> Self {
        let text = "not permitted";
        Self::new("not-permitted", exit::NOT_PERMITTED, text).with(Vec::new(), reasons)
    }

    /// The members of JSON that say what is wrong: its word, and a line with what and why.
    pub(super) fn members(&self) -> [(&'static str, Value); 2] {
        let line = printable(&in_one_line(&self.to_string()));
        [("error", self.word.into()), ("message", line.as_str().into())]
    }

    /// Stale locks were left.
    pub(super) fn left() -> Self {
        let text = "some stale locks could not be removed";
        Self::new("not-permitted", exit::NOT_PERMITTED, text)
    }

    /// A service is there, and says nothing; or none is there, or what is there is none.
    pub(super) fn unreachable(text: &str, reasons: Vec<String>) -> Self {
        Self::new("unreachable", exit::UNREACHABLE, text).with(Vec::new(), reasons)
    }

    /// The name is that of no device, and perhaps near to that of another one.
    pub(super) fn no_device(other: Option<String>) -> Self {
        let tip = other.map_or_else(String::new, |other| format!("; did you mean /dev/{other}?"));
        let text = format!("there is no such device{tip}");
        Self::new("no-such-device", exit::NO_DEVICE, text)
    }

    /// The same for a command that has the option.
    pub(super) fn or_absent(self) -> Self {
        self.with(Vec::new(), vec!["--absent locks a device that is away and will come".to_owned()])
    }

    pub(super) fn interrupted(signal: Signal) -> Self {
        let code = wrapcmd::exit::by_signal(signal as i32);
        let failure = Self::new("interrupted", code, format!("interrupted by {signal}"));
        Self { signal: Some(signal), ..failure }
    }

    /// The system would not.
    pub(super) fn system(text: impl Into<String>) -> Self {
        Self::new("system-error", exit::SYSTEM, text)
    }

    /// What was typed makes no sense.
    pub(super) fn usage(text: String) -> Self {
        Self::new("usage", exit::USAGE, text)
    }

    /// The command could not be executed.
    pub(super) fn not_started(error: StartError) -> Self {
        let word = if error.is_not_found() { "not-found" } else { "not-executable" };
        Self::new(word, error.code().unwrap_or(exit::SYSTEM), error.to_string())
    }

    pub(super) fn code(&self, busy: u8) -> u8 {
        self.code.unwrap_or(busy)
    }

    /// Whether somebody has the device, or nobody: the exit code alone may say that.
    pub(super) fn is_about_holders(&self) -> bool {
        self.code.is_none_or(|code| code == exit::TIMED_OUT)
    }
}

/// The lines for people: what is wrong, and indented below it why.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(device) = &self.device {
            write!(f, "{device}: ")?;
        }
        f.write_str(&self.text)?;
        self.reasons.iter().try_for_each(|reason| write!(f, "\n  {reason}"))
    }
}

/// Where answers go. Text goes to standard output, complaints to standard error; JSON, answers
/// and failures alike, to standard output.
#[derive(Debug)]
pub(super) struct Output {
    form: Form,
    lost: Slot<bool>,
}

impl Output {
    pub(super) fn new(form: Form) -> Self {
        Self { form, lost: Slot::new(false) }
    }

    pub(super) fn form(&self) -> Form {
        self.form
    }

    /// Prints an answer in the form that was asked for.
    pub(super) fn answer(&self, text: impl FnOnce() -> String, json: impl FnOnce() -> Value) {
        match self.form {
            Form::Text if shows_styles() => self.print(&text()),
            Form::Text => self.print(&plain(&text())),
            Form::Json => self.print(&(json().compact() + "\n")),
            Form::Quiet => {}
        }
    }

    /// Before an answer that takes the last one's place: an empty screen, if it is one.
    pub(super) fn begin_anew(&self) {
        /// Home, and everything after it erased (ECMA-48: CUP, ED).
        const CLEAR: &str = "\x1b[H\x1b[J";
        if self.form == Form::Text && io::stdout().is_terminal() {
            self.print(CLEAR);
        }
    }

    /// Prints text, whatever was asked for.
    pub(super) fn print(&self, text: &str) {
        if let Err(error) = wrapcmd::print(text) {
            self.lost.set(true);
            warn(&format!("standard output: {error}"));
        }
    }

    /// Says what else people may want to know of what was done.
    pub(super) fn remark(&self, text: &str) {
        match self.form {
            Form::Text => warn(text),
            Form::Json | Form::Quiet => {}
        }
    }

    /// Whether somebody sits before the terminal and reads text.
    pub(super) fn has_people(&self) -> bool {
        self.form == Form::Text && io::stderr().is_terminal()
    }

    /// Says that it was not done.
    pub(super) fn complain(&self, failure: &Failure) {
        match self.form {
            Form::Quiet if failure.is_about_holders() => {}
            Form::Text | Form::Quiet => warn(&failure.to_string()),
            Form::Json => {
                let holders = failure.holders.iter().map(Row::to_json).collect();
                let mut members = vec![
                    ("outcome", failure.word.into()),
                    ("device", failure.device.as_deref().map_or(Value::Null, Value::from)),
                ];
                members.extend(failure.members());
                members.push(("holders", Value::List(holders)));
                self.print(&(Value::Object(members).compact() + "\n"));
            }
        }
    }

    /// The process that stood by did not become the command: the exit code that says so.
    pub(super) fn not_started(&self, error: StartError) -> u8 {
        // A caller that never gave the word has said why.
        let Some(code) = error.code() else { return exit::SYSTEM };
        self.complain(&Failure::not_started(error));
        code
    }

    /// Whether something could not be written: a full disk, say.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.get()
    }
}

/// Lines on standard error. Where they cannot be written, the exit code says enough.
pub(super) fn warn(text: &str) {
    let lines: Vec<String> = text.lines().map(printable).collect();
    let _ = io::stderr().write_all(format!("lfp: {}\n", lines.join("\n")).as_bytes());
}

/// Whether standard output is a terminal that has styles, and whose user wants them (no-color.org).
fn shows_styles() -> bool {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let has_styles = || set("TERM").is_some_and(|term| term != "dumb");
    io::stdout().is_terminal() && has_styles() && set("NO_COLOR").is_none()
}
