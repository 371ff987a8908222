//! The promises to clients that every header records: the greatest fence, the longest lease, and until when there may
//! be forgotten leases; and the times by which they are kept. Pure.

use super::codec::{BootId, Closing, DirId, Doubt, Entry, Header};
use super::load::Loaded;
use leases::journal::RecordedHold;
use leases::{Moment, Seconds};

/// How many fences may be given out before the next one is noted.
const FENCES_AHEAD: u64 = 1 << 20;
/// The pause between two notes that long leases have ended. A note is a write to the disk, and so is that of the next
/// long lease.
const LOWER_EVERY: Seconds = Seconds::new(60).unwrap();

/// The start of the machine and the directory to which a record belongs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    /// This start of the machine.
    pub(super) boot: BootId,
    /// The id for the directory if its files have none.
    pub(super) dir: DirId,
    /// Whether answers wait for the disk.
    pub(super) synced: Synced,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Promises {
    origin: Origin,
    /// No fence above this may be given out before it is noted.
    fence: u64,
    /// No lease longer than this may be promised before it is noted, in seconds.
    longest: u64,
    /// Leases that are not longer need no note.
    usual: u64,
    /// When `longest` may be lowered again.
    lower_at: Moment,
    /// Nothing may be granted before this, and why.
    closing: Option<(Doubt, u64)>,
    /// Whether something new must be on the disk before a client knows of it.
    due: bool,
}

impl Promises {
    /// Continues the promises that were found. Leases that are not longer than `usual`, or than those of present
    /// holds, need no further note.
    pub(super) fn new(origin: Origin, found: &Loaded, usual: Seconds, times: Times) -> Self {
        let until = |(doubt, micros)| (doubt, times.boot_micros.saturating_add(micros));
        Self {
            origin: Origin { dir: found.dir.unwrap_or(origin.dir), ..origin },
            fence: found.fence.saturating_add(FENCES_AHEAD),
            longest: found.longest_held().max(usual.count()),
            usual: usual.count(),
            lower_at: Moment::default(),
            closing: found.wait(usual).map(until),
            due: false,
        }
    }

    /// A lease begins. Returns an entry to write before it, if one is needed.
    pub(super) fn promise(&mut self, hold: &RecordedHold) -> Option<Entry> {
        // The length is rounded up, so that few notes are enough, whatever clients ask for.
        let seconds = hold.ttl.span().count();
        if seconds > self.longest {
            self.longest = rounded(seconds);
            self.due = true;
        }
        // Noted long before it is needed.
        let fence = hold.token.fence();
        if fence.saturating_add(FENCES_AHEAD / 2) <= self.fence {
            return None;
        }
        self.fence = fence.saturating_add(FENCES_AHEAD);
        self.due = true;
        Some(self.fence())
    }

    /// Only leases of present holds, of these lengths in seconds, and of later ones can be missing: notes that, if it is
    /// time.
    pub(super) fn lower(&mut self, present: impl Iterator<Item = u64>, now: Moment) {
        if self.longest <= self.usual || now < self.lower_at {
            return;
        }
        let longest = present.map(rounded).max().unwrap_or(0).max(self.usual);
        if longest < self.longest {
            self.longest = longest;
            self.lower_at = now.after(LOWER_EVERY);
            self.due = true;
        }
    }

    /// Greater than every fence that was given out.
    pub(super) const fn next_fence(&self) -> u64 {
        self.fence.saturating_add(1)
    }

    /// See [`Entry::Fence`].
    pub(super) const fn fence(&self) -> Entry {
        Entry::Fence(self.fence)
    }

    pub(super) const fn synced(&self) -> Synced {
        self.origin.synced
    }

    /// Whether promises must be noted before anything else is written.
    pub(super) const fn are_due(&self) -> bool {
        self.due
    }

    pub(super) const fn are_noted(&mut self) {
        self.due = false;
    }

    /// Until when nothing may be granted, if that is so.
    pub(super) fn closing(&self, times: Times) -> Option<Closing> {
        let (doubt, boot_micros) = self.closing?;
        let left_micros = boot_micros.saturating_sub(times.boot_micros);
        (left_micros > 0).then_some(Closing { doubt, boot_micros, left_micros })
    }

    /// The header of a file of this generation in this place.
    pub(super) fn header(&self, generation: u64, slot: usize, times: Times) -> Header {
        let Origin { boot, dir, synced } = self.origin;
        let closing = self.closing(times);
        let (fence, longest, synced) = (self.fence, self.longest, synced == Synced::Yes);
        Header { generation, slot, dir, boot, fence, synced, longest, closing }
    }
}

/// Rounds up to four significant binary digits.
fn rounded(seconds: u64) -> u64 {
    let digits = u64::BITS - seconds.leading_zeros();
    seconds.checked_next_multiple_of(1 << digits.saturating_sub(4)).unwrap_or(seconds)
}

/// Whether answers wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Synced {
    /// They wait, so that a power cut loses nothing.
    Yes,
    /// They wait only until the kernel has the data, which outlives this process.
    No,
}

/// A time, on both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// A clock that never goes back, for pauses.
    pub(super) now: Moment,
    /// Microseconds since the start of the machine, including sleep.
    pub(super) boot_micros: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// Never less, and not much more.
    #[rstest]
    #[case(1, 1)]
    #[case(15, 15)]
    #[case(17, 18)]
    #[case(60, 60)]
    #[case(61, 64)]
    #[case(600, 640)]
    #[case(u64::MAX, u64::MAX)]
    fn leases_are_rounded_up(#[case] seconds: u64, #[case] noted: u64) {
        assert_eq!(rounded(seconds), noted);
        assert!(seconds.saturating_add(seconds / 8) >= noted);
    }
}
