//! The locks of this process that the library knows of, by device number: of ports that are open, of lock files, and
//! those that are to be released. A release is repeated until the service confirms it.
//!
//! Fixed in size and without locks, because it is used between fork and exec, in signal handlers and by programs with
//! threads. A child inherits the memory but not the locks, and a child of vfork(2) shares the memory, so every entry has
//! its process.
//!
//! One thread at a time sends releases. A device that is to be released is locked again only when the service has
//! confirmed its release: a release that arrives after the new lock would end that one.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use pidlockfile::Pid;
use rustix::process::{getpid, getppid};
use rustix::thread::gettid;
use ttylock::{DeviceName, NAME_BYTES, Outcome};

use crate::mode::settings;
use crate::service::{NoAnswer, Service, may_release, now, release_later, rest};

/// The number of locks that are known at a time. The service is asked about others each time.
const ENTRIES: usize = 32;

/// What is known of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// Nothing: the entry is free.
    None,
    /// A thread reads or writes the entry. No other thread waits for it: a signal handler may have interrupted it.
    InUse,
    /// Locked, because the program has opened the port.
    Open,
    /// Locked by a lock file. In a pid namespace, the file shows another number than the process has there.
    File,
    /// Locked for this process by `lfp run`, and asked for by the program since.
    Adopted,
    /// Locked for an ancestor by `lfp run`, and passed to this process.
    Passed,
    /// To be released; the service does not know it yet.
    Closed,
    /// To be released; the service was asked, and has not confirmed it: the lock may end at any moment.
    InDoubt,
}

const LOCKED: [State; 4] = [State::Open, State::File, State::Adopted, State::Passed];
const TO_BE_RELEASED: [State; 2] = [State::Closed, State::InDoubt];

static TABLE: Table = Table::new();

/// Whether there was ever a lock, in this process or in one that it descends from.
static ANY: AtomicBool = AtomicBool::new(false);

/// The process that sends releases, and the second until which that may take; 0: none does. A thread that leaves its
/// turn by siglongjmp(3) never ends it.
static TURN: AtomicU64 = AtomicU64::new(0);

/// The thread that has the turn.
static SENDER: AtomicU32 = AtomicU32::new(0);

/// Added to the time that the service has to answer, in seconds.
const GRACE_SECS: u64 = 2;

/// How often a thread checks whether the turn of another one has ended.
const TURN_POLL: Duration = Duration::from_millis(1);

/// Whether there can be nothing to release at all, for close(2): one read where neither this process nor one that it
/// descends from has ever had a lock.
pub(crate) fn none() -> bool {
    !ANY.load(Ordering::Acquire)
}

/// Whether the device is in one of these states.
pub(crate) fn is(number: u64, states: &[State]) -> bool {
    !none() && TABLE.find(key(number), states).is_some()
}

/// Whether the device is to be released.
pub(crate) fn is_to_be_released(number: u64) -> bool {
    is(number, &TO_BE_RELEASED)
}

/// Notes a state, whatever was known before.
pub(crate) fn set(number: u64, name: &DeviceName, state: State) {
    ANY.store(true, Ordering::Release);
    TABLE.put(key(number), name, state, parent());
}

/// Notes that a device is to be released, unless it is locked: another thread may have got it meanwhile, and releases it
/// by closing it.
pub(crate) fn set_to_be_released(number: u64, name: &DeviceName, state: State) {
    ANY.store(true, Ordering::Release);
    TABLE.put_unless_locked(key(number), name, state, parent());
}

/// Changes one state into another. Whether the device was in the first one.
pub(crate) fn change(number: u64, from: State, to: State) -> bool {
    TABLE.change(key(number), from, to)
}

/// Forgets the lock of a port that is open or was closed: it goes on as a lock file's. Whether there surely is one.
pub(crate) fn leave_to_file(number: u64) -> bool {
    change(number, State::Open, State::None) || change(number, State::Closed, State::None)
}

/// Releases what is to be released, if the service may answer.
pub(crate) fn release(time: Duration) {
    if !none() && may_release() && TABLE.of(this()).any(|entry| entry.is_one_of(&TO_BE_RELEASED)) {
        if let Some(turn) = Turn::begin() {
            let _ = turn.send(time);
        }
    }
}

/// Releases a device before it is locked again. While another thread sends releases, this one waits; a signal handler
/// that has interrupted the sender does not.
pub(crate) fn clear(number: u64) -> Result<(), NoAnswer> {
    let end = seconds().saturating_add(settings().timeout.as_secs()).saturating_add(GRACE_SECS);
    while is_to_be_released(number) && seconds() < end {
        if let Some(turn) = Turn::begin() {
            turn.send(settings().timeout)?;
            break;
        }
        if SENDER.load(Ordering::Relaxed) == thread() {
            break;
        }
        rest(TURN_POLL);
    }
    if is_to_be_released(number) { Err(NoAnswer::Busy) } else { Ok(()) }
}

/// The right to send releases. What its thread closes meanwhile sends nothing.
struct Turn {
    word: u64,
}

impl Turn {
    /// None: another thread of this process has it, or this one itself.
    fn begin() -> Option<Self> {
        let now = seconds();
        let before = TURN.load(Ordering::Acquire);
        if before >> 32 == u64::from(this()) && now < before & u64::from(u32::MAX) {
            return None;
        }
        let end = now.saturating_add(settings().timeout.as_secs()).saturating_add(GRACE_SECS);
        let word = u64::from(this()) << 32 | end & u64::from(u32::MAX);
        TURN.compare_exchange(before, word, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        SENDER.store(thread(), Ordering::Relaxed);
        Some(Self { word })
    }

    fn send(self, time: Duration) -> Result<(), NoAnswer> {
        let mut service = Service::reach_within(time)?;
        let is_done = TABLE.release(this(), |name| service.unlock(name, Pid::this()));
        if !is_done {
            release_later();
        }
        // Its connection is closed within the turn: closing it would begin another one.
        drop(service);
        Ok(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // It may be another's: of a child of vfork(2), or because this one has taken too long.
        let _ = TURN.compare_exchange(self.word, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

struct Table {
    entries: [LockEntry; ENTRIES],
}

struct LockEntry {
    state: AtomicU8,
    /// Process and device.
    key: AtomicU64,
    length: AtomicUsize,
    name: [AtomicU8; NAME_BYTES],
}

impl Table {
    const fn new() -> Self {
        Self { entries: [const { LockEntry::new() }; ENTRIES] }
    }

    fn of(&self, process: u32) -> impl Iterator<Item = &LockEntry> {
        self.entries.iter().filter(move |entry| entry.process() == process)
    }

    fn find(&self, key: u64, states: &[State]) -> Option<&LockEntry> {
        self.entries.iter().find(|entry| entry.is_one_of(states) && entry.key() == key)
    }

    fn change(&self, key: u64, from: State, to: State) -> bool {
        self.find(key, &[from]).is_some_and(|entry| entry.change(from, to))
    }

    /// Where there is no free entry, that of another process is used, but not that of the parent: it may share this
    /// memory.
    fn put(&self, key: u64, name: &DeviceName, state: State, parent: u32) {
        let claim = |entry: &&LockEntry| entry.claim(&LOCKED) || entry.claim(&TO_BE_RELEASED);
        let mut known = self.entries.iter().filter(|entry| entry.key() == key);
        let known = known.find(claim);
        let free = || self.entries.iter().find(|entry| entry.claim(&[State::None]));
        let kept = [process_in(key), parent];
        let is_anothers = |entry: &&LockEntry| !kept.contains(&entry.process());
        let of_others = || self.entries.iter().filter(is_anothers).find(claim);
        if let Some(entry) = known.or_else(free).or_else(of_others) {
            entry.write(key, name);
            entry.state.store(state as u8, Ordering::Release);
        }
    }

    fn put_unless_locked(&self, key: u64, name: &DeviceName, state: State, parent: u32) {
        if self.find(key, &LOCKED).is_none() {
            self.put(key, name, state, parent);
        }
    }

    /// Releases what is to be released. Whether all is done, as far as the service answers.
    fn release(
        &self,
        process: u32,
        mut unlock: impl FnMut(&DeviceName) -> Option<Outcome>,
    ) -> bool {
        let mut is_done = true;
        for entry in self.of(process) {
            let Some(name) = entry.begin_release() else { continue };
            match unlock(&name) {
                None => break,
                Some(Outcome::Busy) => is_done = false,
                // What is not its own, or no device any more, need not be released.
                Some(Outcome::Done | Outcome::Denied) => {
                    _ = entry.change(State::InDoubt, State::None)
                }
            }
        }
        is_done
    }
}

impl LockEntry {
    const fn new() -> Self {
        Self {
            state: AtomicU8::new(State::None as u8),
            key: AtomicU64::new(0),
            length: AtomicUsize::new(0),
            name: [const { AtomicU8::new(0) }; NAME_BYTES],
        }
    }

    fn is_one_of(&self, states: &[State]) -> bool {
        let now = self.state.load(Ordering::Acquire);
        states.iter().any(|state| *state as u8 == now)
    }

    fn key(&self) -> u64 {
        self.key.load(Ordering::Acquire)
    }

    fn process(&self) -> u32 {
        process_in(self.key())
    }

    /// Whether this thread has the entry now, which was in one of these states.
    fn claim(&self, states: &[State]) -> bool {
        states.iter().any(|state| self.change(*state, State::InUse))
    }

    fn change(&self, from: State, to: State) -> bool {
        let (from, to) = (from as u8, to as u8);
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn write(&self, key: u64, name: &DeviceName) {
        let bytes = name.as_str().as_bytes();
        for (to, from) in self.name.iter().zip(bytes) {
            to.store(*from, Ordering::Relaxed);
        }
        self.length.store(bytes.len(), Ordering::Relaxed);
        self.key.store(key, Ordering::Release);
    }

    /// The name of a device that is to be released; from now on its lock is in doubt.
    fn begin_release(&self) -> Option<DeviceName> {
        if !self.claim(&TO_BE_RELEASED) {
            return None;
        }
        let mut bytes = [0; NAME_BYTES];
        for (to, from) in bytes.iter_mut().zip(&self.name) {
            *to = from.load(Ordering::Relaxed);
        }
        let length = self.length.load(Ordering::Relaxed);
        self.state.store(State::InDoubt as u8, Ordering::Release);
        DeviceName::parse(bytes.get(..length)?).ok()
    }
}

/// Process and device in one word: a device has 12 and 20 bits on Linux.
fn key_of(process: u32, device: u64) -> u64 {
    let (major, minor) = (libc::major(device), libc::minor(device));
    u64::from(process) << 32 | u64::from(major) << 20 | u64::from(minor)
}

fn process_in(key: u64) -> u32 {
    u32::try_from(key >> 32).unwrap_or_default()
}

fn key(device: u64) -> u64 {
    key_of(this(), device)
}

fn this() -> u32 {
    getpid().as_raw_nonzero().get().unsigned_abs()
}

fn parent() -> u32 {
    getppid().map_or(0, |parent| parent.as_raw_nonzero().get().unsigned_abs())
}

fn thread() -> u32 {
    gettid().as_raw_nonzero().get().unsigned_abs()
}

/// Of the monotonic clock.
fn seconds() -> u64 {
    now() / 1000
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const PARENT: u32 = 1;

    fn name(text: &str) -> DeviceName {
        DeviceName::parse(text.as_bytes()).unwrap()
    }

    fn put(table: &Table, process: u32, device: u64, state: State) {
        table.put(key_of(process, device), &name("ttyS0"), state, PARENT);
    }

    fn has(table: &Table, process: u32, device: u64, state: State) -> bool {
        table.find(key_of(process, device), &[state]).is_some()
    }

    /// Releases what is to be released, and returns what was asked for.
    fn release(table: &Table, process: u32, answer: Option<Outcome>) -> Vec<DeviceName> {
        let mut asked = Vec::new();
        table.release(process, |name| {
            asked.push(name.clone());
            answer
        });
        asked
    }

    /// The child of vfork(2) writes where its parent reads.
    #[test]
    fn a_child_has_nothing_of_its_parent_and_takes_nothing_from_it() {
        let table = Table::new();
        put(&table, 100, 5, State::Open);
        assert!(!has(&table, 101, 5, State::Open));
        assert!(!table.change(key_of(101, 5), State::Open, State::None));
        for device in 6..100 {
            table.put(key_of(101, device), &name("ttyS1"), State::Open, 100);
        }
        assert!(has(&table, 100, 5, State::Open) && has(&table, 101, 6, State::Open));
    }

    #[test]
    fn a_full_table_drops_entries_of_other_processes() {
        let table = Table::new();
        (1..100).for_each(|device| put(&table, 7, device, State::Open));
        let noted = (1..100).filter(|device| has(&table, 7, *device, State::Open)).count();
        assert_eq!(noted, ENTRIES);
        put(&table, 8, 5, State::Open);
        assert!(has(&table, 8, 5, State::Open));
    }

    #[test]
    fn a_pending_release_is_no_lock_and_is_sent_once() {
        let table = Table::new();
        let port = key_of(100, libc::makedev(188, 300));
        table.put(port, &name("ttyUSB3"), State::Open, PARENT);
        let longest = name(&"x".repeat(NAME_BYTES));
        table.put(port, &longest, State::Open, PARENT);
        let close = || table.change(port, State::Open, State::Closed);
        assert!(close() && !close());
        assert_eq!(release(&table, 101, Some(Outcome::Done)), []);
        assert_eq!(release(&table, 100, Some(Outcome::Done)), [longest], "by its last name");
        assert_eq!(release(&table, 100, Some(Outcome::Done)), []);
        table.put(port, &name("ttyUSB300"), State::Closed, PARENT);
        table.put(port, &name("ttyUSB300"), State::Open, PARENT);
        assert_eq!(release(&table, 100, Some(Outcome::Done)), [], "it is locked again");
    }

    #[rstest]
    #[case::without_an_answer(None)]
    #[case::refused(Some(Outcome::Busy))]
    fn a_release_sent_in_vain_is_repeated_and_the_lock_does_not_count(
        #[case] answer: Option<Outcome>,
    ) {
        let table = Table::new();
        put(&table, 100, 5, State::Closed);
        assert_eq!(release(&table, 100, answer), [name("ttyS0")]);
        assert!(has(&table, 100, 5, State::InDoubt));
        assert_eq!(release(&table, 100, Some(Outcome::Done)), [name("ttyS0")]);
        assert!(!has(&table, 100, 5, State::InDoubt));
    }

    /// A request that came to nothing in one thread, while another has got the device.
    #[test]
    fn a_held_lock_has_no_pending_release() {
        let table = Table::new();
        put(&table, 100, 5, State::Open);
        table.put_unless_locked(key_of(100, 5), &name("ttyS0"), State::Closed, PARENT);
        assert!(has(&table, 100, 5, State::Open));
        table.change(key_of(100, 5), State::Open, State::Closed);
        table.release(100, |_| {
            put(&table, 100, 5, State::Open);
            Some(Outcome::Done)
        });
        assert!(has(&table, 100, 5, State::Open), "locked again during the release");
    }

    #[test]
    fn a_service_that_does_not_answer_is_asked_no_more() {
        let table = Table::new();
        (1..=3).for_each(|device| put(&table, 100, device, State::Closed));
        assert_eq!(release(&table, 100, None).len(), 1);
        assert_eq!(release(&table, 100, Some(Outcome::Busy)).len(), 3);
    }

    #[test]
    fn one_thread_at_a_time_has_the_turn_and_it_expires() {
        let turn = Turn::begin().unwrap();
        assert!(Turn::begin().is_none(), "what it closes sends nothing");
        let other = std::thread::spawn(|| Turn::begin().is_none());
        assert!(other.join().unwrap());
        drop(turn);
        // Left without an end, as by siglongjmp(3), and long ago.
        std::mem::forget(Turn::begin().unwrap());
        let left = TURN.load(Ordering::Relaxed);
        TURN.store(left & !u64::from(u32::MAX), Ordering::Relaxed);
        let turn = Turn::begin().unwrap();
        // A child of vfork(2) has begun its own meanwhile.
        let childs = u64::from(this() + 1) << 32 | u64::from(u32::MAX);
        TURN.store(childs, Ordering::Relaxed);
        drop(turn);
        assert_eq!(TURN.load(Ordering::Relaxed), childs, "it is the child's to end");
        assert!(Turn::begin().is_some(), "it keeps no other process from its turn");
    }
}
