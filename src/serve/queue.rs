//! The queue of WAIT: which client waits for which device, in which order, until when. Has no clock, files or
//! sockets.
//!
//! # The order
//!
//! First come, first served, for each real device: only the first waiter of a queue is tried, and nobody
//! overtakes a waiter that could have the device now. But what keeps the first waiter out may not keep out another: the
//! `flock(2)` of a process keeps out all but that process, and a name that only one client knows may be locked. So if
//! the first waiter is busy, the first waiter of the next user is tried ([`Queue::next_head`]). A LOCK by another
//! client of the same service is busy until all waiters have been tried ([`Queue::admits_lock`]);
//! otherwise clients that ask again and again would overtake them. Other programs do not know the queue and
//! may still be faster.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pidlockfile::Pid;
use pidlockfile::process::ProcessIdentity;
use ttylock::subordinate::owner_of;
use ttylock::{DeviceFiles, Outcome, Request};

use super::admission::ClientId;
use crate::protocol::reply;

/// Interval of checks that no event causes: for the waiters of a device (the end of a `flock(2)` is no event), for ended
/// holders that the kernel does not report, for lock directories that came during a session of one client, and for new
/// connections after the system had no descriptor or memory left.
pub(super) const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The shortest time between two attempts for the waiters of a device. Events within it cause one attempt.
pub(super) const CHECK_GAP: Duration = Duration::from_millis(10);

/// So many users have an attempt when a device may be free, each for its first waiter. A lock under a name that only
/// the first waiter has asked for may keep out that one alone. The users behind these are tried when the line has
/// moved.
const HEADS: usize = 4;

/// All waiters.
///
/// 1. [`Queue::enter`] puts a waiter at the end of a device's line.
/// 2. [`Queue::due`] names the waiter to try now; the answer goes to [`Queue::tried`], which removes
///    the waiter unless the device was busy.
/// 3. Then [`Queue::expire`] removes and names the waiters that have run out of time. The first of a line gets
///    a last attempt when its time is over, so call it after [`Queue::due`] has nothing more.
/// 4. [`Queue::wake`] when a device may have become free, [`Queue::changed`] and [`Queue::process_gone`] when something
///    has happened that may free one. Each device is tried every [`CHECK_EVERY`] in any case. However often they are
///    called, there are [`CHECK_GAP`] between two attempts.
/// 5. [`Queue::leave`] when a waiter's client is gone.
/// 6. [`Queue::next_moment`] is when there is something to do again, all else staying as it is.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// In the order in which they came to their device.
    waiters: Vec<QueueEntry>,
    /// The devices that are waited for.
    devices: HashMap<Arc<str>, QueuedDevice>,
}

#[derive(Clone, Debug)]
struct QueueEntry {
    id: ClientId,
    device: Arc<str>,
    request: Request,
    user: Option<u32>,
    deadline: Instant,
    /// Whether its last attempt has no answer yet.
    is_pending: bool,
}

#[derive(Debug)]
struct QueuedDevice {
    last_try: Option<Instant>,
    /// When its first waiter is to be tried.
    try_at: Instant,
    /// The lock files that may keep it busy.
    files: HashSet<String>,
    /// The process that keeps it busy.
    blocker: Option<ProcessIdentity>,
}

/// A waiter for which the device is tried now: the first of its line, or the first of another user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Which one.
    pub(super) waiter: ClientId,
    /// The real device.
    pub(super) device: Arc<str>,
    /// What the waiter asked for.
    pub(super) request: Request,
}

/// What has changed in the lock directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A file of this name went, or another came in its place.
    Name(String),
    /// More than the kernel keeps in mind, or a directory itself.
    Everything,
}

impl QueueEntry {
    fn candidate(&self) -> Candidate {
        let (device, request) = (Arc::clone(&self.device), self.request.clone());
        Candidate { waiter: self.id, device, request }
    }
}

impl QueuedDevice {
    fn wake(&mut self, now: Instant) {
        let earliest = self.last_try.and_then(|last| last.checked_add(CHECK_GAP));
        let moment = earliest.map_or(now, |earliest| earliest.max(now));
        self.try_at = self.try_at.min(moment);
    }

    fn is_blocked_by(&self, pid: Pid) -> bool {
        self.blocker.as_ref().is_some_and(|blocker| blocker.pid == pid)
    }
}

impl Queue {
    /// Puts a waiter at the end of the line for a device. It is tried at once if it is the first.
    pub(super) fn enter(
        &mut self,
        id: ClientId,
        names: DeviceFiles,
        request: Request,
        user: Option<u32>,
        time: Duration,
        now: Instant,
    ) {
        // A time that no clock can show never comes; limits are far below.
        let deadline = now.checked_add(time).unwrap_or(now);
        let device = Arc::from(names.real.as_str());
        let waiter = QueueEntry { id, device, request, user, deadline, is_pending: false };
        self.join(waiter, names, now, now);
    }

    /// Moves a waiter whose name leads to another device by now to the end of that device's line.
    pub(super) fn move_to(&mut self, id: ClientId, names: DeviceFiles, now: Instant) {
        let Some(waiter) = self.waiters.iter().find(|waiter| waiter.id == id).cloned() else {
            return;
        };
        // A user that changes the target of a name all the time does not cause attempts all the time.
        let first_try = now.checked_add(CHECK_GAP).unwrap_or(now);
        let device = Arc::from(names.real.as_str());
        self.join(QueueEntry { device, is_pending: false, ..waiter }, names, first_try, now);
    }

    fn join(&mut self, waiter: QueueEntry, names: DeviceFiles, first_try: Instant, now: Instant) {
        self.leave(waiter.id, now);
        let known = self.devices.get(&waiter.device);
        let (last_try, try_at) =
            known.map_or((None, first_try), |known| (known.last_try, known.try_at));
        // The latest names count: links come and go.
        let files = names.files.iter().map(|name| name.as_str().to_owned()).collect();
        let device = QueuedDevice { last_try, try_at, files, blocker: None };
        self.devices.insert(Arc::clone(&waiter.device), device);
        self.waiters.push(waiter);
    }

    /// Removes a waiter. False when it does not wait.
    pub(super) fn leave(&mut self, id: ClientId, now: Instant) -> bool {
        let Some(place) = self.waiters.iter().position(|waiter| waiter.id == id) else {
            return false;
        };
        let waiter = self.waiters.remove(place);
        let first = self.waiters.iter().position(|other| other.device == waiter.device);
        match first {
            None => drop(self.devices.remove(&waiter.device)),
            // The next one asks for another process, for which the device may be free.
            Some(first) if first >= place => self.wake(&waiter.device, now),
            Some(_) => {}
        }
        true
    }

    /// Whether nobody waits for anything.
    #[must_use]
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// The device may be free now.
    pub(super) fn wake(&mut self, device: &str, now: Instant) {
        if let Some(device) = self.devices.get_mut(device) {
            device.wake(now);
        }
    }

    /// The devices may be free that this change is about, except this one.
    pub(super) fn changed(&mut self, except: Option<&str>, change: &Change, now: Instant) {
        for (name, device) in &mut self.devices {
            let is_concerned = match change {
                Change::Name(file) => device.files.contains(file),
                Change::Everything => true,
            };
            if is_concerned && except != Some(&**name) {
                device.wake(now);
            }
        }
    }

    /// The devices that this process kept busy may be free.
    pub(super) fn process_gone(&mut self, pid: Pid, now: Instant) {
        self.devices.values_mut().filter(|it| it.is_blocked_by(pid)).for_each(|it| it.wake(now));
    }

    /// Whether this process keeps a device busy.
    #[must_use]
    pub(super) fn is_blocked_by(&self, pid: Pid) -> bool {
        self.devices.values().any(|device| device.is_blocked_by(pid))
    }

    /// The process that keeps a device busy.
    #[must_use]
    pub(super) fn blocker(&self, device: &str) -> Option<&ProcessIdentity> {
        self.devices.get(device)?.blocker.as_ref()
    }

    fn line<'q>(&'q self, device: &'q str) -> impl Iterator<Item = &'q QueueEntry> {
        self.waiters.iter().filter(move |waiter| *waiter.device == *device)
    }

    /// The waiter to try now, the longest overdue first.
    #[must_use]
    pub(super) fn due(&self, now: Instant) -> Option<Candidate> {
        let due = self.devices.iter().filter(|(_, device)| device.try_at <= now);
        let (name, _) = due.min_by_key(|(_, device)| device.try_at)?;
        self.line(name).next().map(QueueEntry::candidate)
    }

    /// The waiter to try when an attempt was busy: the first waiter of the next user, of [`HEADS`] at
    /// most. The one before may have been kept out by what keeps out nobody else. None as long as that one has no answer
    /// yet: it is not to be overtaken.
    #[must_use]
    pub(super) fn next_head(&self, candidate: &Candidate) -> Option<Candidate> {
        if self.waiters.iter().any(|waiter| waiter.id == candidate.waiter && waiter.is_pending) {
            return None;
        }
        let mut heads: Vec<&QueueEntry> = Vec::with_capacity(HEADS);
        for waiter in self.line(&candidate.device) {
            if heads.len() < HEADS
                && !heads.iter().any(|head| head.user.map(owner_of) == waiter.user.map(owner_of))
            {
                heads.push(waiter);
            }
        }
        let mut after = heads.into_iter().skip_while(|head| head.id != candidate.waiter);
        after.nth(1).map(QueueEntry::candidate)
    }

    /// Whether a LOCK that came at that moment may be tried now. It may if nobody waits for the device. It may also if
    /// the device was busy for its waiters since then, and nothing has changed that would be a reason to try them
    /// again.
    #[must_use]
    pub(super) fn admits_lock(&self, device: &str, moment: Instant, now: Instant) -> bool {
        self.devices.get(device).is_none_or(|device| {
            let soon = now.checked_add(CHECK_GAP).unwrap_or(now);
            device.last_try.is_some_and(|last| last >= moment) && device.try_at > soon
        })
    }

    /// The waiters for a device, or for any, each line in its order.
    pub(super) fn waiters(&self, device: Option<&str>) -> Vec<reply::Waiter> {
        let wanted = self.waiters.iter().filter(|it| device.is_none_or(|of| of == &*it.device));
        let shown = |it: &QueueEntry| {
            let device = it.device.to_string();
            reply::Waiter { device, pid: it.request.pid, user: it.user }
        };
        wanted.map(shown).collect()
    }

    /// What came of an attempt, and which process keeps the device busy. Unless the device was busy, the waiter has its
    /// answer and is gone from the line.
    pub(super) fn tried(
        &mut self,
        candidate: &Candidate,
        outcome: Outcome,
        blocker: Option<ProcessIdentity>,
        now: Instant,
    ) {
        // If one waiter has got the device, the attempts of the others have their answer, too: busy.
        for waiter in self.waiters.iter_mut().filter(|it| it.device == candidate.device) {
            waiter.is_pending &= outcome != Outcome::Done && waiter.id != candidate.waiter;
        }
        let Some(device) = self.devices.get_mut(&candidate.device) else { return };
        let next = now.checked_add(CHECK_EVERY).unwrap_or(now);
        (device.last_try, device.try_at, device.blocker) = (Some(now), next, blocker);
        if outcome != Outcome::Busy {
            self.leave(candidate.waiter, now);
        }
        let last = self.line(&candidate.device).next().map(|first| first.deadline);
        let Some(device) = self.devices.get_mut(&candidate.device) else { return };
        match outcome {
            Outcome::Busy => {
                device.try_at = last.filter(|last| *last > now).map_or(next, |last| last.min(next));
            }
            // Just taken: there is no hurry to try again.
            Outcome::Done => device.try_at = last.map_or(next, |last| last.max(now).min(next)),
            Outcome::Denied => {}
        }
    }

    /// The attempt was called busy only because it has no answer yet: it is made again soon, even if the waiter's time is
    /// over by then.
    pub(super) fn has_no_answer_yet(&mut self, candidate: &Candidate, now: Instant) {
        if let Some(waiter) = self.waiters.iter_mut().find(|it| it.id == candidate.waiter) {
            waiter.is_pending = true;
        }
        self.wake(&candidate.device, now);
    }

    /// Whether an attempt for a waiter of the device has no answer yet.
    pub(super) fn has_attempt_without_answer(&self, device: &str) -> bool {
        self.line(device).any(|waiter| waiter.is_pending)
    }

    /// Removes and names the waiters that have run out of time. The first of a line that is due to be tried
    /// stays until then, and one whose attempt has no answer yet until that comes.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<ClientId> {
        let is_due = |waiter: &QueueEntry| {
            let device = self.devices.get(&waiter.device);
            device.is_some_and(|device| device.try_at <= now)
                && self.line(&waiter.device).next().is_some_and(|first| first.id == waiter.id)
        };
        let stays = |waiter: &QueueEntry| is_due(waiter) || waiter.is_pending;
        let over = self.waiters.iter().filter(|waiter| waiter.deadline <= now && !stays(waiter));
        let mut over: Vec<_> = over.map(|waiter| (waiter.deadline, waiter.id)).collect();
        over.sort_unstable();
        let over: Vec<ClientId> = over.into_iter().map(|(_, id)| id).collect();
        for id in &over {
            self.leave(*id, now);
        }
        over
    }

    /// When there is something to do next.
    #[must_use]
    pub(super) fn next_moment(&self) -> Option<Instant> {
        let attempts = self.devices.values().map(|device| device.try_at);
        let answered = self.waiters.iter().filter(|waiter| !waiter.is_pending);
        attempts.chain(answered.map(|waiter| waiter.deadline)).min()
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

    fn names(device: &str) -> DeviceFiles {
        DeviceFiles { real: device.to_owned(), files: Vec::new() }
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
            self.enter_for(None, id, device, seconds);
        }

        fn enter_for(&mut self, user: Option<u32>, id: u64, device: &str, seconds: u64) {
            let (waiter, time) = (id, secs(seconds));
            self.queue.enter(waiter, names(device), request(id), user, time, self.now);
        }

        /// Tries all waiters that are due, each with this outcome; returns them.
        fn try_all(&mut self, outcome: Outcome) -> Vec<u64> {
            let mut tried = Vec::new();
            while let Some(candidate) = self.queue.due(self.now) {
                assert_eq!(candidate.request, request(candidate.waiter));
                tried.push(candidate.waiter);
                self.queue.tried(&candidate, outcome, None, self.now);
                assert!(tried.len() < 1000, "without an end");
            }
            tried
        }

        fn expire(&mut self) -> Vec<u64> {
            self.queue.expire(self.now).into_iter().collect()
        }
    }

    #[test]
    fn many_wakes_cause_few_attempts() {
        let mut scene = Scene::new();
        scene.enter(1, "a", 100);
        assert_eq!(scene.try_all(Outcome::Busy), [1]);
        for _ in 0..100 {
            scene.queue.wake("a", scene.now);
        }
        assert_eq!(scene.try_all(Outcome::Busy), []);
        assert_eq!(scene.queue.next_moment(), Some(scene.now + CHECK_GAP));
        scene.now += CHECK_GAP;
        assert_eq!(scene.try_all(Outcome::Busy), [1]);
    }

    /// Waiters 1 and 2 are of one user, 3 and 4 of others.
    #[test]
    fn if_the_first_waiter_is_busy_the_next_user_is_tried() {
        let mut scene = Scene::new();
        for (id, user) in [(1, 1000), (2, 1000), (3, 1001), (4, 1002)] {
            scene.enter_for(Some(user), id, "a", 100);
        }
        let first = scene.queue.due(scene.now).unwrap();
        let second = scene.queue.next_head(&first).unwrap();
        let third = scene.queue.next_head(&second).unwrap();
        let heads = [&first, &second, &third].map(|candidate| candidate.waiter);
        assert_eq!(heads, [1, 3, 4]);
        assert_eq!(scene.queue.next_head(&third), None);
        // The waiter that got it is gone from the middle of the line.
        scene.queue.tried(&first, Outcome::Busy, None, scene.now);
        scene.queue.tried(&second, Outcome::Done, None, scene.now);
        let left = scene.queue.waiters(Some("a"));
        let left: Vec<i32> = left.iter().map(|it| it.pid.as_raw()).collect();
        assert_eq!(left, [1, 2, 4]);
    }

    /// The device may be free for it.
    #[test]
    fn a_waiter_is_not_overtaken_before_its_attempt_has_an_answer() {
        let mut scene = Scene::new();
        for (id, user) in [(1, 1000), (2, 1001)] {
            scene.enter_for(Some(user), id, "a", 100);
        }
        let first = scene.queue.due(scene.now).unwrap();
        scene.queue.tried(&first, Outcome::Busy, None, scene.now);
        scene.queue.has_no_answer_yet(&first, scene.now);
        assert_eq!(scene.queue.next_head(&first), None);
        scene.now += CHECK_GAP;
        assert_eq!(scene.queue.due(scene.now), Some(first.clone()));
        scene.queue.tried(&first, Outcome::Busy, None, scene.now);
        assert_eq!(scene.queue.next_head(&first).unwrap().waiter, 2);
    }

    /// As when a link leads to another device than at the beginning of the wait.
    #[test]
    fn a_waiter_for_another_device_by_now_is_the_last_there() {
        let mut scene = Scene::new();
        scene.enter(1, "a", 100);
        scene.enter(2, "a", 100);
        scene.enter(3, "b", 100);
        scene.try_all(Outcome::Busy);
        scene.queue.move_to(1, names("b"), scene.now);
        scene.queue.move_to(9, names("b"), scene.now);
        let in_line = |scene: &Scene, device| -> Vec<i32> {
            let waiters = scene.queue.waiters(Some(device));
            waiters.iter().map(|it| it.pid.as_raw()).collect()
        };
        assert_eq!((in_line(&scene, "a"), in_line(&scene, "b")), (vec![2], vec![3, 1]));
        // To and fro, without end: it is tried only now and then.
        scene.queue.move_to(2, names("c"), scene.now);
        assert_eq!(scene.queue.due(scene.now), None);
        scene.now += CHECK_GAP;
        assert_eq!(scene.queue.due(scene.now).unwrap().waiter, 2);
        // Its time is the one that it asked for.
        scene.now += secs(100);
        scene.try_all(Outcome::Busy);
        assert_eq!(scene.expire(), [1, 2, 3]);
    }

    #[test]
    fn only_so_many_users_are_tried() {
        let mut scene = Scene::new();
        for (id, user) in (1..).zip(0..=u32::try_from(HEADS).unwrap()) {
            scene.enter_for(Some(user), id, "a", 100);
        }
        let mut tried = 0;
        let mut candidate = scene.queue.due(scene.now);
        while let Some(now) = candidate {
            tried += 1;
            candidate = scene.queue.next_head(&now);
        }
        assert_eq!(tried, HEADS);
    }

    #[test]
    fn a_lock_waits_until_the_waiters_were_tried() {
        let mut scene = Scene::new();
        let asked = scene.now;
        assert!(scene.queue.admits_lock("a", asked, scene.now));
        scene.enter(1, "a", 100);
        assert!(!scene.queue.admits_lock("a", asked, scene.now));
        scene.try_all(Outcome::Busy);
        assert!(scene.queue.admits_lock("a", asked, scene.now));
        // A change counts at once, although the attempt has to wait for a moment.
        let (mut woken, now) = (Scene::new(), scene.now);
        woken.now = now;
        woken.enter(1, "a", 100);
        woken.try_all(Outcome::Busy);
        woken.queue.wake("a", now);
        assert!(!woken.queue.admits_lock("a", asked, now));
        scene.now += CHECK_GAP;
        assert!(!scene.queue.admits_lock("a", scene.now, scene.now));
        // Something has told of a change since.
        scene.queue.wake("a", scene.now);
        assert!(!scene.queue.admits_lock("a", asked, scene.now));
    }

    #[test]
    fn a_denied_waiter_makes_room_at_once() {
        let mut scene = Scene::new();
        scene.enter(1, "a", 100);
        scene.enter(2, "a", 100);
        assert_eq!(scene.try_all(Outcome::Denied), [1]);
        scene.now += CHECK_GAP;
        assert_eq!(scene.try_all(Outcome::Done), [2]);
    }

    #[test]
    fn when_the_first_waiter_leaves_the_next_is_tried() {
        let mut scene = Scene::new();
        scene.enter(1, "a", 100);
        scene.enter(2, "a", 100);
        scene.try_all(Outcome::Busy);
        assert!(scene.queue.leave(1, scene.now));
        assert!(!scene.queue.leave(1, scene.now));
        scene.now += CHECK_GAP;
        assert_eq!(scene.try_all(Outcome::Busy), [2]);
    }

    #[test]
    fn a_wait_ends_at_its_deadline_after_a_last_attempt() {
        let mut scene = Scene::new();
        scene.enter(1, "a", 3);
        scene.enter(2, "a", 2);
        assert_eq!((scene.try_all(Outcome::Busy), scene.expire()), (vec![1], vec![]));
        scene.now += secs(2) - Duration::from_millis(1);
        scene.try_all(Outcome::Busy);
        assert_eq!(scene.expire(), []);
        scene.now += Duration::from_millis(1);
        // Not the first of the line: no attempt of its own.
        assert_eq!(scene.expire(), [2]);
        scene.now += secs(1);
        assert_eq!(scene.expire(), [], "not before the last attempt");
        assert_eq!((scene.try_all(Outcome::Busy), scene.expire()), (vec![1], vec![1]));
        assert!(scene.queue.is_empty());
    }

    /// Nor does its deadline keep the daemon busy.
    #[test]
    fn a_wait_does_not_end_before_its_attempt_has_an_answer() {
        for outcome in [Outcome::Busy, Outcome::Done] {
            let mut scene = Scene::new();
            scene.enter(1, "a", 0);
            for _ in 0..3 {
                let candidate = scene.queue.due(scene.now).unwrap();
                scene.queue.tried(&candidate, Outcome::Busy, None, scene.now);
                scene.queue.has_no_answer_yet(&candidate, scene.now);
                assert_eq!(scene.expire(), []);
                assert_eq!(scene.queue.next_moment(), Some(scene.now + CHECK_GAP));
                scene.now += CHECK_GAP;
            }
            let over: &[u64] = if outcome == Outcome::Busy { &[1] } else { &[] };
            assert_eq!((scene.try_all(outcome), &*scene.expire()), (vec![1], over));
            assert!(scene.queue.is_empty());
        }
    }

    /// The attempts of two users have no answer yet, and another client comes to the line: each of the two waits for its
    /// own answer.
    #[test]
    fn each_attempt_without_an_answer_is_waited_for() {
        let mut scene = Scene::new();
        for (id, user) in [(1, 1000), (2, 1001)] {
            scene.enter_for(Some(user), id, "a", 0);
        }
        let first = scene.queue.due(scene.now).unwrap();
        let second = scene.queue.next_head(&first).unwrap();
        for candidate in [&first, &second] {
            scene.queue.tried(candidate, Outcome::Busy, None, scene.now);
            scene.queue.has_no_answer_yet(candidate, scene.now);
        }
        assert_eq!(scene.expire(), []);
        scene.enter(3, "a", 100);
        assert_eq!(scene.expire(), []);
        scene.now += CHECK_GAP;
        scene.queue.tried(&first, Outcome::Busy, None, scene.now);
        assert!(scene.queue.has_attempt_without_answer("a"));
        assert_eq!(scene.expire(), [1]);
        scene.queue.tried(&second, Outcome::Busy, None, scene.now);
        assert!(!scene.queue.has_attempt_without_answer("a"));
        assert_eq!(scene.expire(), [2]);
    }

    /// The attempt of another user's waiter has no answer yet, and then the first one gets the device.
    #[test]
    fn a_wait_ends_when_another_waiter_gets_the_device() {
        let mut scene = Scene::new();
        for (id, user, time) in [(1, 1000, 100), (2, 1000, 100), (3, 1001, 0)] {
            scene.enter_for(Some(user), id, "a", time);
        }
        let first = scene.queue.due(scene.now).unwrap();
        let second = scene.queue.next_head(&first).unwrap();
        scene.queue.tried(&first, Outcome::Busy, None, scene.now);
        scene.queue.tried(&second, Outcome::Busy, None, scene.now);
        scene.queue.has_no_answer_yet(&second, scene.now);
        assert_eq!(scene.expire(), []);
        scene.now += CHECK_GAP;
        scene.queue.tried(&first, Outcome::Done, None, scene.now);
        assert_eq!(scene.expire(), [3]);
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
                        prop_assert_eq!(scene.queue.leave(id.into(), scene.now), waited);
                        lines.values_mut().for_each(|line| line.retain(|(o, _)| *o != u64::from(id)));
                    }
                    Move::Wake(device) => scene.queue.wake(&device.to_string(), scene.now),
                    Move::Free(device) => {
                        free.insert(device.to_string(), true);
                        scene.queue.wake(&device.to_string(), scene.now);
                    }
                    Move::Pass(milliseconds) => scene.now += Duration::from_millis(milliseconds),
                }
                let mut attempts = 0;
                while let Some(candidate) = scene.queue.due(scene.now) {
                    attempts += 1;
                    prop_assert!(attempts < 100);
                    let line = lines.get_mut(&*candidate.device).unwrap();
                    prop_assert_eq!(line[0].0, candidate.waiter, "only the first is tried");
                    let is_free = free.insert(candidate.device.to_string(), false).unwrap_or(false);
                    let outcome = if is_free { Outcome::Done } else { Outcome::Busy };
                    if is_free {
                        line.remove(0);
                    }
                    scene.queue.tried(&candidate, outcome, None, scene.now);
                }
                for id in scene.expire() {
                    for line in lines.values_mut() {
                        line.retain(|(other, deadline)| *other != id || *deadline > scene.now);
                    }
                }
                let waiting: Vec<_> = lines.values().flatten().collect();
                prop_assert!(waiting.iter().all(|(_, deadline)| *deadline > scene.now));
                prop_assert_eq!(scene.queue.waiters.len(), waiting.len());
                prop_assert_eq!(scene.queue.next_moment().is_none(), waiting.is_empty());
            }
            prop_assert!(scene.queue.is_empty());
        }
    }
}
