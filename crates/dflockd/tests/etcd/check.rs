//! Checks whether the answers of many clients about one key, while machines died, can come from one service: Wing
//! and Gong's search for an order, and two simpler conditions.

use std::collections::HashSet;

/// On a right history the search is nearly straight; on a wrong one it explodes.
const STEPS: usize = 500_000;

/// How a key is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// A lock or a slot of its own.
    Alone,
    /// A lock, with others that ask for the same.
    Shared,
}

/// Fences, and in which way they hold the key.
type Held = Vec<(u64, Mode)>;

/// One answered call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// A try or a wait that got this fence.
    Took(u64, Mode),
    /// A try that got none.
    Failed(Mode),
    /// A wait that ended without one; it may have held a slot for a moment.
    GaveUp,
    Released(u64),
    /// A release that was refused.
    Refused(u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) call: Call,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// What is known of one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) entries: Vec<Entry>,
    /// Fences that may have been given back at any time from this one on: nobody heard.
    pub(crate) dropped: Vec<(u64, u64)>,
    /// When requests for a slot were sent whose answers never came.
    pub(crate) lost: Vec<u64>,
}

impl History {
    pub(crate) fn join(&mut self, other: Self) {
        self.entries.extend(other.entries);
        self.dropped.extend(other.dropped);
        self.lost.extend(other.lost);
    }

    pub(crate) fn grants(&self) -> usize {
        self.entries.iter().filter(|entry| matches!(entry.call, Call::Took(..))).count()
    }

    /// Nobody was granted a smaller fence than somebody who was answered before he asked; and where
    /// only one can hold, grants were answered in the order of their fences.
    pub(crate) fn fences_grow(&self, limit: usize) -> bool {
        let mut taken: Vec<(u64, u64, u64)> = Vec::new();
        let mut is_shared = false;
        for entry in &self.entries {
            if let Call::Took(fence, mode) = entry.call {
                taken.push((entry.from, entry.to, fence));
                is_shared |= mode == Mode::Shared;
            }
        }
        taken.sort_unstable_by_key(|(_, to, _)| *to);
        let in_order = taken.windows(2).all(|two| two[0].2 < two[1].2);
        let fences: HashSet<u64> = taken.iter().map(|(_, _, fence)| *fence).collect();
        (limit > 1 || is_shared || in_order)
            && fences.len() == taken.len()
            && taken.iter().all(|(from, _, fence)| {
                taken.iter().all(|(_, to, other)| to > from || other < fence)
            })
    }

    /// From the answer of each grant to the request of its end there are never more than `limit`. All
    /// that share are one.
    pub(crate) fn most_at_once(&self) -> usize {
        let mut changes: Vec<(u64, i32, Mode)> = Vec::new();
        for entry in &self.entries {
            let Call::Took(fence, mode) = entry.call else { continue };
            let ends = self
                .entries
                .iter()
                .filter_map(|end| (end.call == Call::Released(fence)).then_some(end.from));
            let dropped = self.dropped.iter().filter(|(it, _)| *it == fence).map(|(_, at)| *at);
            if let Some(end) = ends.chain(dropped).min() {
                changes.extend([(entry.to, 1, mode), (end, -1, mode)]);
            }
        }
        changes.sort_unstable();
        let (mut alone, mut sharing) = (0, 0);
        let most = changes.iter().map(|(_, change, mode)| {
            match mode {
                Mode::Alone => alone += change,
                Mode::Shared => sharing += change,
            }
            alone + i32::from(sharing > 0)
        });
        usize::try_from(most.max().unwrap_or(0)).unwrap()
    }

    /// Whether `call` may happen in `held`, and what is held then.
    fn apply(
        &self,
        held: &[(u64, Mode)],
        limit: usize,
        entry: Entry,
        queued: bool,
    ) -> Option<Held> {
        let mut next = held.to_vec();
        let has_room = |mode| match mode {
            Mode::Alone => held.len() < limit && held.iter().all(|it| it.1 == Mode::Alone),
            Mode::Shared => held.iter().all(|it| it.1 == Mode::Shared),
        };
        match entry.call {
            Call::Took(fence, mode) => {
                has_room(mode).then(|| next.push((fence, mode)))?;
                next.sort_unstable();
            }
            Call::Failed(mode) => {
                // A lost request, or a hold whose end nobody heard of, may be there yet.
                let ends = self.dropped.iter().map(|(_, from)| from);
                let ghost = self.lost.iter().chain(ends).any(|from| *from < entry.to);
                (!has_room(mode) || queued || ghost).then_some(())?;
            }
            Call::GaveUp => {}
            Call::Released(fence) => {
                next.remove(held.iter().position(|it| it.0 == fence)?);
            }
            Call::Refused(fence) => held.iter().all(|it| it.0 != fence).then_some(())?,
        }
        Some(next)
    }

    /// An order of all calls that one client at a time could have made.
    pub(crate) fn is_linearizable(&self, limit: usize) -> bool {
        let mut entries = self.entries.clone();
        entries.sort_by_key(|entry| entry.from);
        // Done: all before the number, and the listed ones.
        let mut tried: HashSet<(usize, Vec<usize>, Held)> = HashSet::new();
        let mut stack = vec![(0, Vec::new(), Vec::new())];
        let mut steps = 0;
        while let Some((first, extra, mut held)) = stack.pop() {
            if first == entries.len() {
                return true;
            }
            let is_open = |i: &usize| !extra.contains(i);
            let mut end = u64::MAX;
            let mut open = Vec::new();
            for i in (first..entries.len()).filter(is_open) {
                if entries[i].from >= end {
                    break;
                }
                end = end.min(entries[i].to);
                open.push(i);
            }
            held.retain(|(fence, _)| !self.dropped.iter().any(|(it, at)| it == fence && *at < end));
            for &i in open.iter().rev().filter(|&&i| entries[i].from < end) {
                let queued = open.iter().any(|&j| {
                    j != i
                        && entries[j].from < entries[i].to
                        && matches!(entries[j].call, Call::Took(..) | Call::GaveUp)
                });
                let Some(held) = self.apply(&held, limit, entries[i], queued) else { continue };
                let (mut first, mut extra) = (first, extra.clone());
                extra.push(i);
                extra.sort_unstable();
                while extra.first() == Some(&first) {
                    extra.remove(0);
                    first += 1;
                }
                if tried.insert((first, extra.clone(), held.clone())) {
                    stack.push((first, extra, held));
                }
            }
            steps += 1;
            assert!(steps < STEPS, "the search found no order within its budget");
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const fn took(fence: u64) -> Call {
        Call::Took(fence, Mode::Alone)
    }

    const fn shared(fence: u64) -> Call {
        Call::Took(fence, Mode::Shared)
    }

    const FAILED: Call = Call::Failed(Mode::Alone);

    const fn entry(call: Call, from: u64, to: u64) -> Entry {
        Entry { call, from, to }
    }

    #[rstest]
    #[case::two_holders(&[entry(took(1), 0, 1), entry(took(2), 2, 3)], &[], &[], false)]
    #[case::the_first_may_be_gone(&[entry(took(1), 0, 1), entry(took(2), 4, 5)], &[(1, 2)], &[], true)]
    #[case::not_yet(&[entry(took(1), 0, 1), entry(took(2), 2, 3)], &[(1, 4)], &[], false)]
    #[case::busy_without_a_holder(&[entry(FAILED, 0, 1)], &[], &[], false)]
    #[case::busy_by_a_lost_request(&[entry(FAILED, 2, 3)], &[], &[1], true)]
    #[case::busy_by_a_hold_that_may_be_gone(
        &[entry(took(1), 0, 1), entry(FAILED, 3, 4)], &[(1, 2)], &[], true)]
    #[case::readers(&[entry(shared(1), 0, 1), entry(shared(2), 2, 3), entry(FAILED, 4, 5)], &[], &[], true)]
    #[case::a_writer_beside_a_reader(&[entry(shared(1), 0, 1), entry(took(2), 2, 3)], &[], &[], false)]
    #[case::a_reader_beside_a_writer(&[entry(took(1), 0, 1), entry(shared(2), 2, 3)], &[], &[], false)]
    #[case::a_reader_is_refused_beside_readers(
        &[entry(shared(1), 0, 1), entry(Call::Failed(Mode::Shared), 2, 3)], &[], &[], false)]
    #[case::refused_though_held(&[entry(took(1), 0, 1), entry(Call::Refused(1), 2, 3)], &[], &[], false)]
    #[case::released_twice(&[entry(took(1), 0, 1), entry(Call::Released(1), 2, 3), entry(Call::Released(1), 4, 5)], &[], &[], false)]
    fn the_checker_accepts_and_refuses_the_right_histories(
        #[case] entries: &[Entry],
        #[case] dropped: &[(u64, u64)],
        #[case] lost: &[u64],
        #[case] right: bool,
    ) {
        let (entries, dropped, lost) = (entries.to_vec(), dropped.to_vec(), lost.to_vec());
        assert_eq!(History { entries, dropped, lost }.is_linearizable(1), right);
    }

    #[test]
    fn fences_and_overlaps() {
        let back = [entry(took(2), 0, 1), entry(took(1), 2, 3)];
        let history = |entries: &[Entry]| History { entries: entries.into(), ..History::default() };
        assert!(!history(&back).fences_grow(2));
        let overtaken = [entry(took(2), 0, 3), entry(took(1), 1, 4)];
        assert!(!history(&overtaken).fences_grow(1) && history(&overtaken).fences_grow(2));
        let both = [
            entry(took(1), 0, 1),
            entry(took(2), 2, 3),
            entry(Call::Released(1), 4, 5),
            entry(Call::Released(2), 6, 7),
        ];
        assert_eq!(history(&both).most_at_once(), 2);
        for (second, most) in [(shared(2), 1), (took(2), 2)] {
            let mut with_reader = both;
            (with_reader[0].call, with_reader[1].call) = (shared(1), second);
            assert_eq!(history(&with_reader).most_at_once(), most);
        }
    }
}
