//! How many descriptors a daemon may have, and how they are divided.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::limits::{CLOSINGS, KEPT_FILES};

/// Processes whose end the kernel reports to a daemon. The ends of others are looked for once a second.
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
    /// Of so many, of which so many are the daemon's own.
    pub(super) fn of(descriptors: usize, own: usize, wanted: usize) -> Self {
        let spare = descriptors.saturating_sub(own);
        let eighth = spare / 8;
        let (kept, watched) = (eighth.min(KEPT_FILES), eighth.min(WATCHED_PROCESSES));
        let left = spare.saturating_sub(kept).saturating_sub(watched);
        Self { connections: left.min(wanted).max(1), kept, watched }
    }
}

/// How many descriptors a daemon needs for itself, which has opened so many lock directories: those that are
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
