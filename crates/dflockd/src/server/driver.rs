//! The one timer of the server: it sleeps until the next deadline of a lease, a wait or a connection. A
//! request wakes it only if it brings an earlier deadline.

use super::core::Shared;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

/// How often the driver runs if nothing is pending.
const IDLE: Duration = Duration::from_secs(3600);

/// Runs for as long as the server.
pub(super) async fn drive(shared: Arc<Shared>) {
    loop {
        let now = shared.now();
        let next = poll_fn(|cx| Poll::Ready(shared.core().turn(now, cx.waker()))).await;
        if next <= now {
            // More is due than one turn serves: connections get their turn first.
            yield_now().await;
            continue;
        }
        let idle = Instant::now() + IDLE;
        let at = shared.instant(next).map_or(idle, |at| Instant::from_std(at).min(idle));
        let mut is_woken = false;
        let woken = poll_fn(|_| match std::mem::replace(&mut is_woken, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        });
        let _it_is_time = timeout_at(at, woken).await;
    }
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
