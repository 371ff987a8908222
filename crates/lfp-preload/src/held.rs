//! Which devices this process has, by device number: what it need not ask the service about.
//!
//! Fixed in size and without locks, because it is used between fork and exec, in signal handlers
//! and by programs with threads. A child inherits the memory but not the locks, so what another
//! process has noted does not count.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// As many devices one process has at a time; what does not fit is asked for each time.
const PLACES: usize = 16;

/// The devices that one process has by one way of locking.
pub(crate) struct Held {
    owner: AtomicU32,
    devices: [AtomicU64; PLACES],
}

impl Held {
    pub(crate) const fn new() -> Self {
        Self { owner: AtomicU32::new(0), devices: [const { AtomicU64::new(0) }; PLACES] }
    }

    /// Whether the notes are this process's, which is asked for its number only where there are
    /// any: for calls that are made often.
    pub(crate) fn is_of(&self, process: impl FnOnce() -> u32) -> bool {
        let owner = self.owner.load(Ordering::Relaxed);
        owner != 0 && owner == process()
    }

    pub(crate) fn contains(&self, device: u64, process: u32) -> bool {
        device != 0
            && self.owner.load(Ordering::Acquire) == process
            && self.devices.iter().any(|it| it.load(Ordering::Acquire) == device)
    }

    /// Notes a device; no device has number 0.
    pub(crate) fn insert(&self, device: u64, process: u32) {
        if self.owner.swap(process, Ordering::AcqRel) != process {
            // The notes are a parent's.
            self.devices.iter().for_each(|it| it.store(0, Ordering::Release));
        }
        if self.contains(device, process) {
            return;
        }
        let free = |it: &&AtomicU64| {
            it.compare_exchange(0, device, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let _ = self.devices.iter().find(free);
    }

    /// Forgets a device. Whether this process had it.
    pub(crate) fn remove(&self, device: u64, process: u32) -> bool {
        device != 0
            && self.owner.load(Ordering::Acquire) == process
            && self.devices.iter().any(|it| {
                it.compare_exchange(device, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_kept_until_removed() {
        let held = Held::new();
        assert!(!held.is_of(|| 0) && !held.contains(5, 100));
        held.insert(5, 100);
        held.insert(5, 100);
        assert!(held.contains(5, 100) && held.is_of(|| 100) && !held.is_of(|| 101));
        assert!(held.remove(5, 100), "ours");
        assert!(!held.remove(5, 100), "only once");
        assert!(!held.contains(5, 100));
    }

    #[test]
    fn a_child_has_nothing_of_its_parent() {
        let held = Held::new();
        held.insert(5, 100);
        assert!(!held.contains(5, 101) && !held.remove(5, 101));
        held.insert(6, 101);
        assert!(!held.contains(5, 101) && held.contains(6, 101));
    }

    #[test]
    fn no_device_is_not_noted() {
        let held = Held::new();
        held.insert(5, 100);
        assert!(!held.contains(0, 100) && !held.remove(0, 100));
    }

    #[test]
    fn more_than_fit_are_not_noted() {
        let held = Held::new();
        (1..=100).for_each(|device| held.insert(device, 7));
        let noted = (1..=100).filter(|device| held.contains(*device, 7)).count();
        assert_eq!(noted, PLACES);
    }
}
