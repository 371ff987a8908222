//! The locks of a machine. Only this file and those below it combine names, records and disk.
//!
//! This file has what all requests share; each kind of request has a file of its own in `table/`.
//!
//! Nothing here knows the protocol. The table never takes or releases a lock on its own account: a lock
//! belongs to the process that asked for it, until that process releases it or ends.

use std::fs::File;
use std::rc::Rc;
use std::time::SystemTime;

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

/// How often a name is tried again if other processes change it between our check and our action. Each change means
/// that another process has made progress, so this limits trouble, not waiting.
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

pub use attempts::Answer;
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
    /// The lock that was taken last. If the same client releases it, the device need not be resolved again.
    taken: Option<Taken>,
    /// The processes that a daemon watches for their end.
    watched: Watched,
    events: Vec<Event>,
    said_unseen: bool,
    flocks: Flocks,
    /// Files without a name. They are closed later, because the last close of a file takes as long as two requests.
    spent: Vec<File>,
}

/// A lock that was taken, with its names.
#[derive(Debug)]
struct Taken {
    request: Request,
    /// The real name of the device.
    device: String,
    names: Vec<Name>,
}

/// Why a lock or a release has stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stop {
    /// This process has the lock, if it is known.
    Busy(Option<ProcessIdentity>),
    Denied,
    /// There will be an answer a moment later; the caller comes back for it.
    NotYet(Cause),
}

impl Table {
    /// Opens nothing yet; the answers show which directories cannot be opened.
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
            events: Vec::new(),
            said_unseen: false,
            flocks: Flocks::default(),
            spent: Vec::new(),
        }
    }

    /// The directories that it uses.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Does in advance the work that any request will need. To be called when there is nothing else to do. The
    /// answers show what has failed.
    pub fn prepare(&mut self) {
        let known = self.events.len();
        self.records();
        if self.open().is_err() {
            // The events are reported when they matter.
            self.events.truncate(known);
        }
        // If it fails, it is tried again when it matters.
        let _ = self.links.refresh(&self.layout.dev_dir, SystemTime::now());
    }

    /// Whether there is anything to [`Table::flush`].
    #[must_use]
    pub fn is_unsettled(&self) -> bool {
        self.deferred() > 0
    }

    /// The number of deferred pieces of work.
    #[must_use]
    pub fn deferred(&self) -> usize {
        self.spent.len()
    }

    /// Does the work for which no client waits, and returns its events. Call it when there is time, but soon.
    pub fn flush(&mut self) -> Vec<Event> {
        self.spent.clear();
        std::mem::take(&mut self.events)
    }

    /// Opens all directories again at the next request: some may be new, or may have been replaced.
    pub fn reopen(&mut self) {
        self.open = None;
        self.records = None;
    }

    /// The open lock directories, to be watched.
    pub fn directories(&mut self) -> Vec<&pidlockfile::Directory> {
        let _ = self.open();
        self.events.clear();
        let open = self.open.iter();
        open.flat_map(|open| std::iter::once(&open.own).chain(&open.others))
            .map(|place| &place.directory)
            .collect()
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

    /// A record has the name of its lock, so records must not be in a directory of locks.
    ///
    /// A link to the records need not come from the administrator: if the lock directory is open to all users, any
    /// user may put such a link at the name of a searched directory below it.
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
                let text = format!("no notes are kept in {dir}: every user may write there");
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
