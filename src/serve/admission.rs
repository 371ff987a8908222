//! How many connections each user may have, and which connection is closed when there are too many. Counts
//! only: no sockets, no clock.
//!
//! # The rule
//!
//! A user who has reached the limit of connections gets a new one only if an old one of the same user is
//! closed: the oldest that has never completed a command (silent, slow, or in an endless line). If the limit
//! of all connections is reached, such a connection of the user with the most connections is closed. If there
//! is none, the new connection is refused. So a user who floods the service loses only connections of the
//! same user, and clients that work are never disconnected.
//!
//! Pure.

use std::collections::{BTreeSet, HashMap};

/// The user of a connection; `None` if it is not known: all of these count as one user.
pub(crate) type User = Option<u32>;

/// Names one connection: the later, the larger.
pub(crate) type Token = u64;

/// All connections, by user.
#[derive(Debug)]
pub(crate) struct Admissions {
    limit: usize,
    limit_per_user: usize,
    count: usize,
    groups: HashMap<User, Group>,
}

#[derive(Debug, Default)]
struct Group {
    count: usize,
    /// Those that have never completed a command, the oldest first.
    silent: BTreeSet<Token>,
}

/// What is to become of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// There is room.
    Welcome,
    /// There is room when this one goes.
    Instead(Token),
    /// There is none.
    TurnedAway,
}

impl Admissions {
    /// Nobody yet; at most so many in all, and so many of one user.
    #[must_use]
    pub(crate) fn up_to(limit: usize, limit_per_user: usize) -> Self {
        Self { limit, limit_per_user, count: 0, groups: HashMap::new() }
    }

    /// Whether there are no clients.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether one more of this user may come in.
    #[must_use]
    pub(crate) fn judge(&self, user: User) -> Decision {
        let own = self.groups.get(&user);
        let own_count = own.map_or(0, |group| group.count);
        let price = |group: Option<&Group>| {
            let oldest = group.and_then(|group| group.silent.first());
            oldest.map_or(Decision::TurnedAway, |token| Decision::Instead(*token))
        };
        if own_count >= self.limit_per_user {
            return price(own);
        }
        if self.count < self.limit {
            return Decision::Welcome;
        }
        let largest = self.groups.values().max_by_key(|group| group.count);
        match largest {
            Some(largest) if largest.count > own_count => price(Some(largest)),
            Some(_) | None => price(own),
        }
    }

    /// The one to close when the system has no descriptor left: the oldest silent one of the user
    /// who has most of them.
    #[must_use]
    pub(crate) fn dispensable(&self) -> Option<Token> {
        let most = self.groups.values().max_by_key(|group| group.silent.len())?;
        most.silent.first().copied()
    }

    /// Somebody came in.
    pub(crate) fn enter(&mut self, user: User, token: Token) {
        let group = self.groups.entry(user).or_default();
        group.count = group.count.saturating_add(1);
        group.silent.insert(token);
        self.count = self.count.saturating_add(1);
    }

    /// Somebody has completed a command.
    pub(crate) fn spoke(&mut self, user: User, token: Token) {
        if let Some(group) = self.groups.get_mut(&user) {
            group.silent.remove(&token);
        }
    }

    /// Somebody left.
    pub(crate) fn leave(&mut self, user: User, token: Token) {
        let Some(group) = self.groups.get_mut(&user) else { return };
        group.silent.remove(&token);
        group.count = group.count.saturating_sub(1);
        if group.count == 0 {
            self.groups.remove(&user);
        }
        self.count = self.count.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: User = Some(1000);
    const BOB: User = Some(1001);

    fn filled(limit: usize, per_user: usize, users: &[User]) -> Admissions {
        let mut crowd = Admissions::up_to(limit, per_user);
        for (token, user) in users.iter().enumerate() {
            crowd.enter(*user, token as Token);
        }
        crowd
    }

    #[test]
    fn there_is_room_below_the_limits() {
        assert_eq!(filled(3, 2, &[]).judge(ALICE), Decision::Welcome);
        assert_eq!(filled(3, 2, &[ALICE, BOB]).judge(ALICE), Decision::Welcome);
    }

    #[test]
    fn at_the_limit_of_a_user_that_users_oldest_silent_connection_is_closed() {
        let mut crowd = filled(10, 3, &[ALICE, BOB, ALICE, ALICE]);
        assert_eq!(crowd.judge(ALICE), Decision::Instead(0));
        crowd.spoke(ALICE, 0);
        assert_eq!(crowd.judge(ALICE), Decision::Instead(2));
        crowd.spoke(ALICE, 2);
        crowd.spoke(ALICE, 3);
        assert_eq!(crowd.judge(ALICE), Decision::TurnedAway);
        assert_eq!(crowd.judge(BOB), Decision::Welcome);
        crowd.leave(ALICE, 0);
        assert_eq!(crowd.judge(ALICE), Decision::Welcome);
    }

    #[test]
    fn at_the_limit_of_all_the_user_with_most_connections_loses_one() {
        let mut crowd = filled(4, 4, &[BOB, ALICE, ALICE, ALICE]);
        assert_eq!(crowd.judge(BOB), Decision::Instead(1));
        assert_eq!(crowd.judge(None), Decision::Instead(1));
        assert_eq!(crowd.judge(ALICE), Decision::Instead(1));
        for token in 1..=3 {
            crowd.spoke(ALICE, token);
        }
        assert_eq!(crowd.judge(BOB), Decision::TurnedAway);
    }

    #[test]
    fn no_user_pays_for_another_with_as_many() {
        let mut crowd = filled(4, 4, &[ALICE, ALICE, BOB, BOB]);
        crowd.spoke(BOB, 2);
        crowd.spoke(BOB, 3);
        assert_eq!(crowd.judge(ALICE), Decision::Instead(0));
        assert_eq!(crowd.judge(BOB), Decision::TurnedAway);
    }

    #[test]
    fn connections_without_a_known_user_count_as_one_user() {
        assert_eq!(filled(9, 2, &[None, None]).judge(None), Decision::Instead(0));
    }

    #[test]
    fn without_descriptors_the_user_with_most_silent_connections_loses_one() {
        let mut crowd = filled(9, 9, &[BOB, BOB, ALICE, ALICE, ALICE]);
        assert!(!crowd.is_empty());
        assert_eq!(crowd.dispensable(), Some(2));
        crowd.spoke(ALICE, 2);
        crowd.spoke(ALICE, 3);
        assert_eq!(crowd.dispensable(), Some(0));
    }

    #[test]
    fn a_waiter_that_left_does_not_count() {
        let mut crowd = filled(2, 2, &[ALICE, ALICE]);
        crowd.leave(ALICE, 0);
        crowd.leave(ALICE, 1);
        assert!(crowd.is_empty() && crowd.groups.is_empty());
        assert_eq!(crowd.dispensable(), None);
    }
}
