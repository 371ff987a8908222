//! Prints to standard output and standard error, as text or JSON.

use std::cell::Cell as Slot;
use std::io::{self, IsTerminal, Write};

use wrapcmd::{Form, StartError, Value};

use super::outcome::{Failure, exit};
use super::row::{Row, plain, printable};

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
