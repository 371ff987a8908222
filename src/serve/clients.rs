//! The clients of a daemon: their connections, the limits for each user, and which clients have more to do.
//! Knows neither epoll nor the service.

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use super::admission::{Admissions, Decision, Token, User};
use super::connection::Connection;

/// A token's lower bits are a place among the connections.
const PLACE_BITS: u32 = 20;

/// Every client.
#[derive(Debug)]
pub(super) struct Clients {
    admissions: Admissions,
    connections: Connections,
    /// Those with more to do than fitted into a turn, each once.
    unfinished: VecDeque<Token>,
    /// The clients with a request that is tried again, and when.
    retries: BTreeSet<(Instant, Token)>,
}

impl Clients {
    /// Nobody yet; at most so many in all, and so many of one user.
    pub(super) fn up_to(limit: usize, limit_per_user: usize) -> Self {
        Self {
            admissions: Admissions::up_to(limit, limit_per_user),
            connections: Connections::default(),
            unfinished: VecDeque::new(),
            retries: BTreeSet::new(),
        }
    }

    /// The token of a client that comes.
    pub(super) fn token(&mut self) -> Token {
        self.connections.token()
    }

    /// It did not come after all.
    pub(super) fn give_back(&mut self, token: Token) {
        self.connections.free.push(Connections::place(token));
    }

    pub(super) fn judge(&self, user: User) -> Decision {
        self.admissions.judge(user)
    }

    /// The one to close when the system has no descriptor left.
    pub(super) fn dispensable(&self) -> Option<Token> {
        self.admissions.dispensable()
    }

    pub(super) fn enter(&mut self, connection: Connection) {
        self.admissions.enter(connection.client.user(), connection.token);
        self.connections.put(connection);
    }

    pub(super) fn spoke(&mut self, user: User, token: Token) {
        self.admissions.spoke(user, token);
    }

    pub(super) fn leave(&mut self, token: Token) -> Option<Connection> {
        let connection = self.connections.take(token)?;
        self.admissions.leave(connection.client.user(), token);
        Some(connection)
    }

    pub(super) fn find(&mut self, token: Token) -> Option<&mut Connection> {
        self.connections.find(token)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.admissions.is_empty()
    }

    pub(super) fn tokens(&self) -> Vec<Token> {
        self.connections.tokens()
    }

    pub(super) fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.connections.places.iter().flatten()
    }

    /// It has more to do, after all others that have.
    pub(super) fn defer(&mut self, token: Token) {
        self.unfinished.push_back(token);
    }

    pub(super) fn next_unfinished(&mut self) -> Option<Token> {
        self.unfinished.pop_front()
    }

    /// How many have more to do than fitted into a turn.
    pub(super) fn unfinished(&self) -> usize {
        self.unfinished.len()
    }

    pub(super) fn retry_at(&mut self, moment: Instant, token: Token) {
        self.retries.insert((moment, token));
    }

    /// The next one whose request is to be tried again now.
    pub(super) fn due_retry(&mut self, now: Instant) -> Option<Token> {
        let (moment, token) = self.retries.first().copied()?;
        (moment <= now && self.retries.remove(&(moment, token))).then_some(token)
    }

    /// The request of this client is not tried again.
    pub(super) fn retry_no_more(&mut self, token: Token) {
        self.retries.retain(|(_, waiting)| *waiting != token);
    }

    /// When a client that waits for a moment has something to do.
    pub(super) fn next_moment(&self) -> Option<Instant> {
        self.retries.first().map(|(moment, _)| *moment)
    }
}

/// The connections, each at the place its token tells.
#[derive(Debug, Default)]
struct Connections {
    places: Vec<Option<Connection>>,
    free: Vec<usize>,
    serial: u64,
}

impl Connections {
    /// A new token: larger than all before it.
    fn token(&mut self) -> Token {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len().saturating_sub(1)
        });
        self.serial = self.serial.saturating_add(1);
        self.serial << PLACE_BITS | u64::try_from(place).unwrap_or_default()
    }

    fn place(token: Token) -> usize {
        usize::try_from(token & ((1 << PLACE_BITS) - 1)).unwrap_or(usize::MAX)
    }

    fn put(&mut self, connection: Connection) {
        let place = Self::place(connection.token);
        if let Some(free) = self.places.get_mut(place) {
            *free = Some(connection);
        }
    }

    fn find(&mut self, token: Token) -> Option<&mut Connection> {
        let connection = self.places.get_mut(Self::place(token))?.as_mut();
        connection.filter(|connection| connection.token == token)
    }

    fn take(&mut self, token: Token) -> Option<Connection> {
        self.find(token)?;
        let place = Self::place(token);
        let connection = self.places.get_mut(place)?.take();
        self.free.push(place);
        connection
    }

    fn tokens(&self) -> Vec<Token> {
        self.places.iter().flatten().map(|connection| connection.token).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_grows_though_places_are_used_again() {
        let mut connections = Connections::default();
        let first = connections.token();
        connections.free.push(Connections::place(first));
        let second = connections.token();
        assert_eq!(Connections::place(first), Connections::place(second));
        assert!(second > first && second >> 63 == 0);
    }
}
