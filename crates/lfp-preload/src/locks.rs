//! The locks of this process that the library knows of, by device number: of ports that are open, of lock files, and
//! those that are to be released. A release is repeated until the service confirms it.
//!
//! Fixed in size and without locks, because it is used between fork and exec, in signal handlers and by programs with
//! threads. A child inherits the memory but not the locks, and a child of vfork(2) shares the memory, so every entry has
//! its process.
//!
//! A thread that is about to open a port that is locked already counts like a descriptor until its open(2) has returned:
//! otherwise another thread would release the port by closing its own descriptor. A thread that never returns from there,
//! because it is cancelled or leaves by siglongjmp(3), keeps the lock until its process ends.
//!
//! One thread at a time sends releases. A device that is to be released is locked again only when the service has
//! confirmed its release: a release that arrives after the new lock would end that one.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use pidlockfile::Pid;
use rustix::process::{getpid, getppid};
use rustix::thread::gettid;
use ttylock::{DeviceName, NAME_BYTES, Outcome};

use crate::service::{NoAnswer, Service, may_release, now, release_later, rest};
use crate::settings::settings;

/// The number of locks that are known at a time. The service is asked about others each time.
const ENTRIES: usize = 32;

/// What is known of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum LockState {
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

const LOCKED: [LockState; 4] =
    [LockState::Open, LockState::File, LockState::Adopted, LockState::Passed];
const TO_BE_RELEASED: [LockState; 2] = [LockState::Closed, LockState::InDoubt];

static TABLE: LockTable = LockTable::new();

/// Whether there was ever a lock, in this process or in one that it descends from.
static ANY: AtomicBool = AtomicBool::new(false);

/// The process that sends releases, and the second until which that may take; 0: none does. A thread that leaves its
/// turn by siglongjmp(3) never ends it.
static TURN: AtomicU64 = AtomicU64::new(0);

/// The thread that has the turn.
static SENDER: AtomicU32 = AtomicU32::new(0);

/// The process whose threads are asking for locks, and how many are: the service may have given one to a thread that has
/// not noted it yet.
static ASKING: AtomicU64 = AtomicU64::new(0);

/// How often a port was noted as open.
static NOTED: AtomicU64 = AtomicU64::new(0);

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
pub(crate) fn is(number: u64, states: &[LockState]) -> bool {
    !none() && TABLE.find(key(number), states).is_some()
}

/// Whether the device is to be released.
pub(crate) fn is_to_be_released(number: u64) -> bool {
    is(number, &TO_BE_RELEASED)
}

/// Notes a state, whatever was known before. With `Open`, an opening begins, which `end_opening` ends.
pub(crate) fn set(number: u64, name: &DeviceName, state: LockState) {
    ANY.store(true, Ordering::Release);
    TABLE.put(key(number), name, state, parent());
    if state == LockState::Open {
        NOTED.fetch_add(1, Ordering::AcqRel);
    }
}

/// How often a port was noted as open, to see whether that has happened since.
pub(crate) fn noted() -> u64 {
    NOTED.load(Ordering::Acquire)
}

/// Notes that a device is to be released, unless it is locked: another thread may have got it meanwhile, and releases it
/// by closing it.
pub(crate) fn set_to_be_released(number: u64, name: &DeviceName, state: LockState) {
    ANY.store(true, Ordering::Release);
    TABLE.put_unless_locked(key(number), name, state, parent());
}

/// Begins an opening of a port that is locked because it is open: no thread releases it before `end_opening`. Whether it
/// is locked for that.
pub(crate) fn begin_opening(number: u64) -> bool {
    !none() && TABLE.find(key(number), &[LockState::Open]).is_some_and(LockEntry::begin_opening)
}

/// The open(2) has returned. A descriptor counts from now on.
pub(crate) fn end_opening(number: u64) {
    TABLE.end_opening(key(number));
}

/// The state of a port that is locked because it is open, while no opening is under way. Whether the port has a descriptor
/// is to be found out after this call, and before `close`.
pub(crate) fn idle(number: u64) -> Option<Idle> {
    TABLE.find(key(number), &[LockState::Open])?.idle()
}

/// The port has no descriptor: it is to be released, unless it was opened since `idle`.
pub(crate) fn close(number: u64, idle: Idle) -> bool {
    TABLE.find(key(number), &[LockState::Open]).is_some_and(|entry| entry.close(idle))
}

/// A thread asks for a lock, until it has noted the answer.
pub(crate) fn begin_asking() {
    let this = u64::from(this()) << 32;
    let begun =
        |word: u64| Some(if word >> 32 << 32 == this { word.wrapping_add(1) } else { this | 1 });
    let _ = ASKING.fetch_update(Ordering::AcqRel, Ordering::Acquire, begun);
}

pub(crate) fn end_asking() {
    let ended = |word| is_asking(word).then(|| word.wrapping_sub(1));
    let _ = ASKING.fetch_update(Ordering::AcqRel, Ordering::Acquire, ended);
}

/// Whether a thread is asking. One that never returned, as by siglongjmp(3), counts for ever.
pub(crate) fn is_asked_for() -> bool {
    is_asking(ASKING.load(Ordering::Acquire))
}

fn is_asking(word: u64) -> bool {
    word >> 32 == u64::from(this()) && word & u64::from(u32::MAX) != 0
}

/// Changes one state into another. Whether the device was in the first one.
pub(crate) fn change(number: u64, from: LockState, to: LockState) -> bool {
    TABLE.change(key(number), from, to)
}

/// The lock of a port that is open or was closed becomes the lock of a lock file: close(2) does not release it. Returns
/// whether there surely is such a lock.
pub(crate) fn leave_to_file(number: u64) -> bool {
    change(number, LockState::Open, LockState::None)
        || change(number, LockState::Closed, LockState::None)
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

struct LockTable {
    entries: [LockEntry; ENTRIES],
}

/// The word of an entry without openings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idle(u64);

/// The state is the lowest byte of an entry's word. Above it are the openings that are under way, and above those a
/// number that grows with each opening: one that has begun and ended meanwhile is noticed, too.
const STATE: u64 = 0xff;
const ONE_OPENING: u64 = 1 << 8;
const OPENINGS: u64 = 0xffff << 8;
const ONE_MORE: u64 = 1 << 24;

fn with_state(word: u64, state: LockState) -> u64 {
    word & !STATE | state as u64
}

fn with_opening(word: u64) -> u64 {
    word.wrapping_add(ONE_OPENING).wrapping_add(ONE_MORE)
}

struct LockEntry {
    /// LockState and openings.
    word: AtomicU64,
    /// Process and device.
    key: AtomicU64,
    length: AtomicUsize,
    name: [AtomicU8; NAME_BYTES],
}

impl LockTable {
    const fn new() -> Self {
        Self { entries: [const { LockEntry::new() }; ENTRIES] }
    }

    fn of(&self, process: u32) -> impl Iterator<Item = &LockEntry> {
        self.entries.iter().filter(move |entry| entry.process() == process)
    }

    fn find(&self, key: u64, states: &[LockState]) -> Option<&LockEntry> {
        self.entries.iter().find(|entry| entry.is_one_of(states) && entry.key() == key)
    }

    fn change(&self, key: u64, from: LockState, to: LockState) -> bool {
        self.find(key, &[from]).is_some_and(|entry| entry.change(from, to))
    }

    /// Where there is no free entry, that of another process is used, but not that of the parent: it may share this
    /// memory.
    fn put(&self, key: u64, name: &DeviceName, state: LockState, parent: u32) {
        let claim = |entry: &&LockEntry| entry.claim(&LOCKED) || entry.claim(&TO_BE_RELEASED);
        let mut known = self.entries.iter().filter(|entry| entry.key() == key);
        let known = known.find(claim);
        let free = || self.entries.iter().find(|entry| entry.claim(&[LockState::None]));
        let kept = [process_in(key), parent];
        let is_anothers = |entry: &&LockEntry| !kept.contains(&entry.process());
        let of_others = || self.entries.iter().filter(is_anothers).find(claim);
        if let Some(entry) = known.or_else(free).or_else(of_others) {
            entry.write(key, name);
            // A port is noted as open by the thread that is about to open it.
            entry.update(|word| {
                let word = with_state(word, state);
                Some(if state == LockState::Open { with_opening(word) } else { word })
            });
        }
    }

    fn end_opening(&self, key: u64) {
        let mut known = self.entries.iter().filter(|entry| entry.key() == key);
        let _ = known.find(|entry| {
            entry.update(|word| (word & OPENINGS != 0).then(|| word.wrapping_sub(ONE_OPENING)))
        });
    }

    fn put_unless_locked(&self, key: u64, name: &DeviceName, state: LockState, parent: u32) {
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
                    _ = entry.change(LockState::InDoubt, LockState::None)
                }
            }
        }
        is_done
    }
}

impl LockEntry {
    const fn new() -> Self {
        Self {
            word: AtomicU64::new(LockState::None as u64),
            key: AtomicU64::new(0),
            length: AtomicUsize::new(0),
            name: [const { AtomicU8::new(0) }; NAME_BYTES],
        }
    }

    fn is_one_of(&self, states: &[LockState]) -> bool {
        let now = self.word.load(Ordering::Acquire) & STATE;
        states.iter().any(|state| *state as u64 == now)
    }

    fn key(&self) -> u64 {
        self.key.load(Ordering::Acquire)
    }

    fn process(&self) -> u32 {
        process_in(self.key())
    }

    /// Whether this thread has the entry now, which was in one of these states.
    fn claim(&self, states: &[LockState]) -> bool {
        states.iter().any(|state| self.change(*state, LockState::InUse))
    }

    fn change(&self, from: LockState, to: LockState) -> bool {
        self.update(|word| (word & STATE == from as u64).then(|| with_state(word, to)))
    }

    /// Whether the word was one that `new` changes.
    fn update(&self, new: impl FnMut(u64) -> Option<u64>) -> bool {
        self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, new).is_ok()
    }

    fn begin_opening(&self) -> bool {
        self.update(|word| (word & STATE == LockState::Open as u64).then(|| with_opening(word)))
    }

    fn idle(&self) -> Option<Idle> {
        let word = self.word.load(Ordering::Acquire);
        (word & (STATE | OPENINGS) == LockState::Open as u64).then_some(Idle(word))
    }

    fn close(&self, Idle(word): Idle) -> bool {
        let closed = with_state(word, LockState::Closed);
        self.word.compare_exchange(word, closed, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn write(&self, key: u64, name: &DeviceName) {
        if self.key() != key {
            // They were openings of another device, or another process's.
            self.update(|word| Some(word & !OPENINGS));
        }
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
        self.change(LockState::InUse, LockState::InDoubt);
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

    fn put(table: &LockTable, process: u32, device: u64, state: LockState) {
        table.put(key_of(process, device), &name("ttyS0"), state, PARENT);
    }

    fn has(table: &LockTable, process: u32, device: u64, state: LockState) -> bool {
        table.find(key_of(process, device), &[state]).is_some()
    }

    /// Releases what is to be released, and returns what was asked for.
    fn release(table: &LockTable, process: u32, answer: Option<Outcome>) -> Vec<DeviceName> {
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
        let table = LockTable::new();
        put(&table, 100, 5, LockState::Open);
        assert!(!has(&table, 101, 5, LockState::Open));
        assert!(!table.change(key_of(101, 5), LockState::Open, LockState::None));
        for device in 6..100 {
            table.put(key_of(101, device), &name("ttyS1"), LockState::Open, 100);
        }
        assert!(has(&table, 100, 5, LockState::Open) && has(&table, 101, 6, LockState::Open));
    }

    #[test]
    fn a_full_table_drops_entries_of_other_processes() {
        let table = LockTable::new();
        (1..100).for_each(|device| put(&table, 7, device, LockState::Open));
        let noted = (1..100).filter(|device| has(&table, 7, *device, LockState::Open)).count();
        assert_eq!(noted, ENTRIES);
        put(&table, 8, 5, LockState::Open);
        assert!(has(&table, 8, 5, LockState::Open));
    }

    #[test]
    fn a_pending_release_is_no_lock_and_is_sent_once() {
        let table = LockTable::new();
        let port = key_of(100, libc::makedev(188, 300));
        table.put(port, &name("ttyUSB3"), LockState::Open, PARENT);
        let longest = name(&"x".repeat(NAME_BYTES));
        table.put(port, &longest, LockState::Open, PARENT);
        let close = || table.change(port, LockState::Open, LockState::Closed);
        assert!(close() && !close());
        assert_eq!(release(&table, 101, Some(Outcome::Done)), []);
        assert_eq!(release(&table, 100, Some(Outcome::Done)), [longest], "by its last name");
        assert_eq!(release(&table, 100, Some(Outcome::Done)), []);
        table.put(port, &name("ttyUSB300"), LockState::Closed, PARENT);
        table.put(port, &name("ttyUSB300"), LockState::Open, PARENT);
        assert_eq!(release(&table, 100, Some(Outcome::Done)), [], "it is locked again");
    }

    #[rstest]
    #[case::without_an_answer(None)]
    #[case::refused(Some(Outcome::Busy))]
    fn a_release_sent_in_vain_is_repeated_and_the_lock_does_not_count(
        #[case] answer: Option<Outcome>,
    ) {
        let table = LockTable::new();
        put(&table, 100, 5, LockState::Closed);
        assert_eq!(release(&table, 100, answer), [name("ttyS0")]);
        assert!(has(&table, 100, 5, LockState::InDoubt));
        assert_eq!(release(&table, 100, Some(Outcome::Done)), [name("ttyS0")]);
        assert!(!has(&table, 100, 5, LockState::InDoubt));
    }

    /// Whatever has happened between the look and the close, a descriptor may be there that was not seen.
    #[rstest]
    #[case::nothing(&[], true)]
    #[case::an_opening_is_under_way(&["begin"], false)]
    #[case::an_opening_has_ended(&["begin", "end"], false)]
    #[case::locked_once_more(&["put"], false)]
    fn a_port_is_closed_only_as_it_was_seen(#[case] meanwhile: &[&str], #[case] closed: bool) {
        let table = LockTable::new();
        let port = key_of(100, 5);
        put(&table, 100, 5, LockState::Open);
        let entry = table.find(port, &[LockState::Open]).unwrap();
        assert!(entry.idle().is_none(), "the first opening is under way");
        table.end_opening(port);
        let idle = entry.idle().unwrap();
        for word in meanwhile {
            match *word {
                "begin" => assert!(entry.begin_opening()),
                "end" => table.end_opening(port),
                _ => put(&table, 100, 5, LockState::Open),
            }
        }
        assert_eq!(entry.close(idle), closed);
        assert_eq!(has(&table, 100, 5, LockState::Closed), closed);
    }

    /// The entry is used for another device, while an opening of the first one has never returned.
    #[test]
    fn openings_of_one_device_do_not_count_for_another() {
        let table = LockTable::new();
        put(&table, 100, 5, LockState::Open);
        table.change(key_of(100, 5), LockState::Open, LockState::None);
        put(&table, 100, 6, LockState::Open);
        table.end_opening(key_of(100, 5));
        let entry = table.find(key_of(100, 6), &[LockState::Open]).unwrap();
        assert!(entry.idle().is_none());
        table.end_opening(key_of(100, 6));
        assert!(entry.idle().is_some());
    }

    /// A request that came to nothing in one thread, while another has got the device.
    #[test]
    fn a_held_lock_has_no_pending_release() {
        let table = LockTable::new();
        put(&table, 100, 5, LockState::Open);
        table.put_unless_locked(key_of(100, 5), &name("ttyS0"), LockState::Closed, PARENT);
        assert!(has(&table, 100, 5, LockState::Open));
        table.change(key_of(100, 5), LockState::Open, LockState::Closed);
        table.release(100, |_| {
            put(&table, 100, 5, LockState::Open);
            Some(Outcome::Done)
        });
        assert!(has(&table, 100, 5, LockState::Open), "locked again during the release");
    }

    #[test]
    fn a_service_that_does_not_answer_is_asked_no_more() {
        let table = LockTable::new();
        (1..=3).for_each(|device| put(&table, 100, device, LockState::Closed));
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
