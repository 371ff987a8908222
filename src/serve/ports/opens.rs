//! Programs that open ports without a lock (`--watch-opens`): a thread hears from the kernel which process has opened
//! or closed a port, examines such processes, and asks the service to take or release a lock for them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use nix::errno::Errno;
use pidlockfile::process::{Fate, Machine, ProcessIdentity};
use ttylock::{DeviceName, Node, all_openers, follow, has_open, rest_after};

use super::open_watch::OpenWatch;
use super::openers::{Openers, Question, Wish};
use super::worker::{self, Work};
use crate::log::{Log, Severity};
use crate::serve::bell::Bell;
use crate::serve::pace::CHECK_EVERY;

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
        worker::start(&ports.waker, "lfpd-opens", move || Examiner {
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
        self.openers.lock().unwrap_or_else(PoisonError::into_inner)
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
    pub(in crate::serve) fn next_wish(&self) -> Option<Wish> {
        let mut openers = self.openers();
        let wish = openers.next_wish(Instant::now());
        if wish.is_none() {
            self.bell.silence();
        }
        wish
    }
}

impl AsFd for OpenPorts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// Of the ports that cannot be watched.
fn report(log: &mut Log, unwatched: Vec<(String, Errno)>) {
    for (port, errno) in unwatched {
        log.record(Severity::Warning, &format_args!("cannot watch {port}: {}", errno.desc()));
    }
}

/// The thread.
struct Examiner {
    watch: OpenWatch,
    dev_dir: PathBuf,
    shared: OpenPorts,
    machine: Machine,
    log: Log,
    has_surveyed: bool,
    /// No process is examined before that moment.
    rests_until: Instant,
}

impl Work for Examiner {
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
        for (port, pid, deed) in news.sights {
            let who = self.machine.identify(pid);
            self.shared.openers().saw(&port, &who, deed, now);
        }
        report(&mut self.log, self.watch.refresh(now));
        let question = (self.rests_until <= now).then(|| self.shared.openers().next(now)).flatten();
        if let Some(question) = question {
            self.examine(&question, now);
        }
        let (openers, now) = (self.shared.openers(), Instant::now());
        if openers.has_wishes(now) {
            self.shared.bell.ring();
        }
        let next = openers.next_moment(now).map(|moment| moment.max(self.rests_until));
        next.into_iter().chain(self.watch.next_moment()).min()
    }
}

impl Examiner {
    /// All processes that have a port open now. What they do meanwhile is read afterwards.
    fn find_openers(&mut self) {
        for (port, pid) in all_openers(&self.dev_dir) {
            let who = self.machine.identify(pid);
            self.shared.openers().opened(&port, &who, Instant::now());
        }
    }

    /// Examining processes takes a part of the time.
    fn examine(&mut self, question: &Question, began: Instant) {
        let node = self.node(&question.port);
        let is_open = node.map_or(Ok(None), |node| self.is_open(&question.who, &node));
        let now = Instant::now();
        let spent = now.saturating_duration_since(began);
        let rest = if is_open.is_err() { CHECK_EVERY } else { rest_after(spent) };
        self.rests_until = now.checked_add(rest).unwrap_or(now);
        if let Ok(is_open) = is_open {
            self.shared.openers().answered(question, node, is_open, now);
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
