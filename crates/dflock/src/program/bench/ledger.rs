//! The holders of each key, as the load generator sees them: detects a server that grants too much.
//!
//! A key counts as held from the moment when its grant is read until just before its release is written. So
//! the count is never too high, and a count above the limit is an error of the server. Pure.

/// Per key: holders now, and the fencing number of the last grant.
#[derive(Clone, Default)]
pub(super) struct Ledger {
    keys: Vec<Entry>,
    limit: u32,
    /// Grants beyond the limit.
    pub(super) overlaps: u64,
    /// Grants whose fencing number was not above the one before (counted for locks only: the
    /// answers to two holders of one semaphore may be read in either order).
    pub(super) fence_regressions: u64,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    holders: u32,
    fence: u64,
}

impl Ledger {
    pub(super) fn new(keys: u32, limit: u32) -> Self {
        let keys = usize::try_from(keys).unwrap_or(usize::MAX);
        let keys = vec![Entry::default(); keys];
        Self { keys, limit, overlaps: 0, fence_regressions: 0 }
    }

    pub(super) fn granted(&mut self, key: usize, fence: Option<u64>) {
        let Some(entry) = self.keys.get_mut(key) else { return };
        entry.holders += 1;
        if entry.holders > self.limit {
            self.overlaps += 1;
        }
        let Some(fence) = fence else { return };
        if self.limit == 1 && fence <= entry.fence {
            self.fence_regressions += 1;
        }
        entry.fence = fence;
    }

    pub(super) fn releasing(&mut self, key: usize) {
        if let Some(entry) = self.keys.get_mut(key) {
            entry.holders = entry.holders.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Ledger;

    #[test]
    fn a_second_holder_and_a_fence_that_goes_back_are_counted() {
        let mut ledger = Ledger::new(2, 1);
        ledger.granted(0, Some(5));
        ledger.granted(1, Some(6));
        assert_eq!((ledger.overlaps, ledger.fence_regressions), (0, 0));
        ledger.granted(0, Some(7));
        assert_eq!((ledger.overlaps, ledger.fence_regressions), (1, 0));
        ledger.releasing(0);
        ledger.releasing(0);
        ledger.granted(0, Some(7));
        assert_eq!((ledger.overlaps, ledger.fence_regressions), (1, 1));
    }

    #[test]
    fn a_semaphore_may_have_its_limit_of_holders_in_any_order() {
        let mut ledger = Ledger::new(1, 2);
        ledger.granted(0, Some(9));
        ledger.granted(0, Some(8));
        assert_eq!((ledger.overlaps, ledger.fence_regressions), (0, 0));
        ledger.granted(0, Some(10));
        assert_eq!(ledger.overlaps, 1);
    }
}
