//! The connections of a daemon, and when each of them has its next moment. Makes no system call, and knows nothing of
//! the service.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::admission::{Caps, Decision, Occupant, Token, User};
use super::connection::Connection;

/// Every client.
#[derive(Debug)]
pub(super) struct Clients {
    caps: Caps,
    idle_timeout: Duration,
    pub(super) members: BTreeMap<Token, Connection>,
    last: Token,
}

impl Clients {
    pub(super) fn within(caps: Caps, idle_timeout: Duration) -> Self {
        Self { caps, idle_timeout, members: BTreeMap::new(), last: 0 }
    }

    /// The token of a client that comes: larger than all before it.
    pub(super) fn token(&mut self) -> Token {
        self.last = self.last.saturating_add(1);
        self.last
    }

    /// Whether a client of this user may come in.
    pub(super) fn judge(&self, user: User) -> Decision {
        let occupant = |(token, connection): (&Token, &Connection)| Occupant {
            token: *token,
            user: connection.client.user(),
            is_silent: !connection.spoke,
        };
        self.caps.judge(user, &self.members.iter().map(occupant).collect::<Vec<_>>())
    }

    pub(super) fn tokens(&self) -> Vec<Token> {
        self.members.keys().copied().collect()
    }

    /// The connections with a moment, and that moment.
    fn moments(&self) -> impl Iterator<Item = (Instant, Token, &Connection)> {
        self.members.iter().filter_map(|(token, connection)| {
            Some((connection.moment(self.idle_timeout)?, *token, connection))
        })
    }

    /// When the next connection has something to do, or its time is over, if no client does anything.
    pub(super) fn next_moment(&self) -> Option<Instant> {
        self.moments().map(|(moment, ..)| moment).min()
    }

    /// The connections that have their moment. Of those that go on by themselves, because they have sent more than one
    /// turn answers or try a contended request again, only the first one: other clients come in between.
    pub(super) fn due(&self, now: Instant) -> Vec<Token> {
        let due = self.moments().filter(|(moment, ..)| *moment <= now);
        let (going_on, over): (Vec<_>, Vec<_>) = due.partition(|(.., it)| it.goes_on());
        let first = going_on.into_iter().min_by_key(|(moment, token, _)| (*moment, *token));
        first.into_iter().chain(over).map(|(_, token, _)| token).collect()
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
            clients.members.insert(token, connection);
        }
        let mut served = Vec::new();
        while clients.next_moment() == Some(now) {
            let due = clients.due(now);
            assert_eq!(due.len(), 1);
            for token in due {
                served.push(token);
                clients.members.get_mut(&token).unwrap().phase = Phase::Waiting;
            }
        }
        assert_eq!(served, [1, 2, 3]);
        clients.members.get_mut(&1).unwrap().phase = Phase::Pausing(now);
        clients.members.get_mut(&2).unwrap().phase = Phase::Pausing(now);
        assert_eq!(clients.due(now + IDLE), [1, 4]);
        assert_eq!(clients.next_moment(), Some(now));
    }
}
