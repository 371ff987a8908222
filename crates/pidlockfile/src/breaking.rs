//! Breaks and releases locks: removes exactly the file that was judged, and no other.
//!
//! `flock(2)` on the judged file keeps apart the processes that break or release it. If a program that does
//! not know this interferes, that is noticed afterwards and undone.

use std::fs::File;

use crate::directory::Directory;
use crate::draft::{Claim, Draft, Given, PrivateName, Published};
use crate::errno::Errno;
use crate::error::{Error, Step};
use crate::flocked::Flocked;
use crate::found::Judged;
use crate::name::Name;
use crate::publishing::Publication;
use crate::status::Status;
use crate::sys::{self, Rename};

/// The answer to [`Directory::replace`].
#[derive(Debug)]
pub enum Breaking {
    /// The judged file is gone and the claim stands in its place.
    Replaced(Published),
    /// The name leads to another file, or the file says something else by now: judge again.
    Changed,
    /// Another process is breaking the same file, or holds it with `flock(2)`.
    Contended,
}

/// The answer to [`Directory::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The judged file is gone.
    Removed,
    /// The name led to another file, or to none, or another process was releasing this lock past a
    /// `flock(2)` at that moment; nothing was removed.
    Changed,
}

/// The answer to [`Directory::withdraw`].
#[derive(Debug)]
pub enum Withdrawal {
    /// The lock is no longer there under its name, or was not.
    Done(Removal),
    /// Another process holds `flock(2)` on it: here it is, to try again.
    Contended(Published),
}

/// A judged file on which this process holds `flock(2)`.
#[derive(Debug)]
struct Excluded {
    judged: Judged,
    /// Where the lock hangs on another opening of the file.
    _writable: Option<Flocked>,
}

/// The answer to the try for `flock(2)`.
#[derive(Debug)]
enum Exclusion {
    Ours(Excluded),
    Others(Judged),
    /// The name leads to another file.
    Changed,
}

/// What a private name leads to after a step that moved there what had the lock's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caught {
    /// The judged file, unchanged; or nothing, as somebody else has already removed it.
    Judged,
    /// Another one.
    Other,
}

/// How often a file that came out instead of the judged one is given back when its place keeps
/// changing. Each time a foreign program has made a step within microseconds.
pub(crate) const TRIES_TO_GIVE_BACK: usize = 8;

impl Directory {
    /// Breaks a stale lock and takes its place in one step.
    ///
    /// Only the very file that was judged, with the very content that was judged, is removed.
    ///
    /// # Errors
    /// With the system's reason; [`Error::is_not_permitted`] where the file belongs to somebody
    /// else in a sticky directory. The old lock then stands as it was.
    pub fn replace(
        &self,
        name: &Name,
        judged: Judged,
        claim: &Claim<'_>,
    ) -> Result<Breaking, Error> {
        let excluded = match self.exclude(name, judged)? {
            Exclusion::Ours(excluded) => excluded,
            // What comes out is looked at in any case.
            Exclusion::Others(judged) if judged.goes_past() => Excluded { judged, _writable: None },
            Exclusion::Others(_) => return Ok(Breaking::Contended),
            Exclusion::Changed => return Ok(Breaking::Changed),
        };
        // Before the last look, so that nothing lies between that and the step.
        let draft = Draft::new(self, claim).map_err(Error::at(Step::Prepare, name))?;
        self.change_places(name, &excluded.judged, claim, draft)
    }

    /// Puts another lock in the place of one that this process published and kept open: it holds
    /// `flock(2)` on that file already. As [`Directory::replace`] otherwise.
    ///
    /// # Errors
    /// As [`Directory::replace`].
    pub fn replace_held(
        &self,
        name: &Name,
        mut judged: Judged,
        held: &Published,
        claim: &Claim<'_>,
    ) -> Result<Breaking, Error> {
        if judged.identity() != held.identity {
            return Ok(Breaking::Changed);
        }
        if !self.enter(&mut judged) {
            return Ok(Breaking::Contended);
        }
        let lock = sys::try_lock_created(self, name.as_os_str(), &held.file);
        let Some(_lock) = lock.map_err(Error::at(Step::Exclude, name))? else {
            return Ok(Breaking::Contended);
        };
        let draft = Draft::new(self, claim).map_err(Error::at(Step::Prepare, name))?;
        self.change_places(name, &judged, claim, draft)
    }

    /// Removes a lock that is the caller's own, even while another process holds `flock(2)` on
    /// it: in a world-readable directory anybody can, and must not keep an owner from letting go.
    ///
    /// `prefix` is the start of the private name that is used then. As its holder might
    /// also be breaking the lock, try [`Directory::try_release`] for longer than breaking takes
    /// before this; the crate's documentation says what could happen otherwise.
    ///
    /// # Errors
    /// With the system's reason.
    pub fn release(
        &self,
        name: &Name,
        judged: Judged,
        prefix: impl AsRef<std::ffi::OsStr>,
    ) -> Result<Removal, Error> {
        match self.exclude(name, judged)? {
            Exclusion::Ours(excluded) => {
                let removal = self.remove_excluded(name, &excluded.judged)?;
                Ok(removal.unwrap_or(Removal::Changed))
            }
            Exclusion::Others(judged) => self.release_past(name, &judged, prefix.as_ref()),
            Exclusion::Changed => Ok(Removal::Changed),
        }
    }

    /// Like [`Directory::release`], but steps back, with `None`, when another process holds
    /// `flock(2)` on the file: it is most likely breaking it, and then the name is its to fill.
    /// What was judged stale, and not the caller's own, must be removed like this.
    ///
    /// # Errors
    /// [`Step::Exclude`], [`Step::Inspect`] or [`Step::Remove`] with the system's reason.
    pub fn try_release(&self, name: &Name, judged: Judged) -> Result<Option<Removal>, Error> {
        match self.exclude(name, judged)? {
            Exclusion::Ours(excluded) => self.remove_excluded(name, &excluded.judged),
            Exclusion::Others(_) => Ok(None),
            Exclusion::Changed => Ok(Some(Removal::Changed)),
        }
    }

    /// Removes a lock that this process published and kept open: the descriptor says exactly
    /// which file it is, so nothing has to be read again.
    ///
    /// # Errors
    /// [`Step::Exclude`], [`Step::Inspect`] or [`Step::Remove`] with the system's reason.
    pub fn withdraw(&self, name: &Name, published: Published) -> Result<Withdrawal, Error> {
        Ok(match self.try_withdraw(name, &published, |_| true)? {
            Some(removal) => Withdrawal::Done(removal),
            None => Withdrawal::Contended(published),
        })
    }

    /// The same for a caller that closes the file when it likes; `None` when another process holds
    /// `flock(2)` on it.
    ///
    /// `before` is called with what the system tells of the file when that is found under its name,
    /// and nobody may break or release it any more: to do what has to be done before it goes. Where
    /// it says `false`, the file stays, and the answer is `None`.
    ///
    /// # Errors
    /// As [`Directory::withdraw`].
    pub fn try_withdraw(
        &self,
        name: &Name,
        published: &Published,
        before: impl FnOnce(&Status) -> bool,
    ) -> Result<Option<Removal>, Error> {
        let lock = sys::try_lock_created(self, name.as_os_str(), &published.file);
        let Some(_lock) = lock.map_err(Error::at(Step::Exclude, name))? else { return Ok(None) };
        match sys::inspect(self, name.as_os_str()) {
            Ok(seen) if seen.identity == published.identity => {
                if before(&seen) {
                    self.unlink_judged(name).map(Some)
                } else {
                    Ok(None)
                }
            }
            Ok(_) | Err(Errno::ENOENT) if has_a_name(&published.file) => Ok(None),
            Ok(_) | Err(Errno::ENOENT) => Ok(Some(Removal::Changed)),
            Err(errno) => Err(Error::new(Step::Inspect, name, errno)),
        }
    }

    /// Goes through the gate, if there is one, and takes `flock(2)` on the judged file.
    fn exclude(&self, name: &Name, mut judged: Judged) -> Result<Exclusion, Error> {
        if !self.enter(&mut judged) {
            return Ok(Exclusion::Others(judged));
        }
        match judged.try_lock() {
            Ok(true) => Ok(Exclusion::Ours(Excluded { judged, _writable: None })),
            Ok(false) => Ok(Exclusion::Others(judged)),
            // NFS makes it a write lock on the whole file, which asks for a writable opening.
            Err(Errno::EBADF) => self.exclude_by_writing(name, judged),
            Err(errno) => Err(Error::at(Step::Exclude, name)(errno)),
        }
    }

    fn exclude_by_writing(&self, name: &Name, judged: Judged) -> Result<Exclusion, Error> {
        let file = match sys::open_to_write(self, name.as_os_str()) {
            Ok(file) => file,
            Err(Errno::ENOENT) => return Ok(Exclusion::Changed),
            // Another process has it open to exclude others.
            #[cfg(windows)]
            Err(Errno::EBUSY) => return Ok(Exclusion::Others(judged)),
            Err(errno) => return Err(Error::at(Step::Exclude, name)(errno)),
        };
        if sys::stat_open(&file).map_err(Error::at(Step::Exclude, name))?.identity
            != judged.identity()
        {
            return Ok(Exclusion::Changed);
        }
        Ok(match Flocked::try_lock(file).map_err(Error::at(Step::Exclude, name))? {
            Some(file) => Exclusion::Ours(Excluded { judged, _writable: Some(file) }),
            None => Exclusion::Others(judged),
        })
    }

    /// Whether a name leads to the very file that was judged, unchanged.
    fn is_still(&self, at: &Name, judged: &Judged) -> Result<bool, Errno> {
        match sys::inspect(self, at.as_ref()) {
            Ok(stat) => judged.is_still(&stat),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// `None`: the file has another name than this, so it was moved aside for a moment.
    fn remove_excluded(&self, name: &Name, judged: &Judged) -> Result<Option<Removal>, Error> {
        match self.is_still(name, judged) {
            Ok(true) => self.unlink_judged(name).map(Some),
            Ok(false) if self.is_aside(name, judged) => Ok(None),
            Ok(false) => Ok(Some(Removal::Changed)),
            Err(errno) => Err(Error::new(Step::Inspect, name, errno)),
        }
    }

    fn is_aside(&self, name: &Name, judged: &Judged) -> bool {
        let seen = self.identity_of(name.as_os_str());
        seen.is_ok_and(|seen| seen != Some(judged.identity())) && has_a_name(&judged.file)
    }

    /// The last step of a removal, under `flock(2)` on the file the name was seen to lead to.
    pub(crate) fn unlink_judged(&self, name: &Name) -> Result<Removal, Error> {
        match sys::unlink(self, name.as_os_str()) {
            Ok(()) => Ok(Removal::Removed),
            Err(Errno::ENOENT) => Ok(Removal::Changed),
            Err(errno) => Err(Error::new(Step::Remove, name, errno)),
        }
    }

    /// Looks a last time, and lets the draft and the lock change places in one step.
    pub(crate) fn change_places(
        &self,
        name: &Name,
        judged: &Judged,
        claim: &Claim<'_>,
        draft: Draft<'_>,
    ) -> Result<Breaking, Error> {
        match self.is_still(name, judged) {
            Ok(true) => {}
            Ok(false) => return Ok(Breaking::Changed),
            Err(errno) => return Err(Error::new(Step::Inspect, name, errno)),
        }
        let failed = |errno| Error::new(Step::Break, name, errno);
        match sys::rename_with(self, draft.private.as_os_str(), name.as_os_str(), Rename::Exchange)
        {
            Ok(()) => {}
            Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => {
                return self.replace_by_rename(name, judged, claim, draft).map_err(failed);
            }
            // The answer got lost, the deed was done.
            Err(_) if draft.has_moved() => {}
            Err(Errno::ENOENT) => return Ok(Breaking::Changed),
            Err(errno) => return Err(failed(errno)),
        }
        self.check_exchange(name, judged, draft).map_err(failed)
    }

    /// After the exchange the private name leads to what had the lock's name. If that is not the
    /// judged file, a program that does not know our rules broke the lock in that moment: it
    /// gets its place back.
    fn check_exchange(
        &self,
        name: &Name,
        judged: &Judged,
        draft: Draft<'_>,
    ) -> Result<Breaking, Errno> {
        match self.caught(&draft.private, judged) {
            Ok(Caught::Judged) => Ok(draft
                .published(name, Given::Renamed)
                .map_or(Breaking::Changed, Breaking::Replaced)),
            Ok(Caught::Other) => self.give_back(name, draft).map(|()| Breaking::Changed),
            // What came out is unknown, so it goes back, whatever it is.
            Err(errno) => self.give_back(name, draft).and(Err(errno)),
        }
    }

    fn caught(&self, private: &PrivateName<'_>, judged: &Judged) -> Result<Caught, Errno> {
        match sys::inspect(self, private.as_os_str()) {
            Ok(stat) if judged.is_still(&stat)? => Ok(Caught::Judged),
            Ok(_) => Ok(Caught::Other),
            // A sweeper of another pid namespace took the old lock for an orphan.
            Err(Errno::ENOENT) => Ok(Caught::Judged),
            Err(errno) => Err(errno),
        }
    }

    /// Exchanges back. Should something else than the draft come out, its place was taken
    /// meanwhile (the displaced lock was let go, and the next one claimed), and that goes back in
    /// turn.
    fn give_back(&self, name: &Name, mut draft: Draft<'_>) -> Result<(), Errno> {
        let mut at_name = Some(draft.identity);
        let mut displaced = draft.private.leads_to().unwrap_or_default();
        for _ in 0..TRIES_TO_GIVE_BACK {
            match sys::rename_with(
                self,
                draft.private.as_os_str(),
                name.as_os_str(),
                Rename::Exchange,
            ) {
                Ok(()) => {}
                // The name is vacant: the displaced lock was let go. Or the private name is.
                Err(Errno::ENOENT) => return Ok(()),
                Err(errno) => {
                    draft.private.forget();
                    return self.give_back_by_rename(name, &draft).map_err(|_| errno);
                }
            }
            match draft.private.leads_to() {
                Ok(out) if out == at_name => return Ok(()),
                Ok(None) => return Ok(()),
                Ok(out) => {
                    at_name = displaced;
                    displaced = out;
                }
                Err(errno) => {
                    draft.private.forget();
                    return Err(errno);
                }
            }
        }
        draft.private.forget();
        Err(Errno::EAGAIN)
    }

    /// If the exchange worked once and not again: as long as the name leads to the draft, putting
    /// the displaced lock over it loses nothing.
    fn give_back_by_rename(&self, name: &Name, draft: &Draft<'_>) -> Result<(), Errno> {
        if self.identity_of(name.as_os_str())? != Some(draft.identity) {
            return Err(Errno::EAGAIN);
        }
        sys::rename(self, draft.private.as_os_str(), name.as_os_str())
    }

    /// Breaking where files cannot be exchanged: away, check, and either give the new lock the
    /// name or put back what was caught.
    fn replace_by_rename(
        &self,
        name: &Name,
        judged: &Judged,
        claim: &Claim<'_>,
        draft: Draft<'_>,
    ) -> Result<Breaking, Errno> {
        let mut out = PrivateName::fresh(self, claim.prefix)?;
        match sys::rename(self, name.as_os_str(), out.as_os_str()) {
            Ok(()) => {}
            // The answer got lost, the deed was done.
            Err(_) if out.leads_to().is_ok_and(|there| there.is_some()) => {}
            Err(Errno::ENOENT) => return Ok(Breaking::Changed),
            Err(errno) => return Err(errno),
        }
        match self.caught(&out, judged) {
            Ok(Caught::Judged) => out.keep_clean(),
            Ok(Caught::Other) => return self.put_back(&mut out, name).map(|()| Breaking::Changed),
            Err(errno) => return self.put_back(&mut out, name).and(Err(errno)),
        }
        match self.publish_draft(name, claim, draft) {
            Ok(Publication::Published(published)) => Ok(Breaking::Replaced(published)),
            Ok(Publication::AlreadyThere) => Ok(Breaking::Changed),
            Err(errno) => self.put_back(&mut out, name).and(Err(errno)),
        }
    }

    /// Gives a file its lock name back. If that is taken meanwhile, the private name is all that
    /// is left of a lock that its owner has lost to that party, and goes; if it cannot be given
    /// back for another reason, the file is left where it is.
    fn put_back(&self, out: &mut PrivateName<'_>, name: &Name) -> Result<(), Errno> {
        out.forget();
        let mut put = sys::rename_with(self, out.as_os_str(), name.as_os_str(), Rename::NoReplace);
        if let Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) = put {
            put = sys::link(self, out.as_os_str(), name.as_os_str());
            match put {
                Ok(()) | Err(Errno::EEXIST) => {}
                // Not everybody's file may be linked: proc(5), fs.protected_hardlinks.
                Err(_) => return self.put_back_if_vacant(out, name),
            }
            out.keep_clean();
        }
        match put {
            Err(Errno::EEXIST) => {
                out.keep_clean();
                Ok(())
            }
            other => other,
        }
    }

    /// The last resort where a file can be neither linked nor renamed without replacing.
    fn put_back_if_vacant(&self, out: &PrivateName<'_>, name: &Name) -> Result<(), Errno> {
        match self.identity_of(name.as_os_str())? {
            None => sys::rename(self, out.as_os_str(), name.as_os_str()),
            Some(_) => Err(Errno::EEXIST),
        }
    }
}

/// Whether a published file that is not under its name still has another: then a forced release
/// has moved it aside for a moment and puts it back.
pub(crate) fn has_a_name(file: &File) -> bool {
    sys::stat_open(file).is_ok_and(|stat| stat.links > 0)
}
