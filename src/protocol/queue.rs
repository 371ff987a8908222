//! The queue of WAIT: which client waits for which device, in which order, until when. Has no clock, files or
//! sockets.
//!
//! # The order
//!
//! First come, first served, for each real device: only the first waiter of a queue is tried, and nobody
//! overtakes a waiter that could have the device now. But the first waiter may use names of its own, such as
//! a link that it made, and one of these may be locked while the device is free for everybody else. So if the
//! first waiter is busy, the first waiter of the next user is tried ([`Queue::next_head`]). A LOCK by another
//! client of the same service is busy until all waiters have been tried ([`Queue::was_busy_since`]);
//! otherwise clients that ask again and again would overtake them. Other programs do not know the queue and
//! may still be faster.
//!
//! Pure.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::limits::{HEADS, LOOK_EVERY, LOOK_GAP};
use ttylock::{Outcome, Request};

/// Names one waiter: unique in the life of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

/// All waiters.
///
/// 1. [`Queue::enter`] puts a waiter at the end of a device's line.
/// 2. [`Queue::due`] names the waiter to try now; the answer goes to [`Queue::tried`], which removes
///    the waiter unless the device was busy.
/// 3. Then [`Queue::expire`] removes and names the waiters that have run out of time. The first of a line gets
///    a last look when its time is over, so call it after [`Queue::due`] has nothing more.
/// 4. [`Queue::wake`] when a device may have become free; without it each is looked at every
///    [`LOOK_EVERY`]. However often it is called, there are [`LOOK_GAP`] between two looks.
/// 5. [`Queue::leave`] when a waiter's client is gone.
/// 6. [`Queue::next_moment`] is when there is something to do again, all else staying as it is.
#[derive(Debug, Default)]
pub struct Queue {
    lines: HashMap<Arc<str>, Line>,
    whereabouts: HashMap<WaiterId, Arc<str>>,
    looks: BTreeSet<(Instant, Arc<str>)>,
    deadlines: BTreeSet<(Instant, WaiterId)>,
}

/// The line for one device. Never empty.
#[derive(Debug)]
struct Line {
    waiters: VecDeque<Waiter>,
    last_look: Option<Instant>,
    look_at: Instant,
}

#[derive(Clone, Debug)]
struct Waiter {
    id: WaiterId,
    request: Request,
    user: Option<u32>,
    deadline: Instant,
}

/// One try to take a device for the first of its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The waiter that was tried.
    pub waiter: WaiterId,
    /// The real device.
    pub device: Arc<str>,
    /// What the waiter asked for.
    pub request: Request,
}

impl Queue {
    /// Puts a waiter at the end of the line for a device. It is tried at once if it is the first.
    pub fn enter(
        &mut self,
        id: WaiterId,
        device: &str,
        request: Request,
        user: Option<u32>,
        time: Duration,
        now: Instant,
    ) {
        // A time that no clock can show never comes; limits are far below.
        let deadline = now.checked_add(time).unwrap_or(now);
        self.join(device, Waiter { id, request, user, deadline }, now, now);
    }

    /// The waiter's name leads to another device by now: there it is the last.
    pub fn change(&mut self, id: WaiterId, device: &str, now: Instant) {
        let Some(line) = self.whereabouts.get(&id).and_then(|line| self.lines.get(line)) else {
            return;
        };
        let waiter = line.waiters.iter().find(|waiter| waiter.id == id).cloned();
        if let Some(waiter) = waiter {
            // A user that changes the target of a name all the time does not cause looks all the time.
            let first_look = now.checked_add(LOOK_GAP).unwrap_or(now);
            self.join(device, waiter, first_look, now);
        }
    }

    fn join(&mut self, device: &str, waiter: Waiter, first_look: Instant, now: Instant) {
        let (id, deadline) = (waiter.id, waiter.deadline);
        self.leave(id, now);
        let device = match self.lines.get_key_value(device) {
            Some((device, _)) => Arc::clone(device),
            None => Arc::from(device),
        };
        self.deadlines.insert((deadline, id));
        self.whereabouts.insert(id, Arc::clone(&device));
        if let Some(line) = self.lines.get_mut(&device) {
            line.waiters.push_back(waiter);
            return;
        }
        self.looks.insert((first_look, Arc::clone(&device)));
        let waiters = VecDeque::from([waiter]);
        self.lines.insert(device, Line { waiters, last_look: None, look_at: first_look });
    }

    /// Removes a waiter. False when it does not wait.
    pub fn leave(&mut self, id: WaiterId, now: Instant) -> bool {
        let Some(device) = self.whereabouts.remove(&id) else { return false };
        let Some(line) = self.lines.get_mut(&device) else { return false };
        let Some(place) = line.waiters.iter().position(|waiter| waiter.id == id) else {
            return false;
        };
        if let Some(waiter) = line.waiters.remove(place) {
            self.deadlines.remove(&(waiter.deadline, id));
        }
        if line.waiters.is_empty() {
            self.looks.remove(&(line.look_at, Arc::clone(&device)));
            self.lines.remove(&device);
        } else if place == 0 {
            // The next one asks for another process, so it is another question.
            self.wake(&device, now);
        }
        true
    }

    /// Whether somebody waits for this device.
    #[must_use]
    pub fn is_waited_for(&self, device: &str) -> bool {
        self.lines.contains_key(device)
    }

    /// Whether nobody waits for anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.whereabouts.len()
    }

    /// The devices that are waited for, in no order.
    pub fn devices(&self) -> impl Iterator<Item = &Arc<str>> {
        self.lines.keys()
    }

    /// The device may be free now.
    pub fn wake(&mut self, device: &str, now: Instant) {
        let Some((device, line)) = self.lines.get_key_value(device) else { return };
        let earliest = line.last_look.and_then(|last| last.checked_add(LOOK_GAP));
        let moment = earliest.map_or(now, |earliest| earliest.max(now));
        if moment < line.look_at {
            self.look_at(&Arc::clone(device), moment);
        }
    }

    fn look_at(&mut self, device: &Arc<str>, moment: Instant) {
        if let Some(line) = self.lines.get_mut(device) {
            self.looks.remove(&(line.look_at, Arc::clone(device)));
            line.look_at = moment;
            self.looks.insert((moment, Arc::clone(device)));
        }
    }

    /// The waiter to try now, the longest overdue first.
    #[must_use]
    pub fn due(&self, now: Instant) -> Option<Attempt> {
        let (moment, device) = self.looks.first()?;
        if *moment > now {
            return None;
        }
        let first = self.lines.get(device)?.waiters.front()?;
        let (waiter, request) = (first.id, first.request.clone());
        Some(Attempt { waiter, device: Arc::clone(device), request })
    }

    /// The waiter to try when an attempt was busy: the first waiter of the next user, of [`HEADS`] at
    /// most. Only names of his own may have kept the one before from a device that is free.
    #[must_use]
    pub fn next_head(&self, attempt: &Attempt) -> Option<Attempt> {
        let line = self.lines.get(&attempt.device)?;
        let mut users = Vec::with_capacity(HEADS);
        let mut passed = false;
        for waiter in &line.waiters {
            if users.contains(&waiter.user) {
                continue;
            }
            if users.len() >= HEADS {
                return None;
            }
            users.push(waiter.user);
            if passed {
                let (waiter, request) = (waiter.id, waiter.request.clone());
                return Some(Attempt { waiter, device: Arc::clone(&attempt.device), request });
            }
            passed = waiter.id == attempt.waiter;
        }
        None
    }

    /// Whether the device was looked at since that moment, for the next in line, and nothing
    /// has told of a change since.
    #[must_use]
    pub fn was_busy_since(&self, device: &str, moment: Instant, now: Instant) -> bool {
        self.lines.get(device).is_none_or(|line| {
            let soon = now.checked_add(LOOK_GAP).unwrap_or(now);
            line.last_look.is_some_and(|last| last >= moment) && line.look_at > soon
        })
    }

    /// The waiters for a device, or for any, each line in its order.
    pub fn waiters(
        &self,
        device: Option<&str>,
    ) -> impl Iterator<Item = (&str, &Request, Option<u32>)> {
        let lines = self.lines.iter().filter(move |(of, _)| device.is_none_or(|it| it == &***of));
        lines.flat_map(|(device, line)| {
            line.waiters.iter().map(move |waiter| (&**device, &waiter.request, waiter.user))
        })
    }

    /// What came of an attempt. Unless the device was busy, the waiter has its answer and is gone
    /// from the line.
    pub fn tried(&mut self, attempt: &Attempt, outcome: Outcome, now: Instant) {
        let Some(line) = self.lines.get_mut(&attempt.device) else { return };
        line.last_look = Some(now);
        let next = now.checked_add(LOOK_EVERY).unwrap_or(now);
        match outcome {
            Outcome::Busy => {
                let last = line.waiters.front().map(|first| first.deadline);
                let moment = last.filter(|last| *last > now).map_or(next, |last| last.min(next));
                self.look_at(&attempt.device, moment);
            }
            Outcome::Done | Outcome::Denied => {
                self.look_at(&attempt.device, next);
                self.leave_served(attempt, outcome, now);
            }
        }
    }

    fn leave_served(&mut self, attempt: &Attempt, outcome: Outcome, now: Instant) {
        let next = now.checked_add(LOOK_EVERY).unwrap_or(now);
        self.leave(attempt.waiter, now);
        if outcome == Outcome::Done {
            // Just taken: there is no hurry to look again.
            let deadline = self.lines.get(&attempt.device).and_then(|line| line.waiters.front());
            let moment = deadline.map_or(next, |first| first.deadline.max(now).min(next));
            self.look_at(&attempt.device, moment);
        }
    }

    /// Removes and names the waiters that have run out of time. The first of a line that is due to be looked
    /// at stays until then.
    pub fn expire(&mut self, now: Instant) -> Vec<WaiterId> {
        let over: Vec<WaiterId> = self
            .deadlines
            .iter()
            .take_while(|(deadline, _)| *deadline <= now)
            .map(|(_, id)| *id)
            .filter(|id| !self.is_due(*id, now))
            .collect();
        for id in &over {
            self.leave(*id, now);
        }
        over
    }

    fn is_due(&self, id: WaiterId, now: Instant) -> bool {
        let line = self.whereabouts.get(&id).and_then(|device| self.lines.get(device));
        line.is_some_and(|line| {
            line.look_at <= now && line.waiters.front().is_some_and(|first| first.id == id)
        })
    }

    /// When there is something to do next.
    #[must_use]
    pub fn next_moment(&self) -> Option<Instant> {
        let look = self.looks.first().map(|(moment, _)| *moment);
        let deadline = self.deadlines.first().map(|(moment, _)| *moment);
        look.into_iter().chain(deadline).min()
    }
}

#[cfg(test)]
mod tests {
    use pidlockfile::Pid;
    use proptest::prelude::*;

    use super::*;
    use ttylock::DeviceName;

    fn request(pid: u64) -> Request {
        let device = DeviceName::parse(b"ttyS0").unwrap();
        Request { device, pid: Pid::new(i64::try_from(pid).unwrap()).unwrap() }
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    struct Scene {
        queue: Queue,
        now: Instant,
    }

    impl Scene {
        fn new() -> Self {
            Self { queue: Queue::default(), now: Instant::now() }
        }

        fn enter(&mut self, id: u64, device: &str, seconds: u64) {
            self.queue.enter(WaiterId(id), device, request(id), None, secs(seconds), self.now);
        }

        /// Tries all waiters that are due, each with this outcome; returns them.
        fn look(&mut self, outcome: Outcome) -> Vec<u64> {
            let mut tried = Vec::new();
            while let Some(attempt) = self.queue.due(self.now) {
                assert_eq!(attempt.request, request(attempt.waiter.0));
                tried.push(attempt.waiter.0);
                self.queue.tried(&attempt, outcome, self.now);
                assert!(tried.len() < 1000, "an endless look");
            }
            tried
        }

        fn expire(&mut self) -> Vec<u64> {
            self.queue.expire(self.now).into_iter().map(|id| id.0).collect()
        }
    }

    #[test]
    fn only_the_first_waiter_is_tried() {
        let mut scene = Scene::new();
        scene.enter(1, "a", 10);
        scene.enter(2, "a", 10);
        assert_eq!(scene.look(Outcome::Busy), [1]);
        assert_eq!(scene.look(Outcome::Busy), []);
        scene.now += LOOK_EVERY;
        assert_eq!(scene.look(Outcome::Busy), [1]);
    }

    #[test]
    fn each_wake_serves_one_waiter_in_order() {
        let mut scene = Scene::new();
        for id in 1..=3 {
            scene.enter(id, "a", 100);
        }
        scene.look(Outcome::Busy);
        for id in 1..=3 {
            scene.now += LOOK_GAP;
            scene.queue.wake("a", scene.now);
            assert_eq!(scene.look(Outcome::Done), [id]);
            assert_eq!(scene.queue.is_waited_for("a"), id < 3);
        }
        assert!(scene.queue.is_empty() && scene.queue.next_moment().is_none());
    }

    #[test]
    fn many_wakes_cause_few_attempts() {
        let mut scene = Scene::new();
        scene.enter(1, "a", 100);
        assert_eq!(scene.look(Outcome::Busy), [1]);
        for _ in 0..100 {
            scene.queue.wake("a", scene.now);
        }
        assert_eq!(scene.look(Outcome::Busy), []);
        assert_eq!(scene.queue.next_moment(), Some(scene.now + LOOK_GAP));
        scene.now += LOOK_GAP;
        assert_eq!(scene.look(Outcome::Busy), [1]);
    }

    /// Waiters 1 and 2 are of one user, 3 and 4 of others.
    #[test]
    fn if_the_first_waiter_is_busy_the_next_user_is_tried() {
        let mut scene = Scene::new();
        for (id, user) in [(1, 1000), (2, 1000), (3, 1001), (4, 1002)] {
            let (id, time) = (WaiterId(id), secs(100));
            scene.queue.enter(id, "a", request(id.0), Some(user), time, scene.now);
        }
        let first = scene.queue.due(scene.now).unwrap();
        let second = scene.queue.next_head(&first).unwrap();
        let third = scene.queue.next_head(&second).unwrap();
        let heads = [&first, &second, &third].map(|attempt| attempt.waiter.0);
        assert_eq!(heads, [1, 3, 4]);
        assert_eq!(scene.queue.next_head(&third), None);
        // The waiter that got it is gone from the middle of the line.
        scene.queue.tried(&first, Outcome::Busy, scene.now);
        scene.queue.tried(&second, Outcome::Done, scene.now);
        let left: Vec<i32> =
            scene.queue.waiters(Some("a")).map(|(_, request, _)| request.pid.as_raw()).collect();
        assert_eq!(left, [1, 2, 4]);
    }

    /// As when a link leads to another device than at the beginning of the wait.
    #[test]
    fn a_waiter_for_another_device_by_now_is_the_last_there() {
        let mut scene = Scene::new();
        scene.enter(1, "a", 100);
        scene.enter(2, "a", 100);
        scene.enter(3, "b", 100);
        scene.look(Outcome::Busy);
        scene.queue.change(WaiterId(1), "b", scene.now);
        scene.queue.change(WaiterId(9), "b", scene.now);
        let in_line = |scene: &Scene, device| -> Vec<i32> {
            let waiters = scene.queue.waiters(Some(device));
            waiters.map(|(_, request, _)| request.pid.as_raw()).collect()
        };
        assert_eq!((in_line(&scene, "a"), in_line(&scene, "b")), (vec![2], vec![3, 1]));
        // To and fro, without end: it is tried only now and then.
        scene.queue.change(WaiterId(2), "c", scene.now);
        assert_eq!(scene.queue.due(scene.now), None);
        scene.now += LOOK_GAP;
        assert_eq!(scene.queue.due(scene.now).unwrap().waiter, WaiterId(2));
        // Its time is the one that it asked for.
        scene.now += secs(100);
        scene.look(Outcome::Busy);
        assert_eq!(scene.expire(), [1, 2, 3]);
    }

    #[test]
    fn only_so_many_users_are_tried() {
        let mut scene = Scene::new();
        for (id, user) in (1..).zip(0..=u32::try_from(HEADS).unwrap()) {
            let time = secs(100);
            scene.queue.enter(WaiterId(id), "a", request(id), Some(user), time, scene.now);
        }
        let mut tried = 0;
        let mut attempt = scene.queue.due(scene.now);
        while let Some(now) = attempt {
            tried += 1;
            attempt = scene.queue.next_head(&now);
        }
        assert_eq!(tried, HEADS);
    }

    #[test]
    fn a_lock_waits_until_the_waiters_were_tried() {
        let mut scene = Scene::new();
        let asked = scene.now;
        assert!(scene.queue.was_busy_since("a", asked, scene.now));
        scene.enter(1, "a", 100);
        assert!(!scene.queue.was_busy_since("a", asked, scene.now));
        scene.look(Outcome::Busy);
        assert!(scene.queue.was_busy_since("a", asked, scene.now));
        // Told of a change at once, though the look has to wait for a moment.
        let (mut told, now) = (Scene::new(), scene.now);
        told.now = now;
        told.enter(1, "a", 100);
        told.look(Outcome::Busy);
        told.queue.wake("a", now);
        assert!(!told.queue.was_busy_since("a", asked, now));
        scene.now += LOOK_GAP;
        assert!(!scene.queue.was_busy_since("a", scene.now, scene.now));
        // Something has told of a change since.
        scene.queue.wake("a", scene.now);
        assert!(!scene.queue.was_busy_since("a", asked, scene.now));
    }

    #[test]
    fn a_denied_waiter_makes_room_at_once() {
        let mut scene = Scene::new();
        scene.enter(1, "a", 100);
        scene.enter(2, "a", 100);
        assert_eq!(scene.look(Outcome::Denied), [1]);
        scene.now += LOOK_GAP;
        assert_eq!(scene.look(Outcome::Done), [2]);
    }

    #[test]
    fn when_the_first_waiter_leaves_the_next_is_tried() {
        let mut scene = Scene::new();
        scene.enter(1, "a", 100);
        scene.enter(2, "a", 100);
        scene.look(Outcome::Busy);
        assert!(scene.queue.leave(WaiterId(1), scene.now));
        assert!(!scene.queue.leave(WaiterId(1), scene.now));
        scene.now += LOOK_GAP;
        assert_eq!(scene.look(Outcome::Busy), [2]);
    }

    #[test]
    fn leaving_from_the_middle_changes_nothing_for_the_others() {
        let mut scene = Scene::new();
        for id in 1..=3 {
            scene.enter(id, "a", 100);
        }
        scene.look(Outcome::Busy);
        assert!(scene.queue.leave(WaiterId(2), scene.now));
        scene.now += LOOK_GAP;
        assert_eq!(scene.look(Outcome::Busy), []);
        scene.queue.wake("a", scene.now);
        assert_eq!(scene.look(Outcome::Done), [1]);
        scene.now += LOOK_GAP;
        scene.queue.wake("a", scene.now);
        assert_eq!(scene.look(Outcome::Done), [3]);
    }

    #[test]
    fn a_wait_ends_at_its_deadline_after_a_last_attempt() {
        let mut scene = Scene::new();
        scene.enter(1, "a", 3);
        scene.enter(2, "a", 2);
        assert_eq!((scene.look(Outcome::Busy), scene.expire()), (vec![1], vec![]));
        scene.now += secs(2) - Duration::from_millis(1);
        scene.look(Outcome::Busy);
        assert_eq!(scene.expire(), []);
        scene.now += Duration::from_millis(1);
        // Not the first of the line: no look of its own.
        assert_eq!(scene.expire(), [2]);
        scene.now += secs(1);
        assert_eq!(scene.expire(), [], "not before the last look");
        assert_eq!((scene.look(Outcome::Busy), scene.expire()), (vec![1], vec![1]));
        assert!(scene.queue.is_empty());
    }

    #[test]
    fn a_waiter_may_get_the_device_in_its_last_moment() {
        let mut scene = Scene::new();
        scene.enter(1, "a", 1);
        scene.look(Outcome::Busy);
        assert_eq!(scene.queue.next_moment(), Some(scene.now + secs(1)));
        scene.now += secs(1);
        assert_eq!((scene.look(Outcome::Done), scene.expire()), (vec![1], vec![]));
    }

    #[test]
    fn a_wait_of_zero_seconds_tries_once() {
        let mut scene = Scene::new();
        scene.enter(1, "a", 0);
        assert_eq!((scene.look(Outcome::Busy), scene.expire()), (vec![1], vec![1]));
        scene.enter(2, "a", 0);
        assert_eq!((scene.look(Outcome::Done), scene.expire()), (vec![2], vec![]));
    }

    #[test]
    fn devices_do_not_wait_for_each_other() {
        let mut scene = Scene::new();
        scene.enter(1, "a", 100);
        scene.enter(2, "b", 100);
        assert_eq!(scene.look(Outcome::Busy).len(), 2);
        scene.now += LOOK_GAP;
        scene.queue.wake("b", scene.now);
        assert_eq!(scene.look(Outcome::Done), [2]);
        assert!(scene.queue.is_waited_for("a") && !scene.queue.is_waited_for("b"));
    }

    #[test]
    fn waiters_are_listed_in_the_order_of_their_queue() {
        let mut scene = Scene::new();
        for (id, device) in [(1, "a"), (2, "b"), (3, "a")] {
            scene.enter(id, device, 100);
        }
        let mut devices: Vec<&str> = scene.queue.devices().map(|device| &**device).collect();
        devices.sort_unstable();
        assert_eq!((devices, scene.queue.len()), (vec!["a", "b"], 3));
        assert!(!scene.queue.is_empty());
        let waiters = |device| -> Vec<(String, i32)> {
            let waiters = scene.queue.waiters(device);
            waiters.map(|(of, request, _)| (of.to_owned(), request.pid.as_raw())).collect()
        };
        assert_eq!(waiters(Some("a")), [("a".to_owned(), 1), ("a".to_owned(), 3)]);
        assert_eq!(
            (waiters(Some("b")).len(), waiters(Some("c")).len(), waiters(None).len()),
            (1, 0, 3)
        );
    }

    #[derive(Clone, Debug)]
    enum Move {
        Enter(u8, u64),
        Leave(u8),
        Wake(u8),
        Free(u8),
        Pass(u64),
    }

    fn moves() -> impl Strategy<Value = Vec<Move>> {
        let one = prop_oneof![
            (0..3_u8, 0..4_u64).prop_map(|(device, seconds)| Move::Enter(device, seconds)),
            (0..40_u8).prop_map(Move::Leave),
            (0..3_u8).prop_map(Move::Wake),
            (0..3_u8).prop_map(Move::Free),
            (1..1500_u64).prop_map(Move::Pass),
        ];
        prop::collection::vec(one, 0..60)
    }

    proptest! {
        /// Against a model of plain lists: the waiter that is served is always the longest waiting,
        /// nobody waits longer than asked, and nobody is forgotten.
        #[test]
        fn against_a_model(moves in moves()) {
            let mut scene = Scene::new();
            let mut lines: HashMap<String, Vec<(u64, Instant)>> = HashMap::new();
            let mut free: HashMap<String, bool> = HashMap::new();
            let mut next = 0;
            for step in moves.into_iter().chain((0..10).map(|_| Move::Pass(1000))) {
                match step {
                    Move::Enter(device, seconds) => {
                        next += 1;
                        scene.enter(next, &device.to_string(), seconds);
                        let deadline = scene.now + secs(seconds);
                        lines.entry(device.to_string()).or_default().push((next, deadline));
                    }
                    Move::Leave(id) => {
                        let waited = lines.values().flatten().any(|(other, _)| *other == u64::from(id));
                        prop_assert_eq!(scene.queue.leave(WaiterId(id.into()), scene.now), waited);
                        lines.values_mut().for_each(|line| line.retain(|(o, _)| *o != u64::from(id)));
                    }
                    Move::Wake(device) => scene.queue.wake(&device.to_string(), scene.now),
                    Move::Free(device) => {
                        free.insert(device.to_string(), true);
                        scene.queue.wake(&device.to_string(), scene.now);
                    }
                    Move::Pass(milliseconds) => scene.now += Duration::from_millis(milliseconds),
                }
                let mut looks = 0;
                while let Some(attempt) = scene.queue.due(scene.now) {
                    looks += 1;
                    prop_assert!(looks < 100);
                    let line = lines.get_mut(&*attempt.device).unwrap();
                    prop_assert_eq!(line[0].0, attempt.waiter.0, "only the first is tried");
                    let is_free = free.insert(attempt.device.to_string(), false).unwrap_or(false);
                    let outcome = if is_free { Outcome::Done } else { Outcome::Busy };
                    if is_free {
                        line.remove(0);
                    }
                    scene.queue.tried(&attempt, outcome, scene.now);
                }
                for id in scene.expire() {
                    for line in lines.values_mut() {
                        line.retain(|(other, deadline)| *other != id || *deadline > scene.now);
                    }
                }
                let waiting: Vec<_> = lines.values().flatten().collect();
                prop_assert!(waiting.iter().all(|(_, deadline)| *deadline > scene.now));
                prop_assert_eq!(scene.queue.len(), waiting.len());
                prop_assert_eq!(scene.queue.next_moment().is_none(), waiting.is_empty());
            }
            prop_assert!(scene.queue.is_empty());
        }
    }
}
