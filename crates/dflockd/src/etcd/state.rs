//! What this front-end knows: its connections, the tickets it made or keeps, the contended keys it
//! watches. Only values under one lock; nothing here talks to etcd.

use super::crowd::Crowd;
use super::keys::{Front, Party, Stage, Ticket};
use super::mine::{Ends, Mine, Place};
use super::mirror::Mirror;
use super::orphans::Orphans;
use super::picture::Picture;
use super::txn::Session;
use crate::engine::ownership::Standing;
use crate::engine::{Answer, Census, ConnId, Counters, Effect, Moment, Refusal, Ttl};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use tokio::sync::{Notify, mpsc};

/// Keys that holds of ours left, noted between two pictures.
const MOST_LEFT: usize = 100_000;

/// What `e` began and `w` has not fetched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) nonce: u64,
    pub(super) ttl: Ttl,
    pub(super) phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The request is under way.
    Asked,
    Queued,
    /// The client has the token, from the answer to `e`.
    Acquired,
    /// Granted when its turn came; nobody has seen the token.
    Granted,
    /// Granted, and the lease ran out before `w`.
    Lost,
    /// The place went with this front-end's session.
    Forgotten,
}

/// How far a connection's departure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Departure {
    Here,
    Leaving,
    Left,
}

#[derive(Debug)]
pub(super) struct Conn {
    pub(super) id: ConnId,
    pub(super) serial: u64,
    pub(super) departure: Departure,
    /// A request is under way.
    pub(super) busy: bool,
    /// Told when it no longer is.
    pub(super) idle: Arc<Notify>,
    pub(super) records: HashMap<Box<[u8]>, Record>,
    /// Nonces of the holds it owns or renewed.
    pub(super) holds: HashSet<u64>,
    /// The ticket whose turn its request waits for.
    pub(super) blocked: Option<u64>,
    /// Granted, and nobody was told.
    pub(super) untold: Vec<u64>,
}

/// What a connection leaves behind.
#[derive(Debug)]
pub(super) struct Remains {
    pub(super) serial: u64,
    pub(super) records: HashMap<Box<[u8]>, Record>,
    pub(super) holds: HashSet<u64>,
    pub(super) untold: Vec<u64>,
}

impl Conn {
    pub(super) fn is_bare(&self) -> bool {
        !self.busy && self.records.is_empty() && self.holds.is_empty() && self.untold.is_empty()
    }

    pub(super) fn take_remains(&mut self) -> Remains {
        Remains {
            serial: self.serial,
            records: std::mem::take(&mut self.records),
            holds: std::mem::take(&mut self.holds),
            untold: std::mem::take(&mut self.untold),
        }
    }
}

/// A contended key.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) mirror: Mirror,
    /// The newest revision of which the mirror has the news.
    pub(super) as_of: i64,
    pub(super) watch: i64,
    pub(super) limit: u64,
    /// Our waiting tickets, by create revision.
    pub(super) own: BTreeMap<i64, u64>,
    /// Since when nobody of ours waits.
    pub(super) idle_since: Moment,
}

impl Line {
    pub(super) fn new(watch: i64, limit: u64) -> Self {
        let own = BTreeMap::new();
        let (as_of, idle_since) = (0, Moment::NEVER);
        Self { mirror: Mirror::new(), as_of, watch, limit, own, idle_since }
    }
}

pub(super) struct State {
    pub(super) front: Front,
    pub(super) session: Option<Session>,
    /// etcd was not reached for longer than the session lasts.
    pub(super) away: bool,
    /// There was a session.
    pub(super) begun: bool,
    pub(super) draining: bool,
    /// All front-ends that live.
    pub(super) fronts: HashSet<Front>,
    conns: Vec<Option<Conn>>,
    free: Vec<u32>,
    generation: u32,
    /// Living connections by serial.
    pub(super) serials: HashMap<u64, ConnId>,
    pub(super) tickets: HashMap<u64, Mine>,
    pub(super) lines: HashMap<Arc<[u8]>, Line>,
    pub(super) watches: HashMap<i64, Arc<[u8]>>,
    pub(super) last_watch: i64,
    pub(super) watcher: Option<mpsc::UnboundedSender<super::rpc::WatchRequest>>,
    pub(super) deadlines: BTreeSet<(Moment, u64)>,
    pub(super) orphans: Orphans,
    /// When the next orphan is over.
    pub(super) orphans_due: Moment,
    pub(super) effects: VecDeque<Effect>,
    pub(super) counters: Counters,
    pub(super) census: Census,
    pub(super) crowd: Crowd,
    pub(super) picture: Option<Picture>,
    /// When a hold of ours last left a key, since the picture before.
    pub(super) left: HashMap<Arc<[u8]>, Moment>,
    /// Counts what changed by this front-end's doing, to tell a picture that is too old.
    pub(super) changes: u64,
    pub(super) tombstones: u64,
}

impl State {
    pub(super) fn new(front: Front) -> Self {
        Self {
            front,
            session: None,
            away: false,
            begun: false,
            draining: false,
            fronts: HashSet::new(),
            conns: Vec::new(),
            free: Vec::new(),
            generation: 0,
            serials: HashMap::new(),
            tickets: HashMap::new(),
            lines: HashMap::new(),
            watches: HashMap::new(),
            last_watch: super::watch::FRONTS,
            watcher: None,
            deadlines: BTreeSet::new(),
            orphans: Orphans::default(),
            orphans_due: Moment::NEVER,
            effects: VecDeque::new(),
            counters: Counters::default(),
            census: Census::default(),
            crowd: Crowd::default(),
            picture: None,
            left: HashMap::new(),
            changes: 0,
            tombstones: 0,
        }
    }

    pub(super) fn connect(&mut self, serial: u64) -> ConnId {
        self.generation = self.generation.wrapping_add(1);
        let place = self.free.pop().unwrap_or_else(|| {
            self.conns.push(None);
            u32::try_from(self.conns.len() - 1).unwrap_or(u32::MAX)
        });
        let id = ConnId::new(place, self.generation);
        let conn = Conn {
            id,
            serial,
            departure: Departure::Here,
            busy: false,
            idle: Arc::new(Notify::new()),
            records: HashMap::new(),
            holds: HashSet::new(),
            blocked: None,
            untold: Vec::new(),
        };
        if let Some(seat) = self.conns.get_mut(id.place()) {
            *seat = Some(conn);
        }
        self.serials.insert(serial, id);
        id
    }

    pub(super) fn conn(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.conns.get_mut(id.place())?.as_mut().filter(|conn| conn.id == id)
    }

    pub(super) fn conns(&self) -> impl Iterator<Item = &Conn> {
        self.conns.iter().flatten()
    }

    pub(super) fn vacate(&mut self, id: ConnId) {
        if self.conn(id).is_none() {
            return;
        }
        let conn = self.conns.get_mut(id.place()).and_then(Option::take);
        if let (Some(conn), Ok(place)) = (conn, u32::try_from(id.place())) {
            self.serials.remove(&conn.serial);
            self.free.push(place);
        }
    }

    /// Whether a connection lives: of ours exactly, of others as far as their front-end does.
    pub(super) fn lives(&self, party: Party) -> bool {
        if party.front == self.front {
            return self.serials.contains_key(&party.serial);
        }
        self.fronts.contains(&party.front)
    }

    /// The request of a connection is answered. False when nobody is there to hear it.
    pub(super) fn answer(&mut self, id: ConnId, answer: Answer) -> bool {
        self.count(answer);
        let Some(conn) = self.conn(id) else { return false };
        conn.busy = false;
        conn.blocked = None;
        conn.idle.notify_one();
        if conn.departure != Departure::Here {
            if let Answer::Granted(grant) | Answer::Acquired(grant) = answer {
                conn.untold.push(grant.token.salt());
            }
            return true;
        }
        self.effects.push_back(Effect::Answer(id, answer));
        true
    }

    pub(super) fn count(&mut self, answer: Answer) {
        let counters = &mut self.counters;
        match answer {
            Answer::Released => counters.releases += 1,
            Answer::Renewed(_) => counters.renewals += 1,
            Answer::TimedOut => counters.timeouts += 1,
            Answer::Refused(refusal) => {
                if let Some(count) = counters.refusals.get_mut(refusal as usize) {
                    *count += 1;
                }
            }
            Answer::Granted(_) | Answer::Acquired(_) | Answer::Queued => {}
        }
    }

    /// Tables that were once much larger give back what they do not need.
    pub(super) fn shrink(&mut self) {
        let roomy = |length: usize, capacity: usize| capacity > 1024 && capacity / 4 > length;
        if roomy(self.tickets.len(), self.tickets.capacity()) {
            self.tickets.shrink_to(self.tickets.len() * 2);
        }
        if roomy(self.left.len(), self.left.capacity()) {
            self.left.shrink_to(self.left.len() * 2);
        }
        for conn in self.conns.iter_mut().flatten() {
            if roomy(conn.holds.len(), conn.holds.capacity()) {
                conn.holds.shrink_to(conn.holds.len() * 2);
            }
        }
    }

    /// Puts a ticket into the tables.
    pub(super) fn keep(&mut self, mine: Mine) {
        self.changes += 1;
        let (nonce, conn) = (mine.nonce, mine.conn);
        if mine.place == Place::Held {
            self.counters.grants += 1;
            if let Some(conn) = self.conn(conn) {
                conn.holds.insert(nonce);
            }
        }
        let rings = mine.ends.rings;
        self.tickets.insert(nonce, mine);
        self.ring_at(nonce, rings);
    }

    /// The lease of a hold was written here and ends then.
    pub(super) fn set_lease(&mut self, nonce: u64, lease: Moment) {
        self.set_ends(nonce, Ends::with_lease(lease));
    }

    fn set_ends(&mut self, nonce: u64, ends: Ends) {
        let Some(mine) = self.tickets.get_mut(&nonce) else { return };
        (mine.ends.lease, mine.ends.grace) = (ends.lease, ends.grace);
        self.ring_at(nonce, ends.first());
    }

    /// The end of a hold is tried then.
    pub(super) fn ring_at(&mut self, nonce: u64, rings: Moment) {
        let Some(mine) = self.tickets.get_mut(&nonce) else { return };
        let before = std::mem::replace(&mut mine.ends.rings, rings);
        self.deadlines.remove(&(before, nonce));
        if rings < Moment::NEVER {
            self.deadlines.insert((rings, nonce));
        }
    }

    /// Forgets a ticket: it is gone, or no concern of this front-end any more.
    pub(super) fn drop_ticket(&mut self, nonce: u64) -> Option<Mine> {
        let mine = self.tickets.remove(&nonce)?;
        self.changes += 1;
        self.deadlines.remove(&(mine.ends.rings, nonce));
        if let Some(line) = self.lines.get_mut(&mine.key) {
            line.own.remove(&mine.create);
            line.mirror.remove(nonce);
        }
        let standing = mine.ticket.standing;
        for party in [standing.owner, standing.renewer].into_iter().flatten() {
            self.cut(party, nonce);
        }
        if let Some(conn) = self.conn(mine.conn) {
            conn.holds.remove(&nonce);
        }
        Some(mine)
    }

    fn cut(&mut self, party: Party, nonce: u64) {
        if party.front != self.front {
            return;
        }
        let id = self.serials.get(&party.serial).copied();
        if let Some(conn) = id.and_then(|id| self.conn(id)) {
            conn.holds.remove(&nonce);
        }
    }

    /// This front-end wrote that a hold of ours stands so, without a new lease.
    pub(super) fn restood(&mut self, now: Moment, nonce: u64, revision: i64, ticket: Ticket) {
        let Some(mine) = self.tickets.get_mut(&nonce) else { return };
        if revision > mine.revision {
            (mine.revision, mine.ticket) = (revision, ticket);
            let ends = Ends { grace: ticket.standing.lapses(now), ..mine.ends };
            self.set_ends(nonce, ends);
        }
    }

    /// etcd says that a ticket of ours reads so: somebody else wrote it, and no grace that began
    /// here before runs on.
    pub(super) fn learn(&mut self, nonce: u64, revision: i64, ticket: Ticket) {
        let front = self.front;
        let Some(mine) = self.tickets.get_mut(&nonce) else { return };
        if revision <= mine.revision {
            return;
        }
        (mine.revision, mine.ticket) = (revision, ticket);
        let is_kept_here = ticket.keeper == front || ticket.stage != Stage::Held;
        let lease = if is_kept_here { mine.ends.lease } else { Moment::NEVER };
        self.set_lease(nonce, lease);
    }

    /// Forgets a hold that is no concern of this front-end any more, though it is one.
    pub(super) fn forget_strange(&mut self, nonce: u64) {
        let Some(mine) = self.tickets.get(&nonce) else { return };
        let Standing { owner, renewer, grace: _ } = mine.ticket.standing;
        let is_ours = |party: Party| party.front == self.front && self.lives(party);
        let is_any = [owner, renewer].into_iter().flatten().any(is_ours);
        if mine.place == Place::Held && mine.ends.first() == Moment::NEVER && !is_any {
            self.deadlines.remove(&(mine.ends.rings, nonce));
            self.tickets.remove(&nonce);
        }
    }

    /// The hold of a connection ended before its `w`.
    pub(super) fn lose_record(&mut self, id: ConnId, key: &[u8], nonce: u64, phase: Phase) {
        let record = self.conn(id).and_then(|conn| conn.records.get_mut(key));
        if let Some(record) = record.filter(|record| record.nonce == nonce) {
            record.phase = phase;
        }
    }

    pub(super) fn forget_record(&mut self, id: ConnId, key: &[u8], nonce: u64) {
        if let Some(conn) = self.conn(id) {
            if conn.records.get(key).is_some_and(|record| record.nonce == nonce) {
                conn.records.remove(key);
            }
        }
    }

    /// Why a waiting ticket would wait in vain: its line went with the session, nobody wants it any
    /// more, or all waits end.
    pub(super) fn why_not_wait(&mut self, nonce: u64) -> Option<Refusal> {
        let mine = self.tickets.get(&nonce)?;
        let (id, create, unwanted) = (mine.conn, mine.create, mine.unwanted);
        let is_blocked = mine.wake.is_some();
        if !self.lines.get(&mine.key).is_some_and(|line| line.own.contains_key(&create)) {
            return Some(Refusal::Unavailable);
        }
        let is_here = self.conn(id).is_some_and(|conn| conn.departure == Departure::Here);
        let is_over = unwanted || !is_here || (is_blocked && self.draining);
        is_over.then_some(Refusal::Draining)
    }

    /// A hold of ours has left this key, which may be idle from now on.
    pub(super) fn note_left(&mut self, key: &Arc<[u8]>, now: Moment) {
        if self.left.len() < MOST_LEFT {
            self.left.insert(Arc::clone(key), now);
        }
    }

    /// Whether this front-end is going to end this hold in time.
    pub(super) fn will_end(&self, nonce: u64) -> bool {
        self.tickets.get(&nonce).is_some_and(|mine| mine.ends.lease < Moment::NEVER)
    }

    /// Takes a waiting ticket of ours out of its queue here; nothing when it has its turn already.
    pub(super) fn withdraw(&mut self, nonce: u64) -> Option<Mine> {
        let mine = self.tickets.get(&nonce)?;
        if mine.place != Place::Waiting {
            return None;
        }
        self.drop_ticket(nonce)
    }
}
