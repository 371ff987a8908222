//! The holders and waiters of each key, for people and for clients that watch it. Reads the engine, changes nothing.
//! Each step is bounded: a caller reads some places of the table at a time, and then views the keys that it has picked.
//!
//! Pure.

use super::Engine;
use super::keys::KeyEntry;
use super::state::{Hold, State, Waiter};
use super::table::Id;
use super::terms::{Key, Moment};
use super::values::{ConnId, Label, Progress};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// One key in use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a server shows every field")]
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
#[non_exhaustive]
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
    /// The name of that connection, if it is still there and has one.
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
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Party {
    /// The number by which `stats` and the log name its connection.
    pub serial: u64,
    /// The connection; `None` if it has ended and its hold has stayed.
    pub conn: Option<ConnId>,
    /// What that connection is called now; after its end, what it was called at the grant.
    pub label: Option<Arc<Label>>,
    /// Microseconds since it began to hold or wait.
    pub since_micros: u64,
    /// Microseconds left of the lease; `None` for a waiter.
    pub left_micros: Option<u64>,
    /// Whether it shares the lock, or wants to.
    pub is_reader: bool,
    /// Which slot of a semaphore it has; `None` for a waiter, and for a lock.
    pub slot: Option<u32>,
}

/// The holders of a key for clients that watch it: all facts are about the holder that got it last.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
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

    /// A key with these of its holders, counted from the latest, and of its waiters, counted from the next to be served;
    /// `None` if it is no longer in use. Takes time for every place up to the end of a range.
    #[must_use]
    pub fn view(
        &self,
        now: Moment,
        key: Key<'_>,
        holders: Range<usize>,
        waiting: Range<usize>,
    ) -> Option<KeyView> {
        let Self(state) = self;
        let entry = &state.keys[state.keys.find(key)?];
        let holder = |id| {
            let holder: &Hold = &state.holders[id];
            Party {
                serial: holder.serial,
                conn: holder.standing.owner.map(|conn| state.conn_id(conn)),
                label: label_of(state, holder).cloned(),
                since_micros: now.micros_since(holder.since),
                left_micros: Some(holder.left_micros(now)),
                is_reader: entry.shared,
                slot: entry.slot_of(holder),
            }
        };
        let waiter = |id| {
            let waiter: &Waiter = &state.waiters[id];
            Party {
                serial: state.conns[waiter.conn].serial,
                conn: Some(state.conn_id(waiter.conn)),
                label: state.conns[waiter.conn].label.clone(),
                since_micros: now.micros_since(waiter.since),
                left_micros: None,
                is_reader: waiter.want.claim.is_shared(),
                slot: None,
            }
        };
        (!entry.is_idle()).then(|| KeyView {
            name: entry.name.to_vec(),
            limit: entry.limit.count(),
            held: entry.holders.len(),
            waiters: entry.queue.len(),
            holders: entry
                .holders
                .iter()
                .rev()
                .take(holders.end)
                .skip(holders.start)
                .map(holder)
                .collect(),
            waiting: entry.queue.iter().take(waiting.end).skip(waiting.start).map(waiter).collect(),
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

/// What a holder is called: the label of its connection, or, if no connection owns the hold, the label that its
/// connection had at the grant.
fn label_of<'a>(state: &'a State, holder: &'a Hold) -> Option<&'a Arc<Label>> {
    let owner = holder.standing.owner;
    owner.map_or(holder.label.as_ref(), |conn| state.conns[conn].label.as_ref())
}

fn line<'a>(state: &'a State, now: Moment, entry: &'a KeyEntry) -> KeyLine<'a> {
    let latest = entry.holders.last().map(|id| &state.holders[id]);
    let label = latest.and_then(|holder| label_of(state, holder));
    KeyLine {
        name: &entry.name,
        limit: entry.limit.count(),
        held: entry.holders.len(),
        readers: if entry.shared { entry.holders.len() } else { 0 },
        waiters: entry.queue.len(),
        owner: latest.map_or(0, |holder| holder.serial),
        owner_name: label.map(|label| &*label.name).filter(|name| !name.is_empty()),
        left_micros: latest.map_or(0, |holder| holder.left_micros(now)),
        idle_micros: now.micros_since(entry.touched),
    }
}
