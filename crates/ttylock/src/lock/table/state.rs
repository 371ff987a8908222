//! What one process knows and keeps of the locks of the machine, and the events of the request that it serves.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Instant;

use pidlockfile::process::{Machine, Observed, lives};
use pidlockfile::{Name, NewFile, Passage, Pid, Published, Status};

use crate::device::ResolvedDevice;
use crate::device::other_names::LinkDirectories;
use crate::layout::Layout;
use crate::lock::backoff::Backoff;
use crate::lock::directories::{Directories, LockFile, Place, WrittenFile};
use crate::lock::flock::Flocks;
use crate::lock::flock_guards::FlockGuards;
use crate::lock::held_files::HeldFiles;
use crate::lock::holder_records::{Applicant, Claimant, HolderRecord, HolderRecords};
use crate::lock::names::LockNames;
use crate::lock::{Event, Stop, Weight};

/// World-readable and writable by nobody: Qt steals a live lock that it can write, and minicom
/// opens a port past a lock that it cannot read.
pub(super) const LOCK_MODE: u32 = 0o444;

/// The start of temporary names; no program's lock starts like this.
pub(super) const TEMPORARY: &str = "lfpd";

/// How often a name is tried again if other processes change it between our check and our action. Each change means
/// that another process has made progress, so this limits trouble, not waiting.
pub(super) const ATTEMPTS: usize = 64;

/// See the head of the file.
#[derive(Debug)]
pub(super) struct State {
    pub(super) layout: Layout,
    open: Option<Arc<Directories>>,
    /// How often, and since when, the request that is under way has been attempted.
    pub(super) backoff: Backoff,
    pub(super) events: Vec<Event>,
    pub(super) machine: Machine,
    /// The process that has asked last.
    pub(super) observed: Option<Arc<Observed>>,
    pub(super) links: LinkDirectories,
    /// The device whose lock names were worked out last, and these.
    pub(super) last_names: Option<(ResolvedDevice, Arc<LockNames>)>,
    /// Without a directory until the lock directories are open.
    pub(super) records: HolderRecords,
    pub(super) guards: FlockGuards,
    /// The processes that a daemon watches for their end.
    pub(super) held: HeldFiles,
    pub(super) flocks: Flocks,
    /// Whether the request stays in the gate from one file to the next.
    pub(super) stays_in_gate: bool,
    /// Its passage while it stays there.
    pub(super) passage: Option<Passage>,
    said_unseen: bool,
}

/// A lock file that a request has written.
#[derive(Debug)]
pub(super) struct Taken {
    /// The names that lead to it, in the order in which they were given.
    pub(super) names: Vec<Name>,
    pub(super) published: Published,
    /// `None` if this user cannot record it.
    pub(super) record: Option<HolderRecord>,
}

/// A lock file with this content.
pub(super) fn claim(content: &[u8]) -> NewFile<'_> {
    let mut claim = NewFile::new(content, TEMPORARY);
    claim.mode = LOCK_MODE;
    claim
}

impl State {
    pub(super) fn new(layout: Layout) -> Self {
        Self {
            layout,
            open: None,
            backoff: Backoff::since(Instant::now()),
            events: Vec::new(),
            machine: Machine::default(),
            observed: None,
            links: LinkDirectories::default(),
            last_names: None,
            records: HolderRecords::none(),
            guards: FlockGuards::default(),
            held: HeldFiles::default(),
            flocks: Flocks::default(),
            stays_in_gate: false,
            passage: None,
            said_unseen: false,
        }
    }

    /// The lock directories, which are opened once.
    pub(super) fn open(&mut self) -> Result<Arc<Directories>, Stop> {
        let open = match self.open.take() {
            Some(open) => open,
            None => Arc::new(self.open_anew()?),
        };
        Ok(Arc::clone(self.open.insert(open)))
    }

    /// The lock directories, if they are open.
    pub(super) fn opened(&self) -> Option<&Directories> {
        self.open.as_deref()
    }

    /// Opens all directories again at the next request.
    pub(super) fn close(&mut self) {
        self.open = None;
    }

    /// Opens the lock directories and the state directory.
    ///
    /// Records must not be in a directory of locks, where others may write. A link to the records need not come from the
    /// administrator: if the lock directory is open to all users, any user may put such a link at the name of a searched
    /// directory below it.
    fn open_anew(&mut self) -> Result<Directories, Stop> {
        let Layout { lock_dir, search_dirs, state_dir, .. } = self.layout.clone();
        let open = Directories::all(&lock_dir, &search_dirs);
        let mut open = open.map_err(|error| self.cannot_write(&error))?;
        let records = HolderRecords::open(&state_dir, open.own.directory.identity());
        self.records = records.map_err(|error| self.without_state(&error))?;
        let dir = state_dir.display();
        if self.records.is_everybodys() {
            let text = format!("no notes are kept in {dir}: every user may write there");
            self.say(Weight::Warning, text);
        }
        if let Some(identity) = self.records.identity() {
            let is_it = |place: &Place| place.directory.identity() == identity;
            open.others.retain(|place| !is_it(place) || !place.path.is_symlink());
            if open.each().any(is_it) {
                let text = format!("no notes are kept in {dir}: it is a directory of locks");
                self.say(Weight::Warning, text);
                self.records = HolderRecords::none();
            }
        }
        Ok(open.gated(self.records.gate()))
    }

    /// The state directory is there and cannot be used now: without its records and its gate, a living lock might be
    /// broken.
    fn without_state(&mut self, error: &std::io::Error) -> Stop {
        let dir = self.layout.state_dir.display();
        self.say(Weight::Warning, format!("busy: {dir} cannot be opened: {error}"));
        Stop::Busy(None)
    }

    pub(super) fn say(&mut self, weight: Weight, text: String) {
        self.events.push(Event { weight, text });
    }

    /// Reports once what cannot be seen.
    pub(super) fn say_unseen(&mut self, which: impl FnOnce() -> Option<String>) {
        if std::mem::replace(&mut self.said_unseen, true) {
            return;
        }
        if let Some(which) = which() {
            self.say(Weight::Warning, format!("flock holders cannot be seen {which}"));
        }
    }

    /// Whether there is a process of this number that has not ended. The one that has asked last is not looked for again.
    pub(super) fn lives(&self, pid: Pid) -> bool {
        Applicant::known(self.observed.as_ref(), pid).is_some() || lives(pid)
    }

    /// The record of the lock file of a name.
    pub(super) fn record_at(&self, file: LockFile<'_>) -> Option<HolderRecord> {
        let LockFile { place: Place { directory, .. }, name } = file;
        let seen = Status::of_name(directory, name.as_str()).ok()?;
        self.records.of_file(directory.identity(), name, WrittenFile::of(&seen)).ok()?
    }

    /// Keeps a new lock file of this holder open if fewer than `most` are, and watches for the holder's end.
    pub(super) fn keep(&mut self, file: Taken, holder: &Claimant, most: usize) {
        let Taken { names, published, .. } = file;
        if holder.was_there() {
            self.held.add(&names, &holder.who, holder.uid);
        }
        self.guards.keep(&names, &holder.who, published, most);
    }

    pub(super) fn cannot_write(&mut self, error: &impl Display) -> Stop {
        self.say(Weight::Warning, format!("no lock can be written: {error}"));
        Stop::Denied
    }
}
