//! Combines several readings of one list of locks that changes meanwhile. Pure.
//!
//! A reading that was not done in one go consists of *runs*: nothing is missing within a run, but something
//! may be missing between two runs. Locks never change places: they appear at the front, and vanish. So if a
//! run contains the end of another run, of the same or any other reading, it continues that one, and together
//! they have all that stands between. From a run that begins at the front of the list, such steps may lead to
//! the end of the list; then every lock was seen that was there all the time.
//!
//! A lock that vanishes and comes back looks the same at another place. So one common line proves nothing,
//! but [`ENOUGH`] lines at the end of a run do, all in their order. And a list is believed only if there are
//! [`GOOD`] ways through it that have no run in common: in tests, random changes have hidden a lock from one
//! reading without a gap about once in ten thousand lists.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};

/// At most this many lines at the end of a run are used to find the run that continues it.
const ANCHORS: usize = 32;

/// This many of them are enough.
const ENOUGH: usize = 4;

/// This many independent ways through the list are enough to believe it.
const GOOD: usize = 2;

/// The lines of a list, in their order, between which none was missed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    lines: Vec<Line>,
}

/// A line, as a number that is almost certainly its own; or the end of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Line {
    /// A lock.
    Lock(u64),
    /// The end of the list, behind the last lock.
    End,
}

impl Line {
    pub(super) fn of(lock: &str) -> Self {
        NUMBERS.with(|numbers| Self::Lock(numbers.hash_one(lock)))
    }
}

thread_local! {
    /// Random, so that no user can choose lines with the same number.
    static NUMBERS: RandomState = RandomState::new();
}

impl Run {
    pub(super) fn extend(&mut self, lines: impl Iterator<Item = Line>) {
        self.lines.extend(lines);
    }

    /// The run has reached the end of the list.
    pub(super) fn end(&mut self) {
        self.lines.push(Line::End);
    }

    fn is_at_the_end(&self) -> bool {
        self.lines.last() == Some(&Line::End)
    }

    fn last(&self) -> &[Line] {
        let from = self.lines.len().saturating_sub(ANCHORS);
        self.lines.get(from..).unwrap_or_default()
    }
}

/// The place of a line.
#[derive(Clone, Copy, Debug)]
struct Place {
    run: usize,
    line: usize,
}

/// Readings of one list.
#[derive(Debug, Default)]
pub(super) struct Passes {
    runs: Vec<Run>,
    /// The runs that begin at the beginning of the list.
    first: Vec<usize>,
    places: HashMap<Line, Vec<Place>>,
}

impl Passes {
    /// Adds a reading.
    pub(super) fn add(&mut self, runs: Vec<Run>) {
        self.first.push(self.runs.len());
        for run in runs {
            for (line, it) in run.lines.iter().enumerate() {
                let place = Place { run: self.runs.len(), line };
                self.places.entry(*it).or_default().push(place);
            }
            self.runs.push(run);
        }
    }

    /// Whether every lock that was held throughout was read.
    pub(super) fn are_believed(&self) -> bool {
        let mut used = HashSet::new();
        (0..GOOD).all(|_| self.way_through(&used).map(|way| used.extend(way)).is_some())
    }

    /// The shortest way from the beginning to the end of the list without these runs.
    fn way_through(&self, without: &HashSet<usize>) -> Option<Vec<usize>> {
        let mut comes_from: HashMap<usize, Option<usize>> = HashMap::new();
        let mut next: VecDeque<(usize, Option<usize>)> =
            self.first.iter().map(|run| (*run, None)).collect();
        while let Some((number, from)) = next.pop_front() {
            if without.contains(&number) || comes_from.contains_key(&number) {
                continue;
            }
            comes_from.insert(number, from);
            let run = self.runs.get(number)?;
            if run.is_at_the_end() {
                let back = |number: &usize| comes_from.get(number).copied().flatten();
                return Some(std::iter::successors(Some(number), back).collect());
            }
            next.extend(self.those_that_go_on(number, run).map(|it| (it, Some(number))));
        }
        None
    }

    /// The runs that contain the end of this one.
    fn those_that_go_on(&self, number: usize, run: &Run) -> impl Iterator<Item = usize> {
        let mut joints: HashMap<usize, Joint> = HashMap::new();
        for line in run.last() {
            let places = self.places.get(line).into_iter().flatten();
            for place in places.filter(|place| place.run != number) {
                joints.entry(place.run).or_default().add(place.line);
            }
        }
        joints.into_iter().filter(|(_, joint)| joint.holds()).map(|(run, _)| run)
    }
}

/// Compares one run with the lines at the end of another, which are added in their order.
#[derive(Debug, Default)]
struct Joint {
    count: usize,
    last: Option<usize>,
    is_in_disorder: bool,
}

impl Joint {
    fn add(&mut self, line: usize) {
        self.is_in_disorder |= self.last.is_some_and(|last| last >= line);
        self.last = Some(line);
        self.count = self.count.saturating_add(1);
    }

    fn holds(&self) -> bool {
        !self.is_in_disorder && self.count >= ENOUGH
    }
}

#[cfg(test)]
#[expect(
    clippy::single_range_in_vec_init,
    reason = "a run may tell one stretch of the list or more"
)]
mod tests {
    use std::ops::Range;

    use rstest::rstest;

    use super::*;

    fn run(numbers: &[Range<usize>]) -> Run {
        let names: Vec<String> =
            numbers.iter().cloned().flatten().map(|it| it.to_string()).collect();
        let mut run = Run::default();
        run.extend(names.iter().map(|name| Line::of(name)));
        run
    }

    fn ended(numbers: &[Range<usize>]) -> Run {
        let mut run = run(numbers);
        run.end();
        run
    }

    fn is_a_way(readings: impl IntoIterator<Item = Vec<Run>>) -> bool {
        let mut passes = Passes::default();
        readings.into_iter().for_each(|runs| passes.add(runs));
        passes.way_through(&HashSet::new()).is_some()
    }

    /// The first reading has a gap where 50 to 59 stand, behind 49 and before 60.
    #[rstest]
    #[case::it_tells_all(vec![run(&[0..100])], true)]
    #[case::without_a_gap_there(vec![run(&[0..20]), run(&[20..100])], true)]
    #[case::some_have_gone_meanwhile(vec![run(&[0..44, 46..62, 66..100])], true)]
    #[case::as_few_as_are_enough(vec![run(&[46..100])], true)]
    #[case::too_few(vec![run(&[47..100])], false)]
    #[case::the_same_gap(vec![run(&[0..52]), run(&[56..100])], false)]
    #[case::two_go_on(vec![run(&[0..20]), run(&[30..80]), run(&[70..96])], true)]
    #[case::those_behind_came_back_in_front(vec![run(&[60..100, 0..50])], false)]
    #[case::some_before_came_back_in_front_of_others(vec![run(&[40..50, 20..40, 60..100])], false)]
    #[case::one_came_back_in_front(vec![run(&[48..49, 0..48, 49..100])], false)]
    #[case::one_is_told_twice(vec![run(&[0..50, 48..49, 60..100])], false)]
    fn a_gap_is_bridged_by_runs_that_tell_what_is_before_it_and_what_is_behind(
        #[case] other: Vec<Run>,
        #[case] is_bridged: bool,
    ) {
        let first = vec![run(&[0..50]), ended(&[60..100])];
        // None of these begins where the list begins.
        let other = [vec![run(&[])], other].concat();
        assert_eq!(is_a_way([first, other]), is_bridged);
    }

    #[test]
    fn a_list_is_whole_only_by_two_independent_sets_of_readings() {
        let whole = || vec![ended(&[0..100])];
        let torn = |at: usize| vec![run(&[0..at]), ended(&[at..100])];
        for (readings, is_believed) in [
            (vec![whole()], false),
            (vec![whole(), whole()], true),
            (vec![torn(40), whole()], false),
            (vec![torn(40), torn(60)], false),
            (vec![torn(40), torn(60), whole()], true),
            (vec![torn(40), torn(40), torn(40)], false),
        ] {
            let mut passes = Passes::default();
            readings.into_iter().for_each(|runs| passes.add(runs));
            assert_eq!(passes.are_believed(), is_believed, "{passes:?}");
        }
    }

    /// The last run of a reading may not have reached the end of the list, although no more was read.
    #[test]
    fn the_end_of_a_reading_may_be_missing_like_any_piece() {
        let cut = || vec![run(&[0..90]), ended(&[])];
        assert!(!is_a_way([cut(), cut(), cut()]));
        assert!(is_a_way([cut(), vec![run(&[0..20]), ended(&[80..100])]]));
    }

    /// A hundred gaps in each of four readings, each in another place.
    #[test]
    fn readings_with_different_gaps_complete_each_other() {
        let mut passes = Passes::default();
        for reading in 0..4 {
            assert!(reading > 1 || !passes.are_believed());
            let ends: Vec<usize> = (1..100).map(|gap| gap * 200 + reading * 50).collect();
            let starts = std::iter::once(0).chain(ends.iter().map(|end| end + 10));
            let ranges = starts.zip(ends.iter().copied().chain([20_000]));
            let mut runs: Vec<Run> = ranges.map(|(from, to)| run(&[from..to])).collect();
            runs.last_mut().unwrap().end();
            passes.add(runs);
        }
        assert!(passes.are_believed());
    }
}
