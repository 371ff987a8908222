//! The locks of a machine. Only this file and those below it combine names, records and disk.
//!
//! This file has what all requests share; each kind of request has a file of its own in `table/`.
//!
//! Nothing here knows the protocol. The table never takes or releases a lock on its own account: a lock
//! belongs to the process that asked for it, until that process releases it or ends.

use std::fs::File;
use std::rc::Rc;
use std::time::{Instant, SystemTime};

use pidlockfile::Name;
use pidlockfile::process::ProcessIdentity;

use super::directories::Directories;
use super::flock::Flocks;
use super::flock_guards::FlockGuards;
use super::holder_records::HolderRecords;
use super::watched::Watched;
use super::{Cause, Event, Request, Weight};
use crate::device::links::Links;
use crate::layout::Layout;
use crate::limits::DEFERRED_MOST;

/// World-readable and writable by nobody: Qt steals a live lock that it can write, and minicom
/// opens a port past a lock that it cannot read.
const LOCK_MODE: u32 = 0o444;

/// The start of temporary names; no program's lock starts like this.
const TEMPORARY: &str = "lfpd";

/// How often a name is tried again when others change it between our look and our step. Each
/// time means that somebody else got further, so this is a bound on trouble, not on waiting.
const ATTEMPTS: usize = 64;

mod attempts;
mod ends;
mod handover;
mod judge;
mod keeping;
mod pass;
mod refuse;
mod release;
mod resolve;
mod survey;
mod take;

#[cfg(test)]
mod taking_tests;

pub use resolve::Names;
pub use survey::Survey;

/// The locks of this machine, for one session or for a whole daemon.
#[derive(Debug)]
pub struct Table {
    layout: Layout,
    open: Option<Rc<Directories>>,
    records: Option<HolderRecords>,
    links: Links,
    guards: FlockGuards,
    /// The lock that was taken last: who takes one and gives it back is told nothing new of the device.
    taken: Option<Taken>,
    /// Whose ends a daemon waits for.
    watched: Watched,
    blocker: Option<ProcessIdentity>,
    released: Option<String>,
    events: Vec<Event>,
    said_unseen: bool,
    flocks: Flocks,
    /// When the request that is attempted now was made.
    asked: Option<Instant>,
    /// Files that have no name any more: the last close of one takes as long as two requests for
    /// the next one.
    spent: Vec<File>,
}

/// A lock that was taken, and under which names.
#[derive(Debug)]
struct Taken {
    request: Request,
    /// The real name of the device.
    device: String,
    names: Vec<Name>,
}

/// The reason to stop on the way to a lock or its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Busy,
    Denied,
    /// There will be an answer a moment later, and whoever asks comes back for it.
    NotYet(Cause),
}

impl Table {
    /// Opens nothing yet: directories that cannot be opened show in the answers.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        Self {
            layout,
            open: None,
            records: None,
            links: Links::default(),
            guards: FlockGuards::default(),
            taken: None,
            watched: Watched::default(),
            blocker: None,
            released: None,
            events: Vec::new(),
            said_unseen: false,
            flocks: Flocks::default(),
            asked: None,
            spent: Vec::new(),
        }
    }

    /// Where it looks.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Does beforehand what a request will need, and what can be done without knowing which: for
    /// a time in which there is nothing else to do. What fails shows in the answers.
    pub fn prepare(&mut self) {
        let known = self.events.len();
        self.records();
        if self.open().is_err() {
            // It is said when it matters.
            self.events.truncate(known);
        }
        // What fails is tried again when it matters.
        let _ = self.links.refresh(&self.layout.dev_dir, SystemTime::now());
    }

    /// Whether there is anything to [`Table::flush`].
    #[must_use]
    pub fn is_unsettled(&self) -> bool {
        self.deferred() > 0
    }

    /// How much work is deferred.
    #[must_use]
    pub fn deferred(&self) -> usize {
        self.spent.len()
    }

    /// Does what no client need wait for, and tells what happened. Do it when there is time for it,
    /// but soon.
    pub fn flush(&mut self) -> Vec<Event> {
        self.spent.clear();
        std::mem::take(&mut self.events)
    }

    /// Opens all directories anew at the next request: some may have come, or been replaced.
    pub fn reopen(&mut self) {
        self.open = None;
        self.records = None;
    }

    /// The open lock directories, for those who watch them.
    pub fn directories(&mut self) -> Vec<&pidlockfile::Directory> {
        let _ = self.open();
        self.events.clear();
        let open = self.open.iter();
        open.flat_map(|open| std::iter::once(&open.own).chain(&open.others))
            .map(|place| &place.directory)
            .collect()
    }

    /// The process that kept the last request from its lock, where one is known.
    #[must_use]
    pub fn blocker(&self) -> Option<&ProcessIdentity> {
        self.blocker.as_ref()
    }

    /// The device that the last request released, as the real name below `/dev`.
    pub fn take_released(&mut self) -> Option<String> {
        self.released.take()
    }

    fn say(&mut self, weight: Weight, text: String) {
        self.events.push(Event { weight, text });
    }

    /// The lock directories, opened once.
    fn open(&mut self) -> Result<Rc<Directories>, Stop> {
        if let Some(open) = &self.open {
            return Ok(Rc::clone(open));
        }
        let Layout { lock_dir, search_dirs, .. } = &self.layout;
        let mut open = Directories::all(lock_dir, search_dirs).map_err(|error| {
            self.say(Weight::Warning, format!("no lock can be written: {error}"));
            Stop::Denied
        })?;
        self.keep_records_apart(&mut open);
        let open = open.gated(self.records().gate());
        Ok(Rc::clone(self.open.insert(Rc::new(open))))
    }

    /// A record has its lock's name: in a directory of locks one would take the other's place.
    ///
    /// A link to the records is nothing of the administrator's: where the lock directory is open to
    /// all, anybody may make one by the name of a directory that is searched below it.
    fn keep_records_apart(&mut self, open: &mut Directories) {
        let identity = self.records().identity();
        open.others.retain(|place| {
            Some(place.directory.identity()) != identity || !place.path.is_symlink()
        });
        let mut places = std::iter::once(&open.own).chain(&open.others);
        if identity.is_some() && places.any(|place| Some(place.directory.identity()) == identity) {
            let dir = self.layout.state_dir.display();
            let text = format!("no notes are kept in {dir}: it is a directory of locks");
            self.say(Weight::Warning, text);
            self.records = Some(HolderRecords::none());
        }
    }

    fn records(&mut self) -> &mut HolderRecords {
        self.records.get_or_insert_with(|| {
            let state = HolderRecords::open(&self.layout.state_dir);
            if state.is_everybodys() {
                let dir = self.layout.state_dir.display();
                let text = format!("no notes are kept in {dir}: everybody may write there");
                self.events.push(Event { weight: Weight::Warning, text });
            }
            state
        })
    }

    fn put_off_closing(&mut self, spent: Option<File>) {
        if self.spent.len() < DEFERRED_MOST {
            self.spent.extend(spent);
        }
    }
}
