//! Linux: inotify(7).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Mutex;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use pidlockfile::{Directory, Name, Pid};

use super::guarded;

/// Of the waits that are over, for those that come: closing an instance waits for the kernel to sweep up
/// behind it, which takes longer than everything else between a release and the next holder. The
/// number of instances for each user is small, so few are kept; a forked child does not use its
/// parent's.
static KEPT: Mutex<Vec<(Pid, Inotify)>> = Mutex::new(Vec::new());

/// So many are kept at most.
const MOST_KEPT: usize = 2;

/// A watch on a directory, by an inotify instance.
#[derive(Debug)]
pub(crate) struct Watching(Option<(Inotify, WatchDescriptor)>);

impl Watching {
    /// Watches a lock directory. `None` where the kernel gives no instance: their number for each user
    /// is limited.
    pub(crate) fn directory(directory: &Directory) -> Option<Self> {
        let inotify = kept()
            .or_else(|| Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).ok())?;
        // A killed holder may have had its lock file open: that it is closed is news.
        let gone = AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_ONLYDIR;
        // By descriptor: whatever happens to the path, the open directory is the one watched.
        let path = format!("/proc/self/fd/{}/", directory.as_fd().as_raw_fd());
        let watch = inotify.add_watch(path.as_str(), gone).ok()?;
        Some(Self(Some((inotify, watch))))
    }

    /// Whether what happened concerns one of the names, or anything where there is no name. Reads all of it.
    pub(crate) fn concerns(&self, names: &[Name]) -> bool {
        let Some((inotify, watch)) = &self.0 else { return false };
        let mut concerned = false;
        loop {
            match inotify.read_events() {
                Ok(events) => {
                    concerned |= events.iter().any(|event| {
                        let lost = event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW);
                        // What an earlier watch of this instance has left unread is no news.
                        let ours = event.wd == *watch;
                        let is_it = |name: &Name| event.name.as_deref() == Some(name.as_os_str());
                        lost || ours && (names.is_empty() || names.iter().any(is_it))
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

    pub(crate) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(|(inotify, _)| inotify.as_fd())
    }
}

/// Stops watching, so that nothing piles up in the instance until it is used again.
impl Drop for Watching {
    fn drop(&mut self) {
        let Some((inotify, watch)) = self.0.take() else { return };
        let mut kept = guarded(&KEPT);
        if kept.len() < MOST_KEPT && inotify.rm_watch(watch).is_ok() {
            kept.push((Pid::this(), inotify));
        }
    }
}

fn kept() -> Option<Inotify> {
    let mut kept = guarded(&KEPT);
    kept.retain(|(owner, _)| *owner == Pid::this());
    kept.pop().map(|(_, inotify)| inotify)
}
