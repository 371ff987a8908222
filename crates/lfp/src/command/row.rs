//! A holder as it is shown to people and programs.

use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pidlockfile::{Age, Pid, span};
use wrapcmd::Value;

use super::calendar::{local, utc};
use super::command_lines::{self, Described};
use super::printable::printable;
use ttylock::{Holder, Standing};

/// The longest part of a command line that is shown, in characters.
const COMMAND_CHARS: usize = 200;

/// A holder as it is shown; every text is printable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) holder: Holder,
    file: Option<String>,
    user: Option<String>,
    /// The owner of the lock file, if the user of the process is not known.
    pub(super) owner: Option<String>,
    pub(super) age: Option<Duration>,
}

/// Holders as they are shown, with the names of users.
pub(super) fn rows(holders: &[Holder]) -> Vec<Row> {
    let now = SystemTime::now();
    let mut names: HashMap<u32, Option<String>> = HashMap::new();
    let mut name = |uid: u32| names.entry(uid).or_insert_with(|| user_name(uid)).clone();
    let pids: BTreeSet<Pid> = holders.iter().filter_map(described_pid).collect();
    let described = command_lines::of(&Vec::from_iter(pids));
    holders
        .iter()
        .map(|holder| Row {
            holder: shown(holder, &described),
            file: holder.scheme.file().map(|path| printable(&path.to_string_lossy())),
            user: holder.user.and_then(&mut name),
            owner: holder
                .owner
                .filter(|_| holder.user.is_none())
                .map(|uid| name(uid).unwrap_or_else(|| uid.to_string())),
            age: holder.since.and_then(|since| Age::of([since], now).known()),
        })
        .collect()
}

/// The process of a holder that has a name, so it lives.
fn described_pid(holder: &Holder) -> Option<Pid> {
    holder.pid.filter(|_| holder.command.is_some() && holder.standing != Standing::Stale)
}

/// The same, with texts that a terminal may show, and the whole command line instead of the name. A service may name
/// processes of another container, so the name that goes with the command line must be the same.
fn shown(holder: &Holder, described: &HashMap<Pid, Described>) -> Holder {
    let mut shown = holder.clone();
    shown.device = printable(&holder.device);
    let known = described_pid(holder).and_then(|pid| described.get(&pid));
    let known = known.filter(|known| holder.command.as_ref() == Some(&known.name));
    shown.command = match known {
        Some(known) => Some(known.words.chars().take(COMMAND_CHARS).collect()),
        None => holder.command.as_deref().map(printable),
    };
    shown
}

impl Row {
    /// Whether it is a lock of this process, which is alive.
    pub(super) fn is_lock_of(&self, pid: Pid) -> bool {
        self.living_holder() == Some(pid)
    }

    /// The process, if it is alive and has a lock.
    pub(super) fn living_holder(&self) -> Option<Pid> {
        let is_one = self.holder.standing == Standing::Alive && self.holder.scheme.is_lock();
        self.holder.pid.filter(|_| is_one)
    }

    /// One line for people.
    pub(super) fn sentence(&self) -> String {
        if self.holder.standing == Standing::Stale {
            let (file, remedy) = (self.file_and_pid(), self.remedy());
            return format!("a stale lock is in the way, {file}: {remedy}");
        }
        if !self.holder.scheme.is_lock() {
            return format!("open without a lock in {}", self.who());
        }
        let mut text = match (self.holder.pid, self.user()) {
            (Some(pid), Some(user)) => format!("held by {user}, pid {pid}"),
            (Some(pid), None) => format!("held by pid {pid}"),
            (None, Some(user)) => format!("held by {user}"),
            (None, None) => "held".to_owned(),
        };
        if let Some(command) = &self.holder.command {
            text.extend([", ", command]);
        }
        if let (Some(since), Some(time)) = (self.holder.since.and_then(local), self.age) {
            text.extend([", since ", &since, " (", &span(time), ")"]);
        }
        text.extend([", by ", self.lock()]);
        if let Some(owner) = &self.owner {
            text.extend([" of ", owner]);
        }
        text
    }

    /// The process that has it open, in a few words: `pid 4711 of alice, picocom`.
    pub(super) fn who(&self) -> String {
        let pid =
            self.holder.pid.map_or_else(|| "a process".to_owned(), |pid| format!("pid {pid}"));
        let user = self.user().map_or_else(String::new, |user| format!(" of {user}"));
        let command = self.holder.command.as_ref().map_or_else(String::new, |it| format!(", {it}"));
        pid + &user + &command
    }

    /// The name of the user, or the uid.
    pub(super) fn user(&self) -> Option<String> {
        self.user.clone().or_else(|| self.holder.user.map(|uid| uid.to_string()))
    }

    /// The lock file's name, or the scheme.
    pub(super) fn lock(&self) -> &str {
        self.file
            .as_deref()
            .and_then(|file| file.rsplit('/').next())
            .unwrap_or(self.holder.scheme.word())
    }

    /// `/run/lock/LCK..ttyS0 (pid 4711)`
    pub(super) fn file_and_pid(&self) -> String {
        let file = self.file.as_deref().unwrap_or(self.holder.scheme.word());
        self.holder
            .pid
            .map_or_else(|| format!("{file} (no pid)"), |pid| format!("{file} (pid {pid})"))
    }

    /// Which user may remove the holder's lock file, and how. Empty for a holder without one.
    pub(super) fn remedy(&self) -> String {
        const STICKY: u32 = 0o1000;
        let Some(path) = self.holder.scheme.file() else { return String::new() };
        let owner = std::fs::symlink_metadata(path).map(|file| file.uid());
        let directory = path.parent().and_then(|parent| std::fs::metadata(parent).ok());
        match (owner, directory) {
            (Ok(owner), Some(directory)) if directory.mode() & STICKY != 0 => format!(
                "in this directory only the owner of a file may remove it: run `lfp clean` as {}, \
                 or give the service CAP_FOWNER (see lfpd(8))",
                or_root(owner)
            ),
            (_, Some(directory)) => format!(
                "the directory belongs to {}: run `lfp clean` as {}, or start the service (see lfpd(8))",
                user(directory.uid()),
                or_root(directory.uid())
            ),
            (_, None) => "run `lfp clean` as root".to_owned(),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        Value::Object(self.members())
    }

    /// The same members in the same order always; null for what is not known.
    pub(super) fn members(&self) -> Vec<(&'static str, Value)> {
        let text = |text: Option<String>| text.as_deref().map_or(Value::Null, Value::from);
        let number = |number: Option<u64>| number.map_or(Value::Null, Value::Number);
        let since = self.holder.since.and_then(|since| since.duration_since(UNIX_EPOCH).ok());
        vec![
            ("device", device_path(&self.holder.device).as_str().into()),
            ("scheme", self.holder.scheme.word().into()),
            ("file", text(self.file.clone())),
            ("pid", number(self.holder.pid.and_then(|pid| u64::try_from(pid.as_raw()).ok()))),
            ("uid", number(self.holder.user.map(u64::from))),
            ("user", text(self.user.clone())),
            ("command", text(self.holder.command.clone())),
            ("since", text(self.holder.since.and_then(utc))),
            ("since_unix", number(since.map(|since| since.as_secs()))),
            ("standing", self.holder.standing.word().into()),
        ]
    }
}

pub(super) fn device_path(device: &str) -> String {
    format!("/dev/{device}")
}

/// What a user is called.
pub(super) fn user_name(uid: u32) -> Option<String> {
    let user = users::get_user_by_uid(uid)?;
    Some(printable(&user.name().to_string_lossy()))
}

/// The users who may do what the owner may.
fn or_root(owner: u32) -> String {
    if owner == 0 { "root".to_owned() } else { format!("{} or root", user(owner)) }
}

fn user(uid: u32) -> String {
    user_name(uid).unwrap_or_else(|| format!("uid {uid}"))
}
