//! Connections that wait for a change of a key's holders: at most one key each, and a limited number in all.
//!
//! One key may have ten thousand watchers. So a change only begins a sweep over them, and each turn of the driver wakes
//! a portion of bounded size. Other clients are served between the portions.

use leases::ConnId;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// The most watchers that are woken in one turn, of all keys together. Each of them sends a line, which takes some ten
/// microseconds.
pub(super) const WOKEN_PER_TURN: usize = 64;

/// All watchers, by key and by connection.
#[derive(Debug, Default)]
pub(in crate::server) struct Watchers {
    of_key: HashMap<Arc<[u8]>, Watched>,
    /// The key of each connection, and its place among the watchers of the key.
    keys: HashMap<ConnId, (Arc<[u8]>, u64)>,
    /// The last place.
    latest: u64,
    /// The keys with a sweep under way.
    sweeping: VecDeque<Arc<[u8]>>,
}

/// The watchers of one key, those that were woken last at the end.
#[derive(Debug, Default)]
struct Watched {
    ids: BTreeMap<u64, ConnId>,
    /// The watchers up to this place are still to be woken.
    swept_to: u64,
    is_sweeping: bool,
}

impl Watchers {
    /// Returns whether it is the first watcher of the key.
    pub(super) fn add(&mut self, id: ConnId, key: &[u8]) -> bool {
        let known = self.of_key.get_key_value(key).map(|(key, _)| Arc::clone(key));
        let is_first = known.is_none();
        let key = known.unwrap_or_else(|| key.into());
        self.latest += 1;
        self.of_key.entry(Arc::clone(&key)).or_default().ids.insert(self.latest, id);
        self.keys.insert(id, (key, self.latest));
        is_first
    }

    /// Returns the key if it has no watcher any more.
    pub(super) fn remove(&mut self, id: ConnId) -> Option<Arc<[u8]>> {
        let (key, place) = self.keys.remove(&id)?;
        let others = self.of_key.get_mut(&key)?;
        others.ids.remove(&place);
        others.ids.is_empty().then(|| self.of_key.remove(&key))?;
        Some(key)
    }

    /// The number of connections that watch.
    pub(in crate::server) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Begins a sweep over the watchers of a key, or has the one under way reach all of them.
    pub(super) fn begin_sweep(&mut self, key: &[u8]) {
        let Some(watched) = self.of_key.get_mut(key) else { return };
        watched.swept_to = self.latest;
        if !std::mem::replace(&mut watched.is_sweeping, true) {
            self.sweeping.push_back(key.into());
        }
    }

    /// Begins a sweep over all watchers.
    pub(super) fn begin_sweeps(&mut self) {
        let keys: Vec<_> = self.of_key.keys().cloned().collect();
        keys.iter().for_each(|key| self.begin_sweep(key));
    }

    /// Whether there are more watchers to wake.
    pub(super) fn has_work(&self) -> bool {
        !self.sweeping.is_empty()
    }

    /// The next watcher to wake; the keys take turns. It goes to the end, so that a key that changes all the time keeps
    /// nobody waiting.
    pub(super) fn next(&mut self) -> Option<ConnId> {
        loop {
            let name = self.sweeping.pop_front()?;
            // The watchers of a key may all have left meanwhile.
            let Some(watched) = self.of_key.get_mut(&name) else { continue };
            let first = watched.ids.first_entry().filter(|it| *it.key() <= watched.swept_to);
            let Some(id) = first.map(|it| it.remove()) else {
                watched.is_sweeping = false;
                continue;
            };
            self.latest += 1;
            watched.ids.insert(self.latest, id);
            self.keys.insert(id, (Arc::clone(&name), self.latest));
            self.sweeping.push_back(name);
            return Some(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::WOKEN_PER_TURN;
    use crate::server::core::{Core, Shared};
    use crate::server::settings::Settings;
    use leases::{Answer, Claim, ConnId, Key, Request, Seconds, Verdict};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    fn key(name: &'static str) -> Key<'static> {
        Key::new(name.as_bytes()).unwrap()
    }

    /// Counts how often a connection is woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Watchers of the key `k`, and a client that changes its holders.
    struct Scene {
        shared: Arc<Shared>,
        watchers: Vec<(ConnId, Arc<Woken>)>,
        changer: ConnId,
    }

    impl Scene {
        fn new(watchers: usize) -> Self {
            let shared = Arc::new(Shared::new(Settings::default()));
            let admit = || shared.core().admit(&shared.settings, None).unwrap().0;
            let changer = admit();
            let watchers = (0..watchers).map(|_| (admit(), Arc::new(Woken::default()))).collect();
            let scene = Self { watchers, changer, shared: Arc::clone(&shared) };
            for (id, woken) in &scene.watchers {
                shared.core().connections.register(*id, &Waker::from(Arc::clone(woken)));
                scene.watch(*id);
            }
            scene
        }

        fn watch(&self, id: ConnId) {
            self.shared.core().begin_watch(id, key("k"), 0).unwrap();
        }

        /// The lock changes hands twice.
        fn change(&self) {
            let claim = Claim::LOCK;
            let take = Request::Acquire { key: key("k"), claim, timeout: Seconds::ZERO, ttl: None };
            let mut core = self.shared.core();
            let now = self.shared.now();
            let Ok(Verdict::Now(Answer::Granted(grant))) = core.ask(now, self.changer, take) else {
                panic!("the lock is free")
            };
            let release = Request::Release { key: key("k"), token: Some(grant.token) };
            core.ask(now, self.changer, release).unwrap();
        }

        /// One turn; returns the watchers that it wakes.
        fn turn(&self) -> Vec<usize> {
            let woken = |(_, woken): &(ConnId, Arc<Woken>)| woken.0.load(Ordering::Relaxed);
            let before: Vec<usize> = self.watchers.iter().map(woken).collect();
            let now = self.shared.now();
            self.shared.core().turn(now);
            let after = self.watchers.iter().map(woken);
            let changed = before.iter().zip(after).enumerate().filter(|(_, (a, b))| *a != b);
            changed.map(|(place, _)| place).collect()
        }

        fn core<T>(&self, ask: impl FnOnce(&mut Core) -> T) -> T {
            ask(&mut self.shared.core())
        }
    }

    /// A change wakes nobody at once, then a portion in each turn, and each watcher once. In between, other clients
    /// are served.
    #[test]
    fn watchers_are_woken_in_bounded_portions() {
        const WATCHERS: usize = 10_000;
        let scene = Scene::new(WATCHERS);
        scene.change();
        let mut woken = Vec::new();
        for turn in 0..WATCHERS.div_ceil(WOKEN_PER_TURN) {
            assert!(scene.core(|core| core.watchers.has_work()), "turn {turn}");
            let portion = scene.turn();
            assert!(portion.len() <= WOKEN_PER_TURN, "{} in one turn", portion.len());
            woken.extend(portion);
        }
        assert_eq!(woken, (0..WATCHERS).collect::<Vec<_>>());
        // The two changes came before the first turn. The second sweep is for those that still watch.
        while scene.core(|core| core.watchers.has_work()) {
            assert!(scene.turn().len() <= WOKEN_PER_TURN);
        }
        assert!(scene.turn().is_empty());
    }

    /// However often the key changes, and however fast the first watchers come back, the last one is woken.
    #[test]
    fn changes_one_after_the_other_wake_every_watcher() {
        const WATCHERS: usize = WOKEN_PER_TURN * 5;
        let scene = Scene::new(WATCHERS);
        let mut left: std::collections::BTreeSet<usize> = (0..WATCHERS).collect();
        for _ in 0..5 {
            scene.change();
            for place in scene.turn() {
                left.remove(&place);
                let id = scene.watchers[place].0;
                scene.core(|core| core.end_watch(id));
                scene.watch(id);
            }
        }
        assert!(left.is_empty(), "{left:?}");
    }
}
