//! Reports when ports may have been opened or closed (inotify(7)), and says which port to examine next. Never opens a
//! port, and examines nothing.
//!
//! Any process that may open a port can do so all the time. So after events were read, no more are read for a moment;
//! and after a port was examined, it rests for nine times as long as that took. An event in the meantime is not lost.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

/// The least pause between two examinations of a port, and between two readings of its events.
const EXAMINATION_GAP: Duration = Duration::from_millis(10);

/// After the examination of a port, or of a process that has one open, there is none for this many times as long.
const EXAMINATION_SHARE: u32 = 9;

/// Interval of the examinations without an event, and the longest rest.
const SCAN_EVERY: Duration = Duration::from_secs(1);

/// The events of a node.
const OF_NODE: WatchFlags = WatchFlags::OPEN.union(WatchFlags::CLOSE);

/// The events of a directory of nodes: an adapter that is unplugged and comes back has another node, which may become
/// readable a moment later.
const OF_DIRECTORY: WatchFlags =
    WatchFlags::CREATE.union(WatchFlags::ATTRIB).union(WatchFlags::MOVED_TO);

/// Events are read at most so many times before they are handled.
const READS: usize = 16;

/// So many bytes of events are read at once.
const READ_BYTES: usize = 4096;

/// The watched ports, by their real names.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// use std::path::Path;
/// use std::time::Instant;
/// use ttylock::{Examined, PortWatch};
///
/// let mut watch = PortWatch::of(Path::new("/dev"))?;
/// watch.add("ttyUSB0", Instant::now())?;
/// // Once `bell()` is readable, and at `next_moment()`:
/// watch.read_events(Instant::now());
/// while let Some((port, _trigger)) = watch.due(Instant::now()) {
///     let began = Instant::now();
///     // ... examine the port ...
///     watch.examined(&port, Examined::Unchanged, began, Instant::now());
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct PortWatch {
    events: OwnedFd,
    dev_dir: PathBuf,
    ports: BTreeMap<String, Port>,
    /// By the numbers of their watches.
    nodes: HashMap<i32, String>,
    /// No events are read before this moment.
    rests_until: Option<Instant>,
}

#[derive(Debug)]
struct Port {
    /// An event came that no examination has followed.
    happened: bool,
    due: Option<Instant>,
    rests_until: Option<Instant>,
}

/// Why a port is examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "an event or the time")]
pub enum Trigger {
    /// It is new here, or was opened or closed, or has another node.
    Event,
    /// It is time for another examination: events of other nodes with the same number are not reported.
    Timer,
}

/// The result of an examination, as far as it decides about the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "changed or not")]
pub enum Examined {
    /// Something has changed.
    Changed,
    /// Nothing has changed.
    Unchanged,
}

/// How long there is no other examination after one that has taken so long: examining takes a tenth of the time.
#[must_use]
pub fn rest_after(spent: Duration) -> Duration {
    spent.saturating_mul(EXAMINATION_SHARE).min(SCAN_EVERY)
}

impl PortWatch {
    /// Nothing is watched yet.
    ///
    /// # Errors
    /// The system's.
    pub fn of(dev_dir: &Path) -> io::Result<Self> {
        let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let (dev_dir, ports) = (dev_dir.to_owned(), BTreeMap::new());
        Ok(Self { events, dev_dir, ports, nodes: HashMap::new(), rests_until: None })
    }

    /// Watches a port, which is to be examined at once. Without an event it is examined every second all the same, so
    /// an error means only that openings are noticed later.
    ///
    /// # Errors
    /// The system's, also if we may not read the node.
    pub fn add(&mut self, port: &str, now: Instant) -> io::Result<()> {
        let new = Port { happened: true, due: Some(now), rests_until: None };
        self.ports.insert(port.to_owned(), new);
        self.watch(port)
    }

    fn watch(&mut self, port: &str) -> io::Result<()> {
        let path = self.dev_dir.join(port);
        if let Some(directory) = path.parent() {
            let _ = inotify::add_watch(&self.events, directory, OF_DIRECTORY);
        }
        let node = inotify::add_watch(&self.events, &path, OF_NODE)?;
        self.nodes.insert(node, port.to_owned());
        Ok(())
    }

    /// The other ports are of no interest any more.
    pub fn keep_only(&mut self, is_wanted: impl Fn(&str) -> bool) {
        self.ports.retain(|port, _| is_wanted(port));
        let events = &self.events;
        let is_there = |node| inotify::remove_watch(events, node).is_err();
        self.nodes.retain(|node, port| is_wanted(port) || is_there(*node));
    }

    /// Readable when an event has come; none while events rest.
    #[must_use]
    pub fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.rests_until.is_none().then(|| self.events.as_fd())
    }

    /// Reads the events, unless they rest.
    pub fn read_events(&mut self, now: Instant) {
        if self.rests_until.is_some_and(|until| until > now) {
            return;
        }
        self.rests_until = None;
        let events = pending(&self.events);
        if !events.is_empty() {
            self.rests_until = now.checked_add(EXAMINATION_GAP);
        }
        events.iter().for_each(|event| self.handle(event, now));
    }

    fn handle(&mut self, event: &NodeEvent, now: Instant) {
        let is_lost = event.what.contains(ReadFlags::QUEUE_OVERFLOW);
        let opened = self.nodes.get(&event.watch).cloned();
        if event.what.contains(ReadFlags::IGNORED) {
            self.nodes.remove(&event.watch);
        }
        let name = event.name.as_deref();
        let is_new = |port: &str| name.is_some() && Path::new(port).file_name() == name;
        let names: Vec<String> = self.ports.keys().cloned().collect();
        for port in names {
            let has_node = is_lost || is_new(&port);
            if has_node {
                // It may have gone again.
                let _ = self.watch(&port);
            }
            if has_node || opened.as_deref() == Some(&*port) {
                self.happened(&port, now);
            }
        }
    }

    /// A port is to be examined, as after an event.
    pub fn happened(&mut self, port: &str, now: Instant) {
        if let Some(port) = self.ports.get_mut(port) {
            port.happened = true;
            port.due = Some(port.due.map_or(now, |due| due.min(now)));
        }
    }

    /// The port to examine now. The caller examines it and reports [`Self::examined`].
    #[must_use]
    pub fn due(&self, now: Instant) -> Option<(String, Trigger)> {
        let due = self.ports.iter().filter_map(|(name, port)| Some((port.moment()?, name, port)));
        let (moment, name, port) = due.min_by_key(|(moment, ..)| *moment)?;
        let trigger = if port.happened { Trigger::Event } else { Trigger::Timer };
        (moment <= now).then(|| (name.clone(), trigger))
    }

    /// The examination of a port has ended, and began at that moment. Without an event, the next one comes in a second.
    pub fn examined(&mut self, port: &str, result: Examined, began: Instant, now: Instant) {
        let Some(port) = self.ports.get_mut(port) else { return };
        let spent = now.saturating_duration_since(began);
        // Whoever changes something does it once, and may do the next thing at once.
        let rest = if result == Examined::Changed { spent } else { rest_after(spent) };
        let rest = rest.clamp(EXAMINATION_GAP, SCAN_EVERY);
        *port = Port {
            happened: false,
            due: now.checked_add(SCAN_EVERY),
            rests_until: now.checked_add(rest),
        };
    }

    /// When there is something to do without an event.
    #[must_use]
    pub fn next_moment(&self) -> Option<Instant> {
        self.ports.values().filter_map(Port::moment).chain(self.rests_until).min()
    }
}

/// An event as the kernel reports it.
#[derive(Debug)]
struct NodeEvent {
    watch: i32,
    what: ReadFlags,
    /// The name in a watched directory.
    name: Option<OsString>,
}

/// Reads the events that have come, up to a bound.
fn pending(events: &OwnedFd) -> Vec<NodeEvent> {
    let mut room = [MaybeUninit::uninit(); READ_BYTES];
    let mut reader = Reader::new(events, &mut room);
    let (mut pending, mut reads) = (Vec::new(), 0_usize);
    // One reading may have several.
    while reads < READS || !reader.is_buffer_empty() {
        reads = reads.saturating_add(usize::from(reader.is_buffer_empty()));
        let Ok(event) = reader.next() else { break };
        let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()).to_owned());
        pending.push(NodeEvent { watch: event.wd(), what: event.events(), name });
    }
    pending
}

impl Port {
    fn moment(&self) -> Option<Instant> {
        self.due.max(self.due.and(self.rests_until))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use tempfile::TempDir;

    use super::*;

    const PORT: &str = "ttyS9";

    fn watch() -> (TempDir, PortWatch) {
        let dev_dir = tempfile::tempdir().unwrap();
        fs::write(dev_dir.path().join(PORT), "").unwrap();
        let mut watch = PortWatch::of(dev_dir.path()).unwrap();
        watch.add(PORT, Instant::now()).unwrap();
        (dev_dir, watch)
    }

    fn rings(watch: &PortWatch) -> bool {
        let Some(bell) = watch.bell() else { return false };
        poll(&mut [PollFd::new(bell, PollFlags::POLLIN)], PollTimeout::ZERO) == Ok(1)
    }

    /// The port to examine at that moment, which is examined in no time.
    fn examine(watch: &mut PortWatch, now: Instant) -> Option<Trigger> {
        let (port, trigger) = watch.due(now)?;
        watch.examined(&port, Examined::Unchanged, now, now);
        Some(trigger)
    }

    /// A process that opens and closes a port all the time causes an examination only now and then.
    #[test]
    fn events_are_read_again_only_after_a_pause() {
        let (dev_dir, mut watch) = watch();
        let open = || drop(File::open(dev_dir.path().join(PORT)).unwrap());
        let now = Instant::now();
        assert_eq!(examine(&mut watch, now), Some(Trigger::Event));
        open();
        assert!(rings(&watch));
        watch.read_events(now);
        open();
        assert!(!rings(&watch) && watch.next_moment() == now.checked_add(EXAMINATION_GAP));
        watch.read_events(now);
        assert!(!rings(&watch), "events rest still");
        let later = now + EXAMINATION_GAP;
        assert_eq!(examine(&mut watch, later), Some(Trigger::Event));
        watch.read_events(later);
        assert_eq!(examine(&mut watch, later), None, "the port rests");
        let later = later + EXAMINATION_GAP;
        assert_eq!(examine(&mut watch, later), Some(Trigger::Event), "nothing is lost");
    }

    /// However often a port is opened, examining it takes a part of the time.
    #[test]
    fn a_port_rests_after_an_examination() {
        let (_dev_dir, mut watch) = watch();
        let (now, took) = (Instant::now(), Duration::from_millis(50));
        let mut rest_after = |took: Duration, result| {
            watch.examined(PORT, result, now, now + took);
            watch.happened(PORT, now + took);
            watch.next_moment().unwrap() - (now + took)
        };
        assert_eq!(rest_after(Duration::ZERO, Examined::Unchanged), EXAMINATION_GAP);
        assert_eq!(rest_after(took, Examined::Unchanged), 9 * took);
        assert_eq!(rest_after(took, Examined::Changed), took, "a change is followed by others");
        // As if the machine had been suspended meanwhile.
        assert_eq!(rest_after(1000 * took, Examined::Unchanged), SCAN_EVERY);
    }

    /// No event is reported for another node of the same number.
    #[test]
    fn a_port_is_examined_every_second_without_an_event() {
        let (_dev_dir, mut watch) = watch();
        let mut now = Instant::now();
        assert_eq!(examine(&mut watch, now), Some(Trigger::Event));
        for _ in 0..2 {
            assert_eq!(watch.due(now + SCAN_EVERY / 2), None);
            now += SCAN_EVERY;
            assert_eq!(examine(&mut watch, now), Some(Trigger::Timer));
        }
        watch.keep_only(|_| false);
        assert_eq!(watch.due(now + SCAN_EVERY), None);
    }

    #[test]
    fn a_new_node_is_watched_and_a_removed_port_is_not() {
        let (dev_dir, mut watch) = watch();
        let path = dev_dir.path().join(PORT);
        let begin = Instant::now();
        let mut now = begin;
        assert!(examine(&mut watch, now).is_some());
        let mut happens = |watch: &mut PortWatch, what: &dyn Fn()| {
            what();
            now += 2 * EXAMINATION_GAP;
            watch.read_events(now);
            examine(watch, now) == Some(Trigger::Event)
        };
        let open = || drop(File::open(&path).unwrap());
        assert!(!happens(&mut watch, &|| ()) && happens(&mut watch, &open));
        assert!(happens(&mut watch, &|| fs::remove_file(&path).unwrap()));
        assert!(happens(&mut watch, &|| fs::write(&path, "").unwrap()));
        assert!(happens(&mut watch, &open) && !happens(&mut watch, &|| ()));
        assert!(watch.add("ttyS8", begin).is_err(), "there is no such node");
        watch.keep_only(|_| false);
        assert!(!happens(&mut watch, &open));
        watch.add(PORT, begin).unwrap();
        assert!(happens(&mut watch, &|| ()) && happens(&mut watch, &open));
    }
}
