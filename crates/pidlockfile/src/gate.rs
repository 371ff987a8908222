//! A gate for processes that break or remove locks: only one can be in it, and only callers with the right to
//! open it can enter.
//!
//! Every user who may read a lock file can hold `flock(2)` on it. A gate is a file in a directory of the callers that no
//! other user may open, so only the callers can hold `flock(2)` on it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::errno::Errno;
use crate::flocked::Flocked;
use crate::process::Pid;
use crate::status::Status;
use crate::sys::{self, Rename};
use crate::temporary;

/// The name of the file.
const NAME: &str = "gate";

/// How often the file is opened again if it was not there, was removed, or was made by another meanwhile.
const TRIES: usize = 8;

/// Its permission bits: nobody but its owner may open it.
const MODE: u32 = 0o600;

/// The length of an entry: a number in ten places, the time in nanoseconds in twenty, and a newline.
const ENTRY_BYTES: usize = 32;

/// The gate in one directory: [`Directory::as_gate`](crate::Directory::as_gate).
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let scratch = tempfile::tempdir()?;
/// # let (locks, state) = (scratch.path(), scratch.path());
/// use pidlockfile::Directory;
///
/// let gate = Directory::open(state)?.as_gate();
/// let directory = Directory::open(locks)?.gated(gate);
/// assert!(directory.is_gated());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Gate {
    handle: Arc<sys::Handle>,
    /// The owner of the directory, as a uid.
    owner: u32,
    /// The process that enters, for others to see.
    pid: Pid,
}

/// Being in the gate, for as long as this value or a copy of it is kept. For one thread: a second thread with a copy would
/// be inside, too.
#[derive(Clone, Debug)]
pub struct Passage {
    inside: Arc<Flocked>,
}

/// What came of trying to enter: [`Directory::try_enter`](crate::Directory::try_enter).
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "the caller acts on each")]
pub enum Entry {
    /// We are inside.
    Inside(Passage),
    /// Another process is inside.
    Occupied(Occupant),
    /// This process may not enter the gate, or the gate's directory is gone. It goes on without the gate.
    NoGate,
}

/// Another process that is in the gate, by what it wrote there when it entered: others see who is inside, and that it is
/// not always the same process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupant {
    entry: [u8; ENTRY_BYTES],
}

impl Occupant {
    /// Its number in its own pid namespace; `None` in the moment before it has written that.
    #[must_use]
    pub fn pid(&self) -> Option<Pid> {
        let number = self.entry.split(|byte| *byte == b' ').next()?;
        Pid::parse(number).ok()
    }

    /// A process that enters so long after 1970. No two entries of a process are the same.
    fn entering(pid: Pid, time: Duration) -> Self {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut entry = [0; ENTRY_BYTES];
        // It is as long as this.
        let _ = writeln!(entry.as_mut_slice(), "{pid:<10} {nanoseconds:>20}");
        Self { entry }
    }

    /// The process that has entered last, by the gate's file. What cannot be read is as what is not written yet.
    fn in_file(file: &File) -> Self {
        let mut entry = [0; ENTRY_BYTES];
        let _ = sys::read_start(file, &mut entry, ENTRY_BYTES);
        Self { entry }
    }
}

impl Gate {
    pub(crate) fn of(handle: Arc<sys::Handle>, owner: u32) -> Self {
        Self { handle, owner, pid: Pid::this() }
    }

    /// Enters, without waiting, and says so to others.
    ///
    /// # Errors
    /// The file cannot be opened now, or is not of our own: the caller must not go on without the gate.
    pub(crate) fn try_enter(&self) -> Result<Entry, Errno> {
        let entry = self.try_hold()?;
        if let Entry::Inside(passage) = &entry {
            let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let ours = Occupant::entering(self.pid, time);
            // Where it cannot be written, others wait less long.
            let _ = sys::write_all(&passage.inside.file, &ours.entry);
        }
        Ok(entry)
    }

    /// The process that is inside. A caller that only looks says nothing of itself to others.
    pub(crate) fn occupant(&self) -> Option<Occupant> {
        match self.try_hold() {
            Ok(Entry::Occupied(occupant)) => Some(occupant),
            Ok(Entry::Inside(_) | Entry::NoGate) | Err(_) => None,
        }
    }

    fn try_hold(&self) -> Result<Entry, Errno> {
        for _ in 0..TRIES {
            let opened = match sys::open_to_read_and_write(&*self.handle, NAME.as_ref()) {
                Err(Errno::NOENT) => self.make().map(|()| None),
                opened => opened.map(Some),
            };
            let file = match opened {
                Ok(Some(file)) => file,
                Ok(None) => continue,
                Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOENT) => {
                    return Ok(Entry::NoGate);
                }
                Err(errno) => return Err(errno),
            };
            let inside = Flocked::writable(file);
            let (is_inside, seen) = (inside.try_lock()?, sys::stat_open(&inside.file)?);
            if !self.is_ours(&seen) {
                return Err(Errno::PERM);
            }
            if !is_inside {
                return Ok(Entry::Occupied(Occupant::in_file(&inside.file)));
            }
            // It may have been cleaned up: then others are at another one.
            if seen.links > 0 {
                return Ok(Entry::Inside(Passage { inside: Arc::new(inside) }));
            }
        }
        Err(Errno::AGAIN)
    }

    /// Makes the file if it is not there yet. A file system that is full later then keeps nobody from entering.
    pub fn make_ready(&self) {
        if sys::inspect(&*self.handle, NAME.as_ref()).err() == Some(Errno::NOENT) {
            let _ = self.make();
        }
    }

    fn is_ours(&self, seen: &Status) -> bool {
        let is_owners = [0, self.owner].contains(&seen.owner) || seen.owner == sys::own_user();
        seen.obstacle.is_none() && seen.mode & 0o077 == 0 && is_owners
    }

    /// It gets its name when it belongs to the owner of the directory: root may be the first.
    fn make(&self) -> Result<(), Errno> {
        let private = temporary::fresh(NAME, Pid::this());
        let file = sys::create(&*self.handle, &private, MODE)?;
        // A file system that is full later has this room.
        let _ = sys::write_all(&file, &[b' '; ENTRY_BYTES]);
        let named = self.name(&file, &private);
        // What was renamed is not there under this name any more.
        let _ = sys::unlink(&*self.handle, &private);
        match named {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    fn name(&self, file: &File, private: &OsStr) -> Result<(), Errno> {
        let name = NAME.as_ref();
        if self.owner != sys::own_user() {
            sys::give_away(file, self.owner)?;
        }
        match sys::rename(&*self.handle, private, name, Rename::NoReplace) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                sys::link(&*self.handle, private, name)
            }
            outcome => outcome,
        }
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use crate::Directory;

    /// Everybody could hold it.
    #[test]
    fn a_file_that_others_may_open_is_no_gate() {
        use std::os::unix::fs::PermissionsExt;

        let scratch = tempfile::tempdir().unwrap();
        let gate = Directory::open(scratch.path()).unwrap().as_gate().unwrap();
        gate.make_ready();
        assert!(matches!(gate.try_enter(), Ok(Entry::Inside(_))));
        let open_to_all = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(scratch.path().join(NAME), open_to_all).unwrap();
        assert_eq!(gate.try_enter().unwrap_err(), Errno::PERM);
    }

    #[test]
    fn who_waits_sees_who_is_inside_and_each_change() {
        let scratch = tempfile::tempdir().unwrap();
        let gate = || Directory::open(scratch.path()).unwrap().as_gate().unwrap();
        gate().make_ready();
        let met = || match gate().try_enter().unwrap() {
            Entry::Occupied(occupant) => occupant,
            other @ (Entry::Inside(_) | Entry::NoGate) => panic!("{other:?}"),
        };
        let enter = || match gate().try_enter().unwrap() {
            Entry::Inside(passage) => passage,
            other @ (Entry::Occupied(_) | Entry::NoGate) => panic!("{other:?}"),
        };
        let first = enter();
        let seen = met();
        assert_eq!((seen.pid(), met()), (Some(Pid::this()), seen));
        drop(first);
        let second = enter();
        assert_ne!(met(), seen);
        // Who looks at a free gate is not inside, for those that come later.
        let before = met();
        drop(second);
        assert_eq!(gate().occupant(), None);
        let _third = gate().try_hold().unwrap();
        assert_eq!(gate().occupant(), Some(before));
        // Before it has written.
        std::fs::write(scratch.path().join(NAME), " ".repeat(ENTRY_BYTES)).unwrap();
        assert_eq!(met().pid(), None);
    }
}
