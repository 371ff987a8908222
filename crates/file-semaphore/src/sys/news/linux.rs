//! Linux: inotify(7).

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use pidlockfile::{Directory, Name};

/// An inotify(7) instance, kept between waits: closing one waits for the kernel to sweep up behind
/// it, which takes longer than everything else between a release and the next holder.
#[derive(Debug)]
pub(crate) struct Instance(Inotify);

/// An instance that watches something.
#[derive(Debug)]
pub(crate) struct Watching {
    inotify: Inotify,
    watch: WatchDescriptor,
}

/// What happens to a ticket whose owner leaves the line or ends, or takes its turn.
const TICKET_EVENTS: AddWatchFlags = AddWatchFlags::IN_CLOSE_WRITE
    .union(AddWatchFlags::IN_ATTRIB)
    .union(AddWatchFlags::IN_DELETE_SELF)
    .union(AddWatchFlags::IN_MOVE_SELF);

impl Instance {
    /// `None` where the kernel gives none: its number per user is limited.
    pub(crate) fn new() -> Option<Self> {
        Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).ok().map(Self)
    }

    /// Watches a lock directory.
    pub(crate) fn directory(self, directory: &Directory) -> Option<Watching> {
        // A killed holder may have had its lock file open: that it is closed is news.
        let gone = AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_ONLYDIR;
        self.add(directory, "", gone)
    }

    /// Watches one ticket.
    pub(crate) fn ticket(self, directory: &Directory, ticket: &Name) -> Option<Watching> {
        self.add(directory, ticket.as_str(), TICKET_EVENTS | AddWatchFlags::IN_DONT_FOLLOW)
    }

    fn add(self, directory: &Directory, name: &str, events: AddWatchFlags) -> Option<Watching> {
        // By descriptor: whatever happens to the path, the open directory is the one watched.
        let path = format!("/proc/self/fd/{}/{name}", directory.as_fd().as_raw_fd());
        let Self(inotify) = self;
        let watch = inotify.add_watch(path.as_str(), events).ok()?;
        Some(Watching { inotify, watch })
    }
}

impl Watching {
    /// Stops watching.
    pub(crate) fn stop(self) -> Option<Instance> {
        self.inotify.rm_watch(self.watch).ok()?;
        Some(Instance(self.inotify))
    }

    /// Whether what happened concerns one of the names, or the ticket. Reads all of it.
    pub(crate) fn concerns(&self, names: &[Name]) -> bool {
        let mut concerned = false;
        loop {
            match self.inotify.read_events() {
                Ok(events) => {
                    concerned |= events.iter().any(|event| {
                        let lost = event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW);
                        let ticket = event.name.is_none() && event.mask.intersects(TICKET_EVENTS);
                        lost || ticket
                            || event.name.as_deref().is_some_and(|name| is_among(name, names))
                    });
                    if events.is_empty() || concerned {
                        return concerned;
                    }
                }
                Err(Errno::EINTR) => {}
                // EAGAIN: read to the end. Another error must not make a spinning waiter.
                Err(_) => return concerned,
            }
        }
    }
}

impl AsFd for Watching {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

fn is_among(name: &OsStr, names: &[Name]) -> bool {
    names.iter().any(|ours| name == OsStr::new(ours.as_str()))
}
