//! Watches for events that may free a device: changes in the lock directories, and ends of processes. Reports
//! them and decides nothing.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use pidlockfile::process::{Fate, Machine, ProcessIdentity};
use pidlockfile::{Directory, Pid};
use rustix::process::{PidfdFlags, pidfd_open};

use super::waiting::Change;

/// The events that a daemon receives, and whether it has to look for ends that are not reported.
#[derive(Debug)]
pub(super) struct Watches {
    ends: Ends,
    changes: Option<Changes>,
    polls_for_ends: bool,
}

impl Watches {
    /// The ends of so many processes at a time.
    pub(super) fn of_up_to(limit: usize) -> Self {
        Self { ends: Ends::of_up_to(limit), changes: None, polls_for_ends: false }
    }

    /// Asks to be told of the end of a process, by an event with this number. Where there is no
    /// room, those that are not wanted any more make some.
    pub(super) fn watch_end(
        &mut self,
        who: &ProcessIdentity,
        epoll: &Epoll,
        number: u64,
        wanted: impl Fn(Pid) -> bool,
    ) -> Watch {
        if self.ends.is_full() {
            self.ends.retain(wanted);
        }
        self.ends.watch(who, epoll, number)
    }

    pub(super) fn end_was_told(&mut self, pid: Pid) {
        self.ends.forget(pid);
    }

    /// Somebody's end will not be told.
    pub(super) fn poll_for_ends(&mut self) {
        self.polls_for_ends = true;
    }

    pub(super) fn stop_polling(&mut self) {
        self.polls_for_ends = false;
    }

    pub(super) fn polls_for_ends(&self) -> bool {
        self.polls_for_ends
    }

    /// Watches these directories from now on. False where not even one can be watched.
    pub(super) fn watch_directories(
        &mut self,
        directories: &[&Directory],
        epoll: &Epoll,
        number: u64,
    ) -> bool {
        self.changes = Changes::watch(directories, epoll, number).ok();
        self.changes.is_some()
    }

    pub(super) fn watches_directories(&self) -> bool {
        self.changes.is_some()
    }

    pub(super) fn forget_directories(&mut self) {
        self.changes = None;
    }

    /// What has changed in the directories.
    pub(super) fn changes(&self) -> Vec<Change> {
        self.changes.as_ref().map(Changes::take).unwrap_or_default()
    }
}

/// Processes whose end shows as events of an epoll instance.
#[derive(Debug)]
struct Ends {
    limit: usize,
    machine: Machine,
    watched: HashMap<Pid, (ProcessIdentity, OwnedFd)>,
}

/// What became of the wish to be told of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    /// It will be told.
    Set,
    /// It has ended; another one may have its number.
    Gone,
    /// There is no way, or no room: the caller has to look from time to time.
    Impossible,
}

impl Ends {
    /// Of so many processes at a time.
    #[must_use]
    fn of_up_to(limit: usize) -> Self {
        Self { limit, machine: Machine::default(), watched: HashMap::new() }
    }

    /// Asks to be told of the end of a process, by an event with this number.
    fn watch(&mut self, who: &ProcessIdentity, epoll: &Epoll, number: u64) -> Watch {
        let pid = who.pid;
        if self.watched.get(&pid).is_some_and(|(known, _)| known == who) {
            return Watch::Set;
        }
        if self.watched.len() >= self.limit || who.is_elsewhere(self.machine.here()) {
            return Watch::Impossible;
        }
        let Some(process) = rustix::process::Pid::from_raw(pid.as_raw()) else {
            return Watch::Gone;
        };
        let descriptor = match pidfd_open(process, PidfdFlags::NONBLOCK) {
            Ok(descriptor) => descriptor,
            Err(rustix::io::Errno::SRCH) => return Watch::Gone,
            Err(_) => return Watch::Impossible,
        };
        // A process that is the same now is the one that was opened.
        if self.machine.fate(who) != Fate::Same {
            return Watch::Gone;
        }
        match epoll.add(&descriptor, EpollEvent::new(EpollFlags::EPOLLIN, number)) {
            Ok(()) => {
                self.watched.insert(pid, (who.clone(), descriptor));
                Watch::Set
            }
            Err(_) => Watch::Impossible,
        }
    }

    /// The end was told.
    fn forget(&mut self, pid: Pid) {
        self.watched.remove(&pid);
    }

    /// Makes room: only these are of interest still.
    fn retain(&mut self, wanted: impl Fn(Pid) -> bool) {
        self.watched.retain(|pid, _| wanted(*pid));
    }

    /// Whether there is no room for another.
    #[must_use]
    fn is_full(&self) -> bool {
        self.watched.len() >= self.limit
    }
}

/// Names that went from the watched directories.
#[derive(Debug)]
struct Changes {
    inotify: Inotify,
}

impl Changes {
    /// Watches directories; events show with this number.
    ///
    /// # Errors
    /// The system's, when not even one can be watched.
    fn watch(directories: &[&Directory], epoll: &Epoll, number: u64) -> Result<Self, Errno> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let mask = AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_ONLYDIR;
        let mut outcome = Err(Errno::ENOENT);
        for directory in directories {
            // The directory that is open, whatever its name leads to by now.
            let path = format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd());
            let added = inotify.add_watch(path.as_str(), mask);
            outcome = outcome.or(added.map(|_| ()));
        }
        outcome?;
        epoll.add(&inotify, EpollEvent::new(EpollFlags::EPOLLIN, number))?;
        Ok(Self { inotify })
    }

    /// What has changed, as much as fits into one reading.
    #[must_use]
    fn take(&self) -> Vec<Change> {
        let events = self.inotify.read_events().unwrap_or_default();
        let change = |event: nix::sys::inotify::InotifyEvent| match event.name {
            Some(name) => name.into_string().ok().map(Change::Name),
            None => Some(Change::Everything),
        };
        events.into_iter().filter_map(change).collect()
    }
}
