//! Log lines on standard error, in the form of the reference: `time=… level=INFO msg=… key=value`. It is
//! never given a token or a secret, so it cannot show one.
//!
//! A thread of its own writes the lines, from a bounded queue: a full pipe, or a reader that stands still,
//! stops only that thread. Lines that do not fit are counted. The thread ends when there is nothing to write:
//! each system call of a process with two threads costs a little more, because the kernel then counts the
//! users of a descriptor.

use jiff::Timestamp;
use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The most lines below ERROR per second, so that no client can fill the disk through the log.
const LINES_PER_SECOND: u32 = 500;

/// The most lines that wait for the writer.
const MOST_LINES: usize = 4096;
/// How long waiting lines are still written at the end.
const FAREWELL: Duration = Duration::from_millis(500);
/// How long the writer waits for the next line before it ends.
const WRITER_STAYS: Duration = Duration::from_millis(500);

/// How much is logged.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Lines for operators, at a bounded rate.
    Usual,
    /// Connections and requests as well, at any rate.
    Debug,
}

impl Detail {
    /// The other level.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Usual => Self::Debug,
            Self::Debug => Self::Usual,
        }
    }
}

/// From now on, `tracing` events become lines. A second call only changes the level.
pub fn start(detail: Detail) {
    set_detail(detail);
    let log = Log { rate: Mutex::new(Rate::default()) };
    // It fails only if an earlier call has done it.
    let _ = tracing::subscriber::set_global_default(log);
}

/// Sets the level.
pub fn set_detail(detail: Detail) {
    DETAIL.store(detail as u8, Ordering::Relaxed);
    tracing::callsite::rebuild_interest_cache();
}

/// The number of lines lost because nobody read them.
#[must_use]
pub fn dropped() -> u64 {
    QUEUE.dropped.load(Ordering::Relaxed)
}

/// Waits a moment for lines that are not written yet.
pub fn finish() {
    let lines = QUEUE.lines();
    let is_busy = |lines: &mut Lines| lines.writing || !lines.waiting.is_empty();
    drop(QUEUE.written.wait_timeout_while(lines, FAREWELL, is_busy));
}

static DETAIL: AtomicU8 = AtomicU8::new(Detail::Usual as u8);
static QUEUE: Queue = Queue::new();

fn detail() -> Detail {
    if DETAIL.load(Ordering::Relaxed) == Detail::Debug as u8 {
        Detail::Debug
    } else {
        Detail::Usual
    }
}

/// Lines on their way to standard error.
struct Queue {
    lines: Mutex<Lines>,
    added: Condvar,
    written: Condvar,
    /// All lost lines, for the metrics.
    dropped: AtomicU64,
}

struct Lines {
    waiting: VecDeque<String>,
    /// Lines lost since the last line that was taken.
    lost: u64,
    /// Whether a line is being written.
    writing: bool,
    /// Whether there is a writer, or one is being started.
    has_writer: bool,
}

impl Queue {
    const fn new() -> Self {
        let lines = Lines { waiting: VecDeque::new(), lost: 0, writing: false, has_writer: false };
        Self {
            lines: Mutex::new(lines),
            added: Condvar::new(),
            written: Condvar::new(),
            dropped: AtomicU64::new(0),
        }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Never waits. If no writer can be started, nothing is written, and the next line tries again.
    fn push(&'static self, line: String) {
        let mut lines = self.lines();
        if lines.waiting.len() >= MOST_LINES {
            lines.lost += 1;
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        lines.waiting.push_back(line);
        let has_writer = std::mem::replace(&mut lines.has_writer, true);
        drop(lines);
        if has_writer {
            self.added.notify_one();
        } else if Builder::new().name("log".to_owned()).spawn(|| self.write()).is_err() {
            self.lines().has_writer = false;
        }
    }

    /// Writes line after line until none comes for a while.
    fn write(&self) {
        let mut lines = self.lines();
        loop {
            let Some(line) = lines.waiting.pop_front() else {
                lines.writing = false;
                self.written.notify_all();
                let none = |lines: &mut Lines| lines.waiting.is_empty();
                let woken = self.added.wait_timeout_while(lines, WRITER_STAYS, none);
                lines = woken.unwrap_or_else(PoisonError::into_inner).0;
                if lines.waiting.is_empty() {
                    lines.has_writer = false;
                    return;
                }
                continue;
            };
            lines.writing = true;
            let lost = std::mem::take(&mut lines.lost);
            drop(lines);
            if lost > 0 {
                write_line(&lost_line(lost));
            }
            write_line(&line);
            lines = self.lines();
        }
    }
}

fn lost_line(count: u64) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = timestamp(since);
    format!("time={time} level=WARN msg=\"log lines dropped\" count={count}\n")
}

struct Log {
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

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let most = match detail() {
            Detail::Usual => Level::INFO,
            Detail::Debug => Level::DEBUG,
        };
        metadata.is_event() && *metadata.level() <= most
    }

    fn event(&self, event: &Event<'_>) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let level = *event.metadata().level();
        if detail() == Detail::Usual && level != Level::ERROR {
            let mut rate = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
            let (admitted, dropped) = rate.admit(since.as_secs());
            drop(rate);
            if dropped > 0 {
                QUEUE.dropped.fetch_add(u64::from(dropped), Ordering::Relaxed);
                QUEUE.push(lost_line(dropped.into()));
            }
            if !admitted {
                return;
            }
        }
        let mut line = Line::default();
        event.record(&mut line);
        let time = timestamp(since);
        QUEUE.push(format!("time={time} level={level} msg={}{}\n", line.message, line.fields));
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

/// Quotes a value that could mislead a reader of `key=value`, as Go's slog does.
fn push_value(out: &mut String, value: &str) {
    let plain = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '"' | '=' | '\\');
    if !value.is_empty() && value.chars().all(plain) {
        out.push_str(value);
    } else {
        let _ = write!(out, "{value:?}");
    }
}

/// RFC 3339, in UTC, with milliseconds.
fn timestamp(since_1970: Duration) -> String {
    let time = Timestamp::UNIX_EPOCH.checked_add(since_1970).unwrap_or(Timestamp::MAX);
    format!("{time:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(0, 0, "1970-01-01T00:00:00.000Z")]
    #[case(951_782_399, 999, "2000-02-28T23:59:59.999Z")]
    #[case(1_795_219_968, 326, "2026-11-21T00:12:48.326Z")]
    #[case(u64::MAX, 0, "9999-12-30T22:00:00.999Z")]
    fn timestamps(#[case] seconds: u64, #[case] millis: u64, #[case] want: &str) {
        let since = Duration::from_secs(seconds).saturating_add(Duration::from_millis(millis));
        assert_eq!(timestamp(since), want);
    }

    #[rstest]
    #[case("plain", "plain")]
    #[case("127.0.0.1:6388", "127.0.0.1:6388")]
    #[case("", "\"\"")]
    #[case("two words", "\"two words\"")]
    #[case("a=b", "\"a=b\"")]
    #[case("evil\nlevel", "\"evil\\nlevel\"")]
    fn values_are_quoted_when_necessary(#[case] value: &str, #[case] want: &str) {
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
