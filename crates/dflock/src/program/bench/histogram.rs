//! A latency histogram of fixed size: a few kilobytes however many values it is given. Pure.
//!
//! Values are nanoseconds. Each power of two is cut into 64 equal steps, so a quantile is at most
//! 1.6 % above the value it stands for. Never allocates after it was made.

use std::time::Duration;

/// log2 of the steps per power of two.
const STEP_BITS: u32 = 6;
const STEPS: u64 = 1 << STEP_BITS;
/// Enough for every `u64`.
const CELLS: usize = (64 - STEP_BITS as usize + 1) << STEP_BITS;

/// Counts of values by size.
#[derive(Clone)]
pub(super) struct Histogram {
    cells: Box<[u64]>,
    count: u64,
    sum: u128,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { cells: vec![0; CELLS].into_boxed_slice(), count: 0, sum: 0, max: 0 }
    }
}

impl Histogram {
    /// Counts one value.
    pub(super) fn record(&mut self, value: Duration) {
        let nanos = u64::try_from(value.as_nanos()).unwrap_or(u64::MAX);
        if let Some(cell) = self.cells.get_mut(cell_of(nanos)) {
            *cell += 1;
        }
        self.count += 1;
        self.sum += u128::from(nanos);
        self.max = self.max.max(nanos);
    }

    /// The largest value, exact.
    pub(super) fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    /// The arithmetic mean, zero when empty.
    pub(super) fn mean(&self) -> Duration {
        let mean = self.sum.checked_div(u128::from(self.count)).unwrap_or(0);
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// The value below or at which `per_mille` thousandths of all values lie, rounded up to its
    /// cell's upper edge but never above the maximum. Zero when empty.
    pub(super) fn quantile(&self, per_mille: u32) -> Duration {
        let wanted = (u128::from(self.count) * u128::from(per_mille.min(1000))).div_ceil(1000);
        let mut seen = 0_u128;
        for (index, &cell) in self.cells.iter().enumerate() {
            seen += u128::from(cell);
            if cell > 0 && seen >= wanted {
                return Duration::from_nanos(upper_edge(index).min(self.max));
            }
        }
        self.max()
    }
}

/// Values below 64 have a cell each; above, the six bits behind the leading one choose the step.
fn cell_of(value: u64) -> usize {
    if value < STEPS {
        return usize::try_from(value).unwrap_or(0);
    }
    let shift = value.ilog2() - STEP_BITS;
    let step = (value >> shift) - STEPS;
    let cell = u64::from(shift + 1) * STEPS + step;
    usize::try_from(cell).unwrap_or(usize::MAX)
}

/// The largest value that falls into the cell.
fn upper_edge(cell: usize) -> u64 {
    let cell = cell as u64;
    let Some(shift) = (cell / STEPS).checked_sub(1) else { return cell };
    let lowest = u128::from(STEPS + cell % STEPS) << shift;
    u64::try_from(lowest + (1 << shift) - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{CELLS, Histogram, cell_of, upper_edge};
    use rstest::rstest;
    use std::time::Duration;

    #[rstest]
    #[case(0)]
    #[case(63)]
    #[case(64)]
    #[case(65)]
    #[case(127)]
    #[case(128)]
    #[case(1_000_000)]
    #[case(u64::MAX - 1)]
    #[case(u64::MAX)]
    fn a_value_lies_in_its_cell_and_the_cell_is_narrow(#[case] value: u64) {
        let cell = cell_of(value);
        assert!(cell < CELLS, "{cell}");
        assert!(upper_edge(cell) >= value);
        assert!(cell == 0 || upper_edge(cell - 1) < value);
        assert!(upper_edge(cell) - value <= value / 64);
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
    fn an_empty_histogram_gives_zeroes() {
        let empty = Histogram::default();
        assert_eq!(empty.quantile(999), Duration::ZERO);
        assert_eq!(empty.mean(), Duration::ZERO);
    }
}
