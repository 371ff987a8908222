//! The connections of this front-end, each in a place that is reused after the connection has closed.

use super::keys::{Front, Party};
use leases::{ConnId, Label, Ttl};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tokio::sync::Notify;

/// The state of a request that `e` began and `w` has not fetched.
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
    /// Granted when its turn came; no client has seen the token.
    Granted,
    /// Granted, but the lease ended before `w`.
    Lost,
    /// The place was lost with this front-end's session.
    Forgotten,
}

/// The progress of a connection's end.
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
    /// Notified when it no longer is.
    pub(super) idle: Arc<Notify>,
    pub(super) records: HashMap<Box<[u8]>, Record>,
    /// Nonces of the holds it owns or renewed.
    pub(super) holds: HashSet<u64>,
    /// The ticket whose turn its request waits for.
    pub(super) blocked: Option<u64>,
    /// Granted, but not announced to the client yet.
    pub(super) untold: Vec<u64>,
    /// Its label.
    pub(super) label: Option<Arc<Label>>,
}

/// The entries that a connection leaves behind.
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

pub(super) struct Seats {
    front: Front,
    all: Vec<Option<Conn>>,
    free: Vec<u32>,
    generation: u32,
    /// Living connections by serial.
    serials: HashMap<u64, ConnId>,
}

impl Seats {
    pub(super) fn new(front: Front) -> Self {
        Self { front, all: Vec::new(), free: Vec::new(), generation: 0, serials: HashMap::new() }
    }

    pub(super) fn connect(&mut self, serial: u64) -> ConnId {
        self.generation = self.generation.wrapping_add(1);
        let place = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            u32::try_from(self.all.len() - 1).unwrap_or(u32::MAX)
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
            label: None,
        };
        if let Some(seat) = self.all.get_mut(id.place()) {
            *seat = Some(conn);
        }
        self.serials.insert(serial, id);
        id
    }

    pub(super) fn conn(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.all.get_mut(id.place())?.as_mut().filter(|conn| conn.id == id)
    }

    pub(super) fn conns(&self) -> impl Iterator<Item = &Conn> {
        self.all.iter().flatten()
    }

    /// The connection of a party, if it is still open and one of ours.
    pub(super) fn of(&self, party: Party) -> Option<ConnId> {
        if party.front == self.front { self.serials.get(&party.serial).copied() } else { None }
    }

    /// The connection no longer counts as open, though it keeps its seat.
    pub(super) fn retire(&mut self, serial: u64) {
        self.serials.remove(&serial);
    }

    pub(super) fn vacate(&mut self, id: ConnId) {
        if self.conn(id).is_none() {
            return;
        }
        let conn = self.all.get_mut(id.place()).and_then(Option::take);
        if let (Some(conn), Ok(place)) = (conn, u32::try_from(id.place())) {
            self.serials.remove(&conn.serial);
            self.free.push(place);
        }
    }

    /// A party is no longer the owner or the renewer of this hold.
    pub(super) fn cut(&mut self, party: Party, nonce: u64) {
        if let Some(conn) = self.of(party).and_then(|id| self.conn(id)) {
            conn.holds.remove(&nonce);
        }
    }
}
