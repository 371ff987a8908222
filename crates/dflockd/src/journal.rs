//! Log lines on standard error, in the reference's form: `time=… level=INFO msg=… key=value`.
//! Never given a token or the secret, so it cannot show one.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Lines below ERROR per second. A client that makes the server log must not make it a disk filler.
const LINES_PER_SECOND: u32 = 500;

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// What an operator wants to know, at a bounded rate.
    Usual,
    /// Connections and requests too, without a bound.
    Debug,
}

/// From now on `tracing` events become lines. A second call changes nothing.
pub fn start(detail: Detail) {
    let journal = Journal { detail, rate: Mutex::new(Rate::default()) };
    let _ = tracing::subscriber::set_global_default(journal);
}

struct Journal {
    detail: Detail,
    rate: Mutex<Rate>,
}

#[derive(Default)]
struct Rate {
    second: u64,
    written: u32,
    dropped: u32,
}

impl Rate {
    /// Whether a line may be written now, and how many were dropped before it.
    fn admit(&mut self, second: u64) -> (bool, u32) {
        let mut dropped = 0;
        if second != self.second {
            dropped = self.dropped;
            *self = Self { second, written: 0, dropped: 0 };
        }
        if self.written >= LINES_PER_SECOND {
            self.dropped = self.dropped.saturating_add(1);
            return (false, 0);
        }
        self.written += 1;
        (true, dropped)
    }
}

impl Subscriber for Journal {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let most = match self.detail {
            Detail::Usual => Level::INFO,
            Detail::Debug => Level::DEBUG,
        };
        metadata.is_event() && *metadata.level() <= most
    }

    fn event(&self, event: &Event<'_>) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let level = *event.metadata().level();
        if self.detail == Detail::Usual && level != Level::ERROR {
            let mut rate = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
            let (admitted, dropped) = rate.admit(since.as_secs());
            drop(rate);
            if dropped > 0 {
                let time = timestamp(since.as_secs(), since.subsec_millis());
                write_line(&format!(
                    "time={time} level=WARN msg=\"log lines dropped\" count={dropped}\n"
                ));
            }
            if !admitted {
                return;
            }
        }
        let mut line = Line::default();
        event.record(&mut line);
        let time = timestamp(since.as_secs(), since.subsec_millis());
        write_line(&format!("time={time} level={level} msg={}{}\n", line.message, line.fields));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// One call per line, so that lines of several programs do not mix.
fn write_line(line: &str) {
    // A closed standard error is no reason to stop serving.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Line {
    fn put(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            push_value(&mut self.message, value);
        } else {
            let _ = write!(self.fields, " {}=", field.name());
            push_value(&mut self.fields, value);
        }
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, &format!("{value:?}"));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }
    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.put(field, &value.to_string());
    }
}

/// Quoted when a reader of `key=value` could be misled, as Go's slog does.
fn push_value(out: &mut String, value: &str) {
    let plain = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '"' | '=' | '\\');
    if !value.is_empty() && value.chars().all(plain) {
        out.push_str(value);
    } else {
        let _ = write!(out, "{value:?}");
    }
}

/// RFC 3339 in UTC with milliseconds. Civil date from days: H. Hinnant, "chrono-compatible
/// low-level date algorithms".
fn timestamp(seconds: u64, millis: u32) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(0, 0, "1970-01-01T00:00:00.000Z")]
    #[case(951_782_399, 999, "2000-02-28T23:59:59.999Z")]
    #[case(951_782_400, 0, "2000-02-29T00:00:00.000Z")]
    #[case(1_795_219_968, 326, "2026-11-21T00:12:48.326Z")]
    #[case(4_107_542_400, 1, "2100-03-01T00:00:00.001Z")]
    fn timestamps(#[case] seconds: u64, #[case] millis: u32, #[case] want: &str) {
        assert_eq!(timestamp(seconds, millis), want);
    }

    #[rstest]
    #[case("plain", "plain")]
    #[case("127.0.0.1:6388", "127.0.0.1:6388")]
    #[case("", "\"\"")]
    #[case("two words", "\"two words\"")]
    #[case("a=b", "\"a=b\"")]
    #[case("evil\nlevel", "\"evil\\nlevel\"")]
    fn values(#[case] value: &str, #[case] want: &str) {
        let mut out = String::new();
        push_value(&mut out, value);
        assert_eq!(out, want);
    }

    #[test]
    fn the_rate_is_bounded_and_the_loss_is_told() {
        let mut rate = Rate::default();
        let admitted = (0..LINES_PER_SECOND + 7).filter(|_| rate.admit(1).0).count();
        assert_eq!(admitted, LINES_PER_SECOND as usize);
        assert_eq!(rate.admit(2), (true, 7));
        assert_eq!(rate.admit(2), (true, 0));
    }
}
