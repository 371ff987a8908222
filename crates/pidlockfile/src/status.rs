//! The metadata of a file in one form for every system: numbers of devices and files, sizes and times in 64
//! bits, even if the C library's `struct stat` has 32. And the age of a lock file, by the times that it has. Pure.

use std::time::{Duration, SystemTime};

const DAY_SECS: u64 = 86_400;

/// Which file it is, whatever its name: device and inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_structs, reason = "these two identify a file")]
pub struct Identity {
    /// The number of the device that holds the file.
    pub device: u64,
    /// The file's number on it.
    pub inode: u64,
}

/// What `stat(2)` gives of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Which file it is.
    pub identity: Identity,
    /// Its permission bits, with those for set-user-ID and the like.
    pub mode: u32,
    /// The user who owns it.
    pub owner: u32,
    /// How many names it has.
    pub links: u64,
    /// Its length in bytes.
    pub size: u64,
    /// When it was last written; the beginning of 1970 for what claims to be older.
    pub modified: SystemTime,
    /// Why it can be no lock file; `None` for a regular file.
    pub(crate) obstacle: Option<Obstacle>,
}

/// What stands where a lock file was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a file has no other types")]
pub enum Obstacle {
    /// A symbolic link, dangling or not; on Windows any reparse point that is no plain file.
    Link,
    /// A directory.
    Directory,
    /// A fifo, socket or device.
    Special,
    /// A regular file that this process may not read.
    Unreadable,
}

/// A time that is ahead by at most this much is "just now". The clocks of machines that share a file system
/// differ by some seconds, and a file that another machine is writing at this moment must not count as old.
const CLOCKS_DIFFER: Duration = Duration::from_secs(60);

/// How old a lock file is. Everything that ages (a file without a pid, a lock of which only the number is known, a
/// temporary file) is judged by this type.
///
/// A time in the future is no time at which anything was written: a clock was wrong, somebody wrote milliseconds, or
/// somebody dated the file. Such a file must not stay young until then. So the next of its times counts, and if all of
/// them lie in the future, the file is old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age(Option<Duration>);

impl Age {
    /// The age by the first of these times that does not lie in the future: as a rule the one in the content,
    /// then the time of the file. A time that is at most a minute ahead counts as `now`.
    #[must_use]
    pub fn of(times: impl IntoIterator<Item = SystemTime>, now: SystemTime) -> Self {
        let since = |time| match now.duration_since(time) {
            Ok(age) => Some(age),
            Err(ahead) => (ahead.duration() <= CLOCKS_DIFFER).then_some(Duration::ZERO),
        };
        Self(times.into_iter().find_map(since))
    }

    /// The time that has passed. `None` if that cannot be known, because all times lie in the future.
    #[must_use]
    pub fn known(self) -> Option<Duration> {
        self.0
    }

    /// Whether it is as old as this, or older. An age that cannot be known is older than everything.
    #[must_use]
    pub fn reaches(self, limit: Duration) -> bool {
        self.0.is_none_or(|age| age >= limit)
    }

    /// The smaller of two ages. One that cannot be known is not the smaller one.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        match (self.0, other.0) {
            (Some(one), Some(two)) => Self(Some(one.min(two))),
            (one, two) => Self(one.or(two)),
        }
    }
}

/// A length of time in its two largest units: `5s`, `3m20s`, `2h05m`, `4d07h`.
#[must_use]
pub fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / DAY_SECS);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", seconds % 60),
        (0, _, _) => format!("{hours}h{:02}m", minutes % 60),
        (_, _, _) => format!("{days}d{:02}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use rstest::rstest;

    use super::*;

    const NOW: u64 = 1_800_000_000;
    const DAY: u64 = 86_400;
    const CENTURY: u64 = 36_525 * DAY;
    const HOUR: Duration = Duration::from_secs(3600);

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    /// What the content says, the time of the file, and the age in seconds.
    #[rstest]
    #[case::as_the_content_says(NOW - 7200, NOW - 5, Some(7200))]
    #[case::now(NOW, NOW, Some(0))]
    #[case::ahead_by_a_second(NOW + 1, NOW - 5, Some(0))]
    #[case::ahead_by_a_minute(NOW + 60, NOW - 5, Some(0))]
    #[case::ahead_by_more(NOW + 61, NOW - 5, Some(5))]
    #[case::ahead_by_a_day(NOW + DAY, NOW - 7200, Some(7200))]
    #[case::ahead_by_a_century(NOW + CENTURY, NOW - 7200, Some(7200))]
    #[case::milliseconds(NOW * 1000, NOW - 7200, Some(7200))]
    #[case::nanoseconds(NOW * 1_000_000_000, NOW - 7200, Some(7200))]
    #[case::both_ahead_by_a_second(NOW + 1, NOW + 1, Some(0))]
    #[case::both_ahead_by_a_day(NOW + DAY, NOW + DAY, None)]
    #[case::both_ahead_by_a_century(NOW + CENTURY, NOW + CENTURY, None)]
    #[case::milliseconds_of_a_file_from_the_future(NOW * 1000, NOW + DAY, None)]
    #[case::the_year_1970(0, NOW - 5, Some(NOW))]
    fn a_time_in_the_future_does_not_count(
        #[case] said: u64,
        #[case] modified: u64,
        #[case] age: Option<u64>,
    ) {
        let said = UNIX_EPOCH.checked_add(Duration::from_secs(said));
        let seen = Age::of(said.into_iter().chain([at(modified)]), at(NOW));
        assert_eq!(seen.known(), age.map(Duration::from_secs));
        assert_eq!(seen.reaches(HOUR), age.is_none_or(|age| age >= 3600));
    }

    #[cfg(unix)]
    #[test]
    fn a_time_before_1970_is_old() {
        let before = UNIX_EPOCH - Duration::from_secs(CENTURY);
        assert!(Age::of([before, at(NOW)], at(NOW)).reaches(HOUR));
        assert_eq!(Age::of([at(NOW)], before).known(), None, "the clock stands before 1970");
    }

    #[rstest]
    #[case(Some(1), Some(2), Some(1))]
    #[case(None, Some(2), Some(2))]
    #[case(Some(1), None, Some(1))]
    #[case(None, None, None)]
    fn the_smaller_age_is_a_known_one(
        #[case] one: Option<u64>,
        #[case] two: Option<u64>,
        #[case] least: Option<u64>,
    ) {
        let age = |seconds: Option<u64>| Age(seconds.map(Duration::from_secs));
        assert_eq!(age(one).min(age(two)), age(least));
        assert!(age(None).reaches(Duration::MAX));
    }

    #[rstest]
    #[case(0, "0s")]
    #[case(59, "59s")]
    #[case(60, "1m00s")]
    #[case(3599, "59m59s")]
    #[case(3600, "1h00m")]
    #[case(86_399, "23h59m")]
    #[case(86_400, "1d00h")]
    #[case(9_000_000, "104d04h")]
    fn ages_are_written_in_two_units(#[case] seconds: u64, #[case] text: &str) {
        assert_eq!(span(Duration::from_secs(seconds)), text);
    }
}
