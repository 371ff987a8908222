//! A growing table that reuses its places, for keys, holders and waiters.
//!
//! Pure. An id is four bytes and typed, so a waiter's id cannot be used for a holder.

use super::request::Progress;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// Whether a table is much larger than its content.
pub const fn is_roomy(length: usize, capacity: usize) -> bool {
    capacity > 1024 && capacity / 4 > length
}

/// Whether tables that had room for `before` entries have become so much smaller that the allocator should be told.
/// The last thousand entries count, too: one small piece in use keeps a whole page.
pub const fn is_worth_telling(before: usize, now: usize) -> bool {
    before.saturating_sub(now) > 1024
}

/// A place in the [`Slab`] of `T`, or [`Id::NIL`].
pub struct Id<T>(u32, PhantomData<fn() -> T>);

impl<T> Id<T> {
    /// No place.
    pub const NIL: Self = Self(u32::MAX, PhantomData);

    pub(crate) const fn new(place: u32) -> Self {
        Self(place, PhantomData)
    }

    pub(crate) const fn place(self) -> u32 {
        self.0
    }

    pub(crate) const fn is_nil(self) -> bool {
        self.0 == u32::MAX
    }

    /// `None` for [`Id::NIL`].
    pub(crate) const fn some(self) -> Option<Self> {
        if self.is_nil() { None } else { Some(self) }
    }
}

// Derived ones would ask the same of T.
impl<T> Clone for Id<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Id<T> {}
impl<T> PartialEq for Id<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl<T> Eq for Id<T> {}
impl<T> std::fmt::Debug for Id<T> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "#{}", self.0)
    }
}

/// An entry's neighbours in one list.
pub(crate) struct Link<T> {
    prev: Id<T>,
    next: Id<T>,
}

impl<T> Link<T> {
    /// In no list.
    pub(crate) const fn new() -> Self {
        Self { prev: Id::NIL, next: Id::NIL }
    }
}

impl<T> std::fmt::Debug for Link<T> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:?}..{:?}", self.prev, self.next)
    }
}

/// An entry that can be in a list of kind `L`. An entry may be in several lists of different kinds.
pub(crate) trait Linked<L>: Sized {
    fn link(&self) -> &Link<Self>;
    fn link_mut(&mut self) -> &mut Link<Self>;
}

/// Names a kind of list and the field its links are in.
macro_rules! linked {
    ($entry:ty, $kind:ident, $field:tt) => {
        impl Linked<$kind> for $entry {
            fn link(&self) -> &Link<Self> {
                &self.$field
            }
            fn link_mut(&mut self) -> &mut Link<Self> {
                &mut self.$field
            }
        }
    };
}
pub(crate) use linked;

/// A list of entries of one slab, linked through the entries themselves: adding and taking out
/// cost the same wherever the entry stands. The caller knows which list an entry is in.
pub(crate) struct List<T, L> {
    head: Id<T>,
    tail: Id<T>,
    kind: PhantomData<fn() -> L>,
}

impl<T, L> Clone for List<T, L> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, L> Copy for List<T, L> {}

impl<T, L> std::fmt::Debug for List<T, L> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:?}..{:?}", self.head, self.tail)
    }
}

impl<T, L> List<T, L> {
    pub(crate) const fn new() -> Self {
        Self { head: Id::NIL, tail: Id::NIL, kind: PhantomData }
    }

    /// The first entry.
    pub(crate) const fn first(&self) -> Option<Id<T>> {
        self.head.some()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.head.is_nil()
    }

    /// Whether the entry is at one of the ends of this list.
    pub(crate) fn is_at_end(&self, id: Id<T>) -> bool {
        self.head == id || self.tail == id
    }
}

impl<T: Linked<L>, L> List<T, L> {
    pub(crate) fn push_front(&mut self, slab: &mut Slab<T>, id: Id<T>) {
        let next = std::mem::replace(&mut self.head, id);
        *slab[id].link_mut() = Link { prev: Id::NIL, next };
        match next.some() {
            Some(next) => slab[next].link_mut().prev = id,
            None => self.tail = id,
        }
    }

    pub(crate) fn push_back(&mut self, slab: &mut Slab<T>, id: Id<T>) {
        let prev = std::mem::replace(&mut self.tail, id);
        *slab[id].link_mut() = Link { prev, next: Id::NIL };
        match prev.some() {
            Some(prev) => slab[prev].link_mut().next = id,
            None => self.head = id,
        }
    }

    /// Takes an entry out that is in this list.
    pub(crate) fn remove(&mut self, slab: &mut Slab<T>, id: Id<T>) {
        let Link { prev, next } = std::mem::replace(slab[id].link_mut(), Link::new());
        match prev.some() {
            Some(prev) => slab[prev].link_mut().next = next,
            None => self.head = next,
        }
        match next.some() {
            Some(next) => slab[next].link_mut().prev = prev,
            None => self.tail = prev,
        }
    }

    pub(crate) fn pop_front(&mut self, slab: &mut Slab<T>) -> Option<Id<T>> {
        let id = self.first()?;
        self.remove(slab, id);
        Some(id)
    }

    /// Iterates from the first to the last.
    pub(crate) fn iter(self, slab: &Slab<T>) -> impl Iterator<Item = Id<T>> {
        std::iter::successors(self.first(), |&id| slab.get(id)?.link().next.some())
    }
}

#[derive(Debug)]
enum Place<T> {
    Used(T),
    /// A free place, with its neighbours among the free ones.
    Free {
        prev: Id<T>,
        next: Id<T>,
    },
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Place<T>>,
    /// The place that was freed last.
    free: Id<T>,
    len: usize,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { places: Vec::new(), free: Id::NIL, len: 0 }
    }

    /// The number of entries in use.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// All ids are below this number.
    pub(crate) fn places(&self) -> u32 {
        u32::try_from(self.places.len()).unwrap_or(u32::MAX)
    }

    /// Puts `value` into a free place.
    ///
    /// # Panics
    /// After four thousand million entries; memory ends long before.
    pub(crate) fn insert(&mut self, value: T) -> Id<T> {
        self.len += 1;
        let free = self.free;
        match self.places.get_mut(free.0 as usize) {
            Some(place) => {
                let before = std::mem::replace(place, Place::Used(value));
                if let Place::Free { next, .. } = before {
                    self.join(Id::NIL, next);
                }
                free
            }
            None => {
                let Some(place) = u32::try_from(self.places.len()).ok().filter(|&p| p < u32::MAX)
                else {
                    unreachable!("the caps keep tables small")
                };
                self.places.push(Place::Used(value));
                Id::new(place)
            }
        }
    }

    /// Removes the entry and frees its place; `None` if it is free already.
    pub(crate) fn remove(&mut self, id: Id<T>) -> Option<T> {
        let next = self.free;
        let place = self.places.get_mut(id.0 as usize)?;
        match std::mem::replace(place, Place::Free { prev: Id::NIL, next }) {
            Place::Used(value) => {
                self.join(Id::NIL, id);
                self.join(id, next);
                self.len -= 1;
                Some(value)
            }
            free @ Place::Free { .. } => {
                *place = free;
                None
            }
        }
    }

    /// Makes two free places neighbours; [`Id::NIL`] is before the first, and after the last.
    fn join(&mut self, before: Id<T>, after: Id<T>) {
        match self.places.get_mut(before.0 as usize) {
            Some(Place::Free { next, .. }) => *next = after,
            Some(Place::Used(_)) | None => self.free = after,
        }
        if let Some(Place::Free { prev, .. }) = self.places.get_mut(after.0 as usize) {
            *prev = before;
        }
    }

    /// The number of entries for which there is memory.
    pub(crate) fn capacity(&self) -> usize {
        self.places.capacity()
    }

    /// Gives free places at the end back, at most `budget` of them, and then the memory of a table that was once much
    /// larger. An entry stays where it is, so the places before it stay, too.
    pub(crate) fn shrink(&mut self, budget: usize) -> Progress {
        for _ in 0..budget {
            let Some(Place::Free { prev, next }) = self.places.last() else {
                if is_roomy(self.places.len(), self.places.capacity()) {
                    self.places.shrink_to(self.places.len() * 2);
                }
                return Progress::Done;
            };
            let (prev, next) = (*prev, *next);
            self.join(prev, next);
            self.places.pop();
        }
        Progress::More
    }

    pub(crate) fn get(&self, id: Id<T>) -> Option<&T> {
        match self.places.get(id.0 as usize)? {
            Place::Used(value) => Some(value),
            Place::Free { .. } => None,
        }
    }

    pub(crate) fn get_mut(&mut self, id: Id<T>) -> Option<&mut T> {
        match self.places.get_mut(id.0 as usize)? {
            Place::Used(value) => Some(value),
            Place::Free { .. } => None,
        }
    }
}

/// Ids are made here and never come from outside, so a free place is a bug of ours.
impl<T> Index<Id<T>> for Slab<T> {
    type Output = T;
    fn index(&self, id: Id<T>) -> &T {
        match self.get(id) {
            Some(value) => value,
            None => unreachable!("id of a freed place"),
        }
    }
}

impl<T> IndexMut<Id<T>> for Slab<T> {
    fn index_mut(&mut self, id: Id<T>) -> &mut T {
        match self.get_mut(id) {
            Some(value) => value,
            None => unreachable!("id of a freed place"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    struct Item(Link<Self>);
    struct Line;
    linked!(Item, Line, 0);

    /// Three entries in every order, removed at every place.
    #[test]
    fn a_list_keeps_its_order_when_any_entry_is_removed() {
        for gone in 0..3 {
            let mut slab = Slab::new();
            let mut list: List<Item, Line> = List::new();
            let ids: Vec<_> = (0..3).map(|_| slab.insert(Item(Link::new()))).collect();
            list.push_back(&mut slab, ids[1]);
            list.push_back(&mut slab, ids[2]);
            list.push_front(&mut slab, ids[0]);
            assert_eq!(list.iter(&slab).collect::<Vec<_>>(), ids);
            list.remove(&mut slab, ids[gone]);
            let left: Vec<_> = (0..3).filter(|&n| n != gone).map(|n| ids[n]).collect();
            assert_eq!(list.iter(&slab).collect::<Vec<_>>(), left);
            assert!(list.is_at_end(left[0]) && list.is_at_end(left[1]));
            assert_eq!(list.pop_front(&mut slab), Some(left[0]));
            assert_eq!(list.pop_front(&mut slab), Some(left[1]));
            assert!(list.is_empty() && list.pop_front(&mut slab).is_none());
        }
    }

    #[test]
    fn places_are_reused_and_counted() {
        let mut slab = Slab::new();
        let a = slab.insert("a");
        let b = slab.insert("b");
        assert_eq!((slab.len(), slab[a], slab[b]), (2, "a", "b"));
        assert_eq!(slab.remove(a), Some("a"));
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab.get(a), None);
        let c = slab.insert("c");
        assert_eq!((c, slab.len(), slab.places()), (a, 2, 2));
        assert!(slab.get(Id::NIL).is_none());
    }

    /// The links of a free place take no memory from an entry.
    #[test]
    fn a_place_is_no_larger_than_its_entry() {
        assert_eq!(size_of::<Place<Box<[u8]>>>(), 16);
    }

    fn capacity<T>(slab: &mut Slab<T>) -> usize {
        while slab.shrink(7) == Progress::More {}
        slab.capacity()
    }

    #[test]
    fn free_places_at_the_end_go() {
        let mut slab = Slab::new();
        let ids: Vec<_> = (0..10_000).map(|number| slab.insert(number)).collect();
        assert_eq!(slab.shrink(usize::MAX), Progress::Done);
        // In an order that leaves holes, and one entry in the first half.
        for step in [3, 2, 1] {
            for id in ids.iter().step_by(step).filter(|id| id.place() != 1_234) {
                slab.remove(*id);
            }
        }
        assert_eq!(slab.shrink(8_000), Progress::More);
        assert_eq!(slab.shrink(8_000), Progress::Done);
        assert_eq!((slab.len(), slab.places(), slab[ids[1_234]]), (1, 1_235, 1_234));
        assert!(capacity(&mut slab) <= 2 * 1_235);
        slab.remove(ids[1_234]);
        assert!(capacity(&mut slab) <= 1024);
        assert_eq!((slab.len(), slab.places()), (0, 0));
    }

    proptest! {
        /// Compared with a sorted map, with shrinking at any moment.
        #[test]
        fn agrees_with_a_map(acts in prop::collection::vec((0_u8..5, any::<u16>()), 1..300)) {
            let (mut slab, mut model) = (Slab::new(), BTreeMap::new());
            for (act, number) in acts {
                let known = model.len();
                match act {
                    0 | 1 => {
                        let id = slab.insert(number);
                        prop_assert!(model.insert(id.place(), number).is_none());
                    }
                    2 | 3 if known > 0 => {
                        let nth = usize::from(number) % known;
                        let place = *model.keys().nth(nth).unwrap();
                        prop_assert_eq!(slab.remove(Id::new(place)), model.remove(&place));
                        prop_assert_eq!(slab.remove(Id::new(place)), None);
                    }
                    _ => {
                        let _some_of_it = slab.shrink(usize::from(number % 5));
                    }
                }
                prop_assert_eq!(slab.len(), model.len());
                let all = (0..slab.places()).filter_map(|place| Some((place, *slab.get(Id::new(place))?)));
                prop_assert_eq!(all.collect::<BTreeMap<_, _>>(), model.clone());
            }
        }
    }
}
