//! The holders and waiters of each key, for people and for clients that watch it. Reads the engine, changes nothing.
//! Each step is bounded: a caller reads some places of the table at a time, and then views the keys that it has picked.
//!
//! Pure.

use super::Engine;
use super::keys::KeyEntry;
use super::record::Label;
use super::request::{ConnId, Progress};
use super::state::{Holder, State, Waiter};
use super::table::Id;
use super::terms::{Key, Moment};
use std::ops::ControlFlow;
use std::sync::Arc;

/// One key in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyView {
    /// Its bytes.
    pub name: Vec<u8>,
    /// Holders it may have.
    pub limit: u64,
    /// Holders it has.
    pub held: u32,
    /// Places taken in its queue.
    pub waiters: u32,
    /// Some of the holders, the latest first.
    pub holders: Vec<Party>,
    /// Some of the waiters, the next to be served first.
    pub waiting: Vec<Party>,
}

/// The facts about a key in one line of `stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLine<'a> {
    /// Its bytes.
    pub name: &'a [u8],
    /// Holders it may have.
    pub limit: u64,
    /// Holders it has.
    pub held: u32,
    /// The number of holders that share it: all or none.
    pub readers: u32,
    /// Places taken in its queue.
    pub waiters: u32,
    /// The number of the connection that got it last; 0 if it has no holder.
    pub owner: u64,
    /// That connection, if it is still there.
    pub conn: Option<ConnId>,
    /// The name of that connection; the server adds it if it is wanted.
    pub owner_name: Option<&'a str>,
    /// Microseconds left of that hold's lease.
    pub left_micros: u64,
    /// Microseconds since it was last used.
    pub idle_micros: u64,
}

impl KeyLine<'_> {
    /// Whether it has neither holders nor waiters.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.held == 0 && self.waiters == 0
    }
}

/// The position of a caller that reads all keys, some at a time. The default is before the first key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor(u32);

/// A holder or a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Party {
    /// The number by which `stats` and the log name its connection.
    pub serial: u64,
    /// The connection; `None` if it has ended and its hold has stayed.
    pub conn: Option<ConnId>,
    /// Microseconds since it began to hold or wait.
    pub since_micros: u64,
    /// Microseconds left of the lease; `None` for a waiter.
    pub left_micros: Option<u64>,
    /// Whether it shares the lock, or wants to.
    pub is_reader: bool,
}

/// The holders of a key for clients that watch it: all facts are about the holder that got it last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    /// The number of holders, at least one.
    pub holders: u32,
    /// The fence of the latest holder.
    pub fence: u64,
    /// Microseconds since it got the key, as far as the server knows.
    pub since_micros: u64,
    /// Its label.
    pub label: Option<Arc<Label>>,
}

impl Engine {
    /// Reads the next `budget` places of the table of keys, and passes the line of every key to `note`, also of idle
    /// keys. `note` may stop before the next one. Begin with the default cursor; [`Progress::Done`] means that all
    /// keys were read. A key that exists throughout is passed once.
    pub fn look_over(
        &self,
        now: Moment,
        Cursor(place): &mut Cursor,
        budget: u32,
        mut note: impl FnMut(&KeyLine<'_>) -> ControlFlow<()>,
    ) -> Progress {
        let keys = &self.0.keys.entries;
        let end = place.saturating_add(budget).min(keys.places());
        while *place < end {
            let entry = keys.get(Id::new(*place));
            *place += 1;
            if entry.is_some_and(|entry| note(&line(&self.0, now, entry)).is_break()) {
                break;
            }
        }
        if *place >= keys.places() { Progress::Done } else { Progress::More }
    }

    /// A key with at most `most` holders and waiters; `None` if it is no longer in use.
    #[must_use]
    pub fn view(&self, now: Moment, key: Key<'_>, most: usize) -> Option<KeyView> {
        let Self(state) = self;
        let entry = &state.keys[state.keys.find(key)?];
        let holder = |id| {
            let holder: &Holder = &state.holders[id];
            Party {
                serial: holder.serial,
                conn: holder.standing.owner.map(|conn| state.conn_id(conn)),
                since_micros: now.micros_since(holder.since),
                left_micros: Some(holder.left_micros(now)),
                is_reader: entry.shared,
            }
        };
        let waiter = |id| {
            let waiter: &Waiter = &state.waiters[id];
            Party {
                serial: state.conns[waiter.conn].serial,
                conn: Some(state.conn_id(waiter.conn)),
                since_micros: now.micros_since(waiter.since),
                left_micros: None,
                is_reader: waiter.want.claim.is_shared(),
            }
        };
        (!entry.is_idle()).then(|| KeyView {
            name: entry.name.to_vec(),
            limit: entry.limit.count(),
            held: entry.holders.len(),
            waiters: entry.queue.len(),
            holders: entry.holders.iter().rev().map(holder).take(most).collect(),
            waiting: entry.queue.iter().map(waiter).take(most).collect(),
        })
    }

    /// The holders of a key; `None` if it is free.
    #[must_use]
    pub fn sight(&self, now: Moment, key: Key<'_>) -> Option<Sight> {
        let holders = &self.0.keys[self.0.keys.find(key)?].holders;
        let latest = &self.0.holders[holders.last()?];
        Some(Sight {
            holders: holders.len(),
            fence: latest.token.fence(),
            since_micros: now.micros_since(latest.since),
            label: latest.label.clone(),
        })
    }
}

fn line<'a>(state: &'a State, now: Moment, entry: &'a KeyEntry) -> KeyLine<'a> {
    let latest = entry.holders.last().map(|id| &state.holders[id]);
    KeyLine {
        name: &entry.name,
        limit: entry.limit.count(),
        held: entry.holders.len(),
        readers: if entry.shared { entry.holders.len() } else { 0 },
        waiters: entry.queue.len(),
        owner: latest.map_or(0, |holder| holder.serial),
        conn: latest.and_then(|holder| holder.standing.owner).map(|conn| state.conn_id(conn)),
        owner_name: None,
        left_micros: latest.map_or(0, |holder| holder.left_micros(now)),
        idle_micros: now.micros_since(entry.touched),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{CAPS, Counting};
    use crate::{Answer, AutoRelease, Claim, Effect, Limit, Request, Seconds, Token, Ttl, Verdict};
    use std::hash::RandomState;

    const SECOND: u64 = 1_000_000;
    const NOW: Moment = Moment::from_micros(0);

    fn label(name: &str, value: &str) -> Arc<Label> {
        Arc::new(Label { name: name.into(), value: value.into() })
    }

    fn engine() -> Engine {
        Engine::new(CAPS, Counting(0), RandomState::new())
    }

    fn key(name: &str) -> Key<'_> {
        Key::new(name.as_bytes()).unwrap()
    }

    fn acquire(engine: &mut Engine, conn: ConnId, name: &str, claim: Claim) -> Verdict {
        acquire_at(0, engine, conn, name, claim)
    }

    fn acquire_at(at: u64, engine: &mut Engine, conn: ConnId, name: &str, claim: Claim) -> Verdict {
        let timeout = Seconds::new(60).unwrap();
        let request = Request::Acquire { key: key(name), claim, timeout, ttl: None };
        engine.ask(Moment::from_micros(at), conn, request)
    }

    fn token(verdict: Verdict) -> Token {
        let Verdict::Now(Answer::Granted(grant)) = verdict else { panic!("{verdict:?}") };
        grant.token
    }

    /// How often [`Effect::Moved`] reported the key `k`, and no other key.
    fn moves(engine: &mut Engine) -> usize {
        let mut count = 0;
        while let Some(effect) = engine.take_effect() {
            if let Effect::Moved(name) = effect {
                assert_eq!(&*name, b"k");
                count += 1;
            }
        }
        count
    }

    fn seen(engine: &Engine) -> Option<(u32, u64, String)> {
        let sight = engine.sight(NOW, key("k"))?;
        let value = sight.label.map(|label| label.value.to_string()).unwrap_or_default();
        Some((sight.holders, sight.fence, value))
    }

    #[test]
    fn a_watched_key_tells_of_each_change_and_another_one_of_none() {
        let mut engine = engine();
        let (one, two) = (engine.connect(1), engine.connect(2));
        engine.introduce(one, &label("one", "10.0.0.1:80"));
        engine.watch(key("k"), true);
        assert_eq!(seen(&engine), None);
        acquire(&mut engine, one, "other", Claim::LOCK);
        assert_eq!(moves(&mut engine), 0);
        let first = token(acquire(&mut engine, one, "k", Claim::LOCK));
        assert_eq!(moves(&mut engine), 1);
        assert_eq!(seen(&engine), Some((1, first.fence(), "10.0.0.1:80".to_owned())));
        assert_eq!(acquire(&mut engine, two, "k", Claim::LOCK), Verdict::Later);
        assert_eq!(moves(&mut engine), 0);
        // The end of the hold, and the grant to the next client.
        engine.ask(NOW, one, Request::Release { key: key("k"), token: Some(first) });
        assert!(moves(&mut engine) >= 1);
        let (holders, fence, value) = seen(&engine).unwrap();
        assert!(holders == 1 && fence > first.fence() && value.is_empty());
        engine.disconnect(NOW, two, AutoRelease::On);
        assert_eq!((moves(&mut engine), seen(&engine)), (1, None));
        engine.watch(key("k"), false);
        acquire(&mut engine, one, "k", Claim::LOCK);
        assert_eq!(moves(&mut engine), 0);
    }

    #[test]
    fn a_lease_that_runs_out_is_a_change() {
        let mut engine = engine();
        let one = engine.connect(1);
        acquire(&mut engine, one, "k", Claim::LOCK);
        engine.watch(key("k"), true);
        engine.advance(NOW.after(CAPS.default_ttl.span()));
        assert_eq!((moves(&mut engine), seen(&engine)), (1, None));
    }

    #[test]
    fn watchers_see_the_latest_reader_and_the_number_of_readers() {
        let mut engine = engine();
        let (one, two) = (engine.connect(1), engine.connect(2));
        engine.watch(key("k"), true);
        let first = token(acquire(&mut engine, one, "k", Claim::Shared));
        let second = token(acquire(&mut engine, two, "k", Claim::Shared));
        assert_eq!(seen(&engine), Some((2, second.fence(), String::new())));
        assert_eq!(moves(&mut engine), 2);
        engine.ask(NOW, one, Request::Release { key: key("k"), token: Some(first) });
        assert_eq!((moves(&mut engine), seen(&engine).unwrap().0), (1, 1));
    }

    /// A renewal changes nothing that is reported, whatever the label of its connection is.
    #[test]
    fn a_hold_keeps_the_label_of_its_grant() {
        let mut engine = engine();
        let (one, two) = (engine.connect(1), engine.connect(2));
        engine.introduce(one, &label("one", "old"));
        engine.introduce(two, &label("two", "new"));
        let token = Some(token(acquire(&mut engine, one, "k", Claim::LOCK)));
        engine.introduce(one, &label("one", "later"));
        engine.watch(key("k"), true);
        for conn in [one, two] {
            let renewal = Request::Renew { key: key("k"), token, ttl: Ttl::new(9) };
            assert!(matches!(engine.ask(NOW, conn, renewal), Verdict::Now(Answer::Renewed(_))));
        }
        assert_eq!((moves(&mut engine), seen(&engine).unwrap().2.as_str()), (0, "old"));
    }

    #[test]
    fn a_semaphore_counts_its_holders() {
        let mut engine = engine();
        let one = engine.connect(1);
        engine.watch(key("k"), true);
        let pool = Claim::Slot(Limit::new(3).unwrap());
        acquire(&mut engine, one, "k", pool);
        acquire(&mut engine, one, "k", pool);
        assert_eq!((moves(&mut engine), seen(&engine).unwrap().0), (2, 2));
    }

    #[test]
    fn a_view_names_holders_and_waiters_with_their_times() {
        let mut engine = engine();
        let conns: Vec<ConnId> = (1..=4).map(|serial| engine.connect(serial * 10)).collect();
        let pool = Claim::Slot(Limit::new(5).unwrap());
        acquire_at(SECOND, &mut engine, conns[0], "busy", Claim::LOCK);
        acquire_at(2 * SECOND, &mut engine, conns[1], "busy", Claim::LOCK);
        acquire_at(3 * SECOND, &mut engine, conns[2], "busy", Claim::LOCK);
        acquire_at(3 * SECOND, &mut engine, conns[3], "free", pool);

        let mut seen = Vec::new();
        let mut cursor = Cursor::default();
        let mut note = |line: &KeyLine<'_>| {
            seen.push((line.name.to_vec(), line.waiters));
            ControlFlow::Continue(())
        };
        let now = Moment::from_micros(4 * SECOND);
        while engine.look_over(now, &mut cursor, 1, &mut note) == Progress::More {}
        assert_eq!(seen, [(b"busy".to_vec(), 2), (b"free".to_vec(), 0)]);

        let busy = Key::new(b"busy").unwrap();
        let view = engine.view(now, busy, 10).unwrap();
        assert_eq!((view.name.as_slice(), view.limit), (b"busy".as_slice(), 1));
        assert_eq!((view.held, view.waiters), (1, 2));
        let [holder] = view.holders[..] else { panic!("{view:?}") };
        assert_eq!((holder.serial, holder.since_micros), (10, 3 * SECOND));
        assert_eq!(holder.left_micros, Some(30 * SECOND));
        let waiting: Vec<_> = view.waiting.iter().map(|p| (p.serial, p.since_micros)).collect();
        assert_eq!(waiting, [(20, 2 * SECOND), (30, SECOND)]);

        let cut = engine.view(now, busy, 1).unwrap();
        assert_eq!((cut.waiting.len(), cut.waiters), (1, 2));
    }

    #[test]
    fn an_idle_or_unknown_key_is_not_viewed() {
        let mut engine = engine();
        let conn = engine.connect(1);
        let (now, key) = (Moment::from_micros(0), Key::new(b"k").unwrap());
        assert_eq!(engine.view(now, key, 10), None);
        let Verdict::Now(Answer::Granted(grant)) =
            acquire_at(0, &mut engine, conn, "k", Claim::LOCK)
        else {
            panic!("it is free")
        };
        assert!(engine.view(now, key, 10).is_some());
        engine.ask(now, conn, Request::Release { key, token: Some(grant.token) });
        assert_eq!(engine.view(now, key, 10), None);
    }
}
