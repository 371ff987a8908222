//! The settings of a semaphore, their defaults, and the number of its slots.

use std::time::Duration;

use pidlockfile::Durability;

use crate::limits;
use crate::stale::{StalePolicy, StaleRule};

/// How a semaphore behaves. Begin with [`Config::default`], and change some of it.
///
/// ```
/// use std::time::Duration;
/// use file_semaphore::{Config, StaleRule};
///
/// let mut config = Config::default();
/// config.acquire_timeout = Some(Duration::from_secs(10));
/// config.stale_rule = StaleRule::Age;
/// assert_eq!(config.stale_timeout, Some(Duration::from_secs(3600)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// What counts as old; `None` means that no lock is ever stale. One hour.
    pub stale_timeout: Option<Duration>,
    /// When a lock is stale. [`StaleRule::Dead`].
    pub stale_rule: StaleRule,
    /// How long [`Semaphore::acquire`](crate::Semaphore::acquire) waits; `None` is for ever.
    pub acquire_timeout: Option<Duration>,
    /// The pause between two checks of a waiter to which nothing was reported. 100 ms.
    pub retry_interval: Duration,
    /// Tags are cut to so many characters, at most 10,000, which is also the default.
    pub longest_tag: usize,
    /// The permission bits of the lock file, whatever the umask; of 0666 ([`limits::MODE_BITS`]).
    /// 0644.
    pub mode: u32,
    /// How many may hold it at once. One.
    pub slots: Slots,
    /// Whether a lock is written to the disk before it counts. [`Durability::Disk`].
    pub durability: Durability,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            stale_timeout: Some(limits::STALE_TIMEOUT),
            stale_rule: StaleRule::Dead,
            acquire_timeout: None,
            retry_interval: limits::RETRY_INTERVAL,
            longest_tag: limits::LONGEST_TAG,
            mode: limits::MODE,
            slots: Slots::ONE,
            durability: Durability::Disk,
        }
    }
}

impl Config {
    pub(crate) fn stale_policy(&self) -> StalePolicy {
        StalePolicy { rule: self.stale_rule, timeout: self.stale_timeout }
    }
}

/// How many may hold a semaphore at once: 1 to [`MOST_SLOTS`](limits::MOST_SLOTS).
///
/// All users of a semaphore must agree on it: with one, the lock is the file itself; with more,
/// the files `PATH.1`, `PATH.2` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slots(u32);

impl Slots {
    /// A plain lock.
    pub const ONE: Self = Self(1);

    /// Checks a number of slots.
    #[must_use]
    pub fn new(count: u32) -> Option<Self> {
        (1..=limits::MOST_SLOTS).contains(&count).then_some(Self(count))
    }

    /// The number.
    #[must_use]
    pub fn count(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::none(0, false)]
    #[case::one(1, true)]
    #[case::at_the_limit(limits::MOST_SLOTS, true)]
    #[case::one_over(limits::MOST_SLOTS + 1, false)]
    fn a_semaphore_has_so_many_slots(#[case] count: u32, #[case] good: bool) {
        assert_eq!(Slots::new(count).map(Slots::count), good.then_some(count));
    }

    #[test]
    fn the_defaults_are_those_of_the_documents() {
        let config = Config::default();
        assert_eq!(config.stale_timeout, Some(Duration::from_secs(3600)));
        assert_eq!(config.retry_interval, Duration::from_millis(100));
        assert_eq!(config.acquire_timeout, None);
        assert_eq!((config.longest_tag, config.mode, config.slots), (10_000, 0o644, Slots::ONE));
    }
}
