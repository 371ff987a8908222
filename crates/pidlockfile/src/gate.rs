//! A gate for processes that break or remove locks: only one can be in it, and only callers with the right to
//! open it can enter.
//!
//! Every user who may read a lock file can hold `flock(2)` on it. A gate consists of files in a directory of
//! the callers that no other user may open, so only the callers can hold `flock(2)` on these.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::sync::Arc;

use crate::errno::Errno;
use crate::flocked::Flocked;
use crate::process::Pid;
use crate::status::{Identity, Status};
use crate::sys::{self, Rename};
use crate::temporary;

/// There are so many files, so that a process that is stopped inside is in the way of a part only.
const LANES: u64 = 8;

/// How often a lane is opened again that was not there, was removed, or was made by another meanwhile.
const TRIES: usize = 8;

/// The permission bits of a lane: nobody but its owner may open it.
const MODE: u32 = 0o600;

/// The gate in one directory: [`Directory::into_gate`](crate::Directory::into_gate).
#[derive(Clone, Debug)]
pub struct Gate {
    handle: Arc<sys::Handle>,
    /// The owner of the directory, as a uid.
    owner: u32,
}

/// What came of trying to enter.
#[derive(Debug)]
pub(crate) enum Entry {
    /// We are inside for as long as the lane is kept.
    Inside(Flocked),
    /// Another process is inside.
    Occupied,
    /// This process may not enter the gate, or the gate's directory is gone. It goes on without the gate.
    NoGate,
}

fn name_of(lane: u64) -> OsString {
    OsString::from(format!("gate.{lane}"))
}

impl Gate {
    pub(crate) fn of(handle: sys::Handle, owner: u32) -> Self {
        Self { handle: Arc::new(handle), owner }
    }

    /// Enters on account of a file, without waiting.
    ///
    /// # Errors
    /// The lane cannot be opened now, or is not a file of our own: the caller must not go on without the gate.
    pub(crate) fn try_enter(&self, file: Identity) -> Result<Entry, Errno> {
        let name = name_of(file.inode % LANES);
        for _ in 0..TRIES {
            let opened = match sys::open_to_write(&*self.handle, &name) {
                Err(Errno::ENOENT) => self.make(&name).map(|()| None),
                opened => opened.map(Some),
            };
            let lane = match opened {
                Ok(Some(lane)) => lane,
                Ok(None) => continue,
                Err(Errno::EACCES | Errno::EPERM | Errno::EROFS | Errno::ENOENT) => {
                    return Ok(Entry::NoGate);
                }
                Err(errno) => return Err(errno),
            };
            let lane = Flocked::writable(lane);
            let (is_inside, seen) = (lane.try_lock()?, sys::stat_open(&lane.file)?);
            if !self.is_ours(&seen) {
                return Err(Errno::EPERM);
            }
            if !is_inside {
                return Ok(Entry::Occupied);
            }
            // It may have been cleaned up: then others are at another one.
            if seen.links > 0 {
                return Ok(Entry::Inside(lane));
            }
        }
        Err(Errno::EAGAIN)
    }

    /// Makes the files that are not there yet. A file system that is full later then keeps nobody from entering.
    pub fn make_all(&self) {
        for name in (0..LANES).map(name_of) {
            if sys::inspect(&*self.handle, &name).err() == Some(Errno::ENOENT) {
                let _ = self.make(&name);
            }
        }
    }

    fn is_ours(&self, seen: &Status) -> bool {
        let is_owners = [0, self.owner].contains(&seen.owner) || seen.owner == sys::own_user();
        seen.obstacle.is_none() && seen.mode & 0o077 == 0 && is_owners
    }

    /// It gets its name when it belongs to the owner of the directory: root may be the first.
    fn make(&self, name: &OsStr) -> Result<(), Errno> {
        let private = temporary::fresh("gate", Pid::this());
        let lane = sys::create(&*self.handle, &private, MODE)?;
        let named = self.name(&lane, &private, name);
        // What was renamed is not there under this name any more.
        let _ = sys::unlink(&*self.handle, &private);
        match named {
            Ok(()) | Err(Errno::EEXIST) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    fn name(&self, lane: &File, private: &OsStr, name: &OsStr) -> Result<(), Errno> {
        if self.owner != sys::own_user() {
            sys::give_away(lane, self.owner)?;
        }
        match sys::rename(&*self.handle, private, name, Rename::NoReplace) {
            Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => {
                sys::link(&*self.handle, private, name)
            }
            outcome => outcome,
        }
    }
}
