//! A holder as it is shown to people and programs.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pidlockfile::Pid;
use wrapcmd::Value;

use super::calendar::{local, utc};
use super::printable::printable;
use ttylock::{Holder, Scheme, Standing, age};

/// A holder as it is shown; every text is printable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) device: String,
    pub(super) scheme: &'static str,
    /// Whether it keeps others from their lock: an open port does not.
    pub(super) is_lock: bool,
    /// Whether it has the port open, and the kernel refuses it to others.
    pub(super) is_exclusive: bool,
    pub(super) file: Option<String>,
    pub(super) pid: Option<Pid>,
    pub(super) uid: Option<u32>,
    pub(super) user: Option<String>,
    /// The owner of the lock file, if the user of the process is not known.
    pub(super) owner: Option<String>,
    pub(super) command: Option<String>,
    pub(super) since: Option<SystemTime>,
    pub(super) age: Option<Duration>,
    pub(super) standing: Standing,
    /// What would remove the lock, if it is stale and in the way.
    pub(super) remedy: Option<String>,
}

/// Holders as they are shown, with the names of users.
pub(super) fn rows(holders: &[Holder]) -> Vec<Row> {
    let now = SystemTime::now();
    let mut names: HashMap<u32, Option<String>> = HashMap::new();
    let mut name = |uid: u32| names.entry(uid).or_insert_with(|| user_name(uid)).clone();
    holders
        .iter()
        .map(|holder| Row {
            device: printable(&holder.device),
            scheme: holder.scheme.word(),
            is_lock: holder.scheme.is_lock(),
            is_exclusive: holder.scheme == Scheme::Exclusive,
            file: holder.scheme.file().map(|path| printable(&path.to_string_lossy())),
            pid: holder.pid,
            uid: holder.user,
            user: holder.user.and_then(&mut name),
            owner: holder
                .owner
                .filter(|_| holder.user.is_none())
                .map(|uid| name(uid).unwrap_or_else(|| uid.to_string())),
            command: holder.command.as_deref().map(printable),
            since: holder.since,
            age: holder.since.and_then(|since| now.duration_since(since).ok()),
            standing: holder.standing,
            remedy: None,
        })
        .collect()
}

impl Row {
    /// Whether it is a lock of this process, which is alive.
    pub(super) fn is_lock_of(&self, pid: Pid) -> bool {
        self.pid == Some(pid) && self.standing == Standing::Alive && self.is_lock
    }

    /// The process, if it is alive and has a lock.
    pub(super) fn living_holder(&self) -> Option<Pid> {
        self.pid.filter(|_| self.standing == Standing::Alive && self.is_lock)
    }

    /// One line for people.
    pub(super) fn sentence(&self) -> String {
        if let Some(remedy) = &self.remedy {
            let file = self.file_and_pid();
            return format!("a stale lock is in the way, {file}: {remedy}");
        }
        let mut text = match (self.pid, self.user()) {
            (Some(pid), Some(user)) => format!("held by {user}, pid {pid}"),
            (Some(pid), None) => format!("held by pid {pid}"),
            (None, Some(user)) => format!("held by {user}"),
            (None, None) => "held".to_owned(),
        };
        if let Some(command) = &self.command {
            text.extend([", ", command]);
        }
        if let (Some(since), Some(time)) = (self.since.and_then(local), self.age) {
            text.extend([", since ", &since, " (", &age(time), ")"]);
        }
        text.extend([", by ", self.lock()]);
        if let Some(owner) = &self.owner {
            text.extend([" of ", owner]);
        }
        text
    }

    /// The process that has it open, in a few words: `pid 4711 of alice, picocom`.
    pub(super) fn who(&self) -> String {
        let pid = self.pid.map_or_else(|| "a process".to_owned(), |pid| format!("pid {pid}"));
        let user = self.user().map_or_else(String::new, |user| format!(" of {user}"));
        let command = self.command.as_ref().map_or_else(String::new, |it| format!(", {it}"));
        pid + &user + &command
    }

    /// The name of the user, or the uid.
    pub(super) fn user(&self) -> Option<String> {
        self.user.clone().or_else(|| self.uid.map(|uid| uid.to_string()))
    }

    /// The lock file's name, or the scheme.
    pub(super) fn lock(&self) -> &str {
        self.file.as_deref().and_then(|file| file.rsplit('/').next()).unwrap_or(self.scheme)
    }

    /// `/run/lock/LCK..ttyS0 (pid 4711)`
    pub(super) fn file_and_pid(&self) -> String {
        let file = self.file.as_deref().unwrap_or(self.scheme);
        self.pid.map_or_else(|| format!("{file} (no pid)"), |pid| format!("{file} (pid {pid})"))
    }

    pub(super) fn to_json(&self) -> Value {
        Value::Object(self.members())
    }

    /// The same members in the same order always; null for what is not known.
    pub(super) fn members(&self) -> Vec<(&'static str, Value)> {
        let text = |text: Option<String>| text.as_deref().map_or(Value::Null, Value::from);
        let number = |number: Option<u64>| number.map_or(Value::Null, Value::Number);
        let since = self.since.and_then(|since| since.duration_since(UNIX_EPOCH).ok());
        vec![
            ("device", device_path(&self.device).as_str().into()),
            ("scheme", self.scheme.into()),
            ("file", text(self.file.clone())),
            ("pid", number(self.pid.and_then(|pid| u64::try_from(pid.as_raw()).ok()))),
            ("uid", number(self.uid.map(u64::from))),
            ("user", text(self.user.clone())),
            ("command", text(self.command.clone())),
            ("since", text(self.since.and_then(utc))),
            ("since_unix", number(since.map(|since| since.as_secs()))),
            ("standing", self.standing.word().into()),
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
