//! The holders and waiters of each key, for people. Reads the engine, changes nothing. Each step is bounded: a caller
//! reads some places of the table at a time, and then views the keys that it has picked.
//!
//! Pure.

use super::keys::KeyEntry;
use super::request::{ConnId, Progress};
use super::slab::Id;
use super::state::Engine;
use super::terms::{Key, Mint, Moment};
use std::ops::ControlFlow;

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

/// The position of a caller that reads all keys, some at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cursor {
    /// Before the first key.
    #[default]
    Start,
    /// The same, but a list of the keys was requested at this time: the next list that comes will be used.
    Asked(Moment),
    /// The next place, in stores where a key keeps its place.
    Place(u32),
    /// The name of the last key, in stores that are read by name; empty before the first key.
    After(Box<[u8]>),
}

impl Cursor {
    /// Moves back to the first key. A cursor that has not begun stays as it is.
    pub fn rewind(&mut self) {
        match self {
            Self::Start | Self::Asked(_) => {}
            Self::Place(place) => *place = 0,
            Self::After(last) => *last = Box::default(),
        }
    }
}

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

impl<M: Mint> Engine<M> {
    /// Reads the next `budget` places of the table of keys, and passes the line of every key to `note`, also of idle
    /// keys. `note` may stop before the next one. Begin with [`Cursor::Start`]; [`Progress::Done`] means that all
    /// keys were read. A key that exists throughout is passed once.
    pub fn look_over(
        &self,
        now: Moment,
        cursor: &mut Cursor,
        budget: u32,
        mut note: impl FnMut(&KeyLine<'_>) -> ControlFlow<()>,
    ) -> Progress {
        let mut place = if let Cursor::Place(place) = *cursor { place } else { 0 };
        let end = place.saturating_add(budget).min(self.keys.places());
        while place < end {
            let entry = self.keys.get(Id::new(place));
            place += 1;
            if entry.is_some_and(|entry| note(&self.line(now, entry)).is_break()) {
                break;
            }
        }
        *cursor = Cursor::Place(place);
        if place >= self.keys.places() { Progress::Done } else { Progress::More }
    }

    fn line<'a>(&self, now: Moment, entry: &'a KeyEntry) -> KeyLine<'a> {
        let holder = entry.holders.first().and_then(|id| self.holders.get(id));
        KeyLine {
            name: &entry.name,
            limit: entry.limit,
            held: entry.held,
            readers: entry.readers(),
            waiters: entry.waiters,
            owner: holder.map_or(0, |holder| holder.serial),
            conn: holder.and_then(|holder| self.conn_id(holder.owner)),
            owner_name: None,
            left_micros: holder.map_or(0, |holder| holder.left_micros(now)),
            idle_micros: now.micros_since(entry.touched),
        }
    }

    /// A key with at most `most` holders and waiters; `None` if it is no longer in use.
    #[must_use]
    pub fn view(&self, now: Moment, key: Key<'_>, most: usize) -> Option<KeyView> {
        let id = self.keys.find(key)?;
        let entry = self.keys.get(id).filter(|entry| !entry.is_idle())?;
        Some(KeyView {
            name: entry.name.to_vec(),
            limit: entry.limit,
            held: entry.held,
            waiters: entry.waiters,
            holders: self.holders_of(now, entry, most),
            waiting: self.waiters_of(now, entry, most),
        })
    }

    fn holders_of(&self, now: Moment, entry: &KeyEntry, most: usize) -> Vec<Party> {
        let party = |id| {
            let holder = self.holders.get(id)?;
            Some(Party {
                serial: holder.serial,
                conn: self.conn_id(holder.owner),
                since_micros: now.micros_since(holder.since),
                left_micros: Some(holder.left_micros(now)),
                is_reader: entry.shared,
            })
        };
        entry.holders.iter(&self.holders).filter_map(party).take(most).collect()
    }

    fn waiters_of(&self, now: Moment, entry: &KeyEntry, most: usize) -> Vec<Party> {
        let party = |id| {
            let waiter = self.waiters.get(id)?;
            Some(Party {
                serial: self.conns.get(waiter.conn)?.serial,
                conn: self.conn_id(waiter.conn),
                since_micros: now.micros_since(waiter.since),
                left_micros: None,
                is_reader: waiter.claim.is_shared(),
            })
        };
        entry.queue.iter(&self.waiters).filter_map(party).take(most).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{CAPS, Counting};
    use crate::{Answer, Claim, ConnId, Engine, Key, Limit, Request, Seconds, Verdict};
    use std::hash::RandomState;

    const SECOND: u64 = 1_000_000;

    fn engine() -> Engine<Counting> {
        Engine::new(CAPS, Counting(0), RandomState::new())
    }

    fn acquire(
        engine: &mut Engine<Counting>,
        at: u64,
        conn: ConnId,
        key: &str,
        limit: u64,
    ) -> Verdict {
        let request = Request::Acquire {
            key: Key::new(key.as_bytes()).unwrap(),
            claim: Claim::Slot(Limit::new(limit).unwrap()),
            timeout: Seconds::new(60).unwrap(),
            ttl: None,
        };
        engine.ask(Moment::from_micros(at), conn, request)
    }

    #[test]
    fn a_view_names_holders_and_waiters_with_their_times() {
        let mut engine = engine();
        let conns: Vec<ConnId> = (1..=4).map(|serial| engine.connect(serial * 10)).collect();
        acquire(&mut engine, SECOND, conns[0], "busy", 1);
        acquire(&mut engine, 2 * SECOND, conns[1], "busy", 1);
        acquire(&mut engine, 3 * SECOND, conns[2], "busy", 1);
        acquire(&mut engine, 3 * SECOND, conns[3], "free", 5);

        let mut seen = Vec::new();
        let mut cursor = Cursor::Start;
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
        let Verdict::Now(Answer::Granted(grant)) = acquire(&mut engine, 0, conn, "k", 1) else {
            panic!("it is free")
        };
        assert!(engine.view(now, key, 10).is_some());
        engine.ask(now, conn, Request::Release { key, token: Some(grant.token) });
        assert_eq!(engine.view(now, key, 10), None);
    }
}
