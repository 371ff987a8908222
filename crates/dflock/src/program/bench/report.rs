//! The results of a load run, as a table for people and as JSON for programs. Pure.

use super::histogram::Histogram;
use super::ledger::Ledger;
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
