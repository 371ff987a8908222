//! The engine's counters of events, and its numbers of keys, holders and waiters. Pure.

use super::request::Refusal;
use super::terms::Limit;

/// Upper bounds of the wait histogram's buckets in microseconds; one more bucket has no bound.
pub const WAIT_BOUNDS_MICROS: [u64; 9] =
    [100, 1_000, 5_000, 10_000, 50_000, 100_000, 1_000_000, 10_000_000, 60_000_000];

/// The waiting times of granted requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Per bucket, not cumulated; bounds are [`WAIT_BOUNDS_MICROS`].
    pub buckets: [u64; WAIT_BOUNDS_MICROS.len() + 1],
    /// All waits together.
    pub sum_micros: u64,
    /// Number of waits.
    pub count: u64,
}

impl Histogram {
    /// Counts one wait.
    pub fn record(&mut self, micros: u64) {
        let place = WAIT_BOUNDS_MICROS.partition_point(|&bound| bound < micros);
        if let Some(bucket) = self.buckets.get_mut(place) {
            *bucket = bucket.wrapping_add(1);
        }
        self.sum_micros = self.sum_micros.saturating_add(micros);
        self.count = self.count.wrapping_add(1);
    }
}

/// Events since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Slots given out.
    pub grants: u64,
    /// Slots given back by token.
    pub releases: u64,
    /// Slots freed because their connection ended.
    pub disconnect_releases: u64,
    /// Leases renewed by token.
    pub renewals: u64,
    /// Leases that ran out.
    pub expiries: u64,
    /// Waits that ended without a grant.
    pub timeouts: u64,
    /// Refused requests, indexed by the place of their [`Refusal`].
    pub refusals: [u64; Refusal::ALL.len()],
    /// The times from request to grant, including immediate grants.
    pub waits: Histogram,
}

impl Counters {
    /// Counts one refusal.
    pub(super) fn refuse(&mut self, refusal: Refusal) {
        if let Some(count) = self.refusals.get_mut(refusal as usize) {
            *count = count.wrapping_add(1);
        }
    }

    /// Refusals of one kind.
    #[must_use]
    pub fn refused(&self, refusal: Refusal) -> u64 {
        self.refusals.get(refusal as usize).copied().unwrap_or_default()
    }
}

/// The numbers of entries in the tables. They are updated at each change, so that no search is necessary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Keys with a limit of 1 that have a holder or a waiter.
    pub locks: usize,
    /// Keys with a greater limit that have a holder or a waiter.
    pub semaphores: usize,
    /// Keys with a limit of 1 that have neither.
    pub idle_locks: usize,
    /// Keys with a greater limit that have neither.
    pub idle_semaphores: usize,
    /// Holders of locks, readers among them.
    pub lock_holders: usize,
    /// Readers: holders that share a lock.
    pub lock_readers: usize,
    /// Slots of semaphores that are held.
    pub semaphore_holders: usize,
    /// Places in queues of locks.
    pub lock_waiters: usize,
    /// Places in queues of semaphores.
    pub semaphore_waiters: usize,
}

/// Whether a key has a holder or a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Busy,
    Idle,
}

impl Census {
    /// All keys.
    #[must_use]
    pub const fn known(&self) -> usize {
        self.locks + self.semaphores + self.idle_locks + self.idle_semaphores
    }

    /// All holds.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.lock_holders + self.semaphore_holders
    }

    /// All places in queues.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.lock_waiters + self.semaphore_waiters
    }

    /// The counter of keys with this limit and use.
    pub(super) const fn keys(&mut self, limit: Limit, usage: Use) -> &mut usize {
        match (limit, usage) {
            (Limit::ONE, Use::Busy) => &mut self.locks,
            (_, Use::Busy) => &mut self.semaphores,
            (Limit::ONE, Use::Idle) => &mut self.idle_locks,
            (_, Use::Idle) => &mut self.idle_semaphores,
        }
    }

    /// The counter of holders of keys with this limit.
    pub(super) const fn holders(&mut self, limit: Limit) -> &mut usize {
        if limit.count() == 1 { &mut self.lock_holders } else { &mut self.semaphore_holders }
    }

    /// The counter of waiters of keys with this limit.
    pub(super) const fn waiters(&mut self, limit: Limit) -> &mut usize {
        if limit.count() == 1 { &mut self.lock_waiters } else { &mut self.semaphore_waiters }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(0, 0)]
    #[case(100, 0)]
    #[case(101, 1)]
    #[case(60_000_000, 8)]
    #[case(60_000_001, 9)]
    fn each_wait_is_counted_in_its_bucket(#[case] micros: u64, #[case] bucket: usize) {
        let mut waits = Histogram::default();
        waits.record(micros);
        assert_eq!((waits.buckets[bucket], waits.count, waits.sum_micros), (1, 1, micros));
    }
}
