//! Examines the open descriptors of processes in small pieces, in turn: a process may have a hundred thousand
//! descriptors, and a client that says NOOP must not wait for that. The amount of work in one turn of the
//! loop is a number of descriptors. The caller knows how to examine one.
//!
//! Pure.

use std::collections::VecDeque;
use std::time::Instant;

use crate::limits::{ATTEMPTED, LOOK_COST, LOOK_PAUSE, LOOKED_AT, LOOKS_AT_ONCE};

/// The looks that have begun, and what each is about.
#[derive(Debug)]
pub(in crate::serve) struct Rounds<Q, L> {
    underway: VecDeque<(Q, L)>,
    /// There was no room for another one: none is begun before that.
    not_before: Option<Instant>,
}

/// What came of the wish to begin another look.
pub(in crate::serve) enum Begun<Q, L> {
    /// It has begun.
    Look(Q, L),
    /// It is over already, with this answer.
    Told(Q, Option<bool>),
    /// There is no descriptor for it now.
    NoRoom,
    /// There is nothing to look at.
    Nothing,
}

/// What looks at descriptors.
pub(in crate::serve) trait Looker<Q, L> {
    fn begin(&mut self) -> Begun<Q, L>;
    /// How many descriptors were looked at, and the answer, if that was the last piece.
    fn step(&mut self, look: &mut L) -> (usize, Option<Option<bool>>);
    /// The answer, and what that leads to.
    fn told(&mut self, question: Q, is_open: Option<bool>);
}

impl<Q, L> Default for Rounds<Q, L> {
    fn default() -> Self {
        Self { underway: VecDeque::new(), not_before: None }
    }
}

impl<Q, L> Rounds<Q, L> {
    /// One turn. A newcomer has a piece at once, because most processes have few descriptors. Beyond a
    /// number of answers nothing is begun, because each may lead to a lock.
    pub(in crate::serve) fn turn(&mut self, looker: &mut impl Looker<Q, L>, now: Instant) {
        self.not_before = self.not_before.filter(|moment| *moment > now);
        let (mut left, mut answers) = (LOOKED_AT, 0_usize);
        let mut is_over = false;
        while left > 0 && answers < ATTEMPTED {
            if !is_over && self.not_before.is_none() && self.underway.len() < LOOKS_AT_ONCE {
                left = left.saturating_sub(LOOK_COST);
                match looker.begin() {
                    Begun::Look(question, look) => self.underway.push_front((question, look)),
                    Begun::Told(question, is_open) => {
                        answers = answers.saturating_add(1);
                        looker.told(question, is_open);
                        continue;
                    }
                    Begun::NoRoom => self.not_before = now.checked_add(LOOK_PAUSE),
                    Begun::Nothing => is_over = true,
                }
            }
            let Some((question, mut look)) = self.underway.pop_front() else { return };
            let (looks, answer) = looker.step(&mut look);
            left = left.saturating_sub(looks);
            match answer {
                None => self.underway.push_back((question, look)),
                Some(is_open) => {
                    answers = answers.saturating_add(1);
                    drop(look);
                    looker.told(question, is_open);
                }
            }
        }
    }

    /// When the next turn is, if there is something to look at from the moment `due` on.
    pub(in crate::serve) fn next_moment(
        &self,
        due: Option<Instant>,
        now: Instant,
    ) -> Option<Instant> {
        if self.underway.is_empty() { due.max(due.and(self.not_before)) } else { Some(now) }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const STEP: usize = 256;

    /// Processes with so many descriptors, by their order, and what is done about them.
    #[derive(Default)]
    struct Processes {
        waiting: VecDeque<(usize, usize)>,
        room: usize,
        looks: usize,
        begun: usize,
        told: Vec<usize>,
    }

    impl Processes {
        fn with(descriptors: impl IntoIterator<Item = usize>) -> Self {
            let waiting = descriptors.into_iter().enumerate().collect();
            Self { waiting, room: usize::MAX, ..Self::default() }
        }
    }

    impl Looker<usize, usize> for Processes {
        fn begin(&mut self) -> Begun<usize, usize> {
            if self.waiting.is_empty() {
                return Begun::Nothing;
            }
            if self.room == 0 {
                return Begun::NoRoom;
            }
            self.begun += 1;
            let (number, descriptors) = self.waiting.pop_front().unwrap();
            if descriptors == 0 {
                return Begun::Told(number, None);
            }
            self.room -= 1;
            Begun::Look(number, descriptors)
        }

        fn step(&mut self, left: &mut usize) -> (usize, Option<Option<bool>>) {
            let looks = STEP.min(*left);
            *left -= looks;
            self.looks += looks;
            (looks, (*left == 0).then_some(Some(false)))
        }

        fn told(&mut self, question: usize, _: Option<bool>) {
            self.room = self.room.saturating_add(1);
            self.told.push(question);
        }
    }

    /// However many there are and however much they have open, a turn is bounded, and all are looked at.
    #[rstest]
    #[case::many_descriptors(vec![19_900; 30])]
    #[case::many_processes(vec![3; 5000])]
    #[case::hidden(vec![0; 5000])]
    #[case::of_all_kinds((0..300).map(|number| number * 10).collect())]
    fn a_turn_is_a_bounded_count_of_descriptors(#[case] descriptors: Vec<usize>) {
        let (count, all) = (descriptors.len(), descriptors.iter().sum::<usize>());
        let mut processes = Processes::with(descriptors);
        let (mut rounds, now) = (Rounds::default(), Instant::now());
        let mut turns = 0;
        while processes.told.len() < count {
            let (looks, begun, told) = (processes.looks, processes.begun, processes.told.len());
            rounds.turn(&mut processes, now);
            assert!(processes.looks - looks < LOOKED_AT + STEP);
            assert!(processes.begun - begun <= LOOKED_AT / LOOK_COST);
            assert!(processes.told.len() - told <= ATTEMPTED);
            assert!(rounds.underway.len() <= LOOKS_AT_ONCE);
            turns += 1;
        }
        assert_eq!(processes.looks, all);
        assert!(turns <= 1 + (all + count * LOOK_COST) / (LOOKED_AT - STEP) + count / ATTEMPTED);
        assert_eq!(rounds.next_moment(None, now), None);
    }

    /// A process with few descriptors does not wait for those with many.
    #[test]
    fn a_process_with_few_descriptors_is_examined_in_one_turn() {
        let mut processes = Processes::with([100_000; LOOKS_AT_ONCE - 1]);
        let (mut rounds, now) = (Rounds::default(), Instant::now());
        (0..5).for_each(|_| rounds.turn(&mut processes, now));
        assert_eq!(rounds.next_moment(None, now), Some(now), "there is more to do");
        processes.waiting.push_back((77, 20));
        rounds.turn(&mut processes, now);
        assert_eq!(processes.told, [77]);
    }

    /// Nothing is told of a process that there is no descriptor for.
    #[test]
    fn without_a_free_descriptor_a_process_is_examined_later() {
        let mut processes = Processes::with([20, 20]);
        processes.room = 0;
        let (mut rounds, now) = (Rounds::default(), Instant::now());
        rounds.turn(&mut processes, now);
        assert_eq!(rounds.next_moment(Some(now), now), Some(now + LOOK_PAUSE));
        processes.room = 1;
        rounds.turn(&mut processes, now);
        assert_eq!(processes.told, [] as [usize; 0]);
        rounds.turn(&mut processes, now + LOOK_PAUSE);
        assert_eq!(processes.told, [0, 1]);
    }
}
