//! Log lines on standard error, in the form of the reference: `time=… level=INFO msg=… key=value`. It is
//! never given a token or a secret, so it cannot show one.
//!
//! A thread of its own writes the lines, from a bounded queue: a full pipe, or a reader that stands still,
//! stops only that thread. Lines that do not fit are counted.
//!
//! The thread ends when there was nothing to write for a while. In a process of one thread, the kernel need not count
//! the users of a descriptor, so each system call costs less: 0.3 of 12 us for a lock and its release.

use jiff::Timestamp;
use std::fmt::{self, Write as _};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::Builder;
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The most lines below ERROR per second, so that no client can fill the disk through the log.
const LINES_PER_SECOND: u32 = 500;

/// The most lines that wait for the writer.
const MOST_LINES: usize = 4096;
/// How long the writer waits for the next line.
const REST: Duration = Duration::from_millis(200);
/// How long waiting lines are still written at the end.
const FAREWELL: Duration = Duration::from_millis(500);

/// From now on, `tracing` events up to this level become lines: INFO for operators, at a bounded rate; DEBUG for
/// connections and requests as well, at any rate. A second call only changes the level.
pub(crate) fn start(level: Level) {
    set_level(level);
    UNWRITTEN.get_or_init(|| {
        let (queue, items) = sync_channel(MOST_LINES);
        Unwritten { queue, items: Mutex::new(items), has_writer: Mutex::new(false) }
    });
    // It fails only if an earlier call has done it.
    let _ = tracing::subscriber::set_global_default(Log(Mutex::default()));
}

/// Sets the level, which is INFO or DEBUG.
pub(crate) fn set_level(level: Level) {
    IS_DEBUG.store(level == Level::DEBUG, Ordering::Relaxed);
    tracing::callsite::rebuild_interest_cache();
}

fn level() -> Level {
    if IS_DEBUG.load(Ordering::Relaxed) { Level::DEBUG } else { Level::INFO }
}

/// The number of lines lost because they were too many, or because nobody read them.
#[must_use]
pub(crate) fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Waits a moment for lines that are not written yet.
pub(crate) fn finish() {
    let (written, all_written) = sync_channel(1);
    if UNWRITTEN.get().is_some_and(|unwritten| unwritten.put(Item::Written(written))) {
        let _ = all_written.recv_timeout(FAREWELL);
    }
}

static IS_DEBUG: AtomicBool = AtomicBool::new(false);
static UNWRITTEN: OnceLock<Unwritten> = OnceLock::new();
/// All lost lines, for the metrics.
static DROPPED: AtomicU64 = AtomicU64::new(0);
/// Lost lines that are not reported in the log yet.
static UNREPORTED: AtomicU64 = AtomicU64::new(0);

enum Item {
    Line(String),
    /// To be answered when the lines before it are written.
    Written(SyncSender<()>),
}

/// The items that are not written yet.
struct Unwritten {
    queue: SyncSender<Item>,
    items: Mutex<Receiver<Item>>,
    has_writer: Mutex<bool>,
}

impl Unwritten {
    /// False if there is no room. If no writer can be started now, the next item starts one.
    fn put(&'static self, item: Item) -> bool {
        let mut has_writer = self.has_writer.lock().unwrap_or_else(PoisonError::into_inner);
        let is_queued = self.queue.try_send(item).is_ok();
        if !*has_writer {
            let writer = Builder::new().name("log".to_owned()).spawn(|| self.serve());
            *has_writer = writer.is_ok();
        }
        is_queued
    }

    /// Writes until there was nothing to write for a while.
    fn serve(&self) {
        let items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(item) = items.recv_timeout(REST).ok().or_else(|| self.last(&items)) {
            write(item, &mut io::stderr());
        }
    }

    /// What was put there while the writer was about to end. If there is nothing, the next item starts another writer.
    fn last(&self, items: &Receiver<Item>) -> Option<Item> {
        let mut has_writer = self.has_writer.lock().unwrap_or_else(PoisonError::into_inner);
        let item = items.try_recv().ok();
        *has_writer = item.is_some();
        item
    }
}

/// Never waits.
fn push(line: String) {
    if !UNWRITTEN.get().is_some_and(|unwritten| unwritten.put(Item::Line(line))) {
        lose();
    }
}

fn lose() {
    UNREPORTED.fetch_add(1, Ordering::Relaxed);
    DROPPED.fetch_add(1, Ordering::Relaxed);
}

/// One call per line, so that lines of several programs do not mix. A closed standard error is no reason to stop serving.
fn write(item: Item, out: &mut impl io::Write) {
    match item {
        Item::Line(line) => {
            let lost = UNREPORTED.swap(0, Ordering::Relaxed);
            if lost > 0 {
                let now = Timestamp::now();
                let words = "level=WARN msg=\"log lines dropped\"";
                let lost = format!("time={now:.3} {words} count={lost}\n");
                let _ = out.write_all(lost.as_bytes());
            }
            let _ = out.write_all(line.as_bytes());
        }
        Item::Written(done) => drop(done.send(())),
    }
}

struct Log(Mutex<Rate>);

#[derive(Default)]
struct Rate {
    second: i64,
    written: u32,
}

impl Rate {
    /// Whether a line may be written now.
    fn admit(&mut self, second: i64) -> bool {
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
fn most_detailed(level: Level, target: &str) -> Level {
    let is_ours = ["dflockd", "leases"].iter().any(|ours| target.starts_with(ours));
    if is_ours { level } else { Level::INFO }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= most_detailed(level(), metadata.target())
    }

    fn event(&self, event: &Event<'_>) {
        let now = Timestamp::now();
        let its_level = event.metadata().level();
        if level() == Level::INFO && *its_level != Level::ERROR {
            let mut rate = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if !rate.admit(now.as_second()) {
                return lose();
            }
        }
        let mut line = Line::default();
        event.record(&mut line);
        // RFC 3339, in UTC, with milliseconds.
        push(format!("time={now:.3} level={its_level} msg={}{}\n", line.message, line.fields));
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

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(Level::INFO, "dflockd::server", Level::INFO)]
    #[case(Level::DEBUG, "dflockd::server", Level::DEBUG)]
    #[case(Level::DEBUG, "leases_etcd::journal", Level::DEBUG)]
    #[case(Level::DEBUG, "h2::codec::framed_write", Level::INFO)]
    fn frames_of_libraries_are_not_logged(
        #[case] level: Level,
        #[case] target: &str,
        #[case] want: Level,
    ) {
        assert_eq!(most_detailed(level, target), want);
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
        let mut out = Vec::new();
        for line in ["next\n", "last\n"] {
            write(Item::Line(line.to_owned()), &mut out);
        }
        let out = String::from_utf8(out).unwrap();
        assert!(out.ends_with(" level=WARN msg=\"log lines dropped\" count=7\nnext\nlast\n"));
    }
}
