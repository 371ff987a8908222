//! Lists the holders of devices, or of every device, under every scheme. Changes nothing.

use std::time::Instant;

use pidlockfile::process::{Fate, ProcessIdentity, Start};
use pidlockfile::{Found, Name, Pid, process};

use super::classify::{Busy, pid_in};
use super::resolve;
use super::state::State;
use crate::device::name::DeviceName;
use crate::device::node::{Node, ResolvedDevice, follow};
use crate::dialects::content::{Content, READ_LIMIT};
use crate::layout::Layout;
use crate::lock::directories::{Directories, Place};
use crate::lock::flock::FlockHolder;
use crate::lock::flock_rights::Flocker;
use crate::lock::holders::{self, Holder, Scheme, Standing};
use crate::lock::names::{self, LockNames, lock_names};

/// The holders of one device, or of all serial devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// The real node of the one device, as a name below `/dev`.
    pub port: Option<String>,
    /// The holders, also those that have ended.
    pub holders: Vec<Holder>,
    /// Whether the search came to its end. If not, there may be further holders.
    pub is_complete: bool,
}

/// See [`super::Table::surveys`].
pub(super) fn surveys(
    layout: &Layout,
    open: Option<&Directories>,
    state: &mut State,
    questions: &[Option<DeviceName>],
    by: Instant,
) -> Vec<Option<Survey>> {
    state.flocks.end_by(Some(by));
    let mut serial = Vec::new();
    if questions.contains(&None) {
        serial = holders::serial_devices(&layout.dev_dir);
    }
    let mut nodes = serial.clone();
    let with_lock_files = |question: &Option<DeviceName>| match question {
        Some(device) => survey_lock_files(layout, open, state, device, &mut nodes, by),
        None => Some(survey_all_lock_files(layout, open, state, &serial, by)),
    };
    let mut surveys: Vec<Option<Survey>> = questions.iter().map(with_lock_files).collect();
    state.flocks.end_by(None);
    let (others, is_complete) = holders::without_lock_files(&nodes, by);
    for survey in surveys.iter_mut().flatten() {
        let is_asked = |device: &str| match &survey.port {
            Some(port) => device == port,
            None => serial.iter().any(|(name, _)| name == device),
        };
        let others = others.iter().filter(|holder| is_asked(&holder.device)).cloned();
        let others: Vec<Holder> = others.collect();
        survey.holders.extend(others);
        survey.is_complete &= is_complete;
        if survey.port.is_none() {
            survey.holders.sort_by(|a, b| (&a.device, &a.scheme).cmp(&(&b.device, &b.scheme)));
        }
    }
    surveys
}

/// A device and its lock files. If its links cannot be read now, fewer of them are known.
fn names_of(
    layout: &Layout,
    state: &mut State,
    device: &DeviceName,
) -> Option<(ResolvedDevice, LockNames)> {
    let mut resolved = follow(&layout.dev_dir, device).ok()?;
    let _ = resolve::add_links(layout, state, &mut resolved);
    let lock_names = lock_names(layout.dialect, &resolved)?;
    Some((resolved, lock_names))
}

/// The holders of one device by lock files; its node is added to those that are to be searched for.
fn survey_lock_files(
    layout: &Layout,
    open: Option<&Directories>,
    state: &mut State,
    device: &DeviceName,
    nodes: &mut Vec<(String, Node)>,
    by: Instant,
) -> Option<Survey> {
    let (resolved, lock_names) = names_of(layout, state, device)?;
    let real = resolved.real().to_owned();
    let mut holders = Vec::new();
    let is_complete = Instant::now() < by;
    for place in open.into_iter().filter(|_| is_complete).flat_map(Directories::each) {
        for name in lock_names.all() {
            holders.extend(holders_by_file(state, place, name, &real));
        }
    }
    if let Some(node) = resolved.node.filter(|_| !nodes.iter().any(|(name, _)| *name == real)) {
        nodes.push((real.clone(), node));
    }
    Some(Survey { port: Some(real), holders, is_complete })
}

/// See [`super::Table::all_lock_files`].
pub(super) fn all_lock_files(
    layout: &Layout,
    open: Option<&Directories>,
    state: &mut State,
    by: Instant,
) -> Survey {
    let serial = holders::serial_devices(&layout.dev_dir);
    state.flocks.end_by(Some(by));
    let survey = survey_all_lock_files(layout, open, state, &serial, by);
    state.flocks.end_by(None);
    survey
}

fn survey_all_lock_files(
    layout: &Layout,
    open: Option<&Directories>,
    state: &mut State,
    devices: &[(String, Node)],
    by: Instant,
) -> Survey {
    let (mut holders, mut is_complete) = (Vec::new(), true);
    for place in open.into_iter().flat_map(Directories::each) {
        for name in place.lock_names() {
            let device = names::device_of(layout.dialect, name.as_str(), devices);
            let Some(device) = device else { continue };
            is_complete = Instant::now() < by;
            if !is_complete {
                break;
            }
            holders.extend(holders_by_file(state, place, &name, &device));
        }
    }
    Survey { port: None, holders, is_complete }
}

/// See [`super::Table::is_foreseen_for`].
pub(super) fn is_foreseen_for(
    layout: &Layout,
    open: &Directories,
    state: &State,
    resolved: &ResolvedDevice,
    pid: Pid,
) -> bool {
    let names = lock_names(layout.dialect, resolved);
    let Some(name) = names.and_then(|names| names.written.into_iter().next()) else { return false };
    let Ok(Found::File(judged)) = open.own.directory.read(&name, READ_LIMIT) else { return false };
    if pid_in(&judged) != Some(pid) {
        return false;
    }
    let record = state.record_of(&name, &judged);
    record.is_none_or(|record| record.holder.start == Start::Nobody)
}

/// See [`super::Table::holder_on_record`].
pub(super) fn holder_on_record(
    layout: &Layout,
    open: &Directories,
    state: &mut State,
    device: &DeviceName,
) -> Option<ProcessIdentity> {
    let (_, lock_names) = names_of(layout, state, device)?;
    lock_names.written.iter().find_map(|name| {
        let Ok(Found::File(judged)) = open.own.directory.read(name, READ_LIMIT) else {
            return None;
        };
        let who = state.record_of(name, &judged)?.holder;
        let is_ours = !state.is_elsewhere(&who) && state.machine.fate(&who) == Fate::Same;
        is_ours.then_some(who)
    })
}

/// The process that a lock file names, and the process that prevents the breaking of a stale file.
fn holders_by_file(state: &mut State, place: &Place, name: &Name, device: &str) -> Vec<Holder> {
    let mut holder = Holder::unknown(device, Scheme::of_file(place.path.join(name.as_str())));
    let found = place.directory.read(name, READ_LIMIT);
    let counts = state.counts(place, &found).is_ok();
    let judged = match found {
        Ok(Found::File(judged)) => judged,
        Ok(Found::Obstacle(_)) if counts => return vec![holder],
        Ok(Found::Obstacle(_)) => return vec![Holder { standing: Standing::Claim, ..holder }],
        Ok(Found::Nothing) | Err(_) => return Vec::new(),
    };
    let content = Content::parse(judged.content()).ok();
    holder.pid = content.as_ref().map(|content| content.pid);
    let file = judged.status();
    holder.since = Some(file.modified);
    holder.owner = Some(file.owner);
    let noted = state.record_of(name, &judged).and_then(|record| record.uid);
    holder.standing = match state.classify(name, judged) {
        Ok(_) => Standing::Stale,
        Err(_) if !counts => Standing::Claim,
        Err(Busy::Held(_)) => Standing::Alive,
        Err(_) => Standing::Unknown,
    };
    // A process with the number of an ended one is not the holder.
    let living = holder.pid.filter(|_| holder.standing == Standing::Alive);
    holder.user = noted.or_else(|| living.and_then(process::owner));
    let note = content.map(|content| content.note).filter(|note| !note.is_empty());
    holder.command = living.and_then(holders::command).or(note);
    let is_stale = holder.standing == Standing::Stale;
    let mut found = vec![holder];
    if is_stale {
        if let Ok(Flocker::Counts(by @ FlockHolder::Process(_))) = state.flocker(place, file) {
            found.push(Holder::by_flock(device, by));
        }
    }
    found
}
