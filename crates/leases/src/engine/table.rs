//! What the engine's state is built of: a growing table that reuses its places, for keys, holders, waiters and
//! connections; lists of its entries; deadlines, and what is due at each of them; and which slots of semaphores are
//! taken.
//!
//! Pure. An id is four bytes and typed, so a waiter's id cannot be used for a holder. The caller passes the time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

use super::scalars::Moment;

/// A place in a [`Table`]. The letter distinguishes the tables. The number is one more than the place, so that an id that
/// may be missing takes no more memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id<const OF: char>(NonZeroU32);

pub(crate) type KeyId = Id<'k'>;
pub(crate) type HolderId = Id<'h'>;
pub(crate) type WaiterId = Id<'w'>;
pub(crate) type ConnAt = Id<'c'>;

impl<const OF: char> Id<OF> {
    pub(crate) const fn new(place: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(place))
    }

    pub(crate) const fn place(self) -> u32 {
        self.0.get() - 1
    }
}

/// See the module.
pub(crate) struct Table<T, const OF: char> {
    places: Vec<Option<T>>,
    /// The places without an entry.
    free: Vec<Id<OF>>,
}

impl<T, const OF: char> Table<T, OF> {
    pub(crate) const fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    /// The number of entries in use.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// All ids are below this number.
    #[expect(clippy::expect_used, reason = "the limits keep tables small")]
    pub(crate) fn places(&self) -> u32 {
        u32::try_from(self.places.len()).expect("the limits keep tables small")
    }

    /// Puts `value` into a free place.
    pub(crate) fn insert(&mut self, value: T) -> Id<OF> {
        let id = self.free.pop().unwrap_or_else(|| {
            let id = Id::new(self.places());
            self.places.push(None);
            id
        });
        self.places[id.place() as usize] = Some(value);
        id
    }

    /// Removes the entry and frees its place.
    #[expect(clippy::expect_used, reason = "ids never come from outside")]
    pub(crate) fn remove(&mut self, id: Id<OF>) -> T {
        let value =
            self.places[id.place() as usize].take().expect("an id is used while its entry exists");
        self.free.push(id);
        value
    }

    pub(crate) fn get(&self, id: Id<OF>) -> Option<&T> {
        self.places.get(id.place() as usize)?.as_ref()
    }

    /// All entries, in the order of their places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Id<OF>, &T)> {
        (0..).map(Id::new).zip(&self.places).filter_map(|(id, place)| Some((id, place.as_ref()?)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten()
    }
}

#[expect(clippy::expect_used, reason = "ids never come from outside")]
impl<T, const OF: char> Index<Id<OF>> for Table<T, OF> {
    type Output = T;
    fn index(&self, id: Id<OF>) -> &T {
        self.get(id).expect("an id is used while its entry exists")
    }
}

#[expect(clippy::expect_used, reason = "ids never come from outside")]
impl<T, const OF: char> IndexMut<Id<OF>> for Table<T, OF> {
    fn index_mut(&mut self, id: Id<OF>) -> &mut T {
        self.places[id.place() as usize].as_mut().expect("an id is used while its entry exists")
    }
}

/// Entries of a table, ordered by a number of each that mostly grows from one to the next. The first one is in place,
/// because most lists have only one.
#[derive(Default)]
pub(crate) struct Sorted<const OF: char> {
    first: Option<(u64, Id<OF>)>,
    /// Nothing is in it if there is no first one. Most lists never need it.
    #[expect(clippy::box_collection, reason = "there are two lists for each key")]
    rest: Option<Box<VecDeque<(u64, Id<OF>)>>>,
}

impl<const OF: char> Sorted<OF> {
    #[expect(clippy::expect_used, reason = "ids have four bytes")]
    pub(crate) fn len(&self) -> u32 {
        let rest = self.rest.as_ref().map_or(0, |rest| rest.len());
        let len = usize::from(self.first.is_some()) + rest;
        u32::try_from(len).expect("an entry for each id")
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn add(&mut self, number: u64, id: Id<OF>) {
        let mut entry = (number, id);
        let Some(first) = &mut self.first else {
            self.first = Some(entry);
            return;
        };
        if entry < *first {
            std::mem::swap(first, &mut entry);
        }
        let rest = self.rest.get_or_insert_default();
        match rest.back() {
            Some(last) if entry < *last => {
                rest.insert(rest.partition_point(|other| *other < entry), entry);
            }
            Some(_) | None => rest.push_back(entry),
        }
    }

    #[expect(clippy::expect_used, reason = "both come from the entry that is removed")]
    pub(crate) fn remove(&mut self, number: u64, id: Id<OF>) {
        let rest = self.rest.as_mut();
        if self.first == Some((number, id)) {
            self.first = rest.and_then(|rest| rest.pop_front());
            return;
        }
        let rest = rest.expect("it was added");
        let place = rest.binary_search(&(number, id)).expect("it was added with this number");
        rest.remove(place);
    }

    pub(crate) fn find(&self, number: u64) -> Option<Id<OF>> {
        let first = self.first.as_ref().filter(|(other, _)| *other == number);
        let found = first.or_else(|| {
            let rest = self.rest.as_ref()?;
            let place = rest.partition_point(|(other, _)| *other < number);
            rest.get(place).filter(|(other, _)| *other == number)
        });
        found.map(|(_, id)| *id)
    }

    pub(crate) fn first(&self) -> Option<Id<OF>> {
        self.iter().next()
    }

    pub(crate) fn last(&self) -> Option<Id<OF>> {
        self.iter().next_back()
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Id<OF>> {
        self.first.iter().chain(self.rest.iter().flat_map(|rest| rest.iter())).map(|(_, id)| *id)
    }
}

/// Entries of a table in the order in which they were added. Any of them is taken out in constant time.
pub(crate) struct Chain<const OF: char> {
    /// `[before, after]` of each entry, one behind its place: a ring that begins and ends at 0.
    ring: Vec<[u32; 2]>,
    len: usize,
}

impl<const OF: char> Chain<OF> {
    pub(crate) fn new() -> Self {
        Self { ring: vec![[0; 2]], len: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn first(&self) -> Option<Id<OF>> {
        NonZeroU32::new(self.ring[0][1]).map(Id)
    }

    /// Adds an entry that is not in it, as the last one.
    pub(crate) fn add(&mut self, id: Id<OF>) {
        let (at, last) = (id.0.get(), self.ring[0][0]);
        if self.ring.len() <= at as usize {
            self.ring.resize(at as usize + 1, [0; 2]);
        }
        self.ring[at as usize] = [last, 0];
        self.ring[last as usize][1] = at;
        self.ring[0][0] = at;
        self.len += 1;
    }

    /// Takes out an entry that is in it.
    pub(crate) fn remove(&mut self, id: Id<OF>) {
        let [before, after] = self.ring[id.0.get() as usize];
        self.ring[before as usize][1] = after;
        self.ring[after as usize][0] = before;
        self.len -= 1;
    }
}

/// What a timer is for. At the same moment leases end before waits, so the next waiter gets the lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Alarm {
    Hold(HolderId),
    Open,
    Wait(WaiterId),
}

/// A timer for each place of the tables of holders and waiters, and one for the end of `closed_until`. That of a place
/// fires no later than something is to be done about the entry there, and stays when the entry has ended: most entries end
/// long before their deadlines, so the next one in the place needs no other timer.
pub(super) struct Timers {
    all: BTreeSet<(Moment, Alarm)>,
    /// When the first of them fires, for every request asks that; [`Moment::NEVER`] without timers.
    next: Moment,
    /// The same by place, for each kind of alarm; [`Moment::NEVER`] without a timer.
    armed: [Vec<Moment>; 3],
}

impl Timers {
    pub(super) fn new() -> Self {
        Self { all: BTreeSet::new(), next: Moment::NEVER, armed: Default::default() }
    }

    /// Makes sure that a timer fires at `due`, or before; [`Moment::NEVER`] needs none.
    pub(super) fn arm(&mut self, alarm: Alarm, due: Moment) {
        let armed = self.armed(alarm);
        if due < *armed {
            let before = std::mem::replace(armed, due);
            self.all.remove(&(before, alarm));
            self.all.insert((due, alarm));
            self.next = self.next.min(due);
        }
    }

    fn armed(&mut self, alarm: Alarm) -> &mut Moment {
        let (kind, place) = match alarm {
            Alarm::Hold(id) => (0, id.place() as usize),
            Alarm::Open => (1, 0),
            Alarm::Wait(id) => (2, id.place() as usize),
        };
        let armed = &mut self.armed[kind];
        if armed.len() <= place {
            armed.resize(place + 1, Moment::NEVER);
        }
        &mut armed[place]
    }

    /// Takes the first timer if it fires at or before `now`. Those that fire at the same moment come in the order of their
    /// alarms.
    pub(super) fn pop(&mut self, now: Moment) -> Option<(Moment, Alarm)> {
        if self.next > now {
            return None;
        }
        let (at, alarm) = self.all.pop_first()?;
        self.next = self.all.first().map_or(Moment::NEVER, |(at, _)| *at);
        *self.armed(alarm) = Moment::NEVER;
        Some((at, alarm))
    }

    /// When the first one fires; [`Moment::NEVER`] without timers.
    pub(super) const fn next(&self) -> Moment {
        self.next
    }
}

/// Slots in a word.
const BITS: u32 = u64::BITS;

/// The slots that holders have, by key: a bit for each, in words. A word without a bit is not kept, so the cost of a slot
/// does not depend on its number.
#[derive(Default)]
pub(super) struct Slots(BTreeMap<(KeyId, u32), u64>);

impl Slots {
    /// Takes the lowest slot of a key that is free.
    pub(super) fn take_lowest(&mut self, key: KeyId) -> u32 {
        let words = self.0.range((key, 0)..=(key, u32::MAX));
        let full =
            words.zip(0..).take_while(|((at, bits), word)| at.1 == *word && **bits == u64::MAX);
        let word = full.map(|(_, word)| word + 1).last().unwrap_or(0);
        let bits = self.0.entry((key, word)).or_default();
        let bit = bits.trailing_ones();
        *bits |= 1 << bit;
        word * BITS + bit
    }

    /// Takes this slot; false if it is taken.
    pub(super) fn take(&mut self, key: KeyId, slot: u32) -> bool {
        let bits = self.0.entry((key, slot / BITS)).or_default();
        let before = std::mem::replace(bits, *bits | 1 << (slot % BITS));
        before != *bits
    }

    /// Frees a slot that is taken.
    pub(super) fn free(&mut self, key: KeyId, slot: u32) {
        let at = (key, slot / BITS);
        let bits = self.0.get(&at).map_or(0, |bits| bits & !(1 << (slot % BITS)));
        if bits == 0 {
            self.0.remove(&at);
        } else {
            self.0.insert(at, bits);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    /// Three entries, added in every order and removed at every place.
    #[test]
    fn a_sorted_list_keeps_its_order_when_any_entry_is_removed() {
        for (order, gone) in [[0, 1, 2], [1, 0, 2], [2, 1, 0]].into_iter().zip(0..3) {
            let mut list = Sorted::<'t'>::default();
            order.iter().for_each(|n| list.add(u64::from(*n) * 7, Id::new(9 - n)));
            let places = |list: &Sorted<'t'>| list.iter().map(Id::place).collect::<Vec<_>>();
            assert_eq!((places(&list), list.len()), (vec![9, 8, 7], 3));
            assert!(list.first() == Some(Id::new(9)) && list.last() == Some(Id::new(7)));
            assert!(list.find(7) == Some(Id::new(8)) && list.find(8).is_none());
            list.remove(u64::from(gone) * 7, Id::new(9 - gone));
            let left: Vec<u32> = [9, 8, 7].into_iter().filter(|place| *place != 9 - gone).collect();
            assert_eq!(places(&list), left);
        }
    }

    proptest! {
        /// Compared with a list.
        #[test]
        fn a_chain_keeps_the_order_of_arrival(acts in prop::collection::vec(0_u32..9, 1..100)) {
            let (mut chain, mut model) = (Chain::<'t'>::new(), Vec::new());
            for place in acts {
                if let Some(nth) = model.iter().position(|other| *other == place) {
                    chain.remove(Id::new(place));
                    model.remove(nth);
                } else {
                    chain.add(Id::new(place));
                    model.push(place);
                }
                prop_assert_eq!(chain.len(), model.len());
                prop_assert_eq!(chain.first().map(Id::place), model.first().copied());
            }
            for place in model {
                prop_assert_eq!(chain.first().map(Id::place), Some(place));
                chain.remove(Id::new(place));
            }
            prop_assert!(chain.first().is_none());
        }

        /// Compared with a sorted map.
        #[test]
        fn agrees_with_a_map(acts in prop::collection::vec((0_u8..4, any::<u16>()), 1..300)) {
            let (mut table, mut model) = (Table::<_, 't'>::new(), BTreeMap::new());
            for (act, number) in acts {
                let known = model.len();
                match act {
                    0 | 1 => {
                        let id = table.insert(number);
                        prop_assert!(model.insert(id.place(), number).is_none());
                    }
                    2 | 3 if known > 0 => {
                        let nth = usize::from(number) % known;
                        let place = *model.keys().nth(nth).unwrap();
                        prop_assert_eq!(Some(table.remove(Id::new(place))), model.remove(&place));
                        prop_assert!(table.get(Id::new(place)).is_none());
                    }
                    _ => {}
                }
                prop_assert_eq!(table.len(), model.len());
                let all = table.iter().map(|(id, value)| (id.place(), *value));
                prop_assert_eq!(all.collect::<BTreeMap<_, _>>(), model.clone());
            }
        }
    }

    fn at(micros: u64) -> Moment {
        Moment::from_micros(micros)
    }

    #[test]
    fn timers_fire_in_order_and_never_early() {
        let mut timers = Timers::new();
        let (hold, wait) = (Alarm::Hold(Id::new(7)), Alarm::Wait(Id::new(0)));
        for (alarm, due) in [(wait, 1_500), (hold, 1_500), (Alarm::Open, 7)] {
            timers.arm(alarm, at(due));
        }
        assert!(timers.next() == at(7));
        assert!(timers.pop(at(1_499)) == Some((at(7), Alarm::Open)));
        assert!(timers.pop(at(1_499)).is_none());
        assert!(timers.pop(at(1_500)) == Some((at(1_500), hold)));
        assert!(timers.pop(at(1_500)) == Some((at(1_500), wait)));
        assert!(timers.pop(Moment::NEVER).is_none() && timers.next() == Moment::NEVER);
    }

    #[test]
    fn a_place_has_one_timer_the_earliest() {
        let (mut timers, wait) = (Timers::new(), Alarm::Wait(Id::new(3)));
        for due in [9, 5, 7, u64::MAX] {
            timers.arm(wait, at(due));
        }
        assert!(timers.pop(at(9)) == Some((at(5), wait)) && timers.pop(at(9)).is_none());
        timers.arm(wait, at(8));
        assert!(timers.pop(at(9)) == Some((at(8), wait)));
    }

    proptest! {
        /// Compared with a set, for two keys.
        #[test]
        fn agrees_with_a_set(acts in prop::collection::vec((0_u8..8, 0_u32..2, 0_u32..150), 1..400)) {
            let (mut slots, mut model) = (Slots::default(), BTreeSet::new());
            for (act, place, slot) in acts {
                let key = KeyId::new(place);
                match act {
                    0 => prop_assert_eq!(slots.take(key, slot), model.insert((place, slot))),
                    1 | 2 => {
                        let taken = model.iter().filter(|(of, _)| *of == place);
                        let nth = taken.clone().count().checked_sub(1).map(|last| slot as usize % (last + 1));
                        if let Some(&(_, slot)) = nth.and_then(|nth| taken.clone().nth(nth)) {
                            slots.free(key, slot);
                            model.remove(&(place, slot));
                        }
                    }
                    _ => {
                        let lowest = (0..).find(|slot| !model.contains(&(place, *slot))).unwrap();
                        prop_assert_eq!(slots.take_lowest(key), lowest);
                        model.insert((place, lowest));
                    }
                }
                let words: BTreeSet<_> = model.iter().map(|(place, slot)| (*place, slot / BITS)).collect();
                prop_assert_eq!(slots.0.len(), words.len());
            }
        }
    }

    #[test]
    fn a_great_number_costs_no_more_than_a_small_one() {
        let (mut slots, key) = (Slots::default(), KeyId::new(7));
        assert!(slots.take(key, u32::MAX) && !slots.take(key, u32::MAX));
        assert_eq!((slots.take_lowest(key), slots.0.len()), (0, 2));
    }
}
