//! `lfp who` and `lfp list`: prints the holders as text or JSON, once or on every change.

use std::time::Duration;

use pidlockfile::span;
use wrapcmd::{Form, Value};

use super::arguments::{ListArguments, Presence, Repeat, WhoArguments};
use super::devices::{ListedDevice, NameIndex, serial_names, sort_by_name, suggestion};
use super::outcome::{Failure, Output, exit};
use super::row::{
    Cell, HEADING, PLAIN, Row, WARNING, aligned, device_path, local, printable, rows, user_name,
};
use super::search::{Findings, ServiceState};
use crate::client::Waiter;
use crate::client::broker::Route;
use ttylock::{DeviceName, Layout, OutOfSight, Standing, follow};

/// The most lock files of one holder that are named in one line for people.
const FILES_SHOWN: usize = 2;

/// How often `--watch` searches again.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// What was asked.
#[derive(Clone, Copy, Debug)]
enum Query<'a> {
    /// These devices.
    Named(&'a [DeviceName]),
    /// Every device that somebody holds.
    Held,
    /// Every device.
    All,
}

/// What was found.
#[derive(Debug, PartialEq, Eq)]
struct Snapshot {
    devices: Vec<ListedDevice>,
    service: ServiceState,
    /// Whether the searches came to their ends.
    is_complete: bool,
    /// What they cannot see.
    out_of_sight: OutOfSight,
}

pub(super) fn who(asked: &WhoArguments, route: &Route, output: &Output) -> Result<u8, Failure> {
    let query = match asked.devices.as_slice() {
        [] => Query::Held,
        devices => Query::Named(devices),
    };
    if output.form() == Form::Quiet {
        let held = Snapshot::take(query, route)?.devices.iter().any(ListedDevice::is_held);
        return Ok(if held { exit::DONE } else { exit::BUSY });
    }
    show(query, asked.repeat, route, output)
}

pub(super) fn list(asked: &ListArguments, route: &Route, output: &Output) -> Result<u8, Failure> {
    let query = if asked.all { Query::All } else { Query::Held };
    show(query, asked.repeat, route, output)
}

fn show(query: Query<'_>, repeat: Repeat, route: &Route, output: &Output) -> Result<u8, Failure> {
    let mut shown = None;
    loop {
        let snapshot = Snapshot::take(query, route)?;
        if shown.as_ref() != Some(&snapshot) {
            if repeat.watch {
                output.begin_anew();
            }
            output.answer(|| snapshot.text(query), || snapshot.to_json(query));
            snapshot.remarks(query, output);
        }
        if !repeat.watch {
            return Ok(snapshot.code(query));
        }
        if !wrapcmd::wait_while_read(WATCH_INTERVAL) {
            return Ok(exit::DONE);
        }
        shown = Some(snapshot);
    }
}

impl Snapshot {
    fn take(query: Query<'_>, route: &Route) -> Result<Self, Failure> {
        let layout = Layout::native();
        let mut names = NameIndex::new(&layout.dev_dir, &layout.udev_dir);
        let (asked, searched) = match query {
            Query::Named(devices) => (devices.to_vec(), devices.iter().map(Some).collect()),
            Query::Held => (Vec::new(), vec![None]),
            Query::All => (serial_names(&layout.dev_dir), vec![None]),
        };
        let mut findings = Findings::default();
        for device in searched {
            findings.search(device, route)?;
        }
        let mut devices = names.group(&asked, findings.holders);
        if !matches!(query, Query::Named(_)) {
            sort_by_name(&mut devices);
        }
        for waiter in findings.waiters {
            let device = devices.iter_mut().find(|it| printable(&it.name) == waiter.device);
            if let Some(device) = device.filter(|device| !device.waiters.contains(&waiter)) {
                device.waiters.push(waiter);
            }
        }
        let (is_complete, out_of_sight) = (!findings.is_cut_short, findings.out_of_sight);
        Ok(Self { devices, service: findings.service, is_complete, out_of_sight })
    }

    fn text(&self, query: Query<'_>) -> String {
        let (shown, free): (Vec<_>, Vec<_>) = match query {
            Query::All => (self.devices.iter().collect(), Vec::new()),
            Query::Named(_) | Query::Held => {
                self.devices.iter().partition(|device| !device.holders.is_empty())
            }
        };
        let text = if shown.is_empty() { String::new() } else { table(&shown) };
        if text.is_empty() && free.is_empty() {
            return format!("nobody holds a serial port{}\n", reservation(self.out_of_sight));
        }
        free.iter().filter(|device| device.exists).fold(text, |text, device| {
            let name = printable(&device.name);
            text + &format!("/dev/{name}: nobody holds it{}\n", reservation(self.out_of_sight))
        })
    }

    fn to_json(&self, query: Query<'_>) -> Value {
        let mut members = vec![
            ("complete", Value::Bool(self.is_complete && self.out_of_sight.is_nothing())),
            ("service", Value::Bool(self.service == ServiceState::Asked)),
            ("devices", Value::List(self.devices.iter().map(device_in_json).collect())),
        ];
        if let Some(device) = self.misspelt(query).next() {
            members.extend(missing(&device.name).members());
        }
        Value::Object(members)
    }

    /// What is wrong with the question, or with the service that was asked.
    fn remarks(&self, query: Query<'_>, output: &Output) {
        for device in self.misspelt(query) {
            output.remark(&missing(&device.name).to_string());
        }
        let is_free = |device: &ListedDevice| device.holders.is_empty();
        if matches!(query, Query::All) && self.devices.iter().any(is_free) {
            let outside = self.out_of_sight.outside.then_some(OUTSIDE);
            let root = "root sees more: sudo lfp list --all";
            let root = self.out_of_sight.of_other_users.then_some(root);
            let left_out: Vec<&str> = outside.into_iter().chain(root).collect();
            if !left_out.is_empty() {
                let left_out = left_out.join("; ");
                output.remark(&format!("free, as far as you may see; {left_out}"));
            }
        }
        if !self.is_complete {
            output.remark(
                "the search for holders was cut short after two seconds: there may be more",
            );
        }
        if self.service == ServiceState::Silent {
            output.remark(
                "the service does not answer: only holders that can be seen without it are shown",
            );
        }
    }

    /// Devices that are neither there nor held.
    fn misspelt(&self, query: Query<'_>) -> impl Iterator<Item = &ListedDevice> {
        let named = matches!(query, Query::Named(_));
        self.devices
            .iter()
            .filter(move |device| named && !device.exists && device.holders.is_empty())
    }

    fn code(&self, query: Query<'_>) -> u8 {
        if self.misspelt(query).next().is_some() { exit::NO_DEVICE } else { exit::DONE }
    }
}

/// A name that leads to no node is not locked, because it is misspelt most often. A device that is away has a lock if the
/// user says that it will come.
///
/// # Errors
/// The device is not there, and nothing was said.
pub(super) fn refuse_missing(device: &DeviceName, presence: Presence) -> Result<(), Failure> {
    let resolved = follow(&Layout::native().dev_dir, device);
    if presence.absent || resolved.map_or(true, |resolved| resolved.node.is_some()) {
        return Ok(());
    }
    Err(missing(device.as_str()).or_absent())
}

/// `/dev/ttyUSB9: there is no such device; did you mean /dev/ttyUSB0?`
fn missing(name: &str) -> Failure {
    let other = suggestion(&Layout::native().dev_dir, name);
    Failure::no_device(other.as_deref().map(printable)).about(&printable(name))
}

/// What a container does not show.
pub(super) const OUTSIDE: &str = "holders outside this container are not visible";

/// What "nobody" leaves out.
fn reservation(out_of_sight: OutOfSight) -> String {
    let to_whom = match nix::unistd::geteuid().is_root() {
        true => "with CAP_SYS_PTRACE",
        false => "to root",
    };
    let programs = || {
        format!(
            "programs of other users that have a port open without any lock are shown {to_whom} only"
        )
    };
    let outside = out_of_sight.outside.then(|| OUTSIDE.to_owned());
    let left_out: Vec<String> =
        outside.into_iter().chain(out_of_sight.of_other_users.then(programs)).collect();
    if left_out.is_empty() { String::new() } else { format!(" ({})", left_out.join("; ")) }
}

/// A device and its holders.
fn device_in_json(device: &ListedDevice) -> Value {
    let path = |name: &str| Value::Text(device_path(&printable(name)));
    Value::Object(vec![
        ("device", path(&device.name)),
        ("names", Value::List(device.others.iter().map(|name| path(name)).collect())),
        ("exists", Value::Bool(device.exists)),
        ("held", Value::Bool(device.is_held())),
        ("holders", Value::List(rows(&device.holders).iter().map(Row::to_json).collect())),
        ("waiters", Value::List(device.waiters.iter().map(waiter_in_json).collect())),
    ])
}

fn waiter_in_json(waiter: &Waiter) -> Value {
    let number = |number: u64| Value::Number(number);
    let user = waiter.user.and_then(user_name);
    Value::Object(vec![
        ("pid", number(u64::try_from(waiter.pid.as_raw()).unwrap_or(0))),
        ("uid", waiter.user.map_or(Value::Null, |uid| number(uid.into()))),
        ("user", user.as_deref().map_or(Value::Null, Value::from)),
    ])
}

/// `  waiting: pid 4711 of alice, pid 4712 of bob`
fn waiting(waiters: &[Waiter]) -> String {
    if waiters.is_empty() {
        return String::new();
    }
    let one = |waiter: &Waiter| {
        let of = waiter.user.map(|uid| user_name(uid).unwrap_or_else(|| uid.to_string()));
        let of = of.map_or_else(String::new, |user| format!(" of {user}"));
        format!("pid {}{of}", waiter.pid)
    };
    let all: Vec<String> = waiters.iter().map(one).collect();
    format!("  waiting: {}\n", all.join(", "))
}

/// The devices as a table for people, below each its other names. One holder of one device is one
/// line, however many lock files the conventions ask it to have.
fn table(devices: &[&ListedDevice]) -> String {
    let head = ["DEVICE", "PID", "USER", "STATE", "SINCE", "AGE", "LOCK", "COMMAND"];
    let head = head.map(|text| (text.to_owned(), HEADING));
    let mut lines = vec![(head, String::new())];
    for device in devices {
        let rows = rows(&device.holders);
        let shown = of_each_holder(&rows);
        lines.extend(shown.iter().map(|(row, locks)| (line(row, locks), String::new())));
        if shown.is_empty() {
            lines.push((free_line(&device.name), String::new()));
        }
        if let Some((_, below)) = lines.last_mut() {
            *below = other_names(&device.others) + &waiting(&device.waiters);
        }
    }
    aligned(&lines)
}

fn free_line(device: &str) -> [Cell; 8] {
    let device = device_path(&printable(device));
    let cells = [&*device, "-", "-", "free", "-", "-", "-", "-"];
    cells.map(|text| (text.to_owned(), PLAIN))
}

fn other_names(names: &[String]) -> String {
    if names.is_empty() {
        return String::new();
    }
    let paths: Vec<String> = names.iter().map(|name| device_path(&printable(name))).collect();
    format!("  also {}\n", paths.join(", "))
}

/// The first row of each holder, and the names of all its locks.
fn of_each_holder(rows: &[Row]) -> Vec<(&Row, Vec<&str>)> {
    let mut shown: Vec<(&Row, Vec<&str>)> = Vec::new();
    for row in rows {
        let same = |(first, _): &&mut (&Row, Vec<&str>)| {
            let (first, holder) = (&first.holder, &row.holder);
            first.pid.is_some() && first.pid == holder.pid && first.standing == holder.standing
        };
        match shown.iter_mut().find(same) {
            Some((_, locks)) => locks.push(row.lock()),
            None => shown.push((row, vec![row.lock()])),
        }
    }
    shown
}

fn line(row: &Row, locks: &[&str]) -> [Cell; 8] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let more = locks.len().saturating_sub(FILES_SHOWN);
    let mut names = locks.iter().take(FILES_SHOWN).copied().collect::<Vec<_>>().join(",");
    if more > 0 {
        names.push_str(&format!(",+{more}"));
    }
    let holder = &row.holder;
    let style = if holder.standing == Standing::Alive { PLAIN } else { WARNING };
    [
        (device_path(&holder.device), PLAIN),
        (or_dash(holder.pid.map(|pid| pid.to_string())), PLAIN),
        (or_dash(row.user().or_else(|| Some(format!("({})", row.owner.as_ref()?)))), PLAIN),
        (holder.standing.word().to_owned(), style),
        (or_dash(holder.since.and_then(local)), PLAIN),
        (or_dash(row.age.map(span)), PLAIN),
        (names, PLAIN),
        (or_dash(holder.command.clone()), PLAIN),
    ]
}
