//! The contended keys that this front-end watches, each with its waiters here.

use super::keys::{Names, Span};
use super::mirror::Mirror;
use super::rpc::watch_request::RequestUnion;
use super::rpc::{WatchCancelRequest, WatchCreateRequest, WatchRequest};
use leases::{Limit, Moment};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use tokio::sync::mpsc;

/// The number of the watch of the list of front-ends. Other watches have greater numbers.
pub(super) const FRONTS: i64 = 1;
/// How long a key is still watched after our last waiter has gone.
const LINGER_MICROS: u64 = 3_000_000;

fn create(watch_id: i64, Span { from, to }: Span) -> WatchRequest {
    let create = WatchCreateRequest { key: from, range_end: to, start_revision: 0, watch_id };
    WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }
}

fn cancel(watch_id: i64) -> WatchRequest {
    let cancel = WatchCancelRequest { watch_id };
    WatchRequest { request_union: Some(RequestUnion::CancelRequest(cancel)) }
}

/// A contended key.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) mirror: Mirror,
    /// The newest revision that the mirror knows.
    pub(super) as_of: i64,
    pub(super) watch: i64,
    pub(super) limit: Limit,
    /// Our waiting tickets, by create revision.
    pub(super) own: BTreeMap<i64, u64>,
    /// Whether a client of ours watches it.
    pub(super) is_watched: bool,
    /// Since when no client of ours has waited.
    pub(super) idle_since: Moment,
}

impl Line {
    pub(super) fn new(watch: i64, limit: Limit) -> Self {
        let own = BTreeMap::new();
        let (as_of, idle_since) = (0, Moment::NEVER);
        Self { mirror: Mirror::new(), as_of, watch, limit, own, is_watched: false, idle_since }
    }
}

/// By key.
pub(super) struct Lines {
    all: HashMap<Arc<[u8]>, Line>,
    /// The keys that clients of ours watch.
    watched_keys: HashSet<Arc<[u8]>>,
    watches: HashMap<i64, Arc<[u8]>>,
    last_watch: i64,
    watcher: Option<mpsc::UnboundedSender<WatchRequest>>,
}

impl Lines {
    pub(super) fn new() -> Self {
        let (all, watches) = (HashMap::new(), HashMap::new());
        let watched_keys = HashSet::new();
        Self { all, watched_keys, watches, last_watch: FRONTS, watcher: None }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&Line> {
        self.all.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &[u8]) -> Option<&mut Line> {
        self.all.get_mut(key)
    }

    /// The watched key. If it is not watched yet, the watch begins.
    pub(super) fn open(&mut self, names: &Names, key: &Arc<[u8]>, limit: Limit) -> &mut Line {
        let watch = if self.all.contains_key(key) { 0 } else { self.watch(names, key) };
        let line = self.all.entry(Arc::clone(key)).or_insert_with(|| Line::new(watch, limit));
        line.limit = limit;
        line
    }

    /// Clients of ours watch this key from now on.
    pub(super) fn begin_to_tell(&mut self, names: &Names, key: Arc<[u8]>) {
        self.open_to_tell(names, &key);
        self.watched_keys.insert(key);
    }

    fn open_to_tell(&mut self, names: &Names, key: &Arc<[u8]>) {
        // Its limit makes no difference to watchers.
        let limit = self.all.get(key).map_or(Limit::ONE, |line| line.limit);
        self.open(names, key, limit).is_watched = true;
    }

    /// Clients of ours no longer watch this key.
    pub(super) fn end_to_tell(&mut self, key: &[u8], now: Moment) {
        self.watched_keys.remove(key);
        if let Some(line) = self.all.get_mut(key) {
            line.is_watched = false;
            if line.own.is_empty() {
                line.idle_since = now;
            }
        }
    }

    /// The keys that clients of ours watch.
    pub(super) fn watched_keys(&self) -> impl Iterator<Item = &Arc<[u8]>> {
        self.watched_keys.iter()
    }

    /// Begins to watch a key's tickets; returns the number of the watch.
    fn watch(&mut self, names: &Names, key: &Arc<[u8]>) -> i64 {
        self.last_watch += 1;
        let watch = self.last_watch;
        self.watches.insert(watch, Arc::clone(key));
        if let Some(watcher) = &self.watcher {
            let _the_stream_is_broken = watcher.send(create(watch, names.tickets(key)));
        }
        watch
    }

    /// There is a new stream: all watches begin again, and all keys must be read again.
    pub(super) fn open_all(&mut self, names: &Names) -> mpsc::UnboundedReceiver<WatchRequest> {
        let (watcher, requests) = mpsc::unbounded_channel();
        let _just_made = watcher.send(create(FRONTS, names.fronts()));
        self.watcher = Some(watcher);
        self.watches.clear();
        let keys: Vec<Arc<[u8]>> = self.all.keys().cloned().collect();
        for key in keys {
            let watch = self.watch(names, &key);
            if let Some(line) = self.all.get_mut(&key) {
                (line.watch, line.as_of) = (watch, 0);
                line.mirror = Mirror::new();
            }
        }
        requests
    }

    /// The key with this watch number.
    pub(super) fn watched(&self, watch: i64) -> Option<&Arc<[u8]>> {
        self.watches.get(&watch)
    }

    /// Stops watching keys for which no client of ours has waited for a while.
    pub(super) fn close_idle(&mut self, now: Moment) {
        let (watches, watcher) = (&mut self.watches, &self.watcher);
        self.all.retain(|_, line| {
            let over = line.own.is_empty()
                && !line.is_watched
                && line.idle_since < Moment::NEVER
                && now.micros_since(line.idle_since) > LINGER_MICROS;
            if over {
                watches.remove(&line.watch);
                if let Some(watcher) = watcher {
                    let _the_stream_is_broken = watcher.send(cancel(line.watch));
                }
            }
            !over
        });
    }

    /// Forgets all keys, and begins again with those that clients of ours watch.
    pub(super) fn clear(&mut self, names: &Names) {
        if let Some(watcher) = &self.watcher {
            for watch in self.watches.keys() {
                let _the_stream_is_broken = watcher.send(cancel(*watch));
            }
        }
        self.all.clear();
        self.watches.clear();
        let keys: Vec<Arc<[u8]>> = self.watched_keys.iter().cloned().collect();
        keys.iter().for_each(|key| self.open_to_tell(names, key));
    }
}

#[cfg(test)]
impl Lines {
    pub(super) fn insert(&mut self, key: Arc<[u8]>, line: Line) {
        self.all.insert(key, line);
    }
}
