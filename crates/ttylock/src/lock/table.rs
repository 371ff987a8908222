//! Taking and releasing the locks of a device: the only file that joins names, records and disk.
//!
//! Nothing here knows the protocol. No lock is ever taken for itself and none given up by itself:
//! a lock belongs to the process that asked, until it lets go or is gone.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::fstatat;
use pidlockfile::process::{self, Liveness, liveness};
use pidlockfile::{
    Breaking, Claim, Durability, Found, Identity, Judged, Name, Obstacle, Pid, Publication,
    Published, Removal, Withdrawal,
};

use super::backoff::{Backoff, Contention};
use super::flock::{self, Flocks, Sight};
use super::form::{Forms, forms};
use super::kept::Kept;
use super::open::{self, Openness};
use super::places::{Open, Place};
use super::record::{self, READ_LIMIT};
use super::seen::Seen;
use super::state::{Claimant, Remembered, State, Written};
use super::watched::Watched;
use super::who::{self, Holder, Scheme, Standing};
use super::{Answer, Contended, Event, Outcome, Request, Weight};
use crate::device::links::{self, Links};
use crate::device::name::DeviceName;
use crate::device::node::{Astray, Node, Trail, follow};
use crate::device::{sysfs, udev};
use crate::limits::{
    KEPT_FILES, KEPT_WITHOUT_DEVICE, LOCK_FILES_OF_A_USER, NAMES_OF_A_LOCK, PUT_OFF,
};
use crate::stamp::Stamp;

/// A lock file without a readable pid is busy until it is this old: somebody is about to write
/// it (FreeBSD's `uu_lock`, efax, and everybody who creates the file first and fills it then).
const WRITER_GRACE: Duration = Duration::from_secs(30);

/// World-readable and writable by nobody: Qt steals a live lock that it can write, and minicom
/// opens a port past a lock that it cannot read.
const LOCK_MODE: u32 = 0o444;

/// All users without a number in our user namespace have this one, so it tells nobody's file from
/// another's. Source: `DEFAULT_OVERFLOWUID` in the kernel's include/linux/highuid.h.
const UNMAPPED_UID: u32 = 65_534;

/// The start of temporary names; no program's lock starts like this.
const TEMPORARY: &str = "lfpd";

/// As many records are read to tell how many are one user's.
const RECORDS_COUNTED: usize = 4096;

/// How often a name is tried again when others change it between our look and our step. Each
/// time means that somebody else got further, so this is a bound on trouble, not on waiting.
const ATTEMPTS: usize = 64;

mod ends;
mod pass;

/// Where locks are written and looked for.
#[derive(Clone, Debug)]
pub struct Places {
    /// The system whose conventions apply.
    pub system: &'static crate::device::os::System,
    /// Where device nodes are: `/dev`, but for tests.
    pub dev_dir: PathBuf,
    /// Where locks are written; the system's own directory unless an option says otherwise.
    pub lock_dir: PathBuf,
    /// Directories that are searched besides `lock_dir`.
    pub search_dirs: Vec<PathBuf>,
    /// Where start times of holders are kept, so that a reused pid is noticed.
    pub state_dir: PathBuf,
    /// Where udev keeps what it knows of devices: `/run/udev/data`, but for tests.
    pub udev_dir: PathBuf,
}

/// The locks of this machine, for one session or for a whole daemon.
#[derive(Debug)]
pub struct Table {
    places: Places,
    open: Option<Open>,
    state: Option<State>,
    links: Links,
    /// What an earlier service has seen, where that is of use: not for those who only look.
    seen: Option<Seen>,
    kept: Kept,
    /// Whose ends a daemon waits for.
    watched: Watched,
    blocker: Option<Pid>,
    journal: Vec<Event>,
    said_unseen: bool,
    flocks: Flocks,
    unrecorded: Vec<Unrecorded>,
    /// Files that have no name any more: the last close of one takes as long as two requests for
    /// the next one.
    spent: Vec<File>,
}

/// A lock that was taken, and of which no record is kept yet.
#[derive(Debug)]
struct Unrecorded {
    claimant: Claimant,
    files: Vec<Written>,
}

impl Unrecorded {
    fn is_named(&self, name: &Name) -> bool {
        self.files.iter().any(|file| file.name == *name)
    }
}

/// What can be told of a device before a lock directory is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The real node, as a name below `/dev`: two names of one device have the same.
    pub real: String,
    /// Every lock file that may keep it busy.
    pub files: Vec<Name>,
}

/// What a lock file means for the one who asks.
#[derive(Debug)]
enum Verdict {
    Free,
    Busy(Busy),
    Stale(Judged, Stale),
}

/// Why a lock stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Busy {
    Held(Pid),
    BeingWritten,
    Obstacle(Obstacle),
    Unknown,
}

/// Why a lock is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stale {
    Gone(Pid),
    Reused(Pid),
    Unreadable,
}

/// What a directory is for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Written,
    Searched,
}

/// The reason to stop on the way to a lock or its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Busy,
    Denied,
    /// Another process holds `flock(2)` on a stale lock: most likely it is breaking it.
    Contended,
}

impl Table {
    /// Opens nothing yet: directories that cannot be opened show in the answers.
    #[must_use]
    pub fn new(places: Places) -> Self {
        Self {
            places,
            open: None,
            state: None,
            links: Links::default(),
            seen: None,
            kept: Kept::default(),
            watched: Watched::default(),
            blocker: None,
            journal: Vec::new(),
            said_unseen: false,
            flocks: Flocks::default(),
            unrecorded: Vec::new(),
            spent: Vec::new(),
        }
    }

    /// Does beforehand what a request will need, and what can be done without knowing which: for
    /// a time in which there is nothing else to do. What fails shows in the answers.
    pub fn prepare(&mut self) {
        let seen = self.state().seen();
        if let Some(known) = seen.links.clone() {
            self.links.believe(known);
        }
        self.seen = Some(seen);
        let known = self.journal.len();
        match self.open() {
            Ok(open) => self.open = Some(open),
            // It is said when it matters.
            Err(_) => self.journal.truncate(known),
        }
        let now = SystemTime::now();
        for place in self.open.iter_mut().flat_map(|open| &mut open.others) {
            place.is_lockless(lockless(&self.seen), now);
        }
        self.links.refresh(&self.places.dev_dir, now);
    }

    /// Whether there is anything to [`Table::settle`].
    #[must_use]
    pub fn is_unsettled(&self) -> bool {
        self.put_off() > 0
    }

    /// How much there is to settle.
    #[must_use]
    pub fn put_off(&self) -> usize {
        self.unrecorded.len().saturating_add(self.spent.len())
    }

    /// Does what no client need wait for, and tells what happened. Do it when there is time for
    /// it, but soon: a lock that is released before leaves no record, and needs none, while one
    /// that outlives this process does. Dropping the table does it as well.
    pub fn settle(&mut self) -> Vec<Event> {
        self.spent.clear();
        self.record();
        self.tell_what_was_seen();
        std::mem::take(&mut self.journal)
    }

    fn record(&mut self) {
        if self.unrecorded.is_empty() {
            return;
        }
        let open = self.open().ok();
        for Unrecorded { claimant, files } in std::mem::take(&mut self.unrecorded) {
            let stands =
                |lock: &Written| open.as_ref().is_none_or(|open| is_there(&open.own, lock));
            if let Err(errno) = self.state().remember(&claimant, &files, stands) {
                let text =
                    format!("start of pid {} is not recorded: {}", claimant.pid, errno.desc());
                self.say(Weight::Warning, text);
            }
        }
        self.open = open;
    }

    /// Saves the next service of one session some looking.
    fn tell_what_was_seen(&mut self) {
        let (Some(open), Some(known)) = (&self.open, &self.seen) else { return };
        let seen = Seen {
            lockless: open.lockless().collect(),
            absent: open.absent().to_vec(),
            links: self.links.known().cloned(),
        };
        if seen.says_more_than(known) {
            self.state().note(&seen);
            self.seen = Some(seen);
        }
    }

    /// From now on, up to so many lock files that are written stay open with `flock(2)` on them,
    /// and those that an earlier daemon wrote: for a process that lives longer than one session.
    /// Every lock in the directory that is written is looked at, and those of the dead are
    /// removed. Tell it by [`Table::gone`] when a holder is gone.
    pub fn keep_open(&mut self, limit: usize) {
        self.kept = Kept::up_to(limit);
        let Ok(open) = self.open() else {
            // It is said when it matters.
            return self.journal.clear();
        };
        {
            let content = self.places.system.content;
            let dev_dir = &self.places.dev_dir;
            let room = |name: &Name| room(trail_of(dev_dir, name).as_ref());
            self.kept.find(&open.own, LOCK_MODE, |pid| record::write(content, pid), room);
            self.watch_all(&open.own);
            self.open = Some(open);
        }
    }

    /// Opens all directories anew at the next request: some may have come, or been replaced.
    pub fn reopen(&mut self) {
        // Whether these locks are still there is seen in the directory where they were written.
        self.record();
        self.open = None;
        self.state = None;
    }

    /// The real name of a device, and the files that may keep it busy.
    pub fn names_of(&mut self, device: &DeviceName) -> Option<Names> {
        let found = follow(&self.places.dev_dir, device).ok().and_then(|mut trail| {
            self.add_links(&mut trail);
            let forms = forms(self.places.system, &trail).ok()?;
            Some((trail, forms))
        });
        let (trail, forms) = found?;
        let files = forms.written.into_iter().chain(forms.searched).collect();
        Some(Names { real: trail.real().to_owned(), files })
    }

    /// The open lock directories, for those who watch them.
    pub fn directories(&mut self) -> Vec<&pidlockfile::Directory> {
        if self.open.is_none() {
            self.open = self.open().ok();
        }
        self.journal.clear();
        let open = self.open.iter();
        open.flat_map(|open| std::iter::once(&open.own).chain(&open.others))
            .map(|place| &place.directory)
            .collect()
    }

    /// The process that kept the last request from its lock, where one is known.
    #[must_use]
    pub fn blocker(&self) -> Option<Pid> {
        self.blocker
    }

    /// Takes every lock file of the device for the pid, or none. May sleep for some milliseconds:
    /// for a caller who serves nobody else.
    pub fn lock(&mut self, request: &Request) -> Answer {
        self.with_pauses(|table, contention| table.attempt_lock(request, contention))
    }

    /// Removes every lock file of the device that holds this pid or a dead one. Sleeps as
    /// [`Table::lock`] does.
    pub fn unlock(&mut self, request: &Request) -> Answer {
        self.with_pauses(|table, contention| table.attempt_unlock(request, contention))
    }

    fn with_pauses(
        &mut self,
        mut attempt: impl FnMut(&mut Self, Contention) -> Result<Answer, Contended>,
    ) -> Answer {
        let mut backoff = Backoff::default();
        let mut events = Vec::new();
        loop {
            match attempt(self, backoff.contention()) {
                Ok(answer) => {
                    events.extend(answer.events);
                    return Answer { outcome: answer.outcome, events };
                }
                Err(contended) => events.extend(contended.events),
            }
            std::thread::sleep(backoff.pause());
        }
    }

    /// One attempt at [`Table::lock`]. Never sleeps: the caller comes back as [`Backoff`] says.
    ///
    /// # Errors
    /// [`Contended`], only with [`Contention::ComesBack`]: nothing was taken.
    pub fn attempt_lock(
        &mut self,
        request: &Request,
        contention: Contention,
    ) -> Result<Answer, Contended> {
        let outcome = self.try_lock(request, contention).map(|()| Outcome::Done);
        self.answer(outcome)
    }

    /// One attempt at [`Table::unlock`], as [`Table::attempt_lock`].
    ///
    /// # Errors
    /// [`Contended`], only with [`Contention::ComesBack`]: nothing of the asker's was there.
    pub fn attempt_unlock(
        &mut self,
        request: &Request,
        contention: Contention,
    ) -> Result<Answer, Contended> {
        let outcome = self.try_unlock(request, contention);
        self.answer(outcome)
    }

    /// Who holds a device, or held it, under any scheme that can be seen without opening it.
    /// Nothing is changed. A name that leads nowhere has no holders.
    pub fn holders(&mut self, device: &DeviceName) -> Vec<Holder> {
        let Ok(mut trail) = follow(&self.places.dev_dir, device) else { return Vec::new() };
        self.add_links(&mut trail);
        let mut holders = Vec::new();
        if let (Ok(forms), Ok(open)) = (forms(self.places.system, &trail), self.open()) {
            let now = SystemTime::now();
            let names = || forms.written.iter().chain(&forms.searched);
            for place in std::iter::once(&open.own).chain(&open.others) {
                let found = names().filter_map(|name| self.holder(place, name, trail.real(), now));
                holders.extend(found.collect::<Vec<_>>());
            }
            self.open = Some(open);
        }
        self.journal.clear();
        holders.extend(who::without_lock_files(&trail));
        holders
    }

    /// Who holds any device, or held it: every lock file in every directory, and every serial
    /// device that is locked by flock or open.
    pub fn all_holders(&mut self) -> Vec<Holder> {
        let devices = who::serial_devices(&self.places.dev_dir);
        let mut holders = Vec::new();
        if let Ok(open) = self.open() {
            let now = SystemTime::now();
            for place in std::iter::once(&open.own).chain(&open.others) {
                for name in place.lock_names() {
                    let Some(device) = who::device_of(name.as_str(), &devices) else { continue };
                    holders.extend(self.holder(place, &name, &device, now));
                }
            }
            self.open = Some(open);
        }
        self.journal.clear();
        holders.extend(who::all_without_lock_files(&devices));
        holders.sort_by(|a, b| (&a.device, &a.scheme).cmp(&(&b.device, &b.scheme)));
        holders
    }

    fn holder(
        &mut self,
        place: &Place,
        name: &Name,
        device: &str,
        now: SystemTime,
    ) -> Option<Holder> {
        let scheme = Scheme::of_file(place.path.join(name.as_str()));
        let mut holder = Holder::unknown(device, scheme);
        let judged = match place.directory.read(name, READ_LIMIT).ok()? {
            Found::Nothing => return None,
            Found::Obstacle(_) => return Some(holder),
            Found::File(judged) => judged,
        };
        let record = record::parse(judged.content()).ok();
        let (file, written) = (judged.identity(), judged.modified());
        holder.pid = record.as_ref().map(|record| record.pid);
        holder.since = Some(written);
        holder.owner = Some(judged.owner());
        holder.standing = match self.sentence(judged, now, name) {
            Verdict::Busy(Busy::Held(_)) => Standing::Alive,
            Verdict::Stale(..) => Standing::Stale,
            Verdict::Busy(_) | Verdict::Free => Standing::Unknown,
        };
        // Whoever has the number of one that is gone is not the holder.
        let living = holder.pid.filter(|_| holder.standing == Standing::Alive);
        let noted = holder.pid.and_then(|pid| self.state().user(name, pid, file, written));
        holder.user = noted.or_else(|| living.and_then(process::owner));
        let note = record.map(|record| record.note).filter(|note| !note.is_empty());
        holder.command = living.and_then(who::command).or(note);
        Some(holder)
    }

    fn answer(&mut self, outcome: Result<Outcome, Stop>) -> Result<Answer, Contended> {
        let events = std::mem::take(&mut self.journal);
        match outcome {
            Ok(outcome) => Ok(Answer { outcome, events }),
            Err(Stop::Busy) => Ok(Answer { outcome: Outcome::Busy, events }),
            Err(Stop::Denied) => Ok(Answer { outcome: Outcome::Denied, events }),
            Err(Stop::Contended) => Err(Contended { events }),
        }
    }

    fn say(&mut self, weight: Weight, text: String) {
        self.journal.push(Event { weight, text });
    }

    fn try_lock(&mut self, request: &Request, contention: Contention) -> Result<(), Stop> {
        self.blocker = None;
        let claimant = self.state().claimant(request.pid);
        let (trail, forms) = self.names(request)?;
        self.kept.let_go(&forms.written, None);
        let mut open = self.open()?;
        let taken = self
            .refuse_invented(&trail, &open.own)
            .and_then(|()| self.refuse_one_too_many(&open.own, request.pid))
            .and_then(|()| self.refuse_flock(&trail, request.pid))
            .and_then(|()| self.clear_searched(&mut open, &forms, contention))
            .and_then(|()| self.take_written(&open.own, &forms, request, contention))
            .and_then(|published| self.keep_if_there(&open.own, &forms, &claimant, published));
        self.open = Some(open);
        let published = taken?;
        self.remember_later(&forms, claimant, &published);
        let room = room(Some(&trail));
        for (name, published) in forms.written.iter().zip(published) {
            if claimant.then == Liveness::Alive {
                self.watched.add(name, request.pid);
            }
            self.kept.keep(name, request.pid, published, room);
        }
        self.say(Weight::Info, format!("locked {} for pid {}", trail.real(), request.pid));
        Ok(())
    }

    /// Whoever has ended while the lock was taken has none: the number may be somebody else's.
    fn keep_if_there(
        &mut self,
        own: &Place,
        forms: &Forms,
        claimant: &Claimant,
        published: Vec<Published>,
    ) -> Result<Vec<Published>, Stop> {
        if self.state().is_there(claimant) {
            return Ok(published);
        }
        self.give_back(own, forms, &published);
        self.say(Weight::Info, format!("pid {} ended while its lock was taken", claimant.pid));
        Err(Stop::Busy)
    }

    /// Everything that can be known of the names without looking into a lock directory.
    fn names(&mut self, request: &Request) -> Result<(Trail, Forms), Stop> {
        let device = request.device.as_str();
        let mut trail = follow(&self.places.dev_dir, &request.device).map_err(|astray| {
            let reason = match astray {
                Astray::Outside => "leads out of the device directory",
                Astray::Loop => "is a loop of links",
                Astray::Unreachable => "cannot be looked at",
                Astray::TooLong => "is a link to more than any device is called",
            };
            self.say(Weight::Notice, format!("refused {device}: it {reason}"));
            Stop::Denied
        })?;
        self.add_links(&mut trail);
        let forms = forms(self.places.system, &trail).map_err(|_| {
            self.say(Weight::Notice, format!("refused {device}: too long for a lock file name"));
            Stop::Denied
        })?;
        Ok((trail, forms))
    }

    /// A program is met at the name it was given, which may be any link to the node.
    fn add_links(&mut self, trail: &mut Trail) {
        if trail.node.is_some() {
            let links = self.links.to(&self.places.dev_dir, trail, SystemTime::now());
            trail.add_links(links);
        }
        let Some(device) = trail.node.and_then(|node| node.device) else { return };
        match sysfs::kernel_name(device) {
            Some(name) => trail.add_links([name]),
            None => trail.is_known_by_number_only = true,
        }
        match udev::links(&self.places.udev_dir, device) {
            Some(links) => trail.add_links(links),
            None if self.places.udev_dir.exists() => {}
            None => trail.add_links(links::made_by_udev(&self.places.dev_dir, trail)),
        }
    }

    /// The directories are taken out of `self` for the time of one request, so that they can be
    /// used while the journal is written.
    fn open(&mut self) -> Result<Open, Stop> {
        if let Some(open) = self.open.take() {
            return Ok(open);
        }
        let Places { lock_dir, search_dirs, .. } = &self.places;
        let absent = self.seen.as_ref().map_or(&[][..], |seen| &seen.absent);
        let mut open = Open::all(lock_dir, search_dirs, absent).map_err(|error| {
            self.say(Weight::Warning, format!("no lock can be written: {error}"));
            Stop::Denied
        })?;
        self.keep_records_apart(&mut open);
        Ok(open)
    }

    /// A record has its lock's name: in a directory of locks one would take the other's place.
    ///
    /// A link to the records is nothing of the administrator's: where the lock directory is open to
    /// all, anybody may make one by the name of a directory that is searched below it.
    fn keep_records_apart(&mut self, open: &mut Open) {
        let identity = self.state().identity();
        open.others.retain(|place| {
            Some(place.directory.identity()) != identity || !place.path.is_symlink()
        });
        let mut places = std::iter::once(&open.own).chain(&open.others);
        if identity.is_some() && places.any(|place| Some(place.directory.identity()) == identity) {
            let dir = self.places.state_dir.display();
            let text = format!("no notes are kept in {dir}: it is a directory of locks");
            self.say(Weight::Warning, text);
            self.state = Some(State::none());
        }
    }

    fn state(&mut self) -> &mut State {
        self.state.get_or_insert_with(|| {
            let state = State::open(&self.places.state_dir);
            if state.is_everybodys() {
                let dir = self.places.state_dir.display();
                let text = format!("no notes are kept in {dir}: everybody may write there");
                self.journal.push(Event { weight: Weight::Warning, text });
            }
            state
        })
    }

    /// A device that is not there may be locked, as one that was unplugged is unlocked; but not
    /// without end, for anybody can invent names.
    fn refuse_invented(&mut self, trail: &Trail, own: &Place) -> Result<(), Stop> {
        if trail.is_device() || !own.is_crowded() {
            return Ok(());
        }
        let (device, dir) = (trail.real(), own.path.display());
        let text = format!("refused {device}: there is no such device, and {dir} is full of locks");
        self.say(Weight::Notice, text);
        Err(Stop::Denied)
    }

    /// One user must not fill the lock directory: it may hold no more than a thousand files.
    fn refuse_one_too_many(&mut self, own: &Place, pid: Pid) -> Result<(), Stop> {
        if own.has_room_for_all(LOCK_FILES_OF_A_USER.saturating_sub(NAMES_OF_A_LOCK)) {
            return Ok(());
        }
        let uid = process::owner(pid);
        if uid == Some(0) {
            return Ok(());
        }
        self.record();
        if self.state().count_of(uid, RECORDS_COUNTED) < LOCK_FILES_OF_A_USER {
            return Ok(());
        }
        let who =
            uid.map_or_else(|| "processes that are gone".to_owned(), |uid| format!("uid {uid}"));
        let text = format!("refused pid {pid}: {who} has {LOCK_FILES_OF_A_USER} lock files");
        self.say(Weight::Notice, text);
        Err(Stop::Denied)
    }

    /// Programs that lock the open port leave no file; the kernel's list shows them.
    fn refuse_flock(&mut self, trail: &Trail, asking: Pid) -> Result<(), Stop> {
        let Some(node) = trail.node else { return Ok(()) };
        match self.flocks.holders(&node) {
            Ok(Sight { holders, whole }) => {
                // A program of one session would say it in each.
                if self.kept.is_wanted() {
                    let others = || (!flock::sees_all()).then(|| "of other pid namespaces".into());
                    self.say_unseen(others);
                }
                let own = flock::Holder::Process(asking);
                match holders.into_iter().find(|holder| *holder != own) {
                    Some(holder) => Err(self.busy_by_flock(trail.real(), holder)),
                    None if whole => Ok(()),
                    None => self.refuse_open(trail.real(), &node, asking),
                }
            }
            Err(error) => {
                self.say_unseen(|| Some(format!("in /proc/locks: {error}")));
                Ok(())
            }
        }
    }

    /// The kernel has too many locks to tell all of them, or they change too fast: whoever has the
    /// port open may have locked it as well.
    fn refuse_open(&mut self, device: &str, node: &Node, asking: Pid) -> Result<(), Stop> {
        let who = match open::openness(node, asking) {
            Openness::Closed => return Ok(()),
            Openness::Open(pid) => {
                self.blocker = Some(pid);
                format!("pid {pid} has it open")
            }
            Openness::Untold => "it cannot be told who has it open".to_owned(),
        };
        let text = format!("{device} is busy: too many kernel locks to see all, and {who}");
        self.say(Weight::Warning, text);
        Err(Stop::Busy)
    }

    fn busy_by_flock(&mut self, device: &str, holder: flock::Holder) -> Stop {
        let by = match holder {
            flock::Holder::Process(pid) => {
                self.blocker = Some(pid);
                format!("pid {pid}")
            }
            flock::Holder::Unseen => "a process that cannot be seen".to_owned(),
        };
        self.say(Weight::Info, format!("{device} is busy: flock held by {by}"));
        Stop::Busy
    }

    /// What cannot be seen is said once, not guessed.
    fn say_unseen(&mut self, which: impl FnOnce() -> Option<String>) {
        if std::mem::replace(&mut self.said_unseen, true) {
            return;
        }
        if let Some(which) = which() {
            self.say(Weight::Warning, format!("flock holders cannot be seen {which}"));
        }
    }

    /// Looks at every name that is not going to be written. What is found dead is removed; if it
    /// may not be removed, it is stepped over where it stands.
    fn clear_searched(
        &mut self,
        open: &mut Open,
        forms: &Forms,
        contention: Contention,
    ) -> Result<(), Stop> {
        let now = SystemTime::now();
        for name in &forms.searched {
            self.clear(&open.own, name, now, (Role::Written, contention))?;
        }
        for place in &mut open.others {
            if place.is_lockless(lockless(&self.seen), now) {
                continue;
            }
            for name in forms.written.iter().chain(&forms.searched) {
                if !place.is_open_to_all() || self.may_be_a_lock(place, name) {
                    self.clear(place, name, now, (Role::Searched, contention))?;
                }
            }
        }
        Ok(())
    }

    /// Whether something in a directory that is only searched, and open to everybody (`/tmp`, where
    /// Qt programs leave locks), is more than a claim: a lock of root's, or of the process that it
    /// names. Otherwise anybody could block any port for ever without a process of his own.
    fn may_be_a_lock(&mut self, place: &Place, name: &Name) -> bool {
        let owner = match place.directory.read(name, READ_LIMIT) {
            Ok(Found::Nothing) => return false,
            Ok(Found::File(judged)) => {
                let pid = record::parse(judged.content()).ok().map(|record| record.pid);
                let gone = pid.is_some_and(|pid| liveness(pid) == Liveness::Gone);
                if gone
                    || judged.owner() == 0
                    || (judged.owner() != UNMAPPED_UID
                        && pid.and_then(process::owner) == Some(judged.owner()))
                {
                    return true;
                }
                format!("uid {}", judged.owner())
            }
            Ok(Found::Obstacle(obstacle)) => Busy::Obstacle(obstacle).to_string(),
            Err(error) => error.to_string(),
        };
        self.say(Weight::Notice, format!("stepped over {}, no lock: {owner}", place.name(name)));
        false
    }

    fn clear(
        &mut self,
        place: &Place,
        name: &Name,
        now: SystemTime,
        (role, contention): (Role, Contention),
    ) -> Result<(), Stop> {
        for _ in 0..ATTEMPTS {
            match self.judge(place, name, now) {
                Verdict::Free => return Ok(()),
                Verdict::Busy(busy) => return Err(self.busy(place, name, busy)),
                Verdict::Stale(judged, stale) => match self.remove(place, name, judged, stale) {
                    Some(Removal::Removed) => return Ok(()),
                    Some(Removal::Changed) => {}
                    // Where locks are only searched, and anybody may make a stale one and hold it.
                    None if role == Role::Searched && place.is_open_to_all() => return Ok(()),
                    None => match contention {
                        Contention::ComesBack => return Err(Stop::Contended),
                        Contention::Decides => break,
                    },
                },
            }
        }
        Err(self.busy(place, name, Busy::Unknown))
    }

    /// Removes a stale lock whose place we do not take. What may not be removed counts as removed;
    /// `None` while another process is at it.
    fn remove(
        &mut self,
        place: &Place,
        name: &Name,
        judged: Judged,
        stale: Stale,
    ) -> Option<Removal> {
        let file = judged.identity();
        match place.directory.try_release(name, judged) {
            Ok(Some(Removal::Removed)) => {
                self.state().forget_lock(name, file);
                self.say(Weight::Notice, format!("removed {}: {stale}", place.name(name)));
                Some(Removal::Removed)
            }
            Ok(other) => other,
            Err(error) => {
                let text = format!("stepped over {}: {stale}; {error}", place.name(name));
                self.say(Weight::Warning, text);
                Some(Removal::Removed)
            }
        }
    }

    /// Takes every written name in order; on the first conflict gives back what it has.
    fn take_written(
        &mut self,
        own: &Place,
        forms: &Forms,
        request: &Request,
        contention: Contention,
    ) -> Result<Vec<Published>, Stop> {
        let content = record::write(self.places.system.content, request.pid);
        let claim = Claim {
            content: &content,
            mode: LOCK_MODE,
            prefix: TEMPORARY,
            durability: Durability::Memory,
        };
        let mut taken: Vec<Published> = Vec::with_capacity(forms.written.len());
        for name in &forms.written {
            match self.take(own, name, &claim, contention) {
                Ok(published) => taken.push(published),
                Err(stop) => {
                    self.give_back(own, forms, &taken);
                    return Err(stop);
                }
            }
        }
        Ok(taken)
    }

    fn take(
        &mut self,
        own: &Place,
        name: &Name,
        claim: &Claim<'_>,
        contention: Contention,
    ) -> Result<Published, Stop> {
        for _ in 0..ATTEMPTS {
            match own.directory.publish(name, claim) {
                Ok(Publication::Published(published)) => return Ok(published),
                Ok(Publication::AlreadyThere) => {}
                Err(error) => return Err(self.cannot_write(&error)),
            }
            let (judged, stale) = match self.judge(own, name, SystemTime::now()) {
                Verdict::Free => continue,
                Verdict::Busy(busy) => return Err(self.busy(own, name, busy)),
                Verdict::Stale(judged, stale) => (judged, stale),
            };
            match own.directory.replace(name, judged, claim) {
                Ok(Breaking::Replaced(published)) => {
                    self.say(Weight::Notice, format!("broke {}: {stale}", own.name(name)));
                    return Ok(published);
                }
                Ok(Breaking::Changed) => {}
                Ok(Breaking::Contended) => match contention {
                    Contention::ComesBack => return Err(Stop::Contended),
                    Contention::Decides => break,
                },
                Err(error) => return Err(self.cannot_break(own, name, stale, &error)),
            }
        }
        Err(self.busy(own, name, Busy::Unknown))
    }

    fn give_back(&mut self, own: &Place, forms: &Forms, taken: &[Published]) {
        for (name, published) in forms.written.iter().zip(taken).rev() {
            let Ok(Found::File(judged)) = own.directory.read(name, READ_LIMIT) else { continue };
            if judged.identity() != published.identity {
                continue;
            }
            if let Err(error) = own.directory.release(name, judged, TEMPORARY) {
                self.say(Weight::Warning, format!("left {} behind: {error}", own.name(name)));
            }
        }
    }

    /// Without a record the lock is good; only a reused pid would go unnoticed, and names that
    /// nothing leads to any more would stay when it is released. So it can wait.
    fn remember_later(&mut self, forms: &Forms, claimant: Claimant, published: &[Published]) {
        let files = forms.written.iter().zip(published).map(|(name, published)| {
            let Published { identity, modified, .. } = published;
            Written { name: name.clone(), file: *identity, at: *modified }
        });
        self.unrecorded.push(Unrecorded { claimant, files: files.collect() });
    }

    fn try_unlock(&mut self, request: &Request, contention: Contention) -> Result<Outcome, Stop> {
        let (trail, mut forms) = self.names(request)?;
        let mut open = self.open()?;
        for name in self.names_written(&forms, request.pid) {
            forms.write_too(name);
        }
        let tally = self.release_all(&mut open, &forms, request.pid);
        self.open = Some(open);
        if tally.removed > 0 {
            let vacant: Vec<Name> =
                forms.written.into_iter().filter(|name| !tally.standing.contains(name)).collect();
            self.watched.forget(&vacant, request.pid);
            self.forget(&vacant);
        }
        let (device, pid) = (trail.real(), request.pid);
        if tally.own == 0 && tally.contended > 0 && contention == Contention::ComesBack {
            return Err(Stop::Contended);
        }
        let stands = tally.busy.saturating_add(tally.contended) > 0;
        Ok(if tally.own > 0 || (tally.removed > 0 && !stands) {
            self.say(Weight::Info, format!("unlocked {device} for pid {pid}"));
            Outcome::Done
        } else if tally.failed > 0 {
            Outcome::Denied
        } else {
            self.say(Weight::Info, format!("{device} is not pid {pid}'s to unlock"));
            Outcome::Busy
        })
    }

    /// Under which names this pid's lock of the device was written.
    fn names_written(&mut self, forms: &Forms, pid: Pid) -> Vec<Name> {
        let Some(name) = forms.written.first() else { return Vec::new() };
        let lock =
            self.unrecorded.iter().rfind(|lock| lock.claimant.pid == pid && lock.is_named(name));
        match lock {
            Some(lock) => lock.files.iter().map(|file| file.name.clone()).collect(),
            None => self.state().names(name, pid),
        }
    }

    fn forget(&mut self, names: &[Name]) {
        let locks = std::mem::take(&mut self.unrecorded);
        let (gone, unrecorded): (Vec<_>, Vec<_>) =
            locks.into_iter().partition(|lock| names.iter().any(|name| lock.is_named(name)));
        self.unrecorded = unrecorded;
        for name in names.iter().filter(|name| !gone.iter().any(|lock| lock.is_named(name))) {
            self.state().forget(name);
        }
    }

    fn release_all(&mut self, open: &mut Open, forms: &Forms, pid: Pid) -> Tally {
        let now = SystemTime::now();
        let mut tally = Tally::default();
        self.kept.let_go(&forms.written, None);
        // In the reverse order of taking: whoever meets the first name still finds it held.
        for name in forms.written.iter().chain(&forms.searched).rev() {
            if !self.withdraw(&open.own, name, pid, &mut tally) {
                let stood = tally.stood();
                self.release(&open.own, name, pid, now, &mut tally);
                if stood != tally.stood() {
                    tally.standing.push(name.clone());
                }
            }
        }
        for place in &mut open.others {
            if place.is_lockless(lockless(&self.seen), now) {
                continue;
            }
            for name in forms.written.iter().chain(&forms.searched) {
                self.release(place, name, pid, now, &mut tally);
            }
        }
        tally
    }

    /// Removes a lock that was kept open: what it says, and that it is ours, need not be asked
    /// again. Where that does not work, it is let go of, to be released like any other.
    fn withdraw(&mut self, own: &Place, name: &Name, pid: Pid, tally: &mut Tally) -> bool {
        let Some(published) = self.kept.take(name, pid) else { return false };
        let spent = published.file.try_clone();
        let removed = matches!(
            own.directory.withdraw(name, published),
            Ok(Withdrawal::Done(Removal::Removed))
        );
        // One that is still there must not keep our `flock(2)`: it is released in another way.
        if removed {
            self.put_off_closing(spent);
        }
        tally.removed += usize::from(removed);
        tally.own += usize::from(removed);
        removed
    }

    fn release(
        &mut self,
        place: &Place,
        name: &Name,
        pid: Pid,
        now: SystemTime,
        tally: &mut Tally,
    ) {
        let mut is_contended = false;
        for _ in 0..ATTEMPTS {
            let found = place.directory.read(name, READ_LIMIT);
            let Ok(Found::File(judged)) = found else {
                tally.busy += usize::from(!matches!(found, Ok(Found::Nothing)));
                return;
            };
            let held_by = record::parse(judged.content()).ok().map(|record| record.pid);
            let own = held_by == Some(pid);
            if own && self.is_elsewhere(name, pid, &judged) {
                tally.busy += 1;
                return;
            }
            let judged = if own {
                judged
            } else {
                match self.sentence(judged, now, name) {
                    Verdict::Free => return,
                    Verdict::Busy(_) => {
                        tally.busy += 1;
                        return;
                    }
                    Verdict::Stale(judged, _) => judged,
                }
            };
            // A living owner lets go whoever holds the file by flock: nobody breaks his lock, so
            // there is nobody to wait for. A dead one's lock may be just being broken, however
            // long that takes on a busy machine, and then it is the breaker's.
            let living = own && liveness(pid) == Liveness::Alive;
            let spent = judged.try_clone();
            let removal = if living && is_contended {
                place.directory.release(name, judged, TEMPORARY).map(Some)
            } else {
                place.directory.try_release(name, judged)
            };
            if matches!(removal, Ok(Some(Removal::Removed))) {
                tally.removed += 1;
                tally.own += usize::from(own);
                self.put_off_closing(spent);
                return;
            }
            // With the descriptor goes the `flock(2)`, if there is one.
            drop(spent);
            match removal {
                Ok(Some(Removal::Removed | Removal::Changed)) => {}
                Ok(None) if living => is_contended = true,
                Ok(None) => {
                    tally.contended += 1;
                    return;
                }
                Err(error) => {
                    self.say(Weight::Warning, format!("left {}: {error}", place.name(name)));
                    tally.failed += 1;
                    return;
                }
            }
        }
    }

    fn put_off_closing(&mut self, spent: std::io::Result<File>) {
        if self.spent.len() < PUT_OFF {
            self.spent.extend(spent);
        }
    }

    /// Reads a lock file and decides what it means.
    fn judge(&mut self, place: &Place, name: &Name, now: SystemTime) -> Verdict {
        match place.directory.read(name, READ_LIMIT) {
            Ok(Found::Nothing) => Verdict::Free,
            Ok(Found::Obstacle(obstacle)) => Verdict::Busy(Busy::Obstacle(obstacle)),
            Ok(Found::File(judged)) => self.sentence(judged, now, name),
            Err(error) => {
                self.say(Weight::Warning, format!("in {}: {error}", place.path.display()));
                Verdict::Busy(Busy::Unknown)
            }
        }
    }

    fn sentence(&mut self, judged: Judged, now: SystemTime, name: &Name) -> Verdict {
        let Ok(record) = record::parse(judged.content()) else {
            let young = match now.duration_since(judged.modified()) {
                Ok(age) => age < WRITER_GRACE,
                Err(_) => true,
            };
            return if young {
                Verdict::Busy(Busy::BeingWritten)
            } else {
                Verdict::Stale(judged, Stale::Unreadable)
            };
        };
        let pid = record.pid;
        let (identity, written) = (judged.identity(), judged.modified());
        let remembered = self.state().recall(name, pid, identity, written);
        match (liveness(pid), remembered) {
            (_, Remembered::Elsewhere) => Verdict::Busy(Busy::Held(pid)),
            (Liveness::Gone, _) => Verdict::Stale(judged, Stale::Gone(pid)),
            (Liveness::Alive, Remembered::Reused) => Verdict::Stale(judged, Stale::Reused(pid)),
            (Liveness::Alive, Remembered::Same | Remembered::Nothing) => {
                Verdict::Busy(Busy::Held(pid))
            }
        }
    }

    /// Whether the lock was taken in another pid namespace, where its number means another process.
    fn is_elsewhere(&mut self, name: &Name, pid: Pid, judged: &Judged) -> bool {
        let (file, written) = (judged.identity(), judged.modified());
        self.state().recall(name, pid, file, written) == Remembered::Elsewhere
    }

    fn busy(&mut self, place: &Place, name: &Name, busy: Busy) -> Stop {
        if let Busy::Held(pid) = busy {
            self.blocker = Some(pid);
        }
        self.say(Weight::Info, format!("busy: {} {busy}", place.name(name)));
        Stop::Busy
    }

    fn cannot_write(&mut self, error: &pidlockfile::Error) -> Stop {
        self.say(Weight::Warning, format!("no lock can be written: {error}"));
        Stop::Denied
    }

    fn cannot_break(
        &mut self,
        place: &Place,
        name: &Name,
        stale: Stale,
        error: &pidlockfile::Error,
    ) -> Stop {
        let file = place.name(name);
        let help = "run lfpd as the owner of the locks, or give it CAP_FOWNER";
        self.say(Weight::Warning, format!("busy: {file} is stale ({stale}) but {error}; {help}"));
        Stop::Busy
    }
}

/// Up to how many lock files another one is kept open, by what it is the lock of.
fn room(trail: Option<&Trail>) -> usize {
    trail.filter(|trail| trail.is_device()).map_or(KEPT_WITHOUT_DEVICE, |_| KEPT_FILES)
}

/// Where the device leads that a lock file is named after.
fn trail_of(dev_dir: &Path, name: &Name) -> Option<Trail> {
    let device = DeviceName::parse(who::device_of(name.as_str(), &[])?.as_bytes()).ok()?;
    follow(dev_dir, &device).ok()
}

fn lockless(seen: &Option<Seen>) -> &[Stamp] {
    seen.as_ref().map_or(&[], |seen| &seen.lockless)
}

/// Whether a lock that was written is there still.
fn is_there(place: &Place, lock: &Written) -> bool {
    match fstatat(&place.directory, lock.name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => {
            let nanoseconds = u32::try_from(stat.st_mtime_nsec).unwrap_or_default();
            let since = u64::try_from(stat.st_mtime).map(|secs| Duration::new(secs, nanoseconds));
            lock.file == Identity { device: stat.st_dev, inode: stat.st_ino }
                && since.is_ok_and(|since| UNIX_EPOCH.checked_add(since) == Some(lock.at))
        }
        Err(errno) => errno != Errno::ENOENT,
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.settle();
    }
}

/// What became of the files of a device when it was unlocked.
#[derive(Debug, Default)]
struct Tally {
    removed: usize,
    own: usize,
    busy: usize,
    failed: usize,
    /// Stale, and somebody else is at it.
    contended: usize,
    /// Those in our own directory that are still there: the records are about these.
    standing: Vec<Name>,
}

impl Tally {
    fn stood(&self) -> (usize, usize, usize) {
        (self.busy, self.failed, self.contended)
    }
}

impl std::fmt::Display for Busy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Held(pid) => write!(f, "is held by pid {pid}"),
            Self::BeingWritten => f.write_str("has no pid yet"),
            Self::Obstacle(Obstacle::Link) => f.write_str("is a symbolic link"),
            Self::Obstacle(Obstacle::Directory) => f.write_str("is a directory"),
            Self::Obstacle(Obstacle::Special) => f.write_str("is a fifo, socket or device"),
            Self::Obstacle(Obstacle::Unreadable) => f.write_str("may not be read"),
            Self::Unknown => f.write_str("is being changed by others"),
        }
    }
}

impl Stale {
    fn is_of_the_dead(self) -> bool {
        match self {
            Self::Gone(_) | Self::Reused(_) => true,
            Self::Unreadable => false,
        }
    }
}

impl std::fmt::Display for Stale {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Gone(pid) => write!(f, "pid {pid} is gone"),
            Self::Reused(pid) => write!(f, "pid {pid} is another process by now"),
            Self::Unreadable => f.write_str("it has held no pid for 30 seconds"),
        }
    }
}
