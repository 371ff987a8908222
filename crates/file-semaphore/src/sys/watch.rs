//! Waits until a lock may have become free: until the system reports a change in its directory, the time is over, or
//! another thread rings. Never decides that the lock is free: the caller checks.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use pidlockfile::{Directory, Name};

use super::Woken;
use crate::error::Error;
#[cfg(target_os = "linux")]
use inotify::Watching;

/// Something besides the lock that ends a wait, such as a signal.
pub(crate) trait Alarm {
    /// Becomes readable when it rings.
    fn as_fd(&self) -> BorrowedFd<'_>;
    /// What it ends the wait with, if it rings. Does not wait.
    fn ring(&self) -> Option<Error>;
}

/// A watch on a lock directory. Where the system or the file system reports nothing, every wait simply
/// lasts its time.
#[derive(Debug)]
pub(crate) struct Watch {
    watching: Option<Watching>,
}

impl Watch {
    /// Starts watching a lock directory. What happens from now on is not missed.
    pub(crate) fn on(directory: &Directory) -> Self {
        Self { watching: Watching::directory(directory) }
    }

    /// Whether anything is reported at all.
    pub(crate) fn reports(&self) -> bool {
        self.watching.is_some()
    }

    /// Waits until one of the names goes, or, without names, until something happens in the directory, the time is
    /// over, or the alarm rings.
    pub(crate) fn wait(&self, names: &[Name], time: Duration, alarm: Option<&dyn Alarm>) -> Woken {
        let begin = Instant::now();
        let place = self.watching.as_ref().and_then(Watching::as_fd);
        let concerns = || self.watching.as_ref().is_some_and(|watching| watching.concerns(names));
        while let Some(left) = time.checked_sub(begin.elapsed()).filter(|left| !left.is_zero()) {
            match sleep(place, left, alarm) {
                Some(Woken::Alarm) => return Woken::Alarm,
                Some(Woken::Change) if concerns() => return Woken::Change,
                Some(Woken::Change | Woken::Time) | None => {}
            }
        }
        Woken::Time
    }
}

/// One poll(2): until the place is readable (`Change`), the alarm rings, or the time is over. `None` when
/// it was interrupted.
pub(crate) fn sleep(
    place: Option<BorrowedFd<'_>>,
    left: Duration,
    alarm: Option<&dyn Alarm>,
) -> Option<Woken> {
    let alarms = alarm.map(|alarm| PollFd::new(alarm.as_fd(), PollFlags::POLLIN));
    let places = place.map(|place| PollFd::new(place, PollFlags::POLLIN));
    let mut places: Vec<PollFd<'_>> = alarms.into_iter().chain(places).collect();
    // Rounded up: a wait must not end early and then spin.
    let milliseconds = left.as_micros().div_ceil(1000);
    let timeout = PollTimeout::try_from(milliseconds).unwrap_or(PollTimeout::MAX);
    if poll(&mut places, timeout).ok()? == 0 {
        return Some(Woken::Time);
    }
    let readable = |place: &PollFd<'_>| place.revents().is_some_and(|r| !r.is_empty());
    let rings = alarm.is_some() && places.first().is_some_and(readable);
    Some(if rings { Woken::Alarm } else { Woken::Change })
}

/// Readable once it was rung.
#[derive(Debug)]
pub(crate) struct Bell {
    near: UnixStream,
    far: UnixStream,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        let (near, far) = UnixStream::pair()?;
        Ok(Self { near, far })
    }

    pub(crate) fn ring(&self) {
        let _ = self.far.shutdown(Shutdown::Both);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.near.as_fd()
    }
}

/// Linux: inotify(7).
#[cfg(target_os = "linux")]
mod inotify {
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
    use std::sync::Mutex;

    use nix::errno::Errno;
    use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
    use pidlockfile::{Directory, Name, Pid};

    use crate::sys::guarded;

    /// Instances of waits that are over, for later ones: closing an instance waits for the kernel to sweep up
    /// behind it, which takes longer than everything else between a release and the next holder. The
    /// number of instances for each user is small, so few are kept; a forked child does not use its
    /// parent's.
    static KEPT: Mutex<Vec<(Pid, Inotify)>> = Mutex::new(Vec::new());

    /// The most that are kept.
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
            // A holder that is killed may have its lock file open. The kernel closes it, and reports that.
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
                            let is_it =
                                |name: &Name| event.name.as_deref() == Some(name.as_os_str());
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
}

/// Systems other than Linux report nothing, so every wait lasts its full time, and then the waiter checks.
/// Type-checked, never run so far.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
enum Watching {}

#[cfg(not(target_os = "linux"))]
impl Watching {
    fn directory(_directory: &Directory) -> Option<Self> {
        None
    }

    fn concerns(&self, _names: &[Name]) -> bool {
        match *self {}
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn names(list: &[&str]) -> Vec<Name> {
        list.iter().map(|name| Name::new(*name).unwrap()).collect()
    }

    fn scratch(files: &[&str]) -> (tempfile::TempDir, Directory) {
        let scratch = tempfile::tempdir().unwrap();
        for file in files {
            // Not by open(2): another test may fork meanwhile, and the child's end would be the close of a written file.
            std::os::unix::fs::symlink("nothing", scratch.path().join(file)).unwrap();
        }
        let directory = Directory::open(scratch.path()).unwrap();
        (scratch, directory)
    }

    #[rstest]
    #[case::removed(|dir: &std::path::Path| std::fs::remove_file(dir.join("b")).unwrap())]
    #[case::renamed(|dir: &std::path::Path| std::fs::rename(dir.join("b"), dir.join("c")).unwrap())]
    fn wakes_when_one_of_the_names_goes(#[case] happen: fn(&std::path::Path)) {
        let (scratch, directory) = scratch(&["a", "b"]);
        let watch = Watch::on(&directory);
        happen(scratch.path());
        let begin = Instant::now();
        assert_eq!(watch.wait(&names(&["a", "b"]), LONG, None), Woken::Change);
        assert!(begin.elapsed() < LONG);
    }

    #[test]
    fn other_names_in_a_busy_directory_do_not_wake() {
        let (scratch, directory) = scratch(&["a", "b"]);
        let watch = Watch::on(&directory);
        std::fs::remove_file(scratch.path().join("b")).unwrap();
        let time = Duration::from_millis(30);
        assert_eq!(watch.wait(&names(&["a"]), time, None), Woken::Time);
    }

    #[test]
    fn an_instance_serves_again_and_forgets_what_it_did_not_watch() {
        let (scratch, directory) = scratch(&["a", "b"]);
        drop(Watch::on(&directory));
        std::fs::remove_file(scratch.path().join("a")).unwrap();
        let watch = Watch::on(&directory);
        let names = names(&["a", "b"]);
        assert_eq!(watch.wait(&names, Duration::from_millis(30), None), Woken::Time);
        std::fs::remove_file(scratch.path().join("b")).unwrap();
        assert_eq!(watch.wait(&names, LONG, None), Woken::Change);
    }
}
