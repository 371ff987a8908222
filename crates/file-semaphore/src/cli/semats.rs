//! `semats`: the command line of the original TypeScript tool for the same semaphores.
//!
//! As in the original, a lock names the short-lived `semats` process. So it records only the process number,
//! and counts as held until it is old.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use pidlockfile::{Pid, shown};
use wrapcmd::exit::End;
use wrapcmd::{Value, print};

use super::outcome::{Failure, exit, info_members, lines};
use super::{actions, complain, signals};
use crate::config::Config;
use crate::error::{Error, InTheWay};
use crate::record::{Holder, LockInfo, integer};
use crate::semaphore::Releaser;
use crate::semaphore::files::Claimant;
use crate::semaphore::{Guard, Patience, Semaphore, Sharing, SlotStatus};
use crate::stale::StaleRule;

const USAGE: &str = "\
Usage: semats <command> [options]

Commands:
  acquire <path>      Wait until the lock is free and take it
  try-acquire <path>  Take the lock if it is free
  release <path>      Release the lock
  status <path>       Show who holds the lock
  clean <path>        Remove the lock if it is stale, and old temporary files

Options:
  -t, --tag <text>      The purpose of the lock
      --timeout <ms>    Give up waiting after this many milliseconds
  -f, --force           Release the lock even if another process holds it
  -j, --json            Print JSON
  -v, --verbose         Print each step to standard error
  -h, --help            Show this help
      --version         Show the version

Examples:
  semats acquire build.lock --tag ci --timeout 30000
  semats status build.lock --json

Exit status: 0 done, 1 any failure. See semats(1).
";

const FAILED: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Acquire,
    TryAcquire,
    Release,
    Status,
    Clean,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    Json,
}

#[derive(Debug, PartialEq, Eq)]
struct Request {
    command: Command,
    path: PathBuf,
    tag: Option<String>,
    timeout: Option<Duration>,
    force: bool,
    form: Form,
    verbose: bool,
}

/// What a command line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Help,
    Version,
    NoCommand,
    UnknownCommand(String),
    Wrong(String),
    For(Request),
}

/// The whole program: arguments to exit code.
pub(crate) fn main(words: Vec<OsString>) -> End {
    End::Code(match ask(words) {
        Asked::Help => say(USAGE),
        Asked::Version => say(concat!("semats ", env!("CARGO_PKG_VERSION"), "\n")),
        Asked::NoCommand => {
            say(USAGE);
            FAILED
        }
        Asked::UnknownCommand(word) => {
            complain(&format!("Error: Unknown command: {}\n", word));
            say(USAGE);
            FAILED
        }
        Asked::Wrong(message) => {
            complain(&format!("Error: {}\n", super::outcome::printable(&message)));
            FAILED
        }
        Asked::For(request) => return perform(&request),
    })
}

/// Sorts the words of a command line. Pure. Options stand before or after the path, `--option
/// value` or `--option=value`; behind `--` there are none.
fn ask(words: Vec<OsString>) -> Asked {
    let mut sorted = Sorted::default();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match sorted.take(word, &mut words) {
            Ok(()) if sorted.help => return Asked::Help,
            Ok(()) if sorted.version => return Asked::Version,
            Ok(()) => {}
            Err(message) => return Asked::Wrong(message),
        }
    }
    sorted.asked()
}

#[derive(Default)]
struct Sorted {
    plain: Vec<OsString>,
    tag: Option<String>,
    timeout: Option<Duration>,
    force: bool,
    json: bool,
    verbose: bool,
    help: bool,
    version: bool,
    only_plain: bool,
}

impl Sorted {
    fn take(
        &mut self,
        word: OsString,
        rest: &mut impl Iterator<Item = OsString>,
    ) -> Result<(), String> {
        let text = word.to_string_lossy().into_owned();
        if self.only_plain || !text.starts_with('-') || text == "-" {
            self.plain.push(word);
            return Ok(());
        }
        let (option, value) = match text.split_once('=') {
            Some((option, value)) if option.starts_with("--") => (option, Some(value.to_owned())),
            _ => (text.as_str(), None),
        };
        let mut value = || {
            let next = || rest.next().map(|word| word.to_string_lossy().into_owned());
            value.clone().or_else(next).ok_or_else(|| format!("{option} needs a value"))
        };
        match option {
            "-t" | "--tag" => self.tag = Some(value()?),
            "--timeout" => self.timeout = Some(milliseconds(&value()?)?),
            "-f" | "--force" => self.force = true,
            "-j" | "--json" => self.json = true,
            "-v" | "--verbose" => self.verbose = true,
            "-h" | "--help" => self.help = true,
            "--version" => self.version = true,
            "--" => self.only_plain = true,
            _ => return Err(format!("Unknown option: {option}. See semats --help.")),
        }
        Ok(())
    }

    fn asked(self) -> Asked {
        let mut plain = self.plain.into_iter();
        let Some(command) = plain.next() else { return Asked::NoCommand };
        let path = plain.next().filter(|path| !path.is_empty());
        let known = known_command(&command);
        let word = shown(&command);
        let Some(path) = path else {
            return match known {
                Some(_) => Asked::Wrong("Lock path is required".to_owned()),
                None => Asked::UnknownCommand(word),
            };
        };
        if let Some(extra) = plain.next() {
            return Asked::Wrong(format!("Unexpected argument: {}", shown(&extra)));
        }
        let Some(command) = known else { return Asked::UnknownCommand(word) };
        let form = if self.json { Form::Json } else { Form::Text };
        Asked::For(Request {
            command,
            path: path.into(),
            tag: self.tag,
            timeout: self.timeout,
            force: self.force,
            form,
            verbose: self.verbose,
        })
    }
}

fn known_command(word: &OsStr) -> Option<Command> {
    Some(match word.to_str()? {
        "acquire" => Command::Acquire,
        "try-acquire" => Command::TryAcquire,
        "release" => Command::Release,
        "status" => Command::Status,
        "clean" => Command::Clean,
        _ => return None,
    })
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    let number = integer(text).ok_or_else(|| format!("not a number of milliseconds: {text}"))?;
    Ok(Duration::from_millis(number))
}

fn perform(request: &Request) -> End {
    if request.verbose {
        complain(&format!("[INFO] {} {}\n", doing(request.command), shown(&request.path)));
    }
    let config = Config { stale_rule: StaleRule::DeadAndOld, ..Config::default() };
    let semaphore = match Semaphore::with_config(&request.path, config) {
        Ok(semaphore) => semaphore,
        Err(error) => {
            // The original says this in prose, before it looks at --json.
            let in_prose = request.form == Form::Text || request.command == Command::TryAcquire;
            if in_prose {
                complain(&format!("Error: {}\n", super::outcome::printable(&error.to_string())));
            }
            return End::Code(failed(request, &error));
        }
    };
    match answer(request, &semaphore) {
        Ok(members) => {
            let said = say(&form(request.form, members));
            End::Code(match request.command {
                // The deed counts: a lock that was taken must not be reported as a failure.
                Command::Acquire | Command::TryAcquire | Command::Release => exit::DONE,
                Command::Status | Command::Clean => said,
            })
        }
        Err(Error::Interrupted { signal }) => End::Signal(signal),
        Err(error) => End::Code(failed(request, &error)),
    }
}

/// Writes to standard output, and tells the exit code that is left of success.
fn say(text: &str) -> u8 {
    if actions::written("semats", print(text)) == exit::DONE { exit::DONE } else { FAILED }
}

fn doing(command: Command) -> &'static str {
    match command {
        Command::Acquire => "Acquiring lock:",
        Command::TryAcquire => "Trying to acquire lock:",
        Command::Release => "Releasing lock:",
        Command::Status => "Looking at lock:",
        Command::Clean => "Cleaning stale locks:",
    }
}

type Members = Vec<(&'static str, Value)>;

fn answer(request: &Request, semaphore: &Semaphore) -> Result<Members, Error> {
    let own = Holder::bare(crate::sys::number(Pid::this()));
    match request.command {
        Command::TryAcquire => {
            signals::hold_off();
            let tag = request.tag.as_deref();
            let mut claimant = Claimant { tag, holder: &mut || Ok(own.clone()) };
            Ok(acquired(semaphore.try_acquire_as(&mut claimant, Sharing::Alone)?))
        }
        Command::Acquire => {
            let tag = request.tag.as_deref();
            let wish = (tag, Sharing::Alone);
            let patience = Patience { timeout: request.timeout, ..Patience::default() };
            actions::wait_for(semaphore, wish, &own, patience).map(acquired)
        }
        Command::Release => {
            signals::hold_off();
            let releaser = if request.force { Releaser::Anyone } else { Releaser::Holder(&own) };
            semaphore.release_for(releaser)?;
            Ok(vec![("status", "released".into())])
        }
        Command::Status => status(semaphore, &own),
        Command::Clean => {
            let swept = semaphore.clean()?;
            Ok(vec![("cleaned", Value::Bool(swept.locks + swept.temporaries > 0))])
        }
    }
}

fn acquired(guard: Guard) -> Members {
    let mut members = vec![("status", "acquired".into())];
    members.extend(info_members(&guard.keep()));
    members
}

fn status(semaphore: &Semaphore, own: &Holder) -> Result<Members, Error> {
    let slots = semaphore.status()?;
    let (info, stale): (Option<LockInfo>, bool) = match slots.into_iter().next() {
        None | Some(SlotStatus::Free) => (None, false),
        Some(SlotStatus::Obstacle) => return Err(semaphore.files.obstacle()),
        Some(SlotStatus::Held(held)) => match held.info {
            Some(Ok(info)) => (Some(info), held.stale),
            Some(Err(problem)) => {
                return Err(Error::Parse { path: semaphore.path(), problem });
            }
            None => return Err(InTheWay::default().refused(semaphore.path())),
        },
    };
    let owned = info.as_ref().is_some_and(|info| info.pid() == own.pid());
    let object = info.as_ref().map(|info| Value::Object(info_members(info)));
    Ok(vec![
        ("locked", Value::Bool(info.is_some())),
        ("info", object.unwrap_or(Value::Null)),
        ("isStale", Value::Bool(stale)),
        ("isOwnedByCurrentProcess", Value::Bool(owned)),
    ])
}

/// A failure is an answer on standard output for `try-acquire`, an error for the others.
fn failed(request: &Request, error: &Error) -> u8 {
    let text = form(request.form, Failure { error }.members());
    match request.command {
        Command::TryAcquire => {
            say(&text);
        }
        Command::Acquire | Command::Release | Command::Status | Command::Clean => complain(&text),
    }
    FAILED
}

fn form(form: Form, members: Members) -> String {
    match form {
        Form::Json => Value::Object(members).indented() + "\n",
        Form::Text => {
            let null = |value| if value == Value::Null { "null".into() } else { value };
            let members: Members =
                members.into_iter().map(|(key, value)| (key, null(value))).collect();
            lines(&members)
        }
    }
}

#[cfg(test)]
#[path = "semats_tests.rs"]
mod tests;
