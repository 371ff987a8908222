//! The kernel's events about openings and closings of locked ports (inotify(7)), for `--exclusive`. Reports and
//! decides nothing; never opens a port.
//!
//! Any process that may open a port can do so all the time. So after each read, the events rest for a moment.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

use crate::limits::EXCLUSIVE_LOOK_GAP;

/// The events of a node.
const OF_NODE: AddWatchFlags = AddWatchFlags::IN_OPEN.union(AddWatchFlags::IN_CLOSE);

/// The events of a directory of nodes: an adapter that is unplugged and comes back has another node, which may become
/// readable a moment later.
const OF_DIRECTORY: AddWatchFlags =
    AddWatchFlags::IN_CREATE.union(AddWatchFlags::IN_ATTRIB).union(AddWatchFlags::IN_MOVED_TO);

/// Events are read at most so many times before they are handled.
const READS: usize = 16;

/// The watches.
#[derive(Debug)]
pub(in crate::serve) struct PortWatch {
    events: Inotify,
    dev_dir: PathBuf,
    ports: HashMap<WatchDescriptor, String>,
    number: u64,
    rests_until: Option<Instant>,
}

/// The events so far.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::serve) struct News {
    /// Openings and closings of these ports.
    pub(in crate::serve) ports: BTreeSet<String>,
    /// Nodes with these names, in any directory, were created or changed.
    pub(in crate::serve) nodes: BTreeSet<OsString>,
    /// The kernel dropped events.
    pub(in crate::serve) has_gap: bool,
}

impl PortWatch {
    /// Nothing is watched yet. Events carry this number.
    ///
    /// # Errors
    /// The system's.
    pub(in crate::serve) fn begin(dev_dir: &Path, epoll: &Epoll, number: u64) -> io::Result<Self> {
        let events = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        epoll.add(&events, EpollEvent::new(EpollFlags::EPOLLIN, number))?;
        let (dev_dir, ports) = (dev_dir.to_owned(), HashMap::new());
        Ok(Self { events, dev_dir, ports, number, rests_until: None })
    }

    /// Watches a port, with the node that it has now.
    ///
    /// # Errors
    /// The system's, also if we may not read the node.
    pub(in crate::serve) fn add(&mut self, port: &str) -> io::Result<()> {
        let path = self.dev_dir.join(port);
        if let Some(directory) = path.parent() {
            let _ = self.events.add_watch(directory, OF_DIRECTORY);
        }
        let watch = self.events.add_watch(&path, OF_NODE)?;
        self.ports.insert(watch, port.to_owned());
        Ok(())
    }

    /// The port is no longer locked.
    pub(in crate::serve) fn keep_only(&mut self, is_wanted: impl Fn(&str) -> bool) {
        let events = &self.events;
        self.ports.retain(|watch, port| {
            let keeps = is_wanted(port);
            if !keeps {
                let _ = events.rm_watch(*watch);
            }
            keeps
        });
    }

    /// The events; a rest follows.
    pub(in crate::serve) fn news(&mut self, epoll: &Epoll, now: Instant) -> News {
        let mut news = News::default();
        for _ in 0..READS {
            let Ok(events) = self.events.read_events() else { break };
            for event in events {
                news.has_gap |= event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW);
                news.nodes.extend(event.name);
                news.ports.extend(self.ports.get(&event.wd).cloned());
                if event.mask.contains(AddWatchFlags::IN_IGNORED) {
                    self.ports.remove(&event.wd);
                }
            }
        }
        self.listen(epoll, EpollFlags::empty());
        self.rests_until = now.checked_add(EXCLUSIVE_LOOK_GAP);
        news
    }

    /// After the rest, events are read again.
    pub(in crate::serve) fn wake(&mut self, epoll: &Epoll, now: Instant) {
        if self.rests_until.is_some_and(|until| until <= now) {
            self.rests_until = None;
            self.listen(epoll, EpollFlags::EPOLLIN);
        }
    }

    pub(in crate::serve) fn next_moment(&self) -> Option<Instant> {
        self.rests_until
    }

    fn listen(&self, epoll: &Epoll, flags: EpollFlags) {
        let _ = epoll.modify(&self.events, &mut EpollEvent::new(flags, self.number));
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs::{self, File};

    use nix::sys::epoll::{EpollCreateFlags, EpollTimeout};

    use super::*;

    fn is_told(epoll: &Epoll) -> bool {
        epoll.wait(&mut [EpollEvent::empty()], EpollTimeout::ZERO) == Ok(1)
    }

    /// A process that opens and closes a port all the time is only read now and then.
    #[test]
    fn events_are_read_again_only_after_a_pause() {
        let dev_dir = tempfile::tempdir().unwrap();
        fs::write(dev_dir.path().join("ttyS9"), "").unwrap();
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        let mut watch = PortWatch::begin(dev_dir.path(), &epoll, 1).unwrap();
        assert!(watch.add("ttyS8").is_err());
        watch.add("ttyS9").unwrap();
        let open = || drop(File::open(dev_dir.path().join("ttyS9")).unwrap());
        open();
        assert!(is_told(&epoll));
        let now = Instant::now();
        let news = watch.news(&epoll, now);
        let ports = BTreeSet::from(["ttyS9".to_owned()]);
        assert_eq!(news, News { ports, ..News::default() });
        open();
        assert!(!is_told(&epoll), "it rests");
        watch.wake(&epoll, now);
        assert!(!is_told(&epoll), "it rests still");
        let later = watch.next_moment().expect("an end of the rest");
        watch.wake(&epoll, later);
        assert!(is_told(&epoll) && watch.next_moment().is_none());
        assert_eq!(watch.news(&epoll, later).ports.len(), 1);

        fs::write(dev_dir.path().join("ttyS8"), "").unwrap();
        assert!(watch.news(&epoll, later).nodes.contains(OsStr::new("ttyS8")), "a node has come");
        watch.keep_only(|_| false);
        let _ = watch.news(&epoll, later);
        open();
        assert_eq!(watch.news(&epoll, later), News::default(), "nobody's lock");
        watch.add("ttyS9").unwrap();
        fs::remove_file(dev_dir.path().join("ttyS9")).unwrap();
        assert!(watch.news(&epoll, later).ports.contains("ttyS9"), "a node has gone");
    }
}
