//! The words and exit codes of both programs: every outcome as text, JSON and a number. No other file has
//! output keys, failure types or exit codes.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Component, Path};

use pidlockfile::shown;
use wrapcmd::{Value, print};

use crate::error::{Error, PathProblem, is_closed_directory};
use crate::record::LockInfo;
use crate::semaphore::SlotStatus;
use crate::semaphore::cleaning::{Listed, Swept};
use crate::stale::{HeldStatus, Here, Liveness};

/// Exit codes of `sema`, besides those that a shell has too ([`wrapcmd::exit`]).
pub(crate) mod exit {
    /// Done.
    pub(crate) const DONE: u8 = 0;
    /// Held by somebody, timed out, or not held.
    pub(crate) const HELD: u8 = 1;
    /// Bad arguments (sysexits.h, EX_USAGE), as in all our programs.
    pub(crate) const USAGE: u8 = 64;
    /// File or system error.
    pub(crate) const SYSTEM: u8 = 3;
    /// The lock was lost while the command ran.
    pub(crate) const LOST: u8 = 125;
}

/// What a command of `sema` came to.
#[derive(Debug)]
pub(crate) enum Outcome {
    Acquired {
        info: LockInfo,
        slot: Option<usize>,
    },
    Released,
    Renewed,
    Free,
    Status(Vec<SlotStatus>),
    /// By readers, and by nobody alone.
    Shared(Vec<HeldStatus>),
    Listed(Vec<Listed>),
    Cleaned(Swept),
}

impl Outcome {
    /// The exit code. `status` answers in it too: held is 1, as in the original tool. `written` is that of writing the
    /// answer.
    pub(crate) fn exit_code(&self, written: u8) -> u8 {
        match self {
            Self::Status(slots) if slots.contains(&SlotStatus::Obstacle) => exit::SYSTEM,
            Self::Status(slots) if !slots.contains(&SlotStatus::Free) => exit::HELD,
            Self::Shared(_) => exit::HELD,
            // The deed counts: a lock that was taken must not be reported as a failure.
            Self::Acquired { .. } | Self::Released | Self::Renewed => exit::DONE,
            Self::Status(_) | Self::Free | Self::Listed(_) | Self::Cleaned(_) => written,
        }
    }

    /// As one JSON value.
    pub(crate) fn json(&self) -> Value {
        if let Self::Listed(locks) = self {
            return Value::List(locks.iter().map(listed).collect());
        }
        let (mut members, holders) = self.members();
        let holders = holders.map(|all| all.into_iter().map(Value::Object).collect());
        members.extend(holders.map(|all| ("holders", Value::List(all))));
        Value::Object(members)
    }

    /// As lines of text.
    pub(crate) fn text(&self) -> String {
        if let Self::Listed(locks) = self {
            return table(locks);
        }
        let (members, holders) = self.members();
        let holders = holders.into_iter().flatten().map(|members| lines(&members));
        lines(&members) + &holders.collect::<String>()
    }

    /// The members of the whole, and those of each holder where there can be several.
    fn members(&self) -> (Members, Option<Vec<Members>>) {
        let alone = |word: &str| (vec![("status", word.into())], None);
        match self {
            Self::Acquired { info, slot } => {
                let mut members = vec![("status", "acquired".into())];
                members.extend(slot.map(|slot| ("slot", count(slot))));
                members.extend(info_members(info));
                (members, None)
            }
            Self::Released => alone("released"),
            Self::Renewed => alone("renewed"),
            Self::Free => alone("free"),
            Self::Cleaned(swept) => {
                let cleaned = Value::Bool(*swept != Swept::default());
                let [locks, temporaries] = [swept.locks, swept.temporaries].map(count);
                let counts = [("locks", locks), ("temporaries", temporaries)];
                ([("cleaned", cleaned)].into_iter().chain(counts).collect(), None)
            }
            Self::Status(slots) => match slots.as_slice() {
                [slot] => (slot_members(slot), None),
                several => (summary(several), Some(taken(several).collect())),
            },
            Self::Shared(readers) => {
                let summary = vec![("locked", Value::Bool(true)), ("shared", count(readers.len()))];
                (summary, Some(readers.iter().map(held_members).collect()))
            }
            Self::Listed(_) => (Members::new(), None),
        }
    }
}

/// The members of an object of JSON, or lines of text.
pub(crate) type Members = Vec<(&'static str, Value)>;

/// What the lock file says, in the order both programs print it.
pub(crate) fn info_members(info: &LockInfo) -> Members {
    let mut members =
        vec![("pid", Value::Number(info.pid())), ("timestamp", Value::Number(info.timestamp()))];
    members.extend(info.tag().map(|tag| ("tag", tag.into())));
    members
}

/// Members of JSON have the tag even where there is none; lines of text leave it out.
fn held_members(held: &HeldStatus) -> Members {
    let mut members = held.lock_info().map(info_members).unwrap_or_default();
    if held.lock_info().is_some_and(|info| info.tag().is_none()) {
        members.push(("tag", Value::Null));
    }
    let host = held.lock_info().and_then(|info| info.holder().host());
    members.extend(host.map(|host| ("host", host.into())));
    let alive = held.liveness.and_then(Liveness::is_alive);
    members.push(("alive", alive.map_or(Value::Null, Value::Bool)));
    members.push(("stale", Value::Bool(held.stale)));
    members.push(("age", held.age_seconds.map_or(Value::Null, Value::Number)));
    match &held.info {
        Some(Ok(_)) => {}
        Some(Err(problem)) => members.push(("problem", problem.to_string().as_str().into())),
        None => members.push(("problem", "the file may not be read".into())),
    }
    members
}

fn slot_members(slot: &SlotStatus) -> Members {
    match slot {
        SlotStatus::Free => vec![("locked", Value::Bool(false))],
        SlotStatus::Held(held) => {
            let mut members = vec![("locked", Value::Bool(true))];
            members.extend(held_members(held));
            members
        }
        SlotStatus::Obstacle => {
            vec![("locked", Value::Bool(true)), ("problem", "not a lock file".into())]
        }
    }
}

fn summary(slots: &[SlotStatus]) -> Members {
    let held = slots.iter().filter(|slot| **slot != SlotStatus::Free).count();
    vec![
        ("locked", Value::Bool(held == slots.len())),
        ("slots", count(slots.len())),
        ("held", count(held)),
    ]
}

fn taken(slots: &[SlotStatus]) -> impl Iterator<Item = Members> + '_ {
    slots.iter().enumerate().filter(|(_, slot)| **slot != SlotStatus::Free).map(|(index, slot)| {
        let mut members = vec![("slot", count(index.saturating_add(1)))];
        members.extend(slot_members(slot).into_iter().skip(1));
        members
    })
}

fn listed(lock: &Listed) -> Value {
    let mut members = vec![("name", shown(&lock.name).as_str().into())];
    members.extend(held_members(&lock.status));
    members.push(("shared", Value::Bool(lock.shared)));
    Value::Object(members)
}

/// A failure in JSON: `error` and `message` as in all our commands, beside what the original tool has.
pub(crate) fn failed(kind: &str, message: String) -> Members {
    vec![
        ("status", "failed".into()),
        ("type", kind.into()),
        ("error", Value::Text(kind.to_ascii_lowercase())),
        ("message", Value::Text(message)),
    ]
}

/// A failure that is not the answer to a request for a lock, for callers that asked for JSON.
pub(crate) fn fail_in_json(kind: &str, message: &str) {
    written("sema", print(&failure_in_json(kind, message)));
}

pub(crate) fn failure_in_json(kind: &str, message: &str) -> String {
    Value::Object(failed(kind, message.to_owned())).compact() + "\n"
}

/// The exit code of an answer: a full disk, say, is not passed over in silence.
pub(crate) fn written(program: &str, printed: io::Result<()>) -> u8 {
    match printed {
        Ok(()) => exit::DONE,
        Err(error) => {
            complain(&format!("{program}: standard output: {error}\n"));
            exit::SYSTEM
        }
    }
}

/// What [`table`] has in its columns, for a person at a terminal.
pub(crate) const HEADER: &str = "name\tpid\tholder\tlock\tseconds\ttag\n";

/// A line a lock, columns separated by tabs; nothing at all when there is none.
fn table(locks: &[Listed]) -> String {
    let mut text = String::new();
    for lock in locks {
        let held = &lock.status;
        let (pid, tag) = match held.lock_info() {
            Some(info) => (info.pid().to_string(), info.tag().unwrap_or_default()),
            None => ("-".to_owned(), ""),
        };
        let alive = match held.liveness.and_then(Liveness::is_alive) {
            Some(true) => "alive",
            Some(false) => "dead",
            None => "unknown",
        };
        let is_invalid = held.fragment.is_some() && !held.is_being_written;
        let state = match (held.stale, lock.shared) {
            (true, _) => "stale",
            (false, true) => "shared",
            (false, false) if is_invalid => "invalid",
            (false, false) => "held",
        };
        let (name, tag) = (shown(&lock.name), printable(tag));
        let age = held.age_seconds.map_or_else(|| "unknown".to_owned(), |age| age.to_string());
        text.push_str(&format!("{name}\t{pid}\t{alive}\t{state}\t{age}\t{tag}\n"));
    }
    text
}

fn count(number: usize) -> Value {
    Value::Number(u64::try_from(number).unwrap_or(u64::MAX))
}

/// `key: value` lines. What is not known is `unknown`.
pub(crate) fn lines(members: &[(&'static str, Value)]) -> String {
    let mut text = String::new();
    for (key, value) in members {
        if (*key, value) == ("tag", &Value::Null) {
            continue;
        }
        let value = match value {
            Value::Null => "unknown".to_owned(),
            Value::Text(value) => printable(value),
            value @ (Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Object(_)) => {
                printable(&value.compact())
            }
        };
        text.push_str(&format!("{key}: {value}\n"));
    }
    text
}

/// Text from a file, safe for a terminal: one line, no control characters of either range.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// What a person must know of a holder that is in the way.
fn remark(liveness: Liveness) -> &'static str {
    match liveness {
        Liveness::Namesake | Liveness::Elsewhere => {
            ", which cannot be seen from here: see --stale-when in sema(1)"
        }
        Liveness::Ownerless => ", without an owner: held until somebody releases it",
        Liveness::Alive | Liveness::Dead | Liveness::NumberTaken | Liveness::NumberFree => "",
    }
}

/// Why a command failed.
impl Error {
    /// The exit code of `sema`; `semats` has only 1.
    pub(crate) fn exit_code(&self) -> u8 {
        self.class().0
    }

    /// The exit code, and the type in the words of the original TypeScript tool.
    fn class(&self) -> (u8, &'static str) {
        match self {
            Self::AlreadyLocked { .. } => (exit::HELD, "ALREADY_LOCKED"),
            Self::TimedOut { .. } => (exit::HELD, "TIMEOUT"),
            Self::NotLocked { .. } => (exit::HELD, "NOT_LOCKED"),
            Self::NotHolder { .. } => (exit::HELD, "PERMISSION_DENIED"),
            Self::InvalidPath { problem, .. } => match problem {
                PathProblem::Traversal | PathProblem::Nul => (exit::USAGE, "PATH_TRAVERSAL"),
                PathProblem::ForeignLink => (exit::SYSTEM, "PERMISSION_DENIED"),
                PathProblem::NoDirectory | PathProblem::Moved | PathProblem::LinkLoop => {
                    (exit::SYSTEM, "INVALID_PATH")
                }
                PathProblem::Empty
                | PathProblem::NoName
                | PathProblem::TooLong
                | PathProblem::Twice => (exit::USAGE, "INVALID_PATH"),
            },
            Self::Parse { .. } => (exit::SYSTEM, "PARSE_ERROR"),
            Self::System { error, .. } if error.is_not_permitted() => {
                (exit::SYSTEM, "PERMISSION_DENIED")
            }
            Self::NoHolder { .. } => (exit::USAGE, "IO_ERROR"),
            Self::Interrupted { signal } => (wrapcmd::exit::by_signal(*signal), "IO_ERROR"),
            Self::Obstacle { .. }
            | Self::Process { .. }
            | Self::Cancelled
            | Self::System { .. } => (exit::SYSTEM, "IO_ERROR"),
        }
    }

    /// `status`, `type`, this message, and the holder where it is known.
    pub(crate) fn members(&self, message: String) -> Members {
        let mut members = vec![
            ("status", "failed".into()),
            ("type", self.class().1.into()),
            ("message", Value::Text(message)),
        ];
        members.extend(self.holder_members());
        members
    }

    /// The same for JSON, with the members that failures of all our commands have (docs/conventions.md).
    pub(crate) fn json_members(&self, message: String) -> Members {
        let mut members = failed(self.class().1, message);
        members.extend(self.holder_members());
        members
    }

    fn holder_members(&self) -> Members {
        let members = |info: &LockInfo| {
            vec![
                ("holderPid", Value::Number(info.pid())),
                ("lockedSince", Value::Number(info.timestamp())),
            ]
        };
        self.holder().map(members).unwrap_or_default()
    }

    /// What happened to which lock. `path` is what the lock is called on the command line, and `begin` comes before
    /// the reason.
    pub(crate) fn sentence(&self, path: &Path, begin: &str) -> String {
        let liveness = self.holder().map(|info| info.holder().liveness(&Here::detect()));
        let remark = self.advice().unwrap_or_else(|| liveness.map_or("", remark));
        // A link's target, a slot, the readers' directory: what is not named yet.
        let other = self.path().filter(|other| !is_same(path, other));
        let other = other.map_or_else(String::new, |other| format!(": \"{}\"", shown(other)));
        let reason = self.reason();
        printable(&format!("{}: {begin}{reason}{remark}{other}", shown(path)))
    }

    /// What to do about it.
    fn advice(&self) -> Option<&'static str> {
        if matches!(self, Self::Parse { .. }) {
            return Some("; if no program needs it, remove it: sema release --force");
        }
        let is_closed = matches!(self, Self::System { error, .. } if is_closed_directory(error));
        is_closed.then_some("; ~/.local/state/lock is yours on every system (mkdir -p it once)")
    }

    fn holder(&self) -> Option<&LockInfo> {
        let (Self::AlreadyLocked { holder, .. }
        | Self::TimedOut { holder, .. }
        | Self::NotHolder { holder, .. }) = self
        else {
            return None;
        };
        holder.as_deref()
    }
}

/// Whether two paths are equal, apart from `.` in them.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    let parts = |path: &Path| -> Vec<OsString> {
        let parts = path.components().filter(|part| *part != Component::CurDir);
        parts.map(|part| part.as_os_str().to_owned()).collect()
    };
    parts(one) == parts(other)
}

/// Writes to standard error, whether anybody listens or not.
pub(crate) fn complain(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// A message of `run` while the command has the standard output.
pub(crate) fn warn(path: &Path, message: &str) {
    complain(&(printable(&format!("sema: {}: {message}", shown(path))) + "\n"));
}

#[cfg(test)]
#[path = "outcome_tests.rs"]
mod tests;
