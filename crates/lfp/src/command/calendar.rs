//! Points in time as text, in the time zone of the machine. There is no clock here.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// RFC 3339, in UTC, to the second: `2026-11-21T03:20:11Z`. `None` before 1970 and after 9999.
pub(super) fn utc(time: SystemTime) -> Option<String> {
    Some(format!("{:.0}", point(time)?))
}

/// RFC 3339, as clocks on the wall have it here, with the zone: `2026-11-21T04:20:11+01:00`.
pub(super) fn local(time: SystemTime) -> Option<String> {
    in_zone(time, TimeZone::system())
}

fn in_zone(time: SystemTime, zone: TimeZone) -> Option<String> {
    Some(point(time)?.to_zoned_datetime(zone).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string())
}

/// To the second.
fn point(time: SystemTime) -> Option<Timestamp> {
    let seconds = time.duration_since(UNIX_EPOCH).ok()?.as_secs();
    Timestamp::from_second(i64::try_from(seconds).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(0, Some("1970-01-01T00:00:00Z"))]
    #[case(951_782_400, Some("2000-02-29T00:00:00Z"))]
    #[case(1_763_700_000, Some("2025-11-21T04:40:00Z"))]
    #[case(300_000_000_000, None)]
    fn times_are_written_as_rfc_3339(#[case] seconds: u64, #[case] text: Option<&str>) {
        assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)).as_deref(), text);
    }

    #[rstest]
    #[case::east("<+01>-1", "2025-11-21T05:40:00+01:00")]
    #[case::west("<-0330>3:30", "2025-11-21T01:10:00-03:30")]
    #[case::here("UTC0", "2025-11-21T04:40:00+00:00")]
    fn local_times_tell_their_zone(#[case] zone: &str, #[case] text: &str) {
        let time = UNIX_EPOCH + Duration::from_secs(1_763_700_000);
        let zone = TimeZone::posix(zone).unwrap();
        assert_eq!(in_zone(time, zone).as_deref(), Some(text));
    }

    #[test]
    fn times_before_1970_have_no_text() {
        assert_eq!(utc(UNIX_EPOCH - Duration::from_secs(1)), None);
    }
}
