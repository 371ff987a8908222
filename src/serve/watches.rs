//! Watches for events that may free a device: changes in the lock directories, and ends of processes. Reports
//! them and decides nothing.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent};
use pidlockfile::process::{self, Fate, Machine, ProcessIdentity};
use pidlockfile::{Directory, Pid};

use super::queue::Change;

/// The events that a daemon receives by an epoll instance.
#[derive(Debug)]
pub(super) struct Watches {
    limit: usize,
    machine: Machine,
    processes: HashMap<Pid, (ProcessIdentity, OwnedFd)>,
    directories: Option<Inotify>,
    /// The end of a process will not be reported: the caller has to search for it from time to time.
    pub(super) polls_for_ends: bool,
}

impl Watches {
    /// Watches the ends of at most `limit` processes at a time.
    pub(super) fn of_up_to(limit: usize) -> Self {
        Self {
            limit,
            machine: Machine::default(),
            processes: HashMap::new(),
            directories: None,
            polls_for_ends: false,
        }
    }

    /// Asks for an event with this number at the end of a process. Where there is no
    /// room, those that are not wanted any more make some. False if it has ended; another one may have its number.
    pub(super) fn watch_end(
        &mut self,
        who: &ProcessIdentity,
        epoll: &Epoll,
        number: u64,
        mut wanted: impl FnMut(Pid) -> bool,
    ) -> bool {
        let pid = who.pid;
        if self.processes.get(&pid).is_some_and(|(known, _)| known == who) {
            return true;
        }
        if self.processes.len() >= self.limit {
            self.processes.retain(|pid, _| wanted(*pid));
        }
        let is_possible =
            self.processes.len() < self.limit && !who.is_elsewhere(self.machine.here());
        let opened = is_possible.then(|| process::handle(pid));
        let is_gone = |error: &io::Error| error.raw_os_error() == Some(Errno::ESRCH as i32);
        if matches!(&opened, Some(Err(error)) if is_gone(error)) {
            return false;
        }
        let Some(Ok(descriptor)) = opened else {
            self.polls_for_ends = true;
            return true;
        };
        // A process that is the same now is the one that was opened.
        if self.machine.fate(who) != Fate::Same {
            return false;
        }
        match epoll.add(&descriptor, EpollEvent::new(EpollFlags::EPOLLIN, number)) {
            Ok(()) => drop(self.processes.insert(pid, (who.clone(), descriptor))),
            Err(_) => self.polls_for_ends = true,
        }
        true
    }

    /// The end of a process of this number was reported. Another one may have the number, and be watched, by now.
    pub(super) fn forget_process(&mut self, pid: Pid) {
        let Some((_, handle)) = self.processes.get(&pid) else { return };
        // It is readable when the process has ended.
        let mut ends = [PollFd::new(handle.as_fd(), PollFlags::POLLIN)];
        if poll(&mut ends, PollTimeout::ZERO) != Ok(0) {
            self.processes.remove(&pid);
        }
    }

    /// Watches directories from now on; events show with this number.
    ///
    /// # Errors
    /// The system's, when not even one can be watched.
    pub(super) fn watch_directories(
        &mut self,
        directories: &[&Directory],
        epoll: &Epoll,
        number: u64,
    ) -> Result<(), Errno> {
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
        self.directories = Some(inotify);
        Ok(())
    }

    pub(super) fn watches_directories(&self) -> bool {
        self.directories.is_some()
    }

    pub(super) fn forget_directories(&mut self) {
        self.directories = None;
    }

    /// What has changed in the directories, as much as fits into one reading.
    pub(super) fn changes(&self) -> Vec<Change> {
        let events = self.directories.as_ref().and_then(|it| it.read_events().ok());
        let change = |event: InotifyEvent| match event.name {
            Some(name) => name.into_string().ok().map(Change::Name),
            None => Some(Change::Everything),
        };
        events.into_iter().flatten().filter_map(change).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use nix::sys::epoll::EpollCreateFlags;

    use super::*;

    /// An event of an earlier process comes after the number was given to another one, and that is watched.
    #[test]
    fn a_late_event_does_not_end_the_watch_of_a_later_process() {
        let epoll = Epoll::new(EpollCreateFlags::empty()).unwrap();
        let mut watches = Watches::of_up_to(8);
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::new(child.id().into()).unwrap();
        let who = Machine::default().identify(pid);
        assert!(watches.watch_end(&who, &epoll, 7, |_| true));
        watches.forget_process(pid);
        assert!(watches.processes.contains_key(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        let mut events = [EpollEvent::empty(); 1];
        assert_eq!(epoll.wait(&mut events, 10_000_u16), Ok(1));
        watches.forget_process(pid);
        assert!(!watches.processes.contains_key(&pid));
    }
}
