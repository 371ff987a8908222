//! The engine's counters of events, and its numbers of keys, holders and waiters. Pure.

use super::request::Refusal;
use super::terms::Limit;

/// Upper bounds of the wait histogram's buckets in microseconds; one more bucket has no bound.
pub const WAIT_BOUNDS_MICROS: [u64; 9] =
    [100, 1_000, 5_000, 10_000, 50_000, 100_000, 1_000_000, 10_000_000, 60_000_000];

/// The waiting times of granted requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
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
        self.buckets[place] += 1;
        self.sum_micros = self.sum_micros.saturating_add(micros);
        self.count += 1;
    }
}

/// Events since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a server shows every number")]
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
    /// Refusals of one kind.
    #[must_use]
    pub fn refused(&self, refusal: Refusal) -> u64 {
        self.refusals[refusal as usize]
    }
}

/// The numbers of entries in the tables. They are updated at each change, so that no search is necessary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a server shows every number")]
pub struct Census {
    /// Of keys with a limit of 1.
    pub locks: Population,
    /// Of keys with a greater limit.
    pub semaphores: Population,
    /// Readers: holders that share a lock.
    pub lock_readers: usize,
}

/// The keys of one kind, and what is in their lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a server shows every number")]
pub struct Population {
    /// Keys that have a holder or a waiter.
    pub in_use: usize,
    /// Keys that have neither.
    pub idle: usize,
    /// Slots that are held, also those of readers.
    pub holders: usize,
    /// Places in queues.
    pub waiters: usize,
}

impl Census {
    /// The numbers of keys with this limit.
    pub(super) const fn of(&mut self, limit: Limit) -> &mut Population {
        if limit.count() == 1 { &mut self.locks } else { &mut self.semaphores }
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
