//! The results of a load run: the latencies, the holders of each key, and the table for people and JSON for programs that
//! they become. Pure.
//!
//! Latencies are counted by size. A value keeps its seven leading bits, so a quantile is at most 1.6 % above the value it
//! stands for, and there are few different ones.
//!
//! The ledger of holders detects a server that grants too much. A key counts as held from the moment when its grant is
//! read until just before its release is written. So the count is never too high, and a count above the limit is an
//! error of the server.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The result of a load run. Only pairs that ended after the warm-up are in the figures; refusals
/// and violations are counted from the first request on.
#[derive(Clone, Default)]
pub(super) struct Report {
    /// Connections of the run.
    pub(super) connections: u32,
    /// Different keys of the run.
    pub(super) keys: u32,
    /// Pairs under way per connection.
    pub(super) depth: u32,
    /// Measured time.
    pub(super) elapsed: Duration,
    /// Completed pairs.
    pub(super) pairs: u64,
    /// From sending the acquire to reading the answer to the release.
    pub(super) pair: Histogram,
    /// From sending the acquire to reading the grant.
    pub(super) acquire: Histogram,
    /// Answers that were neither grant nor `ok`.
    pub(super) refusals: BTreeMap<String, u64>,
    /// Connections the server closed.
    pub(super) closed: u64,
    /// The holders of each key.
    pub(super) ledger: Ledger,
    /// User and system time this process spent in the measured time.
    pub(super) client_cpu: Duration,
}

impl Report {
    /// Completed pairs per second of measured time.
    pub(super) fn pairs_per_second(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { self.pairs as f64 / seconds } else { 0.0 }
    }

    /// One JSON object on one line; times in microseconds.
    pub(super) fn to_json(&self) -> serde_json::Value {
        let refusals: serde_json::Map<String, serde_json::Value> =
            self.refusals.iter().map(|(word, count)| (word.clone(), (*count).into())).collect();
        serde_json::json!({
            "connections": self.connections,
            "keys": self.keys,
            "depth": self.depth,
            "elapsed_s": self.elapsed.as_secs_f64(),
            "pairs": self.pairs,
            "pairs_per_s": self.pairs_per_second(),
            "pair_us": latencies(&self.pair),
            "acquire_us": latencies(&self.acquire),
            "refusals": refusals,
            "closed": self.closed,
            "overlaps": self.ledger.overlaps,
            "fence_regressions": self.ledger.fence_regressions,
            "client_cpu_s": self.client_cpu.as_secs_f64(),
        })
    }
}

fn latencies(row: &Histogram) -> serde_json::Value {
    columns(row).into_iter().map(|(name, micros)| (name.to_owned(), micros)).collect()
}

/// In microseconds, to a tenth of one, which is below what a clock reading costs.
fn columns(row: &Histogram) -> [(&'static str, f64); 6] {
    [
        ("mean", row.mean()),
        ("p50", row.quantile(500)),
        ("p90", row.quantile(900)),
        ("p99", row.quantile(990)),
        ("p999", row.quantile(999)),
        ("max", row.max()),
    ]
    .map(|(name, time)| (name, (time.as_secs_f64() * 1e7).round() / 10.0))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} connections, {} keys, depth {}: {} pairs in {:.2} s = {:.0} pairs/s",
            self.connections,
            self.keys,
            self.depth,
            self.pairs,
            self.elapsed.as_secs_f64(),
            self.pairs_per_second(),
        )?;
        writeln!(
            f,
            "{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>11}",
            "us", "mean", "p50", "p90", "p99", "p99.9", "max"
        )?;
        row(f, "pair", &self.pair)?;
        row(f, "acquire", &self.acquire)?;
        for (word, count) in &self.refusals {
            writeln!(f, "refused {count} times: {word}")?;
        }
        if self.closed > 0 {
            writeln!(f, "closed by the server: {} connections", self.closed)?;
        }
        let Ledger { overlaps, fence_regressions, .. } = self.ledger;
        if overlaps > 0 {
            writeln!(f, "FAULT: {overlaps} grants beyond the limit")?;
        }
        if fence_regressions > 0 {
            writeln!(f, "fencing numbers that did not grow: {fence_regressions}")?;
        }
        Ok(())
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, row: &Histogram) -> fmt::Result {
    let [times @ .., (_, max)] = columns(row);
    write!(f, "{name:>10}")?;
    times.iter().try_for_each(|(_, time)| write!(f, "{time:>10.1}"))?;
    writeln!(f, "{max:>11.1}")
}

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

/// Per key: holders now, and the fencing number of the last grant.
#[derive(Clone, Default)]
pub(super) struct Ledger {
    keys: Vec<KeyHolders>,
    limit: u32,
    /// Grants beyond the limit.
    pub(super) overlaps: u64,
    /// Grants whose fencing number was not above the one before (counted for locks only: the
    /// answers to two holders of one semaphore may be read in either order).
    pub(super) fence_regressions: u64,
}

#[derive(Clone, Copy, Default)]
struct KeyHolders {
    holders: u32,
    fence: u64,
}

impl Ledger {
    pub(super) fn new(keys: u32, limit: u32) -> Self {
        let keys = usize::try_from(keys).unwrap_or(usize::MAX);
        let keys = vec![KeyHolders::default(); keys];
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
    use std::time::Duration;

    use rstest::rstest;

    use super::{Histogram, Ledger, rounded_up};

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
