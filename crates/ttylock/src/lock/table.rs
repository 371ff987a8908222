//! The locks of a machine: what callers ask for. The functions are in `table/`. `take`, `release`, `pass`, `survey` and
//! `daemon` have one kind of request each. All of them use the same steps: `resolve` finds the names of a device's lock
//! files, `lock_file` reads, holds and removes a lock file, in the gate, `classify` says whether it is stale, and
//! `recovery` completes or undoes a PASS that was not finished. `state` has what all requests share.
//!
//! Nothing here knows the protocol. The table never takes or releases a lock on its own account: a lock
//! belongs to the process that asked for it, until that process releases it or ends.

use std::time::{Duration, Instant};

use pidlockfile::Pid;
use pidlockfile::process::{Machine, ProcessIdentity};

use super::backoff::Backoff;
use super::directories::Directories;
use super::flock_guards::{FlockGuards, Kept};
use super::held_files::{Again, HeldFiles};
use super::{Answer, Cause, Event, Pass, Request, Stop};
use crate::device::DeviceName;
use crate::device::node::ResolvedDevice;
use crate::layout::Layout;
use crate::lock::holder_records::Applicant;
use crate::lock::holders::{Holder, Survey, out_of_sight, serial_devices};

mod classify;
mod daemon;
mod lock_file;
mod pass;
mod recovery;
mod release;
mod resolve;
mod state;
mod survey;
mod take;

#[cfg(test)]
mod pass_tests;
#[cfg(test)]
mod taking_tests;
#[cfg(test)]
mod tests;

use state::{State, TEMPORARY};

pub use resolve::DeviceFiles;
pub use take::Checked;

/// The locks of this machine, for one session or for a whole daemon.
///
/// ```no_run
/// # fn main() -> Result<(), ttylock::NotADevice> {
/// use std::time::Duration;
/// use ttylock::{Layout, Outcome, Pid, Request, Table, held_by};
///
/// let mut table = Table::new(Layout::native());
/// let request = Request { device: "/dev/ttyUSB0".parse()?, pid: Pid::this() };
/// match table.lock(&request).outcome() {
///     // ... open and use the port, and close it ...
///     Outcome::Done => println!("{:?}", table.unlock(&request).result),
///     Outcome::Busy | Outcome::Denied => {
///         let survey = table.holders(Some(&request.device), Duration::from_secs(1));
///         println!("{}", held_by(&survey.holders));
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Table {
    state: State,
}

impl Table {
    /// Opens nothing yet; the answers show which directories cannot be opened.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        Self { state: State::new(layout) }
    }

    /// The directories that it uses.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.state.layout
    }

    /// The events that belong to no answer. They are deleted.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.state.events)
    }

    /// Opens all directories again at the next request: some may be new, or may have been replaced.
    pub fn reopen(&mut self) {
        self.state.close();
    }

    /// The open lock directories, to be watched.
    pub fn directories(&mut self) -> Vec<&pidlockfile::Directory> {
        let _ = self.state.open();
        self.state.events.clear();
        let open = self.state.opened().into_iter();
        open.flat_map(Directories::each).map(|place| &place.directory).collect()
    }

    /// Takes every lock file of the device for the pid, or none. May sleep for some milliseconds, so it is for
    /// callers that serve no other client.
    pub fn lock(&mut self, request: &Request) -> Answer {
        self.with_pauses(|table, backoff| table.attempt_lock(request, None, *backoff))
    }

    /// Removes every lock file of the device that holds this pid or a dead one. Sleeps as
    /// [`Table::lock`] does.
    pub fn unlock(&mut self, request: &Request) -> Answer {
        self.with_pauses(|table, backoff| table.attempt_unlock(request, backoff))
    }

    /// Makes another process the holder of a lock, in one step for each of its names. Sleeps as [`Table::lock`] does.
    pub fn pass(&mut self, pass: &Pass) -> Answer {
        self.with_pauses(|table, backoff| table.attempt_pass(pass, None, backoff))
    }

    /// Each attempt has the time of the first one. Otherwise a reading of the kernel's list that takes longer than
    /// the pause between two attempts would always have begun too early.
    fn with_pauses(
        &mut self,
        mut attempt: impl FnMut(&mut Self, &mut Backoff) -> Answer,
    ) -> Answer {
        let mut backoff = Backoff::since(Instant::now());
        let mut events = Vec::new();
        loop {
            if let Some(cause) = self.is_kept_outside(backoff) {
                std::thread::sleep(backoff.pause(cause, Instant::now()));
                continue;
            }
            let answer = attempt(self, &mut backoff);
            events.extend(answer.events);
            match answer.result {
                Err(Stop::NotYet(cause)) => {
                    std::thread::sleep(backoff.pause(cause, Instant::now()));
                }
                result => return Answer { result, events },
            }
        }
    }

    /// Whether a request that waits for another process in the gate need not be attempted yet: that one is still inside. A
    /// look at the gate costs less than an attempt.
    #[must_use]
    pub fn is_kept_outside(&self, backoff: Backoff) -> Option<Cause> {
        let own = &self.state.opened().filter(|_| backoff.is_at_the_gate())?.own;
        let occupant = own.directory.occupant()?;
        backoff.waits_for(occupant, Instant::now()).then_some(Cause::Gate(occupant))
    }

    /// One attempt at [`Table::lock`]. What the caller has [`Checked`] is not looked up again. If there is no answer
    /// yet, nothing was taken, and the caller comes back as [`Backoff`] says. The last attempt has an answer, unless
    /// the kernel's list of locks is being read. Waits for up to two milliseconds for the thread that reads that list
    /// (without one, it reads the list itself), and, if it must give a written lock back, for up to ten seconds for a
    /// process in the gate.
    pub fn attempt_lock(
        &mut self,
        request: &Request,
        checked: Option<Checked>,
        backoff: Backoff,
    ) -> Answer {
        self.attempt(backoff, |state| take::take(state, request, checked))
    }

    /// One attempt at [`Table::unlock`], as [`Table::attempt_lock`]. The backoff notes whether it has released a lock: a
    /// later attempt of the same request, which finds none, is done then. It also notes which process has the number, so
    /// that a later attempt releases no lock of another one.
    pub fn attempt_unlock(&mut self, request: &Request, backoff: &mut Backoff) -> Answer {
        let answer = self.attempt(*backoff, |state| release::release(state, request));
        backoff.has_released = self.state.backoff.has_released;
        self.note_owner(request.pid, &answer, backoff);
        answer
    }

    /// One attempt at [`Table::pass`], of a device from [`Table::resolve`] or of the one that is named. Busy unless
    /// the giver is alive and holds every lock file of the device; denied if there is no such receiver. The backoff notes
    /// which process is the giver.
    pub fn attempt_pass(
        &mut self,
        pass: &Pass,
        resolved: Option<ResolvedDevice>,
        backoff: &mut Backoff,
    ) -> Answer {
        let answer = self.attempt(*backoff, |state| pass::pass(state, pass, resolved));
        self.note_owner(pass.from, &answer, backoff);
        answer
    }

    /// Notes which process the owner of a lock is, if the request has to come back. That takes seconds at most, in which
    /// its number may become another process's.
    fn note_owner(&mut self, pid: Pid, answer: &Answer, backoff: &mut Backoff) {
        if backoff.owner.is_none() && matches!(answer.result, Err(Stop::NotYet(_))) {
            backoff.owner = Some(self.state.machine.identify(pid).start);
        }
    }

    fn attempt(
        &mut self,
        backoff: Backoff,
        deed: impl FnOnce(&mut State) -> Result<String, Stop>,
    ) -> Answer {
        self.state.backoff = backoff;
        let result = deed(&mut self.state);
        Answer { result, events: self.take_events() }
    }

    /// Resolves a name once: its node, and every other name of that device. The same result is judged and then locked
    /// ([`Table::attempt_lock`], [`Table::attempt_pass`]); the name is not resolved again.
    ///
    /// # Errors
    /// The answer, if nothing can be locked by this name.
    pub fn resolve(&mut self, device: &DeviceName) -> Result<ResolvedDevice, Answer> {
        let resolved = resolve::resolve(&mut self.state, device);
        resolved.map_err(|stop| Answer { result: Err(stop), events: self.take_events() })
    }

    /// The process that has this number now. Its rights are to be checked afterwards.
    pub fn observe(&mut self, pid: Pid) -> Applicant {
        let State { machine, observed, .. } = &mut self.state;
        Applicant::observe_again(observed, machine, pid)
    }

    /// The process that was observed last, if it has this number and lives.
    #[must_use]
    pub fn observed(&self, pid: Pid) -> Option<Applicant> {
        Applicant::known(self.state.observed.as_ref(), pid)
    }

    /// The real name of a resolved device, and the files that may keep it busy.
    #[must_use]
    pub fn files_of(&self, resolved: &ResolvedDevice) -> Option<DeviceFiles> {
        resolve::files_of(&self.state.layout, resolved)
    }

    /// Whether a resolved device is locked for this number by a lock that was taken before any process had it. By the
    /// first lock file and its record.
    pub fn is_locked_for_missing(&mut self, resolved: &ResolvedDevice, pid: Pid) -> bool {
        survey::is_locked_for_missing(&mut self.state, resolved, pid)
    }

    /// The holders of a device, also those that have ended, under any scheme that is visible without opening it; without
    /// a device, those of all: every lock file in every directory, and every serial device that is locked by flock or
    /// open. Nothing is changed. A name that leads nowhere has no holders. The search ends after that time at the latest.
    pub fn holders(&mut self, device: Option<&DeviceName>, time: Duration) -> Survey {
        let survey = self.surveys(&[device.cloned()], Instant::now() + time).pop().flatten();
        survey.unwrap_or_else(|| Survey {
            out_of_sight: out_of_sight(),
            ..Survey::new(Vec::new(), true)
        })
    }

    /// The locks of all devices by lock files, also those whose holders have ended: every lock file in every directory.
    /// The search ends after that time at the latest.
    pub fn all_lock_files(&mut self, time: Duration) -> Survey {
        let by = Instant::now() + time;
        self.search(by, |state| {
            let devices = serial_devices(&state.layout.dev_dir);
            survey::all_lock_files(state, &devices, by)
        })
    }

    /// The holders of each of these devices; of all serial devices where the question names none. The kernel's list is
    /// read once for all questions, and so are the processes. The search ends at that moment at the latest, complete or
    /// not. `None` for a name that leads nowhere.
    pub fn surveys(
        &mut self,
        questions: &[Option<DeviceName>],
        by: Instant,
    ) -> Vec<Option<Survey>> {
        self.search(by, |state| survey::surveys(state, questions, by))
    }

    /// Makes a search, which has no events. Its own readings of the kernel's list end at the moment `by` at the latest.
    fn search<T>(&mut self, by: Instant, search: impl FnOnce(&mut State) -> T) -> T {
        self.state.flocks.end_by(Some(by));
        let found = search(&mut self.state);
        self.state.flocks.end_by(None);
        self.state.events.clear();
        found
    }

    /// The living process that has a lock of the device, by the records that are made when a lock is taken. A lock
    /// file alone proves nothing, because any user may have written it.
    pub fn holder_on_record(&mut self, device: &DeviceName) -> Option<ProcessIdentity> {
        survey::holder_on_record(&mut self.state, device)
    }

    /// Whether a lock of the device is on record for a process of another pid namespace, such as a container's. Its number
    /// is not one of ours.
    pub fn is_held_elsewhere(&mut self, device: &DeviceName) -> bool {
        survey::is_held_elsewhere(&mut self.state, device)
    }

    /// For a process that lives longer than one session. From now on, up to `limit` lock files stay open with
    /// `flock(2)` on them: those that it writes, and those that an earlier daemon wrote. Every lock in the directory
    /// for writing is examined, and those of dead processes are removed. Call [`Table::remove_locks_of_ended`] when a
    /// holder has ended.
    pub fn keep_open(&mut self, limit: usize) {
        if daemon::start(&mut self.state, limit).is_err() {
            // The error is reported when it matters.
            self.state.events.clear();
        }
    }

    /// For a program that ends with its locks: until this value is dropped, those that it cannot record are held by
    /// `flock(2)`, so that processes in other pid namespaces do not take them for stale.
    #[must_use]
    pub fn keeping_unrecorded(mut self) -> Self {
        self.state.guards = FlockGuards::of(Kept::Unrecorded);
        self
    }

    /// Removes what killed processes have left while they wrote a lock. For the end of a session: a daemon does this when
    /// it starts.
    pub fn sweep_drafts(&mut self) {
        if self.state.opened().is_none() {
            return;
        }
        let Ok(open) = self.state.open() else { return };
        // Any user may fill it.
        if open.own.may_have_held_beginning(TEMPORARY) && !open.own.is_crowded() {
            daemon::sweep_drafts(&mut self.state, &open.own);
        }
    }

    /// Removes the locks of a process of this number that has ended, even if another process has the number by now. Call it
    /// again at [`HeldFiles::next_attempt`].
    pub fn remove_locks_of_ended(&mut self, pid: Pid) -> Vec<Event> {
        let State { guards, held, machine, .. } = &mut self.state;
        guards.let_go_of_ended(pid, machine);
        let mut ended = held.of_number(pid);
        ended.retain(|who| machine.fate(who).is_over());
        for who in &ended {
            match self.state.open() {
                Ok(open) => daemon::remove_dead(&open.own, &mut self.state, who),
                Err(_) => {
                    self.state.held.remove_each(who, Instant::now(), |_, _| Some(Again::Later))
                }
            }
        }
        self.take_events()
    }

    /// The numbers of holders that have ended, perhaps without an event; not of those whose locks are not to be
    /// tried again yet.
    pub fn ended_holders(&mut self, now: Instant) -> Vec<Pid> {
        let State { machine, held, .. } = &mut self.state;
        held.holders(now).filter(|who| machine.fate(who).is_over()).map(|who| who.pid).collect()
    }

    /// Removes a lock file that was seen to be stale, if it is still the same one and still stale. May sleep
    /// for some milliseconds, as [`Table::lock`].
    ///
    /// # Errors
    /// Why it is still there, in words.
    pub fn remove_stale(&mut self, seen: &Holder) -> Result<(), String> {
        daemon::remove_stale(&mut self.state, seen)
    }

    /// Removes the records of locks of this lock directory that are gone, where we may. Returns how many were removed.
    pub fn clean_records(&mut self) -> usize {
        daemon::clean_records(&mut self.state)
    }

    /// The lock files that go when their holders end.
    #[must_use]
    pub fn held_files(&mut self) -> &mut HeldFiles {
        &mut self.state.held
    }

    /// What the system shows of processes.
    pub fn machine(&mut self) -> &mut Machine {
        &mut self.state.machine
    }
}
