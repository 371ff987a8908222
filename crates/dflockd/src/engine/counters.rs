//! What the engine counts. Pure numbers that only grow.

/// Upper bounds of the wait histogram's buckets in microseconds; one more bucket has no bound.
pub const WAIT_BOUNDS_MICROS: [u64; 9] =
    [100, 1_000, 5_000, 10_000, 50_000, 100_000, 1_000_000, 10_000_000, 60_000_000];

/// How long granted requests waited.
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
    /// Slots freed because their connection went.
    pub disconnect_releases: u64,
    /// Leases started anew by token.
    pub renewals: u64,
    /// Leases that ran out.
    pub expiries: u64,
    /// Waits that ended without a grant.
    pub timeouts: u64,
    /// Requests refused with a status of their own.
    pub refusals: u64,
    /// From request to grant, immediate ones included.
    pub waits: Histogram,
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
    fn a_wait_lands_in_its_bucket(#[case] micros: u64, #[case] bucket: usize) {
        let mut waits = Histogram::default();
        waits.record(micros);
        assert_eq!((waits.buckets[bucket], waits.count, waits.sum_micros), (1, 1, micros));
    }
}
