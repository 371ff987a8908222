//! The connections of a daemon, and when each of them has its next moment. Makes no system call, and knows nothing of
//! the service.

use std::collections::{BTreeMap, BTreeSet};
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
    /// Those that go on by themselves, by their moments. An entry is out of date if its connection has changed since.
    going_on: BTreeSet<(Instant, Token)>,
    /// No time of another connection is over before.
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
        Self {
            caps,
            idle_timeout,
            members: BTreeMap::new(),
            last: 0,
            going_on: BTreeSet::new(),
            next: None,
        }
    }

    /// The token of a client that comes: larger than all before it.
    pub(super) fn token(&mut self) -> Token {
        self.last = self.last.saturating_add(1);
        self.last
    }

    /// Whether a client of this user may come in.
    pub(super) fn judge(&self, user: User) -> Decision {
        self.caps.judge(user, &self.occupants())
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
        let going_on = self.going_on.first().map(|(moment, _)| *moment);
        self.next.into_iter().chain(going_on).min()
    }

    /// A connection may have another moment than before.
    pub(super) fn changed(&mut self, token: Token) {
        let Some(member) = self.members.get(&token) else { return };
        let Some(moment) = member.connection.moment(self.idle_timeout) else { return };
        if member.connection.goes_on() {
            self.going_on.insert((moment, token));
        } else {
            self.next = self.next.into_iter().chain([moment]).min();
        }
    }

    /// The connections that have their moment. Of those that go on by themselves, because they have sent more than one
    /// turn answers or try a contended request again, only the first one: other clients come in between.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Token> {
        let mut due: Vec<Token> = self.goes_on(now).into_iter().collect();
        if self.next.is_some_and(|next| next <= now) {
            let members = self.members.iter().filter(|(_, member)| !member.connection.goes_on());
            let moment = |(token, member): (&Token, &Member)| {
                Some((member.connection.moment(self.idle_timeout)?, *token))
            };
            let (over, later): (Vec<_>, Vec<_>) =
                members.filter_map(moment).partition(|(moment, _)| *moment <= now);
            self.next = later.into_iter().map(|(moment, _)| moment).min();
            due.extend(over.into_iter().map(|(_, token)| token));
        }
        due
    }

    fn goes_on(&mut self, now: Instant) -> Option<Token> {
        while let Some((moment, token)) = self.going_on.first().copied().filter(|it| it.0 <= now) {
            self.going_on.pop_first();
            let connection = self.members.get(&token).map(|member| &member.connection);
            if connection
                .is_some_and(|it| it.goes_on() && it.moment(self.idle_timeout) == Some(moment))
            {
                return Some(token);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::serve::connection::Phase;
    use crate::serve::queue::WaiterId;
    use crate::serve::service::Service;
    use crate::serve::wire::Wire;

    const IDLE: Duration = Duration::from_secs(300);

    /// However many connections have sent more than one turn answers: one of them has a turn before news of other
    /// clients is taken. A connection whose time is over does not wait for them.
    #[test]
    fn one_connection_goes_on_by_itself_before_others_come_in() {
        let root = tempfile::tempdir().unwrap();
        let mut service = Service::without_devices(root.path());
        let now = Instant::now();
        let mut clients = Clients::within(Caps { all: 9, per_user: 9 }, IDLE);
        let phases = [
            Phase::Pausing(now),
            Phase::Retrying(now),
            Phase::Pausing(now),
            Phase::Reading,
            Phase::Waiting,
        ];
        for phase in phases {
            let (_, stream) = UnixStream::pair().unwrap();
            let token = clients.token();
            let client = service.welcome(stream.as_fd(), Some(WaiterId(token)));
            let mut connection = Connection::new(Wire::Socket(stream.into()), client, now);
            connection.phase = phase;
            clients.enter(token, connection);
            clients.changed(token);
        }
        let mut served = Vec::new();
        while clients.next_moment() == Some(now) {
            let due = clients.due(now);
            assert_eq!(due.len(), 1);
            for token in due {
                served.push(token);
                clients.find(token).unwrap().phase = Phase::Waiting;
            }
        }
        assert_eq!(served, [1, 2, 3]);
        clients.find(1).unwrap().phase = Phase::Pausing(now);
        clients.find(2).unwrap().phase = Phase::Pausing(now);
        clients.changed(1);
        clients.changed(2);
        assert_eq!(clients.due(now + IDLE), [1, 4]);
        assert_eq!(clients.next_moment(), Some(now));
    }
}
