//! Points in time as text. Values in, text out; no clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY_SECS: u64 = 86_400;

/// The last second of the year 9999: four digits are enough for everybody else.
const LAST: u64 = 253_402_300_799;

/// RFC 3339, in UTC, to the second: `2026-11-21T03:20:11Z`. `None` before 1970 and after 9999.
pub(super) fn timestamp(time: SystemTime) -> Option<String> {
    let seconds = time.duration_since(UNIX_EPOCH).ok()?.as_secs();
    if seconds > LAST {
        return None;
    }
    let (day, second) = (seconds / DAY_SECS, seconds % DAY_SECS);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let (year, month, day) = date(day);
    Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"))
}

/// Days since 1970 to year, month and day, by whole eras of 400 years of the Gregorian calendar,
/// with years that begin in March, so that the leap day comes last.
fn date(days: u64) -> (u64, u64, u64) {
    /// From 0000-03-01 to 1970-01-01.
    const BEFORE: u64 = 719_468;
    const ERA: u64 = 146_097;
    let days = days.saturating_add(BEFORE);
    let (era, day) = (days / ERA, days % ERA);
    let leap_days = day / 1460 + day / 146_096;
    let year = (day + day / 36_524).saturating_sub(leap_days) / 365;
    let day = (day + year / 100).saturating_sub(365 * year + year / 4);
    let month = (5 * day + 2) / 153;
    let day = day.saturating_sub((153 * month + 2) / 5) + 1;
    let (month, turn) = if month < 10 { (month + 3, 0) } else { (month.saturating_sub(9), 1) };
    (era * 400 + year + turn, month, day)
}

/// A length of time in its two largest units: `5s`, `3m20s`, `2h05m`, `4d07h`.
pub(super) fn age(time: Duration) -> String {
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
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(0, "1970-01-01T00:00:00Z")]
    #[case(86_399, "1970-01-01T23:59:59Z")]
    #[case(951_782_400, "2000-02-29T00:00:00Z")]
    #[case(951_868_800, "2000-03-01T00:00:00Z")]
    #[case(1_709_164_800, "2024-02-29T00:00:00Z")]
    #[case(1_735_689_599, "2024-12-31T23:59:59Z")]
    #[case(1_763_700_000, "2025-11-21T04:40:00Z")]
    #[case(4_107_542_400, "2100-03-01T00:00:00Z")]
    #[case(LAST, "9999-12-31T23:59:59Z")]
    fn is_rfc_3339(#[case] seconds: u64, #[case] text: &str) {
        assert_eq!(timestamp(UNIX_EPOCH + Duration::from_secs(seconds)).as_deref(), Some(text));
    }

    /// A walk through every day of 400 years, counted as a child would.
    #[test]
    fn every_day_is_the_one_after_the_day_before() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..146_097 {
            assert_eq!(date(days), (year, month, day), "day {days}");
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let last = match month {
                2 if leap => 29,
                2 => 28,
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            (year, month, day) = match (month, day) {
                (12, 31) => (year + 1, 1, 1),
                (_, day) if day == last => (year, month + 1, 1),
                _ => (year, month, day + 1),
            };
        }
    }

    #[test]
    fn other_times_have_no_text() {
        assert_eq!(timestamp(UNIX_EPOCH - Duration::from_secs(1)), None);
        assert_eq!(timestamp(UNIX_EPOCH + Duration::from_secs(LAST + 1)), None);
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
    fn ages(#[case] seconds: u64, #[case] text: &str) {
        assert_eq!(age(Duration::from_secs(seconds)), text);
    }
}
