//! Events from etcd: one stream for all contended keys and the list of front-ends.
//!
//! Every watch begins "now", which etcd serves at once; a watch that begins in the past is served by a loop
//! that runs ten times a second. Older state is read after the watch has begun. If the stream breaks, or etcd
//! ends a watch, all watches begin anew.

use super::Inner;
use super::calls::BUDGET_MICROS;
use super::keys::Span;
use super::lines::FRONTS;
use super::mirror::{Change, Spot};
use super::rpc::event::EventType;
use super::rpc::{Event, RangeRequest, WatchResponse};
use std::sync::Arc;
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(50);

impl Inner {
    pub(super) async fn watch(self: Arc<Self>) {
        let mut moves = self.client.moves();
        while !self.is_closed() {
            moves.mark_unchanged();
            let requests = self.state().lines.open_all(&self.names);
            if let Ok(mut news) = self.client.watch(requests).await {
                loop {
                    let answer = tokio::select! {
                        answer = news.message() => answer,
                        _ = moves.changed() => break,
                    };
                    match answer {
                        Ok(Some(answer)) if self.was_ended(&answer) => break,
                        Ok(Some(answer)) => self.hear(answer),
                        Ok(None) | Err(_) => break,
                    }
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Etcd has ended a watch that we did not end.
    fn was_ended(&self, answer: &WatchResponse) -> bool {
        let id = answer.watch_id;
        answer.canceled && (id == FRONTS || self.state().lines.watched(id).is_some())
    }

    fn hear(self: &Arc<Self>, answer: WatchResponse) {
        if answer.watch_id == FRONTS {
            if answer.created || !answer.events.is_empty() {
                self.fronts_changed.notify_one();
            }
            return;
        }
        let mut state = self.state();
        let Some(key) = state.lines.watched(answer.watch_id).cloned() else { return };
        if answer.created {
            drop(state);
            tokio::spawn(Arc::clone(self).read_line(key, answer.watch_id));
            return;
        }
        let revision = answer.header.map_or(0, |header| header.revision);
        if let Some(line) = state.lines.get_mut(&key) {
            answer.events.iter().filter_map(|event| self.change_of(event)).for_each(|change| {
                line.mirror.apply(change);
            });
            line.as_of = line.as_of.max(revision);
        }
        self.take_turns(&mut state, &key);
        let is_watched = state.tell_watchers(&key);
        drop(state);
        if is_watched {
            self.stir();
        }
    }

    fn change_of(&self, event: &Event) -> Option<Change> {
        let kv = event.kv.as_ref()?;
        let (_, nonce) = self.names.read_ticket(&kv.key)?;
        let revision = kv.mod_revision;
        Some(match event.r#type() {
            EventType::Put => {
                let place = Spot::read(nonce, kv.create_revision, &kv.value, self.now());
                Change::Put { place, revision }
            }
            EventType::Delete => Change::Delete { nonce, revision },
        })
    }

    /// Reads the state from before the watch.
    async fn read_line(self: Arc<Self>, key: Arc<[u8]>, watch: i64) {
        let Span { from, to } = self.names.tickets(&key);
        let request = RangeRequest { key: from, range_end: to, ..RangeRequest::default() };
        loop {
            let until = self.now().after_micros(BUDGET_MICROS);
            let answer = self.range(request.clone(), until).await;
            let mut state = self.state();
            let Some(line) = state.lines.get_mut(&key).filter(|line| line.watch == watch) else {
                return;
            };
            let Ok(answer) = answer else {
                if self.is_closed() {
                    return;
                }
                continue;
            };
            let revision = answer.header.map_or(0, |header| header.revision);
            let ticket = |kv: &super::rpc::KeyValue| {
                let nonce = self.names.read_ticket(&kv.key)?.1;
                Some(Spot::read(nonce, kv.create_revision, &kv.value, self.now()))
            };
            line.mirror.read(revision, answer.kvs.iter().filter_map(ticket));
            line.as_of = line.as_of.max(revision);
            self.take_turns(&mut state, &key);
            let is_watched = state.tell_watchers(&key);
            drop(state);
            if is_watched {
                self.stir();
            }
            return;
        }
    }
}
