//! Parses the simplest command lines in one pass, without clap.
//!
//! It knows less than the full parser and never disagrees with it: each option at most once and spelled out,
//! values apart from their options, one path. For any other line it gives no answer. The tests hold both
//! parsers to the same lines.

use std::ffi::OsString;
use std::path::PathBuf;

use super::{
    Acquire, Clean, Command, HolderArguments, Lock, Named, Output, Patience, Release, Run, Stale,
    Status, Taking, Touch, Try, Wait, When, exit_code, mode, pid, seconds, slots,
};
use crate::config::Slots;
use crate::limits::MODE;

/// The options of a line, as text.
#[derive(Default)]
struct Line<'a> {
    path: Option<&'a OsString>,
    values: [Option<&'a str>; VALUED.len()],
    flags: [bool; FLAGS.len()],
    command: Option<&'a [OsString]>,
}

/// What plain words behind the path are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    Command,
    Nothing,
}

const VALUED: [&str; 8] = [
    "--slots",
    "--stale",
    "--stale-when",
    "--timeout",
    "--pid",
    "--tag",
    "--mode",
    "--conflict-exit-code",
];
const FLAGS: [&str; 6] = ["--json", "--quiet", "--force", "--persist", "--nonblock", "--shared"];

/// Which of [`VALUED`] each command has besides the first three, which all of them have.
const TIMEOUT: usize = 3;
const PID: usize = 4;
const TAG: usize = 5;
const FILE_MODE: usize = 6;
const FORCE: usize = 2;
const PERSIST: usize = 3;
const NONBLOCK: usize = 4;
const SHARED: usize = 5;
const CONFLICT: usize = 7;

/// Reads a line, the program's name first.
pub(super) fn read(words: &[OsString]) -> Option<Command> {
    let [_, command, rest @ ..] = words else { return None };
    let command = command.to_str()?;
    let run = command == "run";
    let line = Line::sort(rest, if run { Rest::Command } else { Rest::Nothing })?;
    let allowed: &[usize] = match command {
        "try" | "try-acquire" => &[PID, TAG, FILE_MODE],
        "acquire" => &[TIMEOUT, PID, TAG, FILE_MODE],
        "release" | "touch" => &[PID],
        "run" => &[TIMEOUT, TAG, FILE_MODE, CONFLICT],
        "wait" => &[TIMEOUT],
        "status" | "clean" => &[],
        _ => return None,
    };
    let fits = |index: &usize| *index < TIMEOUT || allowed.contains(index);
    let values_fit = (0..VALUED.len()).filter(|index| line.value(*index).is_some());
    let force_fits = command == "release" || !line.flag(FORCE);
    let takes = matches!(command, "try" | "try-acquire" | "acquire") && line.value(PID).is_none();
    let persist_fits = takes || !line.flag(PERSIST);
    let at_once = line.flag(NONBLOCK) && line.value(TIMEOUT).is_none();
    let run_fits = run && (at_once || !line.flag(NONBLOCK));
    let run_fits = run_fits || !line.flag(NONBLOCK);
    let takes_or_runs = run || matches!(command, "try" | "try-acquire" | "acquire");
    let run_fits = run_fits && (takes_or_runs || !line.flag(SHARED));
    let command_fits = line.command.is_some_and(|words| !words.is_empty()) == run && run_fits;
    if !(values_fit.clone().all(|index| fits(&index)) && force_fits && persist_fits && command_fits)
    {
        return None;
    }
    line.into_command(command)
}

impl<'a> Line<'a> {
    fn sort(words: &'a [OsString], plain: Rest) -> Option<Self> {
        let mut line = Self::default();
        let mut rest = words.iter();
        loop {
            let here = rest.as_slice();
            let Some(word) = rest.next() else { break };
            // What is no text, or empty, is left to the grammar.
            let text = word.to_str().filter(|text| !text.is_empty())?;
            if text == "--" {
                line.command = Some(rest.as_slice());
                return Some(line);
            }
            let long = match text {
                "-q" => "--quiet",
                "-f" => "--force",
                "-n" => "--nonblock",
                "-s" => "--shared",
                "-w" => "--timeout",
                "-E" => "--conflict-exit-code",
                other => other,
            };
            if let Some(index) = VALUED.iter().position(|option| *option == long) {
                let value = rest.next()?.to_str().filter(|value| !value.starts_with('-'))?;
                let place = line.values.get_mut(index)?;
                if place.replace(value).is_some() {
                    return None;
                }
            } else if let Some(index) = FLAGS.iter().position(|option| *option == long) {
                let place = line.flags.get_mut(index)?;
                if std::mem::replace(place, true) {
                    return None;
                }
            } else if plain == Rest::Command && line.path.is_some() && !text.starts_with('-') {
                line.command = Some(here);
                return Some(line);
            } else if text.starts_with('-') || line.path.replace(word).is_some() {
                return None;
            }
        }
        Some(line)
    }

    fn value(&self, index: usize) -> Option<&'a str> {
        self.values.get(index).copied().flatten()
    }

    fn flag(&self, index: usize) -> bool {
        self.flags.get(index).copied().unwrap_or(false)
    }

    fn into_command(self, command: &str) -> Option<Command> {
        let lock = self.lock()?;
        let named = Named { pid: some(self.value(PID), pid)? };
        let holder = HolderArguments { named, persist: self.flag(PERSIST) };
        let patience = Patience { timeout: some(self.value(TIMEOUT), seconds)? };
        let bits = some(self.value(FILE_MODE), mode)?.unwrap_or(MODE);
        let taking = Taking {
            tag: self.value(TAG).map(str::to_owned),
            shared: self.flag(SHARED),
            mode: bits,
        };
        Some(match command {
            "try" | "try-acquire" => Command::Try(Try { lock, holder, taking }),
            "acquire" => Command::Acquire(Acquire { lock, patience, holder, taking }),
            "release" => Command::Release(Release {
                lock,
                holder: named,
                force: self.flag(FORCE),
                slot: None,
            }),
            "touch" => Command::Touch(Touch { lock, holder: named }),
            "status" => Command::Status(Status { lock }),
            "wait" => Command::Wait(Wait { lock, patience, all: false }),
            "clean" => Command::Clean(Clean { lock }),
            "run" => Command::Run(Run {
                lock,
                patience,
                taking,
                nonblock: self.flag(NONBLOCK),
                conflict_exit_code: some(self.value(CONFLICT), exit_code)?,
                with: Vec::new(),
                verbose: false,
                bg: false,
                line: None,
                command: self.command?.to_vec(),
            }),
            _ => return None,
        })
    }

    fn lock(&self) -> Option<Lock> {
        let [count, stale, when, ..] = self.values;
        let stale_when = match when {
            None | Some("dead") => When::Dead,
            Some("host") => When::Host,
            Some("age") => When::Age,
            Some(_) => return None,
        };
        let [json, quiet, ..] = self.flags;
        Some(Lock {
            path: PathBuf::from(self.path?),
            slots: some(count, slots)?.unwrap_or(Slots::ONE),
            stale: Stale { stale: some(stale, seconds)?, stale_when },
            output: Output { json, quiet },
        })
    }
}

/// The value of an option, if it is there; no answer at all if it makes no sense.
fn some<T>(value: Option<&str>, read: fn(&str) -> Result<T, String>) -> Option<Option<T>> {
    value.map(read).transpose().ok()
}
