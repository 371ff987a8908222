//! An open lock directory: reading and sweeping (`breaking` has what changes locks).
//!
//! Everything is relative to one directory handle and never follows a link in it. Nothing here waits: if
//! another process is in the way, the result says so and the caller decides.

use std::ffi::OsStr;
#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use crate::errno::Errno;
use crate::error::{Error, Step};
use crate::found::{Found, OpenFile};
use crate::gate::Gate;
use crate::name::Name;
use crate::process::{Pid, lives};
use crate::status::{Age, Identity, Obstacle, Status};
use crate::sys::Rename;
use crate::{sys, temporary};

/// A temporary file is swept only when it is older than this, also if its maker is dead: in a container the
/// pid in its name may mean another process.
const SWEEP_AGE: Duration = Duration::from_secs(60);

/// Opens a directory to be listed, or only to be used, if this user may not list it. Links in its path are followed.
///
/// # Errors
/// The system's reason.
#[cfg(unix)]
pub fn open_directory(path: &Path) -> std::io::Result<OwnedFd> {
    Ok(sys::open_directory(path)?)
}

/// An open lock directory.
///
/// The names of temporary files show which process has published here first, so that what it leaves behind is swept when
/// that is gone. A process that was forked since may use it, as long as publishing takes no minute.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let scratch = tempfile::tempdir()?;
/// use pidlockfile::{Directory, Found, Name, NewFile};
///
/// let directory = Directory::open(scratch.path())?;
/// let name = Name::new("LCK..ttyS0").ok_or("a plain file name")?;
/// let lock = directory.publish(&name, &NewFile::new(b"      1234\n", "demo"))?.ok_or("busy")?;
/// assert!(matches!(directory.read(&name, 64)?, Found::File(_)));
/// directory.withdraw(&name, &lock)?;
/// assert!(directory.names()?.is_empty());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Directory {
    handle: Arc<sys::Handle>,
    identity: Identity,
    mode: u32,
    owner: u32,
    /// The process that makes temporary files here, from the first one on.
    maker: OnceLock<Pid>,
    /// Whether a published file is held by `flock(2)` from before it has its name.
    pub(crate) is_guarding: bool,
    pub(crate) gate: Option<Gate>,
}

impl Directory {
    /// Opens a lock directory, following links in its path: the path is the administrator's.
    ///
    /// # Errors
    /// [`Step::OpenDirectory`] with the system's reason.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let failed = |errno| Error::new(Step::OpenDirectory, path, errno);
        Self::of(sys::open_directory(path).map_err(failed)?).map_err(failed)
    }

    /// Takes a directory that was opened elsewhere, if only with `O_PATH`.
    ///
    /// # Errors
    /// When it cannot be looked at.
    #[cfg(unix)]
    pub fn from_handle(handle: OwnedFd) -> std::io::Result<Self> {
        Ok(Self::of(handle)?)
    }

    /// Takes a directory that was opened elsewhere, and was seen to have these properties: nothing is asked again.
    #[cfg(unix)]
    #[must_use]
    pub fn examined(handle: OwnedFd, identity: Identity, mode: u32, owner: u32) -> Self {
        Self::with(handle, identity, mode, owner)
    }

    fn of(handle: sys::Handle) -> Result<Self, Errno> {
        #[cfg(unix)]
        let status = Status::of_open(&handle).map_err(|error| sys::errno(&error))?;
        #[cfg(windows)]
        let status = handle.status()?;
        let Status { identity, mode, owner, .. } = status;
        Ok(Self::with(handle, identity, mode, owner))
    }

    fn with(handle: sys::Handle, identity: Identity, mode: u32, owner: u32) -> Self {
        let (handle, maker) = (Arc::new(handle), OnceLock::new());
        Self { handle, identity, mode, owner, maker, is_guarding: false, gate: None }
    }

    /// The process that made the first temporary file by this handle.
    pub(crate) fn maker(&self) -> Pid {
        *self.maker.get_or_init(Pid::this)
    }

    /// Everything that is published by this handle is held with `flock(2)` from before it is
    /// visible until [`Published::let_go`](crate::Published::let_go), or until [`Published::file`](crate::Published::file) is closed: nobody breaks
    /// it meanwhile, whatever a breaker thinks of the process it names. For a maker that has more to say of
    /// its lock than fits into the file. Where the file system has no `flock(2)`, it is published
    /// without.
    ///
    /// Whether a program that knows no rules has removed the lock in its first moment is then for the
    /// maker to see when all is said: the name leads to another file or to none, and
    /// [`Published::has_a_name`](crate::Published::has_a_name) says no.
    #[must_use]
    pub fn guarding(self) -> Self {
        Self { is_guarding: true, ..self }
    }

    /// Callers that break or release by this handle what another has published go through a gate: among
    /// callers of the same gate, no outsider decides anything by holding `flock(2)` on a lock file.
    #[must_use]
    pub fn gated(self, gate: Option<Gate>) -> Self {
        Self { gate, ..self }
    }

    /// The gate in a directory that belongs to the callers: of one that everybody may write there is
    /// none. It shares the directory's descriptor. Its file, `gate`, is made when it is needed, or by [`Gate::make_ready`].
    #[must_use]
    pub fn as_gate(&self) -> Option<Gate> {
        (self.mode & 0o002 == 0).then(|| Gate::of(Arc::clone(&self.handle), self.owner))
    }

    /// Whether there is a gate.
    #[must_use]
    pub fn is_gated(&self) -> bool {
        self.gate.is_some()
    }

    /// Which directory it is: two paths to one directory have one identity.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Its permission bits when it was opened: whether everybody may put files there.
    #[must_use]
    pub fn mode(&self) -> u32 {
        self.mode
    }

    /// The user it belonged to when it was opened, as a uid.
    #[must_use]
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Reads what a name leads to: at most `limit` bytes of a regular file, never through a link,
    /// never blocking.
    ///
    /// # Errors
    /// [`Step::Inspect`] or [`Step::Read`] when the system fails for another reason than the file
    /// being absent or unreadable.
    pub fn read(&self, name: &Name, limit: usize) -> Result<Found, Error> {
        // Looking first costs a call, but opening a device can already do something to it.
        let looked = self.find(name.as_os_str()).map_err(Error::at(Step::Inspect, name))?;
        let Some(looked) = looked else { return Ok(Found::Nothing) };
        if let Some(obstacle) = looked.obstacle {
            return Ok(Found::Obstacle(obstacle));
        }
        let file = match sys::open_to_read(self, name.as_os_str()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(Found::Nothing),
            Err(Errno::ACCESS | Errno::PERM) => {
                return Ok(Found::Obstacle(Obstacle::Unreadable));
            }
            Err(Errno::LOOP) => return Ok(Found::Obstacle(Obstacle::Link)),
            Err(Errno::NXIO) => return Ok(Found::Obstacle(Obstacle::Special)),
            Err(errno) => return Err(Error::new(Step::Read, name, errno)),
        };
        OpenFile::of(file, limit).map_err(|errno| Error::new(Step::Read, name, errno))
    }

    /// The files in the directory, in no order, for programs that show or clean all locks. Names
    /// that are no text are left out: no convention writes such locks.
    ///
    /// # Errors
    /// [`Step::List`] with the system's reason.
    pub fn names(&self) -> Result<Vec<Name>, Error> {
        let listed = sys::list(self).map_err(|errno| Error::new(Step::List, ".", errno))?;
        Ok(listed.into_iter().filter_map(Name::new).collect())
    }

    /// Removes temporary files with this prefix whose maker is gone, once they are a minute old.
    /// Those of the living are never touched. Returns how many were removed.
    ///
    /// A file from the future is old ([`Age`]). A clock that was set forward or back still leaves the files of the
    /// living.
    ///
    /// # Errors
    /// [`Step::List`] when the directory cannot be read; files that cannot be removed are passed
    /// over.
    pub fn sweep(&self, prefix: impl AsRef<OsStr>, now: SystemTime) -> Result<usize, Error> {
        let mut removed = 0_usize;
        for name in self.names()? {
            let Some(maker) = temporary::maker(&name, prefix.as_ref()) else { continue };
            let Ok(stat) = sys::inspect(self, name.as_os_str()) else { continue };
            let is_old =
                stat.obstacle.is_none() && Age::of([stat.modified], now).reaches(SWEEP_AGE);
            if is_old && !lives(maker) && sys::unlink(self, name.as_os_str()).is_ok() {
                removed = removed.saturating_add(1);
            }
        }
        Ok(removed)
    }

    /// Renames a file of the directory, in one step and without any check: for files that are no locks, and whose
    /// users have a protocol of their own.
    ///
    /// # Errors
    /// [`Step::Publish`] with the system's reason.
    pub fn rename(&self, from: &Name, to: &Name, how: Rename) -> Result<(), Error> {
        sys::rename(self, from.as_os_str(), to.as_os_str(), how)
            .map_err(Error::at(Step::Publish, to))
    }

    /// Which file a name leads to, without following it; `None` when there is none.
    pub(crate) fn identity_of(&self, name: &OsStr) -> Result<Option<Identity>, Errno> {
        Ok(self.find(name)?.map(|stat| stat.identity))
    }

    /// What a name leads to, without following it; `None` when there is none.
    pub(crate) fn find(&self, name: &OsStr) -> Result<Option<Status>, Errno> {
        match sys::inspect(self, name) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

#[cfg(unix)]
impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

#[cfg(windows)]
impl AsRef<sys::Handle> for Directory {
    fn as_ref(&self) -> &sys::Handle {
        &self.handle
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::NewFile;

    /// Says something to an ordinary user: root may list every directory.
    #[test]
    fn a_directory_that_may_be_used_but_not_listed_is_opened() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::set_permissions(scratch.path(), Permissions::from_mode(0o300)).unwrap();
        let directory = Directory::open(scratch.path()).unwrap();
        let name = Name::new("LCK..ttyS0").unwrap();
        let published = directory.publish(&name, &NewFile::new(b"1\n", "x"));
        std::fs::set_permissions(scratch.path(), Permissions::from_mode(0o700)).unwrap();
        assert!(published.unwrap().is_some());
        assert!(scratch.path().join("LCK..ttyS0").is_file());
    }
}
