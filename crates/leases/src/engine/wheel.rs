//! A timer wheel: it takes deadlines and returns due payloads; each insertion and removal has a constant cost. Pure.
//! It is told the time. Deadlines are rounded up to a millisecond, so nothing is ever early.
//!
//! Eight levels of 64 slots; a slot of level n spans 64ⁿ milliseconds, which reaches 8,900 years,
//! beyond the longest lease the protocol can name. The layout is Varghese and Lauck's.
//!
//! Pure.

use super::request::Progress;
use super::slab::{Id, Link, Linked, List, Slab};
use super::terms::Moment;

const LEVELS: usize = 8;
const SLOTS: usize = 64;
const SLOT_BITS: u32 = 6;
/// The number of the list of due timers.
const DUE: u16 = u16::MAX;
const MICROS_PER_TICK: u64 = 1000;
/// The most timers that are moved down a level at once: a slot may have a million leases of the same length.
const MOVES: usize = 1024;

/// A running timer.
pub type TimerId<P> = Id<Timer<P>>;

/// A running timer.
#[derive(Debug)]
pub struct Timer<P> {
    tick: u64,
    link: Link<Self>,
    payload: P,
    list: u16,
}

/// The timers of one slot, or of those that are due.
struct Slot;

impl<P> Linked<Slot> for Timer<P> {
    fn link(&self) -> &Link<Self> {
        &self.link
    }
    fn link_mut(&mut self) -> &mut Link<Self> {
        &mut self.link
    }
}

type Timers<P> = List<Timer<P>, Slot>;

/// See the module.
#[derive(Debug)]
pub struct Wheel<P> {
    timers: Slab<Timer<P>>,
    slots: [[Timers<P>; SLOTS]; LEVELS],
    occupied: [u64; LEVELS],
    due: Timers<P>,
    /// The timers that are left of an opened slot.
    opening: Timers<P>,
    elapsed: u64,
}

impl<P: Copy> Default for Wheel<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Copy> Wheel<P> {
    /// A wheel without timers, at time zero.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            timers: Slab::new(),
            slots: [const { [const { List::new() }; SLOTS] }; LEVELS],
            occupied: [0; LEVELS],
            due: List::new(),
            opening: List::new(),
            elapsed: 0,
        }
    }

    /// The number of running timers.
    #[cfg(test)]
    pub(crate) const fn len(&self) -> usize {
        self.timers.len()
    }

    /// The number of timers for which there is memory.
    pub fn capacity(&self) -> usize {
        self.timers.capacity()
    }

    /// Gives free places at the end back, at most `budget` of them, and then the memory of a table that was once much
    /// larger. A timer stays where it is, so the places before it stay, too.
    pub fn shrink(&mut self, budget: usize) -> Progress {
        self.timers.shrink(budget)
    }

    /// Starts a timer that comes due at `deadline`, at most a millisecond later.
    pub fn insert(&mut self, deadline: Moment, payload: P) -> TimerId<P> {
        let tick = deadline.micros().div_ceil(MICROS_PER_TICK);
        let timer = Timer { tick, link: Link::new(), payload, list: DUE };
        let id = self.timers.insert(timer);
        self.place(id);
        id
    }

    /// Stops a timer. One that was taken by [`Wheel::pop`] is gone already.
    pub fn remove(&mut self, id: TimerId<P>) {
        if self.timers.get(id).is_some() {
            self.unlink(id);
            self.timers.remove(id);
        }
    }

    /// The next payload whose deadline is at or before `now`. `None` if there is none left, or if finding one takes
    /// more work than one turn allows: then [`Wheel::next`] is not after `now`.
    pub fn pop(&mut self, now: Moment) -> Option<P> {
        let now = now.micros() / MICROS_PER_TICK;
        loop {
            if let Some(id) = self.due.pop_front(&mut self.timers) {
                return self.timers.remove(id).map(|timer| timer.payload);
            }
            if !self.opening.is_empty() {
                self.move_down();
                if self.due.is_empty() && !self.opening.is_empty() {
                    return None;
                }
                continue;
            }
            match self.next_slot() {
                Some((level, slot, start)) if start <= now => {
                    self.elapsed = self.elapsed.max(start);
                    self.open(level, slot);
                }
                Some(_) | None => {
                    self.elapsed = self.elapsed.max(now);
                    return None;
                }
            }
        }
    }

    /// When to call [`Wheel::pop`] next: never after the millisecond of the first deadline, and before it only for
    /// one of the few steps down the levels.
    pub fn next(&self) -> Moment {
        if !self.due.is_empty() || !self.opening.is_empty() {
            return Moment::from_micros(0);
        }
        self.next_slot().map_or(Moment::NEVER, |(_, _, start)| {
            Moment::from_micros(start.saturating_mul(MICROS_PER_TICK))
        })
    }

    /// Takes the timers out of a slot, to move them down.
    fn open(&mut self, level: usize, slot: usize) {
        self.opening = std::mem::replace(self.slot(level, slot), List::new());
        if let Some(bits) = self.occupied.get_mut(level) {
            *bits &= !(1 << slot);
        }
    }

    /// Moves some timers of the opened slot to the slots where they belong now.
    fn move_down(&mut self) {
        for _ in 0..MOVES {
            let Some(id) = self.opening.pop_front(&mut self.timers) else { return };
            self.place(id);
        }
    }

    fn place(&mut self, id: TimerId<P>) {
        let tick = self.timers[id].tick;
        if tick <= self.elapsed {
            // Due timers leave in the order in which they became due.
            self.timers[id].list = DUE;
            return self.due.push_back(&mut self.timers, id);
        }
        let differing = (self.elapsed ^ tick) | (SLOTS as u64 - 1);
        let level = ((63 - differing.leading_zeros()) / SLOT_BITS) as usize;
        let level = level.min(LEVELS - 1);
        let slot = slot_at(tick, level);
        if let Some(bits) = self.occupied.get_mut(level) {
            *bits |= 1 << slot;
        }
        self.timers[id].list = u16::try_from(level * SLOTS + slot).unwrap_or(DUE);
        self.slots[level % LEVELS][slot % SLOTS].push_front(&mut self.timers, id);
    }

    fn unlink(&mut self, id: TimerId<P>) {
        // Timers of an opened slot still have its number; in the middle of a list, that makes no difference.
        if self.opening.is_at_end(id) {
            return self.opening.remove(&mut self.timers, id);
        }
        let list = self.timers[id].list;
        if list == DUE {
            return self.due.remove(&mut self.timers, id);
        }
        let (level, slot) = (usize::from(list) / SLOTS, usize::from(list) % SLOTS);
        let timers = &mut self.slots[level % LEVELS][slot % SLOTS];
        timers.remove(&mut self.timers, id);
        if timers.is_empty() {
            if let Some(bits) = self.occupied.get_mut(level) {
                *bits &= !(1 << slot);
            }
        }
    }

    /// Level, slot and first tick of the slot that opens next.
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        self.occupied.iter().enumerate().find(|(_, bits)| **bits != 0).map(|(level, &bits)| {
            let here = slot_at(self.elapsed, level);
            let shift = u32::try_from(here).unwrap_or(0);
            let ahead = bits.rotate_right(shift).trailing_zeros();
            let slot = (here + ahead as usize) % SLOTS;
            let span_bits = SLOT_BITS * u32::try_from(level).unwrap_or(0);
            let base = (self.elapsed >> span_bits) << span_bits;
            (level, slot, base.saturating_add(u64::from(ahead) << span_bits))
        })
    }

    fn slot(&mut self, level: usize, slot: usize) -> &mut Timers<P> {
        &mut self.slots[level % LEVELS][slot % SLOTS]
    }
}

#[expect(clippy::cast_possible_truncation, reason = "masked to six bits")]
fn slot_at(tick: u64, level: usize) -> usize {
    let shift = SLOT_BITS * u32::try_from(level).unwrap_or(0);
    ((tick >> shift) & (SLOTS as u64 - 1)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn ms(count: u64) -> Moment {
        Moment::from_micros(count * 1000)
    }

    #[test]
    fn timers_fire_never_early_and_at_most_a_millisecond_late() {
        let mut wheel = Wheel::new();
        wheel.insert(Moment::from_micros(1_500), 'a');
        assert_eq!(wheel.pop(Moment::from_micros(1_999)), None);
        assert_eq!(wheel.pop(ms(2)), Some('a'));
        assert_eq!((wheel.pop(ms(9)), wheel.len()), (None, 0));
    }

    /// A million leases of the same length must not stop the server when their slot opens.
    #[test]
    fn a_great_slot_opens_in_turns() {
        let mut wheel = Wheel::new();
        let count = 5 * MOVES;
        let ids: Vec<_> = (0..count).map(|n| wheel.insert(ms(3_600_500), n)).collect();
        // Timers are removed before, during and after the opening, at both ends and in between.
        wheel.remove(ids[7]);
        let opens = wheel.next();
        assert!(opens < ms(3_600_500));
        assert_eq!(wheel.pop(opens), None);
        assert!(wheel.next() <= opens);
        for id in [ids[0], ids[count - 1], ids[count / 2], wheel.opening.first().unwrap()] {
            wheel.remove(id);
        }
        let left = wheel.len();
        let mut turns = 0;
        while wheel.next() <= opens {
            assert_eq!(wheel.pop(opens), None);
            turns += 1;
        }
        assert!(turns >= 3);
        assert_eq!(std::iter::from_fn(|| wheel.pop(ms(3_600_499))).count(), 0);
        let mut popped = 0;
        while wheel.len() > 0 {
            popped += usize::from(wheel.pop(ms(3_600_500)).is_some());
        }
        assert_eq!(popped, left);
    }

    #[test]
    fn the_longest_lease_fits() {
        let mut wheel = Wheel::new();
        let end = Moment::default().after(crate::Seconds::new(9_223_372_036).unwrap());
        let id = wheel.insert(end, 1);
        assert_eq!(wheel.pop(Moment::from_micros(end.micros() - 1)), None);
        assert_eq!(wheel.pop(end), Some(1));
        wheel.remove(id);
    }

    #[derive(Clone, Debug)]
    enum Act {
        Insert(u64),
        Remove(usize),
        Pass(u64),
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let span = prop_oneof![0u64..3, 0u64..200, 0u64..70_000, 0u64..40_000_000_000];
        let act = prop_oneof![
            4 => span.clone().prop_map(Act::Insert),
            2 => any::<usize>().prop_map(Act::Remove),
            2 => span.prop_map(Act::Pass),
        ];
        prop::collection::vec(act, 1..80)
    }

    proptest! {
        /// Compared with a sorted map: the same payloads become due at the same steps.
        #[test]
        fn agrees_with_a_sorted_map(acts in acts()) {
            let mut wheel = Wheel::new();
            let mut model: BTreeMap<u32, (u64, TimerId<u32>)> = BTreeMap::new();
            let (mut now, mut serial) = (0u64, 0u32);
            for act in acts {
                match act {
                    Act::Insert(span) => {
                        serial += 1;
                        let id = wheel.insert(ms(now + span), serial);
                        model.insert(serial, (now + span, id));
                    }
                    Act::Remove(n) if !model.is_empty() => {
                        let serial = *model.keys().nth(n % model.len()).unwrap();
                        wheel.remove(model.remove(&serial).unwrap().1);
                    }
                    Act::Remove(_) => {}
                    Act::Pass(span) => {
                        now += span;
                        let first = model.values().map(|(tick, _)| *tick).min();
                        if let Some(first) = first {
                            prop_assert!(wheel.next() <= ms(first));
                        }
                        let mut due: Vec<u32> = std::iter::from_fn(|| wheel.pop(ms(now))).collect();
                        due.sort_unstable();
                        let want: Vec<u32> =
                            model.iter().filter(|(_, v)| v.0 <= now).map(|(k, _)| *k).collect();
                        model.retain(|_, v| v.0 > now);
                        prop_assert_eq!(due, want);
                    }
                }
                prop_assert_eq!(wheel.len(), model.len());
            }
        }
    }
}
