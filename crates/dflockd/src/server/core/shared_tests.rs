//! What one request costs beside a thousand others, in pieces between which other clients are served. The figures are
//! measured by `benches/crowd.rs`.

use super::*;
use crate::server::core::lists::KeyReport;
use leases::wire::StatsCursor;
use leases::{Answer, Claim, Keys, Limit, Seconds, Verdict};
use rstest::rstest;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

const CROWD: usize = 1000;
/// The most connections that one piece wakes, or takes a hold from. Each takes up to half a microsecond.
const MOST_WOKEN: usize = 128;
/// The most bytes of an answer that one piece makes, which take some 50 microseconds.
const MOST_BYTES: usize = 20 * 1024;

/// Who is there, beside the one who asks: the key `k` has one holder, and a thousand more of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crowd {
    /// They wait for it.
    Waiters,
    /// They wait to share it.
    WaitingReaders,
    /// They share it.
    Readers,
    /// They hold other slots of it.
    Slots,
    /// They hold other slots, and as many wait for one.
    SlotsAndWaiters,
    /// They watch it.
    Watchers,
    /// They hold other keys.
    Keys,
}

/// All that a client or an administrator can ask. The list of HTTP has the pieces of `stats` and of `stats KEY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Acquire,
    AcquireShared,
    AcquireSlot,
    AcquireAll,
    AcquireAndGiveUp,
    Enqueue,
    Wait,
    Renew,
    Release,
    Watch,
    Stats,
    KeyStats,
    ForceRelease,
    Numbers,
    Disconnect,
}

/// Counts how often a connection is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct Scene {
    shared: Shared,
    woken: Arc<Woken>,
    holder: ConnId,
    token: Token,
    asker: ConnId,
}

fn key(name: &str) -> Key<'_> {
    Key::new(name.as_bytes()).unwrap()
}

fn acquire(key: Key<'_>, claim: Claim) -> Request<'_> {
    Request::Acquire { key, claim, timeout: Seconds::new(600).unwrap(), ttl: None }
}

impl Scene {
    fn new(crowd: Crowd) -> Self {
        let mut settings = Settings::default();
        settings.caps.max_locks = 10_000;
        let shared = Shared::new(settings);
        let woken = Arc::<Woken>::default();
        let enter = || {
            let mut core = shared.core();
            let (id, _) = core.admit(&shared.settings, Some([127, 0, 0, 1].into())).unwrap();
            core.relabel(id, |label| label.name = "n".repeat(100).into());
            core.connections.register(id, &Waker::from(Arc::clone(&woken)));
            id
        };
        let pool = Claim::Slot(Limit::new(CROWD as u64 + 1).unwrap());
        let (own, others) = match crowd {
            Crowd::Waiters | Crowd::Watchers | Crowd::Keys => (Claim::LOCK, Claim::LOCK),
            Crowd::WaitingReaders => (Claim::LOCK, Claim::Shared),
            Crowd::Readers => (Claim::Shared, Claim::Shared),
            Crowd::Slots | Crowd::SlotsAndWaiters => (pool, pool),
        };
        let (holder, asker) = (enter(), enter());
        let granted = shared.core().ask(shared.now(), holder, acquire(key("k"), own)).unwrap();
        let Verdict::Now(Answer::Granted(grant)) = granted else { panic!("it is free") };
        let count = if crowd == Crowd::SlotsAndWaiters { 2 * CROWD } else { CROWD };
        for number in 0..count {
            let id = enter();
            if crowd == Crowd::Watchers {
                shared.core().begin_watch(id, key("k"), 0).unwrap();
            } else {
                let name = if crowd == Crowd::Keys { format!("k{number}") } else { "k".into() };
                shared.core().ask(shared.now(), id, acquire(key(&name), others)).unwrap();
            }
        }
        Self { shared, woken, holder, token: grant.token, asker }
    }

    fn ask(&self, id: ConnId, request: Request<'_>) {
        let _verdict = self.shared.core().ask(self.shared.now(), id, request).unwrap();
    }

    /// One piece of what a request needs.
    fn step(&self, verb: Verb, at: &mut At, text: &mut String) -> Progress {
        let (shared, k, now) = (&self.shared, key("k"), self.shared.now());
        let (timeout, token, ttl) = (Seconds::ZERO, Some(self.token), None);
        let take = |claim| Request::Acquire { key: k, claim, timeout, ttl };
        let request = match verb {
            Verb::Stats => return shared.stats_piece(&mut at.stats, text),
            Verb::KeyStats => {
                let report =
                    at.key.get_or_insert_with(|| shared.key_report(k, usize::MAX).unwrap());
                return shared.key_piece(report, &mut { PARTIES_PER_TURN }, text);
            }
            Verb::ForceRelease => return shared.force_step(k, &mut at.forced).unwrap(),
            Verb::AcquireAndGiveUp => {
                self.ask(self.asker, acquire(k, Claim::LOCK));
                shared.core().cancel(now, self.asker);
                return Progress::Done;
            }
            Verb::Watch => {
                shared.core().begin_watch(self.asker, k, 0).unwrap();
                let _seen = shared.core().engine.sight(now, k);
                shared.core().end_watch(self.asker);
                return Progress::Done;
            }
            Verb::Numbers => {
                let _numbers = shared.numbers();
                return Progress::Done;
            }
            Verb::Disconnect => {
                shared.core().end_connection(self.holder, now, AutoRelease::On);
                return Progress::Done;
            }
            Verb::Acquire => take(Claim::LOCK),
            Verb::AcquireShared => take(Claim::Shared),
            Verb::AcquireSlot => take(Claim::Slot(Limit::new(CROWD as u64 + 1).unwrap())),
            Verb::AcquireAll => Request::AcquireAll { keys: Keys::new(b"k other").unwrap(), ttl },
            Verb::Enqueue => Request::Enqueue { key: k, claim: Claim::LOCK, ttl },
            Verb::Wait => Request::Wait { key: k, timeout },
            Verb::Renew => Request::Renew { key: k, token, ttl },
            Verb::Release => Request::Release { key: k, token },
        };
        let is_the_holders = matches!(verb, Verb::Renew | Verb::Release);
        self.ask(if is_the_holders { self.holder } else { self.asker }, request);
        Progress::Done
    }

    /// What a piece does: the connections that it wakes, the holds that it takes away, the bytes that it makes.
    fn measure(&self, piece: impl FnOnce(&mut String)) -> (usize, usize, usize) {
        let woken = || self.woken.0.load(Ordering::Relaxed);
        let releases = || self.shared.numbers().engine.releases;
        let (before, mut text) = ((woken(), releases()), String::new());
        piece(&mut text);
        let released = usize::try_from(releases() - before.1).unwrap();
        (woken() - before.0, released, text.len())
    }
}

/// How far a request is that takes several pieces.
#[derive(Default)]
struct At {
    stats: StatsCursor,
    key: Option<KeyReport>,
    forced: Forced,
}

#[rstest]
fn no_request_does_much_in_one_piece(
    #[values(
        Crowd::Waiters,
        Crowd::WaitingReaders,
        Crowd::Readers,
        Crowd::Slots,
        Crowd::SlotsAndWaiters,
        Crowd::Watchers,
        Crowd::Keys
    )]
    crowd: Crowd,
    #[values(
        Verb::Acquire,
        Verb::AcquireShared,
        Verb::AcquireSlot,
        Verb::AcquireAll,
        Verb::AcquireAndGiveUp,
        Verb::Enqueue,
        Verb::Wait,
        Verb::Renew,
        Verb::Release,
        Verb::Watch,
        Verb::Stats,
        Verb::KeyStats,
        Verb::ForceRelease,
        Verb::Numbers,
        Verb::Disconnect
    )]
    verb: Verb,
) {
    let scene = Scene::new(crowd);
    let (mut at, mut progress, mut pieces) = (At::default(), Progress::More, Vec::new());
    while progress == Progress::More {
        pieces.push(scene.measure(|text| progress = scene.step(verb, &mut at, text)));
    }
    // What is left for the timer.
    let mut is_due = true;
    while is_due {
        pieces.push(scene.measure(|_| {
            let now = scene.shared.now();
            is_due = scene.shared.core().turn(now) <= now;
        }));
    }
    for &(woken, released, bytes) in &pieces {
        assert!(woken <= MOST_WOKEN && released <= PARTIES_PER_TURN, "{woken}, {released}");
        assert!(bytes <= MOST_BYTES, "{bytes}");
    }
    // And all of it was done.
    let woken: usize = pieces.iter().map(|(woken, ..)| woken).sum();
    let changes_holders = matches!(verb, Verb::Release | Verb::ForceRelease | Verb::Disconnect);
    if changes_holders && matches!(crowd, Crowd::WaitingReaders | Crowd::Watchers) {
        assert!(woken >= CROWD, "{woken}");
    }
    if verb == Verb::ForceRelease && matches!(crowd, Crowd::Slots | Crowd::SlotsAndWaiters) {
        let census = scene.shared.core().engine.census().semaphores;
        let waiters = if crowd == Crowd::Slots { 0 } else { CROWD };
        assert_eq!((at.forced.released(), census.holders, census.waiters), (CROWD + 1, waiters, 0));
    }
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let builder = &mut tokio::runtime::Builder::new_current_thread();
    builder.enable_time().build().unwrap().block_on(test)
}

/// A step that takes at least this much time.
fn spend(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {}
}

#[test]
fn many_together_get_no_more_than_their_share() {
    const STEP: Duration = Duration::from_millis(2);
    const STEPS: u32 = 20;
    let start = Instant::now();
    run(async {
        let pace = Arc::new(Pace::new());
        let tasks: Vec<_> = (0..STEPS)
            .map(|_| {
                let pace = Arc::clone(&pace);
                tokio::spawn(async move { pace.step(|| spend(STEP)).await })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    // The last step does not wait for the pause after it.
    assert!(start.elapsed() >= STEP * SHARE * (STEPS - 1), "{:?}", start.elapsed());
}
