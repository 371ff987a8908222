//! The facts for clients that watch keys: the holders and their labels.
//!
//! They come from the copies of keys in `lines`, which etcd's events keep current. A label is part of its ticket,
//! so every front-end reports the same.

use super::Engine;
use super::state::State;
use leases::{ConnId, Effect, Key, Label, Moment, Sight};
use std::sync::Arc;

impl Engine {
    /// Sets the label of a client; its tickets carry it from now on.
    pub fn introduce(&mut self, id: ConnId, label: &Arc<Label>) {
        if let Some(conn) = self.inner.state().seats.conn(id) {
            conn.label = Some(Arc::clone(label));
        }
    }

    /// From now on, [`Effect::Moved`] reports possible changes of this key's holders, or no longer does.
    pub fn watch(&mut self, key: Key<'_>, is_watched: bool) {
        let mut state = self.inner.state();
        if is_watched {
            state.lines.begin_to_tell(&self.inner.names, key.bytes().into());
        } else {
            state.lines.end_to_tell(key.bytes(), self.inner.now());
        }
    }

    /// The holders of a watched key; `Some(None)` if it is free, and `None` until etcd was asked.
    pub fn sight(&self, now: Moment, key: Key<'_>) -> Option<Option<Sight>> {
        let state = self.inner.state();
        let line = state.lines.get(key.bytes()).filter(|line| line.mirror.is_complete())?;
        Some(line.mirror.sight(now))
    }
}

impl State {
    /// The holders of a key may have changed: makes clients of ours that watch it look again. False if none watches
    /// it.
    pub(super) fn tell_watchers(&mut self, key: &[u8]) -> bool {
        let is_watched = self.lines.get(key).is_some_and(|line| line.is_watched);
        if is_watched {
            self.effects.push_back(Effect::Moved(key.into()));
        }
        is_watched
    }

    /// Makes all clients that watch a key look again.
    pub(super) fn tell_all(&mut self) {
        let keys = self.lines.watched_keys().map(|key| Effect::Moved((**key).into()));
        self.effects.extend(keys);
    }
}
