//! A growing table with reused places: what the engine keeps its keys, holders and waiters in.
//! Pure. An id is four bytes and typed, so a waiter's id cannot be used on a holder.

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
impl<T> std::fmt::Debug for Id<T> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "#{}", self.0)
    }
}

#[derive(Debug)]
enum Place<T> {
    Used(T),
    Free(Id<T>),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Place<T>>,
    free: Id<T>,
    len: usize,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { places: Vec::new(), free: Id::NIL, len: 0 }
    }

    /// Entries in use.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Places ever used: ids are below this.
    pub(crate) fn places(&self) -> u32 {
        u32::try_from(self.places.len()).unwrap_or(u32::MAX)
    }

    /// The id the next insertion will give. `None` when all four-byte ids are taken.
    fn vacancy(&mut self) -> Option<Id<T>> {
        if let Some(free) = self.free.some() {
            return Some(free);
        }
        let place = u32::try_from(self.places.len()).ok().filter(|&p| p < u32::MAX)?;
        self.places.push(Place::Free(Id::NIL));
        Some(Id::new(place))
    }

    /// Puts `value` into a free place.
    ///
    /// # Panics
    /// After four thousand million entries; memory ends long before.
    pub(crate) fn insert(&mut self, value: T) -> Id<T> {
        let Some(id) = self.vacancy() else { unreachable!("the caps keep tables small") };
        let Some(place) = self.places.get_mut(id.0 as usize) else {
            unreachable!("vacancy() made the place")
        };
        if let Place::Free(next) = std::mem::replace(place, Place::Used(value)) {
            self.free = next;
        }
        self.len += 1;
        id
    }

    /// Takes the entry out and frees its place; `None` when it is free already.
    pub(crate) fn remove(&mut self, id: Id<T>) -> Option<T> {
        let place = self.places.get_mut(id.0 as usize)?;
        match std::mem::replace(place, Place::Free(self.free)) {
            Place::Used(value) => {
                self.free = id;
                self.len -= 1;
                Some(value)
            }
            Place::Free(next) => {
                *place = Place::Free(next);
                None
            }
        }
    }

    pub(crate) fn get(&self, id: Id<T>) -> Option<&T> {
        match self.places.get(id.0 as usize)? {
            Place::Used(value) => Some(value),
            Place::Free(_) => None,
        }
    }

    pub(crate) fn get_mut(&mut self, id: Id<T>) -> Option<&mut T> {
        match self.places.get_mut(id.0 as usize)? {
            Place::Used(value) => Some(value),
            Place::Free(_) => None,
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
}
