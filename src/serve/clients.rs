//! The connections of a daemon, and when each of them needs its next turn; and how many descriptors the daemon may have,
//! and how they are divided. Knows nothing of the service.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::admission::{ClientId, ConnectionLimits, CountedConnection, Decision, Owner};
use super::connection::Connection;
use crate::limits::{CLOSINGS, KEPT_FILES};

/// Every client.
#[derive(Debug)]
pub(super) struct Clients {
    caps: ConnectionLimits,
    idle_timeout: Duration,
    pub(super) members: BTreeMap<ClientId, Connection>,
    last: ClientId,
}

impl Clients {
    pub(super) fn within(caps: ConnectionLimits, idle_timeout: Duration) -> Self {
        Self { caps, idle_timeout, members: BTreeMap::new(), last: 0 }
    }

    /// The id of a client that comes: larger than all before it.
    pub(super) fn next_id(&mut self) -> ClientId {
        self.last = self.last.saturating_add(1);
        self.last
    }

    /// Whether a client may come in.
    pub(super) fn decide(&self, newcomer: Owner, now: Instant) -> Decision {
        let counted = |(id, connection): (&ClientId, &Connection)| CountedConnection {
            id: *id,
            owner: connection.client.owner,
            activity: connection.activity(now),
        };
        self.caps.decide(newcomer, &self.members.iter().map(counted).collect::<Vec<_>>())
    }

    pub(super) fn ids(&self) -> Vec<ClientId> {
        self.members.keys().copied().collect()
    }

    /// The connections with a moment, and that moment.
    fn moments(&self) -> impl Iterator<Item = (Instant, ClientId, &Connection)> {
        self.members.iter().filter_map(|(id, connection)| {
            Some((connection.moment(self.idle_timeout)?, *id, connection))
        })
    }

    /// When the next connection has something to do, or its time is over, if no client does anything.
    pub(super) fn next_moment(&self) -> Option<Instant> {
        self.moments().map(|(moment, ..)| moment).min()
    }

    /// The connections that have something to do now. Each gets one turn.
    pub(super) fn due(&self, now: Instant) -> Vec<ClientId> {
        let moments = self.moments().map(|(moment, id, it)| (moment, id, it.goes_on()));
        due(moments, now)
    }
}

/// The connections whose moments have come. Some go on by themselves, because they have sent more than one turn
/// answers, or because they try a contended request again. Of these, only the first is due, so that other clients come
/// in between.
fn due(moments: impl Iterator<Item = (Instant, ClientId, bool)>, now: Instant) -> Vec<ClientId> {
    let due = moments.filter(|(moment, ..)| *moment <= now);
    let (going_on, over): (Vec<_>, Vec<_>) = due.partition(|(.., goes_on)| *goes_on);
    let first = going_on.into_iter().min();
    first.into_iter().chain(over).map(|(_, id, _)| id).collect()
}

/// The most processes whose end the kernel reports to a daemon. The ends of others are searched for once a second.
const WATCHED_PROCESSES: usize = 512;

/// Descriptors for the files of one request and of the thread that answers STAT, and for sockets.
const IN_PASSING: usize = 10;

/// Descriptors of the thread of `--exclusive`, besides its lock directories: its events, a search, and the duplicates
/// that are being closed.
const OF_EXCLUSIVE: usize = 16 + CLOSINGS;

/// How the descriptors are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shares {
    pub(super) connections: usize,
    pub(super) kept: usize,
    pub(super) watched: usize,
}

impl Shares {
    /// Divides this many descriptors, of which the daemon needs `own` for itself, where `wanted` are wanted for connections.
    pub(super) fn of(descriptors: usize, own: usize, wanted: usize) -> Self {
        let spare = descriptors.saturating_sub(own);
        let eighth = spare / 8;
        let (kept, watched) = (eighth.min(KEPT_FILES), eighth.min(WATCHED_PROCESSES));
        let left = spare.saturating_sub(kept).saturating_sub(watched);
        Self { connections: left.min(wanted).max(1), kept, watched }
    }
}

/// How many descriptors a daemon needs for itself if it has opened this many lock directories: those that are
/// open now, the directories once more, for the thread that answers STAT, those of the thread of `--exclusive`, and what
/// comes and goes.
pub(super) fn own(directories: usize, makes_exclusive: bool) -> usize {
    let of_exclusive = if makes_exclusive { OF_EXCLUSIVE } else { 0 };
    let open = std::fs::read_dir("/proc/self/fd").map_or(IN_PASSING, Iterator::count);
    // The records and their gate.
    let of_thread = directories.saturating_add(2);
    open.saturating_add(of_thread).saturating_add(of_exclusive).saturating_add(IN_PASSING)
}

/// How many descriptors this process may have, after asking for all that it can get.
pub(super) fn descriptors() -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 0 };
    let raised = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    usize::try_from(raised.map_or(soft, |()| hard)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// However many connections have sent more than one turn answers: one of them has a turn before news of other
    /// clients is taken. A connection whose time is over does not wait for them.
    #[test]
    fn one_connection_goes_on_by_itself_before_others_come_in() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let due = |present: &[(Instant, ClientId, bool)]| due(present.iter().copied(), now);
        let present = [(later, 1, true), (now, 2, true), (now, 3, true), (later, 4, false)];
        assert_eq!(due(&present), [2]);
        assert_eq!(due(&present[2..]), [3]);
        assert_eq!(due(&present[3..]), [0; 0]);
        assert_eq!(
            due(&[(now, 1, true), (now, 2, true), (now, 3, false), (now, 4, false)]),
            [1, 3, 4]
        );
    }

    #[rstest]
    #[case::plenty(100_000, 40, 4096, 4096, KEPT_FILES, WATCHED_PROCESSES)]
    #[case::common(1024, 64, 4096, 720, 120, 120)]
    #[case::few(64, 40, 4096, 18, 3, 3)]
    #[case::one_more_than_its_own(41, 40, 4096, 1, 0, 0)]
    #[case::as_many_as_its_own(40, 40, 4096, 1, 0, 0)]
    #[case::too_few(10, 40, 4096, 1, 0, 0)]
    #[case::wanted(1024, 64, 5, 5, 120, 120)]
    fn descriptors_are_shared_out(
        #[case] descriptors: usize,
        #[case] own: usize,
        #[case] wanted: usize,
        #[case] connections: usize,
        #[case] kept: usize,
        #[case] watched: usize,
    ) {
        assert_eq!(Shares::of(descriptors, own, wanted), Shares { connections, kept, watched });
    }
}
