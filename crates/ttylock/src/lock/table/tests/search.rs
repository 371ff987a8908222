//! Visits every state of a scene, the nearest first. Pure.

use std::collections::HashSet;
use std::collections::hash_map::{Entry as Slot, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::Fault;
use super::disk::{Actor, Answer, Calls, Disk, Entry, Holder, NAMES, Step};
use super::requests::{Outcome, pass, release, sweep, take, take_without_gate};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Job {
    Lock(Holder),
    LockWithoutGate(Holder),
    Unlock(Holder),
    Pass(Holder, Holder),
    Sweep,
}

/// What takes part.
#[derive(Clone, Debug)]
pub(super) struct Scene<'s> {
    /// The holder of the lock at the beginning.
    pub(super) holder: Option<Holder>,
    pub(super) jobs: &'s [Job],
    /// How many processes are killed.
    pub(super) kills: u8,
    /// The holders that may end at any time.
    pub(super) mortal: &'s [Holder],
    /// How many names a foreign program removes.
    pub(super) removals: u8,
    /// A foreign program takes a free name once.
    pub(super) takes: bool,
}

/// One that asks when all others were killed; no other has its numbers.
const LAST: Actor = 100;
const FRESH: Holder = 101;
const FOREIGN: Holder = 102;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    disk: Disk,
    logs: Vec<Vec<Answer>>,
    kills: u8,
    removals: u8,
    takes: bool,
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "the name of a call is for the report")]
enum Event {
    /// With its name, once it was made.
    Call(Actor, &'static str),
    Kill(Actor),
    End(Holder),
    Removal(u8),
    ForeignTakes(u8),
}

pub(super) struct Search<'s> {
    scene: Scene<'s>,
    fault: Fault,
    /// The states, by their hashes: how each was first reached.
    seen: HashMap<u64, Option<(u64, Event)>>,
    /// What is left if all are killed, by its hash: as far as it was examined.
    killed: HashSet<u64>,
}

fn play(job: Job, calls: &mut Calls<'_>) -> Step<Outcome> {
    match job {
        Job::Lock(holder) => take(calls, holder),
        Job::LockWithoutGate(holder) => take_without_gate(calls, holder),
        Job::Unlock(holder) => release(calls, holder),
        Job::Pass(from, to) => pass(calls, from, to),
        Job::Sweep => sweep(calls),
    }
}

/// From the first call to the last, while nobody else makes one.
fn alone(disk: &mut Disk, fault: Fault, job: Job) -> Outcome {
    let mut log = Vec::new();
    let mut calls = Calls::new(disk, LAST, fault, &mut log, usize::MAX);
    let outcome = play(job, &mut calls);
    calls.end();
    outcome.expect("the gate is free")
}

impl<'s> Search<'s> {
    pub(super) fn of(scene: Scene<'s>, fault: Fault) -> Self {
        Self { scene, fault, seen: HashMap::new(), killed: HashSet::new() }
    }

    /// How many states there are; or which promise is broken, and what leads there.
    pub(super) fn run(mut self) -> Result<usize, String> {
        let mut disk = Disk::default();
        disk.alive = (1..=4).chain([FRESH, FOREIGN]).collect();
        if let Some(holder) = self.scene.holder {
            assert_eq!(alone(&mut disk, Fault::None, Job::Lock(holder)), Outcome::Done);
        }
        let actors = 0..Actor::try_from(self.scene.jobs.len()).unwrap();
        disk.running = actors.clone().collect();
        let Scene { kills, removals, takes, .. } = self.scene;
        let logs = actors.map(|_| Vec::new()).collect();
        let mut open = vec![State { disk, logs, kills, removals, takes }];
        self.seen.insert(hash(&open[0]), None);
        while !open.is_empty() {
            let mut next = Vec::new();
            for state in open {
                let from = hash(&state);
                for event in self.events(&state) {
                    let Some((event, state)) = self.after(&state, event) else { continue };
                    let to = hash(&state);
                    if let Slot::Vacant(slot) = self.seen.entry(to) {
                        slot.insert(Some((from, event)));
                        if let Some(broken) = self.broken(&state) {
                            return Err(format!("{broken}: {:?}", self.way_to(to)));
                        }
                        next.push(state);
                    }
                }
            }
            open = next;
        }
        Ok(self.seen.len())
    }

    fn way_to(&self, mut state: u64) -> Vec<Event> {
        let mut way = Vec::new();
        while let Some((from, event)) = self.seen[&state] {
            way.push(event);
            state = from;
        }
        way.reverse();
        way
    }

    fn events(&self, state: &State) -> Vec<Event> {
        let running = state.disk.running.iter().copied();
        let mut events: Vec<Event> = running.clone().map(|it| Event::Call(it, "")).collect();
        if state.kills > 0 {
            // One that has made no call has left nothing.
            let begun = running.filter(|it| !state.logs[usize::from(*it)].is_empty());
            events.extend(begun.map(Event::Kill));
        }
        let mortal = self.scene.mortal.iter().copied();
        events.extend(mortal.filter(|it| state.disk.alive.contains(it)).map(Event::End));
        let is_there = |name: &u8| state.disk.links.contains_key(&Entry::Lock(*name));
        if state.removals > 0 {
            events.extend(NAMES.into_iter().filter(is_there).map(Event::Removal));
        }
        if state.takes {
            events.extend(NAMES.into_iter().filter(|it| !is_there(it)).map(Event::ForeignTakes));
        }
        events
    }

    /// `None` if this actor has to wait.
    fn after(&self, state: &State, mut event: Event) -> Option<(Event, State)> {
        let mut state = state.clone();
        let State { disk, logs, kills, removals, takes } = &mut state;
        match event {
            Event::Call(actor, _) => {
                let (at, job) = (usize::from(actor), self.scene.jobs[usize::from(actor)]);
                let before = logs[at].len();
                let mut calls = Calls::new(disk, actor, self.fault, &mut logs[at], 1);
                let is_over = play(job, &mut calls).is_ok();
                event = Event::Call(actor, calls.last);
                if is_over {
                    calls.end();
                } else if before == logs[at].len() {
                    return None;
                }
                if is_over {
                    disk.running.remove(&actor);
                    logs[at].clear();
                }
            }
            Event::Kill(actor) => {
                *kills -= 1;
                kill(disk, actor, self.scene.jobs[usize::from(actor)]);
                logs[usize::from(actor)].clear();
            }
            Event::End(holder) => disk.ends(holder),
            Event::Removal(name) => {
                *removals -= 1;
                disk.is_robbed_of(name);
            }
            Event::ForeignTakes(name) => {
                *takes = false;
                disk.create(FOREIGN, Entry::Lock(name), FOREIGN);
                disk.right.foreign = Some(name);
            }
        }
        Some((event, state))
    }

    /// The promise that is broken in this state.
    fn broken(&mut self, state: &State) -> Option<&'static str> {
        let Disk { right, .. } = &state.disk;
        let at = |name: u8| state.disk.at(Entry::Lock(name));
        let gone = right.names.iter().any(|name| at(*name).is_none());
        let gone = gone.then_some("a name of a living process is gone");
        // Some may write no record.
        let is_unrecorded =
            |holder| holder == FOREIGN || self.scene.jobs.contains(&Job::LockWithoutGate(holder));
        let looks_dead = NAMES.into_iter().filter_map(|name| Some((name, at(name)?))).any(
            |(name, open)| match is_unrecorded(open.names) {
                true => open.names != FOREIGN && !state.disk.is_flocked(open),
                false => !state.disk.is_recorded(name, open),
            } && state.disk.alive.contains(&open.names),
        );
        let looks_dead = looks_dead.then_some("a lock is visible without its record");
        right.broken.or(gone).or(looks_dead).or_else(|| self.is_broken_if_all_are_killed(state))
    }

    fn is_broken_if_all_are_killed(&mut self, state: &State) -> Option<&'static str> {
        let mut disk = state.disk.clone();
        for actor in state.disk.running.clone() {
            kill(&mut disk, actor, self.scene.jobs[usize::from(actor)]);
        }
        if !self.killed.insert(hash(&disk)) {
            return None;
        }
        let asks = |disk: &mut Disk, job| alone(disk, self.fault, job) == Outcome::Done;
        asks(&mut disk, Job::Sweep);
        let right = disk.right.clone();
        if right.foreign.is_some_and(|name| !leads(&disk, name, FOREIGN)) {
            return Some("a foreign lock is lost");
        }
        if let Some(holder) = right.holder {
            if !right.names.iter().all(|name| leads(&disk, *name, holder)) {
                return Some("the lock of a living process is lost");
            }
            let mut others = disk.alive.clone();
            others.retain(|it| ![holder, FOREIGN].contains(it));
            for other in others {
                let is_done = asks(&mut disk, Job::Unlock(other));
                if is_done && !right.is_robbed || disk.right.names != right.names {
                    return Some("another process releases a part of the lock");
                }
            }
            if !right.is_robbed && asks(&mut disk, Job::Lock(FRESH)) {
                return Some("two holders");
            }
            let keeps = self.scene.jobs.contains(&Job::LockWithoutGate(holder));
            if !keeps && !right.names.is_empty() && !asks(&mut disk, Job::Unlock(holder)) {
                return Some("the holder cannot release its lock");
            }
        }
        // Processes that keep their locks themselves.
        for (actor, job) in (0..).zip(self.scene.jobs) {
            if matches!(job, Job::LockWithoutGate(_)) {
                kill(&mut disk, actor, *job);
            }
        }
        for holder in disk.alive.clone().into_iter().filter(|it| *it != FOREIGN) {
            asks(&mut disk, Job::Unlock(holder));
        }
        if let Some(name) = right.foreign {
            if asks(&mut disk, Job::Lock(FRESH)) {
                return Some("two holders, one of them of a foreign program");
            }
            disk.unlink(Entry::Lock(name));
            disk.right.foreign = None;
        }
        // What was stale may have gone with an answer that was no.
        if !asks(&mut disk, Job::Lock(FRESH)) || !asks(&mut disk, Job::Unlock(FRESH)) {
            return Some("the port stays blocked");
        }
        asks(&mut disk, Job::Sweep);
        let is_clean = disk.links.is_empty() && disk.records.is_empty() && disk.from.is_empty();
        (!is_clean).then_some("something is left that nobody removes")
    }
}

fn leads(disk: &Disk, name: u8, holder: Holder) -> bool {
    disk.at(Entry::Lock(name)).is_some_and(|it| it.names == holder)
}

/// Its own lock ends with a process that may write no record.
fn kill(disk: &mut Disk, actor: Actor, job: Job) {
    disk.running.remove(&actor);
    disk.close(actor, None);
    if let Job::LockWithoutGate(holder) = job {
        disk.ends(holder);
    }
}

fn hash(state: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}
