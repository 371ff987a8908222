//! The devices that this process has locked, by device number, with the names that the service knows: so the
//! service need not be asked, and releases can be repeated.
//!
//! Fixed in size and without locks, because it is used between fork and exec, in signal handlers and by
//! programs with threads. A child inherits the memory but not the locks, and a child of vfork(2) shares it,
//! so every entry has its process.

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use ttylock::{DeviceName, NAME_BYTES};

/// As many devices are noted at a time; what does not fit is asked for each time.
const PLACES: usize = 32;

/// A name, eight bytes in each.
const WORDS: usize = NAME_BYTES.div_ceil(8);

/// What a note is. Only the thread that changes it from one of the others to `WRITTEN` reads and writes the
/// rest. Nobody waits for that thread: a signal handler may have interrupted it.
const FREE: u8 = 0;
const WRITTEN: u8 = 1;
const HAD: u8 = 2;
const OWED: u8 = 3;
/// The service was told that the device is free, and has not answered, or not yet: the lock may go at any moment.
const TOLD: u8 = 4;

/// The devices that processes have by one way of locking.
pub(crate) struct Held {
    notes: [Note; PLACES],
}

struct Note {
    state: AtomicU8,
    /// Process and device.
    key: AtomicU64,
    length: AtomicUsize,
    name: [AtomicU64; WORDS],
}

/// A process's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) process: u32,
    pub(crate) device: u64,
}

impl Key {
    /// In one word: a device has 12 and 20 bits on Linux. None: no device has number 0.
    fn word(self) -> Option<u64> {
        let (major, minor) = (libc::major(self.device), libc::minor(self.device));
        let word = u64::from(self.process) << 32 | u64::from(major) << 20 | u64::from(minor);
        (self.device != 0).then_some(word)
    }
}

impl Held {
    pub(crate) const fn new() -> Self {
        Self { notes: [const { Note::new() }; PLACES] }
    }

    pub(crate) fn contains(&self, key: Key) -> bool {
        self.find(key, HAD).is_some()
    }

    /// Whether the service has not confirmed yet that the device is free.
    pub(crate) fn owes(&self, key: Key) -> bool {
        self.find(key, OWED).or_else(|| self.find(key, TOLD)).is_some()
    }

    /// Whether there is anything that the service has not confirmed.
    pub(crate) fn owes_anything(&self, process: u32) -> bool {
        self.notes.iter().any(|note| note.is_owed_by(process))
    }

    /// Notes a device. Where there is no place, it takes that of another process, except `parent`, which may
    /// share this memory.
    pub(crate) fn insert(&self, key: Key, name: &DeviceName, parent: u32) {
        self.put(key, name, parent, HAD);
    }

    /// Notes a device that is to be released. Not one that it has: another thread may have got it meanwhile,
    /// and releases it by closing it.
    pub(crate) fn owe(&self, key: Key, name: &DeviceName, parent: u32) {
        if !self.contains(key) {
            self.put(key, name, parent, OWED);
        }
    }

    /// Notes a device that the service was told to release, without an answer.
    pub(crate) fn doubt(&self, key: Key, name: &DeviceName, parent: u32) {
        if !self.contains(key) {
            self.put(key, name, parent, TOLD);
        }
    }

    /// A device is to be released from now on. Whether this process had it.
    pub(crate) fn turns(&self, key: Key) -> bool {
        let note = self.find(key, HAD);
        note.is_some_and(|note| {
            note.state.compare_exchange(HAD, OWED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
    }

    /// Forgets a device. Whether this process surely has it, if only for the service: a lock that the service
    /// was told to release is nobody's to count on.
    pub(crate) fn remove(&self, key: Key) -> bool {
        let empty = |state| self.find(key, state).is_some_and(|note| note.empty(state));
        empty(HAD) || empty(OWED)
    }

    /// The service is told what a process owes. What it confirms is forgotten; false: it does not answer, and
    /// is told no more.
    pub(crate) fn tell(&self, process: u32, mut confirms: impl FnMut(&DeviceName) -> Option<bool>) {
        for note in &self.notes {
            let Some(name) = note.is_owed_by(process).then(|| note.told()).flatten() else {
                continue;
            };
            match confirms(&name) {
                Some(true) => _ = note.empty(TOLD),
                Some(false) => {}
                None => return,
            }
        }
    }

    fn put(&self, key: Key, name: &DeviceName, parent: u32, state: u8) {
        let Some(word) = key.word() else { return };
        let known = [HAD, OWED, TOLD].into_iter().find_map(|state| self.find(key, state));
        let free = || self.notes.iter().find(|note| note.claim(FREE));
        let others = || {
            self.notes.iter().find(|note| {
                let owner = note.key.load(Ordering::Acquire) >> 32;
                owner != u64::from(key.process) && owner != u64::from(parent) && note.claim_any()
            })
        };
        let place = known.filter(|note| note.claim_any()).or_else(free).or_else(others);
        if let Some(note) = place {
            note.write(word, name);
            note.state.store(state, Ordering::Release);
        }
    }

    fn find(&self, key: Key, state: u8) -> Option<&Note> {
        let word = key.word()?;
        self.notes.iter().find(|note| {
            note.state.load(Ordering::Acquire) == state && note.key.load(Ordering::Acquire) == word
        })
    }
}

impl Note {
    const fn new() -> Self {
        Self {
            state: AtomicU8::new(FREE),
            key: AtomicU64::new(0),
            length: AtomicUsize::new(0),
            name: [const { AtomicU64::new(0) }; WORDS],
        }
    }

    fn is_owed_by(&self, process: u32) -> bool {
        [OWED, TOLD].contains(&self.state.load(Ordering::Acquire))
            && self.key.load(Ordering::Acquire) >> 32 == u64::from(process)
    }

    fn claim(&self, from: u8) -> bool {
        self.state.compare_exchange(from, WRITTEN, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn claim_any(&self) -> bool {
        self.claim(HAD) || self.claim(OWED) || self.claim(TOLD)
    }

    fn write(&self, key: u64, name: &DeviceName) {
        let bytes = name.as_str().as_bytes();
        for (word, piece) in self.name.iter().zip(bytes.chunks(8)) {
            let mut eight = [0; 8];
            eight.iter_mut().zip(piece).for_each(|(to, from)| *to = *from);
            word.store(u64::from_ne_bytes(eight), Ordering::Relaxed);
        }
        self.length.store(bytes.len(), Ordering::Relaxed);
        self.key.store(key, Ordering::Release);
    }

    /// Its name, of a debt that the service is told of from now on.
    fn told(&self) -> Option<DeviceName> {
        if !self.claim(OWED) && !self.claim(TOLD) {
            return None;
        }
        let name = self.name();
        self.state.store(TOLD, Ordering::Release);
        name
    }

    fn name(&self) -> Option<DeviceName> {
        let mut bytes = [0; WORDS * 8];
        for (to, word) in bytes.chunks_mut(8).zip(&self.name) {
            let eight = word.load(Ordering::Relaxed).to_ne_bytes();
            to.iter_mut().zip(eight).for_each(|(to, from)| *to = from);
        }
        DeviceName::parse(bytes.get(..self.length.load(Ordering::Relaxed))?).ok()
    }

    /// From now on the place is free.
    fn empty(&self, from: u8) -> bool {
        let is_ours = self.claim(from);
        if is_ours {
            self.key.store(0, Ordering::Release);
            self.state.store(FREE, Ordering::Release);
        }
        is_ours
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const PARENT: u32 = 1;

    fn key(device: u64, process: u32) -> Key {
        Key { process, device }
    }

    fn name(text: &str) -> DeviceName {
        DeviceName::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn notes_are_kept_until_removed() {
        let held = Held::new();
        let port = key(5, 100);
        assert!(!held.contains(port));
        held.insert(port, &name("ttyS0"), PARENT);
        held.insert(port, &name("ttyS0"), PARENT);
        assert!(held.contains(port) && !held.contains(key(5, 101)) && !held.contains(key(6, 100)));
        assert!(held.remove(port), "ours");
        assert!(!held.remove(port), "only once");
        assert!(!held.contains(port));
    }

    /// The child of vfork(2) writes where its parent reads.
    #[test]
    fn a_child_has_nothing_of_its_parent_and_takes_nothing_from_it() {
        let held = Held::new();
        held.insert(key(5, 100), &name("ttyS0"), PARENT);
        assert!(!held.contains(key(5, 101)) && !held.remove(key(5, 101)));
        (6..100).for_each(|device| held.insert(key(device, 101), &name("ttyS1"), 100));
        assert!(held.contains(key(5, 100)) && held.contains(key(6, 101)));
    }

    #[test]
    fn a_full_table_drops_entries_of_dead_processes() {
        let held = Held::new();
        (1..100).for_each(|device| held.insert(key(device, 7), &name("ttyS0"), PARENT));
        held.insert(key(5, 8), &name("ttyS1"), PARENT);
        assert!(held.contains(key(5, 8)));
    }

    #[test]
    fn a_pending_release_is_no_lock_and_is_sent_once() {
        let held = Held::new();
        let device = libc::makedev(188, 300);
        let port = key(device, 100);
        held.insert(port, &name("ttyUSB3"), PARENT);
        let longest = name(&"x".repeat(NAME_BYTES));
        held.insert(port, &longest, PARENT);
        assert!(held.turns(port) && !held.turns(port));
        assert!(held.owes(port) && !held.contains(port));
        assert_eq!(tell(&held, 101, Some(true)), []);
        assert_eq!(tell(&held, 100, Some(true)), [longest], "by its last name");
        assert_eq!(tell(&held, 100, Some(true)), []);
        held.owe(port, &name("ttyUSB300"), PARENT);
        held.insert(port, &name("ttyUSB300"), PARENT);
        assert!(held.contains(port) && !held.owes(port), "it is had again");
    }

    /// Tells what is owed, and gives what was told.
    fn tell(held: &Held, process: u32, answer: Option<bool>) -> Vec<DeviceName> {
        let mut told = Vec::new();
        held.tell(process, |name| {
            told.push(name.clone());
            answer
        });
        told
    }

    #[rstest]
    #[case::without_an_answer(None)]
    #[case::refused(Some(false))]
    fn a_release_sent_in_vain_stays_owed_and_the_lock_does_not_count(#[case] answer: Option<bool>) {
        let held = Held::new();
        let (port, ttys0) = (key(libc::makedev(4, 64), 100), name("ttyS0"));
        held.owe(port, &ttys0, PARENT);
        assert_eq!(tell(&held, 100, answer), std::slice::from_ref(&ttys0));
        assert!(held.owes(port) && held.owes_anything(100));
        assert!(!held.remove(port), "it may go at any moment");
        assert_eq!(tell(&held, 100, Some(true)), [ttys0], "told again");
        assert!(!held.owes(port) && !held.owes_anything(100));
    }

    /// A request that came to nothing in one thread, while another has got the device.
    #[test]
    fn a_held_lock_has_no_pending_release() {
        let held = Held::new();
        let port = key(libc::makedev(4, 64), 100);
        held.insert(port, &name("ttyS0"), PARENT);
        held.owe(port, &name("ttyS0"), PARENT);
        assert!(held.contains(port) && !held.owes(port));
        held.turns(port);
        held.tell(100, |name| {
            held.insert(port, name, PARENT);
            Some(true)
        });
        assert!(held.contains(port), "had anew while the service was told");
    }

    #[test]
    fn a_process_that_does_not_answer_is_told_no_more() {
        let held = Held::new();
        (1..=3).for_each(|device| held.owe(key(device, 100), &name("ttyS0"), PARENT));
        assert_eq!(tell(&held, 100, None).len(), 1);
        assert_eq!(tell(&held, 100, Some(false)).len(), 3);
    }

    #[test]
    fn device_number_zero_is_never_noted() {
        let held = Held::new();
        held.insert(key(0, 100), &name("null"), PARENT);
        assert!(!held.contains(key(0, 100)) && !held.remove(key(0, 100)));
    }

    #[test]
    fn a_full_table_notes_nothing_more() {
        let held = Held::new();
        (1..=100).for_each(|device| held.insert(key(device, 7), &name("ttyS0"), PARENT));
        let noted = (1..=100).filter(|device| held.contains(key(*device, 7))).count();
        assert_eq!(noted, PLACES);
    }
}
