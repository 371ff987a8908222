//! Whose a process is, as `/proc/PID/status` shows it. Pure.

use super::stat::number;

/// The users of a process, or its groups. Real ones are those of the user who started it; a program with the set-user-ID or
/// set-group-ID bit has another effective and another saved one (credentials(7)).
///
/// The real user is the one who counts: limits, shares and what people read go by it. Whoever may signal the process
/// may also act for it ([`Ids::belong_to`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "credentials(7) has these, and one for files")]
pub struct Ids {
    /// Of the user who started the process.
    pub real: u32,
    /// Of the user whose rights it has.
    pub effective: u32,
    /// Of the user whose rights it may take again.
    pub saved: u32,
}

impl Ids {
    /// Those of a process that has never changed them.
    #[must_use]
    pub fn all(id: u32) -> Self {
        Self { real: id, effective: id, saved: id }
    }

    /// Whether a process with these users is a user's, by the rule of kill(2): the user has started it, or the program
    /// runs as that user by its set-user-ID bit. A program of root that is another user for a moment stays root's.
    #[must_use]
    pub fn belong_to(self, uid: u32) -> bool {
        [self.real, self.saved].contains(&uid)
    }

    /// Those in the line of `/proc/PID/status` that begins so (`Uid:`, `Gid:`): the real one, the effective one, the saved
    /// one, and that for files.
    #[must_use]
    pub fn in_status(status: &str, key: &str) -> Option<Self> {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        let mut words = line.split_ascii_whitespace().map(number);
        let mut next = || words.next()?;
        Some(Self { real: next()?, effective: next()?, saved: next()? })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const ALICE: u32 = 1000;
    const BOB: u32 = 1001;
    const UUCP: u32 = 10;

    fn ids(real: u32, effective: u32, saved: u32) -> Ids {
        Ids { real, effective, saved }
    }

    #[rstest]
    #[case::her_own(Ids::all(ALICE), ALICE, true)]
    #[case::another_users(Ids::all(BOB), ALICE, false)]
    #[case::she_has_started_su(ids(ALICE, 0, 0), ALICE, true)]
    #[case::she_has_started_a_set_user_id_program(ids(ALICE, UUCP, UUCP), ALICE, true)]
    #[case::it_runs_as_uucp(ids(ALICE, UUCP, UUCP), UUCP, true)]
    #[case::and_has_gone_back_for_a_moment(ids(ALICE, ALICE, UUCP), UUCP, true)]
    #[case::roots_daemon_is_her_for_a_moment(ids(0, ALICE, 0), ALICE, false)]
    fn a_process_is_of_whom_may_signal_it(
        #[case] users: Ids,
        #[case] uid: u32,
        #[case] theirs: bool,
    ) {
        assert_eq!(users.belong_to(uid), theirs);
    }

    #[rstest]
    #[case::four(
        "Name:\tsh\nUid:\t1000\t1001\t1002\t1003\nGid:\t7\t7\t7\t7\n",
        Some(ids(1000, 1001, 1002))
    )]
    #[case::one("Uid:\t1000\n", None)]
    #[case::two("Uid:\t1000\t1001\n", None)]
    #[case::no_number("Uid:\t1000\tx\t1002\t1003\n", None)]
    #[case::a_plus("Uid:\t+1000\t1001\t1002\t1003\n", None)]
    #[case::absent("Name:\tsh\nGid:\t7\t7\t7\t7\n", None)]
    #[case::empty("", None)]
    fn finds_the_users(#[case] status: &str, #[case] users: Option<Ids>) {
        assert_eq!(Ids::in_status(status, "Uid:"), users);
    }
}
