//! Which slots of semaphores are taken. Pure.

use super::table::KeyId;
use std::collections::BTreeMap;

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
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

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
