//! Latencies, counted by size. Pure.
//!
//! A value keeps its seven leading bits, so a quantile is at most 1.6 % above the value it stands for, and there are
//! few different ones.

use std::collections::BTreeMap;
use std::time::Duration;

/// Counts of values by size.
#[derive(Clone, Default)]
pub(super) struct Histogram {
    /// By the greatest value with the same leading bits, in nanoseconds.
    counts: BTreeMap<u64, u64>,
    count: u64,
    sum: Duration,
    max: Duration,
}

impl Histogram {
    /// Counts one value.
    pub(super) fn record(&mut self, value: Duration) {
        let nanos = u64::try_from(value.as_nanos()).unwrap_or(u64::MAX);
        *self.counts.entry(rounded_up(nanos)).or_default() += 1;
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        self.max = self.max.max(value);
    }

    /// The largest value, exact.
    pub(super) fn max(&self) -> Duration {
        self.max
    }

    /// The arithmetic mean, zero when empty.
    pub(super) fn mean(&self) -> Duration {
        let mean = self.sum.as_nanos().checked_div(self.count.into()).unwrap_or(0);
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// The value below or at which `per_mille` thousandths of all values lie, rounded up but never above the maximum.
    /// Zero when empty.
    pub(super) fn quantile(&self, per_mille: u32) -> Duration {
        let wanted = (u128::from(self.count) * u128::from(per_mille.min(1000))).div_ceil(1000);
        let mut seen = 0_u128;
        let found = self.counts.iter().find(|(_, count)| {
            seen += u128::from(**count);
            seen >= wanted
        });
        found.map_or(Duration::ZERO, |(&nanos, _)| Duration::from_nanos(nanos).min(self.max))
    }
}

fn rounded_up(value: u64) -> u64 {
    let bits = value.checked_ilog2().unwrap_or(0).saturating_sub(6);
    value | ((1 << bits) - 1)
}

#[cfg(test)]
mod tests {
    use super::{Histogram, rounded_up};
    use rstest::rstest;
    use std::time::Duration;

    #[rstest]
    #[case(0, 0)]
    #[case(127, 127)]
    #[case(128, 129)]
    #[case(129, 129)]
    #[case(1_000_000, 1_007_615)]
    #[case(u64::MAX - 1, u64::MAX)]
    #[case(u64::MAX, u64::MAX)]
    fn a_value_keeps_its_leading_bits(#[case] value: u64, #[case] want: u64) {
        assert_eq!(rounded_up(value), want);
        assert!(want - value <= value / 64);
    }

    #[test]
    fn quantiles_of_a_known_row() {
        let mut row = Histogram::default();
        for value in 1..=1000_u64 {
            row.record(Duration::from_nanos(value * 1000));
        }
        assert_eq!(row.count, 1000);
        assert_eq!(row.mean(), Duration::from_nanos(500_500));
        assert_eq!(row.max(), Duration::from_millis(1));
        for (per_mille, exact) in [(500, 500_000_u128), (990, 990_000), (999, 999_000)] {
            let got = row.quantile(per_mille).as_nanos();
            assert!(got >= exact && got <= exact + exact / 60, "{per_mille}: {got}");
        }
        assert_eq!(row.quantile(1000), row.max());
    }
}
