//! A limit of the service that the client keeps, and limits of its own: how long it is waited for, in every program and
//! library of ours. Pure.

use std::time::Duration;

/// The longest time that one WAIT to a service may name, in seconds: one day (the service's own
/// limit). A client that waits longer asks again.
pub(crate) const WAIT_MAX_SECS: u32 = 86_400;

/// Time for a search for holders that a command shows or removes, and for locks of its own ancestors. A STAT of the
/// service ends earlier.
#[cfg(feature = "cli")]
pub(crate) const COMMAND_SEARCH: Duration = Duration::from_secs(2);

/// The same for the names of holders in a complaint.
pub(crate) const COMPLAINT_SEARCH: Duration = Duration::from_millis(500);

/// For reaching the service, for its greeting, and for each answer. Longer than a service takes for its slowest LOCK.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// For a release that was not confirmed and is repeated beside other work: the end of the process releases the lock in
/// any case.
pub const RELEASE_PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
#[cfg(feature = "cli")]
mod tests {
    use ttylock::limits::STATUS_SEARCH;

    use super::*;

    /// A command waits for what STAT finds.
    #[test]
    fn searches_end_before_their_callers_give_up() {
        const { assert!(COMPLAINT_SEARCH.as_millis() < STATUS_SEARCH.as_millis()) };
        const { assert!(2 * STATUS_SEARCH.as_millis() < COMMAND_SEARCH.as_millis()) };
    }
}
