//! The words and exit codes of both programs: every outcome as text, JSON and a number. No other file has
//! output keys, failure types or exit codes.

use std::ffi::OsString;
use std::path::{Component, Path};

use pidlockfile::shown;
use wrapcmd::Value;

use crate::error::{Error, PathProblem};
use crate::judge::HeldStatus;
use crate::record::LockInfo;
use crate::semaphore::SlotStatus;
use crate::semaphore::cleaning::{Listed, Swept};
use crate::stale::Standing;

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
    /// The exit code. `status` answers in it too: held is 1, as in the original tool.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Status(slots) if slots.contains(&SlotStatus::Obstacle) => exit::SYSTEM,
            Self::Status(slots) if !slots.contains(&SlotStatus::Free) => exit::HELD,
            Self::Shared(_) => exit::HELD,
            Self::Status(_)
            | Self::Acquired { .. }
            | Self::Released
            | Self::Renewed
            | Self::Free
            | Self::Listed(_)
            | Self::Cleaned(_) => exit::DONE,
        }
    }

    /// As one JSON value.
    pub(crate) fn json(&self) -> Value {
        match self {
            Self::Listed(locks) => Value::List(locks.iter().map(listed).collect()),
            Self::Status(slots) => status(slots),
            Self::Shared(readers) => {
                let mut members = shared_summary(readers);
                let holders = readers.iter().map(|held| Value::Object(held_members(held)));
                members.push(("holders", Value::List(holders.collect())));
                Value::Object(members)
            }
            Self::Acquired { .. }
            | Self::Released
            | Self::Renewed
            | Self::Free
            | Self::Cleaned(_) => Value::Object(self.members()),
        }
    }

    /// As lines of text.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Listed(locks) => table(locks),
            Self::Status(slots) => status_lines(slots),
            Self::Shared(readers) => {
                let mut text = lines(&shared_summary(readers));
                text.extend(readers.iter().map(|held| lines(&held_members(held))));
                text
            }
            Self::Acquired { .. }
            | Self::Released
            | Self::Renewed
            | Self::Free
            | Self::Cleaned(_) => lines(&self.members()),
        }
    }

    fn members(&self) -> Vec<(&'static str, Value)> {
        match self {
            Self::Acquired { info, slot } => {
                let mut members = vec![("status", "acquired".into())];
                members.extend(slot.map(|slot| ("slot", count(slot))));
                members.extend(info_members(info));
                members
            }
            Self::Released => vec![("status", "released".into())],
            Self::Renewed => vec![("status", "renewed".into())],
            Self::Free => vec![("status", "free".into())],
            Self::Cleaned(swept) => vec![
                ("cleaned", Value::Bool(*swept != Swept::default())),
                ("locks", count(swept.locks)),
                ("temporaries", count(swept.temporaries)),
            ],
            Self::Status(_) | Self::Shared(_) | Self::Listed(_) => Vec::new(),
        }
    }
}

/// What the lock file says, in the order both programs print it.
pub(crate) fn info_members(info: &LockInfo) -> Vec<(&'static str, Value)> {
    let mut members =
        vec![("pid", Value::Number(info.pid())), ("timestamp", Value::Number(info.timestamp()))];
    members.extend(info.tag().map(|tag| ("tag", tag.into())));
    members
}

/// Members of JSON have the tag even where there is none; lines of text leave it out.
fn held_members(held: &HeldStatus) -> Vec<(&'static str, Value)> {
    let mut members = held.lock_info().map(info_members).unwrap_or_default();
    if held.lock_info().is_some_and(|info| info.tag().is_none()) {
        members.push(("tag", Value::Null));
    }
    let host = held.lock_info().and_then(|info| info.holder().host());
    members.extend(host.map(|host| ("host", host.into())));
    let alive = held.standing.and_then(Standing::is_alive);
    members.push(("alive", alive.map_or(Value::Null, Value::Bool)));
    members.push(("stale", Value::Bool(held.stale)));
    members.push(("age", Value::Number(held.age_seconds)));
    match &held.info {
        Some(Ok(_)) => {}
        Some(Err(problem)) => members.push(("problem", problem.to_string().as_str().into())),
        None => members.push(("problem", "the file may not be read".into())),
    }
    members
}

fn slot_members(slot: &SlotStatus) -> Vec<(&'static str, Value)> {
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

/// One lock is one object; several slots are counted, and the taken ones follow.
fn status(slots: &[SlotStatus]) -> Value {
    if let [slot] = slots {
        return Value::Object(slot_members(slot));
    }
    let mut members = summary(slots);
    let holders = taken(slots).map(Value::Object).collect();
    members.push(("holders", Value::List(holders)));
    Value::Object(members)
}

fn status_lines(slots: &[SlotStatus]) -> String {
    if let [slot] = slots {
        return lines(&slot_members(slot));
    }
    let mut text = lines(&summary(slots));
    text.extend(taken(slots).map(|members| lines(&members)));
    text
}

fn shared_summary(readers: &[HeldStatus]) -> Vec<(&'static str, Value)> {
    vec![("locked", Value::Bool(true)), ("shared", count(readers.len()))]
}

fn summary(slots: &[SlotStatus]) -> Vec<(&'static str, Value)> {
    let held = slots.iter().filter(|slot| **slot != SlotStatus::Free).count();
    vec![
        ("locked", Value::Bool(held == slots.len())),
        ("slots", count(slots.len())),
        ("held", count(held)),
    ]
}

fn taken(slots: &[SlotStatus]) -> impl Iterator<Item = Vec<(&'static str, Value)>> + '_ {
    slots.iter().enumerate().filter(|(_, slot)| **slot != SlotStatus::Free).map(|(index, slot)| {
        let mut members = vec![("slot", count(index.saturating_add(1)))];
        members.extend(slot_members(slot).into_iter().skip(1));
        members
    })
}

fn listed(lock: &Listed) -> Value {
    let mut members = vec![("name", shown(&lock.name).as_str().into())];
    members.extend(held_members(&lock.status));
    Value::Object(members)
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
        let alive = match held.standing.and_then(Standing::is_alive) {
            Some(true) => "alive",
            Some(false) => "dead",
            None => "unknown",
        };
        let stale = if held.stale { "stale" } else { "held" };
        let (name, tag) = (shown(&lock.name), printable(tag));
        text.push_str(&format!("{name}\t{pid}\t{alive}\t{stale}\t{}\t{tag}\n", held.age_seconds));
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
fn remark(standing: Standing) -> &'static str {
    match standing {
        Standing::Namesake | Standing::Elsewhere => {
            ", which cannot be seen from here: see --stale-when in sema(1)"
        }
        Standing::Ownerless => ", without an owner: held until somebody releases it",
        Standing::Alive | Standing::Dead | Standing::NumberTaken | Standing::NumberFree => "",
    }
}

/// Why a command failed, in the words of the original TypeScript tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure<'a> {
    pub(crate) error: &'a Error,
}

impl<'a> Failure<'a> {
    /// The exit code of `sema`; `semats` has only 1.
    pub(crate) fn exit_code(self) -> u8 {
        match self.error {
            Error::AlreadyLocked { .. }
            | Error::Timeout { .. }
            | Error::NotLocked { .. }
            | Error::NotHolder { .. } => exit::HELD,
            Error::InvalidPath {
                problem:
                    PathProblem::NoDirectory
                    | PathProblem::Moved
                    | PathProblem::LinkLoop
                    | PathProblem::ForeignLink,
                ..
            }
            | Error::Parse { .. }
            | Error::Obstacle { .. }
            | Error::Process { .. }
            | Error::Cancelled
            | Error::System { .. } => exit::SYSTEM,
            Error::InvalidPath { .. } | Error::NoHolder { .. } => exit::USAGE,
            Error::Interrupted { signal } => wrapcmd::exit::by_signal(*signal),
        }
    }

    /// The closed list of types.
    pub(crate) fn kind(self) -> &'static str {
        match self.error {
            Error::AlreadyLocked { .. } => "ALREADY_LOCKED",
            Error::Timeout { .. } => "TIMEOUT",
            Error::NotLocked { .. } => "NOT_LOCKED",
            Error::NotHolder { .. } => "PERMISSION_DENIED",
            Error::InvalidPath { problem: PathProblem::Traversal | PathProblem::Nul, .. } => {
                "PATH_TRAVERSAL"
            }
            Error::InvalidPath { problem: PathProblem::ForeignLink, .. } => "PERMISSION_DENIED",
            Error::InvalidPath { .. } => "INVALID_PATH",
            Error::Parse { .. } => "PARSE_ERROR",
            Error::System { error, .. } if error.is_not_permitted() => "PERMISSION_DENIED",
            Error::Obstacle { .. }
            | Error::NoHolder { .. }
            | Error::Interrupted { .. }
            | Error::Process { .. }
            | Error::Cancelled
            | Error::System { .. } => "IO_ERROR",
        }
    }

    /// `status`, `type`, `message`, and the holder where it is known.
    pub(crate) fn members(self) -> Vec<(&'static str, Value)> {
        let mut members = vec![
            ("status", "failed".into()),
            ("type", self.kind().into()),
            ("message", self.error.reason().to_string().as_str().into()),
        ];
        if let Some(info) = self.holder() {
            members.push(("holderPid", Value::Number(info.pid())));
            members.push(("lockedSince", Value::Number(info.timestamp())));
        }
        members
    }

    /// One line for a person. `standing` is the holder's, where there is one; `path` is what the lock is called on
    /// the command line.
    pub(crate) fn sentence(self, path: &Path, standing: Option<Standing>) -> String {
        self.line(path, "", standing)
    }

    /// The same while it is waited for.
    pub(crate) fn waiting(self, path: &Path, standing: Option<Standing>) -> String {
        self.line(path, "waiting: ", standing)
    }

    fn line(self, path: &Path, begin: &str, standing: Option<Standing>) -> String {
        let remark = standing.map_or("", remark);
        // A link's target, a slot, the readers' directory: what is not named yet.
        let other = self.error.path().filter(|other| !is_same(path, other));
        let other = other.map_or_else(String::new, |other| format!(": \"{}\"", shown(other)));
        let reason = self.error.reason();
        printable(&format!("sema: {}: {begin}{reason}{remark}{other}", shown(path))) + "\n"
    }

    pub(crate) fn holder(self) -> Option<&'a LockInfo> {
        match self.error {
            Error::AlreadyLocked { holder, .. }
            | Error::Timeout { holder, .. }
            | Error::NotHolder { holder, .. } => holder.as_deref(),
            Error::NotLocked { .. }
            | Error::InvalidPath { .. }
            | Error::Parse { .. }
            | Error::Obstacle { .. }
            | Error::NoHolder { .. }
            | Error::Interrupted { .. }
            | Error::Process { .. }
            | Error::Cancelled
            | Error::System { .. } => None,
        }
    }
}

/// Whether two paths are one, but for a `.` in them.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    let parts = |path: &Path| -> Vec<OsString> {
        let parts = path.components().filter(|part| *part != Component::CurDir);
        parts.map(|part| part.as_os_str().to_owned()).collect()
    };
    parts(one) == parts(other)
}

#[cfg(test)]
#[path = "outcome_tests.rs"]
mod tests;
