//! A length of time as text for people, such as `3m20s`: the one form of all programs. Pure.

use std::time::Duration;

const DAY_SECS: u64 = 86_400;

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
    use rstest::rstest;

    use super::*;

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
