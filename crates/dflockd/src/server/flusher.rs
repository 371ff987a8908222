//! Writes the changes of holds, once for each turn of the loop, and wakes the connections whose answers
//! depend on them. With `--state-sync` one sync is under way at a time, in a thread of its own, and later
//! changes share the next one.

use super::core::Shared;
use super::driver::yield_turn;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::task::{JoinHandle, spawn_blocking};

/// Runs for as long as the server.
pub(super) struct Flusher {
    shared: Arc<Shared>,
    sync: Option<(JoinHandle<io::Result<()>>, u64)>,
}

impl Flusher {
    pub(super) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared, sync: None }
    }

    /// Ready when a sync has ended and the next one may begin.
    fn poll_sync(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some((job, upto)) = &mut self.sync else { return Poll::Pending };
        let upto = *upto;
        let result = match Pin::new(job).poll(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(result) => result.unwrap_or_else(|err| Err(io::Error::other(err))),
        };
        self.sync = None;
        let now = self.shared.now();
        self.shared.core().end_sync(upto, result, now);
        Poll::Ready(())
    }
}

impl Future for Flusher {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let now = self.shared.now();
        let more = self.shared.core().flush(now, cx.waker());
        loop {
            if self.sync.is_none() {
                let begun = self.shared.core().begin_sync();
                self.sync =
                    begun.map(|(file, upto)| (spawn_blocking(move || file.sync_data()), upto));
            }
            if self.poll_sync(cx).is_pending() {
                break;
            }
        }
        if more {
            yield_turn(cx);
        }
        Poll::Pending
    }
}
