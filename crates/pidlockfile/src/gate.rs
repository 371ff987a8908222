//! A gate for breakers and cleaners: who is in it keeps the others out, and only who may open it gets in.
//!
//! Anybody who may read a lock file can hold `flock(2)` on it. A gate is files in a directory of the
//! callers' own that nobody else may open, so `flock(2)` on these is theirs alone.

use std::fs::File;
use std::sync::Arc;

use crate::directory::Directory;
use crate::draft::PrivateName;
use crate::errno::Errno;
use crate::name::Name;
use crate::status::{Identity, Kind};
use crate::sys::{self, Rename};

/// There are so many files, so that one who is stopped inside is in the way of a part only.
const LANES: u64 = 8;

/// How often a lane is opened again that was removed, or made by another, meanwhile.
const TRIES: usize = 4;

/// The permission bits of a lane: nobody but its owner may open it.
const MODE: u32 = 0o600;

/// The gate in one directory.
#[derive(Clone, Debug)]
pub struct Gate {
    directory: Arc<Directory>,
}

/// Being in the gate, on account of one file.
#[derive(Debug)]
pub(crate) struct Passage {
    _lane: File,
}

impl Gate {
    /// The gate in a directory that belongs to the callers: of one that everybody may write there is
    /// none. Its files, `gate.0` to `gate.7`, are made when they are needed.
    #[cfg(unix)]
    #[must_use]
    pub fn of(directory: Directory) -> Option<Self> {
        (directory.mode() & 0o002 == 0).then(|| Self { directory: Arc::new(directory) })
    }

    /// Enters on account of a file, without waiting; `None` while another is inside.
    pub(crate) fn try_enter(&self, file: Identity) -> Result<Option<Passage>, Errno> {
        let name = format!("gate.{}", file.inode % LANES);
        for _ in 0..TRIES {
            let lane = self.lane(&name)?;
            if !sys::try_lock_writable(&lane)? {
                return Ok(None);
            }
            // Who tidies up may have removed it: then others are at another one.
            if sys::stat_open(&lane)?.links > 0 {
                return Ok(Some(Passage { _lane: lane }));
            }
        }
        Err(Errno::EAGAIN)
    }

    fn lane(&self, name: &str) -> Result<File, Errno> {
        let directory = &*self.directory;
        for _ in 0..TRIES {
            match sys::open_to_write(directory, name) {
                Ok(lane) => return self.is_ours(&lane)?.then_some(lane).ok_or(Errno::EPERM),
                Err(Errno::ENOENT) => self.make(name)?,
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::EAGAIN)
    }

    fn is_ours(&self, lane: &File) -> Result<bool, Errno> {
        let seen = sys::stat_open(lane)?;
        let owners = [0, sys::own_user(), self.directory.owner()];
        let is_private = seen.mode & 0o077 == 0 && owners.contains(&seen.owner);
        Ok(seen.kind == Kind::Regular && is_private)
    }

    /// It gets its name when it belongs to whom the directory belongs to: root may be the first.
    fn make(&self, name: &str) -> Result<(), Errno> {
        let directory = &*self.directory;
        let name = Name::new(name).ok_or(Errno::EINVAL)?;
        let mut private = PrivateName::fresh(directory, "gate")?;
        let lane = sys::create(directory, private.as_str(), MODE)?;
        private.keep_clean();
        if directory.owner() != sys::own_user() {
            sys::give_away(&lane, directory.owner())?;
        }
        match sys::rename_with(directory, private.as_str(), name.as_str(), Rename::NoReplace) {
            Ok(()) => private.forget(),
            Err(Errno::EEXIST) => {}
            Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => {
                match sys::link(directory, private.as_str(), name.as_str()) {
                    Ok(()) | Err(Errno::EEXIST) => {}
                    Err(errno) => return Err(errno),
                }
            }
            Err(errno) => return Err(errno),
        }
        Ok(())
    }
}
