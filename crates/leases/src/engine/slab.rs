//! A growing table that reuses its places, for keys, holders and waiters.
//!
//! Pure. An id is four bytes and typed, so a waiter's id cannot be used for a holder.

use std::cmp::Ordering;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// A place in the [`Slab`] of `T`, or [`Id::NIL`].
pub(crate) struct Id<T>(u32, PhantomData<fn() -> T>);

impl<T> Id<T> {
    /// No place.
    pub(crate) const NIL: Self = Self(u32::MAX, PhantomData);

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
impl<T> PartialOrd for Id<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Id<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}
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

    /// Iterates from the first to the last.
    pub(crate) fn iter(self, slab: &Slab<T>) -> impl Iterator<Item = Id<T>> {
        std::iter::successors(self.first(), |&id| slab.get(id)?.link().next.some())
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
    /// The places without an entry.
    free: Vec<Id<T>>,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    /// The number of entries in use.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// All ids are below this number.
    pub(crate) fn places(&self) -> u32 {
        u32::try_from(self.places.len()).unwrap_or(u32::MAX)
    }

    /// Puts `value` into a free place.
    pub(crate) fn insert(&mut self, value: T) -> Id<T> {
        if let Some(id) = self.free.pop() {
            self.places[id.0 as usize] = Some(value);
            return id;
        }
        let id = Id::new(self.places());
        assert!(!id.is_nil(), "the caps keep tables small");
        self.places.push(Some(value));
        id
    }

    /// Removes the entry and frees its place.
    pub(crate) fn remove(&mut self, id: Id<T>) -> T {
        let Some(value) = self.places.get_mut(id.0 as usize).and_then(Option::take) else {
            unreachable!("id of a freed place")
        };
        self.free.push(id);
        value
    }

    pub(crate) fn get(&self, id: Id<T>) -> Option<&T> {
        self.places.get(id.0 as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: Id<T>) -> Option<&mut T> {
        self.places.get_mut(id.0 as usize)?.as_mut()
    }

    /// All entries, in the order of their places.
    pub(crate) fn ids(&self) -> impl Iterator<Item = Id<T>> {
        (0..self.places()).map(Id::new).filter(|id| self.get(*id).is_some())
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
            assert_eq!(list.first(), Some(left[0]));
            list.remove(&mut slab, left[0]);
            list.remove(&mut slab, left[1]);
            assert!(list.is_empty() && list.first().is_none());
        }
    }

    #[test]
    fn places_are_reused_and_counted() {
        let mut slab = Slab::new();
        let a = slab.insert("a");
        let b = slab.insert("b");
        assert_eq!((slab.len(), slab[a], slab[b]), (2, "a", "b"));
        assert_eq!(slab.remove(a), "a");
        assert_eq!(slab.get(a), None);
        let c = slab.insert("c");
        assert_eq!((c, slab.len(), slab.places()), (a, 2, 2));
        assert!(slab.get(Id::NIL).is_none());
    }

    /// Free places take no memory from the entries.
    #[test]
    fn a_place_is_no_larger_than_its_entry() {
        assert_eq!(size_of::<Option<Box<[u8]>>>(), 16);
    }

    proptest! {
        /// Compared with a sorted map.
        #[test]
        fn agrees_with_a_map(acts in prop::collection::vec((0_u8..4, any::<u16>()), 1..300)) {
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
                        prop_assert_eq!(Some(slab.remove(Id::new(place))), model.remove(&place));
                        prop_assert!(slab.get(Id::new(place)).is_none());
                    }
                    _ => {}
                }
                prop_assert_eq!(slab.len(), model.len());
                let all = slab.ids().map(|id| (id.place(), slab[id]));
                prop_assert_eq!(all.collect::<BTreeMap<_, _>>(), model.clone());
            }
        }
    }
}
