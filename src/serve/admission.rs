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
    pub(crate) fn decide(self, user: User, present: &[Occupant]) -> Decision {
        let mut counts: HashMap<User, usize> = HashMap::new();
        present.iter().for_each(|it| *counts.entry(it.user).or_default() += 1);
        let own = counts.get(&user).copied().unwrap_or(0);
        if own < self.per_user && present.len() < self.all {
            return Decision::Welcome;
        }
        let payer = match counts.into_iter().max_by_key(|(_, count)| *count) {
            Some((other, count)) if own < self.per_user && count > own => other,
            Some(_) | None => user,
        };
        let silent = present.iter().filter(|it| it.is_silent && it.user == payer);
        silent.map(|it| it.token).min().map_or(Decision::TurnedAway, Decision::Instead)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// The connections in the order in which they came: a letter is the user, and a small one means that the connection
    /// is silent; `?` is a silent connection of an unknown user. The limits are those of all users and of one.
    #[rstest]
    #[case::below_the_limits("ab", (3, 2), 'a', Decision::Welcome)]
    #[case::the_users_oldest_silent_one_goes("abaa", (10, 3), 'a', Decision::Instead(0))]
    #[case::the_next_silent_one("Abaa", (10, 3), 'a', Decision::Instead(2))]
    #[case::none_is_silent("AbAA", (10, 3), 'a', Decision::TurnedAway)]
    #[case::another_user_is_not_concerned("AbAA", (10, 3), 'b', Decision::Welcome)]
    #[case::the_user_with_most_loses_one("baaa", (4, 4), 'b', Decision::Instead(1))]
    #[case::to_an_unknown_user_too("baaa", (4, 4), '?', Decision::Instead(1))]
    #[case::to_himself("baaa", (4, 4), 'a', Decision::Instead(1))]
    #[case::the_user_with_most_has_no_silent_one("bAAA", (4, 4), 'b', Decision::TurnedAway)]
    #[case::no_user_pays_for_another_with_as_many("aaBB", (4, 4), 'b', Decision::TurnedAway)]
    #[case::but_for_himself("aaBB", (4, 4), 'a', Decision::Instead(0))]
    #[case::unknown_users_count_as_one("??", (9, 2), '?', Decision::Instead(0))]
    fn a_connection_is_admitted(
        #[case] present: &str,
        #[case] (all, per_user): (usize, usize),
        #[case] newcomer: char,
        #[case] decision: Decision,
    ) {
        let user = |it: char| it.is_alphabetic().then(|| u32::from(it.to_ascii_lowercase()));
        let occupant =
            |(token, it)| Occupant { token, user: user(it), is_silent: !it.is_uppercase() };
        let present: Vec<_> = (0..).zip(present.chars()).map(occupant).collect();
        assert_eq!(Caps { all, per_user }.decide(user(newcomer), &present), decision);
    }
}
