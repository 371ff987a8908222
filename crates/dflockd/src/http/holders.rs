//! The roster as JSON.

use crate::server::{Numbers, Roster};

/// `keys` has `shown` of the `matching` keys in use, those with the longest queues first. Each key has some of its
/// `held` holders, the longest hold first, and the first of its `waiters` waiters. Connections have the numbers of
/// `stats` and the log.
pub(super) fn holders_body(numbers: &Numbers, roster: &Roster) -> String {
    let Roster { entries, shown, matching } = roster;
    let census = &numbers.census;
    format!(
        "{{\"version\":\"{}\",\"uptime_s\":{},\"draining\":{},\"connections\":{},\
         \"keys_in_use\":{},\"holders\":{},\"waiters\":{},\"matching\":{matching},\"shown\":{shown},\
         \"keys\":[{entries}]}}",
        env!("CARGO_PKG_VERSION"),
        numbers.uptime.as_secs(),
        numbers.draining,
        numbers.open_connections,
        census.locks.in_use + census.semaphores.in_use,
        census.locks.holders + census.semaphores.holders,
        census.locks.waiters + census.semaphores.waiters,
    )
}
