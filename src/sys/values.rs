//! What is known about a peer, as values for every system. Pure.

use std::net::SocketAddr;

use pidlockfile::Pid;

/// The two ends of a TCP connection as one of its sockets sees them, IPv4-mapped addresses as
/// IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connection {
    pub(crate) near: SocketAddr,
    pub(crate) far: SocketAddr,
}

/// What is told of the peer at the other end of a connection.
pub(crate) struct PeerFacts {
    pub(crate) uid: Option<u32>,
    pub(crate) numbers: Numbers,
    /// The effective group of the process that connected, as it was then.
    pub(crate) gid: Option<u32>,
    /// Whether the process that connected was in the group that was asked for, as far as that can be told.
    pub(crate) is_member: bool,
}

/// In which namespace a peer counts processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "only Linux has namespaces of process numbers")
)]
pub(crate) enum Numbers {
    /// In ours.
    Ours,
    /// In one of its own below ours; here it has this number.
    Own(Pid),
    /// Nobody tells.
    Unknown,
}

/// The users and groups of a process. Real ones are those of the user who started it; a program with the set-user-ID or
/// set-group-ID bit has another effective one (credentials(7)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) users: Ids,
    pub(crate) groups: Ids,
    /// Its supplementary groups.
    pub(crate) more_groups: Vec<u32>,
}

/// The users of a process, or its groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ids {
    pub(crate) real: u32,
    pub(crate) effective: u32,
    pub(crate) saved: u32,
}

impl Ids {
    /// These of a process that has never changed them.
    pub(crate) fn all(id: u32) -> Self {
        Self { real: id, effective: id, saved: id }
    }

    /// Whether a process with these users is a user's, by the rule of kill(2): the user has started it, or the program
    /// runs as that user by its set-user-ID bit. A program of root that is another user for a moment stays root's.
    pub(crate) fn belong_to(self, uid: u32) -> bool {
        [self.real, self.saved].contains(&uid)
    }

    /// The user for whom the locks of such a process are counted, as [`pidlockfile::process::owner`] says: the effective
    /// one; where that is root, the one who started it.
    pub(crate) fn owner(self) -> u32 {
        if self.effective == 0 { self.real } else { self.effective }
    }
}

/// On whose behalf a process is to hold a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// Root, the process itself, or somebody who is believed.
    Trusted,
    /// A user, as far as user and group are known.
    User { uid: Option<u32>, gid: Option<u32> },
}

/// The user and groups whose rights to a device count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) user: u32,
    pub(crate) groups: Vec<u32>,
}

impl Credentials {
    /// Whose rights count when somebody asks. A user who names a waiting `su(1)` gets no right of root by that: an
    /// effective user or group counts only if the asker is that user or in that group, like a set-user-ID program that
    /// asks for itself.
    pub(crate) fn subject_for(&self, asker: Asker) -> Subject {
        let counting = |ids: Ids, own: Option<u32>| match asker {
            Asker::User { .. } if own != Some(ids.effective) => ids.real,
            Asker::User { .. } | Asker::Trusted => ids.effective,
        };
        let (uid, gid) = match asker {
            Asker::Trusted => (None, None),
            Asker::User { uid, gid } => (uid, gid),
        };
        let groups = std::iter::once(counting(self.groups, gid));
        Subject {
            user: counting(self.users, uid),
            groups: groups.chain(self.more_groups.iter().copied()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const ALICE: u32 = 1000;
    const BOB: u32 = 1001;
    const UUCP: u32 = 10;
    const DIALOUT: u32 = 20;

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

    const fn user(uid: u32, gid: u32) -> Asker {
        Asker::User { uid: Some(uid), gid: Some(gid) }
    }

    const UNKNOWN: Asker = Asker::User { uid: None, gid: None };
    const SU: (Ids, Ids) =
        (Ids { real: ALICE, effective: 0, saved: 0 }, Ids { real: 7, effective: 7, saved: 7 });
    const DIALER: (Ids, Ids) = (
        Ids { real: ALICE, effective: UUCP, saved: UUCP },
        Ids { real: 7, effective: DIALOUT, saved: DIALOUT },
    );

    #[rstest]
    #[case::su_for_its_user(SU, user(ALICE, 7), (ALICE, 7))]
    #[case::su_for_root(SU, Asker::Trusted, (0, 7))]
    #[case::su_for_nobody_knows_whom(SU, UNKNOWN, (ALICE, 7))]
    #[case::a_dialer_for_its_user(DIALER, user(ALICE, 7), (ALICE, 7))]
    #[case::a_dialer_for_itself(DIALER, user(UUCP, DIALOUT), (UUCP, DIALOUT))]
    #[case::a_dialer_over_tcp(DIALER, Asker::User { uid: Some(UUCP), gid: None }, (UUCP, 7))]
    #[case::a_dialer_for_a_member(DIALER, user(ALICE, DIALOUT), (ALICE, DIALOUT))]
    #[case::a_dialer_for_root(DIALER, Asker::Trusted, (UUCP, DIALOUT))]
    fn an_effective_id_counts_for_whom_it_belongs_to(
        #[case] (users, groups): (Ids, Ids),
        #[case] asker: Asker,
        #[case] (user, group): (u32, u32),
    ) {
        let process = Credentials { users, groups, more_groups: vec![24, 25] };
        let expected = Subject { user, groups: vec![group, 24, 25] };
        assert_eq!(process.subject_for(asker), expected);
    }
}
