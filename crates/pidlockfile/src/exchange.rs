//! Lets a new lock and a judged one change places in one step, and undoes it if something else came out.

use crate::directory::Directory;
use crate::draft::{Draft, NewFile, PrivateName, Published};
use crate::errno::Errno;
use crate::error::{Error, Step};
use crate::found::OpenFile;
use crate::name::Name;
use crate::status::Status;
use crate::sys::{self, Rename};

/// What came of an attempt to hold, replace or remove the file that was judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the caller acts on each")]
pub enum Attempt<T = ()> {
    /// The file is held; or it is gone; or this claim stands in its place.
    Done(T),
    /// The name leads to another file, or to none, or the file says something else by now, or another process was
    /// releasing this lock past a `flock(2)` at that moment. Nothing was changed: judge again.
    Changed,
    /// Another process is breaking or releasing the same file, holds it by `flock(2)`, or has moved it aside for a
    /// moment: try again.
    Contended,
}

impl<T> Attempt<T> {
    /// The same with another result of what was done.
    pub fn map<U>(self, made: impl FnOnce(T) -> U) -> Attempt<U> {
        match self {
            Self::Done(done) => Attempt::Done(made(done)),
            Self::Changed => Attempt::Changed,
            Self::Contended => Attempt::Contended,
        }
    }
}

/// How often a file that came out instead of the judged one is given back when its place keeps
/// changing. Each time a foreign program has made a step within microseconds.
pub(crate) const TRIES_TO_EXCHANGE_BACK: usize = 8;

/// Whether a name leads to the very file that was judged, unchanged.
pub(crate) fn is_still(directory: &Directory, at: &Name, opened: &OpenFile) -> Result<bool, Error> {
    let found = directory.find(at.as_ref());
    let is_it = |stat: Option<Status>| stat.map_or(Ok(false), |stat| opened.is_still(&stat));
    found.and_then(is_it).map_err(Error::at(Step::Inspect, at))
}

/// The last step of a removal, under `flock(2)` on the file the name was seen to lead to.
pub(crate) fn unlink_held(directory: &Directory, name: &Name) -> Result<Attempt, Error> {
    match sys::unlink(directory, name.as_os_str()) {
        Ok(()) => Ok(Attempt::Done(())),
        Err(Errno::NOENT) => Ok(Attempt::Changed),
        Err(errno) => Err(Error::new(Step::Remove, name, errno)),
    }
}

/// What to do where files cannot change places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Otherwise {
    /// The old file is renamed away and checked. The name is vacant until the draft gets it.
    Rename,
    /// The draft takes the place of the old file, which then is gone. The name is never vacant. A program that does not know
    /// our rules may have put its own file there since the last look; that one goes, too.
    #[cfg(unix)]
    Supplant,
    /// The exchange fails: what comes out is needed under the private name.
    #[cfg(unix)]
    Fail,
}

/// A judged lock, and the claim that is to take its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange<'e> {
    pub(crate) directory: &'e Directory,
    pub(crate) name: &'e Name,
    pub(crate) opened: &'e OpenFile,
    pub(crate) claim: &'e NewFile<'e>,
}

impl<'e> Exchange<'e> {
    /// Looks a last time, and lets the draft and the lock change places in one step.
    pub(crate) fn run(
        self,
        draft: Draft<'_>,
        otherwise: Otherwise,
    ) -> Result<Attempt<Published>, Error> {
        let Self { directory, name, opened, .. } = self;
        if !is_still(directory, name, opened)? {
            return Ok(Attempt::Changed);
        }
        let failed = |errno| Error::new(Step::Break, name, errno);
        match self.swap(&draft.private) {
            Ok(()) => {}
            #[cfg_attr(windows, expect(unused_variables, reason = "there files may be renamed"))]
            Err(errno @ (Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)) => {
                let outcome = match otherwise {
                    Otherwise::Rename => self.replace_by_rename(draft),
                    #[cfg(unix)]
                    Otherwise::Supplant => self.supplant(draft),
                    #[cfg(unix)]
                    Otherwise::Fail => Err(errno),
                };
                return outcome.map_err(failed);
            }
            // The answer got lost, the deed was done.
            Err(_) if draft.has_moved() => {}
            Err(Errno::NOENT) => return Ok(Attempt::Changed),
            Err(errno) => return Err(failed(errno)),
        }
        self.check(draft).map_err(failed)
    }

    fn swap(self, private: &PrivateName<'_>) -> Result<(), Errno> {
        let (from, to) = (private.as_os_str(), self.name.as_os_str());
        sys::rename(self.directory, from, to, Rename::Exchange)
    }

    /// After the exchange the private name leads to what had the lock's name. If that is not the
    /// judged file, a program that does not know our rules broke the lock in that moment: it
    /// gets its place back.
    fn check(self, draft: Draft<'_>) -> Result<Attempt<Published>, Errno> {
        match self.has_caught(&draft.private) {
            Ok(true) => Ok(draft.checked(self.name, 0).map_or(Attempt::Changed, Attempt::Done)),
            Ok(false) => self.exchange_back(draft).map(|()| Attempt::Changed),
            // What came out is unknown, so it goes back, whatever it is.
            Err(errno) => self.exchange_back(draft).and(Err(errno)),
        }
    }

    /// Whether a private name leads to the judged file, unchanged, after a step that moved there what had the lock's
    /// name; or to nothing: a sweeper of another pid namespace took the old lock for an orphan.
    fn has_caught(self, private: &PrivateName<'_>) -> Result<bool, Errno> {
        let found = self.directory.find(private.as_os_str())?;
        found.map_or(Ok(true), |stat| self.opened.is_still(&stat))
    }

    /// Exchanges back. Should something else than the draft come out, its place was taken
    /// meanwhile (the displaced lock was let go, and the next one claimed), and that goes back in
    /// turn.
    fn exchange_back(self, mut draft: Draft<'_>) -> Result<(), Errno> {
        let mut at_name = Some(draft.made.identity);
        let mut displaced = draft.private.leads_to().unwrap_or_default();
        for _ in 0..TRIES_TO_EXCHANGE_BACK {
            match self.swap(&draft.private) {
                Ok(()) => {}
                // The name is vacant: the displaced lock was let go. Or the private name is.
                Err(Errno::NOENT) => return Ok(()),
                Err(errno) => {
                    draft.private.forget();
                    return self.rename_back(&draft).map_err(|_| errno);
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
        Err(Errno::AGAIN)
    }

    /// If the exchange worked once and not again: as long as the name leads to the draft, putting
    /// the displaced lock over it loses nothing.
    fn rename_back(self, draft: &Draft<'_>) -> Result<(), Errno> {
        if self.directory.identity_of(self.name.as_os_str())? != Some(draft.made.identity) {
            return Err(Errno::AGAIN);
        }
        sys::rename(self.directory, draft.private.as_os_str(), self.name.as_os_str(), Rename::Over)
    }

    /// Removes the lock of a process that has ended. A program that does not know our rules may write its own number into
    /// it until the name is gone, and has the lock then. So what had the name is looked at once more, and keeps it if it
    /// has changed: however long we stood still.
    pub(crate) fn remove(self) -> Result<Attempt, Error> {
        match self.move_aside() {
            Ok(Some(_out)) => Ok(Attempt::Done(())),
            Ok(None) => Ok(Attempt::Changed),
            // There is no room for another name.
            Err(Errno::NOSPC | Errno::DQUOT) => unlink_held(self.directory, self.name),
            Err(errno) => Err(Error::new(Step::Remove, self.name, errno)),
        }
    }

    /// Moves the judged lock from its name to a private one, which goes with the value. `None` if something else came out,
    /// which has the name again.
    fn move_aside(self) -> Result<Option<PrivateName<'e>>, Errno> {
        let mut out = PrivateName::fresh(self.directory, self.claim.prefix)?;
        match sys::rename(self.directory, self.name.as_os_str(), out.as_os_str(), Rename::Over) {
            Ok(()) => {}
            // The answer got lost, the deed was done.
            Err(_) if out.leads_to().is_ok_and(|there| there.is_some()) => {}
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno),
        }
        match self.has_caught(&out) {
            Ok(true) => {
                out.keep_clean();
                Ok(Some(out))
            }
            Ok(false) => self.put_back(&mut out).map(|()| None),
            Err(errno) => self.put_back(&mut out).and(Err(errno)),
        }
    }

    /// Breaking where files cannot be exchanged: away, check, and either give the new lock the
    /// name or put back what was caught.
    fn replace_by_rename(self, draft: Draft<'_>) -> Result<Attempt<Published>, Errno> {
        let Some(mut out) = self.move_aside()? else { return Ok(Attempt::Changed) };
        match draft.publish(self.name, self.claim) {
            Ok(published) => Ok(published.map_or(Attempt::Changed, Attempt::Done)),
            Err(errno) => self.put_back(&mut out).and(Err(errno)),
        }
    }

    #[cfg(unix)]
    fn supplant(self, mut draft: Draft<'_>) -> Result<Attempt<Published>, Errno> {
        let (from, to) = (draft.private.as_os_str(), self.name.as_os_str());
        match sys::rename(self.directory, from, to, Rename::Over) {
            Ok(()) => {}
            // The answer got lost, the deed was done.
            Err(_) if draft.has(self.name) => {}
            Err(errno) => return Err(errno),
        }
        draft.private.forget();
        Ok(draft.checked(self.name, 0).map_or(Attempt::Changed, Attempt::Done))
    }

    /// Gives a file its lock name back. If that is taken meanwhile, the private name is all that
    /// is left of a lock that its owner has lost to that party, and goes; if it cannot be given
    /// back for another reason, the file is left where it is.
    fn put_back(self, out: &mut PrivateName<'_>) -> Result<(), Errno> {
        let Self { directory, name, .. } = self;
        out.forget();
        let (from, to) = (out.as_os_str().to_owned(), name.as_os_str());
        let mut put = sys::rename(directory, &from, to, Rename::NoReplace);
        if let Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) = put {
            put = sys::link(directory, &from, to);
            match put {
                Ok(()) | Err(Errno::EXIST) => {}
                // Not everybody's file may be linked: proc(5), fs.protected_hardlinks. The last resort where a file
                // can be neither linked nor renamed without replacing:
                Err(_) => {
                    return match directory.identity_of(to)? {
                        None => sys::rename(directory, &from, to, Rename::Over),
                        Some(_) => Err(Errno::EXIST),
                    };
                }
            }
            out.keep_clean();
        }
        match put {
            Err(Errno::EXIST) => {
                out.keep_clean();
                Ok(())
            }
            other => other,
        }
    }
}
