//! Which `flock(2)` on a lock file counts: that of root, of the service and of the owner of the file. Every user who
//! may read the file can hold it, and such a user must not be able to block the port.

use pidlockfile::Pid;

use super::flock::{Completeness, FlockHolder, Sight};

/// The holder of `flock(2)` on a lock file, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flocker {
    /// A holder whose lock counts, or may count if its user is unknown: the file may not be broken.
    Counts(FlockHolder),
    /// A holder whose lock does not count.
    Ignored(FlockHolder),
    /// No holder, or a process that has ended since.
    Nobody,
}

impl Flocker {
    /// The holder that prevents the breaking of a stale lock file.
    pub(super) fn that_counts(self) -> Option<FlockHolder> {
        match self {
            Self::Counts(holder) => Some(holder),
            Self::Ignored(_) | Self::Nobody => None,
        }
    }
}

/// The users whose `flock(2)` on a lock file counts, as uids; root's always does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entitled {
    pub(super) own: u32,
    pub(super) owner: u32,
    /// Without a gate, every user's does.
    pub(super) everybody: bool,
}

/// `of` gives the user of a process, and whether the process exists. `all_seen` says whether the kernel shows
/// the processes of all pid namespaces. If not, a service in another one can be noticed in no other way.
///
/// A service releases its `flock(2)` on the file of a process that has ended, and a maker does so when its
/// lock is recorded. So a holder that has ended is neither of them.
pub(super) fn flocker(
    sight: &Sight,
    all_seen: bool,
    entitled: Entitled,
    of: impl Fn(Pid) -> (Option<u32>, bool),
) -> Flocker {
    let counts = |holder: &FlockHolder| match holder {
        FlockHolder::Unseen => true,
        FlockHolder::Process(_) if entitled.everybody => true,
        FlockHolder::Process(pid) => match of(*pid) {
            (Some(uid), _) => [0, entitled.own, entitled.owner].contains(&uid),
            (None, lives) => lives,
        },
    };
    let untold =
        sight.completeness != Completeness::Whole || (sight.holders.is_empty() && !all_seen);
    if let Some(holder) = sight.holders.iter().copied().find(counts) {
        return Flocker::Counts(holder);
    }
    if untold {
        return Flocker::Counts(FlockHolder::Unseen);
    }
    sight.holders.first().copied().map_or(Flocker::Nobody, Flocker::Ignored)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const ROOT: i64 = 1;
    const SERVICE: i64 = 2;
    const OWNER: i64 = 3;
    const OUTSIDER: i64 = 4;
    const HIDDEN: i64 = 5;
    const ENDED: i64 = 6;

    fn of(pid: Pid) -> (Option<u32>, bool) {
        match pid.to_string().parse().unwrap() {
            ROOT => (Some(0), true),
            SERVICE => (Some(10), true),
            OWNER => (Some(1000), true),
            OUTSIDER => (Some(1001), true),
            HIDDEN => (None, true),
            _ => (None, false),
        }
    }

    fn process(pid: i64) -> FlockHolder {
        Pid::new(pid).map_or(FlockHolder::Unseen, FlockHolder::Process)
    }

    #[rstest]
    #[case::root(&[ROOT], Completeness::Whole, true, Flocker::Counts(process(ROOT)))]
    #[case::a_service(&[SERVICE], Completeness::Whole, true, Flocker::Counts(process(SERVICE)))]
    #[case::the_files_owner(&[OWNER], Completeness::Whole, true, Flocker::Counts(process(OWNER)))]
    #[case::an_outsider(&[OUTSIDER], Completeness::Whole, true, Flocker::Ignored(process(OUTSIDER)))]
    #[case::both(&[OUTSIDER, OWNER], Completeness::Whole, true, Flocker::Counts(process(OWNER)))]
    #[case::an_unknown_owner(&[HIDDEN], Completeness::Whole, true, Flocker::Counts(process(HIDDEN)))]
    #[case::an_inherited_descriptor(&[ENDED], Completeness::Whole, true, Flocker::Ignored(process(ENDED)))]
    #[case::one_without_a_number(&[0], Completeness::Whole, true, Flocker::Counts(FlockHolder::Unseen))]
    #[case::nobody(&[], Completeness::Whole, true, Flocker::Nobody)]
    #[case::of_another_pid_namespace(&[], Completeness::Whole, false, Flocker::Counts(FlockHolder::Unseen))]
    #[case::an_outsider_in_a_container(&[OUTSIDER], Completeness::Whole, false, Flocker::Ignored(process(OUTSIDER)))]
    #[case::not_all_is_told(&[OUTSIDER], Completeness::Partial(None), true, Flocker::Counts(FlockHolder::Unseen))]
    fn the_flock_of_which_users_counts(
        #[case] pids: &[i64],
        #[case] completeness: Completeness,
        #[case] all_seen: bool,
        #[case] expected: Flocker,
    ) {
        let holders = pids.iter().copied().map(process).collect();
        let sight = Sight { holders, completeness };
        let gated = Entitled { own: 10, owner: 1000, everybody: false };
        assert_eq!(flocker(&sight, all_seen, gated, of), expected);
        // Without a gate, an outsider counts as well.
        let ungated = flocker(&sight, all_seen, Entitled { everybody: true, ..gated }, of);
        assert_eq!(ungated.that_counts().is_some(), expected != Flocker::Nobody);
    }
}
