//! Which connection is served next: users take turns, however many connections each of them has. Among the
//! connections of a user, the one that has waited longest comes first.
//!
//! Pure.

use std::collections::{HashMap, VecDeque};

use super::admission::{Token, User};

/// One that is ready, and the number of the last turn it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ready<T> {
    pub(super) user: User,
    pub(super) last_turn: u64,
    pub(super) what: T,
}

/// In rounds: one of each user, then another one of each, and so on.
pub(super) fn in_rounds<T>(mut ready: Vec<Ready<T>>) -> Vec<T> {
    ready.sort_by_key(|ready| ready.last_turn);
    let mut rounds: HashMap<User, usize> = HashMap::new();
    let mut ordered: Vec<(usize, T)> = ready
        .into_iter()
        .map(|ready| {
            let round = rounds.entry(ready.user).or_default();
            *round = round.saturating_add(1);
            (*round, ready.what)
        })
        .collect();
    ordered.sort_by_key(|(round, _)| *round);
    ordered.into_iter().map(|(_, what)| what).collect()
}

/// Those with more to do than fitted into a turn.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    of_users: HashMap<User, VecDeque<Token>>,
    users: VecDeque<User>,
    length: usize,
}

impl Backlog {
    pub(super) fn push(&mut self, user: User, token: Token) {
        let tokens = self.of_users.entry(user).or_default();
        if tokens.is_empty() {
            self.users.push_back(user);
        }
        tokens.push_back(token);
        self.length = self.length.saturating_add(1);
    }

    pub(super) fn pop(&mut self) -> Option<Token> {
        let user = self.users.pop_front()?;
        let tokens = self.of_users.get_mut(&user)?;
        let token = tokens.pop_front()?;
        if tokens.is_empty() {
            self.of_users.remove(&user);
        } else {
            self.users.push_back(user);
        }
        self.length = self.length.saturating_sub(1);
        Some(token)
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::nobody(&[], &[])]
    #[case::one_user_those_who_waited_longest_first(&[(1, 7), (1, 3), (1, 5)], &[1, 2, 0])]
    #[case::another_comes_second(&[(1, 1), (1, 2), (1, 3), (2, 9)], &[0, 3, 1, 2])]
    #[case::three_users(&[(1, 4), (1, 1), (2, 6), (2, 2), (3, 9)], &[1, 3, 4, 0, 2])]
    fn users_take_turns(#[case] ready: &[(u32, u64)], #[case] expected: &[usize]) {
        let ready = ready.iter().enumerate();
        let ready =
            ready.map(|(what, (uid, turn))| Ready { user: Some(*uid), last_turn: *turn, what });
        assert_eq!(in_rounds(ready.collect()), expected);
    }

    #[test]
    fn a_backlog_serves_its_users_in_turn() {
        let mut backlog = Backlog::default();
        for (user, token) in [(1, 10), (1, 11), (1, 12), (2, 20), (3, 30), (3, 31)] {
            backlog.push(Some(user), token);
        }
        assert_eq!(backlog.len(), 6);
        let all: Vec<Token> = std::iter::from_fn(|| backlog.pop()).collect();
        assert_eq!(all, [10, 20, 30, 11, 31, 12]);
        assert_eq!((backlog.len(), backlog.pop()), (0, None));
        backlog.push(Some(1), 13);
        assert_eq!((backlog.pop(), backlog.len()), (Some(13), 0));
    }
}
