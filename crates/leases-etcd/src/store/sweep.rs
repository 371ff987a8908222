//! Periodic work on a snapshot of all keys: finds holds without a front-end, and forgets keys that were idle for
//! long, in etcd and here.

use super::Inner;
use super::calls::BUDGET_MICROS;
use super::picture::Picture;
use super::txn;
use leases::{Moment, Refusal};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The greatest part of the time that snapshots for the sweep may take.
const SHARE: u32 = 20;
/// The same if most keys of the last snapshot are free again, so that its memory is returned sooner.
const SHARE_OF_OUTDATED: u32 = 4;
/// The most idle keys that are forgotten in one call. One by one, the keys of a busy hour would stay for another
/// hour.
const FORGOTTEN_TOGETHER: usize = 100;

/// When the next snapshot may be made.
#[derive(Clone, Copy, Debug)]
struct Pace {
    due: Instant,
    due_if_outdated: Instant,
}

impl Pace {
    /// After a snapshot that took this long.
    fn since(end: Instant, took: Duration) -> Self {
        let after = |share| end + took.saturating_mul(share);
        Self { due: after(SHARE), due_if_outdated: after(SHARE_OF_OUTDATED) }
    }

    fn is_due(self, now: Instant, is_outdated: bool) -> bool {
        now >= if is_outdated { self.due_if_outdated } else { self.due }
    }
}

impl Inner {
    /// Sweeps from time to time, and at once when a front-end has gone.
    pub(super) async fn sweep(self: Arc<Self>) {
        let least = Duration::from_secs(self.caps.gc_interval.count());
        let mut pace = Pace::since(Instant::now(), Duration::ZERO);
        while !self.is_closed() {
            let is_told = tokio::select! {
                () = tokio::time::sleep(least) => false,
                () = self.sweep_now.notified() => true,
            };
            if self.state().session.is_none() {
                continue;
            }
            let begun = Instant::now();
            if is_told || pace.is_due(begun, self.state().is_outdated()) {
                let _there_is_the_one_before = self.take_picture().await;
                pace = Pace::since(Instant::now(), begun.elapsed());
            }
            self.tidy().await;
        }
    }

    /// Forgets keys that were idle for too long.
    async fn tidy(self: &Arc<Self>) {
        self.forget_idle().await;
        self.stir();
    }

    /// Removes keys that were idle for longer than they are kept, also from the snapshot, because the next one may
    /// come much later.
    async fn forget_idle(self: &Arc<Self>) {
        let now = self.now();
        let idle = self.caps.gc_max_idle.count().saturating_mul(1_000_000);
        let mut over: Vec<(Box<[u8]>, i64)> = {
            let state = self.state();
            let is_over = |since: Moment| now.micros_since(since) > idle;
            let picture = state.picture.iter().filter(|picture| is_over(picture.first_idle()));
            // A key that we have used since is not idle, or not for this long. A key that others have used has
            // another revision.
            picture
                .flat_map(Picture::idle)
                .filter(|(since, key, _)| is_over(*since) && !state.left.contains_key(*key))
                .map(|(_, key, revision)| (key.into(), revision))
                .collect()
        };
        let mut asked = 0;
        for many in over.chunks(FORGOTTEN_TOGETHER) {
            if !self.forget_together(many).await {
                break;
            }
            asked += many.len();
        }
        over.truncate(asked);
        let mut state = self.state();
        if let Some(picture) = &mut state.picture {
            picture.leave_out(&over);
            state.census = picture.census();
        }
    }

    /// Whether etcd answered for all of them: each is gone or in use again.
    async fn forget_together(self: &Arc<Self>, many: &[(Box<[u8]>, i64)]) -> bool {
        let until = self.now().after_micros(BUDGET_MICROS);
        let mut under_way = JoinSet::new();
        for (key, revision) in many {
            let inner = Arc::clone(self);
            let forget = txn::forget(&self.names, key, *revision);
            under_way.spawn(async move { inner.again(forget, until).await });
        }
        while let Some(outcome) = under_way.join_next().await {
            if !matches!(outcome, Ok(Ok(_))) {
                return false;
            }
        }
        self.state().changes += 1;
        true
    }

    /// Forgets the keys that were idle for longest, one for each new key. False if there are not enough idle keys.
    pub(super) async fn make_room(self: &Arc<Self>, new: &[Arc<[u8]>]) -> Result<bool, Refusal> {
        let mut wanted = new.len();
        self.take_picture().await?;
        let mut idle: Vec<(Moment, Box<[u8]>, i64)> = {
            let state = self.state();
            let keys = state.picture.iter().flat_map(Picture::idle);
            keys.filter(|(_, key, _)| !new.iter().any(|new| **new == **key))
                .map(|(since, key, revision)| (since, key.into(), revision))
                .collect()
        };
        idle.sort_unstable();
        for (_, key, revision) in idle {
            let until = self.now().after_micros(BUDGET_MICROS);
            let forget = txn::forget(&self.names, &key, revision);
            if self.again(forget, until).await?.answer.succeeded {
                self.state().changes += 1;
                wanted -= 1;
                if wanted == 0 {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
#[path = "sweep_tests.rs"]
mod tests;
