//! Programs that open ports without a lock (`--watch-opens`): a thread hears from the kernel which process has opened
//! or closed a port, examines such processes, and asks the service to take or release a lock for them.
//!
//! It hears of that by fanotify(7) on the nodes of `/dev`. It never opens a port, and never keeps a process from opening
//! one.
//!
//! To learn which process it was, the service needs `CAP_SYS_ADMIN` once, at the start; it then gives up that
//! capability for good. Ports that are plugged in later are watched if the service may read them, because the
//! kernel checks that. Events of one process that arrive faster than they are read come as one: they show
//! that something happened, not how often.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};
use pidlockfile::Pid;
use pidlockfile::process::{Fate, Machine, ProcessIdentity};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use ttylock::{
    DeviceName, Node, Numbers, all_openers, follow, has_open, rest_after, serial_devices,
};

use super::events::{self, FileHandle, PortEvent, PortUse};
use super::openers::{Examination, OpenerTask, Openers};
use crate::limits::WATCHED_PORTS;
use crate::log::{Log, Severity};
use crate::serve::queue::CHECK_EVERY;
use crate::serve::worker::{self, Bell, Work, locked};

/// The processes that have ports open, for the service.
#[derive(Clone, Debug)]
pub(in crate::serve) struct OpenPorts {
    openers: Arc<Mutex<Openers>>,
    waker: Bell,
    /// Readable while the service is asked for something.
    bell: Bell,
}

impl OpenPorts {
    /// Begins to watch, gives up the capability that this needs, and starts the thread.
    ///
    /// # Errors
    /// The system's: without the capability, or on an older kernel.
    pub(in crate::serve) fn start(dev_dir: &Path, mut log: Log) -> io::Result<Self> {
        let (watch, unwatched) = OpenWatch::begin(dev_dir).map_err(|error| {
            let why = format!("--watch-opens needs CAP_SYS_ADMIN and Linux 5.9: {error}");
            io::Error::new(error.kind(), why)
        })?;
        report(&mut log, unwatched);
        let ports = Self { openers: Arc::default(), waker: Bell::new()?, bell: Bell::new()? };
        let (dev_dir, shared) = (dev_dir.to_owned(), ports.clone());
        worker::start_worker(&ports.waker, "lfpd-opens", move || OpensWork {
            watch,
            dev_dir,
            shared,
            machine: Machine::default(),
            log,
            has_surveyed: false,
            rests_until: Instant::now(),
        })?;
        Ok(ports)
    }

    /// The state; the thread has another look at it when it is free again.
    pub(in crate::serve) fn openers(&self) -> MutexGuard<'_, Openers> {
        locked(&self.openers)
    }

    /// Changes the state after a lock or a process has ended: other openers may have their lock now.
    pub(super) fn change(&self, change: impl FnOnce(&mut Openers)) {
        let mut openers = self.openers();
        change(&mut openers);
        openers.retry(Instant::now());
        self.waker.ring();
    }

    /// The service has changed something.
    pub(in crate::serve) fn wake(&self) {
        self.waker.ring();
    }

    /// What the service is to do next. The bell is silent afterwards if there is nothing else.
    pub(in crate::serve) fn next_task(&self) -> Option<OpenerTask> {
        let mut openers = self.openers();
        let task = openers.next_task(Instant::now());
        if task.is_none() {
            self.bell.silence();
        }
        task
    }
}

impl AsFd for OpenPorts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// Reports the ports that cannot be watched.
fn report(log: &mut Log, unwatched: Vec<(String, Errno)>) {
    for (port, errno) in unwatched {
        log.record(Severity::Warning, &format_args!("cannot watch {port}: {}", errno.desc()));
    }
}

/// The thread.
struct OpensWork {
    watch: OpenWatch,
    dev_dir: PathBuf,
    shared: OpenPorts,
    machine: Machine,
    log: Log,
    has_surveyed: bool,
    /// No process is examined before that moment.
    rests_until: Instant,
}

impl Work for OpensWork {
    fn bell(&self) -> Option<BorrowedFd<'_>> {
        Some(self.watch.as_fd())
    }

    fn work(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let news = self.watch.news(now);
        if news.has_gap {
            self.shared.openers().forget_unlocked(now);
        }
        if news.has_gap || !std::mem::replace(&mut self.has_surveyed, true) {
            self.find_openers();
        }
        for (port, pid, port_use) in news.uses {
            let who = self.machine.identify(pid);
            self.shared.openers().saw(&port, &who, port_use, now);
        }
        report(&mut self.log, self.watch.refresh(now));
        let examination =
            (self.rests_until <= now).then(|| self.shared.openers().next(now)).flatten();
        if let Some(examination) = examination {
            self.examine(&examination, now);
        }
        let (openers, now) = (self.shared.openers(), Instant::now());
        if openers.has_tasks(now) {
            self.shared.bell.ring();
        }
        let next = openers.next_moment(now).map(|moment| moment.max(self.rests_until));
        next.into_iter().chain(self.watch.next_moment()).min()
    }
}

impl OpensWork {
    /// All processes that have a port open now. What they do meanwhile is read afterwards.
    fn find_openers(&mut self) {
        for (port, pid) in all_openers(&self.dev_dir) {
            let who = self.machine.identify(pid);
            self.shared.openers().opened(&port, &who, Instant::now());
        }
    }

    /// Examining processes takes a part of the time.
    fn examine(&mut self, examination: &Examination, began: Instant) {
        let node = self.node(&examination.port);
        let is_open = node.map_or(Ok(None), |node| self.is_open(&examination.who, &node));
        let now = Instant::now();
        let spent = now.saturating_duration_since(began);
        let rest = if is_open.is_err() { CHECK_EVERY } else { rest_after(spent) };
        self.rests_until = now.checked_add(rest).unwrap_or(now);
        if let Ok(is_open) = is_open {
            self.shared.openers().answered(examination, node, is_open, now);
        }
    }

    /// Whether a process has a port open; none if that is unknown.
    ///
    /// # Errors
    /// There is no descriptor for the search now.
    fn is_open(&mut self, who: &ProcessIdentity, node: &Node) -> io::Result<Option<bool>> {
        let is_open = has_open(who.pid, node)?;
        // A process with the number of one that has ended has opened nothing.
        Ok(if self.machine.fate(who) == Fate::Same { is_open } else { Some(false) })
    }

    fn node(&self, port: &str) -> Option<Node> {
        follow(&self.dev_dir, &DeviceName::parse(port.as_bytes()).ok()?).ok()?.node
    }
}

/// Delay before `/dev` is searched for ports after a node has come or changed. Further changes within it cause no other
/// search.
const PORTS_AFTER: Duration = Duration::from_millis(250);

/// Bytes of events that are read at once.
const EVENT_BYTES: usize = 4096;

/// The events of one reading.
#[derive(Debug, Default)]
pub(super) struct News {
    /// What each process did to which port.
    pub(super) uses: Vec<(String, Pid, PortUse)>,
    /// The kernel has dropped events.
    pub(super) has_gap: bool,
}

/// The kernel's events on processes that open and close ports.
#[derive(Debug)]
pub(super) struct OpenWatch {
    group: Fanotify,
    dev_dir: PathBuf,
    ports: HashMap<FileHandle, String>,
    /// Those that cannot be watched, which is said once.
    unwatched: BTreeSet<String>,
    look_again: Option<Instant>,
}

impl OpenWatch {
    /// Begins, and gives up the capability that it took. Returns the ports that cannot be watched, too.
    ///
    /// # Errors
    /// The system's: without `CAP_SYS_ADMIN`, or on a kernel before 5.9.
    pub(super) fn begin(dev_dir: &Path) -> io::Result<(Self, Vec<(String, Errno)>)> {
        // Without it there are events, but not their processes.
        if !capabilities(None)?.effective.contains(CapabilitySet::SYS_ADMIN) {
            return Err(Errno::EPERM.into());
        }
        let identities = InitFlags::from_bits_retain(nix::libc::FAN_REPORT_FID);
        let flags = InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK | identities;
        let group = Fanotify::init(flags, EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC)?;
        let nodes = MaskFlags::FAN_CREATE
            | MaskFlags::FAN_MOVED_TO
            | MaskFlags::FAN_ATTRIB
            | MaskFlags::FAN_EVENT_ON_CHILD;
        let mode = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_ONLYDIR;
        group.mark(mode, nodes, AT_FDCWD, Some(dev_dir))?;
        let dev_dir = dev_dir.to_owned();
        let (ports, unwatched) = (HashMap::new(), BTreeSet::new());
        let mut watch = Self { group, dev_dir, ports, unwatched, look_again: None };
        let unwatched = watch.look_for_ports();
        give_up_administration()?;
        Ok((watch, unwatched))
    }

    /// What has happened, as much as fits into one reading.
    pub(super) fn news(&mut self, now: Instant) -> News {
        let mut buffer = [0; EVENT_BYTES];
        let length = nix::unistd::read(&self.group, &mut buffer).unwrap_or(0);
        let mut news = News::default();
        for event in events::parse(buffer.get(..length).unwrap_or_default()) {
            match event {
                PortEvent::Lost => news.has_gap = true,
                PortEvent::Elsewhere => self.look_soon(now),
                PortEvent::At { handle, pid, port_use } => {
                    let port = self.ports.get(&handle).cloned();
                    news.uses.extend(port.zip(pid).map(|(port, pid)| (port, pid, port_use)));
                }
            }
        }
        news
    }

    fn look_soon(&mut self, now: Instant) {
        let soon = now.checked_add(PORTS_AFTER).unwrap_or(now);
        self.look_again.get_or_insert(soon);
    }

    /// When the ports are to be looked over again: nodes have come, or are others' now.
    pub(super) fn next_moment(&self) -> Option<Instant> {
        self.look_again
    }

    /// Watches the ports that have come. Returns those that cannot be watched, each once.
    pub(super) fn refresh(&mut self, now: Instant) -> Vec<(String, Errno)> {
        if self.look_again.is_none_or(|moment| moment > now) {
            return Vec::new();
        }
        self.look_again = None;
        self.look_for_ports()
    }

    fn look_for_ports(&mut self) -> Vec<(String, Errno)> {
        let mask = MaskFlags::FAN_OPEN | MaskFlags::FAN_CLOSE;
        let mode = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_DONT_FOLLOW;
        let mut ports = serial_devices(&self.dev_dir);
        ports.truncate(WATCHED_PORTS);
        self.unwatched.retain(|port| ports.iter().any(|(name, _)| name == port));
        let mut unwatched = Vec::new();
        for (name, _) in &ports {
            let path = self.dev_dir.join(name);
            match self.group.mark(mode, mask, AT_FDCWD, Some(&path)) {
                Ok(()) => {
                    self.unwatched.remove(name);
                }
                Err(errno) if self.unwatched.insert(name.clone()) => {
                    unwatched.push((name.clone(), errno));
                }
                Err(_) => {}
            }
        }
        self.ports = self.handles(&ports);
        unwatched
    }

    /// By what the kernel calls the ports in its events. Source: proc(5), `/proc/PID/fdinfo`.
    fn handles(&self, ports: &[(String, Node)]) -> HashMap<FileHandle, String> {
        let marks = format!("/proc/self/fdinfo/{}", self.group.as_raw_fd());
        let marks = std::fs::read_to_string(marks).unwrap_or_default();
        let mut named = HashMap::new();
        let mut twice = Vec::new();
        for (mark, handle) in events::marks(&marks) {
            let is_it = |node: &Node| {
                let Numbers { major, minor } = node.file_system;
                node.inode == mark.inode && (major, minor) == mark.file_system
            };
            let Some((name, _)) = ports.iter().find(|(_, node)| is_it(node)) else { continue };
            if named.insert(handle.clone(), name.clone()).is_some() {
                twice.push(handle);
            }
        }
        // Two file systems with the same name for different nodes: they cannot be distinguished.
        named.retain(|handle, _| !twice.contains(handle));
        named
    }
}

impl AsFd for OpenWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.group.as_fd()
    }
}

/// Nothing that is done later needs it.
fn give_up_administration() -> io::Result<()> {
    let mut sets = capabilities(None)?;
    for set in [&mut sets.effective, &mut sets.permitted, &mut sets.inheritable] {
        set.remove(CapabilitySet::SYS_ADMIN);
    }
    Ok(set_capabilities(None, sets)?)
}
