//! What we remember of the locks we wrote: when their holders started, so that a pid that was
//! given out again is not taken for the holder.
//!
//! A lock file has room for a pid and nothing else. The rest is kept in the state directory, one
//! symbolic link per device whose *target* is the record: making one is a single step, so there
//! is no half-written record, and reading one opens nothing. The directory is ours alone; what
//! somebody else puts there is not believed unless it fits the lock file to the letter.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use lockfile::{Identity, Name, Pid, process};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::Mode;
use nix::unistd::UnlinkatFlags;

/// The state directory, or the lack of one: then no pid is ever thought to be reused.
#[derive(Debug)]
pub struct State {
    handle: Option<OwnedFd>,
    here: Option<Here>,
}

/// The boot and pid namespace in which pids and start times mean something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Here {
    /// The kernel's name for this boot.
    pub boot: String,
    /// The inode number of our pid namespace.
    pub namespace: u64,
}

/// What is remembered of one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Whose lock it is.
    pub pid: Pid,
    /// When that process started, in clock ticks since boot; `None` when there was no such
    /// process, so that none that comes later is the holder.
    pub start: Option<u64>,
    /// Where both mean something.
    pub here: Here,
    /// The lock file this is about, and when it was written, in nanoseconds: another lock with
    /// the same name and pid is not ours.
    pub file: Identity,
    /// See `file`.
    pub written: u128,
}

/// What the memory says of a living process that a lock file names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remembered {
    /// Nothing is known of this lock: it is believed.
    Nothing,
    /// It is the process that took the lock, or may be.
    Same,
    /// The lock is ours, and its holder is gone: the pid was given out again.
    Reused,
}

impl State {
    /// Opens the state directory if there is one.
    #[must_use]
    pub fn open(path: &Path) -> Self {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Self { handle: nix::fcntl::open(path, flags, Mode::empty()).ok(), here: None }
    }

    /// Remembers when the holder of a new lock started. Without a state directory, or without
    /// `/proc`, this does nothing.
    ///
    /// # Errors
    /// When the record cannot be written; the lock is good all the same.
    pub fn remember(
        &mut self,
        device: &Name,
        pid: Pid,
        file: Identity,
        written: SystemTime,
    ) -> Result<(), Errno> {
        let (Some(handle), Some(here)) = (&self.handle, here(&mut self.here)) else {
            return Ok(());
        };
        let written = nanoseconds(written);
        let start = process::start_time(pid);
        let text = Memory { pid, start, here: here.clone(), file, written }.to_text();
        match nix::unistd::symlinkat(text.as_str(), handle, device.as_str()) {
            Err(Errno::EEXIST) => {
                nix::unistd::unlinkat(handle, device.as_str(), UnlinkatFlags::NoRemoveDir)?;
                nix::unistd::symlinkat(text.as_str(), handle, device.as_str())
            }
            outcome => outcome,
        }
    }

    /// Forgets a device whose lock is gone.
    pub fn forget(&self, device: &Name) {
        if let Some(handle) = &self.handle {
            // A record without its lock file is never believed, so a failure does no harm.
            let _ = nix::unistd::unlinkat(handle, device.as_str(), UnlinkatFlags::NoRemoveDir);
        }
    }

    /// Asks whether the living process `pid` is the one that took the lock in `file`.
    pub fn recall(
        &mut self,
        device: &Name,
        pid: Pid,
        file: Identity,
        written: SystemTime,
    ) -> Remembered {
        let Some(handle) = &self.handle else { return Remembered::Nothing };
        let Ok(text) = nix::fcntl::readlinkat(handle, device.as_str()) else {
            return Remembered::Nothing;
        };
        let memory = text.to_str().and_then(Memory::from_text);
        let Some(memory) = memory.filter(|memory| {
            memory.pid == pid && memory.file == file && memory.written == nanoseconds(written)
        }) else {
            return Remembered::Nothing;
        };
        match here(&mut self.here) {
            Some(here) => compare(&memory, here, process::start_time(pid)),
            None => Remembered::Nothing,
        }
    }

    /// Whether there is a state directory that may be written, for the journal.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.handle.as_ref().is_some_and(|handle| {
            let access = nix::unistd::AccessFlags::W_OK;
            nix::unistd::faccessat(handle, ".", access, AtFlags::AT_EACCESS).is_ok()
        })
    }
}

/// Where we are is read once, and only when it is needed.
fn here(known: &mut Option<Here>) -> Option<&Here> {
    if known.is_none() {
        let boot = process::boot_id()?;
        *known = Some(Here { boot, namespace: process::pid_namespace()? });
    }
    known.as_ref()
}

/// The rule, apart from where the facts come from.
fn compare(memory: &Memory, here: &Here, start: Option<u64>) -> Remembered {
    if memory.here.boot != here.boot {
        return Remembered::Reused;
    }
    if memory.here.namespace != here.namespace {
        // The pid means another process than the one we can see: no guess.
        return Remembered::Same;
    }
    match start {
        None => Remembered::Same,
        start if start == memory.start => Remembered::Same,
        Some(_) => Remembered::Reused,
    }
}

fn nanoseconds(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

impl Memory {
    fn to_text(&self) -> String {
        let Self { pid, start, here, file, written } = self;
        let Identity { device, inode } = file;
        let start = start.map_or_else(|| "-".to_owned(), |ticks| ticks.to_string());
        let Here { boot, namespace } = here;
        format!(
            "pid={pid} start={start} boot={boot} pidns={namespace} file={device}:{inode}:{written}"
        )
    }

    fn from_text(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut field = |key: &str| words.next()?.strip_prefix(key);
        let pid = Pid::parse(field("pid=")?.as_bytes()).ok()?;
        let start = match field("start=")? {
            "-" => None,
            ticks => Some(ticks.parse().ok()?),
        };
        let boot = field("boot=")?.to_owned();
        let namespace = field("pidns=")?.parse().ok()?;
        let mut file = field("file=")?.split(':');
        let (device, inode) = (file.next()?.parse().ok()?, file.next()?.parse().ok()?);
        let written = file.next()?.parse().ok()?;
        let file = Identity { device, inode };
        Some(Self { pid, start, here: Here { boot, namespace }, file, written })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rstest::rstest;

    use super::*;

    fn memory(start: Option<u64>) -> Memory {
        Memory {
            pid: Pid::new(77).unwrap(),
            start,
            here: Here { boot: "b-1".to_owned(), namespace: 5 },
            file: Identity { device: 22, inode: 33 },
            written: 44,
        }
    }

    #[rstest]
    #[case::same_process(Some(9), "b-1", 5, Some(9), Remembered::Same)]
    #[case::another_start(Some(9), "b-1", 5, Some(10), Remembered::Reused)]
    #[case::was_nobody_then(None, "b-1", 5, Some(10), Remembered::Reused)]
    #[case::another_boot(Some(9), "b-2", 5, Some(9), Remembered::Reused)]
    #[case::another_namespace(Some(9), "b-1", 6, Some(10), Remembered::Same)]
    #[case::start_is_hidden(Some(9), "b-1", 5, None, Remembered::Same)]
    fn a_pid_is_the_holder_only_if_it_started_then(
        #[case] start: Option<u64>,
        #[case] boot: &str,
        #[case] namespace: u64,
        #[case] start_now: Option<u64>,
        #[case] remembered: Remembered,
    ) {
        let here = Here { boot: boot.to_owned(), namespace };
        assert_eq!(compare(&memory(start), &here, start_now), remembered);
    }

    #[rstest]
    #[case(Some(9))]
    #[case(None)]
    fn records_survive_the_disk(#[case] start: Option<u64>) {
        let memory = memory(start);
        assert_eq!(Memory::from_text(&memory.to_text()), Some(memory));
    }

    #[rstest]
    #[case::empty("")]
    #[case::other_order("start=9 pid=77 boot=b-1 pidns=5 file=22:33:44")]
    #[case::no_number("pid=77 start=x boot=b-1 pidns=5 file=22:33:44")]
    #[case::pid_zero("pid=0 start=9 boot=b-1 pidns=5 file=22:33:44")]
    #[case::cut("pid=77 start=9 boot=b-1 pidns=5 file=22:33")]
    fn planted_records_are_not_read(#[case] text: &str) {
        assert_eq!(Memory::from_text(text), None);
    }

    #[test]
    fn a_record_is_about_one_file_only() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = State::open(dir.path());
        let name = Name::new("LCK..ttyS0").unwrap();
        let file = Identity { device: 1, inode: 2 };
        let (then, later) = (UNIX_EPOCH + Duration::from_secs(5), SystemTime::now());
        let pid = Pid::this();
        state.remember(&name, pid, file, then).unwrap();
        state.remember(&name, pid, file, then).unwrap();
        assert_eq!(state.recall(&name, pid, file, then), Remembered::Same);
        assert_eq!(state.recall(&name, pid, file, later), Remembered::Nothing);
        let other = Identity { inode: 3, ..file };
        assert_eq!(state.recall(&name, pid, other, then), Remembered::Nothing);
        state.forget(&name);
        assert_eq!(state.recall(&name, pid, file, then), Remembered::Nothing);
    }

    #[test]
    fn a_lock_for_nobody_is_not_the_lock_of_whoever_comes_next() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = State::open(dir.path());
        let name = Name::new("LCK..ttyS0").unwrap();
        let file = Identity { device: 1, inode: 2 };
        let then = SystemTime::now();
        let mut memory = memory(None);
        memory.pid = Pid::this();
        memory.file = file;
        memory.written = nanoseconds(then);
        memory.here = here(&mut None).unwrap().clone();
        std::os::unix::fs::symlink(memory.to_text(), dir.path().join(name.as_str())).unwrap();
        assert_eq!(state.recall(&name, Pid::this(), file, then), Remembered::Reused);
    }

    #[test]
    fn without_a_state_directory_nothing_is_guessed() {
        let mut state = State::open(Path::new("/nonexistent/state"));
        let name = Name::new("LCK..ttyS0").unwrap();
        let file = Identity { device: 1, inode: 2 };
        let then = SystemTime::now();
        assert_eq!(state.remember(&name, Pid::this(), file, then), Ok(()));
        assert_eq!(state.recall(&name, Pid::this(), file, then), Remembered::Nothing);
        assert!(!state.is_open());
    }
}
