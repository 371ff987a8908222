//! Lists the holders of devices, or of every device, under every scheme. Changes nothing.

use std::time::Instant;

use pidlockfile::process::{Fate, ProcessIdentity, Start, lives};
use pidlockfile::{Pid, process};

use super::classify::counts_as_lock;
use super::lock_file::{Busy, pid_in};
use super::resolve;
use super::state::State;
use crate::device::DeviceName;
use crate::device::node::{Node, ResolvedDevice, follow};
use crate::dialects::content::Content;
use crate::limits::LOCKS_FOR_INVENTED;
use crate::lock::Stop;
use crate::lock::directories::LockFile;
use crate::lock::flock::{FlockHolder, Flocker};
use crate::lock::holders::out_of_sight;
use crate::lock::holders::{self, Holder, Scheme, Standing, Survey};
use crate::lock::names::{self, LockNames, lock_names, written_names};

/// See [`super::Table::surveys`].
pub(super) fn surveys(
    state: &mut State,
    questions: &[Option<DeviceName>],
    by: Instant,
) -> Vec<Option<Survey>> {
    let mut serial = Vec::new();
    if questions.contains(&None) {
        serial = holders::serial_devices(&state.layout.dev_dir);
    }
    let mut nodes = serial.clone();
    let with_lock_files = |question: &Option<DeviceName>| match question {
        Some(device) => survey_lock_files(state, device, &mut nodes, by),
        None => Some(all_lock_files(state, &serial, by)),
    };
    let mut surveys: Vec<Option<Survey>> = questions.iter().map(with_lock_files).collect();
    let out_of_sight = out_of_sight();
    let (others, is_complete) = holders::without_lock_files(&nodes, &mut state.flocks, by);
    for survey in surveys.iter_mut().flatten() {
        let is_asked = |device: &str| match &survey.port {
            Some(port) => device == port,
            None => serial.iter().any(|(name, _)| name == device),
        };
        let others = others.iter().filter(|holder| is_asked(&holder.device)).cloned();
        let others: Vec<Holder> = others.collect();
        survey.holders.extend(others);
        survey.is_complete &= is_complete;
        survey.out_of_sight = out_of_sight;
        if survey.port.is_none() {
            survey.holders.sort_by(|a, b| (&a.device, &a.scheme).cmp(&(&b.device, &b.scheme)));
        }
    }
    surveys
}

/// A device and its lock files. If its links cannot be read now, fewer of them are known.
fn find_with_lock_names(
    state: &mut State,
    device: &DeviceName,
) -> Option<(ResolvedDevice, LockNames)> {
    let mut resolved = follow(&state.layout.dev_dir, device).ok()?;
    let _ = resolve::add_links(state, &mut resolved);
    let lock_names = lock_names(state.layout.dialect, &resolved)?;
    Some((resolved, lock_names))
}

/// The holders of one device by lock files; its node is added to those that are to be searched for.
fn survey_lock_files(
    state: &mut State,
    device: &DeviceName,
    nodes: &mut Vec<(String, Node)>,
    by: Instant,
) -> Option<Survey> {
    let (resolved, lock_names) = find_with_lock_names(state, device)?;
    let real = resolved.real().to_owned();
    let mut holders = Vec::new();
    // Without lock directories, holders of other kinds are found.
    let open = state.open();
    let is_complete = Instant::now() < by && !matches!(open, Err(Stop::Busy(_)));
    let open = open.ok().filter(|_| is_complete);
    for place in open.iter().flat_map(|open| open.each()) {
        for name in lock_names.all() {
            holders.extend(holders_by_file(state, place.file(name), &real));
        }
    }
    if let Some(node) = resolved.node.filter(|_| !nodes.iter().any(|(name, _)| *name == real)) {
        nodes.push((real.clone(), node));
    }
    Some(Survey { port: Some(real), ..Survey::new(holders, is_complete) })
}

/// See [`super::Table::all_lock_files`].
pub(super) fn all_lock_files(state: &mut State, devices: &[(String, Node)], by: Instant) -> Survey {
    let mut holders = Vec::new();
    let open = state.open();
    let mut is_complete = !matches!(open, Err(Stop::Busy(_)));
    for place in open.iter().flat_map(|open| open.each()) {
        for name in place.lock_names(LOCKS_FOR_INVENTED) {
            let device = names::device_of(state.layout.dialect, name.as_str(), devices);
            let Some(device) = device else { continue };
            is_complete = Instant::now() < by;
            if !is_complete {
                break;
            }
            holders.extend(holders_by_file(state, place.file(&name), &device));
        }
    }
    Survey::new(holders, is_complete)
}

/// See [`super::Table::is_locked_for_missing`].
pub(super) fn is_locked_for_missing(
    state: &mut State,
    resolved: &ResolvedDevice,
    pid: Pid,
) -> bool {
    let names = written_names(state.layout.dialect, resolved);
    let Some(name) = names.and_then(|names| names.written.into_iter().next()) else { return false };
    let Ok(open) = state.open() else { return false };
    let Ok(Some(lock)) = state.read(open.own.file(&name)) else { return false };
    let is_missing = lock.record.as_ref().is_none_or(|it| it.holder.start == Start::Nobody);
    pid_in(&lock.opened) == Some(pid) && is_missing
}

/// See [`super::Table::holder_on_record`].
pub(super) fn holder_on_record(state: &mut State, device: &DeviceName) -> Option<ProcessIdentity> {
    let mut recorded = recorded(state, device).into_iter();
    recorded.find(|who| !state.is_elsewhere(who) && state.machine.fate(who) == Fate::Same)
}

/// See [`super::Table::is_held_elsewhere`].
pub(super) fn is_held_elsewhere(state: &mut State, device: &DeviceName) -> bool {
    recorded(state, device).iter().any(|who| state.is_elsewhere(who))
}

/// The processes for which the lock files of a device were written, by the records.
fn recorded(state: &mut State, device: &DeviceName) -> Vec<ProcessIdentity> {
    let Ok(open) = state.open() else { return Vec::new() };
    let Some((_, lock_names)) = find_with_lock_names(state, device) else { return Vec::new() };
    let recorded = lock_names
        .written
        .iter()
        .filter_map(|name| Some(state.read(open.own.file(name)).ok()??.record?.holder));
    recorded.collect()
}

/// The process that a lock file names, and the process that prevents the breaking of a stale file.
fn holders_by_file(state: &mut State, file: LockFile<'_>, device: &str) -> Vec<Holder> {
    let LockFile { place, name } = file;
    let mut holder = Holder::unknown(device, Scheme::of_file(place.path.join(name.as_str())));
    let found = file.read();
    let counts = counts_as_lock(place, &found).is_ok();
    let lock = match state.read_on(file, found) {
        Ok(Some(lock)) => lock,
        Err(Busy::Obstacle(_)) if counts => return vec![holder],
        Err(Busy::Obstacle(_)) => return vec![Holder { standing: Standing::Ignored, ..holder }],
        Ok(None) | Err(_) => return Vec::new(),
    };
    let (opened, record) = (&lock.opened, lock.record.as_ref());
    let content = Content::parse(opened.content()).ok();
    let seen = opened.status();
    holder.since = Some(seen.modified);
    holder.owner = Some(seen.owner);
    let named = record.map(|record| record.holder.pid);
    holder.pid = named.or_else(|| content.as_ref().map(|content| content.holder(lives)));
    let noted = record.and_then(|it| it.uid);
    holder.standing = match state.classify(lock) {
        Ok(_) => Standing::Stale,
        Err(_) if !counts => Standing::Ignored,
        Err(Busy::Held(_)) => Standing::Alive,
        Err(_) => Standing::Unknown,
    };
    // A process with the number of an ended one is not the holder.
    let living = holder.pid.filter(|_| holder.standing == Standing::Alive);
    holder.user = noted.or_else(|| living.and_then(process::real_user));
    let note = content.map(|content| content.note).filter(|note| !note.is_empty());
    holder.command = living.and_then(holders::command).or(note);
    let is_stale = holder.standing == Standing::Stale;
    let mut found = vec![holder];
    if is_stale {
        // This process locks a stale file for a moment while it judges it for a waiting client.
        match state.flocker(place, seen, Some(Pid::this())) {
            // Nothing is known of a holder that may be there.
            Ok(Flocker::Counts(FlockHolder::Unseen) | Flocker::Ignored(_) | Flocker::Nobody)
            | Err(_) => {}
            Ok(Flocker::Counts(by)) => found.push(Holder::by_flock(device, by)),
        }
    }
    found
}
