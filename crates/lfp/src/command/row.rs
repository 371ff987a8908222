//! A holder as it is shown to people and programs: as JSON, as text in aligned columns, with times in the time zone of the
//! machine, and with foreign text made safe to print on a terminal.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use pidlockfile::{Age, Pid, ascii, span};
use ttylock::{Holder, Standing};
use wrapcmd::Value;

use super::command_lines::{self, Described};

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

/// One cell: its text, and the sequence that begins its style on a terminal. The text must be printable: control
/// characters would break the columns.
pub(super) type Cell = (String, &'static str);

pub(super) const PLAIN: &str = "";
pub(super) const HEADING: &str = "\x1b[1m";
pub(super) const WARNING: &str = "\x1b[33m";
const END: &str = "\x1b[0m";

/// Lines of cells with two blanks between columns, each with the text below it; the last column is not filled up.
pub(super) fn aligned<const COLUMNS: usize>(lines: &[([Cell; COLUMNS], String)]) -> String {
    let length = |(text, _): &Cell| text.chars().count();
    let mut widths = [0; COLUMNS];
    for (line, _) in lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = length(cell).max(*width);
        }
    }
    let mut all = String::new();
    for (line, below) in lines {
        let mut missing = 0;
        for (cell, width) in line.iter().zip(widths) {
            let (text, style) = cell;
            let end = if style.is_empty() { "" } else { END };
            let _ = write!(all, "{:missing$}{style}{text}{end}", "");
            missing = width.saturating_sub(length(cell)).saturating_add(2);
        }
        all.extend(["\n", below]);
    }
    all
}

/// The same text without styles.
pub(super) fn plain(text: &str) -> String {
    [HEADING, WARNING, END].iter().fold(text.to_owned(), |text, style| text.replace(style, ""))
}

/// RFC 3339, in UTC, to the second: `2026-11-21T03:20:11Z`. `None` before 1970 and after 9999.
pub(super) fn utc(time: SystemTime) -> Option<String> {
    Some(format!("{:.0}", point(time)?))
}

/// RFC 3339, as clocks on the wall have it here, with the zone: `2026-11-21T04:20:11+01:00`.
pub(super) fn local(time: SystemTime) -> Option<String> {
    in_zone(time, TimeZone::system())
}

fn in_zone(time: SystemTime, zone: TimeZone) -> Option<String> {
    Some(point(time)?.to_zoned_datetime(zone).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string())
}

/// To the second.
fn point(time: SystemTime) -> Option<Timestamp> {
    let seconds = time.duration_since(UNIX_EPOCH).ok()?.as_secs();
    Timestamp::from_second(i64::try_from(seconds).ok()?).ok()
}

/// Text that can do nothing to a terminal: what is neither a letter, a digit nor printable ASCII
/// shows as `?`.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_alphanumeric() { c } else { ascii(c) }).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rstest::rstest;

    use super::{printable, *};

    /// Styles do not count as width.
    #[test]
    fn columns_are_aligned() {
        let head = ["A", "LONG", "C"].map(|text| (text.to_owned(), HEADING));
        let line = [("wider", PLAIN), ("é", WARNING), ("z z", PLAIN)];
        let line = line.map(|(text, style)| (text.to_owned(), style));
        let text = aligned(&[(head, String::new()), (line, "  below\n".to_owned())]);
        let head = "\x1b[1mA\x1b[0m      \x1b[1mLONG\x1b[0m  \x1b[1mC\x1b[0m\n";
        assert_eq!(text, format!("{head}wider  \x1b[33mé\x1b[0m     z z\n  below\n"));
        assert_eq!(plain(&text), "A      LONG  C\nwider  é     z z\n  below\n");
    }

    #[rstest]
    #[case(0, Some("1970-01-01T00:00:00Z"))]
    #[case(951_782_400, Some("2000-02-29T00:00:00Z"))]
    #[case(1_763_700_000, Some("2025-11-21T04:40:00Z"))]
    #[case(300_000_000_000, None)]
    fn times_are_written_as_rfc_3339(#[case] seconds: u64, #[case] text: Option<&str>) {
        assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)).as_deref(), text);
    }

    #[rstest]
    #[case::east("<+01>-1", "2025-11-21T05:40:00+01:00")]
    #[case::west("<-0330>3:30", "2025-11-21T01:10:00-03:30")]
    #[case::here("UTC0", "2025-11-21T04:40:00+00:00")]
    fn local_times_tell_their_zone(#[case] zone: &str, #[case] text: &str) {
        let time = UNIX_EPOCH + Duration::from_secs(1_763_700_000);
        let zone = TimeZone::posix(zone).unwrap();
        assert_eq!(in_zone(time, zone).as_deref(), Some(text));
    }

    #[test]
    fn times_before_1970_have_no_text() {
        assert_eq!(utc(UNIX_EPOCH - Duration::from_secs(1)), None);
    }

    #[rstest]
    #[case::plain("picocom -b 9600", "picocom -b 9600")]
    #[case::letters("José 部", "José 部")]
    #[case::escape("\x1b[2Jx", "?[2Jx")]
    #[case::one_byte_escape("\u{9b}2J", "?2J")]
    #[case::line_ends("a\r\nb\tc\0", "a??b?c?")]
    #[case::right_to_left("a\u{202e}b\u{2066}c", "a?b?c")]
    #[case::invisible("a\u{200b}b\u{feff}", "a?b?")]
    fn characters_that_control_a_terminal_are_replaced(#[case] text: &str, #[case] shown: &str) {
        assert_eq!(printable(text), shown);
    }
}
