//! The connections of a daemon, and when each of them has its next moment. Makes no system call, and knows nothing of
//! the service.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nix::sys::epoll::EpollFlags;

use super::admission::{self, Caps, Decision, Occupant, Token, User};
use super::connection::Connection;

/// Every client.
#[derive(Debug)]
pub(super) struct Clients {
    caps: Caps,
    idle_timeout: Duration,
    members: BTreeMap<Token, Member>,
    last: Token,
    /// No connection has its moment before.
    next: Option<Instant>,
}

#[derive(Debug)]
struct Member {
    connection: Connection,
    /// What epoll was asked to report, if anything.
    interest: Option<EpollFlags>,
}

impl Clients {
    pub(super) fn within(caps: Caps, idle_timeout: Duration) -> Self {
        Self { caps, idle_timeout, members: BTreeMap::new(), last: 0, next: None }
    }

    /// The token of a client that comes: larger than all before it.
    pub(super) fn token(&mut self) -> Token {
        self.last = self.last.saturating_add(1);
        self.last
    }

    /// Whether a client of this user may come in.
    pub(super) fn judge(&self, user: User) -> Decision {
        self.caps.judge(&self.occupants(), user)
    }

    /// The one to close when the system has no descriptor left.
    pub(super) fn dispensable(&self) -> Option<Token> {
        admission::dispensable(&self.occupants())
    }

    fn occupants(&self) -> Vec<Occupant> {
        let occupant = |(token, member): (&Token, &Member)| Occupant {
            token: *token,
            user: member.connection.client.user(),
            is_silent: !member.connection.spoke,
        };
        self.members.iter().map(occupant).collect()
    }

    pub(super) fn enter(&mut self, token: Token, connection: Connection) {
        self.members.insert(token, Member { connection, interest: None });
    }

    pub(super) fn leave(&mut self, token: Token) -> Option<Connection> {
        self.members.remove(&token).map(|member| member.connection)
    }

    pub(super) fn find(&mut self, token: Token) -> Option<&mut Connection> {
        self.members.get_mut(&token).map(|member| &mut member.connection)
    }

    /// A connection, and the events that epoll was asked to report about it, if any.
    pub(super) fn find_watched(
        &mut self,
        token: Token,
    ) -> Option<(&Connection, &mut Option<EpollFlags>)> {
        self.members.get_mut(&token).map(|member| (&member.connection, &mut member.interest))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(super) fn tokens(&self) -> Vec<Token> {
        self.members.keys().copied().collect()
    }

    /// When the next connection has something to do, or its time is over, if no client does anything.
    pub(super) fn next_moment(&self) -> Option<Instant> {
        self.next
    }

    /// A connection may have another moment than before.
    pub(super) fn changed(&mut self, token: Token) {
        let member = self.members.get(&token);
        let moment = member.and_then(|member| member.connection.moment(self.idle_timeout));
        self.next = self.next.into_iter().chain(moment).min();
    }

    /// The connections that have their moment, the earliest first.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Token> {
        if self.next.is_none_or(|next| next > now) {
            return Vec::new();
        }
        let moment = |(token, member): (&Token, &Member)| {
            Some((member.connection.moment(self.idle_timeout)?, *token))
        };
        let mut moments: Vec<(Instant, Token)> = self.members.iter().filter_map(moment).collect();
        moments.sort_unstable();
        let due = moments.partition_point(|(moment, _)| *moment <= now);
        self.next = moments.get(due).map(|(moment, _)| *moment);
        moments.truncate(due);
        moments.into_iter().map(|(_, token)| token).collect()
    }
}
