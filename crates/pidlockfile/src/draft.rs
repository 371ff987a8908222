//! A lock file that is being written: it is complete under a private name before it gets the lock's name.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::time::SystemTime;

use crate::directory::Directory;
use crate::errno::Errno;
use crate::flocked::unlock_before_close;
use crate::name::Name;
use crate::status::{Identity, Status};
use crate::sys::{self, Rename};
use crate::temporary;

/// What to publish. Begin with [`NewFile::new`], and change the rest if it does not fit.
///
/// ```
/// use pidlockfile::{Durability, NewFile};
///
/// let mut file = NewFile::new(b"      1234\n", "demo");
/// file.mode = 0o644;
/// file.durability = Durability::Disk;
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NewFile<'a> {
    /// The whole content of the lock file.
    pub content: &'a [u8],
    /// Its permission bits, whatever the umask.
    pub mode: u32,
    /// The start of the temporary file's name: `PREFIX.PID.RANDOM.tmp`.
    pub prefix: &'a OsStr,
    /// Whether it must be on the disk before it becomes visible.
    pub durability: Durability,
}

impl<'a> NewFile<'a> {
    /// A lock file with this content that everybody may read (mode 0444) and that need not survive a crash of the
    /// machine. `prefix` is the start of the temporary file's name.
    #[must_use]
    pub fn new(content: &'a [u8], prefix: &'a (impl AsRef<OsStr> + ?Sized)) -> Self {
        Self { content, mode: 0o444, prefix: prefix.as_ref(), durability: Durability::Memory }
    }
}

/// How much a published lock must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// The death of its process. After a crash of the machine the lock is void anyway.
    Memory,
    /// A crash of the machine: `fsync(2)` before the name appears.
    Disk,
}

/// A lock file that was published.
#[derive(Debug)]
#[expect(
    clippy::exhaustive_structs,
    reason = "whoever keeps the file makes it again from its parts"
)]
pub struct Published {
    /// The file, open for writing: a daemon may keep it to hold `flock(2)` on its own lock, which
    /// lasts until this descriptor, and any that a fork has inherited, is closed. It is not
    /// passed to programs that are started.
    pub file: File,
    /// Which file it is.
    pub identity: Identity,
    /// When it was written, by the file system's clock.
    pub modified: SystemTime,
}

impl Published {
    /// Asks for `flock(2)` on the file; `false` while another process has it.
    ///
    /// # Errors
    /// With the system's reason.
    pub fn try_hold(&self) -> std::io::Result<bool> {
        Ok(sys::try_lock_inode(&self.file)?)
    }

    /// Whether the file has a name still, whichever: `false` only where the system says that somebody
    /// has removed it.
    #[must_use]
    pub fn has_a_name(&self) -> bool {
        sys::has_more_names_than(&self.file, 0)
    }

    /// The same file by a second descriptor of its opening.
    #[cfg(unix)]
    pub(crate) fn again(&self) -> Result<Self, Errno> {
        let file = self.file.try_clone().map_err(|error| sys::errno(&error))?;
        Ok(Self { file, ..*self })
    }

    /// Closes the file, and so gives the `flock(2)` of [`Directory::guarding`] back.
    pub fn close(self) {
        unlock_before_close(&self.file);
    }

    /// Gives the `flock(2)` of [`Directory::guarding`] back while the file stays open.
    pub fn let_go(&self) {
        // It goes with the descriptor at the latest.
        let _ = sys::unlock_inode(&self.file);
    }
}

/// A private name that removes itself, unless it has learnt that it is no longer its own.
#[derive(Debug)]
pub(crate) struct PrivateName<'d> {
    directory: &'d Directory,
    name: Name,
    live: bool,
}

/// A complete lock file that has only its private name yet.
#[derive(Debug)]
pub(crate) struct Draft<'d> {
    // Dropped first: the name goes before the descriptor, as when a process ends in order.
    pub(crate) private: PrivateName<'d>,
    pub(crate) made: Published,
}

/// How a lock file got the last of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// The private name was renamed to it, and is gone.
    Renamed,
    /// The name is one more link.
    Linked,
    /// Another file was created under the name, and is the draft's file from now on.
    InPlace,
}

impl<'d> PrivateName<'d> {
    pub(crate) fn fresh(directory: &'d Directory, prefix: &OsStr) -> Result<Self, Errno> {
        Self::new(directory, temporary::fresh(prefix, directory.maker()))
    }

    pub(crate) fn new(directory: &'d Directory, name: OsString) -> Result<Self, Errno> {
        // A prefix with a slash would lead out of the directory.
        let name = Name::new(name).ok_or(Errno::INVAL)?;
        Ok(Self { directory, name, live: false })
    }

    pub(crate) fn as_os_str(&self) -> &OsStr {
        self.name.as_os_str()
    }

    #[cfg(unix)]
    pub(crate) fn name(&self) -> &Name {
        &self.name
    }

    /// The same name, which this value leaves to the new one.
    #[cfg(unix)]
    pub(crate) fn take(&mut self) -> Self {
        let live = std::mem::take(&mut self.live);
        Self { directory: self.directory, name: self.name.clone(), live }
    }

    /// The name leads to a file of ours from now on.
    pub(crate) fn keep_clean(&mut self) {
        self.live = true;
    }

    /// The name is gone, or what it leads to is not ours to remove.
    pub(crate) fn forget(&mut self) {
        self.live = false;
    }

    /// Which file it leads to; `None` when there is none.
    pub(crate) fn leads_to(&self) -> Result<Option<Identity>, Errno> {
        self.directory.identity_of(self.as_os_str())
    }
}

impl Drop for PrivateName<'_> {
    fn drop(&mut self) {
        if self.live {
            // A name that cannot be removed is swept later.
            let _ = sys::unlink(self.directory, self.as_os_str());
        }
    }
}

impl<'d> Draft<'d> {
    /// Writes the claim to a temporary file, complete and with its final mode.
    pub(crate) fn new(directory: &'d Directory, claim: &NewFile<'_>) -> Result<Self, Errno> {
        Self::write(PrivateName::fresh(directory, claim.prefix)?, claim, |file| {
            guard(directory, file);
            Ok(())
        })
    }

    /// Writes the claim to a file of this private name. `hold` is called while the file is empty, and before others may
    /// open it.
    pub(crate) fn write(
        mut private: PrivateName<'d>,
        claim: &NewFile<'_>,
        hold: impl FnOnce(&File) -> Result<(), Errno>,
    ) -> Result<Self, Errno> {
        let file = sys::create(private.directory, private.as_os_str(), unopened(claim.mode))?;
        private.keep_clean();
        hold(&file)?;
        let Status { identity, modified, .. } = fill(&file, claim)?;
        let file = sys::reopened(private.directory, private.as_os_str(), file)?;
        Ok(Self { private, made: Published { file, identity, modified } })
    }

    /// Gives the file the lock's name, its only one. `None` if the name is taken.
    pub(crate) fn publish(
        mut self,
        name: &Name,
        claim: &NewFile<'_>,
    ) -> Result<Option<Published>, Errno> {
        Ok(match self.name_last(name, claim)? {
            None => None,
            Some(Naming::Renamed) => self.checked(name, 0),
            Some(Naming::Linked) => self.checked(name, 1),
            Some(Naming::InPlace) => Some(self.made),
        })
    }

    /// Gives the file the last of its names: in one step where the file system can rename without replacing, otherwise by
    /// one more link, and where there are no links, by another file that says the same. `None` if the name is taken.
    ///
    /// Whether it happened is asked of the names, not only of the answer: over a network the
    /// answer can get lost and the repeated request fail.
    pub(crate) fn name_last(
        &mut self,
        name: &Name,
        claim: &NewFile<'_>,
    ) -> Result<Option<Naming>, Errno> {
        let directory = self.private.directory;
        let how = Rename::NoReplace;
        match sys::rename(directory, self.private.as_os_str(), name.as_os_str(), how) {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match self.link(name) {
                Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => {
                    let Some(made) = create_in_place(directory, name, claim)? else {
                        return Ok(None);
                    };
                    self.made = made;
                    return Ok(Some(Naming::InPlace));
                }
                linked => return Ok(linked?.then_some(Naming::Linked)),
            },
            Err(Errno::EXIST) => return Ok(None),
            Err(_) if self.has_moved() => {}
            Err(errno) => return Err(errno),
        }
        self.private.forget();
        Ok(Some(Naming::Renamed))
    }

    /// Gives the file one more name. `false` if the name is taken.
    pub(crate) fn link(&self, name: &Name) -> Result<bool, Errno> {
        let directory = self.private.directory;
        match sys::link(directory, self.private.as_os_str(), name.as_os_str()) {
            Ok(()) => Ok(true),
            // The answer got lost, the deed was done.
            Err(_) if self.has(name) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Whether this name leads to this file, too.
    pub(crate) fn has(&self, name: &Name) -> bool {
        let there = self.private.directory.identity_of(name.as_os_str());
        there.is_ok_and(|there| there == Some(self.made.identity))
    }

    /// Whether the private name certainly leads to this file no longer.
    pub(crate) fn has_moved(&self) -> bool {
        self.private.leads_to().is_ok_and(|identity| identity != Some(self.made.identity))
    }

    /// The last check of a claim: that the lock's name leads to our file. It fails only when
    /// a program that knows no rules has already removed it; `None` then.
    ///
    /// The system said that the name was given, so only what is seen counts against it: a look
    /// that fails does not, and neither does a file that still has a name besides its private
    /// one: a forced release has moved it aside for a moment and puts it back. `private_names` is the number of private
    /// names that the file still has.
    ///
    /// A caller that is not done with the lock when it has its name looks later ([`Directory::guarding`]).
    pub(crate) fn checked(self, name: &Name, private_names: u64) -> Option<Published> {
        let Self { private, made } = self;
        if private_names == 0 && private.directory.is_guarding {
            return Some(made);
        }
        let seen = private.directory.identity_of(name.as_os_str());
        let lost = seen.is_ok_and(|seen| seen != Some(made.identity))
            && !sys::has_more_names_than(&made.file, private_names);
        (!lost).then_some(made)
    }
}

/// The bits of a file that nobody but its owner may open yet: anybody may hold `flock(2)` on what he
/// may read.
fn unopened(mode: u32) -> u32 {
    (mode & 0o700) | 0o600
}

/// Writes a claim into a new file, and returns what the system says of it then.
fn fill(file: &File, claim: &NewFile<'_>) -> Result<Status, Errno> {
    sys::write_all(file, claim.content)?;
    let stat = sys::stat_open(file)?;
    // The umask, or a default ACL, may have taken bits away.
    if stat.mode & 0o777 != claim.mode & 0o777 {
        sys::set_mode(file, claim.mode)?;
    }
    match claim.durability {
        Durability::Memory => {}
        Durability::Disk => sys::sync(file)?,
    }
    Ok(stat)
}

/// Holds a new file by `flock(2)` if this directory's files are held ([`Directory::guarding`]). A process that holds it
/// already keeps breakers away as well, for as long as it likes; without `flock(2)` nobody breaks anything.
fn guard(directory: &Directory, file: &File) {
    if directory.is_guarding {
        let _ = sys::try_lock_inode(file);
    }
}

/// The last resort where a file can be neither renamed without replacing nor linked: exclusive
/// creation under the lock's name. It is visible before it is full; readers take a young empty
/// file for busy. `None` when the name is taken.
fn create_in_place(
    directory: &Directory,
    name: &Name,
    claim: &NewFile<'_>,
) -> Result<Option<Published>, Errno> {
    let file = match sys::create(directory, name.as_os_str(), claim.mode) {
        Ok(file) => file,
        Err(Errno::EXIST) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    guard(directory, &file);
    match fill(&file, claim) {
        Ok(Status { identity, modified, .. }) => {
            let file = sys::reopened(directory, name.as_os_str(), file)?;
            Ok(Some(Published { file, identity, modified }))
        }
        Err(errno) => {
            // Half a lock must not stay, and another's must not go.
            let own = sys::stat_open(&file).map(|stat| stat.identity).ok();
            if own.is_some()
                && directory.identity_of(name.as_os_str()).is_ok_and(|seen| seen == own)
            {
                let _ = sys::unlink(directory, name.as_os_str());
            }
            Err(errno)
        }
    }
}

/// A write past the limit on the size of files (`ulimit -f`, setrlimit(2)) fails with `EFBIG` from now on, in this whole
/// process. Without this call the signal SIGXFSZ ends the process, and a lock file that was being written stays behind.
///
/// For programs, at their start; a library leaves signals to its program. The signal is caught rather than
/// ignored, because execve(2) gives a command that the program becomes or starts the default again.
///
/// # Errors
/// The system's, if it does not let the signal be caught.
#[cfg(all(unix, feature = "program"))]
pub fn catch_file_size_signal() -> std::io::Result<()> {
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, std::sync::Arc::default()).map(drop)
}
