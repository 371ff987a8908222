//! Work for idle times: forgets keys that were idle for long, and then gives back the memory of tables that were once
//! much larger, some of it at a time. Pure.

use super::keys::Round;
use super::request::{Effect, Progress};
use super::slab::{is_roomy, is_worth_telling};
use super::state::{Engine, spread};
use super::terms::{Mint, Moment};

impl<M: Mint> Engine<M> {
    pub(super) fn tidy(&mut self, now: Moment, budget: usize) -> Progress {
        match (self.shrinking, self.keys.collect(now, &self.caps, budget)) {
            (_, Round::Unfinished) => Progress::More,
            (None, Round::NotDue) => Progress::Done,
            (None, Round::Over) => self.shrink(self.capacity(), budget),
            (Some(before), Round::NotDue | Round::Over) => self.shrink(before, budget),
        }
    }

    /// The number of entries for which all tables together have memory.
    #[must_use]
    pub fn capacity(&self) -> usize {
        let tables = [
            self.keys.capacity(),
            self.holders.capacity(),
            self.waiters.capacity(),
            self.records.capacity(),
            self.conns.capacity(),
            self.timers.capacity(),
            self.fences.capacity(),
            self.effects.capacity(),
            self.changes.as_ref().map_or(0, |changes| changes.capacity()),
        ];
        tables.iter().sum()
    }

    /// Makes the tables smaller. They had memory for `before` entries.
    fn shrink(&mut self, before: usize, budget: usize) -> Progress {
        let tables = [
            self.keys.shrink(budget),
            self.holders.shrink(budget),
            self.waiters.shrink(budget),
            self.records.shrink(budget),
            self.conns.shrink(budget),
            self.timers.shrink(budget),
        ];
        if tables.contains(&Progress::More) {
            self.shrinking = Some(before);
            return Progress::More;
        }
        if is_roomy(self.fences.len(), self.fences.capacity()) {
            let holders = &self.holders;
            let hash = |&id: &_| spread(holders[id].token.fence());
            self.fences.shrink_to(self.fences.len() * 2, hash);
        }
        if is_roomy(self.effects.len(), self.effects.capacity()) {
            self.effects.shrink_to(self.effects.len() * 2);
        }
        if let Some(changes) = &mut self.changes {
            if is_roomy(changes.len(), changes.capacity()) {
                changes.shrink_to(changes.len() * 2);
            }
        }
        self.shrinking = None;
        if is_worth_telling(before, self.capacity()) {
            self.effects.push_back(Effect::Shrunk);
        }
        Progress::Done
    }
}

#[cfg(test)]
#[path = "tidying_tests.rs"]
mod tests;
