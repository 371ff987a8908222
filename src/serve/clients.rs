//! The connections of a daemon, and when each of them has its next moment. Makes no system call, and knows nothing of
//! the service.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::admission::{Caps, Decision, Occupant, Owner, Token};
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

    /// Whether a client may come in.
    pub(super) fn decide(&self, newcomer: Owner, now: Instant) -> Decision {
        let occupant = |(token, connection): (&Token, &Connection)| Occupant {
            token: *token,
            owner: connection.client.owner,
            activity: connection.activity(now),
        };
        self.caps.decide(newcomer, &self.members.iter().map(occupant).collect::<Vec<_>>())
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

    /// The connections that have something to do now. Each gets one turn.
    pub(super) fn due(&self, now: Instant) -> Vec<Token> {
        let moments = self.moments().map(|(moment, token, it)| (moment, token, it.goes_on()));
        due(moments, now)
    }
}

/// The connections whose moments have come. Some go on by themselves, because they have sent more than one turn
/// answers, or because they try a contended request again. Of these, only the first is due, so that other clients come
/// in between.
fn due(moments: impl Iterator<Item = (Instant, Token, bool)>, now: Instant) -> Vec<Token> {
    let due = moments.filter(|(moment, ..)| *moment <= now);
    let (going_on, over): (Vec<_>, Vec<_>) = due.partition(|(.., goes_on)| *goes_on);
    let first = going_on.into_iter().min();
    first.into_iter().chain(over).map(|(_, token, _)| token).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many connections have sent more than one turn answers: one of them has a turn before news of other
    /// clients is taken. A connection whose time is over does not wait for them.
    #[test]
    fn one_connection_goes_on_by_itself_before_others_come_in() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let due = |present: &[(Instant, Token, bool)]| due(present.iter().copied(), now);
        let present = [(later, 1, true), (now, 2, true), (now, 3, true), (later, 4, false)];
        assert_eq!(due(&present), [2]);
        assert_eq!(due(&present[2..]), [3]);
        assert_eq!(due(&present[3..]), [0; 0]);
        assert_eq!(
            due(&[(now, 1, true), (now, 2, true), (now, 3, false), (now, 4, false)]),
            [1, 3, 4]
        );
    }
}
