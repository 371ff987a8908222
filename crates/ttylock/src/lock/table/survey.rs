//! Lists the holders of devices, or of every device, under every scheme. Changes nothing.

use std::time::{Instant, SystemTime};

use pidlockfile::process::{Fate, ProcessIdentity};
use pidlockfile::{Found, Name, process};

use super::Table;
use super::judge::{Blocked, Busy, Verdict};
use crate::device::name::DeviceName;
use crate::device::node::{Node, follow};
use crate::dialects::content::{Content, READ_LIMIT};
use crate::lock::directories::{Place, Role};
use crate::lock::flock;
use crate::lock::holders::{self, Holder, Scheme, Standing};
use crate::lock::names::{self, lock_names};

/// The holders of one device, or of all serial devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// The real node of the one device, as a name below `/dev`.
    pub port: Option<String>,
    /// The holders, also those that have ended.
    pub holders: Vec<Holder>,
    /// Whether the search came to its end. If not, there may be further holders by `flock(2)` or by an open port.
    pub is_complete: bool,
}

impl Table {
    /// The holders of a device, also those that have ended, under any scheme that is visible without opening it.
    /// Nothing is changed. A name that leads nowhere has no holders.
    pub fn holders(&mut self, device: &DeviceName) -> Vec<Holder> {
        self.survey(Some(device.clone()))
    }

    /// The holders of all devices, also those that have ended: every lock file in every directory, and every serial
    /// device that is locked by flock or open.
    pub fn all_holders(&mut self) -> Vec<Holder> {
        self.survey(None)
    }

    fn survey(&mut self, question: Option<DeviceName>) -> Vec<Holder> {
        let survey = self.surveys(&[question], None).pop().flatten();
        survey.map(|survey| survey.holders).unwrap_or_default()
    }

    /// The holders of each of these devices; of all serial devices where the question names none. The kernel's list is
    /// read once for all questions, and so are the processes. The search ends at that moment at the latest, complete or
    /// not. `None` for a name that leads nowhere.
    pub fn surveys(
        &mut self,
        questions: &[Option<DeviceName>],
        by: Option<Instant>,
    ) -> Vec<Option<Survey>> {
        self.flocks.end_by(by);
        let mut serial = Vec::new();
        if questions.contains(&None) {
            serial = holders::serial_devices(&self.layout.dev_dir);
        }
        let mut nodes = serial.clone();
        let with_lock_files = |question: &Option<DeviceName>| match question {
            Some(device) => self.survey_lock_files(device, &mut nodes, by),
            None => Some(self.survey_all_lock_files(&serial, by)),
        };
        let mut surveys: Vec<Option<Survey>> = questions.iter().map(with_lock_files).collect();
        self.events.clear();
        self.flocks.end_by(None);
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

    /// The holders of one device by lock files; its node is added to those that are to be searched for.
    fn survey_lock_files(
        &mut self,
        device: &DeviceName,
        nodes: &mut Vec<(String, Node)>,
        by: Option<Instant>,
    ) -> Option<Survey> {
        let mut resolved = follow(&self.layout.dev_dir, device).ok()?;
        // If the links cannot be read now, fewer holders are seen.
        let _ = self.add_links(&mut resolved);
        let lock_names = lock_names(self.layout.dialect, &resolved).ok()?;
        let real = resolved.real().to_owned();
        let mut holders = Vec::new();
        let is_complete = by.is_none_or(|by| Instant::now() < by);
        if let (Ok(open), true) = (self.open(), is_complete) {
            let now = SystemTime::now();
            let names = || lock_names.written.iter().chain(&lock_names.searched);
            for place in open.each() {
                for name in names() {
                    holders.extend(self.holders_by_file(place, name, &real, now));
                }
            }
        }
        if let Some(node) = resolved.node.filter(|_| !nodes.iter().any(|(name, _)| *name == real)) {
            nodes.push((real.clone(), node));
        }
        Some(Survey { port: Some(real), holders, is_complete })
    }

    fn survey_all_lock_files(&mut self, devices: &[(String, Node)], by: Option<Instant>) -> Survey {
        let (mut holders, mut is_complete) = (Vec::new(), true);
        if let Ok(open) = self.open() {
            let now = SystemTime::now();
            for (place, role) in open.each() {
                for name in place.lock_names() {
                    let device = names::device_of(self.layout.dialect, name.as_str(), devices);
                    let Some(device) = device else { continue };
                    is_complete = by.is_none_or(|by| Instant::now() < by);
                    if !is_complete {
                        break;
                    }
                    holders.extend(self.holders_by_file((place, role), &name, &device, now));
                }
            }
        }
        Survey { port: None, holders, is_complete }
    }

    /// The living process that has a lock of the device, by the records that are made when a lock is taken. A lock
    /// file alone proves nothing, because any user may have written it.
    pub fn holder_on_record(&mut self, device: &DeviceName) -> Option<ProcessIdentity> {
        let mut resolved = follow(&self.layout.dev_dir, device).ok()?;
        let _ = self.add_links(&mut resolved);
        let lock_names = lock_names(self.layout.dialect, &resolved).ok()?;
        let open = self.open().ok()?;
        lock_names.written.iter().find_map(|name| {
            let Ok(Found::File(judged)) = open.own.directory.read(name, READ_LIMIT) else {
                return None;
            };
            let pid = Content::parse(judged.content()).ok()?.pid;
            let records = self.records();
            let who = records.recorded(name, pid, judged.identity(), judged.modified())?;
            let is_ours = !records.is_elsewhere(&who) && records.fate(&who) == Fate::Same;
            is_ours.then_some(who)
        })
    }

    /// The process that a lock file names, and the process that prevents the breaking of a stale file.
    fn holders_by_file(
        &mut self,
        (place, role): (&Place, Role),
        name: &Name,
        device: &str,
        now: SystemTime,
    ) -> Vec<Holder> {
        let Some(holder) = self.holder((place, role), name, device, now) else { return Vec::new() };
        let in_the_way = (holder.standing == Standing::Stale)
            .then(|| self.blocked_by(place, name))
            .flatten()
            .and_then(Blocked::holder)
            .filter(|by| matches!(by, flock::Holder::Process(_)))
            .map(|by| Holder::by_flock(device, by));
        std::iter::once(holder).chain(in_the_way).collect()
    }

    pub(super) fn holder(
        &mut self,
        (place, role): (&Place, Role),
        name: &Name,
        device: &str,
        now: SystemTime,
    ) -> Option<Holder> {
        let scheme = Scheme::of_file(place.path.join(name.as_str()));
        let mut holder = Holder::unknown(device, scheme);
        let judged = match place.directory.read(name, READ_LIMIT).ok()? {
            Found::Nothing => return None,
            Found::Obstacle(_) if self.counts(place, role, name) => return Some(holder),
            Found::Obstacle(_) => return Some(Holder { standing: Standing::Claim, ..holder }),
            Found::File(judged) => judged,
        };
        let content = Content::parse(judged.content()).ok();
        let (file, written) = (judged.identity(), judged.modified());
        holder.pid = content.as_ref().map(|content| content.pid);
        holder.since = Some(written);
        holder.owner = Some(judged.owner());
        let counts = self.counts(place, role, name);
        holder.standing = match self.sentence(judged, now, name) {
            Verdict::Stale(..) => Standing::Stale,
            _ if !counts => Standing::Claim,
            Verdict::Busy(Busy::Held(_)) => Standing::Alive,
            Verdict::Busy(_) | Verdict::NotYet(_) | Verdict::Free => Standing::Unknown,
        };
        // A process with the number of an ended one is not the holder.
        let living = holder.pid.filter(|_| holder.standing == Standing::Alive);
        let noted = holder.pid.and_then(|pid| self.records().user(name, pid, file, written));
        holder.user = noted.or_else(|| living.and_then(process::owner));
        let note = content.map(|content| content.note).filter(|note| !note.is_empty());
        holder.command = living.and_then(holders::command).or(note);
        Some(holder)
    }
}
