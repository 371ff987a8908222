//! Checks whether the answers of many clients about one key, while machines may have died, can come from one service:
//! Wing and Gong's search for an order, and two simpler conditions.

use std::collections::{HashMap, HashSet};

/// On a right history the search is nearly straight; on a wrong one it explodes.
const STEPS: usize = 2_000_000;

/// How a key is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// A lock or a slot of its own.
    Alone,
    /// A lock, with others that ask for the same.
    Shared,
}

/// Fences, and in which way they hold the key.
type Held = Vec<(u64, Mode)>;

/// One answered call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A try or a wait that got this fence.
    Took(u64, Mode),
    /// A try that got none.
    Failed(Mode),
    /// A wait that ended without one; it may have held a slot for a moment.
    GaveUp,
    /// A renewal that was granted.
    Renewed(u64),
    /// A release that was done.
    Released(u64),
    /// A release that was refused.
    Refused(u64),
}

/// A call, when it was sent, and when its answer came.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "said above")]
pub struct Entry {
    pub call: Call,
    pub from: u64,
    pub to: u64,
}

/// What is known of one key.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// What was answered.
    pub entries: Vec<Entry>,
    /// Fences that may have been given back at any time from this one on: nobody heard.
    pub dropped: Vec<(u64, u64)>,
    /// When requests for a slot were sent whose answers never came.
    pub lost: Vec<u64>,
    /// Which slot of a semaphore the holds with these fences have.
    pub slots: Vec<(u64, u32)>,
}

impl History {
    /// Takes in what another client knows.
    pub fn join(&mut self, other: Self) {
        self.entries.extend(other.entries);
        self.dropped.extend(other.dropped);
        self.lost.extend(other.lost);
        self.slots.extend(other.slots);
    }

    /// How many calls got something.
    #[must_use]
    pub fn grants(&self) -> usize {
        self.entries.iter().filter(|entry| matches!(entry.call, Call::Took(..))).count()
    }

    /// Nobody was granted a smaller fence than somebody who was answered before he asked; and where
    /// only one can hold, grants were answered in the order of their fences.
    #[must_use]
    pub fn fences_grow(&self, limit: usize) -> bool {
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

    /// The holds whose ends are known, each from the answer of its grant to the request of its end.
    fn spans(&self) -> impl Iterator<Item = (u64, Mode, u64, u64)> {
        self.entries.iter().filter_map(|entry| {
            let Call::Took(fence, mode) = entry.call else { return None };
            let ends = self
                .entries
                .iter()
                .filter_map(|end| (end.call == Call::Released(fence)).then_some(end.from));
            let dropped = self.dropped.iter().filter(|(it, _)| *it == fence).map(|(_, at)| *at);
            ends.chain(dropped).min().map(|end| (fence, mode, entry.to, end))
        })
    }

    /// Each grant of a semaphore has a slot below its limit, and never do two holders have the same.
    #[must_use]
    pub fn slots_are_apart(&self, limit: usize) -> bool {
        let slots: HashMap<u64, u32> = self.slots.iter().copied().collect();
        let has_one = |entry: &Entry| match entry.call {
            Call::Took(fence, _) => slots.get(&fence).is_some_and(|slot| (*slot as usize) < limit),
            Call::Failed(_)
            | Call::GaveUp
            | Call::Renewed(_)
            | Call::Released(_)
            | Call::Refused(_) => true,
        };
        let mut spans: Vec<_> =
            self.spans().map(|(fence, _, from, to)| (slots.get(&fence), from, to)).collect();
        spans.sort_unstable();
        let are_apart =
            |two: &[(Option<&u32>, u64, u64)]| two[0].0 != two[1].0 || two[0].2 <= two[1].1;
        limit == 1 || (self.entries.iter().all(has_one) && spans.windows(2).all(are_apart))
    }

    /// From the answer of each grant to the request of its end there are never more than `limit`. All
    /// that share are one.
    #[must_use]
    pub fn most_at_once(&self) -> usize {
        let mut changes: Vec<(u64, i32, Mode)> = Vec::new();
        for (_, mode, from, to) in self.spans() {
            changes.extend([(from, 1, mode), (to, -1, mode)]);
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
            Call::Renewed(fence) => held.iter().any(|it| it.0 == fence).then_some(())?,
            Call::Released(fence) => {
                next.remove(held.iter().position(|it| it.0 == fence)?);
            }
            Call::Refused(fence) => held.iter().all(|it| it.0 != fence).then_some(())?,
        }
        Some(next)
    }

    /// Whether there is an order of all calls that one client at a time could have made.
    ///
    /// # Panics
    /// None is found within the budget.
    #[must_use]
    pub fn is_linearizable(&self, limit: usize) -> bool {
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
