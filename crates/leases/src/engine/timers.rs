//! Deadlines, and what is due at each of them. The caller passes the time.
//!
//! Pure.

use super::terms::Moment;
use std::collections::BTreeSet;

/// The deadlines of payloads. Those that are due at the same moment come in the order of the payloads.
#[derive(Debug)]
pub(super) struct Timers<P>(BTreeSet<(Moment, P)>);

impl<P: Copy + Ord> Default for Timers<P> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<P: Copy + Ord> Timers<P> {
    /// Moves the timer of a payload from one deadline to another. [`Moment::NEVER`] stands for no timer.
    pub(super) fn reset(&mut self, payload: P, from: Moment, to: Moment) {
        if from < Moment::NEVER {
            self.0.remove(&(from, payload));
        }
        if to < Moment::NEVER {
            self.0.insert((to, payload));
        }
    }

    /// Takes the first timer if its deadline is at or before `now`.
    pub(super) fn pop(&mut self, now: Moment) -> Option<P> {
        if self.next() > now {
            return None;
        }
        self.0.pop_first().map(|(_, payload)| payload)
    }

    /// The first deadline; [`Moment::NEVER`] without timers.
    pub(super) fn next(&self) -> Moment {
        self.0.first().map_or(Moment::NEVER, |(deadline, _)| *deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Moment {
        Moment::from_micros(micros)
    }

    #[test]
    fn timers_fire_in_order_and_never_early() {
        let mut timers = Timers::default();
        for (payload, deadline) in [('b', 1_500), ('a', 1_500), ('c', 7)] {
            timers.reset(payload, Moment::NEVER, at(deadline));
        }
        assert_eq!(timers.next(), at(7));
        assert_eq!(timers.pop(at(1_499)), Some('c'));
        assert_eq!(timers.pop(at(1_499)), None);
        assert_eq!([timers.pop(at(1_500)), timers.pop(at(1_500))], [Some('a'), Some('b')]);
        assert_eq!((timers.pop(Moment::NEVER), timers.next()), (None, Moment::NEVER));
    }
}
