//! The table of sessions: connections of HTTP clients, which have no socket. A session ends when its client says so, or is
//! silent for too long while no request of it is open, when an administrator ends it, and when the term or the server ends.

use super::{ClientKind, Core, Full, spare_number};
use crate::server::Settings;
use leases::{AutoRelease, ConnId, Moment, Seconds};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::Mutex;

/// The most sessions that end in one turn of the timer because they are idle.
const ENDED_PER_TURN: usize = 64;

/// What a client shows to use its session: 128 random bits, 32 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SessionId(u128);

impl SessionId {
    /// `None` for any other text.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let (high, low) = text.split_at_checked(16)?;
        let half = |digits| leases::read_hex(digits).map(u128::from);
        Some(Self(half(high)? << 64 | half(low)?))
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:032x}", self.0)
    }
}

/// A number that nobody can guess.
fn random() -> u128 {
    let mut bytes = [0; size_of::<u128>()];
    match getrandom::fill(&mut bytes) {
        Ok(()) => u128::from_ne_bytes(bytes),
        Err(_) => {
            let half = || u128::from(spare_number(bytes));
            half() << 64 | half()
        }
    }
}

/// Has only what is known of it: no log may contain the number by which it is used.
struct Session {
    conn: ConnId,
    /// When it was opened, or its last request ended.
    last: Moment,
    /// The requests that are open.
    open: usize,
    /// The turn of the one request that may wait.
    turn: Arc<Mutex<()>>,
}

/// All sessions.
pub(in crate::server) struct Sessions {
    all: HashMap<SessionId, Session>,
    /// When each of them is to be examined.
    due: BTreeSet<(Moment, SessionId)>,
    /// How long a session may be silent.
    silence: Seconds,
}

impl Sessions {
    /// Sessions that end when they were silent for this long.
    pub(super) fn new(silence: Seconds) -> Self {
        Self { all: HashMap::new(), due: BTreeSet::new(), silence }
    }

    pub(in crate::server) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn next_deadline(&self) -> Moment {
        self.due.first().map_or(Moment::NEVER, |(due, _)| *due)
    }

    fn add(&mut self, now: Moment, id: SessionId, conn: ConnId) {
        self.all.insert(id, Session { conn, last: now, open: 0, turn: Arc::default() });
        self.due.insert((now.after(self.silence), id));
    }

    /// A request of this session comes; its connection, and the turn of a request that may wait.
    pub(in crate::server) fn begin_request(
        &mut self,
        id: SessionId,
    ) -> Option<(ConnId, Arc<Mutex<()>>)> {
        let session = self.all.get_mut(&id)?;
        session.open += 1;
        Some((session.conn, Arc::clone(&session.turn)))
    }

    /// A request has ended.
    pub(in crate::server) fn end_request(&mut self, now: Moment, id: SessionId) {
        if let Some(session) = self.all.get_mut(&id) {
            session.last = now;
            session.open -= 1;
        }
    }

    /// The next session that is silent for too long; `Err` if one was examined that is not.
    fn next_idle(&mut self, now: Moment) -> Option<Result<SessionId, ()>> {
        let (due, id) = self.due.first().copied().filter(|(due, _)| *due <= now)?;
        self.due.remove(&(due, id));
        let Some(session) = self.all.get(&id) else { return Some(Err(())) };
        let last = if session.open > 0 { now } else { session.last };
        let over = last.after(self.silence);
        if over <= now {
            return Some(Ok(id));
        }
        self.due.insert((over, id));
        Some(Err(()))
    }
}

impl Core {
    /// Opens a session, if the caps allow.
    pub(in crate::server) fn open_session(
        &mut self,
        settings: &Settings,
        now: Moment,
        address: Option<IpAddr>,
    ) -> Result<SessionId, Full> {
        let (most, each) = (settings.http.max_sessions, settings.http.max_sessions_per_address);
        self.connections.room_for(ClientKind::Http, address, most, each)?;
        let (conn, serial) = self.seat(ClientKind::Http, address);
        let address = address.map(tracing::field::display);
        tracing::debug!(address, conn_id = serial, "session opened");
        let id = SessionId(random());
        self.sessions.add(now, id, conn);
        self.rearm();
        Ok(id)
    }

    /// Whether the end of the server is to wait for a client: for each socket, and for a session that has an open request,
    /// a hold or a place in a queue. Nobody hears of the end of any other session.
    pub(in crate::server) fn has_clients(&self) -> bool {
        let is_in_use = |it: &Session| it.open > 0 || !self.engine.is_idle(it.conn);
        self.connections.len() > self.sessions.len() || self.sessions.all.values().any(is_in_use)
    }

    /// A connection for one request that belongs to no session.
    pub(in crate::server) fn open_alone(&mut self, address: Option<IpAddr>) -> ConnId {
        self.seat(ClientKind::Http, address).0
    }

    /// Ends a session as a connection ends; false if there is none. Its open requests notice that.
    pub(in crate::server) fn end_session(
        &mut self,
        now: Moment,
        id: SessionId,
        auto: AutoRelease,
    ) -> bool {
        let Some(session) = self.sessions.all.remove(&id) else { return false };
        self.connections.wake(session.conn);
        self.end_connection(session.conn, now, auto);
        true
    }

    /// Ends all sessions.
    pub(in crate::server) fn end_sessions(&mut self, now: Moment, auto: AutoRelease) {
        let all: Vec<_> = self.sessions.all.keys().copied().collect();
        for id in all {
            self.end_session(now, id, auto);
        }
    }

    /// Ends sessions that were silent for too long; returns whether there were any.
    pub(in crate::server) fn end_idle_sessions(&mut self, now: Moment, auto: AutoRelease) -> bool {
        let idle = std::iter::from_fn(|| self.sessions.next_idle(now)).take(ENDED_PER_TURN);
        let idle: Vec<_> = idle.filter_map(Result::ok).collect();
        for id in &idle {
            self.end_session(now, *id, auto);
        }
        !idle.is_empty()
    }

    /// Ends the session whose connection has this number; false if there is none.
    pub(in crate::server) fn kick_session(
        &mut self,
        now: Moment,
        serial: u64,
        auto: AutoRelease,
    ) -> bool {
        let Some(conn) = self.connections.session_of(serial) else { return false };
        let found = self.sessions.all.iter().find(|(_, session)| session.conn == conn);
        let Some(id) = found.map(|(id, _)| *id) else { return false };
        self.end_session(now, id, auto)
    }
}

#[cfg(test)]
#[path = "sessions_tests.rs"]
mod tests;
