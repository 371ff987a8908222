//! What a name leads to, judged by the open descriptor and never by the name.

use std::fs::File;
use std::io;
#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd};
use std::time::SystemTime;

use crate::errno::Errno;
use crate::flocked::Flocked;
use crate::gate::Passage;
use crate::status::{Identity, Obstacle, Status};
use crate::sys;

/// More than any lock file that is released or exchanged, in bytes.
pub(crate) const CONTENT_BYTES: usize = 1024 * 1024;

/// What a name leads to.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "the caller acts on each")]
pub enum Found {
    /// There is no such name: the lock is free.
    Nothing,
    /// A regular file, read and open.
    File(OpenFile),
    /// Something that is no readable regular file. It is never followed, opened for writing or
    /// removed; a lock is busy behind it.
    Obstacle(Obstacle),
}

/// A lock file as it was read: the open descriptor, and what was in it.
///
/// As long as this value lives the inode cannot be used again for another file, so "the very file
/// that was judged" is exact.
#[derive(Debug)]
pub struct OpenFile {
    pub(crate) file: Flocked,
    /// What was seen through the descriptor.
    seen: Status,
    content: Vec<u8>,
    /// At most this many bytes were read.
    limit: usize,
    /// Being in the gate on its account.
    pub(crate) passage: Option<Passage>,
    /// There is no gate that we may enter.
    pub(crate) is_ungated: bool,
    /// Where `flock(2)` on it is of another opening: this process kept that, or the file system asks for it.
    pub(crate) writable: Option<Flocked>,
    /// Whether the `flock(2)` of another process on it is ignored.
    ignores_flock: bool,
}

impl OpenFile {
    pub(crate) fn of(file: File, limit: usize) -> Result<Found, Errno> {
        let seen = sys::stat_open(&file)?;
        if let Some(obstacle) = seen.obstacle {
            return Ok(Found::Obstacle(obstacle));
        }
        let content = read_limited(&file, limit, seen.size)?;
        Ok(Found::File(Self {
            file: Flocked::readable(file),
            seen,
            content,
            limit,
            passage: None,
            is_ungated: false,
            writable: None,
            ignores_flock: false,
        }))
    }

    /// Whether what a name was just seen to lead to is this very file, saying the same and not
    /// written to since: a lock that its owner touches to stay young is not the one that was old.
    pub(crate) fn is_still(&self, stat: &Status) -> Result<bool, Errno> {
        Ok(self.was_seen_so(stat) && self.says_the_same()?)
    }

    pub(crate) fn says_the_same(&self) -> Result<bool, Errno> {
        Ok(read_limited(&self.file.file, self.limit, self.seen.size)? == self.content)
    }

    /// Half of [`OpenFile::is_still`]: without another look at what the file says.
    pub(crate) fn was_seen_so(&self, stat: &Status) -> bool {
        let Status { identity, size, modified, .. } = self.seen;
        (stat.identity, stat.size, stat.modified) == (identity, size, modified)
    }

    /// A second descriptor of the same opening, for a caller that wants the last close, which takes a while
    /// for a file without a name, at another time. A `flock(2)` on the file ends with this value all the same.
    ///
    /// # Errors
    /// When there are no more descriptors.
    pub fn try_clone(&self) -> io::Result<File> {
        self.file.file.try_clone()
    }

    /// Asks for `flock(2)` on the file, which lasts as long as this is kept: no maker of it is still
    /// at work then ([`crate::Directory::guarding`]), and nobody breaks or releases it by this crate.
    /// `false` while another process has it. Where the file system has none for files that were opened
    /// to be read, this is an error.
    ///
    /// # Errors
    /// With the system's reason.
    pub fn try_hold(&self) -> io::Result<bool> {
        Ok(self.try_lock()?)
    }

    /// The caller is in the gate already, on account of another file.
    pub fn enter_by(&mut self, passage: Passage) {
        self.passage = Some(passage);
    }

    /// Being in the gate, for a caller that stays there.
    #[must_use]
    pub fn passage(&self) -> Option<&Passage> {
        self.passage.as_ref()
    }

    /// Leaves the gate, if we are in it, unless the caller keeps the passage.
    pub fn leave_gate(&mut self) {
        self.passage = None;
    }

    pub(crate) fn try_lock(&self) -> Result<bool, Errno> {
        if self.writable.is_some() { Ok(true) } else { self.file.try_lock() }
    }

    /// Ignores the `flock(2)` of another process on the file from now on. Only in the gate, and for a caller that has given
    /// that process time to break or release the file. Returns whether we are in the gate.
    pub fn ignore_flock(&mut self) -> bool {
        self.ignores_flock = self.passage.is_some();
        self.ignores_flock
    }

    /// The same without a gate, if the holder of the `flock(2)` agrees: it keeps breakers away meanwhile.
    pub fn ignore_flock_with_consent(&mut self) {
        self.ignores_flock = true;
    }

    /// Whether the `flock(2)` of another process on it is ignored.
    #[must_use]
    pub fn ignores_flock(&self) -> bool {
        self.ignores_flock
    }

    /// Whether the file has a name still, whichever: `false` only where the system says that somebody has removed it.
    #[must_use]
    pub fn has_a_name(&self) -> bool {
        sys::has_more_names_than(&self.file.file, 0)
    }

    /// What the file says, up to the limit it was read with.
    #[must_use]
    pub fn content(&self) -> &[u8] {
        &self.content
    }

    /// When it was last written.
    #[must_use]
    pub fn modified(&self) -> SystemTime {
        self.seen.modified
    }

    /// The user the file belongs to, as a uid: not necessarily the holder's.
    #[must_use]
    pub fn owner(&self) -> u32 {
        self.seen.owner
    }

    /// Which file it is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.seen.identity
    }

    /// Everything that was seen of it.
    #[must_use]
    pub fn status(&self) -> Status {
        self.seen
    }
}

/// The open file, for questions that this crate does not ask.
#[cfg(unix)]
impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.file.as_fd()
    }
}

/// No more memory than the file needs, and never more than the limit.
fn read_limited(file: &File, limit: usize, size: u64) -> Result<Vec<u8>, Errno> {
    let expected = usize::try_from(size).unwrap_or(usize::MAX);
    // A size of zero is not believed: some file systems in user space say so of every file.
    let room = if expected == 0 { limit } else { expected.min(limit) };
    let mut content = vec![0; room];
    let length = sys::read_start(file, &mut content, expected)?;
    content.truncate(length);
    Ok(content)
}
