//! `semats`: the command line of the original TypeScript tool for the same semaphores.
//!
//! As in the original, a lock names the short-lived `semats` process. So it records only the process number,
//! and counts as held until it is old.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use pidlockfile::{Pid, shown};
use wrapcmd::exit::End;
use wrapcmd::{Form, Value, print};

use super::outcome::{Members, complain, exit, info_members, lines, printable, written};
use super::{platform, take_for};
use crate::error::{Error, InTheWay};
use crate::record::{Holder, LockInfo, integer};
use crate::semaphore::{Claim, Config, Guard, Patience, Releaser, Semaphore, Sharing, SlotStatus};
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

/// The commands, and what `--verbose` says of each.
const COMMANDS: [(&str, SematsCommand, &str); 5] = [
    ("acquire", SematsCommand::Acquire, "Acquiring lock:"),
    ("try-acquire", SematsCommand::TryAcquire, "Trying to acquire lock:"),
    ("release", SematsCommand::Release, "Releasing lock:"),
    ("status", SematsCommand::Status, "Looking at lock:"),
    ("clean", SematsCommand::Clean, "Cleaning stale locks:"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SematsCommand {
    Acquire,
    TryAcquire,
    Release,
    Status,
    Clean,
}

#[derive(Debug, PartialEq, Eq)]
struct SematsRequest {
    command: SematsCommand,
    path: PathBuf,
    tag: Option<String>,
    timeout: Option<Duration>,
    force: bool,
    form: Form,
    verbose: bool,
}

/// What a command line says that asks for nothing of a lock.
#[derive(Debug, PartialEq, Eq)]
enum Other {
    Help,
    Version,
    NoCommand,
    UnknownCommand(String),
    Wrong(String),
}

/// The whole program: arguments to exit code.
pub(crate) fn main(words: Vec<OsString>) -> End {
    End::Code(match ask(words) {
        Ok(request) => return perform(&request),
        Err(Other::Help) => say(USAGE),
        Err(Other::Version) => say(concat!("semats ", env!("CARGO_PKG_VERSION"), "\n")),
        Err(Other::NoCommand) => {
            say(USAGE);
            FAILED
        }
        Err(Other::UnknownCommand(word)) => {
            complain(&format!("Error: Unknown command: {word}\n"));
            say(USAGE);
            FAILED
        }
        Err(Other::Wrong(message)) => {
            complain(&format!("Error: {}\n", printable(&message)));
            FAILED
        }
    })
}

/// Sorts the words of a command line. Options stand before or after the path, `--option value` or `--option=value`; behind
/// `--` there are none.
fn ask(words: Vec<OsString>) -> Result<SematsRequest, Other> {
    let (mut tag, mut timeout, mut plain) = (None, None, Vec::new());
    let (mut force, mut form, mut verbose) = (false, Form::Text, false);
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy().into_owned();
        if !text.starts_with('-') || text == "-" {
            plain.push(word);
            continue;
        }
        let (option, joined) = match text.split_once('=') {
            Some((option, value)) if option.starts_with("--") => (option, Some(value.to_owned())),
            _ => (text.as_str(), None),
        };
        let mut value = || {
            let next = || words.next().map(|word| word.to_string_lossy().into_owned());
            let value = joined.clone().or_else(next);
            value.ok_or_else(|| Other::Wrong(format!("{option} needs a value")))
        };
        match option {
            "-t" | "--tag" => tag = Some(value()?),
            "--timeout" => timeout = Some(milliseconds(&value()?).map_err(Other::Wrong)?),
            "-f" | "--force" => force = true,
            "-j" | "--json" => form = Form::Json,
            "-v" | "--verbose" => verbose = true,
            "-h" | "--help" => return Err(Other::Help),
            "--version" => return Err(Other::Version),
            "--" => plain.extend(words.by_ref()),
            _ => {
                let message = format!("Unknown option: {option}. See semats --help.");
                return Err(Other::Wrong(message));
            }
        }
    }
    let mut plain = plain.into_iter();
    let word = plain.next().ok_or(Other::NoCommand)?;
    let command = COMMANDS.iter().find(|(name, ..)| word == *name).map(|(_, command, _)| *command);
    let command = command.ok_or_else(|| Other::UnknownCommand(shown(&word)));
    let Some(path) = plain.next().filter(|path| !path.is_empty()) else {
        return command.and_then(|_| Err(Other::Wrong("Lock path is required".into())));
    };
    if let Some(extra) = plain.next() {
        return Err(Other::Wrong(format!("Unexpected argument: {}", shown(&extra))));
    }
    Ok(SematsRequest { command: command?, path: path.into(), tag, timeout, force, form, verbose })
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    let number = integer(text).ok_or_else(|| format!("not a number of milliseconds: {text}"))?;
    Ok(Duration::from_millis(number))
}

fn perform(request: &SematsRequest) -> End {
    if request.verbose {
        let said = COMMANDS.iter().find(|(_, command, _)| *command == request.command);
        let said = said.map_or("", |(.., said)| said);
        complain(&format!("[INFO] {said} {}\n", shown(&request.path)));
    }
    let config = Config { stale_rule: StaleRule::DeadAndOld, ..Config::default() };
    let semaphore = match Semaphore::with_config(&request.path, config) {
        Ok(semaphore) => semaphore,
        Err(error) => {
            // The original says this in prose, before it looks at --json.
            let in_prose =
                request.form == Form::Text || request.command == SematsCommand::TryAcquire;
            if in_prose {
                complain(&format!("Error: {}\n", printable(&error.to_string())));
            }
            return End::Code(failed(request, &error));
        }
    };
    match answer(request, &semaphore) {
        Ok(members) => {
            let said = say(&form(request.form, members));
            End::Code(match request.command {
                // The deed counts: a lock that was taken must not be reported as a failure.
                SematsCommand::Acquire | SematsCommand::TryAcquire | SematsCommand::Release => {
                    exit::DONE
                }
                SematsCommand::Status | SematsCommand::Clean => said,
            })
        }
        Err(Error::Interrupted { signal }) => End::Signal(signal),
        Err(error) => End::Code(failed(request, &error)),
    }
}

/// Writes to standard output. Returns the exit code that is left of success.
fn say(text: &str) -> u8 {
    if written("semats", print(text)) == exit::DONE { exit::DONE } else { FAILED }
}

fn answer(request: &SematsRequest, semaphore: &Semaphore) -> Result<Members, Error> {
    let own = Holder::bare(crate::sys::number(Pid::this()));
    let take = |patience| {
        let claim = Claim { tag: request.tag.as_deref(), sharing: Sharing::Alone, patience };
        take_for(semaphore, &own, claim).map(acquired)
    };
    match request.command {
        SematsCommand::TryAcquire => take(Patience::TRY),
        SematsCommand::Acquire => {
            take(Patience { timeout: request.timeout, ..Patience::default() })
        }
        SematsCommand::Release => {
            platform::hold_off();
            let releaser = if request.force { Releaser::Anyone } else { Releaser::Holder(&own) };
            semaphore.release_for(releaser)?;
            Ok(vec![("status", "released".into())])
        }
        SematsCommand::Status => status(semaphore, &own),
        SematsCommand::Clean => {
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
fn failed(request: &SematsRequest, error: &Error) -> u8 {
    let text = form(request.form, error.members(error.reason().to_string()));
    match request.command {
        SematsCommand::TryAcquire => {
            say(&text);
        }
        SematsCommand::Acquire
        | SematsCommand::Release
        | SematsCommand::Status
        | SematsCommand::Clean => complain(&text),
    }
    FAILED
}

fn form(form: Form, members: Members) -> String {
    match form {
        Form::Json => Value::Object(members).indented() + "\n",
        Form::Text | Form::Quiet => {
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
