//! How many descriptors a daemon may have, how they are divided, and whether there is memory for more.

use std::hint::black_box;
use std::io;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use ttylock::limits::KEPT_FILES;

use crate::limits::{IN_PASSING, SPARE_MEMORY, WATCHED_PROCESSES};

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
/// open now, the directories once more, for the thread that answers STAT, so many for looks at other
/// processes, and what comes and goes.
pub(super) fn own(directories: usize, looks: usize) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").map_or(IN_PASSING, Iterator::count);
    // The records and their gate.
    let of_thread = directories.saturating_add(2);
    open.saturating_add(of_thread).saturating_add(looks).saturating_add(IN_PASSING)
}

/// How many descriptors this process may have, after asking for enough.
pub(super) fn descriptors(own: usize, connections: usize) -> usize {
    let needed = connections
        .saturating_add(KEPT_FILES)
        .saturating_add(WATCHED_PROCESSES)
        .saturating_add(own);
    let needed = rlim_t::try_from(needed).unwrap_or(rlim_t::MAX);
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return own };
    let wanted = needed.max(soft).min(hard);
    let given = match setrlimit(Resource::RLIMIT_NOFILE, wanted, hard) {
        Ok(()) => wanted,
        Err(_) => soft,
    };
    usize::try_from(given).unwrap_or(usize::MAX)
}

/// Whether there is memory for what comes next. A program that is refused a little of it cannot go on, so
/// more is asked for while it still can say no.
///
/// # Errors
/// [`Errno::ENOMEM`].
pub(super) fn spare_memory() -> io::Result<()> {
    let mut probe: Vec<u8> = Vec::new();
    let reserved = probe.try_reserve_exact(SPARE_MEMORY);
    // Or the compiler sees that nobody uses it, and leaves it out.
    black_box(&probe);
    reserved.map_err(|_| Errno::ENOMEM.into())
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
