//! What the service asks of the operating system: one file for each kind of system. What a system does not
//! show is reported as unknown, and never guessed. Here is what is known about a peer, as values for every system.

use std::net::SocketAddr;

use pidlockfile::Pid;
pub(crate) use pidlockfile::process::Ids;

#[cfg_attr(target_os = "linux", path = "linux/mod.rs")]
#[cfg_attr(not(target_os = "linux"), path = "unix.rs")]
mod system;

pub(crate) use system::{Inquiry, ProcessStatus};
pub(crate) use system::{QUIETLY, SYSLOG, WHY_HIDDEN, acl, translate, unix_peer};

/// The two ends of a TCP connection as one of its sockets sees them, IPv4-mapped addresses as
/// IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketEnds {
    pub(crate) near: SocketAddr,
    pub(crate) far: SocketAddr,
}

/// What the kernel says of the peer at the other end of a connection.
pub(crate) struct PeerFacts {
    pub(crate) uid: Option<u32>,
    pub(crate) numbers: PidNumbers,
    /// The effective group of the process that connected, as it was then.
    pub(crate) gid: Option<u32>,
    /// Whether the process that connected was in the group that was asked for, as far as that is known.
    pub(crate) is_member: bool,
}

/// In which namespace a peer counts processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "only Linux has namespaces of process numbers")
)]
pub(crate) enum PidNumbers {
    /// In ours.
    Ours,
    /// In one of its own below ours; here it has this number.
    Own(Pid),
    /// It cannot be found out.
    Unknown,
}

/// The users and groups of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) users: Ids,
    pub(crate) groups: Ids,
    /// Its supplementary groups.
    pub(crate) more_groups: Vec<u32>,
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
    /// The user and groups whose rights count for an asker. A user who names a waiting `su(1)` gets no right of root: an
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
    const UUCP: u32 = 10;
    const DIALOUT: u32 = 20;

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
