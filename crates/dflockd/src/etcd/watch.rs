//! News from etcd: one stream for all contended keys and the list of front-ends.
//!
//! Every watch begins "from now", which etcd serves at once; a start in the past is served by a loop
//! that runs ten times a second. What was before is read after the watch stands. When the stream
//! breaks, or etcd ends a watch, all begin anew.

use super::Inner;
use super::calls::BUDGET_MICROS;
use super::keys::{Names, Span};
use super::mirror::{Change, Mirror};
use super::rpc::event::EventType;
use super::rpc::watch_request::RequestUnion;
use super::rpc::{
    Event, RangeRequest, WatchCancelRequest, WatchCreateRequest, WatchRequest, WatchResponse,
};
use super::state::State;
use crate::engine::Moment;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// The watch of the list of front-ends. The others are numbered from here.
pub(super) const FRONTS: i64 = 1;
/// A key without waiters of ours is watched this long yet.
const LINGER_MICROS: u64 = 3_000_000;
const PAUSE: Duration = Duration::from_millis(50);

/// Begins to watch a key's tickets; answers the watch's number.
pub(super) fn open(state: &mut State, names: &Names, key: &Arc<[u8]>) -> i64 {
    state.last_watch += 1;
    let watch = state.last_watch;
    state.watches.insert(watch, Arc::clone(key));
    if let Some(watcher) = &state.watcher {
        let _the_stream_is_broken = watcher.send(create(watch, names.tickets(key)));
    }
    watch
}

fn create(watch_id: i64, Span { from, to }: Span) -> WatchRequest {
    let create = WatchCreateRequest { key: from, range_end: to, start_revision: 0, watch_id };
    WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }
}

fn cancel(watch_id: i64) -> WatchRequest {
    let cancel = WatchCancelRequest { watch_id };
    WatchRequest { request_union: Some(RequestUnion::CancelRequest(cancel)) }
}

impl Inner {
    pub(super) async fn watch(self: Arc<Self>) {
        let mut moves = self.client.moves();
        while !self.is_closed() {
            moves.mark_unchanged();
            let requests = self.open_all();
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

    /// A new stream: everything is watched and read anew.
    fn open_all(&self) -> mpsc::UnboundedReceiver<WatchRequest> {
        let (watcher, requests) = mpsc::unbounded_channel();
        let mut state = self.state();
        let _just_made = watcher.send(create(FRONTS, self.names.fronts()));
        state.watcher = Some(watcher);
        state.watches.clear();
        let keys: Vec<Arc<[u8]>> = state.lines.keys().cloned().collect();
        for key in keys {
            self.reopen(&mut state, &key);
        }
        requests
    }

    fn reopen(&self, state: &mut State, key: &Arc<[u8]>) {
        let watch = open(state, &self.names, key);
        if let Some(line) = state.lines.get_mut(key) {
            line.watch = watch;
            line.mirror = Mirror::new();
            line.as_of = 0;
        }
    }

    /// etcd has ended a watch that we did not.
    fn was_ended(&self, answer: &WatchResponse) -> bool {
        let id = answer.watch_id;
        answer.canceled && (id == FRONTS || self.state().watches.contains_key(&id))
    }

    fn hear(self: &Arc<Self>, answer: WatchResponse) {
        if answer.watch_id == FRONTS {
            if answer.created || !answer.events.is_empty() {
                self.fronts_changed.notify_one();
            }
            return;
        }
        let mut state = self.state();
        let Some(key) = state.watches.get(&answer.watch_id).cloned() else { return };
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
    }

    fn change_of(&self, event: &Event) -> Option<Change> {
        let kv = event.kv.as_ref()?;
        let (_, nonce) = self.names.read_ticket(&kv.key)?;
        let revision = kv.mod_revision;
        Some(match event.r#type() {
            EventType::Put => Change::Put { nonce, create: kv.create_revision, revision },
            EventType::Delete => Change::Delete { nonce, revision },
        })
    }

    /// What was there before the watch.
    async fn read_line(self: Arc<Self>, key: Arc<[u8]>, watch: i64) {
        let Span { from, to } = self.names.tickets(&key);
        let request =
            RangeRequest { key: from, range_end: to, keys_only: true, ..RangeRequest::default() };
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
                Some((self.names.read_ticket(&kv.key)?.1, kv.create_revision))
            };
            line.mirror.read(revision, answer.kvs.iter().filter_map(ticket));
            line.as_of = line.as_of.max(revision);
            return self.take_turns(&mut state, &key);
        }
    }

    /// Stops watching keys that nobody of ours has waited for in a while.
    pub(super) fn close_lines(&self) {
        let now = self.now();
        let mut state = self.state();
        let state = &mut *state;
        let (watches, watcher) = (&mut state.watches, &state.watcher);
        state.lines.retain(|_, line| {
            let over = line.own.is_empty()
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
}
