//! Log lines on standard error, in the form of the reference: `time=… level=INFO msg=… key=value`. It is
//! never given a token or a secret, so it cannot show one.
//!
//! A thread of its own writes the lines, from a bounded queue: a full pipe, or a reader that stands still,
//! stops only that thread. Lines that do not fit are counted.

use jiff::Timestamp;
use std::fmt::{self, Write as _};
use std::io;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, OnceLock, PoisonError};
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

/// How much is logged.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Lines for operators, at a bounded rate.
    Usual,
    /// Connections and requests as well, at any rate.
    Debug,
}

impl Detail {
    /// The other level.
    #[must_use]
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Usual => Self::Debug,
            Self::Debug => Self::Usual,
        }
    }
}

/// From now on, `tracing` events become lines. A second call only changes the level.
pub(crate) fn start(detail: Detail) {
    set_detail(detail);
    QUEUE.get_or_init(|| {
        let (queue, items) = sync_channel(MOST_LINES);
        // Without the thread, all lines are lost, and counted.
        let _ =
            Builder::new().name("log".to_owned()).spawn(move || write(&items, &mut io::stderr()));
        queue
    });
    // It fails only if an earlier call has done it.
    let _ = tracing::subscriber::set_global_default(Log { rate: Mutex::default() });
}

/// Sets the level.
pub(crate) fn set_detail(detail: Detail) {
    DETAIL.store(detail as u8, Ordering::Relaxed);
    tracing::callsite::rebuild_interest_cache();
}

/// The number of lines lost because they were too many, or because nobody read them.
#[must_use]
pub(crate) fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Waits a moment for lines that are not written yet.
pub(crate) fn finish() {
    let (written, all_written) = sync_channel(1);
    if QUEUE.get().is_some_and(|queue| queue.try_send(Item::Written(written)).is_ok()) {
        let _ = all_written.recv_timeout(FAREWELL);
    }
}

static DETAIL: AtomicU8 = AtomicU8::new(Detail::Usual as u8);
static QUEUE: OnceLock<SyncSender<Item>> = OnceLock::new();
/// All lost lines, for the metrics.
static DROPPED: AtomicU64 = AtomicU64::new(0);
/// Lost lines that are not reported in the log yet.
static UNREPORTED: AtomicU64 = AtomicU64::new(0);

enum Item {
    Line(String),
    /// To be answered when the lines before it are written.
    Written(SyncSender<()>),
}

/// Never waits.
fn push(line: String) {
    let is_queued = QUEUE.get().is_some_and(|queue| queue.try_send(Item::Line(line)).is_ok());
    if !is_queued {
        lose();
    }
}

fn lose() {
    UNREPORTED.fetch_add(1, Ordering::Relaxed);
    DROPPED.fetch_add(1, Ordering::Relaxed);
}

/// Writes line after line, as long as the process lives. One call per line, so that lines of several programs do not mix.
/// A closed standard error is no reason to stop serving.
fn write(items: &Receiver<Item>, out: &mut impl io::Write) {
    for item in items {
        match item {
            Item::Line(line) => {
                let lost = UNREPORTED.swap(0, Ordering::Relaxed);
                if lost > 0 {
                    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                    let time = timestamp(since);
                    let words = "level=WARN msg=\"log lines dropped\"";
                    let _ = out.write_all(format!("time={time} {words} count={lost}\n").as_bytes());
                }
                let _ = out.write_all(line.as_bytes());
            }
            Item::Written(done) => drop(done.send(())),
        }
    }
}

fn detail() -> Detail {
    if DETAIL.load(Ordering::Relaxed) == Detail::Debug as u8 {
        Detail::Debug
    } else {
        Detail::Usual
    }
}

struct Log {
    rate: Mutex<Rate>,
}

#[derive(Default)]
struct Rate {
    second: u64,
    written: u32,
}

impl Rate {
    /// Whether a line may be written now.
    fn admit(&mut self, second: u64) -> bool {
        if second != self.second {
            *self = Self { second, written: 0 };
        }
        let is_admitted = self.written < LINES_PER_SECOND;
        self.written += u32::from(is_admitted);
        is_admitted
    }
}

/// The most detailed level that is written. What libraries have for their own developers, such as each frame of HTTP/2,
/// helps no administrator.
fn most_detailed(detail: Detail, target: &str) -> Level {
    let is_ours = ["dflockd", "leases"].iter().any(|ours| target.starts_with(ours));
    match detail {
        Detail::Debug if is_ours => Level::DEBUG,
        Detail::Usual | Detail::Debug => Level::INFO,
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= most_detailed(detail(), metadata.target())
    }

    fn event(&self, event: &Event<'_>) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let level = *event.metadata().level();
        if detail() == Detail::Usual && level != Level::ERROR {
            let mut rate = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
            if !rate.admit(since.as_secs()) {
                return lose();
            }
        }
        let mut line = Line::default();
        event.record(&mut line);
        let time = timestamp(since);
        push(format!("time={time} level={level} msg={}{}\n", line.message, line.fields));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
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
    #[case(Detail::Usual, "dflockd::server", Level::INFO)]
    #[case(Detail::Debug, "dflockd::server", Level::DEBUG)]
    #[case(Detail::Debug, "leases_etcd::journal", Level::DEBUG)]
    #[case(Detail::Debug, "h2::codec::framed_write", Level::INFO)]
    fn frames_of_libraries_are_not_logged(
        #[case] detail: Detail,
        #[case] target: &str,
        #[case] want: Level,
    ) {
        assert_eq!(most_detailed(detail, target), want);
    }

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
        let admitted = (0..LINES_PER_SECOND + 7).filter(|_| rate.admit(1)).count();
        assert_eq!(admitted, LINES_PER_SECOND as usize);
        assert!(rate.admit(2));
        (0..7).for_each(|_| lose());
        let (queue, items) = sync_channel(2);
        for line in ["next\n", "last\n"] {
            assert!(queue.send(Item::Line(line.to_owned())).is_ok());
        }
        drop(queue);
        let mut out = Vec::new();
        write(&items, &mut out);
        let out = String::from_utf8(out).unwrap();
        assert!(out.ends_with(" level=WARN msg=\"log lines dropped\" count=7\nnext\nlast\n"));
    }
}
