//! How many connections each user may have, and which connection is closed when there are too many. Counts
//! only: no sockets, no clock.
//!
//! # The rule
//!
//! A user who has reached the limit of connections gets a new one only if an old one of the same user is
//! closed: the oldest that has never completed a command (silent, slow, or in an endless line), or else the oldest
//! that has asked for nothing for a minute. If the limit of all connections is reached, such a connection of the user
//! with the most connections is closed. If there is none, the new connection is refused. So a user who floods the
//! service loses only connections of the same user, and clients that work are never disconnected.
//!
//! A number in a range of subordinate users counts as its owner (`ttylock::subordinate`). A few places are for root
//! and the members of the force group, so that an administrator can always ask.
//!
//! Pure.

use std::collections::HashMap;
use std::time::Duration;

/// The user of a connection; `None` if it is not known: all of these count as one user.
pub(crate) type User = Option<u32>;

/// Names one connection: the later, the larger.
pub(crate) type ClientId = u64;

/// Places for administrators alone, unless there are so few places that this is more than an eighth of them.
const RESERVED: usize = 16;

/// A connection that has asked for nothing for this long makes room for another.
const IDLE_AFTER: Duration = Duration::from_secs(60);

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    pub(crate) all: usize,
    pub(crate) per_user: usize,
}

/// The owner of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The user for whom it counts.
    pub(crate) user: User,
    /// It is root's, or that of a member of the force group.
    pub(crate) is_administrator: bool,
}

/// What a connection has done. The earlier of these make room before the later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Activity {
    /// It has never completed a command.
    Silent,
    /// It has made no request for a while. NOOP and what is no command are none.
    Idle,
    /// It asks.
    Working,
}

/// A connection, as it counts for the limits of connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountedConnection {
    pub(crate) id: ClientId,
    pub(crate) owner: Owner,
    pub(crate) activity: Activity,
}

/// What is to become of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// There is room.
    Welcome,
    /// There is room when this one goes.
    Instead(ClientId),
    /// There is none.
    TurnedAway,
}

impl Activity {
    /// The activity of a connection that has no request now. `request` is the time since its last one, or since it came if
    /// it had none.
    pub(crate) fn since(has_spoken: bool, request: Duration) -> Self {
        match has_spoken {
            false => Self::Silent,
            true if request >= IDLE_AFTER => Self::Idle,
            true => Self::Working,
        }
    }
}

impl ConnectionLimits {
    /// Whether one more connection may come in, beside those that are there.
    pub(crate) fn decide(self, newcomer: Owner, present: &[CountedConnection]) -> Decision {
        let own = present.iter().filter(|it| it.owner.user == newcomer.user).count();
        if own < self.per_user && self.has_room(newcomer, present) {
            return Decision::Welcome;
        }
        // The place of an administrator is no place for others.
        let is_fit =
            |it: &&CountedConnection| newcomer.is_administrator || !it.owner.is_administrator;
        let mut counts: HashMap<User, usize> = HashMap::new();
        present.iter().filter(is_fit).for_each(|it| *counts.entry(it.owner.user).or_default() += 1);
        let payer = match counts.into_iter().max_by_key(|(_, count)| *count) {
            Some((other, count)) if own < self.per_user && count > own => other,
            Some(_) | None => newcomer.user,
        };
        let is_payers = |it: &&CountedConnection| it.owner.user == payer;
        let may_go = |it: &&CountedConnection| it.activity != Activity::Working;
        let leaving = present.iter().filter(is_fit).filter(is_payers).filter(may_go);
        let first = leaving.map(|it| (it.activity, it.id)).min();
        first.map_or(Decision::TurnedAway, |(_, id)| Decision::Instead(id))
    }

    fn has_room(self, newcomer: Owner, present: &[CountedConnection]) -> bool {
        let reserved = RESERVED.min(self.all / 8);
        let others = present.iter().filter(|it| !it.owner.is_administrator).count();
        let is_reserved = !newcomer.is_administrator && others >= self.all.saturating_sub(reserved);
        present.len() < self.all && !is_reserved
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// The connections in the order in which they came: a letter is the user, and a small one means that the connection
    /// is silent; `?` is a silent connection of an unknown user, and one with a `-` behind it asks for nothing. `R` is an
    /// administrator. The limits are those of all users and of one.
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
    #[case::an_idle_one_goes("AA-A", (9, 3), 'a', Decision::Instead(1))]
    #[case::a_silent_one_goes_before("A-A-a", (9, 3), 'a', Decision::Instead(2))]
    #[case::the_oldest_idle_one("AA-A-", (9, 3), 'a', Decision::Instead(1))]
    #[case::an_idle_one_goes_for_another("AA-BA", (4, 4), 'b', Decision::Instead(1))]
    #[case::no_place_is_left("ABABABA", (8, 8), 'b', Decision::TurnedAway)]
    #[case::but_for_root("ABABABA", (8, 8), 'r', Decision::Welcome)]
    #[case::root_has_no_more("ABABABAR", (8, 8), 'r', Decision::TurnedAway)]
    #[case::what_root_has_leaves_the_others_theirs("ABABABR", (8, 8), 'b', Decision::Welcome)]
    #[case::of_few_places_none_is_reserved("ABA", (4, 4), 'b', Decision::Welcome)]
    #[case::many_places_of_root_are_not_for_others("RR-rABA", (8, 8), 'b', Decision::Welcome)]
    #[case::nobody_takes_one_of_roots("RrR-RABAB", (8, 8), 'b', Decision::TurnedAway)]
    #[case::root_takes_one_of_the_user_with_most("ABAb-AaAa", (8, 8), 'r', Decision::Instead(5))]
    fn a_connection_is_admitted(
        #[case] present: &str,
        #[case] (all, per_user): (usize, usize),
        #[case] newcomer: char,
        #[case] decision: Decision,
    ) {
        let owner = |it: char| Owner {
            user: it.is_alphabetic().then(|| u32::from(it.to_ascii_lowercase())),
            is_administrator: it.eq_ignore_ascii_case(&'r'),
        };
        let mut connections: Vec<CountedConnection> = Vec::new();
        for (id, it) in (0..).zip(present.replace('-', "").chars()) {
            let activity = if it.is_uppercase() { Activity::Working } else { Activity::Silent };
            connections.push(CountedConnection { id, owner: owner(it), activity });
        }
        for (idle, (place, _)) in present.match_indices('-').enumerate() {
            connections[place - idle - 1].activity = Activity::Idle;
        }
        assert_eq!(
            ConnectionLimits { all, per_user }.decide(owner(newcomer), &connections),
            decision
        );
    }

    /// As many as there are by default.
    #[rstest]
    #[case::for_others(1007, false, Decision::Welcome)]
    #[case::for_others_no_more(1008, false, Decision::TurnedAway)]
    #[case::for_root(1023, true, Decision::Welcome)]
    #[case::for_root_no_more(1024, true, Decision::TurnedAway)]
    fn sixteen_places_are_for_administrators(
        #[case] count: u32,
        #[case] is_administrator: bool,
        #[case] decision: Decision,
    ) {
        let counted = |number: u32| CountedConnection {
            id: number.into(),
            owner: Owner { user: Some(1 + number % 8), is_administrator: false },
            activity: Activity::Working,
        };
        let caps = ConnectionLimits { all: 1024, per_user: 256 };
        let connections: Vec<_> = (0..count).map(counted).collect();
        assert_eq!(caps.decide(Owner { user: Some(0), is_administrator }, &connections), decision);
    }

    #[rstest]
    #[case::never_a_command(false, 3600, Activity::Silent)]
    #[case::a_request(true, 0, Activity::Working)]
    #[case::just_before(true, 59, Activity::Working)]
    #[case::a_minute(true, 60, Activity::Idle)]
    fn a_minute_without_a_request_is_idle(
        #[case] has_spoken: bool,
        #[case] seconds: u64,
        #[case] activity: Activity,
    ) {
        assert_eq!(Activity::since(has_spoken, Duration::from_secs(seconds)), activity);
    }
}
