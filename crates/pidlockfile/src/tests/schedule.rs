//! For tests only: runs several actors on threads, of which one at a time makes one system call. Pure.
//!
//! A script gives the order. After its end the running actor continues, or a random one. [`Orders`]
//! enumerates all scripts with a limited number of preemptions.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Which actor goes on where the script says nothing.
#[derive(Clone, Debug)]
pub(crate) enum Beyond {
    /// The one that runs.
    Same,
    /// One chosen at random, from this seed.
    Lot(u64),
    /// Each named actor in turn, until it is about to make the named call, or has finished.
    Plan(VecDeque<(usize, &'static str)>),
}

/// A point at which more than nobody could go on.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    able: Vec<usize>,
    before: Option<usize>,
    chosen: usize,
    /// The actor that ran is about to make a private call: to preempt it before the call or after it is the same.
    is_before_private: bool,
}

impl Choice {
    fn preempts(&self, chosen: usize) -> bool {
        self.before.is_some_and(|before| before != chosen && self.able.contains(&before))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Starting,
    Waiting,
    Running,
    Finished,
}

#[derive(Debug)]
struct State {
    status: Vec<Status>,
    /// What each waiting actor is about to do.
    next: Vec<&'static str>,
    is_next_private: Vec<bool>,
    script: Vec<usize>,
    beyond: Beyond,
    made: Vec<Choice>,
    calls: Vec<(usize, &'static str)>,
    last: Option<usize>,
}

type Look = Box<dyn Fn() + Send + Sync>;

/// Whether a call of an actor, after the call before it, neither changes anything that another actor sees, nor sees
/// anything that another actor changes.
pub(crate) type IsPrivate = Box<dyn Fn(usize, &str, &str) -> bool + Send + Sync>;

/// The order of one run.
pub(crate) struct Schedule {
    state: Mutex<State>,
    /// One for each actor. To wake all at each call would cost more than the calls.
    chosen: Vec<Condvar>,
    /// Called between any two calls, while nobody runs.
    look: Look,
    is_private: IsPrivate,
}

/// One actor's place in the order.
#[derive(Clone)]
pub(crate) struct Turn {
    schedule: Arc<Schedule>,
    actor: usize,
}

impl Schedule {
    pub(crate) fn new(
        actors: usize,
        script: Vec<usize>,
        beyond: Beyond,
        look: Look,
        is_private: IsPrivate,
    ) -> Arc<Self> {
        let state = State {
            status: vec![Status::Starting; actors],
            next: vec![""; actors],
            is_next_private: vec![false; actors],
            script,
            beyond,
            made: Vec::new(),
            calls: Vec::new(),
            last: None,
        };
        let chosen = (0..actors).map(|_| Condvar::new()).collect();
        Arc::new(Self { state: Mutex::new(state), chosen, look, is_private })
    }

    pub(crate) fn turn(self: &Arc<Self>, actor: usize) -> Turn {
        Turn { schedule: Arc::clone(self), actor }
    }

    /// The choices that were made, and the calls in their order, once all have finished.
    pub(crate) fn story(&self) -> (Vec<Choice>, Vec<(usize, &'static str)>) {
        let state = self.state();
        (state.made.clone(), state.calls.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the next one go, once everybody waits or has finished.
    fn choose(&self, state: &mut State) {
        if state.status.iter().any(|s| matches!(s, Status::Starting | Status::Running)) {
            return;
        }
        (self.look)();
        let able: Vec<usize> =
            (0..state.status.len()).filter(|i| state.status[*i] == Status::Waiting).collect();
        let Some(first) = able.first().copied() else { return };
        let before = state.last;
        let same = before.filter(|b| able.contains(b)).unwrap_or(first);
        let chosen = match (state.script.get(state.made.len()).copied(), &mut state.beyond) {
            (Some(scripted), _) => scripted,
            (None, Beyond::Same) => same,
            (None, Beyond::Plan(plan)) => {
                let is_there = |(actor, call): &(usize, &str)| {
                    !able.contains(actor) || state.next[*actor] == *call
                };
                while plan.front().is_some_and(is_there) {
                    plan.pop_front();
                }
                plan.front().map_or(same, |(actor, _)| *actor)
            }
            (None, Beyond::Lot(seed)) => {
                *seed = next_lot(*seed);
                able[usize::try_from(*seed >> 33).unwrap() % able.len()]
            }
        };
        assert!(able.contains(&chosen), "a script that no run has written: {able:?}, {chosen}");
        let is_before_private =
            before.is_some_and(|before| able.contains(&before) && state.is_next_private[before]);
        state.made.push(Choice { able, before, chosen, is_before_private });
        state.last = Some(chosen);
        state.status[chosen] = Status::Running;
        // The one that ran before is asking, and does not wait yet.
        if before != Some(chosen) {
            self.chosen[chosen].notify_one();
        }
    }
}

/// Knuth's linear congruential generator; its upper bits are good enough to draw lots.
fn next_lot(seed: u64) -> u64 {
    seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

impl Turn {
    /// Returns when this actor may make its next call.
    pub(crate) fn wait(&self, call: &'static str) {
        let mut state = self.schedule.state();
        state.status[self.actor] = Status::Waiting;
        let before = std::mem::replace(&mut state.next[self.actor], call);
        state.is_next_private[self.actor] = (self.schedule.is_private)(self.actor, before, call);
        self.schedule.choose(&mut state);
        while state.status[self.actor] != Status::Running {
            let chosen = &self.schedule.chosen[self.actor];
            state = chosen.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.calls.push((self.actor, call));
    }

    /// The actor makes no more calls.
    pub(crate) fn finish(&self) {
        let mut state = self.schedule.state();
        state.status[self.actor] = Status::Finished;
        self.schedule.choose(&mut state);
    }
}

/// All orders with at most `bound` preemptions, each once. Of those that differ only in private calls, there is one.
#[derive(Debug)]
pub(crate) struct Orders {
    bound: usize,
    open: Vec<Vec<usize>>,
}

impl Orders {
    pub(crate) fn new(bound: usize) -> Self {
        Self { bound, open: vec![Vec::new()] }
    }

    /// The next script to run.
    pub(crate) fn next(&mut self) -> Option<Vec<usize>> {
        self.open.pop()
    }

    /// Learns from a run of `script` where it could have gone another way.
    pub(crate) fn learn(&mut self, script: &[usize], made: &[Choice]) {
        let mut spent = 0;
        for (at, choice) in made.iter().enumerate() {
            if at >= script.len() && !choice.is_before_private {
                for other in choice.able.iter().filter(|other| **other != choice.chosen) {
                    if spent + usize::from(choice.preempts(*other)) <= self.bound {
                        let way = made[..at].iter().map(|c| c.chosen).chain([*other]);
                        self.open.push(way.collect());
                    }
                }
            }
            spent += usize::from(choice.preempts(choice.chosen));
        }
    }
}
