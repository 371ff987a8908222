//! How many descriptors a daemon may have, and how they are shared out.

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use ttylock::limits::KEPT_FILES;

use crate::limits::{OWN_DESCRIPTORS, WATCHED_PROCESSES};

/// How the descriptors are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shares {
    pub(super) connections: usize,
    pub(super) kept: usize,
    pub(super) watched: usize,
}

impl Shares {
    pub(super) fn of(descriptors: usize, wanted: usize) -> Self {
        let spare = descriptors.saturating_sub(OWN_DESCRIPTORS);
        let eighth = spare / 8;
        let (kept, watched) = (eighth.min(KEPT_FILES), eighth.min(WATCHED_PROCESSES));
        let left = spare.saturating_sub(kept).saturating_sub(watched);
        Self { connections: left.min(wanted).max(1), kept, watched }
    }
}

/// How many descriptors this process may have, after asking for enough.
pub(super) fn descriptors(connections: usize) -> usize {
    let needed = connections
        .saturating_add(KEPT_FILES)
        .saturating_add(WATCHED_PROCESSES)
        .saturating_add(OWN_DESCRIPTORS);
    let needed = rlim_t::try_from(needed).unwrap_or(rlim_t::MAX);
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return OWN_DESCRIPTORS };
    let wanted = needed.max(soft).min(hard);
    let given = match setrlimit(Resource::RLIMIT_NOFILE, wanted, hard) {
        Ok(()) => wanted,
        Err(_) => soft,
    };
    usize::try_from(given).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plenty(100_000, 4096, 4096, KEPT_FILES, WATCHED_PROCESSES)]
    #[case::common(1024, 4096, 720, 120, 120)]
    #[case::few(80, 4096, 12, 2, 2)]
    #[case::too_few(10, 4096, 1, 0, 0)]
    #[case::wanted(1024, 5, 5, 120, 120)]
    fn descriptors_are_shared_out(
        #[case] descriptors: usize,
        #[case] wanted: usize,
        #[case] connections: usize,
        #[case] kept: usize,
        #[case] watched: usize,
    ) {
        assert_eq!(Shares::of(descriptors, wanted), Shares { connections, kept, watched });
    }
}
