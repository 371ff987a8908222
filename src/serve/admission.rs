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

use std::collections::HashMap;

/// The user of a connection; `None` if it is not known: all of these count as one user.
pub(crate) type User = Option<u32>;

/// Names one connection: the later, the larger.
pub(crate) type Token = u64;

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caps {
    pub(crate) all: usize,
    pub(crate) per_user: usize,
}

/// A connection, as far as the caps are concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occupant {
    pub(crate) token: Token,
    pub(crate) user: User,
    /// It has never completed a command.
    pub(crate) is_silent: bool,
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

impl Caps {
    /// Whether one more connection of this user may come in, beside those that are there.
    pub(crate) fn judge(self, user: User, present: &[Occupant]) -> Decision {
        let own = present.iter().filter(|it| it.user == user).count();
        if own < self.per_user && present.len() < self.all {
            return Decision::Welcome;
        }
        let largest = counts(present).into_iter().max_by_key(|(_, count)| *count);
        let payer = match largest {
            Some((other, count)) if own < self.per_user && count > own => other,
            Some(_) | None => user,
        };
        oldest_silent(present, payer).map_or(Decision::TurnedAway, Decision::Instead)
    }
}

fn counts(present: &[Occupant]) -> HashMap<User, usize> {
    let mut counts = HashMap::new();
    for occupant in present {
        let count: &mut usize = counts.entry(occupant.user).or_default();
        *count = count.saturating_add(1);
    }
    counts
}

fn oldest_silent(present: &[Occupant], user: User) -> Option<Token> {
    let silent = present.iter().filter(|it| it.is_silent && it.user == user);
    silent.map(|it| it.token).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: User = Some(1000);
    const BOB: User = Some(1001);

    struct Crowd {
        caps: Caps,
        present: Vec<Occupant>,
    }

    fn filled(all: usize, per_user: usize, users: &[User]) -> Crowd {
        let occupant = |(token, user)| Occupant { token, user, is_silent: true };
        let present = (0..).zip(users.iter().copied()).map(occupant).collect();
        Crowd { caps: Caps { all, per_user }, present }
    }

    impl Crowd {
        fn judge(&self, user: User) -> Decision {
            self.caps.judge(user, &self.present)
        }

        fn spoke(&mut self, token: Token) {
            let occupant = self.present.iter_mut().find(|it| it.token == token);
            occupant.unwrap().is_silent = false;
        }
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
        crowd.spoke(0);
        assert_eq!(crowd.judge(ALICE), Decision::Instead(2));
        crowd.spoke(2);
        crowd.spoke(3);
        assert_eq!(crowd.judge(ALICE), Decision::TurnedAway);
        assert_eq!(crowd.judge(BOB), Decision::Welcome);
        crowd.present.remove(0);
        assert_eq!(crowd.judge(ALICE), Decision::Welcome);
    }

    #[test]
    fn at_the_limit_of_all_the_user_with_most_connections_loses_one() {
        let mut crowd = filled(4, 4, &[BOB, ALICE, ALICE, ALICE]);
        assert_eq!(crowd.judge(BOB), Decision::Instead(1));
        assert_eq!(crowd.judge(None), Decision::Instead(1));
        assert_eq!(crowd.judge(ALICE), Decision::Instead(1));
        for token in 1..=3 {
            crowd.spoke(token);
        }
        assert_eq!(crowd.judge(BOB), Decision::TurnedAway);
    }

    #[test]
    fn no_user_pays_for_another_with_as_many() {
        let mut crowd = filled(4, 4, &[ALICE, ALICE, BOB, BOB]);
        crowd.spoke(2);
        crowd.spoke(3);
        assert_eq!(crowd.judge(ALICE), Decision::Instead(0));
        assert_eq!(crowd.judge(BOB), Decision::TurnedAway);
    }

    #[test]
    fn connections_without_a_known_user_count_as_one_user() {
        assert_eq!(filled(9, 2, &[None, None]).judge(None), Decision::Instead(0));
    }
}
