//! The one timer of the server: it sleeps until the next deadline of a lease, a wait or a connection. A
//! request wakes it only if it brings an earlier deadline.

use super::core::Shared;
use leases::Moment;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// How often the driver runs if nothing is pending.
const IDLE: Duration = Duration::from_secs(3600);

/// Runs for as long as the server.
pub(super) struct Driver {
    shared: Arc<Shared>,
    sleep: Pin<Box<Sleep>>,
}

impl Driver {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, sleep: Box::pin(sleep(Duration::ZERO)) }
    }

    fn wake_at(&self, next: Moment) -> Instant {
        let idle = Instant::now() + IDLE;
        self.shared.instant(next).map_or(idle, |at| Instant::from_std(at).min(idle))
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let now = self.shared.now();
            let next = self.shared.core().turn(now, cx.waker());
            if next <= now {
                // More is due than one turn serves: connections get their turn first.
                yield_turn(cx);
                return Poll::Pending;
            }
            let at = self.wake_at(next);
            self.sleep.as_mut().reset(at);
            ready!(self.sleep.as_mut().poll(cx));
        }
    }
}

/// Continues after tokio has asked the kernel for events. A task that only wakes itself would be polled up to
/// `event_interval` times before that.
pub(super) fn yield_turn(cx: &mut Context<'_>) {
    let _ = pin!(tokio::task::yield_now()).poll(cx);
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
