//! The driver is the timer of the engine: it sleeps until the next deadline of a lease, a wait or a session. A request wakes it
//! only if it brings an earlier deadline, or changes a key that clients watch.

use super::core::Shared;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

/// How often the driver runs if nothing is pending.
const IDLE: Duration = Duration::from_secs(3600);

/// Runs for as long as the server.
pub(super) async fn drive(shared: Arc<Shared>) {
    let rearmed = Arc::clone(&shared.core().rearmed);
    loop {
        let now = shared.now();
        let next = {
            let mut core = shared.core();
            if core.end_idle_sessions(now, shared.settings.auto_release) {
                shared.changed.notify_one();
            }
            core.turn(now)
        };
        if next <= now {
            // More is due than one turn serves: connections get their turn first.
            yield_now().await;
            continue;
        }
        let idle = Instant::now() + IDLE;
        let at = shared.instant(next).map_or(idle, |at| Instant::from_std(at).min(idle));
        let _it_is_time = timeout_at(at, rearmed.notified()).await;
    }
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
