//! Connections that wait for a change of a key's holders: at most one key each, and a limited number in all.

use super::Core;
use leases::{ConnId, Key, Label, Moment, Refusal, Sight};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// By key, and by connection.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    /// Sets, because ten thousand watchers of one key may all leave when it changes.
    of_key: HashMap<Arc<[u8]>, HashSet<ConnId>>,
    keys: HashMap<ConnId, Arc<[u8]>>,
}

impl Watchers {
    /// Returns whether it is the first watcher of the key.
    fn add(&mut self, id: ConnId, key: &[u8]) -> bool {
        let known = self.of_key.get_key_value(key).map(|(key, _)| Arc::clone(key));
        let is_first = known.is_none();
        let key = known.unwrap_or_else(|| key.into());
        self.of_key.entry(Arc::clone(&key)).or_default().insert(id);
        self.keys.insert(id, key);
        is_first
    }

    /// Returns the key if it has no watcher any more.
    fn remove(&mut self, id: ConnId) -> Option<Arc<[u8]>> {
        let key = self.keys.remove(&id)?;
        let others = self.of_key.get_mut(&key)?;
        others.remove(&id);
        others.is_empty().then(|| self.of_key.remove(&key))?;
        Some(key)
    }
}

impl Core {
    /// From now on, a connection that watches nothing yet is woken when this key's holders change. At most `most`
    /// connections may watch at the same time; 0 for no limit.
    pub(in crate::server) fn begin_watch(
        &mut self,
        id: ConnId,
        key: Key<'_>,
        most: usize,
    ) -> Result<(), Refusal> {
        if most > 0 && self.watchers.keys.len() >= most {
            return Err(Refusal::MaxWaiters);
        }
        if self.watchers.add(id, key.bytes()) {
            self.store.watch(key, true);
        }
        Ok(())
    }

    /// Does nothing for a connection that watches no key.
    pub(in crate::server) fn end_watch(&mut self, id: ConnId) {
        if self.watchers.keys.is_empty() {
            return;
        }
        if let Some(name) = self.watchers.remove(id) {
            if let Some(key) = Key::new(&name) {
                self.store.watch(key, false);
            }
        }
    }

    /// The holders of a key: see [`Store::sight`](crate::server::store::Store::sight).
    pub(in crate::server) fn sight(
        &self,
        now: Moment,
        key: Key<'_>,
    ) -> Result<Option<Option<Sight>>, Refusal> {
        if self.draining {
            return Err(Refusal::Draining);
        }
        if !self.store.is_available() {
            return Err(Refusal::Unavailable);
        }
        Ok(self.store.sight(now, key))
    }

    pub(in crate::server) fn watchers(&self) -> usize {
        self.watchers.keys.len()
    }

    /// The holders of a key may have changed.
    pub(super) fn wake_watchers(&self, key: &[u8]) {
        for id in self.watchers.of_key.get(key).into_iter().flatten() {
            self.wake(*id);
        }
    }

    /// Something has changed that concerns all keys.
    pub(super) fn wake_all_watchers(&self) {
        self.watchers.keys.keys().for_each(|id| self.wake(*id));
    }

    /// Changes a part of the label of a connection.
    pub(in crate::server) fn relabel(&mut self, id: ConnId, change: impl FnOnce(&mut Label)) {
        let Some(seat) = self.seat(id) else { return };
        let mut label = seat.label.as_deref().cloned().unwrap_or_default();
        change(&mut label);
        let label = Arc::new(label);
        seat.label = Some(Arc::clone(&label));
        self.store.introduce(id, &label);
    }
}

#[cfg(test)]
mod tests {
    use crate::server::core::Shared;
    use crate::server::settings::Settings;
    use leases::{AutoRelease, Key, Refusal};

    /// The limit counts watchers of all keys, and a connection that has gone counts no more.
    #[test]
    fn watchers_are_counted_in_all() {
        let shared = Shared::new(Settings::default());
        let mut core = shared.core();
        let conns: Vec<_> = (0..4).map(|_| core.admit(&shared.settings, None).unwrap().0).collect();
        let key = |name: &'static str| Key::new(name.as_bytes()).unwrap();
        core.begin_watch(conns[0], key("a"), 2).unwrap();
        core.begin_watch(conns[1], key("b"), 2).unwrap();
        assert_eq!(core.begin_watch(conns[2], key("a"), 2), Err(Refusal::MaxWaiters));
        core.end_watch(conns[2]);
        assert_eq!(core.watchers(), 2);
        let _ = core.leave(conns[0], shared.now(), AutoRelease::On);
        core.begin_watch(conns[2], key("b"), 2).unwrap();
        core.end_watch(conns[1]);
        core.begin_watch(conns[3], key("b"), 0).unwrap();
        assert_eq!(core.watchers(), 2);
        conns.iter().for_each(|id| core.end_watch(*id));
        assert_eq!(core.watchers(), 0);
    }
}
